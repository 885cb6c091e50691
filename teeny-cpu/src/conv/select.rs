//! Which algorithm computes a convolution: pure functions of sizes.
//!
//! ```text
//!   one channel per group, many groups ─────► Channels    lanes are channels (`direct`)
//!   one result per image, all of the input ─► Matmul      the input is the matrix of columns
//!   3 x 3 of stride 1, many channels ───────► Winograd    a quarter of the multiplications
//!   few output channels per group ──────────► Pixels      lanes are pixels (`direct`)
//!   otherwise ──────────────────────────────► Columns     a matrix product (`columns`)
//! ```
//! Costs are vectors loaded, multiplied or stored for each vector of results. `tasks` has how each is
//! split.

/// The algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// Direct, with channels as lanes.
    Channels,
    /// A product of matrices: each image has one result, whose window is the whole input.
    Matmul,
    /// Winograd's minimal filtering.
    Winograd,
    /// Direct, with pixels as lanes.
    Pixels,
    /// A product with columns.
    Columns,
}

/// The sizes that select the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub groups: usize,
    /// Channels per group.
    pub in_channels: usize,
    pub out_channels: usize,
    /// Taps of the grid.
    pub taps: usize,
    /// Elements of a plane of the input, and of a grid's results.
    pub plane: usize,
    pub pixels: usize,
    /// Elements of the last axis of results.
    pub width: usize,
    /// From the first to the last element that a result reads along the last axis, in steps.
    pub extent: usize,
    /// Whether the results of the grid are all results.
    pub is_whole: bool,
    /// Whether the columns of a result are in the order of the input.
    pub is_in_order: bool,
    /// Of filters that Winograd's filtering may be used for.
    pub tiles: Option<Tiles>,
}

impl Sizes {
    /// Whether the elements of an image are the columns of its only result.
    fn is_matmul(&self) -> bool {
        self.pixels == 1 && self.taps == self.plane && self.is_whole && self.is_in_order
    }
}

/// Elements of a vector of the widest level.
const LANES: usize = 16;
/// Output channels up to which `Pixels` may be faster: more of them read the input too often.
const MAX_CHANNELS: usize = 32;
/// Most vectors of sums of the filters' gradient: a quarter of a second-level cache.
const MAX_SUMS: usize = 8192;

/// Vectors loaded, tested and stored to copy a vector of columns: rows of results are copied one by
/// one.
fn copies(width: usize) -> usize {
    6 + 10 * LANES / width
}

/// Whether each group has one channel, and there are enough for the lanes of a vector.
pub(super) fn is_depthwise(channels: [usize; 2], groups: usize) -> bool {
    channels == [1, 1] && groups >= 8
}

/// The algorithm for a convolution, of those that `fits` says are possible: for want of memory or
/// accuracy some may not be. Columns always are.
pub(super) fn select(s: &Sizes, mut fits: impl FnMut(Algorithm) -> bool) -> Algorithm {
    if is_depthwise([s.in_channels, s.out_channels], s.groups) && fits(Algorithm::Channels) {
        return Algorithm::Channels;
    }
    if s.is_matmul() {
        return Algorithm::Matmul;
    }
    if s.tiles.is_some_and(|tiles| tiles.are_faster()) && fits(Algorithm::Winograd) {
        return Algorithm::Winograd;
    }
    let (m, k) = (s.out_channels, s.in_channels * s.taps);
    let pixels = k * m.max(2 * m.div_ceil(4)) * (s.width + s.extent) / s.width;
    let columns = k * (m + m / 16 + copies(s.width));
    let filled = (3 + 12 * LANES / s.width) * s.in_channels;
    let faster = m <= MAX_CHANNELS && pixels + filled + 2 * m <= columns + 3 * m;
    if faster && fits(Algorithm::Pixels) { Algorithm::Pixels } else { Algorithm::Columns }
}

/// The algorithm for the gradient of the filters, as [`select`].
pub(super) fn select_filter_grad(s: &Sizes, mut fits: impl FnMut(Algorithm) -> bool) -> Algorithm {
    if s.tiles.is_some_and(|tiles| tiles.are_faster_for_filters()) && fits(Algorithm::Winograd) {
        return Algorithm::Winograd;
    }
    if is_depthwise([s.in_channels, s.out_channels], s.groups) && fits(Algorithm::Channels) {
        return Algorithm::Channels;
    }
    if s.is_matmul() {
        return Algorithm::Matmul;
    }
    let (m, k) = (s.out_channels, s.in_channels * s.taps);
    // Four channels share an element of the input. Sums are loaded and stored for each image.
    let wide = match s.width < 4 * LANES {
        true => s.width + s.extent,
        false => s.width.next_multiple_of(LANES),
    };
    let filled = (3 + 12 * LANES / s.width) * s.in_channels;
    let per_image = (3 * m * k + 40 * s.in_channels) * LANES / s.pixels;
    let pixels = k * m.max(2 * m.div_ceil(4)) * wide * 9 / (8 * s.width) + filled + per_image;
    // A product has lanes of channels, for which gradients are transposed, and columns.
    let columns = k * (m.next_multiple_of(LANES) + m / 8 + copies(s.width)) + 8 * m;
    let faster = pixels <= columns && m * k <= MAX_SUMS;
    if faster && fits(Algorithm::Pixels) { Algorithm::Pixels } else { Algorithm::Columns }
}

/// The sizes that decide between Winograd's filtering and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Channels of a group.
    pub channels: [usize; 2],
    pub groups: usize,
    /// Results of all images and groups, and the tiles of 4 x 4 that they are in.
    pub results: usize,
    pub tiles: usize,
    /// Results of a row.
    pub width: usize,
    /// Sums of the filters' gradient at all points, for each filter.
    pub sums: usize,
}

impl Tiles {
    /// Multiplications of a product with columns, and of Winograd's filtering with its transforms.
    fn costs(&self) -> [usize; 2] {
        let [from, to] = self.channels.map(|n| n.next_multiple_of(16));
        let points = 36 * self.tiles * (from * to + 20 * (from + to));
        [9 * from * (to + copies(self.width)) * self.results, points]
    }

    /// Elements of the filters at all points.
    fn filters(&self) -> usize {
        let [from, to] = self.channels.map(|n| n.next_multiple_of(16));
        self.groups * 36 * from * to
    }

    fn has_enough_channels(&self) -> bool {
        self.channels.iter().all(|&n| n >= 12)
    }

    /// Whether Winograd's filtering is faster.
    fn are_faster(&self) -> bool {
        let [columns, points] = self.costs();
        // Measured: filters that a second-level cache holds in part, that a third-level cache holds
        // together with the rest, and others.
        let each = match self.filters() {
            0..=1_048_576 => 18,
            1_048_577..=3_145_728 => 48,
            _ => 160,
        };
        self.has_enough_channels() && points + each * self.filters() < columns
    }

    /// Whether it is faster for the gradient of the filters.
    fn are_faster_for_filters(&self) -> bool {
        let [columns, points] = self.costs();
        let each = match self.filters() {
            0..=1_048_576 => 12,
            1_048_577..=3_145_728 => 30,
            _ => 60,
        };
        self.has_enough_channels() && points + each * self.filters() * self.sums < columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A convolution of images of (n, n) with filters of (k, k), padded to the same size.
    fn same(in_channels: usize, out_channels: usize, k: usize, n: usize) -> Sizes {
        let (taps, plane) = (k * k, n * n);
        Sizes {
            in_channels,
            out_channels,
            taps,
            plane,
            pixels: plane,
            width: if k == 1 { plane } else { n },
            extent: k - 1,
            is_whole: true,
            is_in_order: true,
            groups: 1,
            tiles: None,
        }
    }

    /// `groups` groups of one channel.
    fn depthwise(groups: usize, k: usize, n: usize) -> Sizes {
        Sizes { groups, ..same(1, 1, k, n) }
    }

    /// Images of which Winograd's filtering may compute convolutions of 3 x 3.
    fn with_tiles([from, to]: [usize; 2], images: usize, side: usize) -> Sizes {
        let tile = usize::div_ceil(side, 4);
        let (results, tiles) = (images * side * side, images * tile * tile);
        let (channels, sums) = ([from, to], (images * 2).min(8));
        let tiles = Tiles { channels, groups: 1, results, tiles, width: side, sums };
        Sizes { tiles: Some(tiles), ..same(from, to, 3, side) }
    }

    #[test]
    fn every_algorithm_is_selected_on_its_side_of_each_boundary() {
        use Algorithm::*;
        let table = [
            // Images of one pixel, and windows as large as the image.
            (same(512, 64, 1, 1), Matmul),
            (Sizes { pixels: 1, width: 1, extent: 6, ..same(8, 512, 7, 7) }, Matmul),
            (Sizes { is_in_order: false, pixels: 1, width: 1, ..same(8, 512, 7, 7) }, Columns),
            // Depthwise, with at least eight channels.
            (depthwise(8, 3, 56), Channels),
            (depthwise(7, 3, 56), Pixels),
            (depthwise(8, 1, 1), Channels),
            (Sizes { out_channels: 2, ..depthwise(64, 3, 56) }, Pixels),
            // Few output channels.
            (same(64, 1, 3, 56), Pixels),
            (same(64, 32, 3, 56), Pixels),
            (same(64, 33, 3, 56), Columns),
            (same(32, 2, 1, 128), Pixels),
            (same(3, 64, 7, 112), Columns),
            // Lines of a phase are longer than short rows.
            (same(64, 32, 3, 4), Pixels),
            (same(64, 32, 7, 4), Columns),
        ];
        for (sizes, want) in table {
            assert_eq!(select(&sizes, |_| true), want, "{sizes:?}");
        }
    }

    #[test]
    fn gradients_of_few_filters_come_from_vectors_of_pixels() {
        use Algorithm::*;
        let table = [
            (same(512, 64, 1, 1), Matmul),
            (same(4, 4, 3, 56), Pixels),
            (same(8, 8, 3, 16), Pixels),
            (same(1, 32, 3, 28), Pixels),
            (same(64, 64, 3, 56), Columns),
            // Sums would be loaded and stored for each small image.
            (same(220, 3, 4, 2), Columns),
            (same(96, 96, 1, 14), Columns),
        ];
        for (sizes, want) in table {
            assert_eq!(select_filter_grad(&sizes, |_| true), want, "{sizes:?}");
        }
    }

    #[test]
    fn winograd_is_selected_where_its_filters_are_worth_it() {
        // Channels, images and their side; forward, and for the gradient of filters.
        for (channels, images, side, want) in [
            ([11, 64], 32, 56, [false, false]),
            ([16, 16], 1, 14, [true, true]),
            ([64, 64], 1, 28, [true, true]),
            ([128, 128], 1, 14, [true, true]),
            ([256, 256], 1, 14, [false, false]),
            ([256, 256], 32, 14, [true, true]),
            ([256, 512], 4, 7, [false, false]),
            ([512, 512], 16, 2, [false, false]),
        ] {
            let sizes = with_tiles(channels, images, side);
            let got = [select(&sizes, |_| true), select_filter_grad(&sizes, |_| true)];
            let got = got.map(|algorithm| algorithm == Algorithm::Winograd);
            assert_eq!(got, want, "{channels:?} {images} {side}");
        }
    }

    #[test]
    fn what_does_not_fit_leaves_the_choice_to_the_others() {
        use Algorithm::*;
        for (sizes, not, want) in [
            (depthwise(64, 3, 56), vec![Channels], Pixels),
            (depthwise(64, 3, 56), vec![Channels, Pixels], Columns),
            (depthwise(64, 1, 1), vec![Channels], Matmul),
            (with_tiles([64, 64], 1, 28), vec![Winograd], Columns),
            (with_tiles([64, 16], 1, 28), vec![Winograd], Pixels),
        ] {
            let got = select(&sizes, |algorithm| !not.contains(&algorithm));
            assert_eq!(got, want, "{sizes:?}");
        }
    }
}
