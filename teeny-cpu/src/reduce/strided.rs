//! Reductions of a tensor as it is, without a kernel before them, over any axes.
//!
//! The naive form goes over the reduced elements of each output. Here the innermost loop follows
//! the contiguous axis, as `axes` arranges them:
//! ```text
//!   rows      runs of a reduced axis, by vectors; short rows: transposed in L1 and added as
//!             columns, or by elements; short runs of one output: copied to one another first
//!   columns   rows of a kept axis, added to a row of accumulators; several narrow rows as one;
//!             a few rows: without accumulators
//! ```
//! `flip`: bits that make a minimum a maximum. Sums that are not finite are added again exactly.
//! Long reductions are split into blocks whose size depends on the sizes alone; their accumulators
//! are joined in order, so results have the same bits for any number of threads. 16-bit floats are
//! converted piece by piece in L1. Scratch memory is at most 16 bytes for 64 K elements and each
//! result, and 32 KiB for each task.

use super::axes::{Arranged, Form, is_narrow, rows_as_one};
use super::table::{Few, Rows, Runs, Table};
use super::{BLOCK, COLUMN_BLOCK, MIN_PARALLEL_ELEMENTS, PACKED_WIDTH, ROWS};
use crate::scratch::Array;
use crate::storage::Shared;
use crate::threads::try_for_each_range;
use crate::transpose::transpose;
use crate::typed::with_unsigned;
use crate::{Cpu, half};
use std::ops::Range;
use teeny_core::{DType, Result};

/// Elements of 16 bits that are converted at a time.
const PIECE: usize = 4096;
/// Words of memory of a block of short rows, transposed.
const TRANSPOSED: usize = 2048;
/// Short rows that are transposed at a time, at most.
const SHORT_ROWS: usize = 256;
/// Elements of a run below which the runs of an output are copied to one another.
const MAX_COPIED_RUN: usize = 64;
/// Columns of 16-bit floats that are added together: sixteen rows are a piece.
const HALF_WIDTH: usize = PIECE / 16;

/// One reduction of an operand whose axes are arranged.
pub(super) struct Strided<'a> {
    pub cpu: &'a Cpu,
    pub table: &'static Table,
    pub flip: u64,
    pub axes: &'a Arranged,
    pub x: Shared<u8>,
    pub dtype: DType,
    pub out: Shared<u8>,
}

/// The memory of a task.
struct Memory {
    /// Elements of 16 bits, converted.
    converted: Array<u64>,
    /// A block of short rows, transposed.
    transposed: Array<u64>,
}

impl Strided<'_> {
    /// Computes all results.
    ///
    /// # Errors
    /// If allocation fails.
    pub(super) fn run(&self) -> Result<()> {
        match self.axes.form {
            Form::Rows => self.rows(),
            Form::Columns => self.columns(),
        }
    }

    fn memory(&self, transposes: bool) -> Result<Memory> {
        let words = |wanted, words| if wanted { words } else { 0 };
        let converts = self.dtype.is_half() || self.copies_runs();
        Ok(Memory {
            converted: Array::filled(self.cpu, words(converts, PIECE / 2), 0)?,
            transposed: Array::filled(self.cpu, words(transposes, TRANSPOSED), 0)?,
        })
    }

    /// Whether the runs of an output are so short that they are copied to one another first:
    /// starting and ending a run takes longer.
    fn copies_runs(&self) -> bool {
        let reduced = &self.axes.reduced;
        self.axes.form == Form::Rows
            && reduced.list().len() > 1
            && reduced.last().size < MAX_COPIED_RUN
            && !self.dtype.is_half()
    }

    fn accumulators(&self, n: usize) -> Result<Array<u64>> {
        Array::filled(self.cpu, (n * self.table.acc).div_ceil(8), 0u64)
    }

    /// The address `offset` elements from the first.
    fn at(&self, offset: isize) -> *const u8 {
        self.x.get().wrapping_offset(offset * self.dtype.size() as isize)
    }

    fn result(&self, i: usize) -> *mut u8 {
        self.out.get().wrapping_add(i * self.table.result)
    }

    /// `rows` rows of `n` elements, `step` apart, as elements of the table: their address and step.
    ///
    /// # Safety
    /// They are readable; rows of 16-bit floats are at most [`PIECE`] elements.
    unsafe fn read(
        &self,
        memory: &mut Memory,
        x: *const u8,
        n: usize,
        rows: usize,
        step: isize,
    ) -> (*const u8, isize) {
        if !self.dtype.is_half() {
            return (x, step);
        }
        let to = memory.converted.as_mut_ptr().cast::<u8>();
        let (len, runs) = if step == n as isize { (n * rows, 1) } else { (n, rows) };
        for run in 0..runs {
            // SAFETY: the rows are readable, and the memory has PIECE elements.
            unsafe {
                let from = x.wrapping_offset(2 * run as isize * step);
                half::to_f32(self.cpu.level, self.dtype, from, to.add(4 * run * len), len)
            };
        }
        (to, n as isize)
    }

    fn rows(&self) -> Result<()> {
        let (kept, reduced) = (&self.axes.kept, &self.axes.reduced);
        let (results, length) = (kept.numel(), reduced.numel());
        let n = reduced.last().size;
        let narrow = reduced.list().len() == 1
            && kept.last().size >= ROWS / 4
            && is_narrow(n, self.table.element, self.table.vectors);
        // Blocks are pieces of a run, or several runs.
        let (runs, pieces) = ((BLOCK / n).max(1), n.div_ceil(BLOCK));
        let blocks = (length / n).div_ceil(runs) * pieces;
        if blocks == 1 {
            let least = MIN_PARALLEL_ELEMENTS / length;
            return try_for_each_range(results, least, |outputs| {
                let mut memory = self.memory(narrow)?;
                // SAFETY: each result is in one range.
                unsafe { self.whole_rows(&mut memory, outputs, narrow) };
                Ok(())
            });
        }
        let mut parts = self.accumulators(results * blocks)?;
        let (shared, size) = (Shared(parts.as_mut_ptr().cast::<u8>()), self.table.acc);
        try_for_each_range(results * blocks, 1, |parts| {
            let mut memory = self.memory(false)?;
            for p in parts {
                let (row, b) = (p / blocks, p % blocks);
                let x = self.at(kept.offset(row));
                let (first, start) = (b / pieces * runs, b % pieces * BLOCK);
                let count = runs.min(length / n - first);
                let len = BLOCK.min(n - start);
                // SAFETY: p is one of the accumulators, and each is written by one range.
                unsafe {
                    let acc = shared.get().add(p * size);
                    (self.table.start)(acc, 1);
                    self.add_runs(&mut memory, acc, x, (start, len), first..first + count);
                }
            }
            Ok(())
        })?;
        for row in 0..results {
            // SAFETY: the accumulators of this row, all ranges being done.
            unsafe {
                let accs = shared.get().add(row * blocks * size);
                (self.table.finish)(self.flip, accs, blocks, 1, self.result(row));
            }
        }
        Ok(())
    }

    /// The results `outputs`, each of one block: many at a time.
    ///
    /// # Safety
    /// No other task writes these results.
    unsafe fn whole_rows(&self, memory: &mut Memory, outputs: Range<usize>, narrow: bool) {
        let mut words = [0u64; 2 * SHORT_ROWS];
        let accs = words.as_mut_ptr().cast::<u8>();
        let (inner, reduced) = (self.axes.kept.last(), &self.axes.reduced);
        let n = reduced.last().size;
        let by_element = narrow && self.table.by_element && inner.stride == n as isize;
        let most = match (by_element, narrow) {
            (true, _) => {
                if self.dtype.is_half() {
                    PIECE / n
                } else {
                    usize::MAX
                }
            }
            (_, true) => (PIECE.min(TRANSPOSED * 8 / self.table.element) / n).min(SHORT_ROWS),
            // Rows of 16-bit floats are converted several at a time.
            (false, false) if self.dtype.is_half() => (PIECE / n).clamp(1, ROWS),
            (false, false) => ROWS,
        };
        let mut at = outputs.start;
        while at < outputs.end {
            let rows = most.min(outputs.end - at).min(inner.size - at % inner.size);
            let x = self.at(self.axes.kept.offset(at));
            // SAFETY: accumulators take at most two words; all elements are the operand's.
            unsafe {
                if by_element {
                    let (x, _) = self.read(memory, x, n, rows, inner.stride);
                    (self.table.start)(accs, 1);
                    (self.table.short)(self.flip, accs, x, n * rows, 0, n, self.result(at));
                    at += rows;
                    continue;
                }
                (self.table.start)(accs, rows);
                if narrow {
                    self.transposed_rows(memory, accs, x, n, rows, inner.stride);
                } else if reduced.list().len() == 1 && !self.dtype.is_half() {
                    let runs = Runs { n, count: rows, step: inner.stride, acc_step: 1 };
                    (self.table.run)(self.cpu.level, self.flip, accs, x, runs, 0);
                } else if self.dtype.is_half() && n < PIECE {
                    let outer = reduced.outer();
                    for i in 0..outer.numel() {
                        let x = x.wrapping_offset(2 * outer.offset(i));
                        let (x, step) = self.read(memory, x, n, rows, inner.stride);
                        let runs = Runs { n, count: rows, step, acc_step: 1 };
                        (self.table.run)(self.cpu.level, self.flip, accs, x, runs, i * n);
                    }
                } else {
                    for row in 0..rows {
                        let acc = accs.add(row * self.table.acc);
                        let x = x.wrapping_offset(
                            row as isize * inner.stride * self.dtype.size() as isize,
                        );
                        self.add_runs(memory, acc, x, (0, n), 0..reduced.numel() / n);
                    }
                }
                (self.table.finish)(self.flip, accs, 1, rows, self.result(at));
            }
            at += rows;
        }
    }

    /// Adds elements `start .. start + len` of the runs numbered `runs`, of the output whose first
    /// element is at `x`, to its accumulator.
    ///
    /// # Safety
    /// The accumulator belongs to the caller.
    unsafe fn add_runs(
        &self,
        memory: &mut Memory,
        acc: *mut u8,
        x: *const u8,
        (start, len): (usize, usize),
        runs: Range<usize>,
    ) {
        let (outer, size) = (self.axes.reduced.outer(), self.dtype.size() as isize);
        let (inner, n) = (outer.last(), self.axes.reduced.last().size);
        let mut at = runs.start;
        while at < runs.end {
            let count = (runs.end - at).min(inner.size - at % inner.size);
            let x = x.wrapping_offset((outer.offset(at) + start as isize) * size);
            // SAFETY: these runs are the operand's; pieces are converted one by one.
            unsafe {
                if self.copies_runs() {
                    let to = memory.converted.as_mut_ptr().cast::<u8>();
                    let bytes = len * self.table.element;
                    let most = 4 * PIECE / bytes;
                    for first in (0..count).step_by(most) {
                        let runs = most.min(count - first);
                        for run in 0..runs {
                            let from =
                                x.wrapping_offset((first + run) as isize * inner.stride * size);
                            std::ptr::copy_nonoverlapping(from, to.add(run * bytes), bytes);
                        }
                        let one = Runs { n: runs * len, count: 1, step: 0, acc_step: 0 };
                        let position = (at + first) * n;
                        (self.table.run)(self.cpu.level, self.flip, acc, to, one, position);
                    }
                } else if !self.dtype.is_half() {
                    let runs = Runs { n: len, count, step: inner.stride, acc_step: 0 };
                    (self.table.run)(self.cpu.level, self.flip, acc, x, runs, at * n + start);
                } else {
                    for run in 0..count {
                        let x = x.wrapping_offset(run as isize * inner.stride * size);
                        for piece in (0..len).step_by(PIECE) {
                            let n_piece = PIECE.min(len - piece);
                            let (x, _) =
                                self.read(memory, x.wrapping_add(2 * piece), n_piece, 1, 0);
                            let one = Runs { n: n_piece, count: 1, step: 0, acc_step: 0 };
                            let position = (at + run) * n + start + piece;
                            (self.table.run)(self.cpu.level, self.flip, acc, x, one, position);
                        }
                    }
                }
            }
            at += count;
        }
    }

    /// Adds short rows, each to its accumulator, as the columns of their transpose.
    ///
    /// # Safety
    /// There are `rows` rows of `n` elements, `step` apart, at `x`, and as many accumulators.
    unsafe fn transposed_rows(
        &self,
        memory: &mut Memory,
        accs: *mut u8,
        x: *const u8,
        n: usize,
        rows: usize,
        step: isize,
    ) {
        // SAFETY: these rows are at most a piece, and fit the memory for transposed ones.
        unsafe {
            let (x, step) = self.read(memory, x, n, rows, step);
            let to = memory.transposed.as_mut_ptr();
            let (level, shape) = (self.cpu.level, (n, rows));
            let row_stride = rows as isize;
            with_unsigned!(self.table.element, T => {
                transpose::<T>(level, x.cast(), step, to.cast(), row_stride, shape, false);
            });
            (self.table.rows)(level, self.flip, accs, rows, to.cast(), row_stride, 0..n);
        }
    }

    fn columns(&self) -> Result<()> {
        let (kept, reduced, size) = (&self.axes.kept, &self.axes.reduced, self.table.acc);
        let (width, outers, length) = (kept.last().size, kept.outer().numel(), reduced.numel());
        let inner = reduced.last();
        let in_order = self.table.renumber.is_none() || reduced.list().len() == 1;
        let joined = if inner.stride == width as isize && in_order {
            rows_as_one(width, inner.size)
        } else {
            1
        };
        let most = if self.dtype.is_half() { HALF_WIDTH } else { PACKED_WIDTH };
        let group = width.div_ceil(width.div_ceil(most)).next_multiple_of(16).min(width);
        let groups = width.div_ceil(group);
        let rows_per_block =
            (COLUMN_BLOCK / group).max(length.div_ceil(64)).max(1).next_multiple_of(joined);
        let blocks = length.div_ceil(rows_per_block);
        let columns = |t: usize| t % groups * group..((t % groups + 1) * group).min(width);
        if blocks == 1 {
            let most = if self.dtype.is_half() { PIECE / group } else { usize::MAX };
            let is_one = joined == 1 && reduced.list().len() <= 1;
            let few = is_one && length <= most.min(self.table.max_few_rows);
            let least = MIN_PARALLEL_ELEMENTS / (length * group);
            return try_for_each_range(outers * groups, least, |tasks| {
                let mut memory = self.memory(false)?;
                let mut accs = self.accumulators(joined * group)?;
                let accs = accs.as_mut_ptr().cast::<u8>();
                // The first task left, and whether blocks of a few rows go together.
                let (mut next, mut together) = (tasks.start, groups == 1);
                for t in tasks.clone() {
                    let (outer, columns) = (t / groups, columns(t));
                    let to = self.result(outer * width + columns.start);
                    // SAFETY: no other task has these columns.
                    unsafe {
                        if few && t >= next {
                            let most = if together { tasks.end - t } else { 1 };
                            let done = self.few_rows(&mut memory, outer, &columns, most, to);
                            (next, together) = (t + done, together && done > 1);
                        }
                        if t < next {
                            continue;
                        }
                        next = t + 1;
                        self.column_block(&mut memory, accs, outer, &columns, 0..length, joined);
                        (self.table.finish)(self.flip, accs, joined, columns.len(), to);
                    }
                }
                Ok(())
            });
        }
        let mut parts = self.accumulators(outers * blocks * joined * width)?;
        let shared = Shared(parts.as_mut_ptr().cast::<u8>());
        let place = move |outer: usize, b: usize, column: usize| {
            shared.get().wrapping_add(((outer * blocks + b) * joined * width + column) * size)
        };
        try_for_each_range(outers * groups * blocks, 1, |tasks| {
            let mut memory = self.memory(false)?;
            for t in tasks {
                let (b, outer) = (t / groups % blocks, t / groups / blocks);
                let columns = columns(t);
                let rows = b * rows_per_block..((b + 1) * rows_per_block).min(length);
                let accs = place(outer, b, columns.start);
                // SAFETY: no two tasks have the same block and columns, so none share accumulators.
                unsafe { self.column_block(&mut memory, accs, outer, &columns, rows, joined) };
            }
            Ok(())
        })?;
        for outer in 0..outers {
            let (to, accs) = (self.result(outer * width), place(outer, 0, 0));
            // SAFETY: all accumulators of these columns, after all tasks.
            unsafe { (self.table.finish)(self.flip, accs, blocks * joined, width, to) };
        }
        Ok(())
    }

    /// The results of some columns of a few rows, without accumulators, for up to `most` blocks of
    /// rows from number `outer` on. Returns how many are done: none if that fails.
    ///
    /// # Safety
    /// No other task writes these results, at `to`; rows of 16-bit floats are a piece together.
    unsafe fn few_rows(
        &self,
        memory: &mut Memory,
        outer: usize,
        columns: &Range<usize>,
        most: usize,
        to: *mut u8,
    ) -> usize {
        let Some(few_rows) = self.table.few_rows else { return 0 };
        let (inner, outers, n) = (self.axes.reduced.last(), self.axes.kept.outer(), columns.len());
        let (rows, apart, size) = (inner.size, outers.last().stride, outers.last().size);
        let half = self.dtype.is_half();
        let x = self.at(outers.offset(outer) + columns.start as isize);
        let pieces = match half {
            false => usize::MAX,
            true if apart == inner.stride * rows as isize => PIECE / (n * rows),
            true => 1,
        };
        let blocks = most.min(size - outer % size).min(pieces);
        // SAFETY: the caller's; the rows are the operand's.
        unsafe {
            let (x, step) = self.read(memory, x, n, rows * blocks, inner.stride);
            let apart = if half { (n * rows) as isize } else { apart };
            let run = |blocks| {
                let few = Few { n, rows, step, blocks, apart };
                few_rows(self.cpu.level, self.flip, to, x, few).then_some(blocks)
            };
            // A block must fail alone, because the number of threads decides which blocks run
            // together.
            run(blocks).or_else(|| run(1)).unwrap_or(0)
        }
    }

    /// Adds some rows of some columns to their accumulators: `joined` times as many, for rows that
    /// are added as one.
    ///
    /// # Safety
    /// The accumulators belong to the caller.
    unsafe fn column_block(
        &self,
        memory: &mut Memory,
        accs: *mut u8,
        outer: usize,
        columns: &Range<usize>,
        rows: Range<usize>,
        joined: usize,
    ) {
        let (table, width) = (self.table, columns.len());
        let x = self.at(self.axes.kept.outer().offset(outer) + columns.start as isize);
        // SAFETY: the caller's; the rows are the operand's.
        unsafe {
            (table.start)(accs, joined * width);
            self.add_columns(memory, accs, x, width, rows.clone(), joined, table.fast_rows);
            if let Some(is_finite) = table.is_finite
                && !is_finite(accs, joined * width)
            {
                (table.start)(accs, joined * width);
                self.add_columns(memory, accs, x, width, rows, joined, table.rows);
            }
            if let Some(renumber) = table.renumber
                && joined > 1
            {
                for i in 0..joined {
                    renumber(accs.add(i * width * table.acc), width, joined, i);
                }
            }
        }
    }

    /// [`Strided::column_block`] by one of the functions that add rows.
    ///
    /// # Safety
    /// As there.
    #[allow(clippy::too_many_arguments)]
    unsafe fn add_columns(
        &self,
        memory: &mut Memory,
        accs: *mut u8,
        x: *const u8,
        width: usize,
        rows: Range<usize>,
        joined: usize,
        add: Rows,
    ) {
        let (outer, inner) = (self.axes.reduced.outer(), self.axes.reduced.last());
        let (level, flip, size) = (self.cpu.level, self.flip, self.dtype.size() as isize);
        let mut at = rows.start;
        while at < rows.end {
            let first = at % inner.size;
            let mut count = (inner.size - first).min(rows.end - at);
            if self.dtype.is_half() {
                count = count.min((PIECE / width / joined).max(1) * joined);
            }
            let offset = outer.offset(at / inner.size) + first as isize * inner.stride;
            let x = x.wrapping_offset(offset * size);
            // SAFETY: these rows are the operand's; a group of columns is at most a piece.
            unsafe {
                let (x, step) = self.read(memory, x, width, count, inner.stride);
                if joined == 1 {
                    add(level, flip, accs, width, x, step, at..at + count);
                } else {
                    // Rows follow one another: `joined` of them are one.
                    let (wide, whole, number) = (joined * width, count / joined, at / joined);
                    add(level, flip, accs, wide, x, wide as isize, number..number + whole);
                    let rest = count % joined * width;
                    if rest > 0 {
                        let x = x.add(whole * wide * self.table.element);
                        add(level, flip, accs, rest, x, 0, number + whole..number + whole + 1);
                    }
                }
            }
            at += count;
        }
    }
}
