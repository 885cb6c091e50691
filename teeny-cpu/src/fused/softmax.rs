//! Softmax, log-softmax and their gradients, a row at a time.
//!
//! The naive form is a kernel each for the maximum, the exponentials, their sum and the quotient:
//! four passes over memory. Here all passes over a row follow one another while it is in L1: its
//! maximum, `exp(x - max)` with the sum, and the quotient. Rows of 16-bit floats are converted one
//! by one. Narrow rows are transposed, some at a time, and computed as columns
//! (`softmax_columns`), which need no exchange between lanes. f32 and f64 have the same loops; their
//! functions are in `terms`.

use super::terms::{
    DivSumByInverse, ExpSubMax, Grad, Max, MulGrad, MulSubSum, SubExpMul, SubMaxLog, Term,
};
use super::{Packed, SoftmaxKind, StoredRows, softmax_columns};
use crate::float::{Number, Vector};
use crate::scratch::with_scratch;
use crate::simd::{F32s, Lanes, Work, prefetch_ahead};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::transpose::transpose;
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy, half};
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Layout, Result, Tensor};

/// Elements per range, at least.
const CHUNK: usize = 8 << 10;
/// Elements up to which rows are transposed in L1 and computed as columns: a maximum and a sum over
/// the lanes of a vector take as long as some vectors of exponentials.
const NARROW: usize = 128;
/// Elements of a block of narrow rows, and its fewest and most rows.
const BLOCK: usize = 4 << 10;
const MIN_ROWS: usize = 64;
const MAX_ROWS: usize = 512;

/// How many rows of `length` elements are transposed at a time; none where rows are computed one by
/// one.
fn rows_at_once(length: usize, rows: usize) -> Option<usize> {
    let narrow = length <= NARROW && rows >= 8;
    narrow.then(|| (BLOCK / length.max(1)).clamp(MIN_ROWS, MAX_ROWS) / MIN_ROWS * MIN_ROWS)
}

/// Whether columns of `inner` elements beside each other are computed where they are.
fn are_columns(dtype: DType, inner: usize) -> bool {
    inner > 1 && softmax_columns::in_place(inner * dtype.compute().size() / 4)
}

/// The row function along `axis` of `x` (and of `g` for the gradients, where `x` is the forward
/// result).
pub(crate) fn rows(
    cpu: &Cpu,
    kind: SoftmaxKind,
    x: &Tensor,
    g: Option<&Tensor>,
    axis: usize,
) -> Result<StorageRef> {
    let (dtype, n) = (x.dtype(), x.numel());
    let inner: usize = x.shape()[axis + 1..].iter().product();
    if n > 0 && are_columns(dtype, inner) {
        let packed = |t: &Tensor| Packed::of(cpu, &View::of(t)?);
        let (xs, gs) = (packed(x)?, g.map(packed).transpose()?);
        let out = cpu.alloc(n, dtype.compute())?;
        let (x_ptr, g, y) = (xs.ptr(), gs.as_ref().unwrap_or(&xs).ptr(), out.ptr());
        let sizes = [n / x.shape()[axis] / inner, x.shape()[axis], inner];
        // SAFETY: all hold n elements; the output has no other owner.
        unsafe {
            if dtype == DType::F64 {
                softmax_columns::columns::<f64>(cpu, kind, x_ptr.cast(), g.cast(), y.cast(), sizes);
            } else {
                softmax_columns::columns::<f32>(cpu, kind, x_ptr.cast(), g.cast(), y.cast(), sizes);
            }
        }
        drop((xs, gs));
        return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?));
    }
    let mut order: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    order.push(axis);
    let operand = |t: &Tensor| StoredRows::of(cpu, &View::of(t)?.permuted(&order));
    let (xs, gs) = (operand(x)?, g.map(operand).transpose()?);
    let out = cpu.alloc(n, dtype)?;
    let length = x.shape()[axis];
    if n > 0 {
        let rows = n / length;
        let job = Job { cpu, kind, dtype, xs: &xs, gs: gs.as_ref(), to: Shared(out.ptr()), length };
        let (least, block) = (CHUNK / length, rows_at_once(length, rows));
        try_for_each_range(rows, least.max(block.unwrap_or(1)), |range| {
            match (block, dtype == DType::F64) {
                (Some(block), false) => job.blocks::<f32>(range, block),
                (Some(block), true) => job.blocks::<f64>(range, block),
                (None, false) => job.each::<f32>(range),
                (None, true) => job.each::<f64>(range),
            }
        })?;
    }
    drop((xs, gs));
    if order[axis] == axis {
        return Ok(Arc::new(out));
    }
    // The rows were gathered from another order of axes; restore it.
    let back = cpu.alloc(n, dtype)?;
    let whole = View { ptr: back.ptr(), shape: *x.shape(), strides: [0; 8], dtype };
    let mut target = whole;
    target.strides[..x.ndim()].copy_from_slice(Layout::contiguous(*x.shape()).strides());
    let target = target.permuted(&order);
    let mut source = View { ptr: out.ptr(), ..target };
    source.strides[..x.ndim()].copy_from_slice(Layout::contiguous(target.shape).strides());
    // SAFETY: both sides hold n elements; the target's strides are a permutation of a row-major
    // layout.
    unsafe { copy::copy_view(cpu.level, &source, back.ptr(), &target.strides) };
    Ok(Arc::new(back))
}

/// The rows of one operation.
struct Job<'a> {
    cpu: &'a Cpu,
    kind: SoftmaxKind,
    dtype: DType,
    xs: &'a StoredRows,
    gs: Option<&'a StoredRows>,
    to: Shared<u8>,
    length: usize,
}

impl Job<'_> {
    /// The address of row `r` of the result.
    fn result(&self, r: usize) -> *mut u8 {
        self.to.get().wrapping_add(r * self.length * self.dtype.size())
    }

    /// Row by row; those of 16-bit floats are converted to scratch memory of three rows.
    fn each<T: Number>(&self, rows: Range<usize>) -> Result<()> {
        let (level, n) = (self.cpu.level, self.length);
        if !self.dtype.is_half() {
            for r in rows {
                // SAFETY: rows of n elements; that of the result belongs to this range alone.
                unsafe {
                    let x = slice(self.xs.row(r), n);
                    let g = self.gs.map_or(x, |gs| slice(gs.row(r), n));
                    let y = slice_mut(self.result(r), n);
                    level.run(OneRow::<T> { kind: self.kind, x, g, y });
                }
            }
            return Ok(());
        }
        let sizes = [n, if self.gs.is_some() { n } else { 0 }, n];
        with_scratch::<f32, _, 3>(self.cpu, sizes, |[x, g, y]| {
            for r in rows {
                // SAFETY: as above; the scratch memory has rows of n elements.
                unsafe {
                    half::to_f32(level, self.dtype, self.xs.row(r), x.as_mut_ptr().cast(), n);
                    if let Some(gs) = self.gs {
                        half::to_f32(level, self.dtype, gs.row(r), g.as_mut_ptr().cast(), n);
                    }
                    let g = if self.gs.is_some() { &*g } else { &*x };
                    level.run(OneRow { kind: self.kind, x, g, y });
                    half::from_f32(level, self.dtype, y.as_ptr().cast(), self.result(r), n);
                }
            }
        })
    }

    /// Blocks of narrow rows as columns, in scratch memory of four blocks.
    fn blocks<T: Number>(&self, rows: Range<usize>, block: usize) -> Result<()> {
        let (level, n, size) = (self.cpu.level, self.length, block * self.length);
        let sizes = [size, size, if self.gs.is_some() { size } else { 0 }, size];
        with_scratch::<T, _, 4>(self.cpu, sizes, |[stage, x, g, y]| {
            let stage = stage.as_mut_ptr();
            for first in rows.clone().step_by(block) {
                let width = block.min(rows.end - first);
                let has_g = self.gs.is_some();
                // SAFETY: `width` rows of n elements, in memory for `block` of them; those of the
                // result belong to this range alone.
                unsafe {
                    self.transpose(self.xs, first, width, block, stage, x.as_mut_ptr());
                    if let Some(gs) = self.gs {
                        self.transpose(gs, first, width, block, stage, g.as_mut_ptr());
                    }
                    let (x, y) = (x.as_mut_ptr(), y.as_mut_ptr());
                    let g = if has_g { g.as_mut_ptr() } else { x };
                    let kind = self.kind;
                    level.run(softmax_columns::Columns { kind, x, g, y, n, step: block, width });
                    let to = self.result(first);
                    let rows = if self.dtype.is_half() { stage } else { to.cast() };
                    transpose(level, y, block as isize, rows, n as isize, (width, n), false);
                    if self.dtype.is_half() {
                        half::from_f32(level, self.dtype, stage.cast(), to, n * width);
                    }
                }
            }
        })
    }

    /// Writes rows `first .. first + width` as columns, `row_stride` from one element to the next.
    ///
    /// # Safety
    /// They are rows of `from`; `stage` and `to` have memory for `row_stride` rows of T, the
    /// compute dtype.
    unsafe fn transpose<T: Number>(
        &self,
        from: &StoredRows,
        first: usize,
        width: usize,
        row_stride: usize,
        stage: *mut T,
        to: *mut T,
    ) {
        let (level, n) = (self.cpu.level, self.length);
        // SAFETY: by contract.
        unsafe {
            let runs = if from.is_packed() { 1 } else { width };
            let len = n * width / runs;
            for run in 0..runs {
                let (x, y) = (from.row(first + run), stage.add(run * len));
                if self.dtype.is_half() {
                    half::to_f32(level, self.dtype, x, y.cast(), len);
                } else if runs > 1 {
                    std::ptr::copy_nonoverlapping(x.cast(), y, len);
                }
            }
            let in_place = runs == 1 && !self.dtype.is_half();
            let rows = if in_place { from.row(first).cast() } else { stage.cast_const() };
            transpose(level, rows, n as isize, to, row_stride as isize, (n, width), false);
        }
    }
}

/// One row of the function.
struct OneRow<'a, T> {
    kind: SoftmaxKind,
    x: &'a [T],
    g: &'a [T],
    y: &'a mut [T],
}

/// Terms that a lane adds in one chain, and sums of such chains that it adds before they go on in
/// f64.
const TERMS: usize = 8;
const CHAINS: usize = 4;

/// The terms `y[i] = F(x[i], g[i], a, b)` by vectors with a masked tail, written with `WRITE`, and
/// their sum. The sum of 32 vectors is of the row's type, within 14 units of roundoff of Σ |y|, and
/// these sums are added in f64, so that rows of any length have that error.
///
/// # Safety
/// `n` elements are readable at `x`, and at `g` if the term reads it, and writable at `y`.
#[inline(always)]
pub(super) unsafe fn pass<T: Number, V: F32s, F: Term, const WRITE: bool>(
    [x, g]: [*const T; 2],
    y: *mut T,
    n: usize,
    [c, a, b]: [T; 3],
) -> f64 {
    let lanes = Vector::<T, V>::LANES;
    let (zero, c) = (Vector::<T, V>::splat(T::ZERO), Vector::<T, V>::splat(c));
    let (a, b) = (Vector::<T, V>::splat(a), Vector::<T, V>::splat(b));
    let (mut total, mut i) = (0.0, 0);
    while i < n {
        let end = n.min(i + CHAINS * TERMS * lanes);
        let mut sums = zero;
        while i < end {
            let stop = end.min(i + TERMS * lanes);
            let mut sum = zero;
            // SAFETY: reads and writes stay below n; a part is what is left.
            unsafe {
                while i + lanes <= stop {
                    let g = if F::READS_G { Vector::<T, V>::load(g.add(i)) } else { c };
                    let v = T::quaternary::<F, V>([Vector::<T, V>::load(x.add(i)), g, a, b]);
                    if WRITE {
                        v.store(y.add(i));
                    }
                    sum = sum.add(v);
                    i += lanes;
                }
                if i < stop {
                    let left = stop - i;
                    let v = Vector::<T, V>::load_part(x.add(i), left);
                    let g = if F::READS_G { Vector::<T, V>::load_part(g.add(i), left) } else { c };
                    let v = T::quaternary::<F, V>([v, g, a, b]);
                    if WRITE {
                        v.store_part(y.add(i), left);
                    }
                    sum = sum.add(T::part::<V>(v, left));
                    i = stop;
                }
            }
            sums = sums.add(sum);
        }
        total += sums.total().to_f64();
    }
    total
}

/// The largest element that is not NaN: a NaN makes every sum of exponentials NaN anyway. Four
/// vectors, so that comparing is not one chain of latencies.
#[inline(always)]
pub(super) fn largest<T: Number, V: F32s>(x: &[T]) -> T {
    const VECTORS: usize = 4;
    let lanes = Vector::<T, V>::LANES;
    let lowest = T::from_f64(f64::NEG_INFINITY);
    let mut best = [Vector::<T, V>::splat(lowest); VECTORS];
    let (mut i, n) = (0, x.len());
    macro_rules! larger {
        ($a:expr, $b:expr) => {{
            let (a, b) = ($a, $b);
            T::quaternary::<Max, V>([a, b, b, b])
        }};
    }
    // SAFETY: loads end at or before n.
    unsafe {
        while i + VECTORS * lanes <= n {
            prefetch_ahead(&x[i..i + VECTORS * lanes]);
            for (j, best) in best.iter_mut().enumerate() {
                *best = larger!(Vector::<T, V>::load(x.as_ptr().add(i + j * lanes)), *best);
            }
            i += VECTORS * lanes;
        }
        while i + lanes <= n {
            best[0] = larger!(Vector::<T, V>::load(x.as_ptr().add(i)), best[0]);
            i += lanes;
        }
        if i < n && n >= lanes {
            // The last vector of the row; some elements are compared twice.
            best[1] = larger!(Vector::<T, V>::load(x.as_ptr().add(n - lanes)), best[1]);
            i = n;
        }
    }
    let (a, b) = (larger!(best[0], best[1]), larger!(best[2], best[3]));
    let mut all = T::largest::<V>(larger!(a, b));
    while i < n {
        all = if x[i] > all { x[i] } else { all };
        i += 1;
    }
    all
}

impl<T: Number> Work for OneRow<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.x.len().min(self.g.len()).min(self.y.len());
        let (from, y) = ([self.x.as_ptr(), self.g.as_ptr()], self.y.as_mut_ptr());
        let zero = T::ZERO;
        // SAFETY: all have n elements.
        unsafe {
            match self.kind {
                SoftmaxKind::Softmax => {
                    let max = largest::<T, V>(self.x);
                    let sum = pass::<T, V, ExpSubMax, true>(from, y, n, [zero, max, zero]);
                    // Dividing, not multiplying by the inverse: rows sum to one as nearly as core's
                    // definition does.
                    let sum = T::from_f64(sum);
                    let (again, shares) =
                        (y.cast_const(), [zero, sum, T::from_f64(1.0 / sum.to_f64())]);
                    pass::<T, V, DivSumByInverse, true>([again, again], y, n, shares);
                }
                SoftmaxKind::LogSoftmax => {
                    let max = largest::<T, V>(self.x);
                    let sum = pass::<T, V, ExpSubMax, false>(from, y, n, [zero, max, zero]).ln();
                    let log = T::from_f64(sum);
                    let rest = T::from_f64(sum - log.to_f64());
                    pass::<T, V, SubMaxLog, true>(from, y, n, [rest, max, log]);
                }
                SoftmaxKind::SoftmaxGrad => {
                    let sum = pass::<T, V, MulGrad, false>(from, y, n, [zero; 3]);
                    pass::<T, V, MulSubSum, true>(from, y, n, [zero, T::from_f64(sum), zero]);
                }
                SoftmaxKind::LogSoftmaxGrad => {
                    let sum = pass::<T, V, Grad, false>(from, y, n, [zero; 3]);
                    pass::<T, V, SubExpMul, true>(from, y, n, [zero, T::from_f64(sum), zero]);
                }
            }
        }
    }
}
