//! The named row programs: their operands, and the mapping of rows to vectors.
//!
//! ```text
//!   long rows          one by one; of 16-bit floats, converted one by one      along
//!   narrow rows        transposed, some at a time: (rows, n) ─► (n, rows)      across
//!   another axis       neighbouring rows where they are                        across
//! ```

use super::StoredRows;
use super::across::{Columns, WIDEST};
use super::along::Rowwise;
use super::functions::{
    Batch, CrossEntropy, CrossEntropyGrad, FloatTerms, Function, Line, LogSoftmax, LogSoftmaxGrad,
    Norm, Softmax, SoftmaxGrad,
};
use crate::copy::Packed;
use crate::index::integers;
use crate::scratch::{Array, LINE, with_scratch};
use crate::simd::Level;
use crate::storage::{Shared, View};
use crate::threads::{for_each_range, try_for_each_range};
use crate::transpose::transpose;
use crate::{Cpu, copy, half};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Error, Kernel, Layout, Result, RowFunction, Scalar, Shape, Tensor};

/// Elements per range, at least.
const CHUNK: usize = 8 << 10;
/// Elements of rows that are converted at a time, at least one.
const CONVERTED: usize = 2 << 10;
/// Elements of a block of narrow rows, and its fewest and most rows.
const BLOCK: usize = 4 << 10;
const MIN_ROWS: usize = 64;
const MAX_ROWS: usize = 512;
/// Bytes of neighbouring rows from which they are not gathered.
const MIN_COLUMNS: usize = 32;

/// The one output of `program` on the rows along `axes`; `None` if it has no kernel here.
pub(crate) fn named(
    cpu: &Cpu,
    program: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    axes: &[usize],
) -> Result<Option<StorageRef>> {
    let (Some(function), &[axis]) = (program.row_function(), axes) else { return Ok(None) };
    use RowFunction as F;
    let last = inputs.len() - 1;
    // The operand of x's shape, and the operands that all rows share.
    let (g, lines) = match function {
        F::Softmax | F::LogSoftmax => (None, &[][..]),
        F::SoftmaxGrad | F::LogSoftmaxGrad => (Some(inputs[1]), &[][..]),
        F::LayerNorm | F::RmsNorm if last == 1 && !is_line(inputs[1], axis) => {
            (Some(inputs[1]), &[][..])
        }
        F::LayerNorm | F::RmsNorm => (None, &inputs[1..]),
        F::LayerNormGrad | F::RmsNormGrad => (Some(inputs[last]), &inputs[1..last]),
        F::CrossEntropy | F::CrossEntropyGrad if axes == [1] && inputs[0].ndim() == 2 => {
            (None, &[][..])
        }
        F::CrossEntropy | F::CrossEntropyGrad => return Ok(None),
    };
    if !lines.iter().all(|x| is_line(x, axis)) {
        return Ok(None);
    }
    let packed = |x: &Tensor| Packed::of(cpu, &View::of(x)?);
    let line = |i: usize| lines.get(i).map(|x| packed(&line(x, axis)?)).transpose();
    let x = inputs[0];
    let mut job = Job {
        cpu,
        dtype: x.dtype(),
        n: x.shape()[axis],
        weight: line(0)?,
        bias: line(1)?,
        targets: None,
        loss_gradients: None,
        eps: params.first().map_or(0.0, |p| p.to_f64()),
    };
    if let F::CrossEntropy | F::CrossEntropyGrad = function {
        let ignored = params.first().map(|p| p.to_i64_wrapping());
        job.targets = Some(targets(cpu, inputs[1], job.n, ignored, function)?);
        job.loss_gradients = inputs.get(2).map(|g| packed(g)).transpose()?;
    }
    match job.dtype {
        DType::F64 => job.run::<f64>(&Code::of(function), x, g, axis).map(Some),
        _ => job.run::<f32>(&Code::of(function), x, g, axis).map(Some),
    }
}

/// A function of rows of T: the code around it is compiled once for all functions.
struct Code<T> {
    along: fn(Level, &Batch<T>),
    across: fn(Level, &Batch<T>),
    /// [`Function::NARROW`]
    narrow: (usize, usize),
    is_loss: bool,
}

impl<T: FloatTerms> Code<T> {
    fn new<F: Function>() -> Code<T> {
        Code {
            along: |level, rows| level.run(Rowwise::<T, F>(rows, PhantomData)),
            across: |level, rows| level.run(Columns::<T, F>(rows, PhantomData)),
            narrow: F::NARROW,
            is_loss: F::IS_LOSS,
        }
    }

    fn of(function: RowFunction) -> Code<T> {
        match function {
            RowFunction::Softmax => Code::new::<Softmax>(),
            RowFunction::LogSoftmax => Code::new::<LogSoftmax>(),
            RowFunction::SoftmaxGrad => Code::new::<SoftmaxGrad>(),
            RowFunction::LogSoftmaxGrad => Code::new::<LogSoftmaxGrad>(),
            RowFunction::CrossEntropy => Code::new::<CrossEntropy>(),
            RowFunction::CrossEntropyGrad => Code::new::<CrossEntropyGrad>(),
            RowFunction::LayerNorm => Code::new::<Norm<true, false>>(),
            RowFunction::LayerNormGrad => Code::new::<Norm<true, true>>(),
            RowFunction::RmsNorm => Code::new::<Norm<false, false>>(),
            RowFunction::RmsNormGrad => Code::new::<Norm<false, true>>(),
        }
    }
}

/// Whether all rows of `x` along `axis` are one row in memory.
fn is_line(x: &Tensor, axis: usize) -> bool {
    (0..x.ndim()).all(|a| a == axis || x.strides()[a] == 0 || x.shape()[a] == 1)
}

/// The elements of `x` along `axis`, at the first place of the other axes.
fn line(x: &Tensor, axis: usize) -> Result<Tensor> {
    let (shape, strides) = (Shape::new(&[x.shape()[axis]])?, [x.strides()[axis]]);
    x.with_layout(Layout::strided(shape, &strides, x.layout().offset(), x.storage().len())?)
}

/// The targets of rows of `classes` scores, `None` where one is `ignored`. A target that is not a
/// class is an error of the loss; its gradient uses `usize::MAX`, which no place has.
fn targets(
    cpu: &Cpu,
    targets: &Tensor,
    classes: usize,
    ignored: Option<i64>,
    function: RowFunction,
) -> Result<Array<Option<usize>>> {
    let targets = integers(cpu, targets)?;
    let class = |target: i64| usize::try_from(target).ok().filter(|&class| class < classes);
    let is_wrong = |&target: &i64| Some(target) != ignored && class(target).is_none();
    if let (RowFunction::CrossEntropy, Some(i)) = (function, targets.iter().position(is_wrong)) {
        return Err(outside(i, targets[i], classes));
    }
    Array::from_fn(cpu, targets.len(), |i| {
        Some(class(targets[i]).unwrap_or(usize::MAX)).filter(|_| Some(targets[i]) != ignored)
    })
}

#[cold]
fn outside(i: usize, target: i64, classes: usize) -> Error {
    let range = if classes == 0 { "none".to_string() } else { format!("0..={}", classes - 1) };
    Error::index(format!("targets[{i}] is {target}, but there are {classes} classes ({range})"))
}

/// The sizes and operands that all rows of a call share.
struct Job<'a> {
    cpu: &'a Cpu,
    dtype: DType,
    /// Elements of a row.
    n: usize,
    /// One row each, for a norm.
    weight: Option<Packed>,
    bias: Option<Packed>,
    /// One for each row, for a loss.
    targets: Option<Array<Option<usize>>>,
    loss_gradients: Option<Packed>,
    /// The epsilon of a norm.
    eps: f64,
}

/// The operands with an element at each position, and the result, whose rows are packed.
struct Operands<'a> {
    x: &'a StoredRows,
    g: Option<&'a StoredRows>,
    to: Shared<u8>,
}

impl Job<'_> {
    /// The function of the rows of `x` along `axis`, of `g` beside it: an element for each of x, or
    /// a loss for each row.
    fn run<T: FloatTerms>(
        &self,
        code: &Code<T>,
        x: &Tensor,
        g: Option<&Tensor>,
        axis: usize,
    ) -> Result<StorageRef> {
        let Job { cpu, dtype, n: length, .. } = *self;
        let n = x.numel();
        let inner: usize = x.shape()[axis + 1..].iter().product();
        if n > 0 && inner > 1 && inner * size_of::<T>() >= MIN_COLUMNS {
            let packed = |t: &Tensor| Packed::of(cpu, &View::of(t)?);
            let (xs, gs) = (packed(x)?, g.map(packed).transpose()?);
            let out = cpu.alloc(n, dtype.compute())?;
            let g = gs.as_ref().map_or(std::ptr::null(), Packed::ptr);
            self.columns(code, [xs.ptr(), g], out.ptr(), inner, n / length);
            drop((xs, gs));
            return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?));
        }
        let is_last = axis + 1 == x.ndim();
        let others = (0..x.ndim()).filter(|&a| a != axis);
        let rows: usize = others.clone().map(|a| x.shape()[a]).product();
        let order: Vec<usize> = match is_last {
            true => Vec::new(),
            false => others.chain([axis]).collect(),
        };
        let operand = |t: &Tensor| {
            let view = View::of(t)?;
            StoredRows::of(cpu, &if is_last { view } else { view.permuted(&order) })
        };
        let (xs, gs) = (operand(x)?, g.map(operand).transpose()?);
        let out = match code.is_loss {
            true => cpu.alloc(rows, dtype.compute())?,
            false => cpu.alloc(n, dtype)?,
        };
        // Rows without elements may have losses.
        if n > 0 || code.is_loss && rows > 0 {
            let length = length.max(1);
            let operands = Operands { x: &xs, g: gs.as_ref(), to: Shared(out.ptr()) };
            let (most, fewest) = code.narrow;
            let narrow = length <= most && rows >= fewest;
            let packed = xs.is_packed() && gs.as_ref().is_none_or(StoredRows::is_packed);
            let block = match (narrow, dtype.is_half()) {
                (true, _) => (BLOCK / length).clamp(MIN_ROWS, MAX_ROWS) / MIN_ROWS * MIN_ROWS,
                (false, true) => (CONVERTED / length).max(1),
                (false, false) if packed => usize::MAX,
                (false, false) => 1,
            };
            let least = if narrow { block } else { 1 };
            try_for_each_range(rows, least.max(CHUNK / length), |range| {
                self.rows(code, &operands, range, block, narrow)
            })?;
        }
        drop((xs, gs));
        if code.is_loss {
            return Ok(Arc::new(copy::cast_to_storage(cpu, out, rows, dtype)?));
        }
        if is_last {
            return Ok(Arc::new(out));
        }
        // The rows were gathered from another order of axes; restore it.
        let view = View::in_order(out.ptr(), x.shape(), &order, dtype);
        Ok(Arc::new(copy::contiguous(cpu, &view)?))
    }

    /// `rows` rows from row `r` on, the first of which is `offset` elements after these addresses.
    #[inline]
    fn batch<T: FloatTerms>(
        &self,
        [x, g]: [*const T; 2],
        [y, losses]: [*mut T; 2],
        step: usize,
        r: usize,
        rows: usize,
        offset: usize,
    ) -> Batch<T> {
        let constant = |p: &Option<Packed>| p.as_ref().map_or(std::ptr::null(), |p| p.ptr().cast());
        let operands = [x, g, constant(&self.weight), constant(&self.bias)];
        let first = Line { operands, y, n: self.n, step };
        let targets = self.targets.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
        let loss_gradients = constant(&self.loss_gradients);
        let all = Batch { first, rows, targets, loss_gradients, losses, eps: self.eps };
        all.from(r, rows, offset)
    }

    /// Rows beside each other, where they are: `inner` at each place.
    fn columns<T: FloatTerms>(
        &self,
        code: &Code<T>,
        [x, g]: [*const u8; 2],
        y: *mut u8,
        inner: usize,
        rows: usize,
    ) {
        let n = self.n;
        // Some groups at a time if they are short.
        let width = (BLOCK / n / WIDEST).max(1) * WIDEST;
        let groups = inner.div_ceil(width);
        let [x, g, y] = [x.cast_mut(), g.cast_mut(), y].map(|p| Shared(p.cast::<T>()));
        for_each_range(rows / inner * groups, CHUNK / 2 / (n * inner.min(width)), |tasks| {
            for task in tasks {
                let (outer, first) = (task / groups, task % groups * width);
                let at = outer * n * inner + first;
                let [x, g, y] = [x, g, y].map(|p| p.get());
                let (from, width) = ([x.cast_const(), g.cast_const()], width.min(inner - first));
                let to = [y, std::ptr::null_mut()];
                let columns = self.batch(from, to, inner, outer * inner + first, width, at);
                (code.across)(self.cpu.level, &columns);
            }
        });
    }

    /// Blocks of rows, as columns if they are narrow. 16-bit floats are converted.
    fn rows<T: FloatTerms>(
        &self,
        code: &Code<T>,
        of: &Operands<'_>,
        rows: Range<usize>,
        block: usize,
        narrow: bool,
    ) -> Result<()> {
        let (level, dtype, n) = (self.cpu.level, self.dtype, self.n);
        let is_half = dtype.is_half();
        let run = |[stage, x_tile, g_tile, tile]: [*mut T; 4]| {
            for first in rows.clone().step_by(block) {
                let count = block.min(rows.end - first);
                let to = of.to.get().wrapping_add(first * n * dtype.size());
                // SAFETY: a tile has memory for `block` rows of n elements, of which there are
                // `count`; no other range writes these rows of the result.
                unsafe {
                    let columns = narrow.then_some(block);
                    let x = self.tile(of.x, first, count, columns, stage, x_tile);
                    let g = of.g.map_or(std::ptr::null(), |g| {
                        self.tile(g, first, count, columns, stage, g_tile)
                    });
                    let y = if tile.is_null() { to.cast() } else { tile };
                    let results = [y, of.to.get().cast()];
                    let step = columns.unwrap_or(1);
                    let batch = self.batch([x, g], results, step, first, count, 0);
                    match narrow {
                        true => (code.across)(level, &batch),
                        false => (code.along)(level, &batch),
                    }
                    let mut packed = y;
                    if narrow && !code.is_loss {
                        packed = if is_half { stage } else { to.cast() };
                        transpose(level, y, block as isize, packed, n as isize, (count, n), false);
                    }
                    if is_half && !code.is_loss {
                        half::from_f32(level, dtype, packed.cast(), to, n * count);
                    }
                }
            }
        };
        if !is_half && !narrow {
            run([std::ptr::null_mut(); 4]);
            return Ok(());
        }
        // Whole cache lines.
        let size = (block * n).next_multiple_of(LINE / size_of::<T>());
        let sizes = [narrow, true, of.g.is_some(), true].map(|used| if used { size } else { 0 });
        with_scratch::<T, _, 4>(self.cpu, sizes, |parts| run(parts.map(|part| part.as_mut_ptr())))
    }

    /// Rows `first .. first + rows` of `from` as T: where they are, or in `to`, as columns of the
    /// distance `columns` from one element to the next.
    ///
    /// # Safety
    /// These are rows of `from`; `stage` and `to` have memory for them if they are converted or
    /// columns, and otherwise they follow one another.
    unsafe fn tile<T: FloatTerms>(
        &self,
        from: &StoredRows,
        first: usize,
        rows: usize,
        columns: Option<usize>,
        stage: *mut T,
        to: *mut T,
    ) -> *const T {
        let (level, n, is_half) = (self.cpu.level, self.n, self.dtype.is_half());
        if columns.is_none() && !is_half {
            return from.row(first).cast();
        }
        let converted = if columns.is_some() { stage } else { to };
        let runs = if from.is_packed() { 1 } else { rows };
        let len = n * rows / runs;
        // SAFETY: by contract.
        unsafe {
            for run in 0..runs {
                let (x, y) = (from.row(first + run), converted.add(run * len));
                if is_half {
                    half::to_f32(level, self.dtype, x, y.cast(), len);
                } else if runs > 1 {
                    std::ptr::copy_nonoverlapping(x.cast(), y, len);
                }
            }
            if let Some(step) = columns {
                let in_place = runs == 1 && !is_half;
                let rows_at = if in_place { from.row(first).cast() } else { stage.cast_const() };
                transpose(level, rows_at, n as isize, to, step as isize, (n, rows), false);
            }
        }
        to
    }
}
