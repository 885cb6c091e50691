//! The gradient of the filters: dM = A g Aᵀ, dU = Vᵀ dM at each point, dw = Gᵀ dU G.

use super::tiles::{Tiles, pixel_tiles, point_tiles};
use super::transforms::{Collect, Distribute, Transform};
use super::{IN, POINTS, TAPS, Winograd, padded};
use crate::Cpu;
use crate::matmul::{Matrix, Product};
use crate::scratch::with_scratch;
use crate::storage::Shared;
use crate::threads::try_for_each_chunk;
use crate::transpose::transpose;
use teeny_core::{DType, Result};

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
        let ([tiles_across, bands], each) = (self.tiles(), self.bands());
        let (in_channels, out_channels) = (padded(self.in_channels), padded(self.out_channels));
        let (image, result) = (
            self.in_channels * self.input[0] * self.input[1],
            self.out_channels * self.output[0] * self.output[1],
        );
        let size = POINTS * self.in_channels * out_channels;
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
            self.with_workspace(cpu, |workspace| {
                let end = ((block + 1) * per_block).min(per_group);
                let mut first = block * per_block;
                if first >= end {
                    sums.fill(0.0);
                }
                while first < end {
                    let next = (first + each).min(end);
                    for (at, band) in (first..next).enumerate() {
                        let i = band / bands * self.groups + group;
                        let points = &mut workspace.points
                            [at * tiles_across * POINTS * in_channels..]
                            [..tiles_across * POINTS * in_channels];
                        self.evaluate(
                            &x[i * image..][..image],
                            band % bands,
                            workspace.band,
                            points,
                        );
                        self.pixels_of(&g[i * result..][..result], band % bands, workspace.pixels);
                        let results = &mut workspace.results
                            [at * tiles_across * POINTS * out_channels..]
                            [..tiles_across * POINTS * out_channels];
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
                    for point in 0..POINTS {
                        // SAFETY: the sizes are those of the parts of the workspace and of the
                        // sums.
                        unsafe {
                            let a = Matrix {
                                ptr: workspace.points.as_ptr().add(point * in_channels),
                                row_stride: 1,
                                col_stride: (POINTS * in_channels) as isize,
                            };
                            let b = workspace.results.as_ptr().add(point * out_channels);
                            let c = sums.as_mut_ptr().add(point * self.in_channels * out_channels);
                            let mnk = [
                                self.in_channels,
                                self.out_channels,
                                (next - first) * tiles_across,
                            ];
                            Product {
                                mnk,
                                a,
                                b,
                                b_row_stride: (POINTS * out_channels) as isize,
                                c,
                                c_row_stride: out_channels as isize,
                                beta: if first > block * per_block { 1.0 } else { 0.0 },
                                alpha: 1.0,
                            }
                            .run_on(cpu)?;
                        }
                    }
                    first = next;
                }
                Ok(())
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
                let taps = self.in_channels * TAPS;
                with_scratch(cpu, [taps * out_channels], |[gradients]: [&mut [f32]; 1]| {
                    let points = Tiles {
                        first: total.as_ptr(),
                        next: out_channels,
                        row: IN * self.in_channels * out_channels,
                        column: self.in_channels * out_channels,
                    };
                    let filters = Tiles {
                        first: gradients.as_mut_ptr(),
                        next: TAPS * out_channels,
                        row: 3 * out_channels,
                        column: out_channels,
                    };
                    Transform::<Collect, _, _>::run(
                        self.level,
                        self.in_channels,
                        out_channels,
                        points,
                        filters,
                    );
                    let to = to.get().add(group * self.out_channels * taps);
                    transpose(
                        self.level,
                        gradients.as_ptr(),
                        out_channels as isize,
                        to,
                        taps as isize,
                        (self.out_channels, taps),
                        false,
                    );
                })
            }
        })
    }
}
