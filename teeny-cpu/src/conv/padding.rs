//! Padding times non-finite factors: zero times an infinity or NaN is NaN.
//!
//! ```text
//!                                 padding meets   if all of that is finite      otherwise
//!   convolution                   filters         taps may be left out          all taps
//!   gradient of the filters       g               taps may be left out          all taps
//!   gradient of the input         nothing         is a convolution of g with    only products that
//!                                                 padding, which meets filters  a window pairs
//! ```

use super::Conv;
use super::columns::ConvTask;
use super::grid::Grid;
use crate::Cpu;
use crate::float::{Float, are_finite};
use crate::matmul::MAX_CHAIN;
use crate::scratch::with_scratch;
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// The grid of a convolution whose padding meets `factors`, and whether what sees only padding is
/// left out: taps, and rows of results if the algorithm `skips_rows`.
pub(super) fn grid<T: Float>(
    cpu: &Cpu,
    conv: &Conv<'_>,
    factors: &[T],
    skips_rows: bool,
) -> (Grid, bool) {
    let of = |skips| Grid::forward(conv.input, conv.kernel, conv.output, conv.window, skips);
    let grid = of(true);
    if !skips_rows && grid.has_all_taps() || are_finite(cpu.level, factors) {
        (grid, true)
    } else {
        (of(false), false)
    }
}

/// Whether the gradient of the input may be computed as a convolution, which multiplies padding by
/// `filters`.
pub(super) fn may_be_added<T: Float>(cpu: &Cpu, grids: &[Grid], filters: &[T]) -> bool {
    !grids.iter().any(Grid::has_padding) || are_finite(cpu.level, filters)
}

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
                // Chains are at most as long as in other products.
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
