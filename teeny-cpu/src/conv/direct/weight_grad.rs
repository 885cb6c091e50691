//! The gradient of the filters: `dw[o][c][t] = Σ_n Σ_p g[n][o][p] x[n][c][p + d[t]]`.
//!
//! The sums of nine taps of one or two channels stay in registers. A task adds up some images of
//! some groups, and the sums of tasks are joined in order. Where lanes are pixels and rows are
//! short, the gradients are copied to lines with the row stride of the phases: then what is between
//! rows is multiplied by zero, and if that gives no number everything is computed again row by row.

use super::channel_blocked::{Band, BandStep, BlockedLayout, Call};
use super::correlate::Table;
use super::phase_split::{BandDistances, PhaseSplit};
use super::weight_grad_tile::{Totals, WeightGradTile};
use crate::Cpu;
use crate::conv::columns::ConvTask;
use crate::conv::tasks::{self, joined, run_tasks};
use crate::float::{Float, lanes};
use crate::scratch::{Array, with_scratch};
use crate::storage::Shared;
use crate::transpose::transpose;
use std::ops::Range;
use teeny_core::Result;

/// Vectors that are added up in one chain.
const CHAIN: usize = 512;
/// Images whose sums are added up in one chain.
const IMAGES: usize = 64;

/// The gradient of the filters of `c`, whose result is `g` and whose weights are not read, to `to`:
/// (groups · out_channels, in_channels, taps of the grid). Lanes are pixels.
pub(in crate::conv) fn by_pixels<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    g: &[T],
    to: &mut [T],
) -> Result<()> {
    let split = &PhaseSplit::new(c.grid);
    let ([height, _], _) = split.results();
    let flat = split.is_flat(height, lanes::<T>(cpu.level));
    let sums = PixelSums { c, split, g, flat };
    sums.run(cpu, to)?;
    // An infinity between two rows is in the sums of taps that do not see it.
    if flat && to.iter().any(|&x| x * T::ZERO != T::ZERO) {
        PixelSums { flat: false, ..sums }.run(cpu, to)?;
    }
    Ok(())
}

/// The sums of a gradient of filters by vectors of pixels.
struct PixelSums<'a, T> {
    c: &'a ConvTask<'a, T>,
    split: &'a PhaseSplit<'a>,
    g: &'a [T],
    /// Whether vectors run through all lines of a phase.
    flat: bool,
}

impl<T: Float> PixelSums<'_, T> {
    fn run(&self, cpu: &Cpu, to: &mut [T]) -> Result<()> {
        let (c, n) = (self.c, self.c.out_channels * self.c.rows());
        let muls = n * c.images * c.grid.pixels();
        let (blocks, groups) = tasks::split_filters(c.images, c.groups, muls);
        let images = c.images.div_ceil(blocks);
        let blocks = c.images.div_ceil(images);
        let mut sums = Array::filled(cpu, c.groups * n * blocks, T::ZERO)?;
        let at = Shared(sums.as_mut_ptr());
        let along = c.groups.div_ceil(groups);
        run_tasks(along * blocks, tasks::is_parallel(c.groups * muls), |task| {
            let (block, first) = (task / along, task % along * groups);
            let groups = first..(first + groups).min(c.groups);
            let images = block * images..((block + 1) * images).min(c.images);
            let first = block * c.groups + first;
            // SAFETY: the sums of these groups and this block alone, of the array above.
            let sums = unsafe {
                std::slice::from_raw_parts_mut(at.get().add(first * n), groups.len() * n)
            };
            self.of_block(cpu, groups, images, sums)
        })?;
        to.copy_from_slice(joined(&mut sums, c.groups * n));
        Ok(())
    }

    /// The sums of some groups over some images.
    fn of_block(
        &self,
        cpu: &Cpu,
        groups: Range<usize>,
        images: Range<usize>,
        sums: &mut [T],
    ) -> Result<()> {
        let PixelSums { c, split, flat, .. } = *self;
        let ([height, width], outer) = split.results();
        let (m, n, lanes) = (c.out_channels, c.out_channels * c.rows(), lanes::<T>(cpu.level));
        // Rows that are added up at a time, and rows of a phase.
        let line = if flat { split.row_stride } else { width.next_multiple_of(lanes) };
        let virtuals = c.in_channels * split.taps()[0];
        let most = (CHAIN * lanes / line).min(tasks::rows_in_cache(virtuals * split.packed_len(1)));
        let most = most.clamp(1, height);
        let distances = BandDistances::new(cpu, split, c, [height, most])?;
        let line = (most - 1) * split.row_stride + width;
        let filled = split.filled(c.in_channels, most);
        let sizes = [filled, if flat { m * line } else { 0 }, n * lanes];
        with_scratch(cpu, sizes, |[packed, lines, vectors]: [&mut [T]; 3]| {
            lines.fill(T::ZERO);
            vectors.fill(T::ZERO);
            for (group, sums) in groups.zip(sums.chunks_exact_mut(n)) {
                for image in images.clone() {
                    let plane = image * c.groups + group;
                    let x = &c.x[plane * c.in_channels * c.grid.plane()..];
                    let x = &x[..c.in_channels * c.grid.plane()];
                    for (o, top) in
                        (0..outer).flat_map(|o| (0..height).step_by(most).map(move |top| (o, top)))
                    {
                        let rows = most.min(height - top);
                        let packed = &mut packed[..split.filled(c.in_channels, rows)];
                        if split.has_padding || flat {
                            packed.fill(T::ZERO);
                        }
                        let (g, g_strides) = self.gradients(plane, o, [top, rows], lines);
                        cpu.level.run(WeightGradTile {
                            g,
                            g_strides,
                            x: split.read(cpu, x, o, [top, rows], packed),
                            x_strides: [split.row_stride, lanes],
                            lanes_are_channels: false,
                            distances: distances.of(rows),
                            m,
                            rows: if flat { 1 } else { rows },
                            n: if flat { (rows - 1) * split.row_stride + width } else { width },
                            sums: vectors,
                        });
                    }
                    if (image + 1 - images.start).is_multiple_of(IMAGES) || image + 1 == images.end
                    {
                        cpu.level.run(Totals { vectors, sums });
                    }
                }
            }
        })
    }

    /// The gradients of all channels of a plane for `rows` rows of results at the outer place
    /// `outer`, and from a channel and a row to the next: if flat, copied to `lines`.
    fn gradients<'b>(
        &'b self,
        plane: usize,
        outer: usize,
        [top, rows]: [usize; 2],
        lines: &'b mut [T],
    ) -> (&'b [T], [usize; 2]) {
        let ([height, width], _) = self.split.results();
        let (m, channel) = (self.c.out_channels, self.c.grid.pixels());
        let from = (plane * m * channel) + (outer * height + top) * width;
        let g = &self.g[from..(plane + 1) * m * channel];
        if !self.flat {
            return (g, [channel, width]);
        }
        let line = (rows - 1) * self.split.row_stride + width;
        for (i, line) in lines[..m * line].chunks_exact_mut(line).enumerate() {
            let rows = g[i * channel..][..rows * width].chunks_exact(width);
            for (to, from) in line.chunks_mut(self.split.row_stride).zip(rows) {
                to[..width].copy_from_slice(from);
                to[width..].fill(T::ZERO);
            }
        }
        (lines, [line, 0])
    }
}

/// A band of results: its steps, and the rows that are packed before each.
type BandSteps = (Band, Array<BandStep>, Array<Call>);

/// The gradient of the filters of `c`, whose groups have one channel each, from the packed input of
/// its grid, to `to` (channels, taps). Lanes are channels.
pub(in crate::conv) fn by_channels<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    layout: &BlockedLayout,
    g: &[T],
    to: &mut [T],
) -> Result<()> {
    let ([_, size], [height, _], lanes) = (layout.planes(), layout.size, layout.lanes);
    let muls = c.images * c.groups * size * c.rows();
    let blocks = c.groups.div_ceil(lanes);
    let shares = tasks::split_bands(c.images, blocks, 1, 1, muls).images;
    let mut sums = Array::filled(cpu, shares * to.len(), T::ZERO)?;
    let (at, total, rows) = (Shared(sums.as_mut_ptr()), to.len(), layout.rows_of_band());
    let bands = (0..height).step_by(rows).map(|top| {
        let band = layout.band(top, (top + rows).min(height));
        let (steps, calls) = layout.steps(cpu, &band, layout.rows_of_step())?;
        Ok((band, steps, calls))
    });
    let bands = bands.collect::<Result<Vec<BandSteps>>>()?;
    let distances = layout.distances(cpu, &layout.parts[0])?;
    run_tasks(blocks * shares, tasks::is_parallel(muls), |task| {
        let (first, share) = (task / shares * lanes, task % shares);
        let images = tasks::part(c.images, shares, share);
        let to = Shared(at.get().wrapping_add(share * total + first * c.rows()));
        // SAFETY: the sums of these channels and images, which the task alone writes.
        unsafe { channel_sums(cpu, c, (layout, distances.table()), &bands, g, first, images, to) }
    })?;
    to.copy_from_slice(joined(&mut sums, total));
    Ok(())
}

/// The sums of the block of channels from `first` on over some images, to `to`.
///
/// # Safety
/// The sums of these channels are writable there, and no other task touches them.
#[expect(clippy::too_many_arguments)]
unsafe fn channel_sums<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    (layout, distances): (&BlockedLayout, Table<'_>),
    bands: &[BandSteps],
    g: &[T],
    first: usize,
    images: Range<usize>,
    to: Shared<T>,
) -> Result<()> {
    let ([plane, size], width, lanes) = (layout.planes(), layout.size[1], layout.lanes);
    let (part, taps, count) = (&layout.parts[0], c.rows(), lanes.min(c.groups - first));
    let n = bands.iter().map(|(band, ..)| layout.of_band(band)).max().unwrap_or(0);
    let step = layout.rows_of_step() * width * lanes;
    let sizes = [n, layout.temporary(), step, taps * lanes, taps * lanes];
    with_scratch(cpu, sizes, |[input, temporary, gs, all, sums]: [&mut [T]; 5]| {
        for part in [&mut *input, &mut *all, &mut *sums] {
            part.fill(T::ZERO);
        }
        for image in images.clone() {
            let plane_at = image * c.groups + first;
            let (x, g) = (&c.x[plane_at * plane..], &g[plane_at * size..]);
            for (band, steps, calls) in bands {
                if bands.len() > 1 {
                    // Rows of padding are elsewhere in each band.
                    input.fill(T::ZERO);
                }
                for (step, call) in steps.iter().zip(&**calls) {
                    layout.fill(cpu, band, step.fill, (x, count), temporary, input);
                    let (from, to) = (g[step.top * width..].as_ptr(), gs.as_mut_ptr());
                    let rows = step.bottom - step.top;
                    // SAFETY: these rows of these channels, which `g` has by its shape.
                    unsafe {
                        let (stride, size) = (size as isize, (rows * width, count));
                        transpose(cpu.level, from, stride, to, lanes as isize, size, false)
                    };
                    cpu.level.run(WeightGradTile {
                        g: gs,
                        g_strides: [0, width * lanes],
                        x: &input[call.x..],
                        x_strides: layout.x_strides(part),
                        lanes_are_channels: true,
                        distances,
                        m: 1,
                        rows,
                        n: width * lanes,
                        sums,
                    });
                }
            }
            if (image + 1 - images.start).is_multiple_of(IMAGES) || image + 1 == images.end {
                for (all, sum) in all.iter_mut().zip(&mut *sums) {
                    *all += *sum;
                    *sum = T::ZERO;
                }
            }
        }
        // SAFETY: by contract.
        unsafe {
            let (stride, size) = (taps as isize, (count, taps));
            transpose(cpu.level, all.as_ptr(), lanes as isize, to.get(), stride, size, false)
        };
    })
}
