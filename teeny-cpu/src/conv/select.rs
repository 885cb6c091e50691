//! Which algorithm computes a convolution, and how it is split into tasks: pure functions of sizes.
//!
//! ```text
//!   one result per image, all of the input ─► Matmul      the input is the matrix of columns
//!   few output channels per group ──────────► Lattices    no columns (`direct`)
//!   otherwise ──────────────────────────────► Columns     a matrix product (`columns`)
//! ```
//! Costs are vectors loaded, multiplied or stored for each vector of results. No function reads the
//! number of threads, so the bits of a result do not depend on it.

use super::columns::Correlation;
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
    /// Whether the results of the grid are all results.
    pub is_dense: bool,
    /// Whether the columns of a result are in the order of the input.
    pub is_in_order: bool,
}

impl Sizes {
    pub(super) fn of<T>(c: &Correlation<'_, T>) -> Sizes {
        Sizes {
            in_channels: c.in_channels,
            out_channels: c.out_channels,
            taps: c.grid.taps.len(),
            plane: c.grid.plane(),
            pixels: c.grid.pixels(),
            width: c.grid.last().output,
            is_dense: c.grid.is_dense(),
            is_in_order: !c.taps_first || c.grid.taps.len() == 1,
        }
    }

    /// Whether the elements of an image are the columns of its only result.
    fn is_matmul(&self) -> bool {
        self.pixels == 1 && self.taps == self.plane && self.is_dense && self.is_in_order
    }
}

/// Multiplications from which a second thread pays.
const MIN_PARALLEL_MULS: usize = 1 << 18;
/// Tasks that are enough for threads to end together.
const TASKS: usize = 16;
/// Most elements of a task's lattices: half of a second-level cache.
const LATTICE: usize = 96 << 10;

/// Most vectors of sums of the filters' gradient: a quarter of a second-level cache.
const MAX_SUMS: usize = 4096;

/// Whether a second thread pays.
pub(super) fn is_parallel(muls: usize) -> bool {
    muls >= MIN_PARALLEL_MULS
}

/// The algorithm for the results of one grid.
pub(super) fn select(s: &Sizes) -> Algorithm {
    if s.is_matmul() {
        return Algorithm::Matmul;
    }
    let (m, k) = (s.out_channels, s.in_channels * s.taps);
    // Four channels share an element that is loaded from the lattice, and all of them one that is
    // copied to the columns, the shorter the rows the more slowly.
    let lattices = k * (m + 2 * m.div_ceil(4)) + 3 * s.in_channels + 2 * m;
    let columns = k * (m + 4 + 24 / s.width.max(1)) + 3 * m;
    if lattices <= columns { Algorithm::Lattices } else { Algorithm::Columns }
}

/// The algorithm for the gradient of the filters.
pub(super) fn select_filter_grad(s: &Sizes) -> Algorithm {
    if s.is_matmul() {
        return Algorithm::Matmul;
    }
    let (m, k) = (s.out_channels, s.in_channels * s.taps);
    // Four channels share an element of the lattice, and lanes are results of a row. A product has
    // lanes of channels, for which gradients are transposed, and columns.
    let lanes = s.width.next_multiple_of(16);
    let lattices = (k * (m + 2) + 3 * s.in_channels) * lanes / s.width;
    let columns = k * (m.next_multiple_of(16) + m / 8 + 5 + 24 / s.width) + 8 * m;
    if m <= 8 || lattices <= columns && m * k <= MAX_SUMS {
        Algorithm::Lattices
    } else {
        Algorithm::Columns
    }
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

/// Planes of a task, and rows of a band: of `planes` planes of `height` rows, each of which has
/// `line` elements in the lattice; a plane takes `muls` multiplications.
pub(super) fn split_planes(
    planes: usize,
    height: usize,
    line: usize,
    muls: usize,
) -> (usize, usize) {
    let mut rows = (LATTICE / line.max(1)).clamp(1, height);
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
}

impl Tiles {
    /// Multiplications of a product with columns, and of Winograd's filtering with its transforms.
    fn costs(&self) -> [usize; 2] {
        let [from, to] = self.channels.map(|n| n.next_multiple_of(16));
        let points = 36 * self.tiles * (from * to + 20 * (from + to));
        [9 * from * (to + 6) * self.results, points]
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
        self.has_enough_channels() && points + 24 * self.filters() < columns
    }

    /// Whether it is faster for the gradient of the filters, of which there are `sums` at all
    /// points.
    pub(super) fn are_faster_for_filters(&self, sums: usize) -> bool {
        let [columns, points] = self.costs();
        // Sums that no cache holds take three times as long.
        let all = self.filters() * sums;
        let each = if all <= 256 << 10 { 18 } else { 55 };
        self.has_enough_channels() && points + each * all < columns
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
