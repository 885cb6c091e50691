//! Reductions in parts: tensors larger than a binding, and positions in few long lines.

use super::Reduction;
use crate::device::error;
use crate::ops::accumulation::{highest, lowest};
use crate::ops::copy::contiguous;
use crate::ops::pieces::{concat, split_point};
use teeny_core::{DType, Error, ReduceOp, Result, Shape, StorageRef, Tensor};

/// Lines from which each of them is one search; positions in fewer long ones are found by chunks.
pub(super) const MIN_ARG_LINES: usize = 64;
pub(super) const ARG_CHUNK: usize = 4096;

impl Reduction<'_> {
    /// A reduction of inputs, or to results, larger than a binding: on halves of the kept `axis`,
    /// the first one, whose results follow each other.
    pub(super) fn kept_halves(&self, axis: usize) -> Result<StorageRef> {
        let (shape, output) = (self.shape, self.op.output(self.dtype()));
        let below = self.kept().iter().filter(|&&a| a > axis).map(|&a| shape[a]).product();
        let mid = split_point(shape[axis], below, output);
        let halves = self.on_halves(axis, mid, |half, _| half.run())?;
        concat(self.gpu, &halves, output, self.inputs[0])
    }

    /// The position in one line larger than a binding: the values at the positions in both halves
    /// decide.
    pub(super) fn arg_halves(&self, axis: usize) -> Result<StorageRef> {
        let (like, mid) = (self.inputs[0], self.shape[axis] / 2);
        // The position in a half as a scalar, and the value there, (1).
        let best_of = |half: &Reduction<'_>, low: usize| {
            let position = self.gpu.tensor(half.run()?, Shape::new(&[])?, DType::I32, like)?;
            let at = usize::try_from(position.item::<i32>()?)
                .map_err(|_| Error::internal("a position is negative"))?
                + low;
            let value = self.on_part(axis, at, at + 1, |one| one.values())?.reshape(1)?;
            Ok((position, value))
        };
        let [first, second] = self.on_halves(axis, mid, best_of)?;
        // Equal values and NaN keep the first.
        let values = Tensor::cat(&[&first.1, &second.1], 0)?;
        let better =
            if self.op == ReduceOp::ArgMax { values.argmax(0)? } else { values.argmin(0)? };
        let mid = i32::try_from(mid).map_err(|_| error::beyond(mid))?;
        Ok(better.eq(0)?.where_cond(&first.0, second.0.add(mid)?)?.storage().clone())
    }

    /// Positions in few long lines: the position within each chunk, then the best chunk. The first
    /// best wins in both.
    pub(super) fn arg_chunks(&self, axis: usize) -> Result<StorageRef> {
        let (shape, dtype, op) = (self.shape, self.dtype(), self.op);
        let y = if self.kernel.passes_through(0).is_some() && self.inputs.len() == 1 {
            self.inputs[0].clone()
        } else {
            self.values()?
        };
        let length = shape[axis];
        let (lines, chunks) = (shape.numel() / length, length.div_ceil(ARG_CHUNK));
        let flat = y.transpose(axis as isize, -1)?;
        let outer = *flat.shape();
        // The padding of the last chunk comes last, so it wins against no element.
        let fill = if op == ReduceOp::ArgMin { highest(dtype) } else { lowest(dtype) };
        let split = flat
            .reshape((lines, length))?
            .pad(&[(0, 0), (0, (chunks * ARG_CHUNK - length) as isize)], fill)?;
        let split = split.reshape((lines, chunks, ARG_CHUNK))?;
        let arg = |x: &Tensor, axis: isize| {
            if op == ReduceOp::ArgMax { x.argmax(axis) } else { x.argmin(axis) }
        };
        let within = arg(&split, 2)?; // (lines, chunks)
        let best = split.gather(2, &within.unsqueeze(2)?)?.squeeze(2)?;
        let chunk = arg(&best, 1)?.unsqueeze(1)?; // (lines, 1)
        let place = chunk.mul(ARG_CHUNK as i32)?.add(&within.gather(1, &chunk)?)?;
        // The axis that is reduced was last: its place is now taken by the one it was exchanged
        // with.
        let mut sizes = outer.to_vec();
        let last = sizes.len() - 1;
        sizes[last] = 1;
        contiguous(self.gpu, &place.reshape(&sizes[..])?.transpose(axis as isize, -1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reduce;
    use super::*;
    use crate::Wgpu;
    use teeny_core::DeviceRef;

    #[test]
    fn positions_beyond_those_of_an_i32_are_refused() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let ones = Tensor::full(1, 1, DType::U8, &device)?.expand((1usize << 31) + 8)?;
        for op in [ReduceOp::ArgMax, ReduceOp::ArgMin] {
            assert!(reduce(&gpu, op, &ones, &[0]).is_err());
        }
        Ok(())
    }
}
