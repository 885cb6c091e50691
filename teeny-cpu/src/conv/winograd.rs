//! Convolution with windows of 3 x 3 and stride 1 by Winograd's minimal filtering: 36 products for
//! 16 places instead of 144.
//!
//! Four by four places need a tile of 6 x 6 of the input. Tile, window and result are polynomials
//! in two variables; they are evaluated at the points 0, ±5/8, ±3/2, ∞ of each axis, multiplied
//! there, and the result is interpolated:
//!
//! ```text
//!   V = Bᵀ d B      U = G w Gᵀ      M[ξ] = V[ξ] (tiles, C) @ U[ξ] (C, O)  for each of 36 points ξ      y = Aᵀ M A
//!   the window's gradient, by the chain rule:   dM = A g Aᵀ      dU[ξ] = V[ξ]ᵀ @ dM[ξ]      dw = Gᵀ dU G
//! ```
//! The gradient of the input is itself such a convolution, of g with windows turned by half a
//! circle. The points are exact in binary and keep the error at 1e-5 of a result's size, a seventh
//! of what the usual 0, ±1, ±2 give. Lanes are channels, so no transform shuffles: bands of four
//! rows of places are turned over to channels last on the way in and back on the way out.
//!
//! The interpolation of a tile mixes all of its elements: rounding errors are relative to the
//! largest of them, not to those that a window sees, and one infinity spoils all 16 places. So each
//! band of tiles is looked at first (`evenness`): where a window sees nothing of nearly its tile's
//! size, the band is left to the columns of `conv`. Which bands depends on the values alone, not on
//! threads. Errors are then at most 6e-4 of an output's largest weight times the largest `Σ |x|`
//! over channels that its window sees.
//!
//! Lavin and Gray 2016 (<https://arxiv.org/abs/1509.09308>); Barabasz et al. 2020 for the points
//! (<https://arxiv.org/abs/1803.10986>).

pub(super) mod evenness;

use crate::Cpu;
use crate::gemm::Matrix;
use crate::microkernel::Product;
use crate::scratch::{Array, with_scratch};
use crate::simd::{F32s, Level, Work, prefetch};
use crate::storage::{CpuStorage, Shared};
use crate::threads::{for_each_chunk, try_for_each_chunk};
use crate::transpose::turn;
use std::marker::PhantomData;
use std::ops::Range;
use teeny_core::{DType, Result};

/// The squares of the points other than 0 and ∞.
const A2: f32 = 25.0 / 64.0;
const B2: f32 = 9.0 / 4.0;
const A1: f32 = 5.0 / 8.0;
const B1: f32 = 3.0 / 2.0;

/// Places of a tile along an axis, and elements of the input under it.
const OUT: usize = 4;
const IN: usize = 6;
/// Points of a tile.
const POINTS: usize = IN * IN;
/// Elements of the window.
const TAPS: usize = 9;

/// Elements that a task's tiles may take at all points, in and out: what a second cache holds.
const TASK: usize = 160 << 10;
/// Blocks of bands that sum a window's gradient each for itself.
const BLOCKS: usize = 8;

/// Columns behind a band's last that may be read: two of the widest vectors.
const MARGIN: usize = 32;

/// The sizes of one convolution. Channels are those of one group.
#[derive(Clone, Copy)]
pub(super) struct Winograd {
    pub level: Level,
    /// Images and groups together, and how many of these are groups.
    pub images: usize,
    pub groups: usize,
    pub inputs: usize,
    pub outputs: usize,
    /// Height and width.
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub padding: [usize; 2],
}

/// The bits of memory that a task works in.
struct Room<'a> {
    /// A band of the input, channels last: (6, columns, inputs).
    band: &'a mut [f32],
    /// V: (tiles, 36, inputs).
    points: &'a mut [f32],
    /// M or dM: (tiles, 36, outputs).
    results: &'a mut [f32],
    /// A band of places, channels last: (4, places along it, outputs).
    places: &'a mut [f32],
}

/// An image, a plane for each channel.
struct Planes<'a> {
    data: &'a [f32],
    channels: usize,
    /// Height and width.
    size: [usize; 2],
}

impl Planes<'_> {
    /// `rows` rows of `columns` elements, channels last, from row `at` of the image with zeros
    /// around it. Sixteen planes at a time, so that each is read along its rows.
    fn channels_last(
        &self,
        level: Level,
        at: usize,
        padding: [usize; 2],
        [rows, columns]: [usize; 2],
        to: &mut [f32],
    ) {
        let ([height, width], channels) = (self.size, padded(self.channels));
        let (line, left) = (columns * channels, padding[1]);
        // Rows of the band that lie in the image.
        let above = padding[0].saturating_sub(at).min(rows);
        let first = (at + above).saturating_sub(padding[0]).min(height);
        let inside = (height - first).min(rows - above);
        to[..above * line].fill(0.0);
        to[(above + inside) * line..rows * line].fill(0.0);
        for row in to[above * line..].chunks_exact_mut(line).take(inside) {
            row[..left * channels].fill(0.0);
            row[(left + width) * channels..].fill(0.0);
        }
        for c in (0..self.channels).step_by(16) {
            for r in 0..inside {
                let from = self.data[(c * height + first + r) * width..].as_ptr();
                let to = to[(above + r) * line + left * channels + c..].as_mut_ptr();
                let size = (width, (self.channels - c).min(16));
                let ahead = self.channels.saturating_sub(c + 16).min(16);
                for next in c + 16..c + 16 + ahead {
                    let row = &self.data[(next * height + first + r) * width..][..width];
                    row.chunks(16).for_each(|line| prefetch(line.as_ptr()));
                }
                // SAFETY: row `first + r` of these planes, and as many columns of the band.
                unsafe {
                    turn(level, from, (height * width) as isize, to, channels as isize, size, false)
                };
            }
        }
    }
}

/// To whole vectors of the widest level.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(16)
}

impl Winograd {
    /// Whether this way is faster: enough channels for whole vectors, and points of the windows
    /// that stay in the third cache.
    pub(super) fn pays(level: Level, inputs: usize, outputs: usize) -> bool {
        Product::<f32>::suits(level)
            && inputs >= 12
            && outputs >= 12
            && inputs * outputs <= 128 << 10
    }

    /// The convolution that gives the gradient of the input, if it is one: padding beyond the
    /// window's reach cuts g.
    pub(super) fn backward(self) -> Option<Winograd> {
        let padding = [2usize.checked_sub(self.padding[0])?, 2usize.checked_sub(self.padding[1])?];
        Some(Winograd {
            inputs: self.outputs,
            outputs: self.inputs,
            input: self.output,
            output: self.input,
            padding,
            ..self
        })
    }

    /// Tiles along a band, and bands of an image.
    fn tiles(&self) -> [usize; 2] {
        [self.output[1].div_ceil(OUT), self.output[0].div_ceil(OUT)]
    }

    /// Bands of a task.
    fn bands(&self) -> usize {
        let band = POINTS * self.tiles()[0] * (padded(self.inputs) + padded(self.outputs));
        (TASK / band.max(1)).max(1)
    }

    /// Calls `f` with the memory for a task.
    fn with_room(&self, cpu: &Cpu, f: impl FnOnce(Room<'_>)) -> Result<()> {
        let ([along, _], bands) = (self.tiles(), self.bands());
        let (inputs, outputs) = (padded(self.inputs), padded(self.outputs));
        let sizes = [
            IN * (OUT * along + 2) * inputs,
            bands * along * POINTS * inputs,
            bands * along * POINTS * outputs,
            OUT * OUT * along * outputs,
        ];
        with_scratch(cpu, sizes, |[band, points, results, places]| {
            f(Room { band, points, results, places })
        })
    }

    /// The windows at all points, for each group: (36, from, to), rows of `to` padded. `taps` lays
    /// out a group's windows as (from, 9, padded to).
    fn windows(
        &self,
        cpu: &Cpu,
        [from, to]: [usize; 2],
        taps: impl Fn(usize, *mut f32) + Sync,
    ) -> Result<CpuStorage> {
        let to = padded(to);
        let laid = cpu.zeros(self.groups * from * TAPS * to, DType::F32)?;
        let out = cpu.alloc(self.groups * POINTS * from * to, DType::F32)?;
        let (laid, u) = (Shared(laid.ptr().cast::<f32>()), Shared(out.ptr().cast::<f32>()));
        for_each_chunk(self.groups, |group| {
            // SAFETY: both hold a part for each group.
            unsafe {
                let (laid, u) = (
                    laid.get().add(group * from * TAPS * to),
                    u.get().add(group * POINTS * from * to),
                );
                taps(group, laid);
                let windows =
                    Tiles { first: laid.cast_const(), next: TAPS * to, row: 3 * to, column: to };
                let points = Tiles { first: u, next: to, row: IN * from * to, column: from * to };
                Transform::<Window, _, _>::run(self.level, from, to, windows, points);
            }
        });
        Ok(out)
    }

    /// Which of the bands columns have to compute.
    fn uneven(&self, cpu: &Cpu, x: &[f32], bands: Range<usize>) -> Result<Array<bool>> {
        let ([along, per_image], [height, width]) = (self.tiles(), self.input);
        let columns = OUT * along + 2;
        let image = self.inputs * height * width;
        // Room for whole vectors behind the last column.
        let (row, mut found) = (columns + MARGIN, Array::filled(cpu, bands.len(), false)?);
        with_scratch(cpu, [evenness::ROWS * row], |[rows]: [&mut [f32]; 1]| {
            for (found, band) in found.iter_mut().zip(bands) {
                let x = &x[band / per_image * image..][..image];
                let top = band % per_image * OUT;
                let places = [OUT.min(self.output[0] - top), self.output[1]];
                let size = [height, width];
                let tiles =
                    evenness::Band { x, size, top, padding: self.padding, places, rows, row };
                *found = !self.level.run(tiles);
            }
        })?;
        Ok(found)
    }

    /// The convolution of x, (images, inputs, input), with `windows` (36, inputs, outputs) of each
    /// group. `direct` computes these places of this image and group in another way, where this one
    /// would not be accurate.
    pub(super) fn forward(
        &self,
        cpu: &Cpu,
        x: &[f32],
        windows: &CpuStorage,
        y: Shared<f32>,
        direct: impl Fn(usize, Range<usize>) -> Result<()> + Sync,
    ) -> Result<()> {
        let ([along, bands], each) = (self.tiles(), self.bands());
        let (inputs, outputs) = (padded(self.inputs), padded(self.outputs));
        let (from, to) = (
            self.inputs * self.input[0] * self.input[1],
            self.outputs * self.output[0] * self.output[1],
        );
        let windows = Shared(windows.ptr().cast::<f32>());
        // A task's bands lie in images of one group, whose windows it reads: without groups that is
        // any image.
        let per_image = if self.groups == 1 { self.images * bands } else { bands };
        let tasks = per_image.div_ceil(each);
        try_for_each_chunk(self.images * bands / per_image.max(1) * tasks, |task| {
            let first = task / tasks * per_image + task % tasks * each;
            let end = (first + each).min((task / tasks + 1) * per_image);
            let uneven = self.uneven(cpu, x, first..end)?;
            let even = || (first..end).filter(|band| !uneven[band - first]);
            let count = even().count();
            self.with_room(cpu, |room| {
                for (at, band) in even().enumerate() {
                    let points =
                        &mut room.points[at * along * POINTS * inputs..][..along * POINTS * inputs];
                    self.evaluate(
                        &x[band / bands * from..][..from],
                        band % bands,
                        room.band,
                        points,
                    );
                }
                let group = first / bands % self.groups;
                for point in 0..POINTS {
                    // SAFETY: the sizes are those of the parts of the room, and of this group's
                    // windows.
                    unsafe {
                        let a = Matrix {
                            ptr: room.points.as_ptr().add(point * inputs),
                            rows: (POINTS * inputs) as isize,
                            cols: 1,
                        };
                        let b = windows.get().add((group * POINTS + point) * self.inputs * outputs);
                        let c = room.results.as_mut_ptr().add(point * outputs);
                        let (mnk, c_step) = (
                            [count * along, self.outputs, self.inputs],
                            (POINTS * outputs) as isize,
                        );
                        Product {
                            mnk,
                            a,
                            b,
                            b_step: outputs as isize,
                            c,
                            c_step,
                            scales: [0.0, 1.0],
                        }
                        .run(self.level);
                    }
                }
                for (at, band) in even().enumerate() {
                    let results =
                        &room.results[at * along * POINTS * outputs..][..along * POINTS * outputs];
                    // SAFETY: a band of tiles and places; the planes of this image, of which this
                    // task alone writes this band.
                    unsafe {
                        let (tiles, places) = (
                            point_tiles(results.as_ptr(), outputs),
                            place_tiles(room.places.as_mut_ptr(), along, outputs),
                        );
                        Transform::<Interpolate, _, _>::run(
                            self.level, along, outputs, tiles, places,
                        );
                        self.put(room.places, band % bands, y.get().add(band / bands * to));
                    }
                }
            })?;
            for band in (first..end).filter(|band| uneven[band - first]) {
                let rows = band % bands * OUT..(band % bands * OUT + OUT).min(self.output[0]);
                direct(band / bands, rows.start * self.output[1]..rows.end * self.output[1])?;
            }
            Ok(())
        })
    }

    /// The gradient of the windows of all groups, (outputs, inputs, 9) each, from x and g (images,
    /// outputs, output).
    pub(super) fn window_gradient(
        &self,
        cpu: &Cpu,
        x: &[f32],
        g: &[f32],
        to: Shared<f32>,
    ) -> Result<()> {
        let ([along, bands], each) = (self.tiles(), self.bands());
        let (inputs, outputs) = (padded(self.inputs), padded(self.outputs));
        let (image, result) = (
            self.inputs * self.input[0] * self.input[1],
            self.outputs * self.output[0] * self.output[1],
        );
        let size = POINTS * self.inputs * outputs;
        // A block sums bands of one group, in order.
        let per_group = self.images / self.groups * bands;
        let blocks = per_group.div_ceil(each).min(BLOCKS);
        let per_block = per_group.div_ceil(blocks.max(1));
        let sums = cpu.alloc(self.groups * blocks * size, DType::F32)?;
        let at = Shared(sums.ptr().cast::<f32>());
        try_for_each_chunk(self.groups * blocks, |task| {
            let (group, block) = (task / blocks, task % blocks);
            // SAFETY: the sums of this block alone.
            let sums = unsafe { std::slice::from_raw_parts_mut(at.get().add(task * size), size) };
            self.with_room(cpu, |room| {
                let end = ((block + 1) * per_block).min(per_group);
                let mut first = block * per_block;
                if first >= end {
                    sums.fill(0.0);
                }
                while first < end {
                    let next = (first + each).min(end);
                    for (at, band) in (first..next).enumerate() {
                        let i = band / bands * self.groups + group;
                        let points = &mut room.points[at * along * POINTS * inputs..]
                            [..along * POINTS * inputs];
                        self.evaluate(&x[i * image..][..image], band % bands, room.band, points);
                        self.take(&g[i * result..][..result], band % bands, room.places);
                        let results = &mut room.results[at * along * POINTS * outputs..]
                            [..along * POINTS * outputs];
                        // SAFETY: a band of places and tiles.
                        unsafe {
                            let (places, tiles) = (
                                place_tiles(room.places.as_ptr(), along, outputs),
                                point_tiles(results.as_mut_ptr(), outputs),
                            );
                            Transform::<Spread, _, _>::run(
                                self.level, along, outputs, places, tiles,
                            );
                        }
                    }
                    for point in 0..POINTS {
                        // SAFETY: the sizes are those of the parts of the room and of the sums.
                        unsafe {
                            let a = Matrix {
                                ptr: room.points.as_ptr().add(point * inputs),
                                rows: 1,
                                cols: (POINTS * inputs) as isize,
                            };
                            let b = room.results.as_ptr().add(point * outputs);
                            let c = sums.as_mut_ptr().add(point * self.inputs * outputs);
                            let mnk = [self.inputs, self.outputs, (next - first) * along];
                            let scales = [if first > block * per_block { 1.0 } else { 0.0 }, 1.0];
                            Product {
                                mnk,
                                a,
                                b,
                                b_step: (POINTS * outputs) as isize,
                                c,
                                c_step: outputs as isize,
                                scales,
                            }
                            .run(self.level);
                        }
                    }
                    first = next;
                }
            })
        })?;
        try_for_each_chunk(self.groups, |group| {
            // SAFETY: the sums of this group, of which the first become the total, and its part of
            // the result.
            unsafe {
                let sums = std::slice::from_raw_parts_mut(
                    at.get().add(group * blocks * size),
                    blocks * size,
                );
                let (total, others) = sums.split_at_mut(size);
                for other in others.chunks_exact(size) {
                    total.iter_mut().zip(other).for_each(|(a, &b)| *a += b);
                }
                let taps = self.inputs * TAPS;
                with_scratch(cpu, [taps * outputs], |[laid]: [&mut [f32]; 1]| {
                    let points = Tiles {
                        first: total.as_ptr(),
                        next: outputs,
                        row: IN * self.inputs * outputs,
                        column: self.inputs * outputs,
                    };
                    let windows = Tiles {
                        first: laid.as_mut_ptr(),
                        next: TAPS * outputs,
                        row: 3 * outputs,
                        column: outputs,
                    };
                    Transform::<Collect, _, _>::run(
                        self.level,
                        self.inputs,
                        outputs,
                        points,
                        windows,
                    );
                    let to = to.get().add(group * self.outputs * taps);
                    turn(
                        self.level,
                        laid.as_ptr(),
                        outputs as isize,
                        to,
                        taps as isize,
                        (self.outputs, taps),
                        false,
                    );
                })
            }
        })
    }

    /// V of one band of an image.
    fn evaluate(&self, image: &[f32], band: usize, rows: &mut [f32], points: &mut [f32]) {
        let ([along, _], channels) = (self.tiles(), padded(self.inputs));
        let columns = OUT * along + 2;
        let from = Planes { data: image, channels: self.inputs, size: self.input };
        from.channels_last(self.level, band * OUT, self.padding, [IN, columns], rows);
        // SAFETY: a band of input and its tiles.
        unsafe {
            let input = Tiles {
                first: rows.as_ptr(),
                next: OUT * channels,
                row: columns * channels,
                column: channels,
            };
            Transform::<Evaluate, _, _>::run(
                self.level,
                along,
                channels,
                input,
                point_tiles(points.as_mut_ptr(), channels),
            );
        }
    }

    /// The places of a band of g, channels last, with zeros beyond.
    fn take(&self, g: &[f32], band: usize, places: &mut [f32]) {
        let from = Planes { data: g, channels: self.outputs, size: self.output };
        from.channels_last(self.level, band * OUT, [0, 0], [OUT, OUT * self.tiles()[0]], places);
    }

    /// Turns the places of a band, channels last, back into the planes at `y`.
    ///
    /// # Safety
    /// The band's rows of all planes are writable.
    unsafe fn put(&self, places: &[f32], band: usize, y: *mut f32) {
        let ([along, _], channels, [height, width]) =
            (self.tiles(), padded(self.outputs), self.output);
        for c in (0..self.outputs).step_by(16) {
            for r in 0..OUT.min(height - band * OUT) {
                // SAFETY: by contract; the places are those of the band.
                unsafe {
                    let from = places.as_ptr().add(r * OUT * along * channels + c);
                    let to = y.add((c * height + band * OUT + r) * width);
                    turn(
                        self.level,
                        from,
                        channels as isize,
                        to,
                        (height * width) as isize,
                        ((self.outputs - c).min(16), width),
                        false,
                    );
                }
            }
        }
    }

    /// A group's windows `w` (outputs, inputs, 9) as [`Winograd::windows`] wants them for the
    /// convolution itself.
    ///
    /// # Safety
    /// `to` has room for them.
    unsafe fn laid(&self, w: &[f32], to: *mut f32) {
        let taps = self.inputs * TAPS;
        // SAFETY: by contract; `w` holds a row of taps for each output.
        unsafe {
            turn(
                self.level,
                w.as_ptr(),
                taps as isize,
                to,
                padded(self.outputs) as isize,
                (taps, self.outputs),
                false,
            )
        };
    }

    /// The windows of the convolution, from w (groups · outputs, inputs, 3, 3).
    pub(super) fn weight(&self, cpu: &Cpu, w: &[f32]) -> Result<CpuStorage> {
        let group = self.outputs * self.inputs * TAPS;
        // SAFETY: `windows` gives room for a group.
        self.windows(cpu, [self.inputs, self.outputs], |g, to| unsafe {
            self.laid(&w[g * group..][..group], to)
        })
    }

    /// The windows of the convolution that gives the gradient of the input: turned by half a
    /// circle, from `inputs` (the outputs of w) to `outputs`.
    pub(super) fn weight_turned(&self, cpu: &Cpu, w: &[f32]) -> Result<CpuStorage> {
        let (group, to_step) = (self.outputs * self.inputs * TAPS, padded(self.outputs));
        self.windows(cpu, [self.inputs, self.outputs], |g, to| {
            for (i, w) in w[g * group..][..group].chunks_exact(TAPS).enumerate() {
                let (from, output) = (i / self.outputs, i % self.outputs);
                for (tap, &w) in w.iter().rev().enumerate() {
                    // SAFETY: `windows` gives room for (from, 9, to_step).
                    unsafe { *to.add((from * TAPS + tap) * to_step + output) = w };
                }
            }
        })
    }
}

/// The tiles of a band at all points: (tiles, 36, channels).
fn point_tiles<P>(first: P, channels: usize) -> Tiles<P> {
    Tiles { first, next: POINTS * channels, row: IN * channels, column: channels }
}

/// The tiles of a band of places: (4, 4 along, channels).
fn place_tiles<P>(first: P, along: usize, channels: usize) -> Tiles<P> {
    Tiles { first, next: OUT * channels, row: OUT * along * channels, column: channels }
}

/// A transform along one axis of a tile.
trait Along<const M: usize, const N: usize> {
    /// N values from M.
    fn along<V: F32s>(x: [V; M]) -> [V; N];
}

/// Bᵀ d: six elements of the input at the six points.
struct Evaluate;
impl Along<IN, IN> for Evaluate {
    #[inline(always)]
    fn along<V: F32s>(d: [V; IN]) -> [V; IN] {
        let (a2, b2, product, sum) =
            (V::splat(-A2), V::splat(-B2), V::splat(A2 * B2), V::splat(-(A2 + B2)));
        let (even_a, odd_a) = (d[2].fma(b2, d[4]), d[1].fma(b2, d[3]).mul(V::splat(A1)));
        let (even_b, odd_b) = (d[2].fma(a2, d[4]), d[1].fma(a2, d[3]).mul(V::splat(B1)));
        [
            d[0].fma(product, d[2].fma(sum, d[4])),
            even_a.add(odd_a),
            even_a.sub(odd_a),
            even_b.add(odd_b),
            even_b.sub(odd_b),
            d[1].fma(product, d[3].fma(sum, d[5])),
        ]
    }
}

/// Aᵀ m: four places from the values at the six points.
struct Interpolate;
impl Along<IN, OUT> for Interpolate {
    #[inline(always)]
    fn along<V: F32s>(m: [V; IN]) -> [V; OUT] {
        let (sum_a, difference_a) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (sum_b, difference_b) = (m[3].add(m[4]), m[3].sub(m[4]));
        [
            m[0].add(sum_a).add(sum_b),
            difference_a.mul(V::splat(A1)).add(difference_b.mul(V::splat(B1))),
            sum_a.mul(V::splat(A2)).add(sum_b.mul(V::splat(B2))),
            difference_b.fma(V::splat(B1 * B2), difference_a.fma(V::splat(A1 * A2), m[5])),
        ]
    }
}

/// A g: the transpose of [`Interpolate`].
struct Spread;
impl Along<OUT, IN> for Spread {
    #[inline(always)]
    fn along<V: F32s>(g: [V; OUT]) -> [V; IN] {
        let (even_a, odd_a) =
            (g[2].fma(V::splat(A2), g[0]), g[3].fma(V::splat(A2), g[1]).mul(V::splat(A1)));
        let (even_b, odd_b) =
            (g[2].fma(V::splat(B2), g[0]), g[3].fma(V::splat(B2), g[1]).mul(V::splat(B1)));
        [g[0], even_a.add(odd_a), even_a.sub(odd_a), even_b.add(odd_b), even_b.sub(odd_b), g[3]]
    }
}

/// What the values at the points are divided by: the products of the points' distances.
const AT_0: f32 = 1.0 / (A2 * B2);
const AT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const AT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));

/// G w: three taps at the six points.
struct Window;
impl Along<3, IN> for Window {
    #[inline(always)]
    fn along<V: F32s>(w: [V; 3]) -> [V; IN] {
        let (even_a, odd_a) =
            (w[2].fma(V::splat(A2), w[0]).mul(V::splat(AT_A)), w[1].mul(V::splat(A1 * AT_A)));
        let (even_b, odd_b) =
            (w[2].fma(V::splat(B2), w[0]).mul(V::splat(AT_B)), w[1].mul(V::splat(B1 * AT_B)));
        [
            w[0].mul(V::splat(AT_0)),
            even_a.add(odd_a),
            even_a.sub(odd_a),
            even_b.add(odd_b),
            even_b.sub(odd_b),
            w[2],
        ]
    }
}

/// Gᵀ u: the transpose of [`Window`].
struct Collect;
impl Along<IN, 3> for Collect {
    #[inline(always)]
    fn along<V: F32s>(u: [V; IN]) -> [V; 3] {
        let (sum_a, sum_b) =
            (u[1].add(u[2]).mul(V::splat(AT_A)), u[3].add(u[4]).mul(V::splat(AT_B)));
        let (difference_a, difference_b) =
            (u[1].sub(u[2]).mul(V::splat(AT_A * A1)), u[3].sub(u[4]).mul(V::splat(AT_B * B1)));
        [
            u[0].fma(V::splat(AT_0), sum_a.add(sum_b)),
            difference_a.add(difference_b),
            sum_b.fma(V::splat(B2), sum_a.fma(V::splat(A2), u[5])),
        ]
    }
}

/// Tiles or windows that lie in memory: the first, and the steps from one to the next, from row to
/// row and from column to column.
#[derive(Clone, Copy)]
struct Tiles<P> {
    first: P,
    next: usize,
    row: usize,
    column: usize,
}

/// A transform of `count` tiles with `channels` lanes, a multiple of 16: down the columns of each,
/// then along the rows of what that gives.
struct Transform<T, const M: usize, const N: usize> {
    along: PhantomData<T>,
    count: usize,
    channels: usize,
    from: Tiles<*const f32>,
    to: Tiles<*mut f32>,
}

impl<T: Along<M, N>, const M: usize, const N: usize> Transform<T, M, N> {
    /// # Safety
    /// All these tiles are readable and writable.
    unsafe fn run(
        level: Level,
        count: usize,
        channels: usize,
        from: Tiles<*const f32>,
        to: Tiles<*mut f32>,
    ) {
        level.run(Transform { along: PhantomData::<T>, count, channels, from, to });
    }
}

impl<T: Along<M, N>, const M: usize, const N: usize> Work for Transform<T, M, N> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Transform { count, channels, from, to, .. } = self;
        for tile in 0..count {
            for c in (0..channels).step_by(V::LANES) {
                // SAFETY: by contract of `run`.
                unsafe {
                    let (read, write) =
                        (from.first.add(tile * from.next + c), to.first.add(tile * to.next + c));
                    let mut columns = [[V::splat(0.0); N]; M];
                    for (x, column) in columns.iter_mut().enumerate() {
                        let mut values = [V::splat(0.0); M];
                        for (y, value) in values.iter_mut().enumerate() {
                            *value = V::load(read.add(y * from.row + x * from.column));
                        }
                        *column = T::along(values);
                    }
                    for y in 0..N {
                        let mut values = [V::splat(0.0); M];
                        for (x, column) in columns.iter().enumerate() {
                            values[x] = column[y];
                        }
                        for (x, value) in T::along(values).into_iter().enumerate() {
                            value.store(write.add(y * to.row + x * to.column));
                        }
                    }
                }
            }
        }
    }
}
