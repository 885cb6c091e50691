//! Softmax, log-softmax and their gradients, a row at a time.
//!
//! The naive form is a kernel each for the maximum, the exponentials, their sum and the quotient:
//! four passes over memory. Here all passes over a row follow one another while it is in L1: its
//! maximum, `exp(x - max)` with the sum, and the quotient.

use crate::fused::{Packed, Row, softmax_columns};
use crate::simd::{F32s, Level, Work, for_pairs, prefetch_ahead};
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::typed::{slice, slice_mut};
use crate::{Cpu, copy, vecmath};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Layout, Result, Tensor};

/// Elements per range, at least.
const CHUNK: usize = 8 << 10;

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
    if n > 0 && inner > 1 && dtype.compute() == DType::F32 && softmax_columns::in_place(inner) {
        let packed = |t: &Tensor| Packed::of(cpu, &View::of(t)?);
        let (xs, gs) = (packed(x)?, g.map(packed).transpose()?);
        let out = cpu.alloc(n, DType::F32)?;
        let g = gs.as_ref().unwrap_or(&xs).ptr().cast();
        let sizes = [n / x.shape()[axis] / inner, x.shape()[axis], inner];
        // SAFETY: all hold n elements; the output has no other owner.
        unsafe {
            let (x, y) = (xs.ptr().cast(), out.ptr().cast());
            softmax_columns::columns(cpu, row, x, g, y, sizes);
        }
        drop((xs, gs));
        return Ok(Arc::new(copy::cast_to_storage(cpu, out, n, dtype)?));
    }
    let mut order: Vec<usize> = (0..x.ndim()).filter(|&a| a != axis).collect();
    order.push(axis);
    let operand = |t: &Tensor| Packed::of(cpu, &View::of(t)?.permuted(&order));
    let (xs, gs) = (operand(x)?, operand(g.unwrap_or(x))?);
    let out = cpu.alloc(n, dtype.compute())?;
    let to = Shared(out.ptr());
    let length = x.shape()[axis];
    if n > 0 {
        for_each_range(n / length, CHUNK / length, |rows| {
            for r in rows {
                // SAFETY: row r of operands that hold n elements, and of the output, which this
                // range alone writes.
                unsafe {
                    let start = r * length * dtype.compute().size();
                    let at = |p: &Packed| p.ptr().add(start);
                    let y = to.get().add(start);
                    if dtype == DType::F64 {
                        row_f64(
                            row,
                            slice(at(&xs), length),
                            slice(at(&gs), length),
                            slice_mut(y, length),
                        );
                    } else {
                        row_f32(
                            cpu.level,
                            row,
                            slice(at(&xs), length),
                            slice(at(&gs), length),
                            slice_mut(y, length),
                        );
                    }
                }
            }
        });
    }
    drop((xs, gs));
    let out = copy::cast_to_storage(cpu, out, n, dtype)?;
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

/// The largest element, NaN if any is.
pub(super) fn largest_f64(x: &[f64]) -> f64 {
    x.iter().fold(f64::NEG_INFINITY, |m, &v| if v > m || v.is_nan() { v } else { m })
}

fn row_f64(row: Row, x: &[f64], g: &[f64], y: &mut [f64]) {
    let max = largest_f64(x);
    match row {
        Row::Softmax => {
            let mut sum = 0.0;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = (x - max).exp();
                sum += *y;
            }
            y.iter_mut().for_each(|y| *y /= sum);
        }
        Row::LogSoftmax => {
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x - max - sum.ln());
        }
        Row::SoftmaxGrad => {
            let sum: f64 = x.iter().zip(g).map(|(y, g)| y * g).sum();
            y.iter_mut().zip(x).zip(g).for_each(|((out, y), g)| *out = y * (g - sum));
        }
        Row::LogSoftmaxGrad => {
            let sum: f64 = g.iter().sum();
            y.iter_mut().zip(x).zip(g).for_each(|((out, y), g)| *out = g - y.exp() * sum);
        }
    }
}

fn row_f32(level: Level, row: Row, x: &[f32], g: &[f32], y: &mut [f32]) {
    level.run(RowF32 { row, x, g, y });
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
    Share |sum, inverse; x, _b| if V::NATIVE {
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
    // SAFETY: loads end below n or are of the lanes, which are one widest vector.
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
        if i < n {
            let mut lanes = [f32::NEG_INFINITY; 16];
            for_pairs(&mut lanes, &x[i..], |lane, x| *lane = x);
            best[1] = V::load(lanes.as_ptr()).max(best[1]);
        }
    }
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
