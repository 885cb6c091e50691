//! Softmax, log-softmax and their gradients, a row at a time.
//!
//! The naive form is a kernel each for the maximum, the exponentials, their sum and the quotient:
//! four passes over memory. Here all passes over a row follow one another while it is in L1: its
//! maximum, `exp(x - max)` with the sum, and the quotient. Rows of 16-bit floats are converted one
//! by one. Narrow rows are transposed, some at a time, and computed as columns
//! (`softmax_columns`), which need no exchange between lanes. Next: `softmax_f64`.

use crate::float::Float;
use crate::fused::{Lines, Packed, Row, softmax_columns, softmax_f64};
use crate::scratch::with_scratch;
use crate::simd::{F32s, Level, Work, prefetch_ahead};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::transpose::transpose;
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy, half, vecmath};
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
const FEWEST: usize = 64;
const MOST: usize = 512;

/// How many rows of `length` elements are transposed at a time; none where rows are computed one by
/// one.
fn rows_at_once(length: usize, rows: usize) -> Option<usize> {
    let narrow = length <= NARROW && rows >= 8;
    narrow.then(|| (BLOCK / length.max(1)).clamp(FEWEST, MOST) / FEWEST * FEWEST)
}

/// Whether columns of `inner` elements beside each other are computed where they are.
fn are_columns(dtype: DType, inner: usize) -> bool {
    inner > 1 && softmax_columns::in_place(inner * dtype.compute().size() / 4)
}

/// The row function along `axis` of `x` (and of `g` for the gradients, where `x` is the forward
/// result).
pub(crate) fn rows(
    cpu: &Cpu,
    row: Row,
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
                softmax_columns::columns::<f64>(cpu, row, x_ptr.cast(), g.cast(), y.cast(), sizes);
            } else {
                softmax_columns::columns::<f32>(cpu, row, x_ptr.cast(), g.cast(), y.cast(), sizes);
            }
        }
        drop((xs, gs));
        return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?));
    }
    let mut order: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    order.push(axis);
    let operand = |t: &Tensor| Lines::of(cpu, &View::of(t)?.permuted(&order));
    let (xs, gs) = (operand(x)?, g.map(operand).transpose()?);
    let out = cpu.alloc(n, dtype)?;
    let length = x.shape()[axis];
    if n > 0 {
        let rows = n / length;
        let job = Job { cpu, row, dtype, xs: &xs, gs: gs.as_ref(), to: Shared(out.ptr()), length };
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
    row: Row,
    dtype: DType,
    xs: &'a Lines,
    gs: Option<&'a Lines>,
    to: Shared<u8>,
    length: usize,
}

/// The functions of a compute dtype.
trait Compute: Float {
    /// Computes a row.
    fn row(level: Level, row: Row, x: &[Self], g: &[Self], y: &mut [Self]);
    /// Computes `width` columns of `n` elements that are `step` apart.
    ///
    /// # Safety
    /// All three have these elements.
    unsafe fn columns(level: Level, row: Row, operands: [*mut Self; 3], sizes: [usize; 3]);
}

impl Compute for f32 {
    fn row(level: Level, row: Row, x: &[f32], g: &[f32], y: &mut [f32]) {
        level.run(RowF32 { row, x, g, y });
    }
    unsafe fn columns(level: Level, row: Row, [x, g, y]: [*mut f32; 3], sizes: [usize; 3]) {
        let [n, step, width] = sizes;
        level.run(softmax_columns::Columns { row, x, g, y, n, step, width });
    }
}

impl Compute for f64 {
    fn row(level: Level, row: Row, x: &[f64], g: &[f64], y: &mut [f64]) {
        level.run(softmax_f64::RowF64 { row, x, g, y });
    }
    unsafe fn columns(level: Level, row: Row, [x, g, y]: [*mut f64; 3], sizes: [usize; 3]) {
        let [n, step, width] = sizes;
        level.run(softmax_columns::Columns { row, x, g, y, n, step, width });
    }
}

impl Job<'_> {
    /// The address of row `r` of the result.
    fn result(&self, r: usize) -> *mut u8 {
        self.to.get().wrapping_add(r * self.length * self.dtype.size())
    }

    /// Row by row; those of 16-bit floats are converted to scratch memory of three rows.
    fn each<T: Compute>(&self, rows: Range<usize>) -> Result<()> {
        let (level, n) = (self.cpu.level, self.length);
        if !self.dtype.is_half() {
            for r in rows {
                // SAFETY: rows of n elements; that of the result belongs to this range alone.
                unsafe {
                    let x = slice(self.xs.row(r), n);
                    let g = self.gs.map_or(x, |gs| slice(gs.row(r), n));
                    T::row(level, self.row, x, g, slice_mut(self.result(r), n));
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
                    f32::row(level, self.row, x, g, y);
                    half::from_f32(level, self.dtype, y.as_ptr().cast(), self.result(r), n);
                }
            }
        })
    }

    /// Blocks of narrow rows as columns, in scratch memory of four blocks.
    fn blocks<T: Compute>(&self, rows: Range<usize>, block: usize) -> Result<()> {
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
                    T::columns(level, self.row, [x, g, y], [n, block, width]);
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

    /// Writes rows `first .. first + width` as columns, `pitch` from one element to the next.
    ///
    /// # Safety
    /// They are rows of `from`; `stage` and `to` have memory for `pitch` rows of T, the compute
    /// dtype.
    unsafe fn transpose<T: Compute>(
        &self,
        from: &Lines,
        first: usize,
        width: usize,
        pitch: usize,
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
            transpose(level, rows, n as isize, to, pitch as isize, (n, width), false);
        }
    }
}

struct RowF32<'a> {
    row: Row,
    x: &'a [f32],
    g: &'a [f32],
    y: &'a mut [f32],
}

/// A function of two lanes with the row's constants. A trait and not a closure: a closure may not
/// be inlined, and outside the level's entry function every intrinsic would be a call.
pub(super) trait Lanes<V: F32s>: Copy {
    fn eval(self, a: V, b: V) -> V;
}

macro_rules! lanes {
    ($($(#[$doc:meta])* $name:ident |$first:ident, $second:ident; $a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name<V>(pub V, pub V);
        impl<V: F32s> Lanes<V> for $name<V> {
            #[inline(always)]
            fn eval(self, $a: V, $b: V) -> V {
                let $name($first, $second) = self;
                $body
            }
        }
    )*};
}

lanes! {
    /// `exp(x - max)`
    ExpBelow |max, _c; x, _b| vecmath::exp(x.sub(max));
    /// `x / sum`, rounded as a division, by the inverse of the sum and a correction by the
    /// remainder (Markstein 1990): a third of a division's time.
    Share |sum, inverse; x, _b| if V::FUSED {
        let y = x.mul(inverse);
        y.xor_sign(V::splat(-0.0)).fma(sum, x).fma(inverse, y)
    } else {
        x.div(sum)
    };
    /// `y g`
    Product |_c, _d; y, g| y.mul(g);
    /// `y (g - sum)`
    Centred |sum, _c; y, g| y.mul(g.sub(sum));
    /// `g`
    Plain |_c, _d; g, _b| g;
    /// `g - exp(y) sum`
    LessExp |sum, _c; y, g| g.sub(vecmath::exp(y).mul(sum));
}

/// `x - max - log(sum)`, the logarithm as the sum of two numbers: rounded to one, it would shift a
/// whole row by up to half a unit in its last place.
#[derive(Clone, Copy)]
struct Below<V> {
    max: V,
    log: V,
    rest: V,
}
impl<V: F32s> Lanes<V> for Below<V> {
    #[inline(always)]
    fn eval(self, x: V, _: V) -> V {
        x.sub(self.max).sub(self.rest).sub(self.log)
    }
}

/// Terms that a lane adds in one chain, and sums of such chains that it adds before they go on in
/// f64.
const TERMS: usize = 8;
const CHAINS: usize = 4;

/// `y[i] = f(a[i], b[i])` by vectors with a masked tail; the sum of all y. Of 32 vectors the sum is
/// of f32, within 14 units of roundoff of Σ |y|, and these sums are added in f64, so that rows of
/// any length have that error.
#[inline(always)]
pub(super) fn pass<V: F32s>(a: &[f32], b: &[f32], y: Option<&mut [f32]>, f: impl Lanes<V>) -> f64 {
    let n = a.len().min(b.len()).min(y.as_ref().map_or(usize::MAX, |y| y.len()));
    let y = y.map(|y| y.as_mut_ptr());
    let (mut total, mut i) = (0.0, 0);
    while i < n {
        let end = n.min(i + CHAINS * TERMS * V::LANES);
        let mut sums = V::splat(0.0);
        while i < end {
            let stop = end.min(i + TERMS * V::LANES);
            let mut sum = V::splat(0.0);
            // SAFETY: reads and writes stay below n, up to which all slices reach; a part is what
            // is left.
            unsafe {
                while i + V::LANES <= stop {
                    let v = f.eval(V::load(a.as_ptr().add(i)), V::load(b.as_ptr().add(i)));
                    if let Some(y) = y {
                        v.store(y.add(i));
                    }
                    sum = sum.add(v);
                    i += V::LANES;
                }
                if i < stop {
                    let left = stop - i;
                    let v = f.eval(
                        V::load_part(a.as_ptr().add(i), left),
                        V::load_part(b.as_ptr().add(i), left),
                    );
                    if let Some(y) = y {
                        v.store_part(y.add(i), left);
                    }
                    sum = sum.add(v.part(left));
                    i = stop;
                }
            }
            sums = sums.add(sum);
        }
        total += f64::from(sums.total());
    }
    total
}

/// The largest element that is not NaN: a NaN makes every sum of exponentials NaN anyway. Four
/// vectors, so that comparing is not one chain of latencies.
#[inline(always)]
pub(super) fn largest<V: F32s>(x: &[f32]) -> f32 {
    const VECTORS: usize = 4;
    let lowest = V::splat(f32::NEG_INFINITY);
    let mut best = [lowest; VECTORS];
    let (mut i, n) = (0, x.len());
    // SAFETY: loads end at or before n.
    unsafe {
        while i + VECTORS * V::LANES <= n {
            prefetch_ahead(&x[i..i + VECTORS * V::LANES]);
            for (j, best) in best.iter_mut().enumerate() {
                // max returns the second operand if either is NaN.
                *best = V::load(x.as_ptr().add(i + j * V::LANES)).max(*best);
            }
            i += VECTORS * V::LANES;
        }
        while i + V::LANES <= n {
            best[0] = V::load(x.as_ptr().add(i)).max(best[0]);
            i += V::LANES;
        }
    }
    let mut tail = f32::NEG_INFINITY;
    if i < n && n >= V::LANES {
        // SAFETY: the last vector of the row; some elements are compared twice.
        best[1] = unsafe { V::load(x.as_ptr().add(n - V::LANES)) }.max(best[1]);
        i = n;
    }
    while i < n {
        tail = if x[i] > tail { x[i] } else { tail };
        i += 1;
    }
    best[1] = V::splat(tail).max(best[1]);
    best[0].max(best[1]).max(best[2].max(best[3])).largest()
}

impl Work for RowF32<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let RowF32 { row, x, g, y } = self;
        match row {
            Row::Softmax => {
                let max = V::splat(largest::<V>(x));
                let sum = pass::<V>(x, x, Some(y), ExpBelow(max, max)) as f32;
                // Dividing, not multiplying by the inverse: rows sum to one as nearly as core's
                // definition does.
                let share = Share(V::splat(sum), V::splat(1.0 / sum));
                let mut i = 0;
                // SAFETY: one vector inside y at a time.
                unsafe {
                    while i + V::LANES <= y.len() {
                        let p = y.as_mut_ptr().add(i);
                        let v = V::load(p);
                        share.eval(v, v).store(p);
                        i += V::LANES;
                    }
                }
                y[i..].iter_mut().for_each(|y| *y /= sum);
            }
            Row::LogSoftmax => {
                let max = V::splat(largest::<V>(x));
                let sum = pass::<V>(x, x, None, ExpBelow(max, max)).ln();
                let (log, rest) = (sum as f32, (sum - f64::from(sum as f32)) as f32);
                pass::<V>(x, x, Some(y), Below { max, log: V::splat(log), rest: V::splat(rest) });
            }
            Row::SoftmaxGrad => {
                let sum =
                    V::splat(pass::<V>(x, g, None, Product(V::splat(1.0), V::splat(1.0))) as f32);
                pass::<V>(x, g, Some(y), Centred(sum, sum));
            }
            Row::LogSoftmaxGrad => {
                let sum =
                    V::splat(pass::<V>(g, g, None, Plain(V::splat(1.0), V::splat(1.0))) as f32);
                pass::<V>(x, g, Some(y), LessExp(sum, sum));
            }
        }
    }
}
