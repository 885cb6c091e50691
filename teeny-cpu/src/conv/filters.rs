//! Filters in the order of a grid's taps: some taps of a convolution, or of its input gradient,
//! which exchanges the channels.

use super::columns::ConvTask;
use super::grid::Grid;
use crate::Cpu;
use crate::float::Float;
use crate::scratch::Array;
use crate::storage::Shared;
use crate::threads::for_each_range;
use crate::transpose::transpose;
use teeny_core::Result;

/// All filters of a convolution in the order of its grids.
pub(super) struct Filters<'a, T> {
    given: &'a [T],
    transposed: Option<Array<T>>,
    /// Elements of a tap that follow one another.
    each: usize,
}

impl<'a, T: Float> Filters<'a, T> {
    /// The filters of `c`, not rearranged: if `taps_first`, in_channels are the first axis.
    pub(super) fn new(cpu: &Cpu, c: &ConvTask<'a, T>) -> Result<Filters<'a, T>> {
        let (given, each) = (c.weight, if c.taps_first { c.in_channels } else { 1 });
        let transposed = match c.taps_first {
            true => Some(transposed(cpu, given, c.groups, each)?),
            false => None,
        };
        Ok(Filters { given, transposed, each })
    }

    pub(super) fn all(&self) -> &[T] {
        self.transposed.as_deref().unwrap_or(self.given)
    }

    /// The filters of a grid's taps; `None` if it has all taps.
    pub(super) fn of(&self, cpu: &Cpu, grid: &Grid) -> Result<Option<Array<T>>> {
        if grid.has_all_taps() {
            return Ok(None);
        }
        let (all, each, taps) = (self.all(), self.each, grid.taps.len());
        let mut out = Array::filled(cpu, all.len() / grid.all_taps * taps, T::ZERO)?;
        let filters = all.chunks_exact(grid.all_taps * each);
        for (to, from) in out.chunks_exact_mut(taps * each).zip(filters) {
            for (to, &tap) in to.chunks_exact_mut(each).zip(&grid.taps) {
                match each {
                    1 => to[0] = from[tap],
                    _ => to.copy_from_slice(&from[tap * each..][..each]),
                }
            }
        }
        Ok(Some(out))
    }
}

/// Writes the filters of the taps of `grid` to filters of all taps; the others are zero.
pub(super) fn scatter<T: Float>(some: &[T], grid: &Grid, all: &mut [T]) {
    all.fill(T::ZERO);
    let from = some.chunks_exact(grid.taps.len());
    for (to, from) in all.chunks_exact_mut(grid.all_taps).zip(from) {
        for (&tap, &value) in grid.taps.iter().zip(from) {
            to[tap] = value;
        }
    }
}

/// Rows that are transposed at once.
const ROWS: usize = 64;

/// The filters `w` (groups · out_channels, in_channels, taps) as (groups · in_channels, taps,
/// out_channels).
fn transposed<T: Float>(
    cpu: &Cpu,
    w: &[T],
    groups: usize,
    out_channels: usize,
) -> Result<Array<T>> {
    let row = w.len() / (groups * out_channels);
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
