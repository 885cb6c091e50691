//! Which elements a sliding window meets: the geometry shared by convolution and pooling, for any
//! number of spatial axes.
//!
//! Along the last axis neighbouring windows meet neighbouring elements, so everything is expressed
//! in *strips*: a run of output places, and for one position in the window the run of input
//! elements they meet, clipped where it leaves the input.

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

/// A run of output places seen from one position of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip {
    /// The first place, counted from the beginning of the tile.
    pub at: usize,
    /// Places before, in and after the input.
    pub before: usize,
    pub inside: usize,
    pub after: usize,
    /// The input element that the first place inside meets.
    pub from: usize,
}

impl Geometry {
    /// The geometry of windows of sizes `kernel` over `input`, of which there are `output`, as
    /// core's `validate` counts them: it has found that stride and dilation are not 0, and that no
    /// size of the padded input overflows.
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

    /// Positions in a window.
    pub(crate) fn positions(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Output places.
    pub(crate) fn places(&self) -> usize {
        self.output.iter().product()
    }

    /// The distance in the input between neighbouring places along the last axis.
    pub(crate) fn step(&self) -> usize {
        self.window.stride.last().copied().unwrap_or(1)
    }

    /// How many rows of the output the places `first .. end` touch: the strips of each window
    /// position.
    pub(crate) fn rows(&self, first: usize, end: usize) -> usize {
        let wide = self.output.last().copied().unwrap_or(1);
        if first < end { (end - 1) / wide - first / wide + 1 } else { 0 }
    }

    /// The strips of places `first .. end`: [`rows`](Geometry::rows) for each window position.
    ///
    /// # Errors
    /// If there is no memory for them.
    pub(crate) fn all_strips(&self, cpu: &Cpu, first: usize, end: usize) -> Result<Array<Strip>> {
        let (rows, positions) = (self.rows(first, end), self.positions());
        let Some(n) = rows.checked_mul(positions) else {
            return Err(Error::out_of_memory(format!(
                "no memory for {rows} strips of {positions} window positions"
            )));
        };
        let mut strips =
            Array::filled(cpu, n, Strip { at: 0, before: 0, inside: 0, after: 0, from: 0 })?;
        for (position, strips) in strips.chunks_exact_mut(rows.max(1)).enumerate() {
            self.strips(first, end, position, strips);
        }
        Ok(strips)
    }

    /// The strips of places `first .. end` at window position `position`.
    fn strips(&self, first: usize, end: usize, position: usize, strips: &mut [Strip]) {
        let last = self.input.len() - 1;
        let (wide, size) = (self.output[last], self.input[last]);
        let shift = |axis: usize, k: usize| {
            (k * self.window.dilation[axis]) as isize - self.window.padding[axis] as isize
        };
        let step = self.window.stride[last];
        let mut place = first;
        for strip in strips {
            let x0 = place % wide;
            let count = (wide - x0).min(end - place);
            // The row of the input, if it exists.
            let (mut row, mut scale, mut exists) = (0usize, 1usize, true);
            let (mut p, mut k) = (place / wide, position / self.kernel[last]);
            for axis in (0..last).rev() {
                let i = (p % self.output[axis] * self.window.stride[axis]) as isize
                    + shift(axis, k % self.kernel[axis]);
                p /= self.output[axis];
                k /= self.kernel[axis];
                exists &= (0..self.input[axis] as isize).contains(&i);
                row += i.max(0) as usize * scale;
                scale *= self.input[axis];
            }
            let x_shift = shift(last, position % self.kernel[last]);
            // Places x with 0 <= x * step + x_shift < size.
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
            *strip =
                Strip { at: place - first, before, inside, after: count - before - inside, from };
            place += count;
        }
    }
}
