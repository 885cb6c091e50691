//! Layer and root mean square normalisation, and the gradient for their input, a row at a time.
//!
//! The naive form is `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` with a kernel for each
//! operation. Here all passes over a row follow one another, and all except the first read L1.
//!
//! Mean and variance are two passes, not one: the difference of two large sums would lose the
//! variance of rows far from zero. Rows of 16-bit floats are converted a few at a time.

use crate::fused::{Lines, Norm, Packed};
use crate::scratch::with_scratch;
use crate::simd::{F32s, Work};
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
const LEAST: f64 = 1e-30;

/// The function of a row x with weight w: the normalised row plus a bias, or the gradient for x
/// from that of the result.
#[derive(Clone, Copy)]
pub(super) enum Pass {
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
    rows(cpu, Pass::Forward, norm, x, weight, bias, eps)
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
    rows(cpu, Pass::Gradient, norm, x, weight, Some(g), eps)
}

/// `second` is the bias, of one row, or the gradient, of x's shape.
fn rows(
    cpu: &Cpu,
    pass: Pass,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    second: Option<&Tensor>,
    eps: f64,
) -> Result<StorageRef> {
    let (dtype, n) = (x.dtype(), x.numel());
    let length = x.shape()[x.ndim() - 1];
    let packed = |t: &Tensor| Packed::of(cpu, &View::of(t)?);
    let lines = |t: &Tensor| Lines::of(cpu, &View::of(t)?);
    let (xs, weight) = (lines(x)?, weight.map(packed).transpose()?);
    let (bias, gs) = match pass {
        Pass::Forward => (second.map(packed).transpose()?, None),
        Pass::Gradient => (None, second.map(lines).transpose()?),
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
    pass: Pass,
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
    unsafe fn run<'r, T: 'r>(
        &self,
        x: *const u8,
        w: Option<*const u8>,
        b: Option<*const u8>,
        y: *mut u8,
    ) where
        Row<'r, T>: Work,
    {
        let Job { cpu, pass, norm, eps, length } = *self;
        // SAFETY: by contract.
        unsafe {
            let line = |p| slice::<T>(p, length);
            let (w, b) = (w.map(line), b.map(line));
            cpu.level.run(Row { pass, norm, x: line(x), w, b, y: slice_mut(y, length), eps });
        }
    }
}

/// One row: of f32 for vectors, of f64 for plain loops.
pub(super) struct Row<'a, T> {
    pub pass: Pass,
    pub norm: Norm,
    pub x: &'a [T],
    /// The weight; ones if there is none.
    pub w: Option<&'a [T]>,
    /// The bias or the gradient.
    pub b: Option<&'a [T]>,
    pub y: &'a mut [T],
    pub eps: f64,
}

impl Row<'_, f32> {
    /// In f64: for rows whose squares or sums are outside the range of f32.
    #[cold]
    #[inline(never)]
    fn plain(self) {
        let Row { pass, norm, x, w, b, y, eps } = self;
        let n = x.len() as f64;
        let x = |i: usize| f64::from(x[i]);
        let sum = |f: &dyn Fn(usize) -> f64| (0..y.len()).map(f).sum::<f64>();
        let mean = if norm == Norm::Layer { sum(&x) / n } else { 0.0 };
        let variance = sum(&|i| (x(i) - mean) * (x(i) - mean)) / n;
        let scale = 1.0 / (variance + eps).sqrt();
        let weight = |i: usize| w.map_or(1.0, |w| f64::from(w[i]));
        let second = |i: usize| b.map_or(0.0, |b| f64::from(b[i]));
        match pass {
            Pass::Forward => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = ((x(i) - mean) * scale * weight(i) + second(i)) as f32;
                }
            }
            Pass::Gradient => {
                let shift =
                    if norm == Norm::Layer { sum(&|i| second(i) * weight(i)) / n } else { 0.0 };
                let along = sum(&|i| second(i) * weight(i) * (x(i) - mean) * scale) / n;
                for (i, y) in y.iter_mut().enumerate() {
                    let h = (x(i) - mean) * scale;
                    *y = (scale * (second(i) * weight(i) - shift - h * along)) as f32;
                }
            }
        }
    }
}

/// A function of one vector each of x, w and b; not a closure for the reason given at `Lanes` of
/// softmax.
trait Lanes<V: F32s>: Copy {
    fn eval(self, x: V, w: V, b: V) -> V;
}

/// x
#[derive(Clone, Copy)]
struct Plain;
/// `x - mean`
#[derive(Clone, Copy)]
struct Centred<V>(V);
/// `(x - mean)²`
#[derive(Clone, Copy)]
struct Squared<V>(V);
/// `b w`
#[derive(Clone, Copy)]
struct Weighed;
/// `(x - mean) scale w + b`: the mean in two parts, scale
#[derive(Clone, Copy)]
struct Normal<V>([V; 2], V);
/// `scale (b w - shift - (x - mean) scale along)`: the mean in two parts, scale, shift, along
#[derive(Clone, Copy)]
struct Gradient<V>([V; 2], V, V, V);

impl<V: F32s> Lanes<V> for Plain {
    #[inline(always)]
    fn eval(self, x: V, _: V, _: V) -> V {
        x
    }
}
impl<V: F32s> Lanes<V> for Centred<V> {
    #[inline(always)]
    fn eval(self, x: V, _: V, _: V) -> V {
        x.sub(self.0)
    }
}
impl<V: F32s> Lanes<V> for Squared<V> {
    #[inline(always)]
    fn eval(self, x: V, _: V, _: V) -> V {
        let centred = x.sub(self.0);
        centred.mul(centred)
    }
}
impl<V: F32s> Lanes<V> for Weighed {
    #[inline(always)]
    fn eval(self, _: V, w: V, b: V) -> V {
        b.mul(w)
    }
}
impl<V: F32s> Lanes<V> for Normal<V> {
    #[inline(always)]
    fn eval(self, x: V, w: V, b: V) -> V {
        let [mean, off] = self.0;
        x.sub(mean).sub(off).mul(self.1).mul(w).add(b)
    }
}
impl<V: F32s> Lanes<V> for Gradient<V> {
    #[inline(always)]
    fn eval(self, x: V, w: V, b: V) -> V {
        let Gradient([mean, off], scale, shift, along) = self;
        let h = x.sub(mean).sub(off).mul(scale);
        scale.mul(b.mul(w).sub(shift).sub(h.mul(along)))
    }
}

/// The vector of `x` at `i`, or the first `len` lanes of it.
///
/// # Safety
/// `len` values must be readable.
#[inline(always)]
unsafe fn load<V: F32s>(x: Option<&[f32]>, i: usize, len: usize, missing: f32) -> V {
    let Some(x) = x else { return V::splat(missing) };
    if len == V::LANES {
        // SAFETY: the caller's.
        return unsafe { V::load(x.as_ptr().add(i)) };
    }
    // SAFETY: the caller's.
    unsafe { V::load_part(x.as_ptr().add(i), len) }
}

/// The sum of all lanes of the chains.
#[inline(always)]
fn together<V: F32s>([a, b, c, d]: [V; CHAINS]) -> f64 {
    f64::from(a.add(b).add(c.add(d)).total())
}

impl Row<'_, f32> {
    #[inline(always)]
    fn at<V: F32s>(&self, i: usize, len: usize, f: impl Lanes<V>) -> V {
        // SAFETY: all operands have x's length.
        unsafe {
            f.eval(
                load(Some(self.x), i, len, 0.0),
                load(self.w, i, len, 1.0),
                load(self.b, i, len, 0.0),
            )
        }
    }

    /// The sum of `f` over the row: of parts in four chains of vectors and over their lanes, of
    /// these sums in f64.
    #[inline(always)]
    fn sum<V: F32s>(&self, f: impl Lanes<V>) -> f64 {
        let n = self.x.len();
        let (mut total, mut i) = (0.0, 0);
        while i < n {
            let end = n.min(i + TERMS * CHAINS * V::LANES);
            let mut sums = [V::splat(0.0); CHAINS];
            while i + CHAINS * V::LANES <= end {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.add(self.at(i + j * V::LANES, V::LANES, f));
                }
                i += CHAINS * V::LANES;
            }
            while i + V::LANES <= end {
                sums[0] = sums[0].add(self.at(i, V::LANES, f));
                i += V::LANES;
            }
            if i < end {
                sums[1] = sums[1].add(self.at::<V>(i, end - i, f).part(end - i));
                i = end;
            }
            total += together(sums);
        }
        total
    }

    /// Adds the terms of [`Row::gradient_sums`] of one vector, or of its first `count` lanes.
    #[inline(always)]
    fn add_gradient_terms<V: F32s>(&self, sums: &mut [V; 4], mean: V, i: usize, count: usize) {
        let (mut c, mut weighed) = (self.at(i, count, Centred(mean)), self.at(i, count, Weighed));
        if count < V::LANES {
            (c, weighed) = (c.part(count), V::part(weighed, count));
        }
        sums[0] = sums[0].add(c);
        sums[1] = sums[1].add(c.mul(c));
        sums[2] = sums[2].add(weighed);
        sums[3] = sums[3].add(weighed.mul(c));
    }

    /// The sums of c, c², b w and b w c over the row, where c is `x - mean`: all that the gradient
    /// needs, in one pass.
    #[inline(always)]
    fn gradient_sums<V: F32s>(&self, mean: V) -> [f64; 4] {
        const CHAINS: usize = 2;
        let n = self.x.len();
        let (mut totals, mut i) = ([0.0; 4], 0);
        while i < n {
            let end = n.min(i + TERMS * CHAINS * V::LANES);
            let zero = V::splat(0.0);
            let (mut first, mut second) = ([zero; 4], [zero; 4]);
            while i + 2 * V::LANES <= end {
                self.add_gradient_terms(&mut first, mean, i, V::LANES);
                self.add_gradient_terms(&mut second, mean, i + V::LANES, V::LANES);
                i += 2 * V::LANES;
            }
            if i + V::LANES <= end {
                self.add_gradient_terms(&mut first, mean, i, V::LANES);
                i += V::LANES;
            }
            if i < end {
                self.add_gradient_terms(&mut second, mean, i, end - i);
                i = end;
            }
            for (j, total) in totals.iter_mut().enumerate() {
                *total += f64::from(first[j].add(second[j]).total());
            }
        }
        totals
    }

    /// The sums of `x - mean` and of its square over the row.
    #[inline(always)]
    fn deviations<V: F32s>(&self, mean: V) -> [f64; 2] {
        let (x, n) = (self.x.as_ptr(), self.x.len());
        let (mut totals, mut i) = ([0.0; 2], 0);
        while i < n {
            let end = n.min(i + TERMS * CHAINS * V::LANES);
            let (mut sums, mut squares) = ([V::splat(0.0); CHAINS], [V::splat(0.0); CHAINS]);
            // SAFETY: loads end at n.
            unsafe {
                while i + CHAINS * V::LANES <= end {
                    for j in 0..CHAINS {
                        let centred = V::load(x.add(i + j * V::LANES)).sub(mean);
                        sums[j] = sums[j].add(centred);
                        squares[j] = squares[j].add(centred.mul(centred));
                    }
                    i += CHAINS * V::LANES;
                }
                while i < end {
                    let count = V::LANES.min(end - i);
                    let centred = V::load_part(x.add(i), count).sub(mean).part(count);
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
    fn write<V: F32s>(self, f: impl Lanes<V>) {
        let n = self.x.len();
        let mut i = 0;
        while i + V::LANES <= n {
            // SAFETY: y has x's length.
            unsafe { self.at(i, V::LANES, f).store(self.y.as_mut_ptr().add(i)) };
            i += V::LANES;
        }
        if i < n {
            // SAFETY: as above.
            unsafe { self.at::<V>(i, n - i, f).store_part(self.y.as_mut_ptr().add(i), n - i) };
        }
    }
}

impl Work for Row<'_, f32> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.x.len() as f64;
        let layer = self.norm == Norm::Layer;
        let mean = if layer { (self.sum::<V>(Plain) / n) as f32 } else { 0.0 };
        // The mean's rounding error is subtracted apart: far from zero it is as large as the
        // deviations, and a row of equal numbers leaves no remainder.
        let [off, squares, weighed, along] = match (self.pass, layer) {
            (Pass::Gradient, _) => self.gradient_sums::<V>(V::splat(mean)),
            (Pass::Forward, true) => {
                let [off, squares] = self.deviations(V::splat(mean));
                [off, squares, 0.0, 0.0]
            }
            (Pass::Forward, false) => [0.0, self.sum::<V>(Squared(V::splat(0.0))), 0.0, 0.0],
        };
        let off = if layer { off / n } else { 0.0 };
        let mut variance = squares / n - off * off;
        if variance < 0.0 {
            variance = 0.0; // by rounding; NaN stays NaN
        }
        // Squares too large or too small for f32, infinities and NaN.
        let power = variance + self.eps;
        if !(LEAST..=f64::from(f32::MAX)).contains(&power) {
            return self.plain();
        }
        let exact = 1.0 / power.sqrt();
        let (mean, scale) = ([V::splat(mean), V::splat(off as f32)], V::splat(exact as f32));
        match self.pass {
            Pass::Forward => self.write::<V>(Normal(mean, scale)),
            Pass::Gradient => {
                let shift = if layer { weighed / n } else { 0.0 };
                let along = (along - off * weighed) * exact / n;
                if !(shift.is_finite() && along.is_finite()) {
                    return self.plain();
                }
                self.write::<V>(Gradient(
                    mean,
                    scale,
                    V::splat(shift as f32),
                    V::splat(along as f32),
                ));
            }
        }
    }
}
