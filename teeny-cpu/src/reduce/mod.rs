//! Reductions, with or without a kernel before them.
//!
//! The naive form stores the kernel's result and then goes over the elements of each output, which
//! are far apart if the reduced axes are not the last. Here the tiles of the kernel are accumulated
//! while they are in L1, and the loops follow the order of memory:
//!
//! ```text
//!   rows      (kept.., reduced..)   reduced axes contiguous: an output accumulates a row
//!   columns   (reduced.., kept..)   kept axes contiguous: a row of accumulators adds row after row
//! ```
//! The reduced elements are split into blocks whose size depends on the sizes alone, and the
//! results of blocks are joined in order, so a result has the same bits for any number of threads.
//! The operations are in `reducers`; the traversal calls them by a `table`.

// REGRET: a reduction after a kernel is a row program with one fold, which `rows` runs too.
// Columns, blocks of a long row and positions of extrema would have to move there.

mod axes;
mod extremes;
mod products;
mod reducers;
mod strided;
mod sums;
mod table;

use crate::elementwise::plan::LocationPlan;
use crate::elementwise::tiles::{Scratch, TILE, Tiles};
use crate::scratch::Array;
use crate::storage::{CpuStorage, Shared, View};
use crate::typed::with_wrapping;
use crate::{Cpu, copy, threads};
use axes::{arrange, nearness};
pub(crate) use reducers::flip_of;
use reducers::*;
use std::ops::Range;
use std::sync::Arc;
use strided::Strided;
use table::{Runs, Table};
use teeny_core::kernel::table::UnaryTable;
use teeny_core::kernel::{Arithmetic, OpCode, OpNode};
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Kernel, ReduceOp, Result, Scalar, Shape, Tensor};

/// Elements per block of a long row: two threads share a row of 256 K, and joining costs nothing.
const BLOCK: usize = 64 << 10;
/// Rows per block of columns are chosen so that a block has at least this many elements.
const COLUMN_BLOCK: usize = 128 << 10;
/// Columns of contiguous rows that are added together: their accumulators stay in L1.
const PACKED_WIDTH: usize = 1024;
/// Contiguous rows that are reduced in one call.
const ROWS: usize = 64;
/// Elements below which one thread reduces.
const MIN_PARALLEL_ELEMENTS: usize = 16 << 10;

/// Reduces `axes` of `x`.
pub(crate) fn reduce(cpu: &Cpu, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
    static IDENTITY: UnaryTable = UnaryTable::new();
    let kernel = IDENTITY.get(x.dtype(), |x| x)?;
    reduce_kernel(cpu, kernel, &[x], &[], x.shape(), op, axes)
}

/// Runs `kernel` and reduces `axes` of its result.
pub(crate) fn reduce_kernel(
    cpu: &Cpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    let kept: Vec<usize> = (0..shape.ndim()).filter(|a| !axes.contains(a)).collect();
    let count = |axes: &[usize]| axes.iter().map(|&a| shape[a]).product::<usize>();
    let (num_results, length) = (count(&kept), count(axes));
    let dtype = kernel.output_dtype(0);
    let out = cpu.alloc(num_results, op.output(dtype).compute())?;
    if num_results * length > 0
        && let [input] = inputs
        && let Some(table) = table_of_input(op, kernel)
        && let view = &View::of(input)?
        && let Some(arranged) =
            &arrange(&view.shape, view.strides(), axes, table.renumber.is_some())
    {
        let (x, flip) = (Shared(view.ptr.cast_mut()), flip_of(op, dtype));
        let sorted = Shared(out.ptr());
        Strided { cpu, table, flip, axes: arranged, x, dtype: view.dtype, out: sorted }.run()?;
        let out = if arranged.sorted { restore_order(cpu, view, &kept, &out)? } else { out };
        return Ok(Arc::new(copy::cast_to_storage(cpu, out, num_results, op.output(dtype))?));
    }

    let views = inputs.iter().map(|x| View::of(x)).collect::<Result<Vec<_>>>()?;
    // The axis with the smallest stride over all inputs; the last one of equals.
    let step = |a: usize| {
        views
            .iter()
            .map(|v| v.strides[a].unsigned_abs())
            .filter(|&s| s > 0)
            .min()
            .unwrap_or(usize::MAX)
    };
    let innermost =
        (0..shape.ndim()).filter(|&a| shape[a] > 1).min_by_key(|&a| (step(a), usize::MAX - a));
    let columns = innermost.is_some_and(|a| !axes.contains(&a)) && length > 1;
    let mut order = if columns { axes.to_vec() } else { kept.clone() };
    order.extend(if columns { &kept } else { axes });
    let views: Vec<View> = views.iter().map(|v| v.permuted(&order)).collect();
    let sizes: Vec<usize> = order.iter().map(|&a| shape[a]).collect();

    LocationPlan::with(kernel, false, |plan| {
        let tiles = Tiles::new(cpu.level, kernel, plan, &sizes, &views, params);
        let job = Job {
            cpu,
            tiles: &tiles,
            table: table_of(op, dtype),
            flip: flip_of(op, dtype),
            num_results,
            length,
            out: Shared(out.ptr()),
        };
        match columns {
            _ if num_results == 0 => Ok(()),
            true => job.columns(),
            false => job.rows(),
        }
    })?;
    let out = copy::cast_to_storage(cpu, out, num_results, op.output(dtype))?;
    Ok(Arc::new(out))
}

/// The table for the elements of the only input of `kernel`, if it is nothing but that input, or a
/// conversion or a square that the reduction makes itself.
fn table_of_input(op: ReduceOp, kernel: &Kernel) -> Option<&'static Table> {
    let (from, to) = (*kernel.inputs().first()?, kernel.output_dtype(0));
    if op == ReduceOp::Sum
        && from == to
        && let [input, square] = kernel.nodes()
        && matches!(input.op, OpCode::Input(_))
        && square.op == OpCode::Arithmetic(Arithmetic::Mul)
    {
        return match to.compute() {
            DType::F32 => Some(table::of::<f32, Squares>()),
            DType::F64 => Some(table::of::<f64, Squares>()),
            _ => None,
        };
    }
    let converts = |node: &OpNode| matches!(node.op, OpCode::Input(_) | OpCode::Cast);
    if kernel.nodes().len() > 2 || !kernel.nodes().iter().all(converts) {
        return None;
    }
    match (op, from, to) {
        _ if from == to => Some(table_of(op, to)),
        (_, DType::F16 | DType::BF16, DType::F32) => Some(table_of(op, to)),
        (ReduceOp::Sum, _, DType::I64 | DType::U64) => match from {
            DType::Bool | DType::U8 => Some(table::of::<u8, WideSum>()),
            DType::U16 => Some(table::of::<u16, WideSum>()),
            DType::U32 => Some(table::of::<u32, WideSum>()),
            DType::I8 => Some(table::of::<i8, WideSum>()),
            DType::I16 => Some(table::of::<i16, WideSum>()),
            DType::I32 => Some(table::of::<i32, WideSum>()),
            _ => None,
        },
        _ => None,
    }
}

/// Results in the order of the operand's strides, in the order of its axes.
fn restore_order(cpu: &Cpu, x: &View, kept: &[usize], sorted: &CpuStorage) -> Result<CpuStorage> {
    let mut order: Vec<usize> = (0..kept.len()).collect();
    order.sort_by_key(|&i| nearness(x.strides[kept[i]]));
    let sizes: Vec<usize> = kept.iter().map(|&a| x.shape[a]).collect();
    let dtype = teeny_core::Storage::dtype(sorted);
    copy::contiguous(cpu, &View::in_order(sorted.ptr(), &Shape::new(&sizes)?, &order, dtype))
}

fn table_of(op: ReduceOp, dtype: DType) -> &'static Table {
    match op {
        ReduceOp::Sum => with_wrapping!(dtype, T => table::of::<T, Sum>()),
        ReduceOp::Prod => with_wrapping!(dtype, T => table::of::<T, Prod>()),
        ReduceOp::Max | ReduceOp::Min => with_wrapping!(dtype, T => table::of::<T, Max>()),
        ReduceOp::ArgMax | ReduceOp::ArgMin => with_wrapping!(dtype, T => table::of::<T, ArgMax>()),
        ReduceOp::Any => table::of::<u8, Any>(),
        ReduceOp::All => table::of::<u8, All>(),
    }
}

/// One reduction, with its sizes.
struct Job<'a> {
    cpu: &'a Cpu,
    tiles: &'a Tiles<'a>,
    table: &'static Table,
    flip: u64,
    /// Elements of the result: rows of contiguous axes, or columns of strided ones.
    num_results: usize,
    /// Elements that each result reduces.
    length: usize,
    out: Shared<u8>,
}

impl Job<'_> {
    /// `n` accumulators without elements.
    fn accumulators(&self, n: usize) -> Result<Array<u64>> {
        let mut memory = Array::filled(self.cpu, (n * self.table.acc).div_ceil(8), 0u64)?;
        // SAFETY: the memory has n accumulators.
        unsafe { (self.table.start)(memory.as_mut_ptr().cast(), n) };
        Ok(memory)
    }

    /// Joins the accumulators of `blocks` blocks for results `first .. first + n`.
    ///
    /// # Safety
    /// They are accumulators of the table, and no other task writes these results.
    unsafe fn finish(&self, accs: *mut u8, blocks: usize, first: usize, n: usize) {
        // SAFETY: the output has all results.
        unsafe { (self.table.finish)(self.flip, accs, blocks, n, self.result(first)) }
    }

    /// The address of result `i`.
    fn result(&self, i: usize) -> *mut u8 {
        self.out.get().wrapping_add(i * self.table.result)
    }

    /// Elements `start .. end` of the tiles, given to `f` tile by tile: where the tile begins,
    /// its first element and how many they are.
    fn tiles(
        &self,
        scratch: &mut Scratch,
        start: usize,
        end: usize,
        mut f: impl FnMut(usize, *const u8, usize),
    ) {
        let mut at = start;
        while at < end {
            let len = self.tiles.tile_len(at, end);
            // SAFETY: the plan keeps all values in slots.
            f(at, unsafe { self.tiles.evaluate(scratch, at, len) }, len);
            at += len;
        }
    }

    fn rows(&self) -> Result<()> {
        let (num_results, length) = (self.num_results, self.length);
        if length < 64 {
            return self.short_rows();
        }
        let blocks = length.div_ceil(BLOCK);
        if blocks == 1 || num_results >= 64 {
            return threads::try_for_each_range(
                num_results,
                MIN_PARALLEL_ELEMENTS / length,
                |rows| {
                    let mut parts =
                        Array::filled(self.cpu, if blocks == 1 { 0 } else { 2 * blocks }, 0u64)?;
                    self.tiles.with_scratch(self.cpu, 0, &mut |scratch| {
                        rows.clone().for_each(|row| self.row(scratch, row, blocks, &mut parts))
                    })
                },
            );
        }
        let mut parts = self.accumulators(num_results * blocks)?;
        let (shared, size) = (Shared(parts.as_mut_ptr().cast::<u8>()), self.table.acc);
        threads::try_for_each_range(num_results * blocks, 1, |parts| {
            self.tiles.with_scratch(self.cpu, 0, &mut |scratch| {
                for p in parts.clone() {
                    // SAFETY: p is one of the accumulators, and each is written by one range.
                    unsafe {
                        self.block(scratch, p / blocks, p % blocks, shared.get().add(p * size))
                    };
                }
            })
        })?;
        for row in 0..num_results {
            // SAFETY: the accumulators of this row, all chunks being done.
            unsafe { self.finish(shared.get().add(row * blocks * size), blocks, row, 1) };
        }
        Ok(())
    }

    /// A whole row of `blocks` blocks; `more` has two words for each if there are several.
    fn row(&self, scratch: &mut Scratch, row: usize, blocks: usize, more: &mut [u64]) {
        let mut one = [0u64; 2];
        let parts = if blocks == 1 { one.as_mut_ptr() } else { more.as_mut_ptr() };
        let parts = parts.cast::<u8>();
        // SAFETY: accumulators take at most two words; each row is written by one chunk.
        unsafe {
            (self.table.start)(parts, blocks);
            (0..blocks).for_each(|b| self.block(scratch, row, b, parts.add(b * self.table.acc)));
            self.finish(parts, blocks, row, 1);
        }
    }

    /// Block `b` of a row into its accumulator.
    ///
    /// # Safety
    /// The accumulator belongs to the caller.
    unsafe fn block(&self, scratch: &mut Scratch, row: usize, b: usize, acc: *mut u8) {
        let start = row * self.length;
        let (first, end) = (start + b * BLOCK, start + ((b + 1) * BLOCK).min(self.length));
        self.tiles(scratch, first, end, |at, x, n| {
            // SAFETY: the tile's elements are of the table's type.
            unsafe {
                let run = Runs { n, count: 1, step: 0, acc_step: 0 };
                (self.table.run)(self.cpu.level, self.flip, acc, x, run, at - start)
            }
        });
    }

    /// Rows of a few elements: a tile holds many of them.
    fn short_rows(&self) -> Result<()> {
        let (num_results, length) = (self.num_results, self.length);
        if length == 0 {
            // SAFETY: results without elements read no accumulator.
            unsafe { self.finish([0u64; 2].as_mut_ptr().cast(), 0, 0, num_results) };
            return Ok(());
        }
        let per_tile = TILE / length;
        let per_chunk = (MIN_PARALLEL_ELEMENTS / length).next_multiple_of(per_tile);
        threads::try_for_each_chunk(num_results.div_ceil(per_chunk), |c| {
            let (first, end) =
                (c * per_chunk * length, ((c + 1) * per_chunk).min(num_results) * length);
            let mut acc = [0u64; 2];
            let acc = acc.as_mut_ptr().cast();
            // SAFETY: one accumulator; the tile's elements are of the table's type, and its rows
            // belong to this chunk alone.
            unsafe {
                (self.table.start)(acc, 1);
                self.tiles.with_scratch(self.cpu, 0, &mut |scratch| {
                    self.tiles(scratch, first, end, |at, x, n| {
                        (self.table.short)(
                            self.flip,
                            acc,
                            x,
                            n,
                            at % length,
                            length,
                            self.result(at / length),
                        )
                    });
                })
            }
        })
    }

    /// Reduces the rows of a (length, num_results) layout: blocks of rows and groups of columns in
    /// parallel, each into its accumulators, which are combined block by block.
    fn columns(&self) -> Result<()> {
        let (num_results, length, size) = (self.num_results, self.length, self.table.acc);
        // Few columns: several rows share a tile. Many: some columns at a time.
        let width = num_results.min(TILE);
        let column_groups = num_results.div_ceil(width);
        let rows_per_block = (COLUMN_BLOCK / width).max(length.div_ceil(64)).max(1);
        let blocks = length.div_ceil(rows_per_block);
        let mut parts = self.accumulators(blocks * num_results)?;
        let shared = Shared(parts.as_mut_ptr().cast::<u8>());
        let task = |t: usize| {
            let (b, column_group) = (t / column_groups, t % column_groups);
            let rows = b * rows_per_block..((b + 1) * rows_per_block).min(length);
            let columns = column_group * width..((column_group + 1) * width).min(num_results);
            self.tiles.with_scratch(self.cpu, 0, &mut |scratch| {
                // SAFETY: no two tasks have the same block and columns, so none share accumulators.
                unsafe {
                    self.column_group(
                        scratch,
                        shared.get().add((b * num_results + columns.start) * size),
                        &rows,
                        &columns,
                    )
                }
            })
        };
        if num_results * length < MIN_PARALLEL_ELEMENTS {
            (0..blocks * column_groups).try_for_each(task)?;
        } else {
            threads::try_for_each_chunk(blocks * column_groups, task)?;
        }
        // SAFETY: all accumulators, after all tasks.
        unsafe { self.finish(shared.get(), blocks, 0, num_results) };
        Ok(())
    }

    /// Adds some rows of some columns to their accumulators.
    ///
    /// # Safety
    /// The accumulators of these columns belong to the caller.
    unsafe fn column_group(
        &self,
        scratch: &mut Scratch,
        accs: *mut u8,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) {
        let (num_results, width, level) = (self.num_results, columns.len(), self.cpu.level);
        // SAFETY: tiles have elements of the table's type.
        unsafe {
            if width == num_results {
                self.tiles(
                    scratch,
                    rows.start * num_results,
                    rows.end * num_results,
                    |at, x, n| self.add_elements(accs, x, n, at),
                );
            } else {
                for row in rows.clone() {
                    self.tiles(
                        scratch,
                        row * num_results + columns.start,
                        row * num_results + columns.end,
                        |at, x, n| {
                            let column = at - row * num_results - columns.start;
                            (self.table.rows)(
                                level,
                                self.flip,
                                accs.add(column * self.table.acc),
                                n,
                                x,
                                0,
                                row..row + 1,
                            );
                        },
                    );
                }
            }
        }
    }

    /// Adds `n` consecutive elements from number `at` on, whole rows and parts of rows, to the
    /// accumulators of all columns.
    ///
    /// # Safety
    /// As `column_group`.
    unsafe fn add_elements(&self, accs: *mut u8, mut x: *const u8, n: usize, mut at: usize) {
        let end = at + n;
        while at < end {
            let (row, column) = (at / self.num_results, at % self.num_results);
            // The rest of a row that the tile before has begun, all whole rows at once, or the
            // first part of the last row.
            let (rows, width) = match (end - at) / self.num_results {
                whole @ 1.. if column == 0 => (whole, self.num_results),
                _ => (1, (self.num_results - column).min(end - at)),
            };
            // SAFETY: these elements are the tile's.
            unsafe {
                (self.table.rows)(
                    self.cpu.level,
                    self.flip,
                    accs.add(column * self.table.acc),
                    width,
                    x,
                    width as isize,
                    row..row + rows,
                );
                x = x.add(rows * width * self.table.element);
            }
            at += rows * width;
        }
    }
}
