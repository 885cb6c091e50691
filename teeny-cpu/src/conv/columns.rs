//! Convolution as a matrix product with columns (im2col), a panel of results at a time.
//!
//! The naive form has loops over output channels, results, input channels and taps. With the
//! elements that some results read copied to the columns of a matrix, it is a product:
//!
//! ```text
//!   y (out_channels, results) = weight (out_channels, rows) @ columns (rows, results)
//!   rows = in_channels * taps
//! ```
//! Results of all images are counted together, so that small images fill whole panels. A panel has
//! as many columns as a register tile; 512 of its rows are copied at a time and stay in a
//! second-level cache while all weights go by. The matrix of all columns is never built. Columns
//! are copied by spans (`grid`), of which only the ends test for padding.

use super::copies::{gather, scatter_strided};
use super::grid::{Grid, Panel, Span};
use super::select::Sizes;
use super::tasks::{self, Split, run_tasks};
use crate::Cpu;
use crate::elementwise::Epilogue;
use crate::float::Float;
use crate::matmul::{Matrix, Tile};
use crate::scratch::{LINE, with_scratch};
use crate::simd::{F32s, Lanes, Work, prefetch};
use crate::storage::Shared;
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// Elements after a panel that may be written: a vector of the widest level.
pub(super) const SLACK: usize = 16;

/// Products of a sum from which the microkernel prefetches its result.
const MIN_SUM: usize = 256;

/// One grid of a convolution with its operands.
#[derive(Clone, Copy)]
pub(super) struct ConvTask<'a, T> {
    pub grid: &'a Grid,
    pub images: usize,
    pub groups: usize,
    /// Channels per group.
    pub in_channels: usize,
    pub out_channels: usize,
    /// (images, groups · in_channels, input)
    pub x: &'a [T],
    /// (groups · out_channels, in_channels, taps of the grid), or if `taps_first` (.., taps of the
    /// grid, in_channels).
    pub weight: &'a [T],
    pub taps_first: bool,
    /// Whether `weight` has all taps of the filter: (.., all taps, in_channels).
    pub all_taps: bool,
    /// (images, groups · out_channels, size)
    pub y: Shared<T>,
    /// The kernel that runs on each part of `y`, whose results are then in the order of the grid.
    pub epilogue: Option<&'a Epilogue<'a>>,
}

/// Blocks of rows of columns.
struct Blocks {
    /// Rows of a block; the last block of a part may have fewer.
    depth: usize,
    /// Rows of a part.
    rows: usize,
    count: usize,
}

impl<T: Float> ConvTask<'_, T> {
    /// Rows of the matrix of columns.
    pub(super) fn rows(&self) -> usize {
        self.in_channels * self.grid.taps.len()
    }

    /// The sizes that select the algorithm.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            groups: self.groups,
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            taps: self.grid.taps.len(),
            plane: self.grid.plane(),
            pixels: self.grid.pixels(),
            width: self.grid.last().output,
            extent: self.grid.last().extent().min(1 << 20),
            is_whole: self.grid.is_whole(),
            is_in_order: self.grid.all_taps_see()
                && (!self.taps_first || self.grid.taps.len() == 1),
            tiles: None,
        }
    }

    /// The blocks of rows that are multiplied at a time: with all taps, none is in two taps.
    fn blocks(&self) -> Blocks {
        let (rows, parts) = match self.all_taps {
            true => (self.in_channels, self.grid.taps.len()),
            false => (self.rows(), 1),
        };
        let depth = tasks::depth(rows);
        Blocks { depth, rows, count: rows.div_ceil(depth) * parts }
    }

    /// The rows of block `i`: from the first to before the second.
    fn block(&self, i: usize) -> [usize; 2] {
        let Blocks { depth, rows, .. } = self.blocks();
        let (part, i) = (i / rows.div_ceil(depth), i % rows.div_ceil(depth));
        [part * rows + i * depth, part * rows + rows.min((i + 1) * depth)]
    }

    /// Rows of columns in the order of the weights.
    pub(super) fn columns<'a>(
        &'a self,
        x: &'a [T],
        spans: &'a [Span],
        rows: [usize; 2],
        width: usize,
    ) -> Columns<'a, T> {
        let channels = if self.taps_first { Some(self.in_channels) } else { None };
        Columns { grid: self.grid, channels, x, spans, rows, width }
    }

    /// Elements from an image to the next, in the input and in the result.
    pub(super) fn image_strides(&self) -> [usize; 2] {
        [
            self.groups * self.in_channels * self.grid.plane(),
            self.groups * self.out_channels * self.grid.size(),
        ]
    }

    /// Computes all results by columns. Whether the epilogue, if there is one, has run.
    pub(super) fn by_columns(&self, cpu: &Cpu) -> Result<bool> {
        let (results, rows) = (self.images * self.grid.pixels(), self.rows());
        let width = tasks::panel_width::<T>(cpu);
        let split = tasks::split_columns([self.out_channels, results, rows], self.groups, width);
        if split.rows < self.out_channels {
            self.by_shared_columns(cpu, split.rows)?;
            return Ok(false);
        }
        let Split { columns, parallel, .. } = split;
        let along = results.div_ceil(columns);
        let task = |task: usize| {
            let (group, first) = (task / along, task % along * columns);
            let end = (first + columns).min(results);
            // SAFETY: results which no other task writes, and these are computed then.
            unsafe {
                self.part(cpu, group, [first, end])?;
                self.finish_part(group, [first, end])
            }
        };
        let tasks = self.groups * along;
        run_tasks(tasks, parallel, task)?;
        Ok(true)
    }

    /// Computes all results by columns, of which there are few: all of them are copied, and then
    /// multiplied by `m` filters at a time.
    fn by_shared_columns(&self, cpu: &Cpu, m: usize) -> Result<()> {
        let results = self.images * self.grid.pixels();
        let (width, plane) = (tasks::panel_width::<T>(cpu), self.grid.plane());
        let Blocks { depth, count: blocks, .. } = self.blocks();
        let panels = results.div_ceil(width);
        let block = depth * width + SLACK;
        let cut = |panel: usize| {
            let first = panel * width;
            self.grid.panel(cpu, [first, results.min(first + width)], self.image_strides())
        };
        let list = (0..panels).map(cut).collect::<Result<Vec<_>>>()?;
        with_scratch(cpu, [self.groups * panels * blocks * block], |[all]: [&mut [T]; 1]| {
            let to = Shared(all.as_mut_ptr());
            try_for_each_chunk(self.groups * panels * blocks, |task| {
                let (group, rest) = (task / (panels * blocks), task % (panels * blocks));
                let panel = rest / blocks;
                let x = &self.x[group * self.in_channels * plane..];
                // SAFETY: the block of this task alone.
                let to =
                    unsafe { std::slice::from_raw_parts_mut(to.get().add(task * block), block) };
                let (spans, rows) = (&list[panel].spans, self.block(rest % blocks));
                self.columns(x, spans, rows, width).pack(cpu, to);
                Ok(())
            })?;
            let down = self.out_channels.div_ceil(m);
            try_for_each_chunk(self.groups * panels * down, |task| {
                let (group, rest) = (task / (panels * down), task % (panels * down));
                let (panel, top) = (rest / down, rest % down * m);
                let channels = [top, self.out_channels.min(top + m)];
                let blocks = (group * panels + panel) * blocks;
                with_scratch(cpu, [m * width], |[product]: [&mut [T]; 1]| {
                    let columns = |i: usize| all[(blocks + i) * block..][..block].as_ptr();
                    // SAFETY: results of these channels, which no other task writes.
                    unsafe { self.multiply(cpu, group, channels, &list[panel], product, columns) }
                })?
            })
        })?
    }

    /// Computes some results, counted through all images, for all output channels of a group.
    ///
    /// # Safety
    /// `y` has all results; no other task touches these.
    pub(super) unsafe fn part(
        &self,
        cpu: &Cpu,
        group: usize,
        [first, end]: [usize; 2],
    ) -> Result<()> {
        let (width, m) = (tasks::panel_width::<T>(cpu), self.out_channels);
        let depth = self.blocks().depth;
        let x = &self.x[group * self.in_channels * self.grid.plane()..];
        let sizes = [depth * width + SLACK, m * width];
        with_scratch(cpu, sizes, |[columns, product]: [&mut [T]; 2]| {
            for first in (first..end).step_by(width) {
                let n = width.min(end - first);
                let panel = self.grid.panel(cpu, [first, first + n], self.image_strides())?;
                let spans = &panel.spans;
                let copy = |i: usize| {
                    let rows = self.block(i);
                    self.columns(x, spans, rows, width).pack(cpu, columns);
                    columns.as_ptr()
                };
                // SAFETY: by contract.
                unsafe { self.multiply(cpu, group, [0, m], &panel, product, copy)? };
            }
            Ok(())
        })?
    }

    /// Multiplies the filters of some channels by the columns of a panel: `columns` returns the
    /// block of them of this number.
    ///
    /// # Safety
    /// `y` has all results; no other task touches the results of the panel and these channels.
    unsafe fn multiply(
        &self,
        cpu: &Cpu,
        group: usize,
        [top, bottom]: [usize; 2],
        panel: &Panel,
        product: &mut [T],
        mut columns: impl FnMut(usize) -> *const T,
    ) -> Result<()> {
        let (rows, m, size) = (self.rows(), bottom - top, self.grid.size());
        let width = tasks::panel_width::<T>(cpu);
        let row = if self.all_taps { self.in_channels * self.grid.all_taps } else { rows };
        let w = &self.weight[(group * self.out_channels + top) * row..][..m * row];
        let to = self.y.get().wrapping_add((group * self.out_channels + top) * size);
        let n = panel.runs.last().map_or(0, |run| run.at + run.count);
        // Results that follow one another in memory need no detour.
        let whole =
            self.grid.is_dense() && panel.runs.windows(2).all(|r| r[1].to == r[0].to + r[0].count);
        let c = if whole {
            let ptr = to.wrapping_add(panel.runs[0].to).cast_const();
            Matrix { ptr, row_stride: size as isize, col_stride: 1 }
        } else {
            Matrix::row_major(product, width)
        };
        if whole && rows < MIN_SUM {
            // Short sums do not hide the time until the lines of the result are there.
            for i in 0..m {
                for line in (0..n).step_by(LINE / size_of::<T>()) {
                    prefetch(c.at(i, line).ptr.cast());
                }
            }
        }
        for block in 0..self.blocks().count {
            let [from, end] = self.block(block);
            let depth = end - from;
            let column = match self.all_taps {
                true => {
                    let (tap, channel) = (from / self.in_channels, from % self.in_channels);
                    self.grid.taps[tap] * self.in_channels + channel
                }
                false => from,
            };
            let rhs = Matrix { ptr: columns(block), row_stride: width as isize, col_stride: 1 };
            let tile = Tile {
                mnk: [m, n, depth],
                lhs: Matrix::row_major(w, row).at(0, column),
                rhs,
                c,
                beta: if from == 0 { T::ZERO } else { T::ONE },
                alpha: T::ONE,
                rhs_numel: depth * width,
            };
            // SAFETY: by contract; the filters were sliced to their size.
            unsafe { tile.run(cpu)? };
        }
        if !whole {
            let every = self.grid.last().every;
            cpu.level.run(ScatterRows { product, width, m, panel, every, to, size });
        }
        Ok(())
    }
}

/// Rows `rows` of the columns that some spans describe.
pub(super) struct Columns<'a, T> {
    pub grid: &'a Grid,
    /// The number of channels if rows are in the order (taps, channels).
    pub channels: Option<usize>,
    /// From the first channel of the group on, to the end of the last image.
    pub x: &'a [T],
    pub spans: &'a [Span],
    pub rows: [usize; 2],
    /// From a row of columns to the next.
    pub width: usize,
}

impl<T: Float> Columns<'_, T> {
    /// Copies them to `to`, which has [`SLACK`] elements after the last row.
    pub(super) fn pack(self, cpu: &Cpu, to: &mut [T]) {
        assert!((self.rows[1] - self.rows[0]) * self.width + SLACK <= to.len());
        cpu.level.run(Pack { columns: self, to });
    }
}

struct Pack<'a, 'b, T> {
    columns: Columns<'a, T>,
    to: &'b mut [T],
}

impl<T: Float> Work for Pack<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Pack { columns: Columns { grid, channels, x, spans, rows: [first, end], width }, to } =
            self;
        let (taps, plane, step) = (grid.taps.len(), grid.plane(), grid.last().step);
        let each = spans.len() / taps;
        let (mut channel, mut tap) = match channels {
            Some(channels) => (first % channels, first / channels),
            None => (first / taps, first % taps),
        };
        let mut row = to.as_mut_ptr();
        for _ in first..end {
            let plane = &x[channel * plane..];
            for span in &spans[tap * each..(tap + 1) * each] {
                // SAFETY: the span is in the row; vectors that reach beyond it are overwritten by
                // the next span or row, or are in the slack.
                unsafe {
                    copy_span::<T, T::Vector<V>>(plane, *span, step, row.add(span.at), width)
                };
            }
            row = row.wrapping_add(width);
            if let Some(channels) = channels {
                channel += 1;
                if channel == channels {
                    (channel, tap) = (0, tap + 1);
                }
            } else {
                tap += 1;
                if tap == taps {
                    (channel, tap) = (channel + 1, 0);
                }
            }
        }
    }
}

/// Copies the elements that a span reads, with zeros for padding.
///
/// # Safety
/// `to` has the span's elements and a vector more.
#[inline(always)]
unsafe fn copy_span<T: Float, V: Lanes<T>>(
    plane: &[T],
    s: Span,
    step: usize,
    to: *mut T,
    ahead: usize,
) {
    // SAFETY: by contract; loads test for the end of the plane's slice.
    unsafe {
        zeros::<T, V>(to, s.before);
        let to = to.add(s.before);
        if step == 1 {
            let from = &plane[s.from..];
            let mut j = 0;
            while j < s.inside {
                let rest = from.len() - j;
                let v = if rest >= V::LANES {
                    V::load(from.as_ptr().add(j))
                } else {
                    V::load_part(from.as_ptr().add(j), rest)
                };
                v.store(to.add(j));
                // The next panel's elements: rows of columns are in other parts of memory, which
                // the processor does not prefetch.
                prefetch(from.as_ptr().wrapping_add(j + ahead).cast());
                j += V::LANES;
            }
        } else if s.inside > 0 {
            gather::<T, V>(&plane[s.from..], step, to, s.inside);
        }
        zeros::<T, V>(to.add(s.inside), s.after);
    }
}

/// Writes at least `n` zeros, and at most a vector after them.
///
/// # Safety
/// These are writable.
#[inline(always)]
unsafe fn zeros<T: Float, V: Lanes<T>>(to: *mut T, n: usize) {
    let mut j = 0;
    while j < n {
        // SAFETY: by contract.
        unsafe { V::splat(T::ZERO).store(to.add(j)) };
        j += V::LANES;
    }
}

/// Copies the rows of a product to the planes of the result, run by run.
struct ScatterRows<'a, T> {
    product: &'a [T],
    width: usize,
    m: usize,
    panel: &'a Panel,
    every: usize,
    to: *mut T,
    size: usize,
}

impl<T: Float> Work for ScatterRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for (i, row) in self.product.chunks_exact(self.width).take(self.m).enumerate() {
            let to = self.to.wrapping_add(i * self.size);
            for run in self.panel.runs.iter() {
                let from = &row[run.at..][..run.count];
                // SAFETY: the run's results of this channel, which the task alone writes.
                unsafe { scatter_strided::<T, T::Vector<V>>(from, to.add(run.to), self.every) };
            }
        }
    }
}
