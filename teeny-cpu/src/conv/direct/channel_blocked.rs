//! The channel-blocked layout (NCHWc) of a task's input: a vector of channels for each pixel, with
//! zeros at the ends of rows.

use super::correlate::Distances;
use crate::Cpu;
use crate::conv::grid::{Axis, Grid};
use crate::conv::tasks;
use crate::float::Float;
use crate::scratch::Array;
use crate::transpose::transpose;
use teeny_core::Result;

/// One grid of a convolution.
pub(super) struct Part {
    pub y: Axis,
    pub x: Axis,
}

/// The grids of one convolution over the packed input of a band.
pub(in crate::conv) struct BlockedLayout {
    pub(super) parts: Vec<Part>,
    /// Height and width of the input and of the results.
    pub input: [usize; 2],
    pub size: [usize; 2],
    /// The input column of the first packed vector of a row, and vectors per row.
    left: isize,
    pub row_stride: usize,
    /// The range of input columns that are packed.
    columns: [usize; 2],
    pub lanes: usize,
}

/// Some rows of results and the rows of the input that they read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    pub top: usize,
    pub bottom: usize,
    /// The input row of the first packed row, and the number of packed rows. It may be outside the
    /// input: then it is padding, which `fill` does not write. The caller fills it with zeros, or
    /// skips its taps (`taps` with `skips`).
    pub first: isize,
    pub rows: usize,
}

impl Band {
    /// The row of the input after the last one.
    pub(super) fn end(&self) -> isize {
        self.first + self.rows as isize
    }
}

impl BlockedLayout {
    /// The layout of these grids, if they have the same axes, one or two, and take a small multiple
    /// of the memory of operands.
    pub(in crate::conv) fn new<'a>(
        grids: impl Iterator<Item = &'a Grid>,
        lanes: usize,
    ) -> Option<BlockedLayout> {
        let part = |grid: &Grid| {
            let ([y, x], outer) = grid.last_two();
            outer.is_empty().then_some(Part { y, x })
        };
        let parts = grids.map(part).collect::<Option<Vec<Part>>>()?;
        let sizes = |part: &Part| ([part.y.input, part.x.input], [part.y.size, part.x.size]);
        let (input, size) = sizes(parts.first()?);
        if parts.iter().any(|part| sizes(part) != (input, size)) {
            return None;
        }
        // The elements that all grids read along an axis.
        let reach = |axis: fn(&Part) -> &Axis| {
            let reaches = parts.iter().map(|part| axis(part).reach(0, axis(part).output));
            reaches.fold((isize::MAX, isize::MIN), |a, b| (a.0.min(b.0), a.1.max(b.1)))
        };
        let ((top, bottom), (left, right)) = (reach(|part| &part.y), reach(|part| &part.x));
        let row_stride = (right - left) as usize;
        let operands = input[0] * input[1] + size[0] * size[1];
        if ((bottom - top) as usize).saturating_mul(row_stride) > 8 * operands + 1024 {
            return None;
        }
        let columns = [left, right].map(|column| column.clamp(0, input[1] as isize) as usize);
        Some(BlockedLayout { parts, input, size, left, row_stride, columns, lanes })
    }

    /// The distance of each tap of a part, in elements, from the tap with the least shifts.
    pub(super) fn distances(&self, cpu: &Cpu, part: &Part) -> Result<Distances> {
        let (ys, xs) = (&part.y.shifts, &part.x.shifts);
        Distances::from_fn(cpu, ys.len() * xs.len(), |tap| {
            let row = (ys[tap / xs.len()] - part.y.low) as usize;
            let column = (xs[tap % xs.len()] - part.x.low) as usize;
            (row * self.row_stride + column) * self.lanes
        })
    }

    /// Elements of a plane of the input and of the results.
    pub(super) fn planes(&self) -> [usize; 2] {
        [self.input[0] * self.input[1], self.size[0] * self.size[1]]
    }

    pub(super) fn band(&self, top: usize, bottom: usize) -> Band {
        let rows = self.parts.iter().filter_map(|part| {
            let [from, to] = part.results(top, bottom);
            (from < to).then(|| part.y.reach(from, to))
        });
        let (first, end) = rows.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        Band { top, bottom, first, rows: (end - first) as usize }
    }

    /// The taps of each row of results of a part: with `skips` only the taps that see rows of the
    /// input, which are one range, since shifts grow with the tap.
    pub(super) fn taps(&self, cpu: &Cpu, part: &Part, skips: bool) -> Result<Array<[usize; 2]>> {
        let columns = part.x.shifts.len();
        Array::from_fn(cpu, part.y.output, |row| {
            if !skips {
                return [0, part.y.shifts.len() * columns];
            }
            let sees = |shift: &isize| {
                (0..self.input[0] as isize).contains(&((row * part.y.step) as isize + shift))
            };
            let first = part.y.shifts.iter().position(sees).unwrap_or(0);
            let end = part.y.shifts.iter().rposition(sees).map_or(first, |last| last + 1);
            [first * columns, end * columns]
        })
    }

    /// Limits `from .. to` to the existing rows of the input.
    pub(super) fn clip(&self, from: isize, to: isize) -> [usize; 2] {
        let height = self.input[0] as isize;
        [from.clamp(0, height) as usize, to.clamp(0, height) as usize]
    }

    /// Writes rows `top .. bottom` of `channels` planes of input at `x` to the packed input of a
    /// band, with zeros at both ends of each row. No row outside the input is written, and no lane
    /// from `channels` on. `temporary` has [`BlockedLayout::temporary`] elements.
    pub(super) fn fill<T: Float>(
        &self,
        cpu: &Cpu,
        band: &Band,
        [top, bottom]: [usize; 2],
        (x, channels): (&[T], usize),
        temporary: &mut [T],
        packed: &mut [T],
    ) {
        let [left, right] = self.columns;
        let ([plane, _], width, lanes) = (self.planes(), self.input[1], self.lanes);
        if top >= bottom || left >= right {
            return;
        }
        let stride = plane as isize;
        let line = self.row_stride * lanes;
        assert!(
            (1..=lanes).contains(&channels) && x.len() >= (channels - 1) * plane + bottom * width
        );
        let first = (top as isize - band.first) as usize * line
            + (left as isize - self.left) as usize * lanes;
        if self.row_stride == width && self.left == 0 {
            let to = &mut packed[first..][..(bottom - top) * line];
            // SAFETY: whole rows of these planes, and as many packed vectors.
            unsafe {
                let (from, size) = (x[top * width..].as_ptr(), ((bottom - top) * width, channels));
                transpose(cpu.level, from, stride, to.as_mut_ptr(), lanes as isize, size, false)
            };
            return;
        }
        // Padding at both ends of each row.
        let (before, inside) = ((left as isize - self.left) as usize, right - left);
        let after = (self.row_stride - before - inside) * lanes;
        let mut at = first - before * lanes;
        for _ in top..bottom {
            packed[at..at + before * lanes].fill(T::ZERO);
            at += line;
            packed[at - after..at].fill(T::ZERO);
        }
        if self.has_wide_rows() {
            for row in top..bottom {
                let to = &mut packed[first + (row - top) * line..][..inside * lanes];
                // SAFETY: a row of these planes, and as many packed vectors.
                unsafe {
                    let (from, size) = (x[row * width + left..].as_ptr(), (inside, channels));
                    transpose(cpu.level, from, stride, to.as_mut_ptr(), lanes as isize, size, false)
                };
            }
            return;
        }
        let rows_at_once = self.rows_at_once();
        for row in (top..bottom).step_by(rows_at_once) {
            let rows = rows_at_once.min(bottom - row);
            let to = &mut temporary[..rows * width * lanes];
            // SAFETY: as above.
            unsafe {
                let (from, size) = (x[row * width..].as_ptr(), (rows * width, channels));
                transpose(cpu.level, from, stride, to.as_mut_ptr(), lanes as isize, size, false)
            };
            for (i, from) in to.chunks_exact(width * lanes).enumerate() {
                let from = &from[left * lanes..right * lanes];
                packed[first + (row - top + i) * line..][..from.len()].copy_from_slice(from);
            }
        }
    }

    /// True if transposing each row is faster than transposing several together and copying them:
    /// if rows fill at least 5/7 of the transpose's blocks of 16 columns (measured).
    fn has_wide_rows(&self) -> bool {
        80 * self.input[1].div_ceil(16) <= 7 * self.input[1]
    }

    /// Rows of the input that are transposed at once: a quarter of a first-level cache.
    fn rows_at_once(&self) -> usize {
        (2048 / (self.input[1] * self.lanes)).clamp(1, self.input[0].max(1))
    }

    /// Elements of the packed input of a band.
    pub(super) fn of_band(&self, band: &Band) -> usize {
        band.rows * self.row_stride * self.lanes
    }

    pub(super) fn temporary(&self) -> usize {
        self.rows_at_once() * self.input[1] * self.lanes
    }

    /// The packed vector of the first result of row `row` of a part, at the least shifts.
    pub(super) fn first(&self, part: &Part, band: &Band, row: usize) -> usize {
        let row = ((row * part.y.step) as isize + part.y.low - band.first) as usize;
        (row * self.row_stride + (part.x.low - self.left) as usize) * self.lanes
    }

    /// Elements between rows and between neighbouring results of a part, in the packed input.
    pub(super) fn x_strides(&self, part: &Part) -> [usize; 2] {
        [part.y.step * self.row_stride * self.lanes, part.x.step * self.lanes]
    }
    /// Elements between rows and between neighbouring results of a part, in the results of a step.
    pub(super) fn y_strides(&self, part: &Part) -> [usize; 2] {
        [part.y.every * self.size[1] * self.lanes, part.x.every * self.lanes]
    }

    /// Rows of results of a band.
    pub(super) fn rows_of_band(&self) -> usize {
        let more = self.band(0, 1).rows * self.row_stride * self.lanes;
        tasks::band_rows(self.size[0], self.row_stride * self.lanes, more)
    }

    /// Rows of results that are computed at a time: whole blocks of a transpose if they can be, and
    /// a first-level cache holds them.
    pub(super) fn rows_of_step(&self) -> usize {
        let every = self.parts.iter().map(|part| part.y.every).max().unwrap_or(1);
        let most = (128 / self.size[1]).max(1);
        let whole = (most.div_ceil(2)..=most).rev().find(|n| (n * self.size[1]).is_multiple_of(16));
        whole.unwrap_or(most).next_multiple_of(every)
    }
}

impl Part {
    /// The rows of results of this part in rows `top .. bottom` of all results.
    pub(super) fn results(&self, top: usize, bottom: usize) -> [usize; 2] {
        let y = &self.y;
        [top, bottom].map(|row| row.saturating_sub(y.first).div_ceil(y.every).min(y.output))
    }
}

/// Some rows of results that are computed together.
#[derive(Clone, Copy)]
pub(super) struct BandStep {
    pub top: usize,
    pub bottom: usize,
    /// Rows of the input that are packed before.
    pub fill: [usize; 2],
}

/// The work of a step on one part.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The packed vector of the first result.
    pub x: usize,
    /// Rows of results of the part.
    pub rows: [usize; 2],
    /// The index of the first result among the step's.
    pub y: usize,
}

impl BlockedLayout {
    /// The steps of a band, of up to `rows` rows of results, and the work of each on each part.
    pub(super) fn steps(
        &self,
        cpu: &Cpu,
        band: &Band,
        rows: usize,
    ) -> Result<(Array<BandStep>, Array<Call>)> {
        let mut filled = band.first;
        let of = |i: usize| {
            let top = band.top + i * rows;
            (top, (top + rows).min(band.bottom))
        };
        let steps = Array::from_fn(cpu, (band.bottom - band.top).div_ceil(rows), |i| {
            let (top, bottom) = of(i);
            let end = self.band(top, bottom).end().max(filled);
            let fill = self.clip(filled, end);
            filled = end;
            BandStep { top, bottom, fill }
        })?;
        let parts = self.parts.len();
        let calls = Array::from_fn(cpu, steps.len() * parts, |i| {
            let ((top, bottom), part) = (of(i / parts), &self.parts[i % parts]);
            let [from, to] = part.results(top, bottom);
            if from >= to {
                return Call { x: 0, rows: [from, from], y: 0 };
            }
            let row = part.y.first + from * part.y.every - top;
            let y = (row * self.size[1] + part.x.first) * self.lanes;
            let x = self.first(part, band, from);
            // Kernels read and write from here to the last result at the farthest tap.
            let last = |[down, along]: [usize; 2]| {
                (to - from - 1) * down + (part.x.output - 1) * along + self.lanes
            };
            let [down, along] = [&part.y, &part.x].map(|axis| (axis.high - axis.low) as usize);
            let farthest = (down * self.row_stride + along) * self.lanes;
            assert!(
                x + farthest + last(self.x_strides(part)) <= self.of_band(band)
                    && y + last(self.y_strides(part)) <= rows * self.size[1] * self.lanes
            );
            Call { x, rows: [from, to], y }
        })?;
        Ok((steps, calls))
    }
}

/// Transposes the filters of some channels, `taps` each, to a vector for each tap.
pub(super) fn vectors<T: Float>(cpu: &Cpu, w: &[T], taps: usize, lanes: usize, to: &mut [T]) {
    let channels = w.len() / taps;
    assert!(to.len() >= taps * lanes && channels <= lanes);
    let (from, to, stride) = (w.as_ptr(), to.as_mut_ptr(), lanes as isize);
    // SAFETY: `channels` rows of taps, and as many vectors as taps.
    unsafe { transpose(cpu.level, from, taps as isize, to, stride, (taps, channels), false) };
}
