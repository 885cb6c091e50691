//! All results of a grid by vectors of neighbouring pixels.
//!
//! Where rows of results are short, vectors run through all lines of a phase: what they compute
//! between two rows is dropped.

use super::correlate::PixelRows;
use super::phase_split::{BandDistances, PhaseSplit};
use crate::Cpu;
use crate::conv::columns::ConvTask;
use crate::conv::copies::scatter_strided;
use crate::conv::grid::Grid;
use crate::conv::tasks::{self, run_tasks};
use crate::float::{Float, lanes};
use crate::scratch::with_scratch;
use crate::simd::{F32s, Work};
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

impl<T: Float> ConvTask<'_, T> {
    /// Whether the phase-split input of a plane takes a small multiple of the memory of operands.
    pub(in crate::conv) fn has_small_phase_split(&self) -> bool {
        let split = PhaseSplit::new(self.grid);
        let ([rows, width], _) = split.results();
        split.packed_len(rows) <= 8 * (split.plane() + rows * width) + 1024
    }

    /// Computes all results by vectors of pixels: of long lines part by part. Whether the epilogue,
    /// if there is one, has run.
    pub(in crate::conv) fn by_pixels(&self, cpu: &Cpu) -> Result<bool> {
        let split = PhaseSplit::new(self.grid);
        let ([height, width], _) = split.results();
        let line = self.in_channels * split.packed_len(1);
        let parts = if height == 1 { tasks::parts_of_line(width, line) } else { 1 };
        if parts == 1 {
            self.all_planes(cpu, &split)?;
            return Ok(true);
        }
        let grids: Vec<Grid> = (0..parts)
            .map(|i| {
                let part = tasks::part(width, parts, i);
                self.grid.columns(part.start, part.end)
            })
            .collect();
        try_for_each_chunk(parts, |i| {
            let part = ConvTask { grid: &grids[i], epilogue: None, ..*self };
            part.all_planes(cpu, &PhaseSplit::new(&grids[i]))
        })?;
        Ok(false)
    }

    fn all_planes(&self, cpu: &Cpu, split: &PhaseSplit) -> Result<()> {
        let ([height, width], outer) = split.results();
        let planes = self.images * self.groups * outer;
        let line = self.in_channels * split.taps()[0] * split.packed_len(1).min(4 * split.plane());
        let muls = self.out_channels * self.rows() * height * width;
        let (each, rows) = tasks::split_planes(planes, height, line, muls);
        let bands = height.div_ceil(rows);
        let distances = BandDistances::new(cpu, split, self, [height, rows])?;
        let parallel = tasks::is_parallel(muls * planes);
        run_tasks(planes.div_ceil(each) * bands, parallel, |task| {
            let (first, top) = (task / bands * each, task % bands * rows);
            let band = [top, rows.min(height - top)];
            self.planes(cpu, split, &distances, [first, (first + each).min(planes)], band)
        })
    }

    /// `rows` rows of some planes of results, starting at row `top`.
    fn planes(
        &self,
        cpu: &Cpu,
        split: &PhaseSplit,
        distances: &BandDistances,
        [first, end]: [usize; 2],
        [top, rows]: [usize; 2],
    ) -> Result<()> {
        let (grid, m, k) = (self.grid, self.out_channels, self.rows());
        let ([height, width], outer) = split.results();
        let (inputs, results) = (self.in_channels * grid.plane(), m * grid.size());
        let flat = split.is_flat(rows, lanes::<T>(cpu.level));
        // The sums are the results themselves, or rows that are copied to them.
        let in_result = !flat && grid.is_dense();
        let places = [grid.size(), grid.row_step()];
        let (line, step) = match flat {
            true => ((rows - 1) * split.row_stride + width, split.row_stride),
            false => (rows * width, width),
        };
        let sizes = [split.filled(self.in_channels, rows), if in_result { 0 } else { m * line }];
        with_scratch(cpu, sizes, |[packed, product]: [&mut [T]; 2]| {
            // Between lines, nothing is written either.
            if split.has_padding || flat {
                packed.fill(T::ZERO);
            }
            for item in first..end {
                let (plane, outer) = (item / outer, item % outer);
                let image = &self.x[plane * inputs..][..inputs];
                let to = self.y.get().wrapping_add(plane * results);
                let to = to.wrapping_add(grid.place((outer * height + top) * width));
                cpu.level.run(PixelRows {
                    x: split.read(cpu, image, outer, [top, rows], packed),
                    row_stride: split.row_stride,
                    distances: distances.of(rows),
                    weight: &self.weight[plane % self.groups * m * k..][..m * k],
                    m,
                    rows: if flat { 1 } else { rows },
                    n: if flat { line } else { width },
                    y: if in_result { to } else { product.as_mut_ptr() },
                    strides: if in_result { places } else { [line, step] },
                    prefetches: split.in_place,
                });
                if !in_result {
                    let (strides, every) = ([[line, step], places], grid.last().every);
                    cpu.level.run(Rows { product, size: [m, rows, width], strides, every, to });
                }
                let (image, group) = (plane / self.groups, plane % self.groups);
                let first = image * grid.pixels() + (outer * height + top) * width;
                // SAFETY: rows of all channels that this task has just computed.
                unsafe { self.finish_part(group, [first, first + rows * width])? };
            }
            Ok(())
        })?
    }
}

/// Copies rows of all channels from a product to the result.
struct Rows<'a, T> {
    product: &'a [T],
    /// Channels, rows, and elements of a row.
    size: [usize; 3],
    /// Channel stride and row stride of the product and of the result.
    strides: [[usize; 2]; 2],
    every: usize,
    to: *mut T,
}

impl<T: Float> Work for Rows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Rows { product, size: [m, rows, width], strides: [from, to], every, .. } = self;
        for c in 0..m {
            for row in 0..rows {
                let line = &product[c * from[0] + row * from[1]..][..width];
                let to = self.to.wrapping_add(c * to[0] + row * to[1]);
                // SAFETY: the row's results of this channel, which the task alone writes.
                unsafe { scatter_strided::<T, T::Vector<V>>(line, to, every) };
            }
        }
    }
}
