//! Operands that repeat themselves after a period: operands that are broadcast along the outermost
//! axes, such as the bias of a linear layer or of the channels of a batch of images.
//!
//! The naive form starts its loops again for each row over which such an operand is contiguous or
//! one number, and rows of small images have a few elements. Here some periods are gathered once, to
//! some hundred elements, and all operands are rows of that length:
//!
//! ```text
//!   x        0 1 2 3 4 5 6 7 8 9 ..        (2, 3, 2) packed
//!   bias     a a b b c c a a b b ..        (3, 1): period 6; rows of 6, 12, 18 .. elements
//! ```

use crate::Cpu;
use crate::pool::Buffer;
use crate::storage::View;
use crate::walk::{MAX_OPERANDS, Walk};
use teeny_core::{Result, Shape};

/// Elements below which nothing is gained.
const MIN_ELEMENTS: usize = 2 << 10;
/// Elements of a row from which loops over each row are as fast.
const LONG_ROW: usize = 128;
/// The longest period, in elements: it stays in L2. Scratch memory is a row for each such operand.
const MAX_PERIOD: usize = 16 << 10;
/// How often an operand is repeated at least: gathering it takes several times as long as reading.
const MIN_REPEATS: usize = 4;
/// The shortest and the longest row of several periods, and how often it is repeated at least if it
/// is longer than the shortest: it stays in L1 beside the other operands.
const MIN_ROW: usize = 512;
const MAX_ROW: usize = 1 << 10;
const MIN_ROWS: usize = 16;
/// Elements of a cache line: rows of a multiple of them have no part of a vector, and are aligned.
const LINE: usize = 16;

/// The operands that repeat themselves, and the rows to read all operands by.
#[derive(Debug, PartialEq)]
struct Rows {
    /// The period of each operand, 0 for one that is read where it is.
    periods: [usize; MAX_OPERANDS],
    /// Elements of a row: a multiple of all periods.
    row: usize,
}

/// The rows of `walk` over `n` elements: none if its own rows are as fast, or if not all operands
/// are rows then.
fn rows(walk: &Walk, n: usize, operands: usize) -> Option<Rows> {
    if walk.rows() == 1 || walk.row() >= LONG_ROW {
        return None;
    }
    let (mut periods, mut longest) = ([0; MAX_OPERANDS], 0);
    for (i, to) in periods.iter_mut().enumerate().take(operands) {
        match walk.period(i) {
            _ if walk.is_packed(i) => {}
            // One number stays one.
            Some(1) => {}
            Some(period) if period <= MAX_PERIOD && period * MIN_REPEATS <= n => {
                *to = period;
                longest = longest.max(period);
            }
            Some(_) | None => return None,
        }
    }
    // The periods of one walk divide each other: each is the product of its last sizes.
    let repeats = n.checked_div(longest)?;
    let wished = (repeats / MIN_ROWS).max(MIN_ROW.div_ceil(longest));
    let most = wished.min(MAX_ROW / longest).min(repeats / 2).max(1);
    let even = LINE >> longest.trailing_zeros().min(LINE.ilog2());
    let count = if most >= even { most - most % even } else { most };
    Some(Rows { periods, row: longest * count })
}

/// Gathers the operands that repeat themselves and makes the views rows of the returned shape,
/// which has the elements of `shape` and perhaps some after them. `None`, with unchanged views, if
/// that does not pay. Returns the memory of the gathered operands.
///
/// # Errors
/// If allocation fails.
pub(super) fn expand(
    cpu: &Cpu,
    shape: &Shape,
    views: &mut [View],
) -> Result<Option<(Shape, Vec<Buffer>)>> {
    let n = shape.numel();
    if n < MIN_ELEMENTS || views.iter().all(View::is_contiguous) {
        return Ok(None);
    }
    let walk = Walk::new(shape, views, 1);
    let Some(Rows { periods, row }) = rows(&walk, n, views.len()) else { return Ok(None) };
    let shape = Shape::new(&[n.div_ceil(row), row])?;
    let mut memory = Vec::new();
    for (i, view) in views.iter_mut().enumerate() {
        let (period, size) = (periods[i], view.dtype.size());
        let strides = match period {
            0 if walk.is_packed(i) => [row as isize, 1],
            0 => [0, 0],
            _ => [0, 1],
        };
        if period > 0 {
            let (first, all) = (period * size, row * size);
            let buffer = cpu.scratch(all)?;
            let to = buffer.ptr();
            // SAFETY: the buffer has a row, a multiple of the period; the walk was made of this
            // view, whose first elements are a period. Each copy reads elements that are already
            // written, before its destination.
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
            memory.push(buffer);
        }
        view.shape = shape;
        view.strides = [0; 8];
        view.strides[..2].copy_from_slice(&strides);
    }
    Ok(Some((shape, memory)))
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
            rows(&Walk::new(&shape, &views, 1), shape.numel(), views.len())
                .map(|rows| (rows.periods[..views.len()].to_vec(), rows.row))
        };
        let image: &[isize] = &[96 * 49, 49, 7, 1];
        let images = [8, 96, 7, 7];
        // A number for each channel; a row; a number; a number and a row.
        assert_eq!(period(&images, &[image, &[0, 1, 0, 0]]), Some((vec![0, 96 * 49], 96 * 49)));
        assert_eq!(period(&images, &[image, &[0, 0, 0, 1]]), Some((vec![0, 7], 144 * 7)));
        assert_eq!(period(&images, &[image, &[0, 0, 0, 0]]), None);
        let three: [&[isize]; 3] = [&[0, 0, 0, 0], image, &[0, 0, 0, 1]];
        assert_eq!(period(&images, &three), Some((vec![0, 0, 7], 144 * 7)));
        // Some rows together: more if they are many.
        assert_eq!(period(&[900, 64], &[&[64, 1], &[0, 1]]), Some((vec![0, 64], 1024)));
        assert_eq!(period(&[40, 64], &[&[64, 1], &[0, 1]]), Some((vec![0, 64], 512)));
        // Nothing repeats; long rows; a period that is nearly all; a slice.
        assert_eq!(period(&images, &[image, image]), None);
        assert_eq!(period(&[1, 96, 7, 7], &[image, &[0, 1, 0, 0]]), None);
        assert_eq!(period(&[64, 256], &[&[256, 1], &[0, 1]]), None);
        assert_eq!(period(&[2, 96, 7, 7], &[image, &[0, 1, 0, 0]]), None);
        assert_eq!(period(&images, &[&[96 * 64, 64, 8, 1], &[0, 1, 0, 0]]), None);
    }
}
