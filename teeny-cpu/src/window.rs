//! The geometry of sliding windows for pooling, for any number of spatial axes.
//!
//! The naive form computes, for each output pixel and each tap of the window, the input element
//! `pixel * stride + tap * dilation - padding` of every axis, and tests whether it exists. Along
//! the last axis neighbouring pixels read neighbouring elements, so all of this is done once for a
//! *span*: a run of output pixels, and for one tap the run of input elements that they read,
//! clipped to the input.

use crate::Cpu;
use crate::scratch::Array;
use teeny_core::{Error, Result, Window};

/// Sizes of input, window and output, and how they are related.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub input: Vec<usize>,
    pub kernel: Vec<usize>,
    pub output: Vec<usize>,
    window: Window,
}

/// A run of output pixels and the input elements that one tap of the window reads for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first pixel, counted from the beginning of the tile.
    pub at: usize,
    /// Pixels whose element is before the input, and inside.
    pub before: usize,
    pub inside: usize,
    /// The input element of the first pixel inside.
    pub from: usize,
}

/// The elements of one axis that a window sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: usize,
    pub count: usize,
}

impl Geometry {
    /// The geometry of windows of sizes `kernel` over `input`, of which there are `output`, as
    /// core's `validate` counts them: it has checked that stride and dilation are not 0, and that
    /// no size of the padded input overflows.
    pub(crate) fn new(
        input: &[usize],
        kernel: &[usize],
        output: &[usize],
        window: &Window,
    ) -> Geometry {
        Geometry {
            input: input.to_vec(),
            kernel: kernel.to_vec(),
            output: output.to_vec(),
            window: window.clone(),
        }
    }

    /// Elements of one input plane.
    pub(crate) fn plane(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of a window.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Output pixels.
    pub(crate) fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// The distance in the input between neighbouring pixels along the last axis.
    pub(crate) fn step(&self) -> usize {
        self.window.stride.last().copied().unwrap_or(1)
    }

    /// The distance of the elements of a window along `axis`, and the range that each window sees.
    pub(crate) fn ranges(&self, axis: usize) -> (usize, Vec<Range>) {
        let (size, kernel) = (self.input[axis], self.kernel[axis]);
        let (step, padding) = (self.window.dilation[axis], self.window.padding[axis]);
        let range = |pixel: usize| {
            let from = (pixel * self.window.stride[axis]) as isize - padding as isize;
            let before = ((-from).max(0) as usize).div_ceil(step);
            if before >= kernel {
                return Range { first: 0, count: 0 };
            }
            let first = (from + (before * step) as isize) as usize;
            let inside = size.saturating_sub(first).div_ceil(step);
            Range { first: first.min(size), count: inside.min(kernel - before) }
        };
        (step, (0..self.output[axis]).map(range).collect())
    }

    /// The number of output rows that the pixels `first .. end` are in: the spans of each tap.
    pub(crate) fn rows(&self, first: usize, end: usize) -> usize {
        let width = self.output.last().copied().unwrap_or(1);
        if first < end { (end - 1) / width - first / width + 1 } else { 0 }
    }

    /// The spans of pixels `first .. end`: [`rows`](Geometry::rows) for each tap.
    ///
    /// # Errors
    /// If allocation fails.
    pub(crate) fn all_spans(&self, cpu: &Cpu, first: usize, end: usize) -> Result<Array<Span>> {
        let (rows, taps) = (self.rows(first, end), self.taps());
        let Some(n) = rows.checked_mul(taps) else {
            return Err(Error::out_of_memory(format!("no memory for {rows} spans of {taps} taps")));
        };
        let mut spans = Array::filled(cpu, n, Span { at: 0, before: 0, inside: 0, from: 0 })?;
        for (tap, spans) in spans.chunks_exact_mut(rows.max(1)).enumerate() {
            self.spans(first, end, tap, spans);
        }
        Ok(spans)
    }

    /// The spans of pixels `first .. end` at tap `tap`.
    fn spans(&self, first: usize, end: usize, tap: usize, spans: &mut [Span]) {
        let last = self.input.len() - 1;
        let (width, size) = (self.output[last], self.input[last]);
        let shift = |axis: usize, k: usize| {
            (k * self.window.dilation[axis]) as isize - self.window.padding[axis] as isize
        };
        let step = self.window.stride[last];
        let mut pixel = first;
        for span in spans {
            let x0 = pixel % width;
            let count = (width - x0).min(end - pixel);
            // The row of the input, if it exists.
            let (mut row, mut scale, mut exists) = (0usize, 1usize, true);
            let (mut p, mut k) = (pixel / width, tap / self.kernel[last]);
            for axis in (0..last).rev() {
                let i = (p % self.output[axis] * self.window.stride[axis]) as isize
                    + shift(axis, k % self.kernel[axis]);
                p /= self.output[axis];
                k /= self.kernel[axis];
                exists &= (0..self.input[axis] as isize).contains(&i);
                row += i.max(0) as usize * scale;
                scale *= self.input[axis];
            }
            let x_shift = shift(last, tap % self.kernel[last]);
            // Pixels x with 0 <= x * step + x_shift < size.
            let low = if x_shift < 0 { (-x_shift) as usize } else { 0 }.div_ceil(step);
            let high = (size as isize - x_shift).max(0) as usize;
            let (low, high) =
                (low.clamp(x0, x0 + count), high.div_ceil(step).clamp(x0, x0 + count));
            let inside = if exists { high.saturating_sub(low) } else { 0 };
            let before = if inside == 0 { count } else { low - x0 };
            let from = if inside == 0 {
                0
            } else {
                row * size + ((low * step) as isize + x_shift) as usize
            };
            *span = Span { at: pixel - first, before, inside, from };
            pixel += count;
        }
    }
}
