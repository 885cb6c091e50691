//! The phase-split (polyphase) input of a task: each tap reads neighbours for neighbouring results.
//!
//! ```text
//!   columns of a row, step 2, shifts -1 0 1         0 a b c d e f 0     (with padding)
//!   a line for each phase                           0 b d f  |  a c e   read by shifts -1 1 | 0
//! ```
//! Result `o` reads the element `o + d` of a phase: with the same phases along the rows, the
//! element of a result at (row, column) is `row * row_stride + column + distance(tap)`. Zeros at
//! the end of a line are the ones at the beginning of the next. Where nothing is padding and steps
//! are one, the input is used as it is.

use super::correlate::{Distances, Table};
use crate::Cpu;
use crate::conv::columns::ConvTask;
use crate::conv::copies::{copy_row, gather};
use crate::conv::grid::{Axis, Grid, input_at};
use crate::float::Float;
use crate::scratch::Array;
use crate::simd::{F32s, Work};
use teeny_core::Result;

/// The phase-split input of a grid's last two axes.
pub(super) struct PhaseSplit<'a> {
    outer: &'a [Axis],
    rows: Axis,
    cols: Axis,
    /// The least shift of both axes, or 0 in place.
    low: [isize; 2],
    /// The phases of both axes that a tap reads.
    phases: [Vec<usize>; 2],
    /// Lines more than rows of results.
    more: usize,
    /// From a line to the next.
    pub row_stride: usize,
    /// Zeros at the end of the last line that are not in its row stride.
    shared: usize,
    /// Whether the input itself is the only phase.
    pub in_place: bool,
    /// Whether the packed input has zeros around the input.
    pub has_padding: bool,
}

/// The distinct phases of the shifts, relative to the lowest shift, in ascending order.
fn phases(axis: &Axis, low: isize) -> Vec<usize> {
    let of = |&shift: &isize| (shift - low) as usize % axis.step;
    let mut phases: Vec<usize> = axis.shifts.iter().map(of).collect();
    phases.sort_unstable();
    phases.dedup();
    phases
}

impl<'a> PhaseSplit<'a> {
    pub(super) fn new(grid: &'a Grid) -> PhaseSplit<'a> {
        let ([rows, cols], outer) = grid.last_two();
        let inside = rows.is_inside() && cols.is_inside();
        let in_place = inside && outer.is_empty() && rows.step == 1 && cols.step == 1;
        let [y, x] = [rows.low, cols.low];
        let wide = cols.output + cols.extent();
        let mut shared = 0;
        if cols.step == 1 {
            let left = (-x).max(0) as usize;
            let content = cols.input.saturating_sub(x.max(0) as usize).min(wide - left.min(wide));
            let right = wide.saturating_sub(left + content);
            shared = left.min(right).min(wide - cols.output);
        }
        let (row_stride, has_padding, more) = (wide - shared, !inside, rows.extent());
        let phases = [phases(&rows, y), phases(&cols, x)];
        let split = PhaseSplit {
            outer,
            low: [y, x],
            phases,
            more,
            row_stride,
            shared,
            in_place,
            has_padding,
            rows,
            cols,
        };
        match in_place {
            true => PhaseSplit { low: [0, 0], row_stride: split.cols.input, shared: 0, ..split },
            false => split,
        }
    }

    /// Rows and columns of a plane of results, and planes of results of an image and group.
    pub(super) fn results(&self) -> ([usize; 2], usize) {
        let outer = self.outer.iter().map(|a| a.output).product();
        ([self.rows.output, self.cols.output], outer)
    }

    /// Taps of the axes before the last two, and of these.
    pub(super) fn taps(&self) -> [usize; 2] {
        let outer = self.outer.iter().map(|a| a.shifts.len()).product();
        [outer, self.rows.shifts.len() * self.cols.shifts.len()]
    }

    /// Elements of an input plane of the last two axes.
    pub(super) fn plane(&self) -> usize {
        self.rows.input * self.cols.input
    }

    /// Lines of a phase under `rows` rows of results.
    fn lines(&self, rows: usize) -> usize {
        rows + self.more
    }

    /// Elements of one phase.
    fn phase(&self, rows: usize) -> usize {
        self.lines(rows).saturating_mul(self.row_stride).saturating_add(self.shared)
    }

    /// Packed elements of a channel under `rows` rows of results.
    pub(super) fn packed_len(&self, rows: usize) -> usize {
        if self.in_place {
            return self.plane();
        }
        let phases = self.phases[0].len() * self.phases[1].len();
        phases.saturating_mul(self.phase(rows))
    }

    /// The packed element that tap `tap` of the last two axes reads for the first result.
    fn distance(&self, tap: usize, rows: usize) -> usize {
        let (y, x) = (tap / self.cols.shifts.len(), tap % self.cols.shifts.len());
        let y = (self.rows.shifts[y] - self.low[0]) as usize;
        let x = (self.cols.shifts[x] - self.low[1]) as usize;
        let index = |axis: usize, phase: usize| {
            self.phases[axis].iter().position(|&p| p == phase).unwrap_or(0)
        };
        let phase =
            index(0, y % self.rows.step) * self.phases[1].len() + index(1, x % self.cols.step);
        let at = y / self.rows.step * self.row_stride + x / self.cols.step;
        if self.in_place { at } else { phase * self.phase(rows) + at }
    }

    /// Packed elements of all channels under `rows` rows of results, which [`PhaseSplit::read`]
    /// fills.
    pub(super) fn filled(&self, in_channels: usize, rows: usize) -> usize {
        if self.in_place { 0 } else { in_channels * self.taps()[0] * self.packed_len(rows) }
    }

    /// The packed input of all channels under some rows of results at the outer place `outer`,
    /// starting at the first result's element. It is the image itself, or `packed` after a copy
    /// from it. Padding is not written.
    pub(super) fn read<'b, T: Float>(
        &self,
        cpu: &Cpu,
        image: &'b [T],
        outer: usize,
        [top, rows]: [usize; 2],
        packed: &'b mut [T],
    ) -> &'b [T] {
        if self.in_place {
            return &image[top * self.row_stride..];
        }
        let ([taps, _], plane, size) = (self.taps(), self.plane(), self.packed_len(rows));
        let planes = self.outer.iter().map(|a| a.input).product::<usize>();
        for (v, packed) in packed.chunks_exact_mut(size).enumerate() {
            match input_at(self.outer, outer, v % taps) {
                Some(at) => {
                    let from = &image[(v / taps * planes + at) * plane..][..plane];
                    cpu.level.run(Fill { split: self, top, rows, from, packed });
                }
                None => packed.fill(T::ZERO),
            }
        }
        packed
    }

    /// The distances of the weights of `c` under `rows` rows of results.
    fn distances<T: Float>(
        &self,
        cpu: &Cpu,
        c: &ConvTask<'_, T>,
        rows: usize,
    ) -> Result<Distances> {
        let [outer, inner] = self.taps();
        let plane = self.packed_len(rows);
        let taps = Array::from_fn(cpu, inner, |tap| self.distance(tap, rows))?;
        Distances::from_fn(cpu, c.in_channels * outer * inner, |i| {
            let (channel, tap) = match c.taps_first {
                true => (i % c.in_channels, i / c.in_channels),
                false => (i / (outer * inner), i % (outer * inner)),
            };
            (channel * outer + tap / inner) * plane + taps[tap % inner]
        })
    }

    /// Whether vectors that run through all lines are faster than those along each of `rows` rows:
    /// a tile of four of them is, even if a few more are computed.
    pub(super) fn is_flat(&self, rows: usize, lanes: usize) -> bool {
        let width = self.cols.output;
        let all = (rows.max(1) - 1) * self.row_stride + width;
        width < 4 * lanes && 5 * all.div_ceil(lanes) <= 6 * rows * width.div_ceil(lanes)
    }
}

/// The distances of the weights under bands of rows of results: all bands except the last are
/// equal.
pub(super) struct BandDistances {
    rows: usize,
    each: Distances,
    last: Option<Distances>,
}

impl BandDistances {
    /// For a task whose results have `height` rows, in bands of `rows`.
    pub(super) fn new<T: Float>(
        cpu: &Cpu,
        split: &PhaseSplit<'_>,
        c: &ConvTask<'_, T>,
        [height, rows]: [usize; 2],
    ) -> Result<BandDistances> {
        let each = split.distances(cpu, c, rows)?;
        let last = match height % rows {
            0 => None,
            rest => Some(split.distances(cpu, c, rest)?),
        };
        Ok(BandDistances { rows, each, last })
    }

    /// Those under a band of `rows` rows.
    pub(super) fn of(&self, rows: usize) -> Table<'_> {
        match &self.last {
            Some(last) if rows < self.rows => last.table(),
            _ => self.each.table(),
        }
    }
}

/// Copies the input under `rows` rows of results from row `top` on to `packed`. Padding is not
/// written: it is zero.
struct Fill<'a, T> {
    split: &'a PhaseSplit<'a>,
    top: usize,
    rows: usize,
    from: &'a [T],
    packed: &'a mut [T],
}

impl<T: Float> Work for Fill<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Fill { split, top, rows, from, packed } = self;
        let (ys, xs) = (&split.rows, &split.cols);
        let mut phase = 0;
        for &fy in &split.phases[0] {
            for &fx in &split.phases[1] {
                // Lines and columns j that are inside the input at first + j * step.
                let y = (top * ys.step) as isize + split.low[0] + fy as isize;
                let x = split.low[1] + fx as isize;
                let wide = split.row_stride + split.shared;
                let (up, down) = ys.inside(y, split.lines(rows));
                let (left, right) = xs.inside(x, wide);
                for line in up..if left < right { down } else { up } {
                    let i = (y + (line * ys.step) as isize) as usize;
                    let j = (x + (left * xs.step) as isize) as usize;
                    let count = right - left;
                    let from = &from[i * xs.input + j..];
                    let at = phase + line * split.row_stride + left;
                    let to = packed[at..][..count].as_mut_ptr();
                    // SAFETY: as many elements of both: `inside` returns places of the input.
                    unsafe {
                        match xs.step {
                            1 => copy_row::<T, T::Vector<V>>(from.as_ptr(), to, count),
                            step => gather::<T, T::Vector<V>>(from, step, to, count),
                        }
                    }
                }
                phase += split.phase(rows);
            }
        }
    }
}
