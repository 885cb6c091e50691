//! Other shapes of the same elements: a view where strides allow it, else a row-major copy. Sizes
//! of -1 are inferred here.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::op::Op;
use crate::shape::{IntoShape, Shape};
use crate::tensor::Tensor;

impl Tensor {
    /// The same elements in row-major order as another shape; one size may be -1 and is inferred. A
    /// view where strides allow it, a copy otherwise.
    ///
    /// # Errors
    /// If the number of elements differs.
    ///
    /// Equivalent: `torch.reshape`.
    #[track_caller]
    pub fn reshape(&self, shape: impl IntoShape) -> Result<Tensor> {
        let _op = enter("reshape").on([("x", Some(self))]);
        self.reshaped(&shape.sizes())
    }

    fn reshaped(&self, sizes: &[i64]) -> Result<Tensor> {
        let shape = infer(self.shape(), sizes)?;
        match self.layout().reshape(&shape) {
            Some(layout) => Ok(self.through(layout)),
            None => Ok(self.contiguous()?.through(Layout::contiguous(shape))),
        }
    }

    /// [`Tensor::reshape`] that never copies.
    ///
    /// # Errors
    /// If no strides can express the new shape.
    #[track_caller]
    pub fn view(&self, shape: impl IntoShape) -> Result<Tensor> {
        let _op = enter("view").on([("x", Some(self))]);
        let shape = infer(self.shape(), &shape.sizes())?;
        self.layout().reshape(&shape).map(|layout| self.through(layout)).ok_or_else(|| {
            Error::shape(format!(
                "shape {} with strides {:?} cannot be seen as {shape} without a copy",
                self.shape(),
                self.strides()
            ))
            .help("x.reshape(..)? copies where needed")
        })
    }

    /// Axes `start..=end` joined into one. Equivalent: `torch.flatten`.
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let _op = enter("flatten").on([("x", Some(self))]);
        if self.ndim() == 0 {
            return self.reshape(1);
        }
        let (start, end) = (self.shape().axis(start)?, self.shape().axis(end)?);
        if start > end {
            return Err(Error::axis(format!("axis {start} comes after axis {end}"))
                .help(format!("x.flatten({end}, {start})? names them in order")));
        }
        let mut sizes = self.shape()[..start].to_vec();
        sizes.push(self.shape()[start..=end].iter().product());
        sizes.extend_from_slice(&self.shape()[end + 1..]);
        self.reshape(sizes)
    }

    /// One axis split into several; one size may be -1. Equivalent: `torch.unflatten`.
    #[track_caller]
    pub fn unflatten(&self, axis: isize, sizes: impl IntoShape) -> Result<Tensor> {
        let _op = enter("unflatten").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let parts = infer(&Shape::new(&[self.shape()[axis]])?, &sizes.sizes())?;
        let mut shape = self.shape()[..axis].to_vec();
        shape.extend_from_slice(&parts);
        shape.extend_from_slice(&self.shape()[axis + 1..]);
        self.reshape(shape)
    }

    /// Self if its elements lie row-major without gaps, else a copy that does.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        let _op = enter("contiguous").on([("x", Some(self))]);
        if self.is_contiguous() { Ok(self.clone()) } else { self.copy() }
    }

    /// A row-major copy with new storage.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        let _op = enter("copy").on([("x", Some(self))]);
        Op::Contiguous { x: self }.tensor(self.device())
    }
}

/// The shape named by `sizes`, with a -1 replaced so that `from.numel()` elements fit.
fn infer(from: &Shape, sizes: &[i64]) -> Result<Shape> {
    let bad = |why: &str, help: &str| {
        Err(Error::shape(format!("{from} cannot become {}: {why}", Written(sizes))).help(help))
    };
    let unknown = sizes.iter().filter(|&&n| n == -1).count();
    if sizes.iter().any(|&n| n < -1) {
        return bad("a size is negative", "only one size may be negative: -1, which is inferred");
    }
    if unknown > 1 {
        return bad("only one size can be -1", "write the other sizes as numbers");
    }
    let known =
        sizes.iter().filter(|&&n| n >= 0).try_fold(1usize, |a, &n| a.checked_mul(n as usize));
    let numel = from.numel();
    let fits = || fitting(sizes, numel);
    let Some(known) = known else { return bad("too many elements", &fits()) };
    if unknown == 0 {
        if known != numel {
            return bad(&format!("{numel} elements are not {known}"), &fits());
        }
    } else if known == 0 {
        return bad("cannot infer -1 beside a size of 0", "write the size instead of -1");
    } else if !numel.is_multiple_of(known) {
        return bad(&format!("{numel} elements do not divide by {known}"), &fits());
    }
    Shape::new(
        &sizes
            .iter()
            .map(|&n| if n == -1 { numel / known } else { n as usize })
            .collect::<Vec<_>>(),
    )
}

/// The sizes of which one is replaced so that there are `numel` elements, in words.
#[cold]
fn fitting(sizes: &[i64], numel: usize) -> String {
    let replaced = |axis: usize| -> Option<String> {
        let others = sizes
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != axis)
            .try_fold(1usize, |a, (_, &n)| a.checked_mul(usize::try_from(n).ok()?))?;
        let mut sizes = sizes.to_vec();
        sizes[axis] =
            i64::try_from(numel.checked_div(others).filter(|_| numel.is_multiple_of(others))?)
                .ok()?;
        Some(format!("{} has {numel} elements", Written(&sizes)))
    };
    let found = (0..sizes.len()).rev().find_map(replaced);
    found.unwrap_or_else(|| format!("the sizes must multiply to {numel}"))
}

struct Written<'s>(&'s [i64]);

impl std::fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes = self.0.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        if self.0.len() == 1 { write!(f, "({sizes},)") } else { write!(f, "({sizes})") }
    }
}
