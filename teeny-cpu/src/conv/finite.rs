//! The gradient of a convolution's input from filters that are not finite: zero times an infinity
//! or NaN is NaN. Only filters that are finite may leave out taps that see nothing but padding, and
//! the gradient of the input may only be computed as a convolution, which multiplies padding, if
//! they are.

use super::columns::ConvTask;
use crate::Cpu;
use crate::float::Float;
use crate::matmul::MAX_CHAIN;
use crate::scratch::with_scratch;
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// The gradient of the input from filters that are not finite, of `c`, the convolution, whose input
/// is not read: each product of a filter's element and one of `g` that a window pairs, and no other.
/// Images are `c.y`, (images, groups · in_channels, input), all zero.
pub(super) fn input_grad<T: Float>(cpu: &Cpu, c: &ConvTask<'_, T>, g: &[T]) -> Result<()> {
    let (grid, taps, plane) = (c.grid, c.grid.taps.len(), c.grid.plane());
    let (pixels, step) = (grid.pixels(), grid.last().step);
    let panel = grid.panel(cpu, [0, pixels], [0, 0])?;
    let rows = panel.runs.len();
    try_for_each_chunk(c.images * c.groups, |i| {
        let weight = &c.weight[i % c.groups * c.out_channels * c.rows()..];
        with_scratch(cpu, [plane], |[part]: [&mut [T]; 1]| {
            for channel in 0..c.in_channels {
                let to = c.y.get().wrapping_add((i * c.in_channels + channel) * plane);
                // SAFETY: a plane of this image and group alone.
                let to = unsafe { std::slice::from_raw_parts_mut(to, plane) };
                // No chain is longer than those of other products.
                for first in (0..c.out_channels).step_by((MAX_CHAIN / taps).max(1)) {
                    let end = (first + (MAX_CHAIN / taps).max(1)).min(c.out_channels);
                    part.fill(T::ZERO);
                    for (o, tap) in (first..end).flat_map(|o| (0..taps).map(move |tap| (o, tap))) {
                        let w = weight[o * c.rows() + channel * taps + tap];
                        let g = &g[(i * c.out_channels + o) * pixels..][..pixels];
                        for span in &panel.spans[tap * rows..(tap + 1) * rows] {
                            for j in 0..span.inside {
                                part[span.from + j * step] += w * g[span.at + span.before + j];
                            }
                        }
                    }
                    to.iter_mut().zip(&*part).for_each(|(to, &part)| *to += part);
                }
            }
        })
    })
}
