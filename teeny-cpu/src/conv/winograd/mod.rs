//! Convolution with 3 x 3 filters and stride 1 by Winograd's minimal filtering: 36 multiplications
//! for 16 pixels instead of 144.
//!
//! The naive form is `y[i][j] = Σ_c Σ_rs x[c][i + r][j + s] w[c][r][s]`. Four by four pixels need a
//! tile of 6 x 6 of the input. Tile, filter and result are polynomials in two variables; they are
//! evaluated at the points 0, ±5/8, ±3/2, ∞ of each axis, multiplied there, and the result is
//! interpolated:
//!
//! ```text
//!   V = Bᵀ d B      U = G w Gᵀ      M[ξ] = V[ξ] (tiles, C) @ U[ξ] (C, O)      y = Aᵀ M A
//!                                   for each of 36 points ξ
//!   the filters' gradient, by the chain rule:
//!   dM = A g Aᵀ     dU[ξ] = V[ξ]ᵀ @ dM[ξ]     dw = Gᵀ dU G
//! ```
//! The steps from there:
//!
//! 1. The input gradient is itself such a convolution, of g with filters rotated by 180 degrees.
//! 2. The points are exact in binary and keep the error at 1e-5 of a result's size, a seventh of
//!    the error with the usual 0, ±1, ±2.
//! 3. Lanes are channels, so no transform shuffles: bands of four rows of pixels are transposed to
//!    channels last on the way in (`layout`) and back on the way out.
//! 4. A task's tiles at all points stay in a second-level cache.
//!
//! The interpolation of a tile mixes all of its elements: rounding errors are relative to the
//! largest of them, not of a window, and one infinity spoils all 16 pixels. So each band of tiles
//! is tested first (`dynamic_range`): where a window sees no element of nearly its tile's size, the
//! band is computed by the columns of `conv`. The choice depends on the values alone, not on
//! threads. Errors are then at most 6e-4 of an output's largest weight times the largest `Σ |x|`
//! over channels that its window sees.
//!
//! Lavin and Gray 2016 (<https://arxiv.org/abs/1509.09308>); Barabasz et al. 2020 for the points
//! (<https://arxiv.org/abs/1803.10986>).

pub(super) mod dynamic_range;
mod filters;
mod forward;
mod layout;
mod tiles;
mod transforms;
mod weight_grad;

use crate::Cpu;
use crate::scratch::with_scratch;
use crate::simd::Level;
use teeny_core::Result;

/// Pixels of a tile along an axis, and elements of the input under it.
const OUT: usize = 4;
const IN: usize = 6;
/// Points of a tile.
const POINTS: usize = IN * IN;
/// Elements of a filter.
const TAPS: usize = 9;

/// The most elements of a task's tiles at all points, in and out: they stay in a second-level
/// cache.
const TASK_ELEMENTS: usize = 160 << 10;
/// Blocks of bands that have their own sums of the filters' gradient.
const BLOCKS: usize = 16;

/// Columns after a band's last one that may be read: two of the widest vectors.
const MARGIN: usize = 32;

/// The sizes of one convolution. Channels count one group.
#[derive(Clone, Copy)]
pub(super) struct Winograd {
    pub level: Level,
    /// Images and groups together, and how many of these are groups.
    pub images: usize,
    pub groups: usize,
    pub in_channels: usize,
    pub out_channels: usize,
    /// Height and width.
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub padding: [usize; 2],
}

/// The scratch memory of a task.
struct Workspace<'a> {
    /// A band of the input, channels last: (6, columns, in_channels).
    band: &'a mut [f32],
    /// V: (tiles, 36, in_channels).
    points: &'a mut [f32],
    /// M or dM: (tiles, 36, out_channels).
    results: &'a mut [f32],
    /// A band of pixels, channels last: (4, pixels along it, out_channels).
    pixels: &'a mut [f32],
}

/// The number of channels in whole vectors of the widest level.
fn padded(channels: usize) -> usize {
    channels.next_multiple_of(16)
}

impl Winograd {
    /// The convolution of g that is the gradient of the input, if it is one: not for padding of
    /// more than two rows or columns, whose windows are not part of the gradient.
    pub(super) fn backward(self) -> Option<Winograd> {
        let padding = [2usize.checked_sub(self.padding[0])?, 2usize.checked_sub(self.padding[1])?];
        Some(Winograd {
            in_channels: self.out_channels,
            out_channels: self.in_channels,
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

    /// Blocks of bands that have their own sums of the filters' gradient.
    pub(super) fn blocks(&self) -> usize {
        (self.images / self.groups * self.tiles()[1]).div_ceil(self.bands()).min(BLOCKS)
    }

    /// Bands of a task.
    fn bands(&self) -> usize {
        let band =
            POINTS * self.tiles()[0] * (padded(self.in_channels) + padded(self.out_channels));
        (TASK_ELEMENTS / band.max(1)).max(1)
    }

    /// Calls `f` with the memory of a task.
    fn with_workspace(&self, cpu: &Cpu, f: impl FnOnce(Workspace<'_>) -> Result<()>) -> Result<()> {
        let ([tiles_across, _], bands) = (self.tiles(), self.bands());
        let (in_channels, out_channels) = (padded(self.in_channels), padded(self.out_channels));
        let sizes = [
            IN * (OUT * tiles_across + 2) * in_channels,
            bands * tiles_across * POINTS * in_channels,
            bands * tiles_across * POINTS * out_channels,
            OUT * OUT * tiles_across * out_channels,
        ];
        with_scratch(cpu, sizes, |[band, points, results, pixels]| {
            f(Workspace { band, points, results, pixels })
        })?
    }
}
