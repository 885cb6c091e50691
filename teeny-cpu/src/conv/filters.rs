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

/// Rows that are transposed at once.
const ROWS: usize = 64;

/// The filters `w` (groups · out_channels, in_channels, taps) as (groups · in_channels, taps,
/// out_channels): `row` is `in_channels * taps`.
pub(super) fn transposed<T: Float>(
    cpu: &Cpu,
    w: &[T],
    groups: usize,
    out_channels: usize,
    row: usize,
) -> Result<Array<T>> {
    if out_channels == 1 {
        return Array::from_fn(cpu, w.len(), |i| w[i]);
    }
    let mut out = Array::filled(cpu, w.len(), T::ZERO)?;
    let to = Shared(out.as_mut_ptr());
    let parts = row.div_ceil(ROWS);
    let least = (1 << 15) / (ROWS.min(row) * out_channels) + 1;
    for_each_range(groups * parts, least, |range| {
        for i in range {
            let (group, first) = (i / parts, i % parts * ROWS);
            let rows = ROWS.min(row - first);
            let w = &w[group * out_channels * row..][..out_channels * row];
            let at = (group * row + first) * out_channels;
            let (from, to, size) = (w[first..].as_ptr(), to.get(), (rows, out_channels));
            let strides = [row as isize, out_channels as isize];
            // SAFETY: these rows of the result, which no other range writes.
            unsafe { transpose(cpu.level, from, strides[0], to.add(at), strides[1], size, false) };
        }
    });
    Ok(out)
}

/// Of filters (.., taps of the filter, out_channels), as [`transposed`] makes them, the taps of
/// `grid`.
pub(super) fn rows_of<T: Float>(
    cpu: &Cpu,
    filters: &[T],
    grid: &Grid,
    out_channels: usize,
) -> Result<Array<T>> {
    let (taps, all) = (grid.taps.len(), grid.all_taps * out_channels);
    let n = filters.len() / all;
    let mut out = Array::filled(cpu, n * taps * out_channels, T::ZERO)?;
    for (to, from) in out.chunks_exact_mut(taps * out_channels).zip(filters.chunks_exact(all)) {
        for (to, &tap) in to.chunks_exact_mut(out_channels).zip(&grid.taps) {
            to.copy_from_slice(&from[tap * out_channels..][..out_channels]);
        }
    }
    Ok(out)
}
