//! Filters in the order of a grid's taps: some taps of a convolution, or those of the gradient for
//! its input, whose channels change places.

use super::grid::Grid;
use crate::Cpu;
use crate::float::Float;
use crate::scratch::Array;
use crate::storage::Shared;
use crate::threads::for_each_range;
use crate::transpose::transpose;
use teeny_core::Result;

/// Filters that are read together, so that whole cache lines are written.
const TOGETHER: usize = 16;

/// The filters `w` (groups · out_channels, in_channels, taps of the filter) as (groups ·
/// out_channels, in_channels, taps of the grid).
pub(super) fn selected<T: Float>(cpu: &Cpu, w: &[T], grid: &Grid) -> Result<Array<T>> {
    let taps = grid.taps.len();
    let n = w.len() / grid.all_taps;
    let mut out = Array::filled(cpu, n * taps, T::ZERO)?;
    for (to, from) in out.chunks_exact_mut(taps).zip(w.chunks_exact(grid.all_taps)) {
        for (to, &tap) in to.iter_mut().zip(&grid.taps) {
            *to = from[tap];
        }
    }
    Ok(out)
}

/// The filters `w` (groups · out_channels, in_channels, taps of the filter) as (groups ·
/// in_channels, out_channels, taps of the grid).
pub(super) fn exchanged<T: Float>(
    cpu: &Cpu,
    w: &[T],
    grid: &Grid,
    groups: usize,
    [out_channels, in_channels]: [usize; 2],
) -> Result<Array<T>> {
    let (taps, all) = (grid.taps.len(), grid.all_taps);
    let mut out = Array::filled(cpu, w.len() / all * taps, T::ZERO)?;
    let to = Shared(out.as_mut_ptr());
    let per_group = out_channels.div_ceil(TOGETHER);
    let least = (1 << 16) / (TOGETHER * in_channels * taps) + 1;
    for_each_range(groups * per_group, least, |range| {
        for i in range {
            let (group, first) = (i / per_group, i % per_group * TOGETHER);
            let count = TOGETHER.min(out_channels - first);
            let w = &w[(group * out_channels + first) * in_channels * all..];
            let w = &w[..count * in_channels * all];
            let to =
                to.get().wrapping_add(group * in_channels * out_channels * taps + first * taps);
            let (next, size) = (out_channels * taps, (in_channels, count));
            // SAFETY: the filters of these output channels, which no other range writes.
            unsafe {
                if all == 1 {
                    let from_stride = in_channels as isize;
                    let from = w.as_ptr();
                    transpose(cpu.level, from, from_stride, to, next as isize, size, false);
                } else {
                    exchange(w.as_ptr(), [in_channels, count], all, &grid.taps, to, next);
                }
            }
        }
    });
    Ok(out)
}

/// `to[c * next + o * taps + i] = from[(o * in_channels + c) * all + tap(i)]`.
///
/// # Safety
/// All these elements exist.
unsafe fn exchange<T: Copy>(
    from: *const T,
    [in_channels, count]: [usize; 2],
    all: usize,
    taps: &[usize],
    to: *mut T,
    next: usize,
) {
    for c in 0..in_channels {
        let mut to = to.wrapping_add(c * next);
        for o in 0..count {
            // SAFETY: by contract.
            unsafe {
                let from = from.add((o * in_channels + c) * all);
                for &tap in taps {
                    *to = *from.add(tap);
                    to = to.add(1);
                }
            }
        }
    }
}
