//! Which elements of the input each element of a convolution's result reads, axis by axis.
//!
//! ```text
//!   convolution      y[o]         = Σ_k w[k] x[o * stride + k * dilation - padding]
//!   input gradient   x[r + s * a] = Σ_k w[k] g[a + (r + padding - k * dilation) / s]
//! ```
//! where the second sum has the taps `k` whose quotient is a whole number: one [`Grid`] for each
//! residue `r` of the stride `s`. Both are `result[o] = Σ_k w[k] input[o * step + shift[k]]`, so
//! one set of kernels computes both. Taps that see only padding are left out if weights are finite.
//! Independent of values; next: `columns` and `direct`, which read by it.

use crate::Cpu;
use crate::scratch::Array;
use teeny_core::{Error, Result, Window};

/// One spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Elements of the input, and of this grid's results.
    pub input: usize,
    pub output: usize,
    /// Result `o` reads input `o * step + shift` for each shift, if that exists.
    pub step: usize,
    pub shifts: Vec<isize>,
    /// The least and the largest shift.
    pub low: isize,
    pub high: isize,
    /// The results that each shift gives an input: from the first to before the second.
    pub insides: Vec<(usize, usize)>,
    /// Result `o` is element `first + o * every` of `size`.
    pub first: usize,
    pub every: usize,
    pub size: usize,
}

impl Axis {
    /// Whether results are the input's elements at the same place.
    fn is_identity(&self) -> bool {
        self.shifts == [0]
            && self.step == 1
            && self.every == 1
            && self.input == self.output
            && self.output == self.size
    }

    /// An axis of these elements of the input, results and step; result `o` is element `first + o *
    /// every` of `size`.
    fn new(
        [input, output, step]: [usize; 3],
        [first, every, size]: [usize; 3],
        shifts: Vec<isize>,
    ) -> Axis {
        let (low, high, insides) = (0, 0, Vec::new());
        let mut axis = Axis { input, output, step, shifts, low, high, insides, first, every, size };
        axis.find_insides();
        axis
    }

    /// An axis of one element.
    fn single() -> Axis {
        Axis::new([1; 3], [0, 1, 1], vec![0])
    }

    /// Sets the fields that depend on the shifts.
    fn find_insides(&mut self) {
        self.low = self.shifts.iter().copied().min().unwrap_or(0);
        self.high = self.shifts.iter().copied().max().unwrap_or(0);
        self.insides = self.shifts.iter().map(|&shift| self.inside(shift, self.output)).collect();
    }

    /// From the first to the last element that a result reads, in steps.
    pub(super) fn extent(&self) -> usize {
        (self.high - self.low) as usize / self.step
    }

    /// The elements that results `from .. to` read, the padding included: from the first to before
    /// the second.
    #[inline]
    pub(super) fn reach(&self, from: usize, to: usize) -> (isize, isize) {
        let at = |o: usize| (o * self.step) as isize;
        (at(from) + self.low, at(to - 1) + self.high + 1)
    }

    /// The half-open range of the `count` results for which `shift` is inside the input.
    #[inline]
    pub(super) fn inside(&self, shift: isize, count: usize) -> (usize, usize) {
        let low = (-shift).max(0) as usize;
        let high = (self.input as isize - shift).max(0) as usize;
        let low = low.div_ceil(self.step).min(count);
        (low, high.div_ceil(self.step).clamp(low, count))
    }

    /// Whether every tap gives every result an input.
    pub(super) fn is_inside(&self) -> bool {
        self.insides.iter().all(|&inside| inside == (0, self.output))
    }
}

/// The element of the input, counted through these axes, that result `o` of them reads at their tap
/// `k`, if it exists.
pub(super) fn input_at(axes: &[Axis], mut o: usize, mut k: usize) -> Option<usize> {
    let (mut at, mut scale) = (0, 1);
    for axis in axes.iter().rev() {
        let (n, count) = (axis.output, axis.shifts.len());
        let i = (o % n * axis.step) as isize + axis.shifts[k % count];
        if !(0..axis.input as isize).contains(&i) {
            return None;
        }
        at += i as usize * scale;
        scale *= axis.input;
        (o, k) = (o / n, k / count);
    }
    Some(at)
}

/// All axes, and the taps of the filter that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// At least one.
    pub axes: Vec<Axis>,
    /// The position in the filter of each combination of shifts, the last axis fastest.
    pub taps: Vec<usize>,
    /// Taps of the filter.
    pub all_taps: usize,
}

/// Some results of one row and one tap, and the input elements that they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first result, counted from the beginning of the panel.
    pub at: usize,
    /// Results whose element is before, inside and after the input.
    pub before: usize,
    pub inside: usize,
    pub after: usize,
    /// The input element of the first result inside, in the plane of the image's first channel.
    pub from: usize,
}

/// Some results of one row: where they are in the panel and in the plane of the image's first
/// channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub at: usize,
    pub count: usize,
    pub to: usize,
}

/// The input spans and the output runs of a panel of results.
pub(super) struct Panel {
    /// `runs.len()` for each tap.
    pub spans: Array<Span>,
    pub runs: Array<Run>,
}

impl Grid {
    /// The grid of a convolution. `skips` leaves out taps that see only padding.
    pub(super) fn forward(
        input: &[usize],
        kernel: &[usize],
        output: &[usize],
        window: &Window,
        skips: bool,
    ) -> Grid {
        let axes = (0..input.len()).map(|a| {
            let (dilation, padding) = (window.dilation[a], window.padding[a]);
            let shifts = (0..kernel[a]).map(|k| (k * dilation) as isize - padding as isize);
            let (output, step, place) = (output[a], window.stride[a], [0, 1, output[a]]);
            (Axis::new([input[a], output, step], place, Vec::new()), shifts.enumerate().collect())
        });
        Grid::of(axes.collect(), kernel, skips)
    }

    /// The grids of the gradient for an input of size `x`, one for each combination of residues
    /// that a tap has. All other results are zero.
    pub(super) fn backward(
        x: &[usize],
        kernel: &[usize],
        g: &[usize],
        window: &Window,
    ) -> Vec<Grid> {
        // Of tap k along axis a: the residue, and the shift.
        let at = |a: usize, k: usize| {
            let (s, from) = (window.stride[a] as isize, (k * window.dilation[a]) as isize);
            let from = from - window.padding[a] as isize;
            (from.rem_euclid(s) as usize, -from.div_euclid(s))
        };
        let mut classes = vec![Vec::new()];
        for a in 0..x.len() {
            let mut residues: Vec<usize> = (0..kernel[a]).map(|k| at(a, k).0).collect();
            residues.sort_unstable();
            residues.dedup();
            residues.retain(|&r| r < x[a]);
            let longer = |class: Vec<usize>| {
                residues.iter().map(move |&r| [&class[..], &[r]].concat()).collect::<Vec<_>>()
            };
            classes = classes.into_iter().flat_map(longer).collect();
        }
        let grid = |class: Vec<usize>| {
            let axes = class.iter().enumerate().map(|(a, &first)| {
                let taps = (0..kernel[a]).map(|k| (k, at(a, k)));
                let taps = taps.filter(|(_, (r, _))| *r == first).map(|(k, (_, d))| (k, d));
                let (every, size) = (window.stride[a], x[a]);
                let sizes = [g[a], (size - first).div_ceil(every), 1];
                let axis = Axis::new(sizes, [first, every, size], Vec::new());
                (axis, taps.collect())
            });
            Grid::of(axes.collect(), kernel, true)
        };
        classes.into_iter().map(grid).collect()
    }

    /// The grid of these axes; with `skips` only the taps that see the input. Axes that only pass
    /// elements on are merged.
    fn of(axes: Vec<(Axis, Vec<(usize, isize)>)>, kernel: &[usize], skips: bool) -> Grid {
        let mut grid = Grid { axes: Vec::new(), taps: vec![0], all_taps: kernel.iter().product() };
        for ((mut axis, mut taps), &size) in axes.into_iter().zip(kernel) {
            taps.retain(|&(_, shift)| {
                let (low, high) = axis.inside(shift, axis.output);
                low < high || !skips
            });
            axis.shifts = taps.iter().map(|&(_, shift)| shift).collect();
            axis.find_insides();
            let before = grid.taps.iter();
            grid.taps =
                before.flat_map(|&t| taps.iter().map(move |&(k, _)| t * size + k)).collect();
            match grid.axes.last_mut() {
                Some(last) if axis.is_identity() && last.is_identity() => {
                    for n in [&mut last.input, &mut last.output, &mut last.size] {
                        *n *= axis.size;
                    }
                    last.insides = vec![(0, last.output)];
                }
                Some(last) if last.is_identity() && last.size == 1 => *last = axis,
                Some(_) if axis.is_identity() && axis.size == 1 => {}
                _ => grid.axes.push(axis),
            }
        }
        grid
    }

    /// The last axis.
    pub(super) fn last(&self) -> &Axis {
        &self.axes[self.axes.len() - 1]
    }

    /// The last two axes, and the axes before them.
    pub(super) fn last_two(&self) -> ([Axis; 2], &[Axis]) {
        match &self.axes[..] {
            [outer @ .., y, x] => ([y.clone(), x.clone()], outer),
            [x] => ([Axis::single(), x.clone()], &[]),
            [] => ([Axis::single(), Axis::single()], &[]),
        }
    }

    /// Elements of a plane of the input, of this grid's results, and of a plane of all results.
    pub(super) fn plane(&self) -> usize {
        self.axes.iter().map(|a| a.input).product()
    }
    pub(super) fn pixels(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }
    pub(super) fn size(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Whether no tap of the filter was left out, and their order is the filter's.
    pub(super) fn has_all_taps(&self) -> bool {
        self.taps.len() == self.all_taps && self.taps.is_sorted()
    }

    /// Whether some tap sees padding for some result.
    pub(super) fn has_padding(&self) -> bool {
        !self.axes.iter().all(Axis::is_inside)
    }

    /// Whether each tap sees the input for some result.
    pub(super) fn all_taps_see(&self) -> bool {
        self.axes.iter().all(|axis| axis.insides.iter().all(|(low, high)| low < high))
    }

    /// Whether the results of a row are next to each other, and rows follow one another.
    pub(super) fn is_dense(&self) -> bool {
        self.axes.iter().all(|a| a.every == 1)
    }

    /// Whether the results are all results.
    pub(super) fn is_whole(&self) -> bool {
        self.axes.iter().all(|a| a.output == a.size)
    }

    /// The grid of results `from .. to` of the last axis.
    pub(super) fn columns(&self, from: usize, to: usize) -> Grid {
        let mut grid = self.clone();
        if let Some(axis) = grid.axes.last_mut() {
            let shift = (from * axis.step) as isize;
            axis.shifts.iter_mut().for_each(|s| *s += shift);
            axis.first += from * axis.every;
            axis.output = to - from;
            axis.find_insides();
        }
        grid
    }

    /// From a row of results to the next, in the plane of all results.
    pub(super) fn row_step(&self) -> usize {
        match self.axes.len().checked_sub(2) {
            Some(rows) => self.axes[rows].every * self.last().size,
            None => self.last().size,
        }
    }

    /// Rows that the results `first .. end` are in. Rows of one image follow the rows of the image
    /// before.
    fn rows(&self, first: usize, end: usize) -> usize {
        let width = self.last().output;
        if first < end { (end - 1) / width - first / width + 1 } else { 0 }
    }

    /// The panel of results `first .. end`, counted through all images, which are `strides` apart
    /// in the input and in the result.
    ///
    /// # Errors
    /// If allocation fails.
    pub(super) fn panel(
        &self,
        cpu: &Cpu,
        [first, end]: [usize; 2],
        strides: [usize; 2],
    ) -> Result<Panel> {
        let (rows, taps, pixels) = (self.rows(first, end), self.taps.len(), self.pixels());
        let Some(n) = rows.checked_mul(taps) else {
            return Err(Error::out_of_memory(format!("no memory for {rows} spans of {taps} taps")));
        };
        let (last, inner) = (self.last(), &self.axes[..self.axes.len() - 1]);
        let none = Span { at: 0, before: 0, inside: 0, after: 0, from: 0 };
        let mut span_list = Array::filled(cpu, n, none)?;
        let shifts = last.shifts.len();
        let mut runs = Array::filled(cpu, rows, Run { at: 0, count: 0, to: 0 })?;
        let mut p = first;
        for row in 0..rows {
            let (image, pixel) = (p / pixels, p % pixels);
            let x = pixel % last.output;
            let count = (last.output - x).min(end - p);
            let at = p - first;
            let to = image * strides[1] + self.place(pixel);
            runs[row] = Run { at, count, to };
            for (line_tap, spans) in (0..taps / shifts).zip((0..).step_by(shifts * rows)) {
                let line = input_at(inner, pixel / last.output, line_tap);
                for (i, (&shift, &(low, high))) in last.shifts.iter().zip(&last.insides).enumerate()
                {
                    let (low, high) = (low.clamp(x, x + count), high.clamp(x, x + count));
                    span_list[spans + i * rows + row] = match line {
                        Some(line) if low < high => Span {
                            at,
                            before: low - x,
                            inside: high - low,
                            after: x + count - high,
                            from: image * strides[0]
                                + line * last.input
                                + ((low * last.step) as isize + shift) as usize,
                        },
                        _ => Span { at, before: count, inside: 0, after: 0, from: 0 },
                    };
                }
            }
            p += count;
        }
        Ok(Panel { spans: span_list, runs })
    }

    /// The place of result `pixel` in the plane of all results.
    pub(super) fn place(&self, mut pixel: usize) -> usize {
        let (mut place, mut scale) = (0, 1);
        for axis in self.axes.iter().rev() {
            place += (axis.first + pixel % axis.output * axis.every) * scale;
            pixel /= axis.output;
            scale *= axis.size;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All windows of small sizes along two axes.
    fn windows() -> impl Iterator<Item = ([usize; 2], [usize; 2], Window)> {
        (0..2000usize).map(|i| {
            let digit = |place: usize, n: usize| i / place % n;
            let window = Window::new(2)
                .stride([1 + digit(1, 3) as i64, 1 + digit(3, 2) as i64])
                .padding([digit(6, 3) as i64, digit(18, 4) as i64])
                .dilation([1 + digit(72, 2) as i64, 1 + digit(5, 3) as i64]);
            ([1 + digit(7, 5), 1 + digit(11, 7)], [1 + digit(144, 3), 1 + digit(13, 3)], window)
        })
    }

    fn outputs(x: [usize; 2], kernel: [usize; 2], window: &Window) -> Option<Vec<usize>> {
        (0..2)
            .map(|a| {
                let reach = window.dilation[a] * (kernel[a] - 1) + 1;
                let padded = x[a] + 2 * window.padding[a];
                Some(padded.checked_sub(reach)? / window.stride[a] + 1)
            })
            .collect()
    }

    /// The place in x that result `o` reads at tap `k`, if it exists.
    fn place(
        x: [usize; 2],
        kernel: [usize; 2],
        y: &[usize],
        window: &Window,
        [o, k]: [usize; 2],
    ) -> Option<usize> {
        let at = |a: usize, o: usize, k: usize| {
            (o * window.stride[a] + k * window.dilation[a])
                .checked_sub(window.padding[a])
                .filter(|&i| i < x[a])
        };
        let row = at(0, o / y[1], k / kernel[1])?;
        Some(row * x[1] + at(1, o % y[1], k % kernel[1])?)
    }

    /// Triples of result, tap and the element that is read, by the spans of two images.
    fn triples(cpu: &Cpu, grid: &Grid) -> Vec<[usize; 3]> {
        let (pixels, strides) = (grid.pixels(), [1000, 1000]);
        let mut all = Vec::new();
        if grid.taps.is_empty() {
            return all;
        }
        for first in (0..2 * pixels).step_by(5) {
            let end = (first + 5).min(2 * pixels);
            let panel = grid.panel(cpu, [first, end], strides).unwrap();
            for (i, &span) in panel.spans.iter().enumerate() {
                let (run, tap) = (panel.runs[i % panel.runs.len()], i / panel.runs.len());
                assert_eq!(span.before + span.inside + span.after, run.count);
                for j in 0..span.inside {
                    let to = run.to + (span.before + j) * grid.last().every;
                    all.push([to, grid.taps[tap], span.from + j * grid.last().step]);
                }
            }
        }
        all
    }

    #[test]
    fn spans_are_what_windows_read_and_what_gradients_read() {
        let cpu = Cpu::new();
        for (x, kernel, window) in windows() {
            let Some(y) = outputs(x, kernel, &window) else { continue };
            let mut want = Vec::new();
            for image in 0..2 {
                for (o, k) in
                    (0..y[0] * y[1]).flat_map(|o| (0..kernel[0] * kernel[1]).map(move |k| (o, k)))
                {
                    if let Some(i) = place(x, kernel, &y, &window, [o, k]) {
                        want.push([image * 1000 + o, k, image * 1000 + i]);
                    }
                }
            }
            want.sort_unstable();
            for skips in [false, true] {
                let grid = Grid::forward(&x, &kernel, &y, &window, skips);
                assert!(skips || grid.has_all_taps());
                let mut got = triples(&cpu, &grid);
                got.sort_unstable();
                assert_eq!(got, want, "{x:?} {kernel:?} {window:?}");
            }
            let grids = Grid::backward(&x, &kernel, &y, &window);
            let mut back: Vec<_> = grids
                .iter()
                .flat_map(|grid| triples(&cpu, grid))
                .map(|[to, tap, from]| [from, tap, to])
                .collect();
            back.sort_unstable();
            assert_eq!(back, want, "{x:?} {kernel:?} {window:?}");
        }
    }

    #[test]
    fn axes_without_windows_are_one() {
        let grid = Grid::forward(&[4, 5, 6], &[1, 1, 1], &[4, 5, 6], &Window::new(3), true);
        assert_eq!((grid.axes.len(), grid.last().output), (1, 120));
        let padded = Window::new(2).padding(1);
        let grid = Grid::forward(&[1, 7], &[3, 3], &[1, 7], &padded, true);
        // Only the middle row of a window sees a row of the input.
        assert_eq!((grid.axes.len(), &grid.taps[..]), (1, &[3, 4, 5][..]));
    }
}
