//! Which algorithm computes a convolution, and how it is split into tasks: pure functions of sizes.
//!
//! ```text
//!   one result per image, all of the input ─► Matmul      the input is the matrix of columns
//!   few output channels per group ──────────► Lattices    no columns (`direct`)
//!   otherwise ──────────────────────────────► Columns     a matrix product (`columns`)
//! ```
//! Costs are vectors loaded, multiplied or stored for each vector of results. No function reads the
//! number of threads, so the bits of a result do not depend on it.

use crate::Cpu;
use crate::device::FloatMatmul;
use crate::float::Float;
use crate::matmul::has_microkernel;

/// The algorithms for one grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// A product of matrices: each image has one result, whose window is the whole input.
    Matmul,
    /// Lattices and tables of distances.
    Lattices,
    /// A product with columns.
    Columns,
}

/// What the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
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
}

impl Sizes {
    /// Whether the elements of an image are the columns of its only result.
    fn is_matmul(&self) -> bool {
        self.pixels == 1 && self.taps == self.plane && self.is_whole && self.is_in_order
    }
}

/// Multiplications from which a second thread pays.
const MIN_PARALLEL_MULS: usize = 1 << 18;
/// Tasks that are enough for threads to end together.
const TASKS: usize = 16;
/// Most elements of a task's lattices: half of a second-level cache.
const LATTICE: usize = 96 << 10;

/// Elements of a vector of the widest level.
const LANES: usize = 16;
/// Output channels up to which lattices may be faster: more of them read the lattice too often.
const MAX_CHANNELS: usize = 32;
/// Most vectors of sums of the filters' gradient: a quarter of a second-level cache.
const MAX_SUMS: usize = 8192;

/// Whether a second thread pays.
pub(super) fn is_parallel(muls: usize) -> bool {
    muls >= MIN_PARALLEL_MULS
}

/// Vectors loaded, tested and stored to copy a vector of columns: rows of results are copied one by
/// one.
fn copies(width: usize) -> usize {
    6 + 10 * LANES / width
}

/// The algorithm for the results of one grid.
pub(super) fn select(s: &Sizes) -> Algorithm {
    if s.is_matmul() {
        return Algorithm::Matmul;
    }
    let (m, k) = (s.out_channels, s.in_channels * s.taps);
    let lattices = k * m.max(2 * m.div_ceil(4)) * (s.width + s.extent) / s.width;
    let columns = k * (m + m / 16 + copies(s.width));
    let filled = (3 + 12 * LANES / s.width) * s.in_channels;
    if m <= MAX_CHANNELS && lattices + filled + 2 * m <= columns + 3 * m {
        Algorithm::Lattices
    } else {
        Algorithm::Columns
    }
}

/// The algorithm for the gradient of the filters.
pub(super) fn select_filter_grad(s: &Sizes) -> Algorithm {
    if s.is_matmul() {
        return Algorithm::Matmul;
    }
    let (m, k) = (s.out_channels, s.in_channels * s.taps);
    // Four channels share an element of the lattice. Sums are loaded and stored for each image.
    let wide = match s.width < 4 * LANES {
        true => s.width + s.extent,
        false => s.width.next_multiple_of(LANES),
    };
    let filled = (3 + 12 * LANES / s.width) * s.in_channels;
    let per_image = (3 * m * k + 40 * s.in_channels) * LANES / s.pixels;
    let lattices = k * m.max(2 * m.div_ceil(4)) * wide * 9 / (8 * s.width) + filled + per_image;
    // A product has lanes of channels, for which gradients are transposed, and columns.
    let columns = k * (m.next_multiple_of(LANES) + m / 8 + copies(s.width)) + 8 * m;
    if lattices <= columns && m * k <= MAX_SUMS { Algorithm::Lattices } else { Algorithm::Columns }
}

/// Columns of a panel: those of a register tile, or many for the `gemm` crate, which packs them
/// again.
pub(super) fn panel_width<T: Float>(cpu: &Cpu) -> usize {
    let own = has_microkernel(cpu.level) && cpu.float_matmul == FloatMatmul::Own;
    if own { 256 / size_of::<T>() } else { 256 }
}

/// Rows of a panel that are multiplied at a time, of `rows`: equal parts of at most 512.
pub(super) fn depth(rows: usize) -> usize {
    rows.div_ceil(rows.div_ceil(512).max(1))
}

/// The tasks of a product with columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Output channels and columns of a task.
    pub rows: usize,
    pub columns: usize,
    pub parallel: bool,
}

/// Splits the product of (m, k) and (k, n) for each group into tasks of whole panels. Where there
/// are too few panels, channels are split, and tasks share columns that are copied before.
pub(super) fn split_columns([m, n, k]: [usize; 3], groups: usize, width: usize) -> Split {
    let muls = m * n * k * groups;
    if !is_parallel(muls) {
        return Split { rows: m, columns: n, parallel: false };
    }
    let (panels, wanted) = (n.div_ceil(width), TASKS.div_ceil(groups));
    // A task's fixed cost is that of a few thousand multiplications.
    let least = (MIN_PARALLEL_MULS / 4).div_ceil(m * k * width);
    if panels >= wanted {
        let each = panels.div_ceil(4 * wanted).max(least).min(panels.div_ceil(wanted).max(least));
        return Split { rows: m, columns: each * width, parallel: true };
    }
    let parts = wanted.div_ceil(panels);
    let rows = m.div_ceil(parts).next_multiple_of(6).max(24).min(m);
    Split { rows, columns: width, parallel: true }
}

/// Rows of results whose lattice a second-level cache holds, of `line` elements for one row.
pub(super) fn lattice_rows(line: usize) -> usize {
    (LATTICE / line.max(1)).max(1)
}

/// Planes of a task, and rows of a band: of `planes` planes of `height` rows, each of which has
/// `line` elements in the lattice; a plane takes `muls` multiplications.
pub(super) fn split_planes(
    planes: usize,
    height: usize,
    line: usize,
    muls: usize,
) -> (usize, usize) {
    let mut rows = lattice_rows(line).min(height);
    let total = planes * muls;
    if is_parallel(total) && planes < TASKS {
        rows = rows.min(height.div_ceil(TASKS.div_ceil(planes)).max(4)).min(height);
    }
    // Bands of equal heights.
    rows = height.div_ceil(height.div_ceil(rows));
    if rows < height {
        return (1, rows);
    }
    let least = (MIN_PARALLEL_MULS / 8).div_ceil(muls.max(1));
    (planes.div_ceil(4 * TASKS).max(least).clamp(1, planes), rows)
}

/// Blocks of images with their own sums, and groups of a task, for the gradient of filters from
/// lattices.
pub(super) fn split_filters(images: usize, groups: usize, muls: usize) -> (usize, usize) {
    if !is_parallel(muls * groups) {
        return (1, groups);
    }
    let each = groups.div_ceil(2 * TASKS);
    (TASKS.div_ceil(groups.div_ceil(each)).min(images), each)
}

/// The tasks of the gradient of filters by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterSplit {
    /// Blocks of results that have their own sums, and results of each.
    pub blocks: usize,
    pub results: usize,
    /// Rows of columns of a task.
    pub rows: usize,
    pub parallel: bool,
}

/// Splits `Σ_n g (m, n) @ columnsᵀ (n, k)` for each group. Splitting n costs sums of the size of the
/// filters, `operands` elements are read anyway; splitting k costs little but needs many rows.
pub(super) fn split_filter_grad(
    [m, n, k]: [usize; 3],
    groups: usize,
    operands: usize,
) -> FilterSplit {
    if !is_parallel(m * n * k * groups) {
        return FilterSplit { blocks: 1, results: n, rows: k, parallel: false };
    }
    let wanted = TASKS.div_ceil(groups);
    let affordable = (operands / (m * k * groups).max(1)).clamp(1, wanted);
    let blocks = affordable.min(n.div_ceil(2 * REDUCED)).max(1);
    let results = n.div_ceil(blocks).next_multiple_of(REDUCED);
    let blocks = n.div_ceil(results);
    let parts = wanted.div_ceil(blocks).min(k.div_ceil(64));
    let rows = k.div_ceil(parts).next_multiple_of(16).min(k);
    FilterSplit { blocks, results, rows, parallel: true }
}

/// Results that are copied to columns at a time for the gradient of filters.
pub(super) const REDUCED: usize = 384;

/// The sizes that decide between Winograd's filtering and columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// Channels of a group.
    pub channels: [usize; 2],
    pub groups: usize,
    /// Results of all images and groups, and the tiles of 4 x 4 that they are in.
    pub results: usize,
    pub tiles: usize,
    /// Results of a row.
    pub width: usize,
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
    pub(super) fn are_faster(&self) -> bool {
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

    /// Whether it is faster for the gradient of the filters, of which there are `sums` at all
    /// points.
    pub(super) fn are_faster_for_filters(&self, sums: usize) -> bool {
        let [columns, points] = self.costs();
        let each = match self.filters() {
            0..=1_048_576 => 12,
            1_048_577..=3_145_728 => 30,
            _ => 60,
        };
        self.has_enough_channels() && points + each * self.filters() * sums < columns
    }
}

/// The tasks of a depthwise convolution: blocks of channels, parts of the images, and bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bands {
    pub blocks: usize,
    /// Parts of the images.
    pub images: usize,
    pub bands: usize,
    /// Rows of results of a band.
    pub rows: usize,
}

/// Elements of the cells and results of a band: a quarter of a second-level cache.
const BAND: usize = 48 << 10;

/// Rows of results of a band, of `height`: each has `line` elements, and `more` are around them.
pub(super) fn band_rows(height: usize, line: usize, more: usize) -> usize {
    let rows = (BAND.saturating_sub(more) / line.max(1)).clamp(1, height.max(1));
    // Bands of equal heights, of at least four rows: what is around them is read twice.
    height.div_ceil(height.div_ceil(rows.max(4).min(height.max(1)))).max(1)
}

/// Parts of a line of `width` results, for which all channels have `line` elements in the lattice.
pub(super) fn parts_of_line(width: usize, line: usize) -> usize {
    line.div_ceil(LATTICE).min(width / 256).max(1)
}

/// Splits `blocks` blocks of channels of some images. Images are split where there are too few
/// blocks of channels, and rows where there are too few images.
pub(super) fn split_bands(
    images: usize,
    blocks: usize,
    height: usize,
    rows: usize,
    muls: usize,
) -> Bands {
    let mut bands = height.div_ceil(rows);
    if !is_parallel(muls) {
        return Bands { blocks, images: 1, bands, rows };
    }
    let images = TASKS.div_ceil(blocks).min(images);
    let wanted = TASKS.div_ceil(blocks * images);
    bands = bands.max(wanted.min(height.div_ceil(4)));
    let rows = height.div_ceil(bands);
    Bands { blocks, images, bands: height.div_ceil(rows), rows }
}

/// Part `i` of `parts` of `n`.
pub(super) fn part(n: usize, parts: usize, i: usize) -> std::ops::Range<usize> {
    let each = n.div_ceil(parts);
    (i * each).min(n)..((i + 1) * each).min(n)
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
        }
    }

    #[test]
    fn every_algorithm_is_selected_on_its_side_of_each_boundary() {
        use Algorithm::*;
        let table = [
            // Images of one pixel, and windows as large as the image.
            (same(512, 64, 1, 1), Matmul),
            (Sizes { pixels: 1, width: 1, extent: 6, ..same(8, 512, 7, 7) }, Matmul),
            (Sizes { is_in_order: false, pixels: 1, width: 1, ..same(8, 512, 7, 7) }, Columns),
            // Few output channels.
            (same(64, 1, 3, 56), Lattices),
            (same(64, 32, 3, 56), Lattices),
            (same(64, 33, 3, 56), Columns),
            (same(32, 2, 1, 128), Lattices),
            (same(3, 64, 7, 112), Columns),
            // Lines of a lattice are longer than short rows.
            (same(64, 32, 3, 4), Lattices),
            (same(64, 32, 7, 4), Columns),
        ];
        for (sizes, want) in table {
            assert_eq!(select(&sizes), want, "{sizes:?}");
        }
    }

    #[test]
    fn gradients_of_few_filters_come_from_lattices() {
        use Algorithm::*;
        let table = [
            (same(512, 64, 1, 1), Matmul),
            (same(4, 4, 3, 56), Lattices),
            (same(8, 8, 3, 16), Lattices),
            (same(1, 32, 3, 28), Lattices),
            (same(64, 64, 3, 56), Columns),
            // Sums would be loaded and stored for each small image.
            (same(220, 3, 4, 2), Columns),
            (same(96, 96, 1, 14), Columns),
        ];
        for (sizes, want) in table {
            assert_eq!(select_filter_grad(&sizes), want, "{sizes:?}");
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
            let tile = usize::div_ceil(side, 4);
            let (results, tiles) = (images * side * side, images * tile * tile);
            let tiles = Tiles { channels, groups: 1, results, tiles, width: side };
            let got = [tiles.are_faster(), tiles.are_faster_for_filters((images * 2).min(8))];
            assert_eq!(got, want, "{channels:?} {images} {side}");
        }
    }

    #[test]
    fn tasks_are_enough_and_not_too_small() {
        // Output channels, results, rows, groups: channels and columns of a task.
        for (mnk, groups, want) in [
            ([16, 64, 16], 1, (16, 64, false)),
            ([64, 100_352, 576], 1, (64, 25 * 64, true)),
            ([512, 64, 4608], 1, (36, 64, true)),
            ([512, 512, 4608], 1, (258, 64, true)),
            ([24, 512, 4608], 1, (24, 64, true)),
            ([64, 6272, 576], 32, (64, 1600, true)),
        ] {
            let Split { rows, columns, parallel } = split_columns(mnk, groups, 64);
            assert_eq!((rows, columns, parallel), want, "{mnk:?} {groups}");
        }
        // Planes, rows, elements of a line, multiplications: planes and rows of a task.
        for (planes, height, line, muls, want) in [
            (1, 8, 100, 1000, (1, 8)),
            (1, 56, 64 * 58, 10_000_000, (1, 4)),
            (4096, 7, 11, 1225, (64, 7)),
            (32, 224, 3 * 226, 5_000_000, (1, 112)),
        ] {
            assert_eq!(split_planes(planes, height, line, muls), want, "{planes} {height} {line}");
        }
        // Images, blocks of channels, rows of results, rows of a band.
        for (images, blocks, height, rows, want) in [
            (1, 4, 56, 56, Bands { blocks: 4, images: 1, bands: 4, rows: 14 }),
            (32, 4, 56, 28, Bands { blocks: 4, images: 4, bands: 2, rows: 28 }),
            (8, 60, 7, 7, Bands { blocks: 60, images: 1, bands: 1, rows: 7 }),
        ] {
            assert_eq!(split_bands(images, blocks, height, rows, 1 << 20), want);
        }
        // Output channels, results and rows; groups; elements of operands.
        for (mnk, groups, operands, want) in [
            ([8, 100, 9], 1, 1000, [1, 100, 9]),
            ([64, 401_408, 147], 1, 30_000_000, [16, 25344, 147]),
            ([512, 512, 4608], 1, 500_000, [1, 768, 288]),
        ] {
            let FilterSplit { blocks, results, rows, .. } =
                split_filter_grad(mnk, groups, operands);
            assert_eq!([blocks, results, rows], want, "{mnk:?}");
        }
    }

    #[test]
    fn parts_cover_all_images_once() {
        for n in 1..20 {
            for parts in 1..=n {
                let all: Vec<usize> = (0..parts).flat_map(|i| part(n, parts, i)).collect();
                assert_eq!(all, (0..n).collect::<Vec<_>>());
            }
        }
    }
}
