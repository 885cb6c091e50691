//! All results of a depthwise convolution by vectors of channels.
//!
//! There is nothing to share between channels: the planes of as many channels as a vector has lanes
//! are transposed to vectors of channels, one for each pixel (`channel_blocked`), with zeros around
//! them. Neighbours are vectors then, and a weight is a vector too. Up to eight results are
//! computed at a time, for which a weight is loaded once.
//!
//! ```text
//!   planes of 16 channels ──transpose──► packed ──kernels──► results ──transpose──► planes
//! ```
//! A task goes down a band of rows of some channels, so that the data it has just transposed or
//! computed is in a first-level cache. The gradient of the input is the same for each residue of
//! the stride (`grid`), and all residues write to one band.

use super::channel_blocked::{BlockedLayout, vectors};
use super::correlate::{ChannelRows, Distances};
use crate::Cpu;
use crate::conv::columns::ConvTask;
use crate::conv::tasks::{self, Bands, run_tasks};
use crate::float::Float;
use crate::scratch::{Array, with_scratch};
use crate::transpose::transpose;
use std::ops::Range;
use teeny_core::Result;

/// The grids of a convolution whose groups have one channel each.
struct Channels<'a, T> {
    parts: &'a [ConvTask<'a, T>],
    layout: &'a BlockedLayout,
    /// For each part: its distances, and the distances of each row of results.
    tables: Vec<(Distances, Array<[usize; 2]>)>,
    /// Whether rows of padding are left out.
    skips: bool,
}

/// Computes all results of the grids of a convolution whose groups have one channel each, from the
/// packed input; results outside the grids are zero. `skips` leaves out rows of padding.
pub(in crate::conv) fn convolve<T: Float>(
    cpu: &Cpu,
    parts: &[ConvTask<'_, T>],
    layout: &BlockedLayout,
    skips: bool,
) -> Result<()> {
    let (images, channels) = (parts[0].images, parts[0].groups);
    let products = parts.iter().map(|p| p.grid.pixels() * p.rows()).sum::<usize>();
    let muls = images * channels * products;
    let blocks = channels.div_ceil(layout.lanes);
    let split = tasks::split_bands(images, blocks, layout.size[0], layout.rows_of_band(), muls);
    let tables = layout
        .parts
        .iter()
        .map(|part| Ok((layout.distances(cpu, part)?, layout.taps(cpu, part, skips)?)));
    let all = Channels { parts, layout, tables: tables.collect::<Result<_>>()?, skips };
    let Bands { blocks, images: shares, bands, rows } = split;
    run_tasks(blocks * shares * bands, tasks::is_parallel(muls), |task| {
        let (block, rest) = (task / (shares * bands), task % (shares * bands));
        let top = rest % bands * rows;
        let range = tasks::part(images, shares, rest / bands);
        all.band(cpu, block * layout.lanes, range, [top, (top + rows).min(layout.size[0])])
    })
}

impl<T: Float> Channels<'_, T> {
    /// Rows `top .. bottom` of results of the block of channels from `first` on, of some images.
    fn band(
        &self,
        cpu: &Cpu,
        first: usize,
        images: Range<usize>,
        [top, bottom]: [usize; 2],
    ) -> Result<()> {
        let (Channels { parts, layout, .. }, c) = (self, &self.parts[0]);
        let ([plane, size], width, lanes) = (layout.planes(), layout.size[1], layout.lanes);
        let (count, step) = (lanes.min(c.groups - first), layout.rows_of_step());
        let taps: usize = parts.iter().map(ConvTask::rows).sum();
        let whole = parts.iter().map(|part| part.grid.pixels()).sum::<usize>() == size;
        let band = layout.band(top, bottom);
        let (steps, calls) = layout.steps(cpu, &band, step)?;
        let sizes = [layout.of_band(&band), layout.temporary(), step * width * lanes, taps * lanes];
        with_scratch(cpu, sizes, |[input, temporary, results, weights]: [&mut [T]; 4]| {
            if !self.skips {
                input.fill(T::ZERO);
            }
            if !whole {
                results.fill(T::ZERO);
            }
            let mut rest = &mut *weights;
            for part in *parts {
                let taps = part.rows();
                let (to, others) = rest.split_at_mut(taps * lanes);
                vectors(cpu, &part.weight[first * taps..][..count * taps], taps, lanes, to);
                rest = others;
            }
            for image in images {
                let plane_at = image * c.groups + first;
                let x = (&c.x[plane_at * plane..], count);
                let y = c.y.get().wrapping_add(plane_at * size);
                for (step, calls) in steps.iter().zip(calls.chunks_exact(parts.len())) {
                    layout.fill(cpu, &band, step.fill, x, temporary, input);
                    let mut weights = weights.as_ptr();
                    let tables = self.tables.iter();
                    for ((call, part), (distances, taps)) in
                        calls.iter().zip(&layout.parts).zip(tables)
                    {
                        let distances = distances.table();
                        cpu.level.run(ChannelRows {
                            x: input[call.x..].as_ptr(),
                            distances,
                            weights,
                            taps: &taps[call.rows[0]..call.rows[1]],
                            width: part.x.output,
                            x_strides: layout.x_strides(part),
                            y: results[call.y..].as_mut_ptr(),
                            y_strides: layout.y_strides(part),
                        });
                        weights = weights.wrapping_add(distances.each.len() * lanes);
                    }
                    let (from, to) = (results.as_ptr(), y.wrapping_add(step.top * width));
                    let (stride, size) = (size as isize, (count, (step.bottom - step.top) * width));
                    // SAFETY: these rows of these channels, which the task alone writes.
                    unsafe { transpose(cpu.level, from, lanes as isize, to, stride, size, false) };
                }
            }
        })
    }
}
