//! Operands that repeat themselves after a period: those that are broadcast along the outermost
//! axes, such as the bias of the channels of a batch of images.
//!
//! The naive form starts its loops again for each row over which such an operand is contiguous or
//! one number, and rows of small images have a few elements. Here one period is gathered once, with
//! as many repetitions behind it as a tile is long: a tile that begins at element `start` is the
//! slice that begins at `start % period`, and all operands are one row.
//!
//! ```text
//!   x        0 1 2 3 4 5 6 7 8 9 ..        (2, 3, 2) packed
//!   bias     a a b b c c a a b b ..        (3, 1): period 6
//! ```

use super::program::TILE;
use crate::Cpu;
use crate::pool::Buffer;
use crate::storage::View;
use crate::walk::{MAX_OPERANDS, Walk};
use teeny_core::{Layout, Result, Shape};

/// Elements below which nothing is gained.
const MIN_ELEMENTS: usize = 2 << 10;
/// Elements of a row from which loops over each row are as fast.
const LONG_ROW: usize = 128;
/// The longest period, in elements: it stays in L2. Scratch memory is a period and a tile for each
/// such operand.
const MAX_PERIOD: usize = 16 << 10;
/// How often an operand is repeated at least: gathering it takes several times as long as reading.
const MIN_REPEATS: usize = 4;

/// The period of each operand, 0 for one that is read where it is, and the memory of the others.
pub(super) struct Periods {
    pub lengths: [usize; MAX_OPERANDS],
    _memory: Vec<Buffer>,
}

/// The operands of `walk` to expand, by their periods: none if rows are long, or if that does not
/// make all of them one row.
fn lengths(walk: &Walk, n: usize, operands: usize) -> Option<[usize; MAX_OPERANDS]> {
    if n < MIN_ELEMENTS || walk.rows() == 1 || walk.row() >= LONG_ROW {
        return None;
    }
    let mut lengths = [0; MAX_OPERANDS];
    for (i, length) in lengths.iter_mut().enumerate().take(operands) {
        match walk.period(i) {
            _ if walk.is_packed(i) => {}
            // One number stays one.
            Some(1) => {}
            Some(period) if period <= MAX_PERIOD && period * MIN_REPEATS <= n => *length = period,
            Some(_) | None => return None,
        }
    }
    lengths.iter().any(|&length| length > 0).then_some(lengths)
}

/// Gathers the operands that repeat themselves and makes their views packed. None, and views as
/// they are, if that does not pay.
///
/// # Errors
/// If there is no memory.
pub(super) fn expand(cpu: &Cpu, shape: &Shape, views: &mut [View]) -> Result<Option<Periods>> {
    let walk = Walk::new(shape, views, 1);
    let Some(lengths) = lengths(&walk, shape.numel(), views.len()) else { return Ok(None) };
    let mut memory = Vec::new();
    for (i, view) in views.iter_mut().enumerate().filter(|&(i, _)| lengths[i] > 0) {
        let (period, size) = (lengths[i], view.dtype.size());
        let (first, all) = (period * size, (period + TILE) * size);
        let buffer = cpu.scratch(all)?;
        let to = buffer.ptr();
        // SAFETY: the buffer has a period and a tile; the walk was made of this view, whose first
        // elements are a period. Each copy reads elements that are already written, before its destination.
        unsafe {
            walk.gather(i, view.ptr, view.dtype, 0, period, to);
            let mut done = first;
            while done < all {
                let len = done.min(all - done);
                std::ptr::copy_nonoverlapping(to, to.add(done), len);
                done += len;
            }
        }
        view.ptr = to;
        view.strides[..shape.ndim()].copy_from_slice(Layout::contiguous(*shape).strides());
        memory.push(buffer);
    }
    Ok(Some(Periods { lengths, _memory: memory }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::DType;

    #[test]
    fn operands_broadcast_along_the_outermost_axes_repeat_themselves() {
        let period = |shape: &[usize], strides: &[&[isize]]| {
            let shape = Shape::new(shape).unwrap();
            let views: Vec<View> = strides
                .iter()
                .map(|strides| {
                    let mut view =
                        View { ptr: std::ptr::null(), shape, strides: [0; 8], dtype: DType::F32 };
                    view.strides[..strides.len()].copy_from_slice(strides);
                    view
                })
                .collect();
            lengths(&Walk::new(&shape, &views, 1), shape.numel(), views.len())
                .map(|lengths| lengths[..views.len()].to_vec())
        };
        let image: &[isize] = &[96 * 49, 49, 7, 1];
        let images = [8, 96, 7, 7];
        // A number for each channel; a row; a number; a number and a row.
        assert_eq!(period(&images, &[image, &[0, 1, 0, 0]]), Some(vec![0, 96 * 49]));
        assert_eq!(period(&images, &[image, &[0, 0, 0, 1]]), Some(vec![0, 7]));
        assert_eq!(period(&images, &[image, &[0, 0, 0, 0]]), None);
        let three: [&[isize]; 3] = [&[0, 0, 0, 0], image, &[0, 0, 0, 1]];
        assert_eq!(period(&images, &three), Some(vec![0, 0, 7]));
        // Nothing repeats; a few elements; long rows; a period that is nearly all; a slice.
        assert_eq!(period(&images, &[image, image]), None);
        assert_eq!(period(&[1, 96, 7, 7], &[image, &[0, 1, 0, 0]]), None);
        assert_eq!(period(&[9, 9, 7], &[&[63, 7, 1], &[0, 0, 1]]), None);
        assert_eq!(period(&[64, 256], &[&[256, 1], &[0, 1]]), None);
        assert_eq!(period(&[2, 96, 7, 7], &[image, &[0, 1, 0, 0]]), None);
        assert_eq!(period(&images, &[&[96 * 64, 64, 8, 1], &[0, 1, 0, 0]]), None);
    }
}
