//! The input of a task in an order in which each tap reads neighbours for neighbouring results.
//!
//! ```text
//!   columns of a row, step 2, shifts -1 0 1         0 a b c d e f 0     (with padding)
//!   the lattice has a line for each phase           0 b d f  |  a c e   read by shifts -1 1 | 0
//! ```
//! Result `o` reads the element `o + d` of a phase: with the same phases along the rows, the element
//! of a result at (row, column) is `row * pitch + column + distance(tap)`. Zeros at the end of a
//! line are those at the beginning of the next. Where nothing is padding and steps are one, the
//! input is used as it is.

use crate::conv::columns::gather;
use crate::conv::grid::{Axis, Grid};
use crate::float::Float;
use crate::simd::{F32s, Lanes, Work};

/// The lattice of a grid's last two axes.
pub(super) struct Lattice<'a> {
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
    pub pitch: usize,
    /// Zeros at the end of the last line that are not in its pitch.
    shared: usize,
    /// Whether the input itself is the lattice.
    pub in_place: bool,
    /// Whether some cells are zeros around the input.
    pub has_padding: bool,
}

/// The phases of the distances that shifts have from the lowest one.
fn phases(axis: &Axis, low: isize) -> Vec<usize> {
    let of = |&shift: &isize| (shift - low) as usize % axis.step;
    let mut phases: Vec<usize> = axis.shifts.iter().map(of).collect();
    phases.sort_unstable();
    phases.dedup();
    phases
}

/// The least shift and the largest distance from it.
fn extent(axis: &Axis) -> (isize, usize) {
    let low = axis.shifts.iter().copied().min().unwrap_or(0);
    let high = axis.shifts.iter().copied().max().unwrap_or(0);
    (low, (high - low) as usize)
}

/// Whether every result's window is inside the input.
fn is_inside(axis: &Axis) -> bool {
    axis.shifts.iter().all(|&shift| axis.inside(shift) == (0, axis.output))
}

impl<'a> Lattice<'a> {
    pub(super) fn new(grid: &'a Grid) -> Lattice<'a> {
        let (cols, rest) = match grid.axes.split_last() {
            Some((cols, rest)) => (cols.clone(), rest),
            None => (Axis::single(), &grid.axes[..]),
        };
        let (rows, outer) = match rest.split_last() {
            Some((rows, outer)) => (rows.clone(), outer),
            None => (Axis::single(), rest),
        };
        let inside = is_inside(&rows) && is_inside(&cols);
        let in_place = inside && outer.is_empty() && rows.step == 1 && cols.step == 1;
        if in_place {
            let (low, pitch) = ([0, 0], cols.input);
            let phases = [vec![0], vec![0]];
            let (more, shared, has_padding) = (0, 0, false);
            return Lattice {
                outer,
                rows,
                cols,
                low,
                phases,
                more,
                pitch,
                shared,
                in_place,
                has_padding,
            };
        }
        let ([y, down], [x, along]) = {
            let ((y, down), (x, along)) = (extent(&rows), extent(&cols));
            ([y, down as isize], [x, along as isize])
        };
        let wide = cols.output + along as usize / cols.step;
        let mut shared = 0;
        if cols.step == 1 {
            let left = (-x).max(0) as usize;
            let content = (cols.input - x.max(0) as usize).min(wide - left.min(wide));
            let right = wide.saturating_sub(left + content);
            shared = left.min(right).min(wide - cols.output);
        }
        let low = [y, x];
        let phases = [phases(&rows, y), phases(&cols, x)];
        let more = down as usize / rows.step;
        let (pitch, has_padding) = (wide - shared, !inside);
        Lattice { outer, rows, cols, low, phases, more, pitch, shared, in_place, has_padding }
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

    /// Input planes of a channel.
    pub(super) fn outer_inputs(&self) -> usize {
        self.outer.iter().map(|a| a.input).product()
    }

    /// The input plane that the results of outer place `o` read at outer tap `k`, if it exists.
    pub(super) fn outer_plane(&self, mut o: usize, mut k: usize) -> Option<usize> {
        let (mut plane, mut scale) = (0, 1);
        for axis in self.outer.iter().rev() {
            let (n, count) = (axis.output, axis.shifts.len());
            let i = (o % n * axis.step) as isize + axis.shifts[k % count];
            if !(0..axis.input as isize).contains(&i) {
                return None;
            }
            plane += i as usize * scale;
            scale *= axis.input;
            (o, k) = (o / n, k / count);
        }
        Some(plane)
    }

    /// Lines of a phase under `rows` rows of results.
    fn lines(&self, rows: usize) -> usize {
        rows + self.more
    }

    /// Cells of one phase.
    fn phase(&self, rows: usize) -> usize {
        self.lines(rows).saturating_mul(self.pitch).saturating_add(self.shared)
    }

    /// Cells under `rows` rows of results: from a channel to the next.
    pub(super) fn cells(&self, rows: usize) -> usize {
        if self.in_place {
            return self.plane();
        }
        let phases = self.phases[0].len() * self.phases[1].len();
        phases.saturating_mul(self.phase(rows))
    }

    /// The cell that tap `tap` of the last two axes reads for the first result.
    pub(super) fn distance(&self, tap: usize, rows: usize) -> usize {
        let (y, x) = (tap / self.cols.shifts.len(), tap % self.cols.shifts.len());
        let y = (self.rows.shifts[y] - self.low[0]) as usize;
        let x = (self.cols.shifts[x] - self.low[1]) as usize;
        let index = |axis: usize, phase: usize| {
            self.phases[axis].iter().position(|&p| p == phase).unwrap_or(0)
        };
        let phase =
            index(0, y % self.rows.step) * self.phases[1].len() + index(1, x % self.cols.step);
        let at = y / self.rows.step * self.pitch + x / self.cols.step;
        if self.in_place { at } else { phase * self.phase(rows) + at }
    }

    /// In place, the cell of the first result of row `top`.
    pub(super) fn first(&self, top: usize) -> usize {
        if self.in_place { top * self.pitch } else { 0 }
    }

    /// Whether vectors that run through all lines are faster than those along each of `rows` rows:
    /// a tile of four of them is, even if a few more are computed.
    pub(super) fn is_flat(&self, rows: usize, lanes: usize) -> bool {
        let width = self.cols.output;
        let all = (rows.max(1) - 1) * self.pitch + width;
        width < 4 * lanes && 5 * all.div_ceil(lanes) <= 6 * rows * width.div_ceil(lanes)
    }
}

impl Axis {
    /// An axis of one element.
    pub(in crate::conv) fn single() -> Axis {
        let (input, output, size, step, every, first) = (1, 1, 1, 1, 1, 0);
        let (shifts, insides) = (vec![0], vec![(0, 1)]);
        Axis { input, output, step, shifts, insides, first, every, size }
    }
}

/// Copies the input under `rows` rows of results from row `top` on to its cells. Cells that are
/// padding are not written: they are zero.
pub(super) struct Fill<'a, T> {
    pub lattice: &'a Lattice<'a>,
    pub top: usize,
    pub rows: usize,
    pub from: &'a [T],
    pub cells: &'a mut [T],
}

impl<T: Float> Work for Fill<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Fill { lattice, top, rows, from, cells } = self;
        let (ys, xs) = (&lattice.rows, &lattice.cols);
        let mut phase = 0;
        for &fy in &lattice.phases[0] {
            for &fx in &lattice.phases[1] {
                // Lines and columns j that are inside the input at first + j * step.
                let y = (top * ys.step) as isize + lattice.low[0] + fy as isize;
                let x = lattice.low[1] + fx as isize;
                let wide = lattice.pitch + lattice.shared;
                let range = |first: isize, axis: &Axis, count: usize| {
                    let low = ((-first).max(0) as usize).div_ceil(axis.step);
                    let high = ((axis.input as isize - first).max(0) as usize).div_ceil(axis.step);
                    (low.min(count), high.min(count))
                };
                let (up, down) = range(y, ys, lattice.lines(rows));
                let (left, right) = range(x, xs, wide);
                for line in up..if left < right { down } else { up } {
                    let i = (y + (line * ys.step) as isize) as usize;
                    let j = (x + (left * xs.step) as isize) as usize;
                    let count = right - left;
                    let from = &from[i * xs.input + j..];
                    let at = phase + line * lattice.pitch + left;
                    let to = &mut cells[at..][..count];
                    // SAFETY: as many elements of both.
                    unsafe { copy::<T, T::Vector<V>>(from, xs.step, to) };
                }
                phase += lattice.phase(rows);
            }
        }
    }
}

/// Copies every `step`-th element.
///
/// # Safety
/// `from` has them.
#[inline(always)]
unsafe fn copy<T: Float, V: Lanes<T>>(from: &[T], step: usize, to: &mut [T]) {
    let n = to.len();
    // SAFETY: by contract.
    unsafe {
        if step != 1 {
            return gather::<T, V>(from, step, to.as_mut_ptr(), n);
        }
        let mut j = 0;
        while j + V::LANES <= n {
            V::load(from.as_ptr().add(j)).store(to.as_mut_ptr().add(j));
            j += V::LANES;
        }
        if j < n {
            let rest = n - j;
            V::load_part(from.as_ptr().add(j), rest).store_part(to.as_mut_ptr().add(j), rest);
        }
    }
}
