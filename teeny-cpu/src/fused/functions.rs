//! The named row functions, each written once: its passes over rows, and the terms of each pass.
//!
//! [`Rows`] is what a function may do with rows. It has two implementations: `along`, a row at a
//! time with lanes along it, and `across`, with a row in each lane. f32 and f64 have the same text.
//! What is one number a row is computed in f64.
//!
//! The naive form is a kernel for each operation, each a pass over memory. Here all passes over a
//! row follow one another while it is cached. Mean and variance are two passes: the difference of
//! two large sums would lose the variance of rows far from zero.

use crate::float::{Number, Vector};
use crate::simd::loops::Quaternary;
use crate::simd::{F32s, F64s};

/// What a pass computes at each position, of vectors: the first is written where the pass writes,
/// and as many as it returns are summed. Types and not closures: a closure may not be inlined, and
/// outside the level's entry function every intrinsic would be a call.
pub(super) trait Terms {
    /// Vectors beside each other that are summed apart, so that adding is not one chain of
    /// latencies.
    const CHAINS: usize;
    /// Whether it reads the gradient, the weight and the bias.
    const READS: [bool; 3];
    /// The terms of `[x, g, w, b]` with five constants of the row.
    fn eval<V: F32s>(operands: [V; 4], constants: [V; 5]) -> [V; 4];
    /// The same in f64.
    fn eval64<V: F64s>(operands: [V; 4], constants: [V; 5]) -> [V; 4];
}

/// f32 or f64.
pub(super) trait FloatTerms: Number {
    /// The terms of vectors.
    fn terms<F: Terms, V: F32s>(
        operands: [Vector<Self, V>; 4],
        constants: [Vector<Self, V>; 5],
    ) -> [Vector<Self, V>; 4];
}

impl FloatTerms for f32 {
    #[inline(always)]
    fn terms<F: Terms, V: F32s>(operands: [V; 4], constants: [V; 5]) -> [V; 4] {
        F::eval(operands, constants)
    }
}

impl FloatTerms for f64 {
    #[inline(always)]
    fn terms<F: Terms, V: F32s>(operands: [V::F64s; 4], constants: [V::F64s; 5]) -> [V::F64s; 4] {
        F::eval64(operands, constants)
    }
}

/// Up to four vectors, and copies of the first.
#[inline(always)]
fn four<V: Copy, const N: usize>(vectors: [V; N]) -> [V; 4] {
    let mut all = [vectors[0]; 4];
    let mut i = 0;
    while i < N {
        all[i] = vectors[i];
        i += 1;
    }
    all
}

macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident($chains:literal, [$($reads:literal),*])
        |$operands:pat_param, $constants:pat_param| $body:expr;)*) => {$(
        $(#[$doc])*
        struct $name;
        impl Terms for $name {
            const CHAINS: usize = $chains;
            const READS: [bool; 3] = [$($reads),*];
            #[inline(always)]
            fn eval<V: F32s>($operands: [V; 4], $constants: [V; 5]) -> [V; 4] {
                #[allow(unused)]
                use crate::vecmath::exp;
                four($body)
            }
            #[inline(always)]
            fn eval64<V: F64s>($operands: [V; 4], $constants: [V; 5]) -> [V; 4] {
                #[allow(unused)]
                use crate::vecmath::double::exp;
                four($body)
            }
        }
    )*};
}

terms! {
    /// `exp(x - max)`
    ExpSubMax(1, [false, false, false]) |[x, ..], [max, ..]| [exp(x.sub(max))];
    /// `x / sum`, rounded as a division, by the inverse of the sum and a correction by the
    /// remainder (Markstein 1990): a third of a division's time. Dividing, not multiplying by the
    /// inverse: rows sum to one as nearly as core's definition does.
    DivSum(2, [false, false, false]) |[x, ..], [sum, inverse, ..]| [if V::FUSED {
        let y = x.mul(inverse);
        y.xor_sign(V::splat(-0.0)).fma(sum, x).fma(inverse, y)
    } else {
        x.div(sum)
    }];
    /// `x - max - log(sum)`, the logarithm as the sum of two numbers: rounded to one, it would
    /// shift a whole row by up to half a unit in its last place.
    SubMaxLog(2, [false, false, false]) |[x, ..], [max, log, rest, ..]| {
        [x.sub(max).sub(rest).sub(log)]
    };
    /// `x g`
    MulGrad(1, [true, false, false]) |[x, g, ..], _| [x.mul(g)];
    /// `x (g - sum)`
    MulSubSum(2, [true, false, false]) |[x, g, ..], [sum, ..]| [x.mul(g.sub(sum))];
    /// `g`
    Grad(1, [true, false, false]) |[_, g, ..], _| [g];
    /// `g - exp(x) sum`
    SubExpMul(1, [true, false, false]) |[x, g, ..], [sum, ..]| [g.sub(exp(x).mul(sum))];
    /// `x a`
    Scaled(4, [false, false, false]) |[x, ..], [a, ..]| [x.mul(a)];
    /// `x`
    Identity(4, [false, false, false]) |[x, ..], _| [x];
    /// `c = x - mean`, and its square.
    Deviations(4, [false, false, false]) |[x, ..], [minus_mean, ..]| {
        let c = x.add(minus_mean);
        [c, c.mul(c)]
    };
    /// The square of `x - mean`.
    Squares(4, [false, false, false]) |[x, ..], [minus_mean, ..]| {
        let c = x.add(minus_mean);
        [c.mul(c)]
    };
    /// `c = x - mean`, c², `g w` and `g w c`: all that the gradient of a norm needs.
    GradientTerms(2, [true, true, false]) |[x, g, w, _], [minus_mean, ..]| {
        let (c, weighed) = (x.add(minus_mean), g.mul(w));
        [c, c.mul(c), weighed, weighed.mul(c)]
    };
    /// `(x - mean) scale w + b`, the mean in two parts.
    Normal(2, [false, true, true]) |[x, _, w, b], [minus_mean, minus_off, scale, ..]| {
        [x.add(minus_mean).add(minus_off).mul(scale).mul(w).add(b)]
    };
    /// `scale (g w - shift - h along)`, where h is the normalised row.
    NormalGrad(1, [true, true, false])
        |[x, g, w, _], [minus_mean, minus_off, scale, minus_shift, minus_along]| {
            let h = x.add(minus_mean).add(minus_off).mul(scale);
            [scale.mul(g.mul(w).add(minus_shift).add(h.mul(minus_along)))]
        };
}

/// The larger, or `a` if x is NaN.
pub(super) struct Max;

impl Quaternary for Max {
    #[inline(always)]
    fn eval<V: F32s>(x: V, _: V, a: V, _: V) -> V {
        x.max(a)
    }
    #[inline(always)]
    fn eval64<V: F64s>(x: V, _: V, a: V, _: V) -> V {
        x.max(a)
    }
}

/// What a function does with rows of `T`; `Row` is a number of each.
pub(super) trait Rows<T: FloatTerms>: Copy {
    type Row: Copy;
    /// The number of positions.
    fn len(self) -> usize;
    /// What a norm adds to the variance.
    fn eps(self) -> f64;
    /// The same number for each row.
    fn number(x: f64) -> Self::Row;
    /// `f` of the numbers of each row.
    fn each<const N: usize>(x: [&Self::Row; N], f: impl Fn([f64; N]) -> f64) -> Self::Row;
    /// The logarithm of each number, as exact as T.
    fn log(x: &Self::Row) -> Self::Row;
    /// The largest element of each row that is not NaN: a NaN makes every sum of exponentials NaN
    /// anyway.
    fn largest(self) -> Self::Row;
    /// The sums of the first N terms over each row, whose constants are rounded to T; of the result
    /// instead of x if `AGAIN`. The first term is written with `WRITE`. Sums of some vectors are of
    /// type T, and these are added in f64, so that rows of any length have the same error.
    fn pass<F: Terms, const N: usize, const AGAIN: bool, const WRITE: bool>(
        self,
        constants: &[&Self::Row],
    ) -> [Self::Row; N];
    /// The gradient of each row's loss.
    fn loss_gradients(self) -> Self::Row;
    /// The element of x at each row's target; 0 where there is none.
    fn at_targets(self) -> Self::Row;
    /// Subtracts a number from the result at each row's target; rows without one become 0.
    fn subtract_at_targets(self, x: &Self::Row);
    /// Writes the loss of each row that has a target; 0 of the others.
    fn write_losses(self, losses: &Self::Row);
    /// Calls `f` for the rows for which `test` is true.
    fn for_rows<const N: usize>(
        self,
        x: [&Self::Row; N],
        test: impl Fn([f64; N]) -> bool,
        f: impl Fn(Line<T>),
    );
}

/// One row in memory, its elements `step` apart.
#[derive(Clone, Copy)]
pub(super) struct Line<T> {
    /// x, the gradient, the weight and the bias; null if there is none. The weight and the bias are
    /// packed.
    pub operands: [*const T; 4],
    pub y: *mut T,
    pub n: usize,
    pub step: usize,
}

/// Some rows of a function: the first, and what there is one of for each row, null if there is
/// none: the target of a loss, its gradient, and where the loss is written. `named` makes it of
/// operands that `Op::outputs` has checked and of targets inside the rows: the drivers rely on it.
#[derive(Clone, Copy)]
pub(super) struct Batch<T> {
    pub first: Line<T>,
    pub rows: usize,
    pub targets: *const Option<usize>,
    pub loss_gradients: *const T,
    pub losses: *mut T,
    /// What a norm adds to the variance.
    pub eps: f64,
}

impl<T> Batch<T> {
    /// `rows` rows from row `r` on, whose elements are `offset` elements from those of the first.
    #[inline(always)]
    pub(super) fn from(self, r: usize, rows: usize, offset: usize) -> Self {
        let Line { operands: [x, g, w, b], y, .. } = self.first;
        let operands = [x.wrapping_add(offset), g.wrapping_add(offset), w, b];
        Batch {
            first: Line { operands, y: y.wrapping_add(offset), ..self.first },
            rows,
            targets: self.targets.wrapping_add(r),
            loss_gradients: self.loss_gradients.wrapping_add(r),
            losses: self.losses.wrapping_add(r),
            ..self
        }
    }

    /// The target of row `r`.
    #[inline(always)]
    pub(super) fn target(&self, r: usize) -> Option<usize> {
        // SAFETY: there is one for each row of a loss.
        unsafe { *self.targets.add(r) }
    }
}

/// A named function.
pub(super) trait Function {
    /// Elements up to which so many rows are transposed in L1 and computed as columns: a maximum
    /// and a sum over the lanes of a vector take as long as some vectors of exponentials.
    const NARROW: (usize, usize);
    /// Whether the result is a loss for each row.
    const IS_LOSS: bool = false;
    /// Computes the rows.
    fn run<T: FloatTerms, R: Rows<T>>(rows: R);
}

macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident($most:literal, $is_loss:literal) |$r:ident| $body:block
    )*) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl Function for $name {
            const NARROW: (usize, usize) = ($most, 8);
            const IS_LOSS: bool = $is_loss;
            #[inline(always)]
            fn run<T: FloatTerms, R: Rows<T>>($r: R) $body
        }
    )*};
}

functions! {
    /// `exp(x - max) / sum`
    Softmax(128, false) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, true>(&[max]);
        let inverse = &R::each([sum], |[sum]| 1.0 / T::from_f64(sum).to_f64());
        r.pass::<DivSum, 0, true, true>(&[sum, inverse]);
    }
    /// `x - max - log(sum)`
    LogSoftmax(128, false) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, false>(&[max]);
        let log = &R::log(sum);
        let rest = &R::each([log], |[log]| log - T::from_f64(log).to_f64());
        r.pass::<SubMaxLog, 0, false, true>(&[max, log, rest]);
    }
    /// `y (g - sum(g y))`
    SoftmaxGrad(128, false) |r| {
        let [sum] = &r.pass::<MulGrad, 1, false, false>(&[]);
        r.pass::<MulSubSum, 0, false, true>(&[sum]);
    }
    /// `g - exp(y) sum(g)`
    LogSoftmaxGrad(128, false) |r| {
        let [sum] = &r.pass::<Grad, 1, false, false>(&[]);
        r.pass::<SubExpMul, 0, false, true>(&[sum]);
    }
    /// `log(sum(exp(x))) - x[target]`
    CrossEntropy(96, true) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, false>(&[max]);
        let (log, at) = (&R::log(sum), &r.at_targets());
        // The difference of the scores first: exact where both are large.
        r.write_losses(&R::each([log, at, max], |[log, at, max]| {
            log - (T::from_f64(at) - T::from_f64(max)).to_f64()
        }));
    }
    /// `(exp(x - max) / sum - one_hot(target)) g`
    CrossEntropyGrad(48, false) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, true>(&[max]);
        let g = &r.loss_gradients();
        r.pass::<Scaled, 0, true, true>(&[&R::each([g, sum], |[g, sum]| g / sum)]);
        r.subtract_at_targets(g);
    }
}

/// A norm or its gradient for x.
pub(super) struct Norm<const LAYER: bool, const GRAD: bool>;

/// Variances with eps below this may miss squares that are too small for f32.
const MIN_VARIANCE: f64 = 1e-30;

impl<const LAYER: bool, const GRAD: bool> Function for Norm<LAYER, GRAD> {
    const NARROW: (usize, usize) = (if GRAD { 36 } else { 48 }, 32);

    /// In f32 the rounding error of the mean is subtracted apart: far from zero it is as large as
    /// the deviations, and a row of equal numbers leaves no remainder. Rows whose variance or sums
    /// leave the range of f32 are computed again in f64.
    #[inline(always)]
    fn run<T: FloatTerms, R: Rows<T>>(r: R) {
        let (n, eps, zero) = (r.len() as f64, r.eps(), &R::number(0.0));
        let is_single = size_of::<T>() == 4;
        let minus_mean = &if LAYER {
            let [sum] = &r.pass::<Identity, 1, false, false>(&[]);
            R::each([sum], |[sum]| -T::from_f64(sum / n).to_f64())
        } else {
            *zero
        };
        let [off, squares, weighed, along] = &if GRAD {
            r.pass::<GradientTerms, 4, false, false>(&[minus_mean])
        } else if LAYER && is_single {
            let [off, squares] = r.pass::<Deviations, 2, false, false>(&[minus_mean]);
            [off, squares, *zero, *zero]
        } else {
            let [squares] = r.pass::<Squares, 1, false, false>(&[minus_mean]);
            [*zero, squares, *zero, *zero]
        };
        let off = if LAYER { &R::each([off], |[off]| off / n) } else { zero };
        // Less than zero by rounding; NaN stays NaN.
        let power = &R::each([squares, off], |[squares, off]| {
            let variance = squares / n;
            let variance = if variance.is_finite() { variance - off * off } else { variance };
            if variance < 0.0 { eps } else { variance + eps }
        });
        let scale = &R::each([power], |[power]| 1.0 / power.sqrt());
        let minus_off = &R::each([off], |[off]| -off);
        let fits = |power| !is_single || (MIN_VARIANCE..=f64::from(f32::MAX)).contains(&power);
        if !GRAD {
            r.pass::<Normal, 0, false, true>(&[minus_mean, minus_off, scale]);
            return r.for_rows([power], |[power]| !fits(power), |row| row.norm(LAYER, GRAD, eps));
        }
        let minus_shift =
            if LAYER { &R::each([weighed], |[weighed]| -(weighed / n)) } else { zero };
        let minus_along = &R::each([along, off, weighed, scale], |[along, off, weighed, scale]| {
            -((along - off * weighed) * scale / n)
        });
        r.pass::<NormalGrad, 0, false, true>(&[
            minus_mean,
            minus_off,
            scale,
            minus_shift,
            minus_along,
        ]);
        r.for_rows(
            [power, minus_shift, minus_along],
            |[power, shift, along]| {
                !fits(power) || is_single && !(shift.is_finite() && along.is_finite())
            },
            |row| row.norm(LAYER, GRAD, eps),
        );
    }
}

impl<T: FloatTerms> Line<T> {
    /// [`Norm`] in f64.
    #[cold]
    #[inline(never)]
    fn norm(self, layer: bool, grad: bool, eps: f64) {
        let Line { operands: [x, g, w, b], y, n, step } = self;
        let (count, gap) = (n as f64, step);
        // SAFETY: the row has n elements at each operand that is there.
        let at = |p: *const T, i: usize, missing: f64| unsafe {
            if p.is_null() { missing } else { (*p.add(i)).to_f64() }
        };
        let (x, g) = (|i: usize| at(x, i * gap, 0.0), |i: usize| at(g, i * gap, 0.0));
        let (w, b) = (|i: usize| at(w, i, 1.0), |i: usize| at(b, i, 0.0));
        let sum = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
        let mean = if layer { sum(&x) / count } else { 0.0 };
        let scale = 1.0 / (sum(&|i| (x(i) - mean) * (x(i) - mean)) / count + eps).sqrt();
        let h = |i: usize| (x(i) - mean) * scale;
        let shift = if grad && layer { sum(&|i| g(i) * w(i)) / count } else { 0.0 };
        let along = if grad { sum(&|i| g(i) * w(i) * h(i)) / count } else { 0.0 };
        for i in 0..n {
            let value = match grad {
                true => scale * (g(i) * w(i) - shift - h(i) * along),
                false => h(i) * w(i) + b(i),
            };
            // SAFETY: as above; the result has one owner.
            unsafe { y.add(i * gap).write(T::from_f64(value)) };
        }
    }
}
