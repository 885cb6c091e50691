//! Joining tensors along an axis, which copies, and splitting them, which gives views.

use crate::context::enter;
use crate::device::common;
use crate::error::{Error, Result};
use crate::memory;
use crate::messages::no_tensors;
use crate::op::Op;
use crate::tensor::one_device::lift;
use crate::tensor::{Tensor, references};
use std::borrow::Cow;

impl Tensor {
    /// The tensors one after another along `axis`; types are promoted, all other sizes must agree.
    /// Lists of tensors and of references to tensors are taken.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Reference, Tensor};
    /// # fn main() -> teeny_core::Result<()> {
    /// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], Reference::new())?; // (2, 2)
    /// let rows = x.split(0, 1)?; // two of (1, 2)
    /// assert_eq!(Tensor::cat(&rows, 1)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]); // (1, 4)
    /// assert_eq!(Tensor::cat(&[&x, &rows[0]], 0)?.size(0)?, 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If `tensors` is empty, or a shape does not fit.
    ///
    /// Equivalent: `torch.cat`.
    #[track_caller]
    pub fn cat<T: AsRef<Tensor>>(tensors: &[T], axis: isize) -> Result<Tensor> {
        cat(&references(tensors), axis)
    }

    /// Tensors of one shape, along a new axis at position `axis`. Equivalent: `torch.stack`.
    ///
    /// # Errors
    /// If `tensors` is empty, or the shapes differ.
    #[track_caller]
    pub fn stack<T: AsRef<Tensor>>(tensors: &[T], axis: isize) -> Result<Tensor> {
        stack(&references(tensors), axis)
    }

    /// Views of `size` elements along `axis`, the last one shorter if `size` does not divide the
    /// axis. Equivalent: `torch.split`.
    ///
    /// # Errors
    /// If `size` is 0.
    #[track_caller]
    pub fn split(&self, axis: isize, size: usize) -> Result<Vec<Tensor>> {
        let _op = enter("split").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        if size == 0 {
            return Err(Error::value("cannot split into parts of 0 elements")
                .help(format!("x.split({axis}, 1)? makes parts of one element")));
        }
        let total = self.shape()[axis];
        let count = total.div_ceil(size).max(1);
        let mut parts = memory::reserved(count)?;
        for i in 0..count {
            let start = i * size;
            parts.push(self.slice(axis as isize, start..start.saturating_add(size).min(total))?);
        }
        Ok(parts)
    }

    /// Views of the given `sizes` along `axis`. Equivalent: `torch.split` with a list.
    ///
    /// # Errors
    /// If the sizes do not add up to the axis.
    #[doc(alias = "split")]
    #[track_caller]
    pub fn split_sizes(&self, axis: isize, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let _op = enter("split_sizes").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let total: u128 = sizes.iter().map(|&n| n as u128).sum();
        if total != self.shape()[axis] as u128 {
            return Err(Error::shape(format!(
                "sizes {sizes:?} add up to {total}, axis {axis} of {} has {}",
                self.shape(),
                self.shape()[axis]
            ))
            .help(match (self.shape()[axis] as u128).checked_sub(total) {
                Some(rest) => format!("another size of {rest} makes the sum right"),
                None => format!("x.split({axis}, size)? takes one size for all parts"),
            }));
        }
        let mut start = 0;
        sizes
            .iter()
            .map(|&n| {
                start += n;
                self.slice(axis as isize, start - n..start)
            })
            .collect()
    }

    /// At most `count` views along `axis`, all but the last of equal size. Equivalent:
    /// `torch.chunk`.
    ///
    /// # Errors
    /// If `count` is 0.
    #[track_caller]
    pub fn chunk(&self, axis: isize, count: usize) -> Result<Vec<Tensor>> {
        let _op = enter("chunk").on([("x", Some(self))]);
        if count == 0 {
            return Err(Error::value("cannot split into 0 chunks")
                .help(format!("x.chunk({axis}, 1)? is the whole tensor")));
        }
        let size = self.shape()[self.shape().axis(axis)?].div_ceil(count);
        self.split(axis, size.max(1))
    }
}

#[track_caller]
fn cat(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
    let _op = enter("cat").on_all("tensors", tensors);
    let Some(first) = tensors.first() else { return Err(no_tensors()) };
    let axis = first.shape().axis(axis)?;
    let (mut device, mut dtype) = (first.device().clone(), first.dtype());
    for t in tensors {
        device = common(&device, t.device())?;
        dtype = dtype.promote(t.dtype());
    }
    let parts = tensors
        .iter()
        .map(|t| {
            if t.dtype() == dtype {
                lift(t, &device)
            } else {
                lift(t, &device)?.cast(dtype).map(Cow::Owned)
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let parts: Vec<&Tensor> = parts.iter().map(Cow::as_ref).collect();
    Op::Cat { tensors: &parts, axis }.tensor(&device)
}

#[track_caller]
fn stack(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
    let _op = enter("stack").on_all("tensors", tensors);
    let Some(first) = tensors.first() else { return Err(no_tensors()) };
    let axis = first.shape().gap(axis)? as isize;
    if let Some(i) = tensors.iter().position(|t| t.shape() != first.shape()) {
        return Err(Error::shape(format!(
            "tensor {i} is {}, tensor 0 is {}: stacked \
             tensors have one shape",
            tensors[i].shape(),
            first.shape()
        ))
        .help(
            "x.expand(shape)? and x.reshape(shape)? make shapes equal; Tensor::cat \
             lets one axis differ",
        ));
    }
    let parts = tensors.iter().map(|t| t.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, axis)
}
