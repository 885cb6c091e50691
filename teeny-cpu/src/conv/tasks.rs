//! How a convolution is split into tasks, pure functions of sizes; tasks, and the sums that they
//! leave. No function reads the number of threads, so the bits of a result do not depend on it.

use crate::Cpu;
use crate::device::FloatMatmul;
use crate::float::Float;
use crate::matmul::has_microkernel;
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// Multiplications from which a second thread pays.
const MIN_PARALLEL_MULS: usize = 1 << 18;
/// Tasks that are enough for threads to end together.
const TASKS: usize = 16;
/// Most elements of a task's phase-split inputs: half of a second-level cache.
const MAX_CELLS: usize = 96 << 10;

/// Whether a second thread pays.
pub(super) fn is_parallel(muls: usize) -> bool {
    muls >= MIN_PARALLEL_MULS
}

/// Runs tasks `0 .. tasks` on all threads if that pays, or one after the other.
pub(super) fn run_tasks(
    tasks: usize,
    parallel: bool,
    task: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    if parallel { try_for_each_chunk(tasks, task) } else { (0..tasks).try_for_each(task) }
}

/// Adds the sums of all blocks, `n` each, to the first block, in order.
pub(super) fn joined<T: Float>(sums: &mut [T], n: usize) -> &[T] {
    let (first, others) = sums.split_at_mut(n);
    for other in others.chunks_exact(n) {
        first.iter_mut().zip(other).for_each(|(sum, &more)| *sum += more);
    }
    first
}

/// Columns of a panel: one register tile, or many for the `gemm` crate, which packs them again.
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
    // A task's fixed cost equals a few thousand multiplications.
    let least = (MIN_PARALLEL_MULS / 4).div_ceil(m * k * width);
    if panels >= wanted {
        let each = panels.div_ceil(4 * wanted).max(least).min(panels.div_ceil(wanted).max(least));
        return Split { rows: m, columns: each * width, parallel: true };
    }
    let parts = wanted.div_ceil(panels);
    let rows = m.div_ceil(parts).next_multiple_of(6).max(24).min(m);
    Split { rows, columns: width, parallel: true }
}

/// Rows of results whose phase-split input a second-level cache holds, of `line` elements for one
/// row.
pub(super) fn rows_in_cache(line: usize) -> usize {
    (MAX_CELLS / line.max(1)).max(1)
}

/// Planes of a task, and rows of a band: of `planes` planes of `height` rows, each of which has
/// `line` elements in the phases; a plane takes `muls` multiplications.
pub(super) fn split_planes(
    planes: usize,
    height: usize,
    line: usize,
    muls: usize,
) -> (usize, usize) {
    let mut rows = rows_in_cache(line).min(height);
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
/// phase-split inputs.
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

/// Elements of the packed input and results of a band: a quarter of a second-level cache.
const BAND: usize = 48 << 10;

/// Rows of results of a band, of `height`: each has `line` elements, and `more` are around them.
pub(super) fn band_rows(height: usize, line: usize, more: usize) -> usize {
    let rows = (BAND.saturating_sub(more) / line.max(1)).clamp(1, height.max(1));
    // Bands of equal heights, of at least four rows: the rows around them are read twice.
    height.div_ceil(height.div_ceil(rows.max(4).min(height.max(1)))).max(1)
}

/// Parts of a line of `width` results, for which all channels have `line` elements in the phases.
pub(super) fn parts_of_line(width: usize, line: usize) -> usize {
    line.div_ceil(MAX_CELLS).min(width / 256).max(1)
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
