//! The gradient of the filters: dM = A g Aᵀ, dU = Vᵀ dM at each point, dw = Gᵀ dU G.

use super::tiles::{Tiles, pixel_tiles, point_tiles};
use super::transforms::{Collect, Distribute, Transform};
use super::{IN, POINTS, TAPS, Winograd, Workspace, padded};
use crate::Cpu;
use crate::matmul::{Matrix, Product};
use crate::scratch::with_scratch;
use crate::storage::Shared;
use crate::threads::try_for_each_chunk;
use crate::transpose::transpose;
use std::ops::Range;
use teeny_core::{DType, Result};

/// Input channels whose sums a task collects.
const COLLECTED: usize = 8;

impl Winograd {
    /// The gradient of the filters of all groups, (out_channels, in_channels, 9) each, from x and g
    /// (images, out_channels, output).
    pub(in crate::conv) fn weight_grad(
        &self,
        cpu: &Cpu,
        x: &[f32],
        g: &[f32],
        to: Shared<f32>,
    ) -> Result<()> {
        let ([_, bands], each) = (self.tiles(), self.bands());
        let (image, result) = (
            self.in_channels * self.input[0] * self.input[1],
            self.out_channels * self.output[0] * self.output[1],
        );
        let size = POINTS * self.in_channels * padded(self.out_channels);
        // A block sums bands of one group, in order.
        let per_group = self.images / self.groups * bands;
        let blocks = self.blocks();
        let per_block = per_group.div_ceil(blocks.max(1));
        let sums = cpu.alloc(self.groups * blocks * size, DType::F32)?;
        let at = Shared(sums.ptr().cast::<f32>());
        try_for_each_chunk(self.groups * blocks, |task| {
            let (group, block) = (task / blocks, task % blocks);
            // SAFETY: the sums of this block alone.
            let sums = unsafe { std::slice::from_raw_parts_mut(at.get().add(task * size), size) };
            let range = block * per_block..((block + 1) * per_block).min(per_group);
            if range.is_empty() {
                sums.fill(0.0);
            }
            self.with_workspace(cpu, |mut workspace| {
                for first in range.clone().step_by(each) {
                    let next = (first + each).min(range.end);
                    for (at, band) in (first..next).enumerate() {
                        let i = band / bands * self.groups + group;
                        let (x, g) = (&x[i * image..][..image], &g[i * result..][..result]);
                        self.transform_band([x, g], band % bands, at, &mut workspace);
                    }
                    let beta = if first > range.start { 1.0 } else { 0.0 };
                    self.add_products(cpu, &workspace, next - first, beta, sums)?;
                }
                Ok(())
            })
        })?;
        let parts = self.in_channels.div_ceil(COLLECTED);
        try_for_each_chunk(self.groups * parts, |task| {
            let (group, part) = (task / parts, task % parts);
            let channels = part * COLLECTED..self.in_channels.min((part + 1) * COLLECTED);
            // SAFETY: the sums of these channels of the group, and their part of the result.
            unsafe {
                let sums = at.get().add(group * blocks * size);
                let to = to.get().add(group * self.out_channels * self.in_channels * TAPS);
                self.collect_filters(cpu, [size, blocks], channels, sums, to)
            }
        })
    }

    /// V and dM of a band of an image of x and one of g, as band `at` of the workspace.
    fn transform_band(
        &self,
        [x, g]: [&[f32]; 2],
        band: usize,
        at: usize,
        workspace: &mut Workspace<'_>,
    ) {
        let [tiles_across, _] = self.tiles();
        let (in_channels, out_channels) = (padded(self.in_channels), padded(self.out_channels));
        let part = |channels: usize| {
            let size = tiles_across * POINTS * channels;
            at * size..(at + 1) * size
        };
        self.evaluate(x, band, workspace.band, &mut workspace.points[part(in_channels)]);
        self.pixels_of(g, band, workspace.pixels);
        let results = &mut workspace.results[part(out_channels)];
        // SAFETY: a band of pixels and tiles.
        unsafe {
            let (pixels, tiles) = (
                pixel_tiles(workspace.pixels.as_ptr(), tiles_across, out_channels),
                point_tiles(results.as_mut_ptr(), out_channels),
            );
            Transform::<Distribute, _, _>::run(
                self.level,
                tiles_across,
                out_channels,
                pixels,
                tiles,
            );
        }
    }

    /// `sums = beta sums + Vᵀ dM` at each point, of the first `bands` bands of the workspace.
    fn add_products(
        &self,
        cpu: &Cpu,
        workspace: &Workspace<'_>,
        bands: usize,
        beta: f32,
        sums: &mut [f32],
    ) -> Result<()> {
        let [tiles_across, _] = self.tiles();
        let (in_channels, out_channels) = (padded(self.in_channels), padded(self.out_channels));
        for point in 0..POINTS {
            // SAFETY: the sizes match the parts of the workspace and the sums.
            unsafe {
                let a = Matrix {
                    ptr: workspace.points.as_ptr().add(point * in_channels),
                    row_stride: 1,
                    col_stride: (POINTS * in_channels) as isize,
                };
                Product {
                    mnk: [self.in_channels, self.out_channels, bands * tiles_across],
                    a,
                    b: workspace.results.as_ptr().add(point * out_channels),
                    b_row_stride: (POINTS * out_channels) as isize,
                    c: sums.as_mut_ptr().add(point * self.in_channels * out_channels),
                    c_row_stride: out_channels as isize,
                    beta,
                    alpha: 1.0,
                }
                .run_on(cpu)?;
            }
        }
        Ok(())
    }

    /// The gradient of a group's filters for some input channels, from the sums of its blocks, each
    /// of `size`, of which the first become the total.
    ///
    /// # Safety
    /// The sums of these channels are writable, and the group's filters at `to`, by this thread
    /// alone.
    unsafe fn collect_filters(
        &self,
        cpu: &Cpu,
        [size, blocks]: [usize; 2],
        channels: Range<usize>,
        sums: *mut f32,
        to: *mut f32,
    ) -> Result<()> {
        let out_channels = padded(self.out_channels);
        let (count, first) = (channels.len() * out_channels, channels.start * out_channels);
        let plane = self.in_channels * out_channels;
        for point in 0..POINTS {
            // SAFETY: by contract.
            unsafe {
                let at = sums.add(point * plane + first);
                let total = std::slice::from_raw_parts_mut(at, count);
                for block in 1..blocks {
                    let other = std::slice::from_raw_parts(at.add(block * size), count);
                    total.iter_mut().zip(other).for_each(|(a, &b)| *a += b);
                }
            }
        }
        let (rows, taps) = (channels.len() * TAPS, self.in_channels * TAPS);
        with_scratch(cpu, [rows * out_channels], |[gradients]: [&mut [f32]; 1]| {
            let filters = Tiles {
                first: gradients.as_mut_ptr(),
                next: TAPS * out_channels,
                row: 3 * out_channels,
                column: out_channels,
            };
            // SAFETY: tiles of the total and of the scratch memory, and filters by contract.
            unsafe {
                let points = Tiles {
                    first: sums.add(first).cast_const(),
                    next: out_channels,
                    row: IN * plane,
                    column: plane,
                };
                let count = channels.len();
                Transform::<Collect, _, _>::run(self.level, count, out_channels, points, filters);
                let (from, stride) = (gradients.as_ptr(), out_channels as isize);
                let (to, size) = (to.add(channels.start * TAPS), (self.out_channels, rows));
                transpose(self.level, from, stride, to, taps as isize, size, false);
            }
        })
    }
}
