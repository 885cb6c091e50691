//! Positions of true elements. Their number depends on the data, so that the mask is downloaded and
//! the device is waited for.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::Result;
use crate::memory;
use crate::shape::index_end;
use crate::tensor::Tensor;

impl Tensor {
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

    /// The positions of true elements in row-major order. Their number determines the shape, so the
    /// flags are downloaded and scanned on the host.
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
