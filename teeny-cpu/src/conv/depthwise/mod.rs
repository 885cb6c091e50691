//! Depthwise convolution and its gradients: each channel has its own filter.
//!
//! The naive form is `y[c][p] = Σ_t w[c][t] x[c][p * step + shift[t]]`. There is nothing to share
//! between channels, so lanes are channels: the planes of as many channels as a vector has lanes
//! are transposed to cells (`cells`), one vector for each place, with zeros around them. Neighbours
//! are vectors then, whatever stride and dilation, short rows waste no lanes, and a weight is a
//! vector too. Up to eight results are computed at a time, for which a weight is loaded once.
//!
//! ```text
//!   planes of 16 channels ──transpose──► cells ──kernels──► results ──transpose──► planes
//! ```
//! A task goes down a band of rows of some channels, so that what it has just transposed or
//! computed is in a first-level cache. The gradient of the input is the same for each residue of
//! the stride (`grid`), and all residues write to one band.

mod cells;
mod kernels;

use super::columns::ConvTask;
use super::grid::Grid;
use super::select::{self, Bands};
use crate::Cpu;
use crate::float::{Float, lanes};
use crate::scratch::{Array, with_scratch};
use crate::storage::Shared;
use crate::threads::try_for_each_chunk;
use crate::transpose::transpose;
use cells::{Cells, vectors};
use kernels::{Correlate, Slopes};
use teeny_core::Result;

/// Images whose sums are added up in one chain.
const IMAGES: usize = 64;

/// Computes all results of the grids of a convolution whose groups have one channel each; results
/// of no grid are zero. `skips` leaves out rows of padding. False if cells cannot have these grids.
pub(super) fn convolve<T: Float>(
    cpu: &Cpu,
    parts: &[ConvTask<'_, T>],
    skips: bool,
) -> Result<bool> {
    let lanes = lanes::<T>(cpu.level);
    let grids: Vec<&Grid> = parts.iter().map(|part| part.grid).collect();
    let (Some(cells), Some(c)) = (Cells::new(&grids, lanes), parts.first()) else {
        return Ok(false);
    };
    let (channels, [plane, size], width) = (c.groups, cells.planes(), cells.size[1]);
    let products = parts.iter().map(|p| p.grid.pixels() * p.rows()).sum::<usize>();
    let muls = c.images * channels * products;
    let Bands { blocks, images, bands, rows } = select::split_bands(
        c.images,
        channels.div_ceil(lanes),
        cells.size[0],
        cells.rows_of_band(),
        muls,
    );
    let ranges = cells.parts.iter().map(|part| cells.taps(cpu, part, skips));
    let ranges = ranges.collect::<Result<Vec<_>>>()?;
    let taps: usize = parts.iter().map(ConvTask::rows).sum();
    let step = cells.rows_of_step();
    let whole = parts.iter().map(|part| part.grid.pixels()).sum::<usize>() == size;
    let task = |task: usize| {
        let (block, rest) = (task / (images * bands), task % (images * bands));
        let top = rest % bands * rows;
        let band = cells.band(top, (top + rows).min(cells.size[0]));
        let range = select::part(c.images, images, rest / bands);
        let first = block * lanes;
        let count = lanes.min(channels - first);
        let n = band.rows * cells.pitch * lanes;
        let sizes = [n, cells.temporary(), step * width * lanes, taps * lanes];
        let (steps, calls) = cells.steps(cpu, &band, step)?;
        with_scratch(cpu, sizes, |[input, temporary, results, weights]: [&mut [T]; 4]| {
            if !skips {
                input.fill(T::ZERO);
            }
            if !whole {
                results.fill(T::ZERO);
            }
            let mut rest = &mut *weights;
            for part in parts {
                let taps = part.rows();
                let (to, others) = rest.split_at_mut(taps * lanes);
                vectors(cpu, &part.weight[first * taps..][..count * taps], taps, lanes, to);
                rest = others;
            }
            for image in range {
                let plane_at = image * channels + first;
                let x = (&c.x[plane_at * plane..], count);
                let y = c.y.get().wrapping_add(plane_at * size);
                for (step, calls) in steps.iter().zip(calls.chunks_exact(parts.len())) {
                    cells.fill(cpu, &band, step.fill, x, temporary, input);
                    let mut weights = weights.as_ptr();
                    for (i, call) in calls.iter().enumerate() {
                        let part = &cells.parts[i];
                        if call.rows[0] < call.rows[1] {
                            cpu.level.run(Correlate {
                                x: input[call.x..].as_ptr(),
                                distances: &part.distances,
                                weights,
                                taps: &ranges[i][call.rows[0]..call.rows[1]],
                                width: part.x.output,
                                x_strides: cells.strides(part),
                                y: results[call.y..].as_mut_ptr(),
                                y_strides: [part.y.every * width * lanes, part.x.every * lanes],
                            });
                        }
                        weights = weights.wrapping_add(part.distances.len() * lanes);
                    }
                    let (from, to) = (results.as_ptr(), y.wrapping_add(step.top * width));
                    let (stride, size) = (size as isize, (count, (step.bottom - step.top) * width));
                    // SAFETY: these rows of these channels, which the task alone writes.
                    unsafe { transpose(cpu.level, from, lanes as isize, to, stride, size, false) };
                }
            }
        })
    };
    let tasks = blocks * images * bands;
    if select::is_parallel(muls) {
        try_for_each_chunk(tasks, task)?;
    } else {
        (0..tasks).try_for_each(task)?;
    }
    Ok(true)
}

/// The gradient of the filters of `c`, whose result is `g`, to `to` (channels, taps). False as
/// [`convolve`].
pub(super) fn weight_grad<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    g: &[T],
    to: &mut [T],
) -> Result<bool> {
    let lanes = lanes::<T>(cpu.level);
    let Some(cells) = Cells::new(&[c.grid], lanes) else { return Ok(false) };
    let (channels, [plane, size], [height, width]) = (c.groups, cells.planes(), cells.size);
    let (taps, part) = (c.rows(), &cells.parts[0]);
    let muls = c.images * channels * size * taps;
    let blocks = channels.div_ceil(lanes);
    let Bands { images, .. } = select::split_bands(c.images, blocks, 1, 1, muls);
    let mut sums = Array::filled(cpu, images * to.len(), T::ZERO)?;
    let (at, total) = (Shared(sums.as_mut_ptr()), to.len());
    let (rows, step) = (cells.rows_of_band(), cells.rows_of_step());
    let tall = (0..height).step_by(rows).map(|top| cells.band(top, (top + rows).min(height)).rows);
    let n = tall.max().unwrap_or(0) * cells.pitch * lanes;
    let task = |task: usize| {
        let (block, share) = (task / images, task % images);
        let (first, range) = (block * lanes, select::part(c.images, images, share));
        let count = lanes.min(channels - first);
        let sizes = [n, cells.temporary(), step * width * lanes, taps * lanes, taps * lanes];
        with_scratch(cpu, sizes, |[input, temporary, gs, all, part_sums]: [&mut [T]; 5]| {
            for part in [&mut *input, &mut *all, &mut *part_sums] {
                part.fill(T::ZERO);
            }
            for image in range.clone() {
                let plane_at = image * channels + first;
                let (x, g) = (&c.x[plane_at * plane..], &g[plane_at * size..]);
                for top in (0..height).step_by(rows) {
                    let band = cells.band(top, (top + rows).min(height));
                    if rows < height {
                        // Rows of padding are elsewhere in each band.
                        input.fill(T::ZERO);
                    }
                    let mut filled = band.first;
                    for top in (band.top..band.bottom).step_by(step) {
                        let bottom = (top + step).min(band.bottom);
                        let end = cells.band(top, bottom).end();
                        let rows = cells.clip(filled, end);
                        cells.fill(cpu, &band, rows, (x, count), temporary, input);
                        filled = filled.max(end);
                        let (from, to) = (g[top * width..].as_ptr(), gs.as_mut_ptr());
                        let (stride, size) = (size as isize, ((bottom - top) * width, count));
                        // SAFETY: these rows of these channels, which `g` has.
                        unsafe {
                            transpose(cpu.level, from, stride, to, lanes as isize, size, false)
                        };
                        cpu.level.run(Slopes {
                            g: gs.as_ptr(),
                            x: input[cells.first(part, &band, top)..].as_ptr(),
                            distances: &part.distances,
                            rows: bottom - top,
                            width,
                            x_strides: cells.strides(part),
                            sums: part_sums.as_mut_ptr(),
                        });
                    }
                }
                if (image + 1 - range.start).is_multiple_of(IMAGES) || image + 1 == range.end {
                    for (sum, part) in all.iter_mut().zip(&mut *part_sums) {
                        *sum += *part;
                        *part = T::ZERO;
                    }
                }
            }
            let to = at.get().wrapping_add(share * total + first * taps);
            let (from, stride) = (all.as_ptr(), taps as isize);
            // SAFETY: the sums of these channels and images, which the task alone writes.
            unsafe { transpose(cpu.level, from, lanes as isize, to, stride, (count, taps), false) };
        })
    };
    let tasks = blocks * images;
    if select::is_parallel(muls) {
        try_for_each_chunk(tasks, task)?;
    } else {
        (0..tasks).try_for_each(task)?;
    }
    to.copy_from_slice(&sums[..total]);
    for other in sums.chunks_exact(total).skip(1) {
        to.iter_mut().zip(other).for_each(|(a, &b)| *a += b);
    }
    Ok(true)
}
