//! Reductions, with or without a kernel in front: the tiles of the program are folded while they are in L1.
//!
//! ```text
//!   rows      (kept.., reduced..)   the reduced axes move fastest in memory: each output folds runs of elements
//!   columns   (reduced.., kept..)   the kept axes move fastest: a strip of accumulators takes in row after row
//! ```
//! The reduced elements are cut into blocks whose size depends on the sizes alone, and block results are joined in order, so a
//! result has the same bits for any number of threads. What is accumulated: `reducers`.

mod reducers;

use crate::elementwise::cast::{slice, with_compute};
use crate::elementwise::program::{Plan, Program, Scratch, TILE};
use crate::simd::{F32s, Work};
use crate::storage::{Shared, View};
use crate::{Cpu, copy, threads};
use reducers::*;
use std::sync::Arc;
use teeny_core::kernel::table::UnaryTable;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Kernel, ReduceOp, Result, Scalar, Shape, Tensor};

/// Elements per block of a long row: few enough that two threads share a row of 256 K, many enough that joining costs nothing.
const BLOCK: usize = 64 << 10;
/// Rows per block of columns are chosen so that a block has at least this many elements.
const COLUMN_BLOCK: usize = 128 << 10;
/// Elements below which one thread reduces.
const THREAD: usize = 16 << 10;

/// Reduces `axes` of `x`.
pub(crate) fn reduce(cpu: &Cpu, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
    static IDENTITY: UnaryTable = UnaryTable::new();
    let kernel = IDENTITY.get(x.dtype(), |x| x)?;
    reduce_kernel(cpu, kernel, &[x], &[], x.shape(), op, axes)
}

/// Runs `kernel` and reduces `axes` of its result.
pub(crate) fn reduce_kernel(
    cpu: &Cpu,
    kernel: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    let views = inputs.iter().map(|x| View::of(x)).collect::<Result<Vec<_>>>()?;
    let kept: Vec<usize> = (0..shape.ndim()).filter(|a| !axes.contains(a)).collect();
    let count = |axes: &[usize]| axes.iter().map(|&a| shape[a]).product::<usize>();
    let (outer, length) = (count(&kept), count(axes));
    let dtype = kernel.output_dtype(0);
    let out = cpu.alloc(outer, op.output(dtype).compute())?;

    // Which axis moves least in memory, over all inputs? Ties go to the last axis.
    let step = |a: usize| views.iter().map(|v| v.strides[a].unsigned_abs()).filter(|&s| s > 0).min().unwrap_or(usize::MAX);
    let fastest = (0..shape.ndim()).filter(|&a| shape[a] > 1).min_by_key(|&a| (step(a), usize::MAX - a));
    let columns = fastest.is_some_and(|a| !axes.contains(&a)) && length > 1;
    let mut order = if columns { axes.to_vec() } else { kept.clone() };
    order.extend(if columns { &kept } else { axes });
    let views: Vec<View> = views.iter().map(|v| v.permuted(&order)).collect();
    let sizes: Vec<usize> = order.iter().map(|&a| shape[a]).collect();

    Plan::with(kernel, false, |plan| {
        let program = Program::new(cpu.level, kernel, plan, &sizes, &views, params);
        let job = Job { cpu, program: &program, outer, length, columns, out: Shared(out.ptr()) };
        job.dispatch(op, dtype);
    });
    let out = copy::stored(cpu, out, outer, op.output(dtype))?;
    Ok(Arc::new(out))
}

/// One reduction, with its sizes.
struct Job<'a> {
    cpu: &'a Cpu,
    program: &'a Program<'a>,
    outer: usize,
    length: usize,
    columns: bool,
    out: Shared<u8>,
}

impl Job<'_> {
    fn dispatch(&self, op: ReduceOp, dtype: DType) {
        match op {
            ReduceOp::Sum => with_compute!(dtype, T => self.run::<T, Sum>()),
            ReduceOp::Prod => with_compute!(dtype, T => self.run::<T, Prod>()),
            ReduceOp::Max => with_compute!(dtype, T => self.run::<T, Max>()),
            ReduceOp::Min => with_compute!(dtype, T => self.run::<T, Min>()),
            ReduceOp::ArgMax => with_compute!(dtype, T => self.run::<T, ArgMax>()),
            ReduceOp::ArgMin => with_compute!(dtype, T => self.run::<T, ArgMin>()),
            ReduceOp::Any => self.run::<u8, Any>(),
            ReduceOp::All => self.run::<u8, All>(),
        }
    }

    fn run<T: Copy + Send + Sync + 'static, R: Reducer<T>>(&self) {
        let out = Shared(self.out.get().cast::<R::Out>());
        if self.outer == 0 {
            return;
        }
        if self.columns { self.columns::<T, R>(out) } else { self.rows::<T, R>(out) }
    }

    /// Elements `start .. start + len` of the program, folded by `f` tile by tile.
    fn tiles<T>(&self, scratch: &mut Scratch, start: usize, end: usize, mut f: impl FnMut(usize, &[T])) {
        let mut at = start;
        while at < end {
            let len = self.program.tile_len(at, end);
            // SAFETY: the plan keeps all values in slots; the tile's value has `len` elements of the computed type `T`.
            f(at, unsafe { slice(self.program.look(scratch, at, len), len) });
            at += len;
        }
    }

    fn rows<T: Copy + Send + Sync + 'static, R: Reducer<T>>(&self, out: Shared<R::Out>) {
        let (outer, length, level) = (self.outer, self.length, self.cpu.level);
        let blocks = length.div_ceil(BLOCK).max(1);
        let block = |scratch: &mut Scratch, row: usize, b: usize| {
            let (first, end) = (row * length + b * BLOCK, row * length + ((b + 1) * BLOCK).min(length));
            let mut acc = R::START;
            self.tiles::<T>(scratch, first, end, |at, xs| {
                acc = R::join(acc, level.run(Run::<T, R> { xs, i: at - row * length, r: std::marker::PhantomData }));
            });
            acc
        };
        let write = |row: usize, acc: R::Acc| {
            // SAFETY: row < outer, and each row is written by one chunk.
            unsafe { *out.get().add(row) = R::finish(acc) }
        };
        if outer * length < THREAD && length >= 64 {
            return Scratch::with(&mut |scratch| {
                (0..outer).for_each(|row| write(row, (0..blocks).map(|b| block(scratch, row, b)).fold(R::START, R::join)));
            });
        }
        if length < 64 {
            return self.short_rows::<T, R>(out);
        }
        if blocks == 1 || outer >= 64 {
            let per_chunk = (THREAD / length).max(1);
            return threads::for_each_chunk(outer.div_ceil(per_chunk), |c| {
                Scratch::with(&mut |scratch| {
                    for row in c * per_chunk..((c + 1) * per_chunk).min(outer) {
                        write(row, (0..blocks).map(|b| block(scratch, row, b)).fold(R::START, R::join));
                    }
                });
            });
        }
        let mut parts = vec![R::START; outer * blocks];
        let shared = Shared(parts.as_mut_ptr());
        threads::for_each_chunk(outer * blocks, |p| {
            // SAFETY: p < parts.len(), and each part is written by one chunk.
            Scratch::with(&mut |scratch| unsafe { *shared.get().add(p) = block(scratch, p / blocks, p % blocks) });
        });
        for (row, parts) in parts.chunks(blocks).enumerate() {
            write(row, parts.iter().copied().fold(R::START, R::join));
        }
    }

    /// Rows of a few elements: a tile holds many of them.
    fn short_rows<T: Copy + Send + Sync + 'static, R: Reducer<T>>(&self, out: Shared<R::Out>) {
        let (outer, length) = (self.outer, self.length);
        let per_tile = TILE / length.max(1);
        let per_chunk = (THREAD / length.max(1)).next_multiple_of(per_tile.min(TILE)).max(1);
        threads::for_each_chunk(outer.div_ceil(per_chunk), |c| {
            let (first, end) = (c * per_chunk, ((c + 1) * per_chunk).min(outer));
            let mut row = first;
            let mut at = 0; // position in the row
            let mut acc = R::START;
            if length == 0 {
                // SAFETY: this chunk's rows.
                (first..end).for_each(|row| unsafe { *out.get().add(row) = R::finish(R::START) });
                return;
            }
            Scratch::with(&mut |scratch| {
                self.tiles::<T>(scratch, first * length, end * length, |_, mut xs| {
                    while !xs.is_empty() {
                        let count = (length - at).min(xs.len());
                        for (i, &x) in xs[..count].iter().enumerate() {
                            acc = R::add(acc, x, at + i);
                        }
                        at += count;
                        xs = &xs[count..];
                        if at == length {
                            // SAFETY: row < end; rows belong to this chunk alone.
                            unsafe { *out.get().add(row) = R::finish(acc) };
                            (row, at, acc) = (row + 1, 0, R::START);
                        }
                    }
                });
            });
        });
    }

    fn columns<T: Copy + Send + Sync + 'static, R: Reducer<T>>(&self, out: Shared<R::Out>) {
        let (outer, length, level) = (self.outer, self.length, self.cpu.level);
        // Few columns: several rows share a tile. Many: a strip of columns at a time.
        let width = outer.min(TILE);
        let strips = outer.div_ceil(width);
        let rows_per_block = (COLUMN_BLOCK / width).max(length.div_ceil(64)).max(1);
        let blocks = length.div_ceil(rows_per_block);
        let fold = |scratch: &mut Scratch, accs: &mut [R::Acc], strip: usize, b: usize| {
            let (r0, r1) = (b * rows_per_block, ((b + 1) * rows_per_block).min(length));
            let (c0, c1) = (strip * width, ((strip + 1) * width).min(outer));
            if self.program.is_packed() {
                // SAFETY: the value at this place is that of the input, whose rows follow each other.
                let x = unsafe { self.program.look(scratch, r0 * outer + c0, 1) }.cast::<T>();
                level.run(Rows::<T, R> { accs, x, step: outer, rows: r0..r1 });
            } else if strips == 1 {
                self.tiles::<T>(scratch, r0 * outer, r1 * outer, |at, xs| {
                    level.run(Fold::<T, R> { accs, xs, row: at / outer, column: at % outer });
                });
            } else {
                for row in r0..r1 {
                    self.tiles::<T>(scratch, row * outer + c0, row * outer + c1, |at, xs| {
                        let column = at - row * outer - c0;
                        level.run(Fold::<T, R> { accs: &mut accs[column..], xs, row, column: 0 });
                    });
                }
            }
        };
        let mut parts = vec![R::START; blocks * outer];
        let shared = Shared(parts.as_mut_ptr());
        let task = |t: usize| {
            let (b, strip) = (t / strips, t % strips);
            let (c0, c1) = (strip * width, ((strip + 1) * width).min(outer));
            // SAFETY: each pair of block and strip has accumulators of its own.
            let accs = unsafe { std::slice::from_raw_parts_mut(shared.get().add(b * outer + c0), c1 - c0) };
            Scratch::with(&mut |scratch| fold(scratch, accs, strip, b));
        };
        if outer * length < THREAD {
            (0..blocks * strips).for_each(task);
        } else {
            threads::for_each_chunk(blocks * strips, task);
        }
        for column in 0..outer {
            let acc = (0..blocks).map(|b| parts[b * outer + column]).fold(R::START, R::join);
            // SAFETY: column < outer.
            unsafe { *out.get().add(column) = R::finish(acc) };
        }
    }
}

/// `Reducer::run` compiled for a level.
struct Run<'a, T, R> {
    xs: &'a [T],
    i: usize,
    r: std::marker::PhantomData<R>,
}

impl<T: Copy, R: Reducer<T>> Work for Run<'_, T, R> {
    type Out = R::Acc;
    #[inline(always)]
    fn run<V: F32s>(self) -> R::Acc {
        R::run_on::<V>(self.xs, self.i)
    }
}

/// Adds consecutive elements to the accumulators of their columns, beginning at `column` of `row`.
struct Fold<'a, T, R: Reducer<T>>
where
    T: Copy,
{
    accs: &'a mut [R::Acc],
    xs: &'a [T],
    row: usize,
    column: usize,
}

/// `Reducer::add_rows` compiled for a level.
struct Rows<'a, T: Copy, R: Reducer<T>> {
    accs: &'a mut [R::Acc],
    x: *const T,
    step: usize,
    rows: std::ops::Range<usize>,
}

impl<T: Copy, R: Reducer<T>> Work for Rows<'_, T, R> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        // SAFETY: whoever made this had the rows.
        unsafe { R::add_rows::<V>(self.accs, self.x, self.step, self.rows) }
    }
}

impl<T: Copy, R: Reducer<T>> Work for Fold<'_, T, R> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Fold { accs, mut xs, mut row, mut column } = self;
        while !xs.is_empty() {
            let count = (accs.len() - column).min(xs.len());
            for (acc, &x) in accs[column..].iter_mut().zip(&xs[..count]) {
                *acc = R::add(*acc, x, row);
            }
            xs = &xs[count..];
            row += 1;
            column = 0;
        }
    }
}
