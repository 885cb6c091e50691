//! Layer and root mean square normalisation, and the gradient for their input, a row at a time.
//!
//! The naive form is `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` with a kernel for each
//! operation. Here all passes over a row follow one another, and all except the first read L1.
//!
//! Mean and variance are two passes, not one: the difference of two large sums would lose the
//! variance of rows far from zero. In f32 the rounding error of the mean is subtracted as well. Rows
//! whose variance or gradient sums leave the range of f32 are computed again in f64
//! ([`NormRow::in_f64`]). The gradients of weight and bias are not here. Rows of 16-bit floats are
//! converted a few at a time; f32 and f64 have the same loops.

use super::{Norm, Packed, StoredRows};
use crate::float::{Number, Vector};
use crate::scratch::with_scratch;
use crate::simd::{F32s, Lanes, Work};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::typed::{slice, slice_mut};
use crate::{Cpu, half};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Tensor};

/// Elements per range, at least.
const CHUNK: usize = 8 << 10;

/// Elements of 16 bits of neighbouring short rows that are converted at a time.
const BATCH: usize = 4 << 10;

/// Accumulators of a sum: as many as hide the latency of an addition.
const CHAINS: usize = 4;
/// Terms that a lane of an accumulator adds before the sum goes on in f64. Sums are within 22
/// units of roundoff of the sum of magnitudes, whatever the length of the row.
const TERMS: usize = 16;
/// Variances with eps below this may miss squares that are too small for f32.
const MIN_VARIANCE: f64 = 1e-30;

/// The function of a row x with weight w: the normalised row plus a bias, or the gradient for x
/// from that of the result.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Gradient,
}

/// The normalised rows of `x` times `weight`, plus `bias`.
pub(crate) fn forward(
    cpu: &Cpu,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<StorageRef> {
    rows(cpu, Direction::Forward, norm, x, weight, bias, eps)
}

/// The gradient of [`forward`] for `x`, where `g` is that of its result.
pub(crate) fn gradient(
    cpu: &Cpu,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    g: &Tensor,
    eps: f64,
) -> Result<StorageRef> {
    rows(cpu, Direction::Gradient, norm, x, weight, Some(g), eps)
}

/// `second` is the bias, of one row, or the gradient, of x's shape.
fn rows(
    cpu: &Cpu,
    pass: Direction,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    second: Option<&Tensor>,
    eps: f64,
) -> Result<StorageRef> {
    let (dtype, n) = (x.dtype(), x.numel());
    let length = x.shape()[x.ndim() - 1];
    let packed = |t: &Tensor| Packed::of(cpu, &View::of(t)?);
    let rows = |t: &Tensor| StoredRows::of(cpu, &View::of(t)?);
    let (xs, weight) = (rows(x)?, weight.map(packed).transpose()?);
    let (bias, gs) = match pass {
        Direction::Forward => (second.map(packed).transpose()?, None),
        Direction::Gradient => (None, second.map(rows).transpose()?),
    };
    let out = cpu.alloc(n, dtype)?;
    if n > 0 {
        let (to, job) = (Shared(out.ptr()), Job { cpu, pass, norm, eps, length });
        let (weight, bias) = (weight.as_ref().map(Packed::ptr), bias.as_ref().map(Packed::ptr));
        // Addresses that every range reads.
        let [weight, bias] = [weight, bias].map(|p| p.map(|p| Shared(p.cast_mut())));
        try_for_each_range(n / length, CHUNK / length, |rows| {
            let constant = |p: Option<Shared<u8>>| p.map(|p| p.get().cast_const());
            let (w, bias) = (constant(weight), constant(bias));
            let y = |r: usize| to.get().wrapping_add(r * length * dtype.size());
            // SAFETY: rows of operands that hold n elements (weight and bias: one row), and of the
            // output, which this range alone writes; the scratch memory has rows of this length.
            unsafe {
                if !dtype.is_half() {
                    for r in rows {
                        let b = gs.as_ref().map(|gs| gs.row(r)).or(bias);
                        job.row(dtype, xs.row(r), w, b, y(r));
                    }
                    return Ok(());
                }
                let batch = if xs.is_packed() { (BATCH / length).max(1) } else { 1 };
                let size = batch * length;
                let sizes = [size, size, if gs.is_some() { size } else { 0 }];
                with_scratch::<f32, _, 3>(cpu, sizes, |[x, wide, g]| {
                    let [x, wide, g] = [x, wide, g].map(|row| row.as_mut_ptr().cast::<u8>());
                    for first in rows.clone().step_by(batch) {
                        let count = batch.min(rows.end - first);
                        let n = count * length;
                        half::to_f32(cpu.level, dtype, xs.row(first), x, n);
                        for r in 0..count {
                            let at = 4 * r * length;
                            if let Some(gs) = &gs {
                                let g = g.add(at);
                                half::to_f32(cpu.level, dtype, gs.row(first + r), g, length);
                            }
                            let b = if gs.is_some() { Some(g.add(at).cast_const()) } else { bias };
                            job.row(DType::F32, x.add(at), w, b, wide.add(at));
                        }
                        half::from_f32(cpu.level, dtype, wide, y(first), n);
                    }
                })
            }
        })?;
    }
    Ok(Arc::new(out))
}

/// What all rows have in common.
struct Job<'a> {
    cpu: &'a Cpu,
    pass: Direction,
    norm: Norm,
    eps: f64,
    length: usize,
}

impl Job<'_> {
    /// One row of `dtype`, f32 or f64; `b` is the bias or the gradient.
    ///
    /// # Safety
    /// All operands have a row; the result has no other owner.
    unsafe fn row(
        &self,
        dtype: DType,
        x: *const u8,
        w: Option<*const u8>,
        b: Option<*const u8>,
        y: *mut u8,
    ) {
        // SAFETY: by contract.
        unsafe {
            if dtype == DType::F64 {
                self.run::<f64>(x, w, b, y)
            } else {
                self.run::<f32>(x, w, b, y)
            }
        }
    }

    /// # Safety
    /// As [`Job::row`].
    unsafe fn run<T: Number>(
        &self,
        x: *const u8,
        w: Option<*const u8>,
        b: Option<*const u8>,
        y: *mut u8,
    ) {
        let Job { cpu, pass, norm, eps, length } = *self;
        // SAFETY: by contract.
        unsafe {
            let line = |p| slice::<T>(p, length);
            let (w, b) = (w.map(line), b.map(line));
            cpu.level.run(NormRow { pass, norm, x: line(x), w, b, y: slice_mut(y, length), eps });
        }
    }
}

/// One row.
struct NormRow<'a, T> {
    pass: Direction,
    norm: Norm,
    x: &'a [T],
    /// The weight; ones if there is none.
    w: Option<&'a [T]>,
    /// The bias or the gradient.
    b: Option<&'a [T]>,
    y: &'a mut [T],
    eps: f64,
}

impl<T: Number> NormRow<'_, T> {
    /// In f64: for rows whose squares or sums are outside the range of f32.
    #[cold]
    #[inline(never)]
    fn in_f64(self) {
        let NormRow { pass, norm, x, w, b, y, eps } = self;
        let n = x.len() as f64;
        let x = |i: usize| x[i].to_f64();
        let sum = |f: &dyn Fn(usize) -> f64| (0..y.len()).map(f).sum::<f64>();
        let mean = if norm == Norm::Layer { sum(&x) / n } else { 0.0 };
        let variance = sum(&|i| (x(i) - mean) * (x(i) - mean)) / n;
        let scale = 1.0 / (variance + eps).sqrt();
        let weight = |i: usize| w.map_or(1.0, |w| w[i].to_f64());
        let second = |i: usize| b.map_or(0.0, |b| b[i].to_f64());
        match pass {
            Direction::Forward => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = T::from_f64((x(i) - mean) * scale * weight(i) + second(i));
                }
            }
            Direction::Gradient => {
                let shift =
                    if norm == Norm::Layer { sum(&|i| second(i) * weight(i)) / n } else { 0.0 };
                let along = sum(&|i| second(i) * weight(i) * (x(i) - mean) * scale) / n;
                for (i, y) in y.iter_mut().enumerate() {
                    let h = (x(i) - mean) * scale;
                    *y = T::from_f64(scale * (second(i) * weight(i) - shift - h * along));
                }
            }
        }
    }
}

/// A function of one vector each of x, w and b; not a closure for the reason given in `terms`.
trait Function<T, D: Lanes<T>>: Copy {
    fn eval(self, x: D, w: D, b: D) -> D;
}

/// x
#[derive(Clone, Copy)]
struct Identity;
/// `(x - mean)²`: less the mean
#[derive(Clone, Copy)]
struct Squared<D>(D);
/// `(x - mean) scale w + b`: less the mean in two parts, scale
#[derive(Clone, Copy)]
struct Normal<D>([D; 2], D);
/// `scale (b w - shift - (x - mean) scale along)`: less the mean in two parts, scale, less shift,
/// less along
#[derive(Clone, Copy)]
struct Gradient<D>([D; 2], D, D, D);

impl<T, D: Lanes<T>> Function<T, D> for Identity {
    #[inline(always)]
    fn eval(self, x: D, _: D, _: D) -> D {
        x
    }
}
impl<T, D: Lanes<T>> Function<T, D> for Squared<D> {
    #[inline(always)]
    fn eval(self, x: D, _: D, _: D) -> D {
        let centred = x.add(self.0);
        centred.mul(centred)
    }
}
impl<T, D: Lanes<T>> Function<T, D> for Normal<D> {
    #[inline(always)]
    fn eval(self, x: D, w: D, b: D) -> D {
        let [mean, off] = self.0;
        x.add(mean).add(off).mul(self.1).mul(w).add(b)
    }
}
impl<T, D: Lanes<T>> Function<T, D> for Gradient<D> {
    #[inline(always)]
    fn eval(self, x: D, w: D, b: D) -> D {
        let Gradient([mean, off], scale, shift, along) = self;
        let h = x.add(mean).add(off).mul(scale);
        scale.mul(b.mul(w).add(shift).add(h.mul(along)))
    }
}

/// The vector of `x` at `i`, or the first `len` lanes of it.
///
/// # Safety
/// `len` values must be readable.
#[inline(always)]
unsafe fn load<T: Number, D: Lanes<T>>(x: Option<&[T]>, i: usize, len: usize, missing: T) -> D {
    let Some(x) = x else { return D::splat(missing) };
    // SAFETY: the caller's.
    unsafe { D::load_up_to(x.as_ptr().add(i), len) }
}

/// The sum of all lanes of the chains.
#[inline(always)]
fn together<T: Number, D: Lanes<T>>([a, b, c, d]: [D; CHAINS]) -> f64 {
    a.add(b).add(c.add(d)).total().to_f64()
}

impl<T: Number> NormRow<'_, T> {
    #[inline(always)]
    fn at<D: Lanes<T>>(&self, i: usize, len: usize, f: impl Function<T, D>) -> D {
        // SAFETY: all operands have x's length.
        unsafe {
            f.eval(
                load(Some(self.x), i, len, T::ZERO),
                load(self.w, i, len, T::ONE),
                load(self.b, i, len, T::ZERO),
            )
        }
    }

    /// The sum of `f` over the row: of parts in four chains of vectors and over their lanes, of
    /// these sums in f64.
    #[inline(always)]
    fn sum<V: F32s>(&self, f: impl Function<T, Vector<T, V>>) -> f64 {
        let (n, lanes) = (self.x.len(), Vector::<T, V>::LANES);
        let (mut total, mut i) = (0.0, 0);
        while i < n {
            let end = n.min(i + TERMS * CHAINS * lanes);
            let mut sums = [Vector::<T, V>::splat(T::ZERO); CHAINS];
            while i + CHAINS * lanes <= end {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.add(self.at(i + j * lanes, lanes, f));
                }
                i += CHAINS * lanes;
            }
            while i + lanes <= end {
                sums[0] = sums[0].add(self.at(i, lanes, f));
                i += lanes;
            }
            if i < end {
                sums[1] = sums[1].add(T::part::<V>(self.at(i, end - i, f), end - i));
                i = end;
            }
            total += together(sums);
        }
        total
    }

    /// Adds the terms of [`NormRow::gradient_sums`] of one vector, or of its first `count` lanes.
    #[inline(always)]
    fn add_gradient_terms<V: F32s>(
        &self,
        sums: &mut [Vector<T, V>; 4],
        minus_mean: Vector<T, V>,
        i: usize,
        count: usize,
    ) {
        // SAFETY: all operands have x's length.
        let [x, w, b]: [Vector<T, V>; 3] = unsafe {
            [
                load(Some(self.x), i, count, T::ZERO),
                load(self.w, i, count, T::ONE),
                load(self.b, i, count, T::ZERO),
            ]
        };
        // There is a gradient, whose other lanes are 0.
        let (mut c, weighed) = (x.add(minus_mean), b.mul(w));
        if count < Vector::<T, V>::LANES {
            c = T::part::<V>(c, count);
        }
        sums[0] = sums[0].add(c);
        sums[1] = sums[1].add(c.mul(c));
        sums[2] = sums[2].add(weighed);
        sums[3] = sums[3].add(weighed.mul(c));
    }

    /// The sums of c, c², b w and b w c over the row, where c is `x - mean`: all that the gradient
    /// needs, in one pass.
    #[inline(always)]
    fn gradient_sums<V: F32s>(&self, minus_mean: Vector<T, V>) -> [f64; 4] {
        const CHAINS: usize = 2;
        let (n, lanes) = (self.x.len(), Vector::<T, V>::LANES);
        let (mut totals, mut i) = ([0.0; 4], 0);
        while i < n {
            let end = n.min(i + TERMS * CHAINS * lanes);
            let zero = Vector::<T, V>::splat(T::ZERO);
            let (mut first, mut second) = ([zero; 4], [zero; 4]);
            while i + 2 * lanes <= end {
                self.add_gradient_terms::<V>(&mut first, minus_mean, i, lanes);
                self.add_gradient_terms::<V>(&mut second, minus_mean, i + lanes, lanes);
                i += 2 * lanes;
            }
            if i + lanes <= end {
                self.add_gradient_terms::<V>(&mut first, minus_mean, i, lanes);
                i += lanes;
            }
            if i < end {
                self.add_gradient_terms::<V>(&mut second, minus_mean, i, end - i);
                i = end;
            }
            for (j, total) in totals.iter_mut().enumerate() {
                *total += first[j].add(second[j]).total().to_f64();
            }
        }
        totals
    }

    /// The sums of `x - mean` and of its square over the row.
    #[inline(always)]
    fn deviations<V: F32s>(&self, minus_mean: Vector<T, V>) -> [f64; 2] {
        let (x, n, lanes) = (self.x.as_ptr(), self.x.len(), Vector::<T, V>::LANES);
        let (mut totals, mut i) = ([0.0; 2], 0);
        while i < n {
            let end = n.min(i + TERMS * CHAINS * lanes);
            let zero = Vector::<T, V>::splat(T::ZERO);
            let (mut sums, mut squares) = ([zero; CHAINS], [zero; CHAINS]);
            // SAFETY: loads end at n.
            unsafe {
                while i + CHAINS * lanes <= end {
                    for j in 0..CHAINS {
                        let centred = Vector::<T, V>::load(x.add(i + j * lanes)).add(minus_mean);
                        sums[j] = sums[j].add(centred);
                        squares[j] = squares[j].add(centred.mul(centred));
                    }
                    i += CHAINS * lanes;
                }
                while i < end {
                    let count = lanes.min(end - i);
                    let mut centred = Vector::<T, V>::load_up_to(x.add(i), count).add(minus_mean);
                    if count < lanes {
                        centred = T::part::<V>(centred, count);
                    }
                    sums[0] = sums[0].add(centred);
                    squares[0] = squares[0].add(centred.mul(centred));
                    i += count;
                }
            }
            totals[0] += together(sums);
            totals[1] += together(squares);
        }
        totals
    }

    #[inline(always)]
    fn write<V: F32s>(self, f: impl Function<T, Vector<T, V>>) {
        let (n, lanes) = (self.x.len(), Vector::<T, V>::LANES);
        let mut i = 0;
        while i + lanes <= n {
            // SAFETY: y has x's length.
            unsafe { self.at(i, lanes, f).store(self.y.as_mut_ptr().add(i)) };
            i += lanes;
        }
        if i < n {
            // SAFETY: as above.
            unsafe { self.at(i, n - i, f).store_part(self.y.as_mut_ptr().add(i), n - i) };
        }
    }
}

impl<T: Number> Work for NormRow<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.x.len() as f64;
        let layer = self.norm == Norm::Layer;
        let mean = if layer { T::from_f64(self.sum::<V>(Identity) / n) } else { T::ZERO };
        let minus_mean = splat::<T, V>(-mean.to_f64());
        // The rounding error of an f32 mean is subtracted apart: far from zero it is as large as the
        // deviations, and a row of equal numbers leaves no remainder.
        let is_single = size_of::<T>() == 4;
        let [off, squares, weighed, along] = match (self.pass, layer) {
            (Direction::Gradient, _) => self.gradient_sums::<V>(minus_mean),
            (Direction::Forward, true) if is_single => {
                let [off, squares] = self.deviations::<V>(minus_mean);
                [off, squares, 0.0, 0.0]
            }
            (Direction::Forward, _) => [0.0, self.sum::<V>(Squared(minus_mean)), 0.0, 0.0],
        };
        let off = if layer { off / n } else { 0.0 };
        let mut variance = squares / n;
        if variance.is_finite() {
            variance -= off * off;
        }
        if variance < 0.0 {
            variance = 0.0; // by rounding; NaN stays NaN
        }
        // Squares too large or too small for f32, infinities and NaN.
        let power = variance + self.eps;
        if is_single && !(MIN_VARIANCE..=f64::from(f32::MAX)).contains(&power) {
            return self.in_f64();
        }
        let exact = 1.0 / power.sqrt();
        let (mean, scale) = ([minus_mean, splat::<T, V>(-off)], splat::<T, V>(exact));
        match self.pass {
            Direction::Forward => self.write::<V>(Normal(mean, scale)),
            Direction::Gradient => {
                let shift = if layer { weighed / n } else { 0.0 };
                let along = (along - off * weighed) * exact / n;
                if is_single && !(shift.is_finite() && along.is_finite()) {
                    return self.in_f64();
                }
                let (shift, along) = (splat::<T, V>(-shift), splat::<T, V>(-along));
                self.write::<V>(Gradient(mean, scale, shift, along));
            }
        }
    }
}

/// All lanes the number nearest to `x`.
#[inline(always)]
fn splat<T: Number, V: F32s>(x: f64) -> Vector<T, V> {
    Vector::<T, V>::splat(T::from_f64(x))
}
