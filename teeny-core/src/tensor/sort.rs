//! Sorting, and the operations whose result's size depends on the data.

use super::{Tensor, index_end};
use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};

impl Tensor {
    /// The elements sorted along `axis`, stably, and the positions (`I32`) they came from; NaN counts as the largest.
    ///
    /// Equivalent: `torch.sort(x, dim, descending, stable=True)`.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let _op = enter("sort");
        let axis = self.shape().axis(axis)?;
        index_end(self.shape()[axis])?;
        let (values, positions) = self.device().sort(self, axis, descending)?;
        Ok((self.result(values, *self.shape(), self.dtype()), self.result(positions, *self.shape(), DType::I32)))
    }

    /// The positions (`I32`) that sort the elements along `axis`.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Tensor> {
        let _op = enter("argsort");
        Ok(self.sort(axis, descending)?.1)
    }

    /// The `k` largest (or smallest) elements along `axis` in order, and their positions (`I32`); of equal elements the first come first.
    ///
    /// # Errors
    /// If the axis has fewer than `k` elements.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        let _op = enter("topk");
        let axis = self.shape().axis(axis)?;
        if k > self.shape()[axis] {
            return Err(Error::value(format!("axis {axis} of {} has {} elements, not {k}", self.shape(), self.shape()[axis])));
        }
        let (values, positions) = self.sort(axis as isize, largest)?;
        Ok((values.slice(axis as isize, ..k)?, positions.slice(axis as isize, ..k)?))
    }

    /// The indices of the elements that are not 0, in row-major order: (n, ndim) of `I32`. Waits for the device.
    ///
    /// Equivalent: `torch.nonzero`.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let _op = enter("nonzero");
        let flat = self.true_positions()?; // (n)
        let mut columns = Vec::with_capacity(self.ndim());
        let mut rest = flat.clone();
        for &size in self.shape().iter().rev() {
            columns.push(rest.rem(index_end(size)?)?);
            rest = rest.floor_div(index_end(size)?)?;
        }
        columns.reverse();
        match columns.is_empty() {
            true => flat.reshape((flat.numel(), 1))?.slice(1, ..0),
            false => Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1),
        }
    }

    /// The elements where `mask` (broadcast to self) is true, in row-major order: a vector. Waits for the device.
    ///
    /// Equivalent: `x[mask]`, `torch.masked_select`.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let _op = enter("masked_select");
        let positions = mask.expand(self.shape())?.true_positions()?;
        self.reshape(-1)?.index_select(0, &positions)
    }

    /// The positions of true elements in row-major order: a stable sort brings them to the front.
    pub(super) fn true_positions(&self) -> Result<Tensor> {
        let flags = self.reshape(-1)?.ne(0)?;
        let count = flags.sum_all()?.item::<i64>()?;
        flags.cast(DType::U8)?.argsort(0, true)?.slice(0, 0..count)
    }

    /// The different elements in ascending order, for each element of self (flattened) its place among them, and how often each occurs (`I32`).
    /// NaN is different from itself. Waits for the device.
    ///
    /// Equivalent: `torch.unique(x, return_inverse=True, return_counts=True)`.
    #[track_caller]
    pub fn unique(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique");
        let flat = self.reshape(-1)?;
        let n = flat.numel();
        let (sorted, order) = flat.sort(0, false)?;
        if n == 0 {
            return Ok((sorted, order.clone(), order));
        }
        let first = Tensor::ones(1, DType::Bool, self)?;
        let starts = Tensor::cat(&[&first, &sorted.slice(0, 1..)?.ne(&sorted.slice(0, ..-1)?)?], 0)?; // (n), true where a new value begins
        let places = starts.true_positions()?; // (u)
        let values = sorted.index_select(0, &places)?;
        let rank = starts.cast(DType::I32)?.cumsum(0)?.sub(1)?.cast(DType::I32)?; // (n)
        let inverse = rank.zeros_like()?.scatter(0, &order, &rank)?;
        let end = Tensor::new([index_end(n)?], self)?;
        let counts = Tensor::cat(&[&places.slice(0, 1..)?, &end], 0)?.sub(&places)?;
        Ok((values, inverse.reshape(self.shape())?, counts))
    }

    /// The positions (`I32`) where `values` (any shape) would be inserted into self, an ascending vector, to keep it ascending:
    /// before equal elements, or after them if `right`.
    ///
    /// # Errors
    /// If self is not a vector.
    ///
    /// Equivalent: `torch.searchsorted`.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let _op = enter("searchsorted");
        if self.ndim() != 1 {
            return Err(Error::shape(format!("needs an ascending vector, not {}", self.shape())));
        }
        let values = values.unsqueeze(-1)?;
        let before = if right { self.le(&values)? } else { self.lt(&values)? };
        before.sum(-1)?.cast(DType::I32)
    }
}
