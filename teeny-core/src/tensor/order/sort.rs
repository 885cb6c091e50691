//! Sorting, and the operations whose result's size depends on the data.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory;
use crate::op::Op;
use crate::tensor::{Tensor, index_end};

impl Tensor {
    /// The elements sorted along `axis`, stably, and the positions (`I32`) they came from; NaN
    /// counts as the largest. Equal elements, which zeros of either sign are, keep their order in
    /// both directions.
    ///
    /// # Errors
    /// If the axis has more elements than an `I32` counts.
    ///
    /// Equivalent: `torch.sort(x, dim, descending, stable=True)`.
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor, Tensor)> {
        let _op = enter("sort").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        index_end(self.shape()[axis])?;
        let [values, positions] = Op::Sort { x: self, axis, descending }.tensors(self.device())?;
        Ok((values, positions))
    }

    /// The positions (`I32`) that sort the elements along `axis`.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Tensor> {
        let _op = enter("argsort").on([("x", Some(self))]);
        Ok(self.sort(axis, descending)?.1)
    }

    /// The `k` largest (or smallest) elements along `axis` in order, and their positions (`I32`);
    /// of equal elements, which zeros of either sign are, the first come first.
    ///
    /// # Errors
    /// If the axis has fewer than `k` elements.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Tensor, Tensor)> {
        let _op = enter("topk").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        if k > self.shape()[axis] {
            return Err(Error::value(format!(
                "axis {axis} of {} has {} elements, not {k}",
                self.shape(),
                self.shape()[axis]
            ))
            .help(format!("x.topk({}, {axis}, largest)? sorts all of them", self.shape()[axis])));
        }
        let (values, positions) = self.sort(axis as isize, largest)?;
        Ok((values.slice(axis as isize, ..k)?, positions.slice(axis as isize, ..k)?))
    }

    /// The indices of the elements that are not 0, in row-major order: (n, ndim) of `I32`. Waits
    /// for the device.
    ///
    /// Equivalent: `torch.nonzero`.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let _op = enter("nonzero").on([("x", Some(self))]);
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

    /// The elements where `mask` (broadcast to self) is true, in row-major order: a vector. Waits
    /// for the device.
    ///
    /// Equivalent: `x[mask]`, `torch.masked_select`.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        let _op = enter("masked_select").on([("x", Some(self)), ("mask", Some(mask))]);
        let mask = mask.expand(self.shape()).map_err(|error| {
            error.help("a comparison makes a mask of the right shape: x.gt(0)?")
        })?;
        let positions = mask.true_positions()?;
        self.reshape(-1)?.index_select(0, &positions)
    }

    /// The positions of true elements in row-major order. Their number must be known here to go on,
    /// so the flags come here and are looked through.
    pub(in crate::tensor) fn true_positions(&self) -> Result<Tensor> {
        let end = index_end(self.numel())?;
        let flags =
            if self.dtype() == DType::Bool { self.to_bytes()? } else { self.ne(0)?.to_bytes()? };
        let count = flags.iter().filter(|flag| **flag != 0).count();
        let mut positions = memory::reserved(count)?;
        positions
            .extend((0..end).zip(&flags).filter(|(_, flag)| **flag != 0).map(|(place, _)| place));
        Tensor::from_slice(&positions, count, self)
    }
}
