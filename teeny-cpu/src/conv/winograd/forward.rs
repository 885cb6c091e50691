//! The convolution: V of some bands, 36 products, and the interpolation of their tiles.

use super::tiles::{pixel_tiles, point_tiles};
use super::transforms::{Interpolate, Transform};
use super::{MARGIN, OUT, POINTS, Winograd, dynamic_range, padded};
use crate::Cpu;
use crate::elementwise::Epilogue;
use crate::matmul::{Matrix, Product};
use crate::scratch::{Array, with_scratch};
use crate::storage::{CpuStorage, Shared};
use crate::threads::try_for_each_chunk;
use std::ops::Range;
use teeny_core::Result;

impl Winograd {
    /// The bands for which this algorithm would not be accurate.
    fn uneven(&self, cpu: &Cpu, x: &[f32], bands: Range<usize>) -> Result<Array<bool>> {
        let ([tiles_across, per_image], [height, width]) = (self.tiles(), self.input);
        let columns = OUT * tiles_across + 2;
        let image = self.in_channels * height * width;
        // Whole vectors are read after the last column.
        let (row, mut found) = (columns + MARGIN, Array::filled(cpu, bands.len(), false)?);
        with_scratch(cpu, [dynamic_range::ROWS * row], |[rows]: [&mut [f32]; 1]| {
            for (found, band) in found.iter_mut().zip(bands) {
                let x = &x[band / per_image * image..][..image];
                let top = band % per_image * OUT;
                let pixels = [OUT.min(self.output[0] - top), self.output[1]];
                let size = [height, width];
                let tiles =
                    dynamic_range::Band { x, size, top, padding: self.padding, pixels, rows, row };
                *found = !self.level.run(tiles);
            }
        })?;
        Ok(found)
    }

    /// The convolution of x (images, in_channels, input) with `filters` (36, in_channels,
    /// out_channels) of each group. `direct` computes the pixels of an image and group for which
    /// this algorithm would not be accurate. The kernel of an epilogue runs over the bands of a task.
    pub(in crate::conv) fn forward(
        &self,
        cpu: &Cpu,
        x: &[f32],
        filters: &CpuStorage,
        y: Shared<f32>,
        epilogue: Option<&Epilogue<'_>>,
        direct: impl Fn(usize, Range<usize>) -> Result<()> + Sync,
    ) -> Result<()> {
        let ([tiles_across, bands], each) = (self.tiles(), self.bands());
        let (in_channels, out_channels) = (padded(self.in_channels), padded(self.out_channels));
        let (from, to) = (
            self.in_channels * self.input[0] * self.input[1],
            self.out_channels * self.output[0] * self.output[1],
        );
        let filters = Shared(filters.ptr().cast::<f32>());
        // A task's bands are in images of one group, whose filters it reads: without groups that is
        // any image.
        let per_image = if self.groups == 1 { self.images * bands } else { bands };
        let tasks = per_image.div_ceil(each);
        try_for_each_chunk(self.images * bands / per_image.max(1) * tasks, |task| {
            let first = task / tasks * per_image + task % tasks * each;
            let end = (first + each).min((task / tasks + 1) * per_image);
            let uneven = self.uneven(cpu, x, first..end)?;
            let even = || (first..end).filter(|band| !uneven[band - first]);
            let count = even().count();
            self.with_workspace(cpu, |workspace| {
                for (at, band) in even().enumerate() {
                    let points = &mut workspace.points[at * tiles_across * POINTS * in_channels..]
                        [..tiles_across * POINTS * in_channels];
                    self.evaluate(
                        &x[band / bands * from..][..from],
                        band % bands,
                        workspace.band,
                        points,
                    );
                }
                let group = first / bands % self.groups;
                for point in 0..POINTS {
                    // SAFETY: the sizes match the parts of the workspace and this group's filters.
                    unsafe {
                        let a = Matrix {
                            ptr: workspace.points.as_ptr().add(point * in_channels),
                            row_stride: (POINTS * in_channels) as isize,
                            col_stride: 1,
                        };
                        let b = filters
                            .get()
                            .add((group * POINTS + point) * self.in_channels * out_channels);
                        let c = workspace.results.as_mut_ptr().add(point * out_channels);
                        let (mnk, c_row_stride) = (
                            [count * tiles_across, self.out_channels, self.in_channels],
                            (POINTS * out_channels) as isize,
                        );
                        Product {
                            mnk,
                            a,
                            b,
                            b_row_stride: out_channels as isize,
                            c,
                            c_row_stride,
                            beta: 0.0,
                            alpha: 1.0,
                        }
                        .run_on(cpu)?;
                    }
                }
                for (at, band) in even().enumerate() {
                    let results = &workspace.results[at * tiles_across * POINTS * out_channels..]
                        [..tiles_across * POINTS * out_channels];
                    // SAFETY: a band of tiles and pixels; the planes of this image, of which this
                    // task alone writes this band.
                    unsafe {
                        let (tiles, pixels) = (
                            point_tiles(results.as_ptr(), out_channels),
                            pixel_tiles(workspace.pixels.as_mut_ptr(), tiles_across, out_channels),
                        );
                        Transform::<Interpolate, _, _>::run(
                            self.level,
                            tiles_across,
                            out_channels,
                            tiles,
                            pixels,
                        );
                        self.store_pixels(
                            workspace.pixels,
                            band % bands,
                            y.get().add(band / bands * to),
                        );
                    }
                }
                Ok(())
            })?;
            for band in (first..end).filter(|band| uneven[band - first]) {
                let rows = band % bands * OUT..(band % bands * OUT + OUT).min(self.output[0]);
                direct(band / bands, rows.start * self.output[1]..rows.end * self.output[1])?;
            }
            let Some(epilogue) = epilogue else { return Ok(()) };
            let mut band = first;
            while band < end {
                // The task's bands of one image follow one another.
                let (plane, top) = (band / bands * self.out_channels, band % bands);
                let count = (bands - top).min(end - band);
                let rows = top * OUT..((top + count) * OUT).min(self.output[0]);
                let pixels = rows.start * self.output[1]..rows.end * self.output[1];
                // SAFETY: bands that this task has just computed.
                unsafe { epilogue.run(plane..plane + self.out_channels, pixels)? };
                band += count;
            }
            Ok(())
        })
    }
}
