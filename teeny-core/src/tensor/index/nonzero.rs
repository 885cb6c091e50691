//! Positions of true elements. Their number depends on the data, so that the mask is downloaded and
//! the device is waited for.

use crate::context::enter;
use crate::error::Result;
use crate::memory;
use crate::shape::{MAX_NDIM, Shape, index_end};
use crate::tensor::Tensor;

impl Tensor {
    /// The indices of the elements that are not 0, in row-major order: (n, ndim) of `I32`. Waits
    /// for the device.
    ///
    /// Equivalent: `torch.nonzero`.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let _op = enter("nonzero").on([("x", Some(self))]);
        (0..self.ndim()).try_for_each(|axis| index_end(self.shape()[axis]).map(|_| ()))?;
        let flags = self.flags()?;
        let count = count(&flags);
        let indices = match self.ndim() {
            0 => Ok(Vec::new()),
            1 => indices_of::<1>(self.shape(), &flags, count),
            2 => indices_of::<2>(self.shape(), &flags, count),
            3 => indices_of::<3>(self.shape(), &flags, count),
            4 => indices_of::<4>(self.shape(), &flags, count),
            5 => indices_of::<5>(self.shape(), &flags, count),
            6 => indices_of::<6>(self.shape(), &flags, count),
            7 => indices_of::<7>(self.shape(), &flags, count),
            _ => indices_of::<MAX_NDIM>(self.shape(), &flags, count),
        }?;
        Tensor::from_slice(&indices, (count, self.ndim()), self)
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
        index_end(self.numel())?;
        let flags = self.flags()?;
        let count = count(&flags);
        // One more than there are: each place is written, and the next over it if it is not taken.
        let mut positions: Vec<i32> = memory::reserved(count + 1)?;
        positions.resize(count + 1, 0);
        let mut at = 0;
        for (place, &flag) in (0..).zip(&flags) {
            positions[at] = place;
            at += usize::from(flag != 0);
        }
        Tensor::from_slice(&positions[..count], count, self)
    }

    /// A byte for each element, row-major: 0 where the element is 0.
    fn flags(&self) -> Result<Vec<u8>> {
        if self.dtype().size() == 1 { self.to_bytes() } else { self.ne(0)?.to_bytes() }
    }
}

/// How many flags are set.
fn count(flags: &[u8]) -> usize {
    // Sums of bytes that cannot overflow are vectorised.
    let part = |part: &[u8]| part.iter().map(|&flag| u8::from(flag != 0)).sum::<u8>();
    flags.chunks(255).map(|flags| usize::from(part(flags))).sum()
}

/// The indices of the `count` flags that are set, one after the other.
fn indices_of<const N: usize>(shape: &Shape, flags: &[u8], count: usize) -> Result<Vec<i32>> {
    // One more than there are: each index is written, and the next over it if its flag is not set.
    let mut indices: Vec<[i32; N]> = memory::reserved(count + 1)?;
    indices.resize(count + 1, [0; N]);
    let (mut index, mut at) = ([0i32; N], 0);
    for row in flags.chunks(shape[N - 1].max(1)) {
        for (column, &flag) in (0..).zip(row) {
            index[N - 1] = column;
            indices[at] = index;
            at += usize::from(flag != 0);
        }
        // The next row: axes count up as digits do.
        for axis in (0..N - 1).rev() {
            index[axis] += 1;
            if (index[axis] as usize) < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    indices.truncate(count);
    Ok(indices.into_flattened())
}
