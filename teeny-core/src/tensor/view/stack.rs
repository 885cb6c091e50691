//! Further ways to join and split tensors, by PyTorch's names.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::memory;
use crate::tensor::{Tensor, map, references};

impl Tensor {
    /// The views at each position of `axis`, without it. Equivalent: `torch.unbind`.
    ///
    /// # Errors
    /// If the axis does not exist.
    #[track_caller]
    pub fn unbind(&self, axis: isize) -> Result<Vec<Tensor>> {
        let _op = enter("unbind").on([("x", Some(self))]);
        let n = self.size(axis)?;
        let mut parts = memory::reserved(n)?;
        for i in 0..n {
            parts.push(self.at(axis, i as isize)?);
        }
        Ok(parts)
    }

    /// Views of `sections` parts along `axis`, the first ones larger by 1 if the number does not
    /// divide the axis. Equivalent: `torch.tensor_split(x, sections, dim)`; [`Tensor::split_sizes`]
    /// takes parts of any sizes.
    ///
    /// # Errors
    /// If `sections` is 0, or the axis does not exist.
    #[track_caller]
    pub fn tensor_split(&self, axis: isize, sections: usize) -> Result<Vec<Tensor>> {
        let _op = enter("tensor_split").on([("x", Some(self))]);
        let n = self.size(axis)?;
        if sections == 0 {
            return Err(Error::value("cannot split into 0 parts")
                .help(format!("x.tensor_split({axis}, 1)? is the whole tensor")));
        }
        let mut parts = memory::reserved(sections)?;
        let mut start = 0;
        for i in 0..sections {
            let end = start + n / sections + usize::from(i < n % sections);
            parts.push(self.slice(axis, start..end)?);
            start = end;
        }
        Ok(parts)
    }

    /// [`Tensor::cat`] along the second axis, of vectors along the only one; scalars count as
    /// vectors. Equivalent: `torch.hstack`.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn hstack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = &references(tensors)[..];
        let _op = enter("hstack").on_all("tensors", tensors);
        stacked(tensors, 1, isize::from(tensors.iter().any(|x| x.ndim() > 1)))
    }

    /// [`Tensor::cat`] along the first axis, of vectors as rows. Equivalent: `torch.vstack`.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    #[doc(alias = "row_stack")]
    pub fn vstack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = &references(tensors)[..];
        let _op = enter("vstack").on_all("tensors", tensors);
        stacked(tensors, 2, 0)
    }

    /// [`Tensor::cat`] along the third axis, of matrices (m, n, 1) and vectors (1, n, 1).
    /// Equivalent: `torch.dstack`.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn dstack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = &references(tensors)[..];
        let _op = enter("dstack").on_all("tensors", tensors);
        stacked(tensors, 3, 2)
    }

    /// [`Tensor::view`] of the shape of `other`. Equivalent: `x.view_as(other)`.
    ///
    /// # Errors
    /// As [`Tensor::view`].
    #[track_caller]
    pub fn view_as(&self, other: &Tensor) -> Result<Tensor> {
        let _op = enter("view_as").on([("x", Some(self)), ("other", Some(other))]);
        self.view(other.shape())
    }

    /// The elements of self, in row-major order those where `mask` (broadcast to self) is true
    /// replaced by the elements of `src` in their order.
    ///
    /// # Errors
    /// If `mask` does not broadcast, or `src` has fewer elements than are replaced.
    ///
    /// Equivalent: `torch.masked_scatter`.
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, src: &Tensor) -> Result<Tensor> {
        let _op = enter("masked_scatter").on([
            ("x", Some(self)),
            ("mask", Some(mask)),
            ("src", Some(src)),
        ]);
        let mask = mask.expand(self.shape())?.reshape(-1)?.ne(0)?;
        // Position 0 has the value of elements that stay.
        let place = map([&mask.cumsum(0)?, &mask], |[count, m]| m.where_cond(count, 0))?;
        let src = src.cast(self.dtype())?.reshape(-1)?.pad(&[(1, 0)], 0)?;
        let new = src.index_select(0, &place)?;
        mask.where_cond(&new, &self.reshape(-1)?)?.reshape(self.shape())
    }
}

/// The tensors with at least `ndim` axes, joined along `axis`.
fn stacked(tensors: &[&Tensor], ndim: usize, axis: isize) -> Result<Tensor> {
    let grown = |x: &&Tensor| -> Result<Tensor> {
        let mut x = (*x).clone();
        while x.ndim() < ndim {
            x = x.unsqueeze(if x.ndim() == 2 { 2 } else { 0 })?;
        }
        Ok(x)
    };
    let parts = tensors.iter().map(grown).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, axis)
}
