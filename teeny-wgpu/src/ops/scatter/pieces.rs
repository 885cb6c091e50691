//! A scatter that one launch does not reach: tensors, lines or keys larger than a binding.

use super::Scatter;
use crate::ops::copy::{can_compact, compact, contiguous, slice_of, write_view};
use crate::ops::pieces::{by_halves, concat};
use teeny_core::{DType, Layout, Result, StorageRef, Tensor};

impl Scatter<'_> {
    /// Only the part that index covers, then halves along another axis; of a single line halves of
    /// the sources, one after the other, and halves of the places.
    pub(super) fn in_pieces(&self) -> Result<StorageRef> {
        let Scatter { gpu, x, axis, index, src, range, .. } = *self;
        let dtype = x.dtype();
        gpu.checked_bytes(x.numel(), dtype)?;
        if can_compact(gpu, &[x, index, src]) {
            let [x, index, src] = [x, index, src].map(|t| compact(gpu, t));
            return Scatter { x: &x?, index: &index?, src: &src?, ..*self }.run();
        }
        let others: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
        if others.iter().any(|&a| index.shape()[a] != x.shape()[a]) {
            return self.covered_part(&others);
        }
        let length = index.shape()[axis];
        let single = index.numel() == length;
        if gpu.len_exceeds_binding(length, DType::U32)
            || single && (gpu.exceeds_binding(index) || gpu.exceeds_binding(src))
        {
            let y = [(0, length / 2), (length / 2, length)].into_iter().try_fold(
                x.clone(),
                |y, (low, high)| {
                    let [index, src] = [index, src].map(|t| slice_of(gpu, t, axis, low, high));
                    let range = range.for_piece();
                    let y = Scatter { x: &y, index: &index?, src: &src?, range, ..*self }.run()?;
                    gpu.tensor(y, *x.shape(), dtype, x)
                },
            )?;
            return Ok(y.storage().clone());
        }
        if !single {
            let run = |parts: &[&Tensor], axis: usize| {
                let (x, index, src, range) = (parts[0], parts[1], parts[2], range.for_piece());
                Ok([Scatter { x, axis, index, src, range, ..*self }.run()?])
            };
            let [y] = by_halves(gpu, &[x, index, src], axis, [dtype], x.shape()[axis], run)?;
            return Ok(y);
        }
        let [low, high] = range.halves().map(|(from, to, range)| {
            Scatter { x: &slice_of(gpu, x, axis, from, to)?, range, ..*self }.run()
        });
        concat(gpu, &[low?, high?], dtype, x)
    }

    /// The scatter into the part of x that index covers, written into a copy of x. `others` are all
    /// axes but `axis`.
    fn covered_part(&self, others: &[usize]) -> Result<StorageRef> {
        let Scatter { gpu, x, index, .. } = *self;
        let size = |a: usize| index.shape()[a];
        let part =
            others.iter().try_fold(x.clone(), |x, &a| x.slice(a as isize, 0..size(a) as isize))?;
        let y = Scatter { x: &part, ..*self }.run()?;
        let y = gpu.tensor(y, *part.shape(), x.dtype(), x)?;
        let view = others
            .iter()
            .fold(Layout::contiguous(*x.shape()), |view, &a| view.slice(a, 0, size(a), 1));
        let whole = contiguous(gpu, x)?;
        write_view(gpu, &whole, &view, &y)?;
        Ok(whole)
    }
}
