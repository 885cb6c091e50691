//! Sorting, and binary search in sorted elements. Sorts are stable; NaN is larger than all numbers.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Extremum, Op, SortOrder};
use crate::shape::index_end;
use crate::tensor::{Tensor, map};

/// The left or the right side: of equal elements in [`Tensor::searchsorted`], of a sequence that is
/// padded or truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Before equal elements; the start of a sequence.
    Left,
    /// After equal elements; the end of a sequence.
    Right,
}

impl Tensor {
    /// The elements sorted along `axis`, stably, and the positions (`I32`) they came from; NaN
    /// counts as the largest. Equal elements, which zeros of either sign are, keep their order in
    /// both directions.
    ///
    /// # Errors
    /// If the axis has more elements than an `I32` counts.
    ///
    /// Equivalent: `torch.sort(x, dim, stable=True)`, with `descending=True` for
    /// [`SortOrder::Descending`].
    #[track_caller]
    pub fn sort(&self, axis: isize, order: SortOrder) -> Result<(Tensor, Tensor)> {
        let _op = enter("sort").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        index_end(self.shape()[axis])?;
        Op::Sort { x: self, axis, order }.tensors(self.device()).map(<(_, _)>::from)
    }

    /// The positions (`I32`) that sort the elements along `axis`, as in [`Tensor::sort`].
    ///
    /// Equivalent: `torch.argsort(x, dim, descending, stable=True)`.
    #[track_caller]
    pub fn argsort(&self, axis: isize, order: SortOrder) -> Result<Tensor> {
        let _op = enter("argsort").on([("x", Some(self))]);
        Ok(self.sort(axis, order)?.1)
    }

    /// The `k` largest elements along `axis` in descending order, or the `k` smallest in ascending
    /// order, and their positions (`I32`); of equal elements, which zeros of either sign are, the
    /// first come first.
    ///
    /// # Errors
    /// If the axis has fewer than `k` elements.
    ///
    /// Equivalent: `torch.topk(x, k, dim)`, with `largest=False` for [`Extremum::Smallest`].
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Extremum, Reference, Tensor};
    /// # fn main() -> teeny_core::Result<()> {
    /// let x = Tensor::new([3.0f32, 1.0, 2.0], &Reference::new())?; // (3)
    /// let (values, positions) = x.topk(2, 0, Extremum::Largest)?; // (2), (2)
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(positions.to_vec::<i32>()?, [0, 2]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize, extremum: Extremum) -> Result<(Tensor, Tensor)> {
        let _op = enter("topk").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        index_end(self.shape()[axis])?;
        Op::TopK { x: self, axis, k, extremum }.tensors(self.device()).map(<(_, _)>::from)
    }

    /// The positions (`I32`) where `values` would be inserted into self, ascending along its last
    /// axis, to keep it ascending: before equal elements with [`Side::Left`], after them with
    /// [`Side::Right`]. A vector takes values of any shape; (.., n) takes (.., m) with the same
    /// leading axes. NaN belongs after everything.
    ///
    /// # Errors
    /// If the shapes do not fit.
    ///
    /// Equivalent: `torch.searchsorted(self, values, side="left")` or `side="right"`, as
    /// `numpy.searchsorted`.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, side: Side) -> Result<Tensor> {
        let _op = enter("searchsorted").on([("x", Some(self)), ("values", Some(values))]);
        let ndim = self.ndim();
        let fits = ndim == 1
            || ndim > 1
                && values.ndim() == ndim
                && self.shape()[..ndim - 1] == values.shape()[..ndim - 1];
        if !fits {
            return Err(Error::shape(format!(
                "values {} do not fit {}: an ascending vector, or equal leading axes",
                values.shape(),
                self.shape()
            ))
            .help(match self.ndim() {
                0 => "self.reshape(1)? is a vector",
                _ => "a vector takes values of any shape: self.reshape(-1)? if it is ascending",
            }));
        }
        let n = self.shape()[ndim - 1];
        let end = index_end(n)?;
        let rows: usize = self.shape()[..ndim - 1].iter().product();
        let mut place = Tensor::zeros(values.shape(), DType::I32, values)?;
        if n == 0 || values.numel() == 0 {
            return Ok(place);
        }
        let (sorted, wanted) = (self.reshape((rows, n))?, values.reshape((rows, -1))?);
        place = place.reshape((rows, -1))?;
        // Binary search, all at once: a step forward is taken where the last element it would pass
        // belongs before the value.
        let mut step = 1i32 << end.ilog2();
        while step > 0 {
            let after = place.add(step)?;
            let passed = sorted.gather(1, &after.minimum(end)?.sub(1)?)?;
            let inside = after.le(end)?;
            place = map(
                [&place, &after, &inside, &passed, &wanted],
                |[place, after, inside, s, v]| {
                    let before = match side {
                        Side::Left => s.lt(v),
                        Side::Right => s.le(v),
                    };
                    inside.and(before.or(v.is_nan())).where_cond(after, place)
                },
            )?;
            step /= 2;
        }
        place.reshape(values.shape())
    }
}
