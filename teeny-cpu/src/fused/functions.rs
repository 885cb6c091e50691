//! The named row functions, each written once: its passes over rows, and the terms of each pass.
//!
//! Two drivers implement [`Rows`]: `along` lays lanes along a row, one row at a time, and `across`
//! puts a row in each lane. f32 and f64 have the same text. The numbers of a row, such as its sum,
//! are f64.
//!
//! The naive form is a kernel for each operation, each a pass over memory. Here all passes over a
//! row follow one another while it is cached. Mean and variance are two passes: the difference of
//! two large sums would lose the variance of rows far from zero.

// REGRET: the gradients of a norm's weight and bias are a norm and two sums of rows, which read x
// and the gradient again. One pass would need outputs that sum over all rows.

use crate::float::{Number, Vector};
use crate::simd::loops::Quaternary;
use crate::simd::{F32s, F64s};

/// Functions of the vectors at a position. A pass that writes stores the first term, and a pass
/// sums as many terms as it returns. Types and not closures: a closure may not be inlined, and
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
    /// `(x - mean) scale g`: the normalised row times a per-row weight, or the gradient of a shared
    /// weight.
    NormalTimes(2, [true, false, false]) |[x, g, ..], [minus_mean, minus_off, scale, ..]| {
        [x.add(minus_mean).add(minus_off).mul(scale).mul(g)]
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

/// A number of each of `W` rows.
pub(super) type Row<const W: usize> = [f64; W];

/// A driver: it runs the passes of a function over up to `W` rows of `T`.
pub(super) trait Rows<T: FloatTerms, const W: usize> {
    /// The rows.
    fn batch(&self) -> &Batch<T>;
    /// The logarithm of each number, as exact as T.
    fn log(x: &Row<W>) -> Row<W>;
    /// The largest element of each row that is not NaN: a NaN makes every sum of exponentials NaN
    /// anyway.
    fn largest(&self) -> Row<W>;
    /// The sums of the first N terms over each row, whose constants are rounded to T; of the result
    /// instead of x if `AGAIN`. The first term is written with `WRITE`. Sums of some vectors are of
    /// type T, and these are added in f64, so that rows of any length have the same error.
    fn pass<F: Terms, const N: usize, const AGAIN: bool, const WRITE: bool>(
        &self,
        constants: &[&Row<W>],
    ) -> [Row<W>; N];
}

/// `f` of the numbers of each row. Loops and not iterators, which may not be inlined.
#[inline(always)]
pub(super) fn each<const W: usize, const N: usize>(
    x: [&Row<W>; N],
    f: impl Fn([f64; N]) -> f64,
) -> Row<W> {
    let mut row = [0.0; W];
    let mut j = 0;
    while j < W {
        let mut numbers = [0.0; N];
        let mut i = 0;
        while i < N {
            numbers[i] = x[i][j];
            i += 1;
        }
        row[j] = f(numbers);
        j += 1;
    }
    row
}

/// One row in memory, its elements `step` apart.
#[derive(Clone, Copy)]
pub(super) struct Line<T> {
    /// x; the gradient, or a weight with an element for each of x; the weight and the bias, packed,
    /// of all rows. Null where a function has none.
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
    /// The epsilon of a norm.
    pub eps: f64,
}

impl<T: FloatTerms> Batch<T> {
    /// `rows` of these rows, from row `r` on, which begins `offset` elements after the first.
    #[inline(always)]
    pub(super) fn from(self, r: usize, rows: usize, offset: usize) -> Self {
        let Line { operands: [x, g, w, b], y, .. } = self.first;
        let g = if g.is_null() { g } else { g.wrapping_add(offset) };
        let operands = [x.wrapping_add(offset), g, w, b];
        Batch {
            first: Line { operands, y: y.wrapping_add(offset), ..self.first },
            rows,
            targets: self.targets.wrapping_add(r),
            loss_gradients: self.loss_gradients.wrapping_add(r),
            losses: self.losses.wrapping_add(r),
            ..self
        }
    }

    /// `f` of the number of each row that there is.
    #[inline(always)]
    fn of_rows<const W: usize>(&self, f: impl Fn(usize) -> f64) -> Row<W> {
        let mut row = [0.0; W];
        let mut j = 0;
        while j < self.rows.min(W) {
            row[j] = f(j);
            j += 1;
        }
        row
    }

    /// The target of row `j`.
    #[inline(always)]
    fn target(&self, j: usize) -> Option<usize> {
        // SAFETY: each row of a loss has one.
        unsafe { *self.targets.add(j) }
    }

    /// The gradient of each row's loss.
    #[inline(always)]
    fn loss_gradients<const W: usize>(&self) -> Row<W> {
        // SAFETY: each row has one.
        self.of_rows(|j| unsafe { (*self.loss_gradients.add(j)).to_f64() })
    }

    /// The element of x at each row's target, or 0 for a row without one.
    #[inline(always)]
    fn at_targets<const W: usize>(&self) -> Row<W> {
        let Line { operands: [x, ..], step, .. } = self.first;
        // SAFETY: the target of a loss is a position of its row; rows of a batch of several are
        // neighbours.
        let at = |j, t| unsafe { (*x.wrapping_add(t * step + j)).to_f64() };
        self.of_rows(|j| self.target(j).map_or(0.0, |t| at(j, t)))
    }

    /// Subtracts a number from the result at each row's target; rows without one become 0.
    #[inline(always)]
    fn subtract_at_targets<const W: usize>(&self, x: &Row<W>) {
        let Line { y, n, step, .. } = self.first;
        for (j, &x) in x.iter().enumerate().take(self.rows) {
            let at = |i: usize| y.wrapping_add(i * step + j);
            // SAFETY: these are positions of the row, which has n elements.
            unsafe {
                match self.target(j) {
                    Some(t) if t < n => *at(t) = *at(t) - T::from_f64(x),
                    Some(_) => {}
                    None => (0..n).for_each(|i| at(i).write(T::ZERO)),
                }
            }
        }
    }

    /// Writes the loss of each row that has a target; 0 of the others.
    #[inline(always)]
    fn write_losses<const W: usize>(&self, losses: &Row<W>) {
        for (j, &loss) in losses.iter().enumerate().take(self.rows) {
            let loss = self.target(j).map_or(T::ZERO, |_| T::from_f64(loss));
            // SAFETY: the loss of each row has a place.
            unsafe { self.losses.add(j).write(loss) };
        }
    }

    /// Calls `f` with each row whose number is not 0: nearly always with none.
    #[inline(always)]
    fn again<const W: usize>(&self, chosen: &Row<W>, f: impl Fn(Line<T>)) {
        let (mut count, mut j) = (0.0, 0);
        while j < W {
            count += chosen[j];
            j += 1;
        }
        if count == 0.0 {
            return;
        }
        for (j, _) in chosen.iter().enumerate().take(self.rows).filter(|x| *x.1 != 0.0) {
            f(self.from(j, 1, j).first);
        }
    }
}

/// A named function.
pub(super) trait Function {
    /// (elements, rows): rows of up to so few elements are transposed in L1 and computed as
    /// columns, that many at a time: a maximum and a sum over the lanes of a vector take as long as
    /// some vectors of exponentials.
    const NARROW: (usize, usize);
    /// Whether the result is a loss for each row.
    const IS_LOSS: bool = false;
    /// Computes the rows.
    fn run<T: FloatTerms, const W: usize, R: Rows<T, W>>(rows: &R);
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
            fn run<T: FloatTerms, const W: usize, R: Rows<T, W>>($r: &R) $body
        }
    )*};
}

functions! {
    /// `exp(x - max) / sum`
    Softmax(128, false) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, true>(&[max]);
        let inverse = &each([sum], |[sum]| 1.0 / T::from_f64(sum).to_f64());
        r.pass::<DivSum, 0, true, true>(&[sum, inverse]);
    }
    /// `x - max - log(sum)`
    LogSoftmax(128, false) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, false>(&[max]);
        let log = &R::log(sum);
        let rest = &each([log], |[log]| log - T::from_f64(log).to_f64());
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
        let (log, at) = (&R::log(sum), &r.batch().at_targets());
        // The difference of the scores first: exact where both are large.
        r.batch().write_losses(&each([log, at, max], |[log, at, max]| {
            log - (T::from_f64(at) - T::from_f64(max)).to_f64()
        }));
    }
    /// `(exp(x - max) / sum - one_hot(target)) g`
    CrossEntropyGrad(48, false) |r| {
        let max = &r.largest();
        let [sum] = &r.pass::<ExpSubMax, 1, false, true>(&[max]);
        let g = &r.batch().loss_gradients();
        r.pass::<Scaled, 0, true, true>(&[&each([g, sum], |[g, sum]| g / sum)]);
        r.batch().subtract_at_targets(g);
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
    fn run<T: FloatTerms, const W: usize, R: Rows<T, W>>(r: &R) {
        let (n, eps, zero) = (r.batch().first.n as f64, r.batch().eps, &[0.0; W]);
        let is_single = size_of::<T>() == 4;
        let minus_mean = &if LAYER {
            let [sum] = &r.pass::<Identity, 1, false, false>(&[]);
            each([sum], |[sum]| -T::from_f64(sum / n).to_f64())
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
        let off = if LAYER { &each([off], |[off]| off / n) } else { zero };
        // Less than zero by rounding; NaN stays NaN.
        let power = &each([squares, off], |[squares, off]| {
            let variance = squares / n;
            let variance = if variance.is_finite() { variance - off * off } else { variance };
            if variance < 0.0 { eps } else { variance + eps }
        });
        let scale = &each([power], |[power]| 1.0 / power.sqrt());
        let minus_off = &each([off], |[off]| -off);
        let fits = |power| !is_single || (MIN_VARIANCE..=f64::from(f32::MAX)).contains(&power);
        if !GRAD {
            if r.batch().first.operands[1].is_null() {
                r.pass::<Normal, 0, false, true>(&[minus_mean, minus_off, scale]);
            } else {
                r.pass::<NormalTimes, 0, false, true>(&[minus_mean, minus_off, scale]);
            }
            let far = &each([power], |[power]| f64::from(!fits(power)));
            return r.batch().again(far, |row| row.norm(LAYER, GRAD, eps));
        }
        let minus_shift = if LAYER { &each([weighed], |[weighed]| -(weighed / n)) } else { zero };
        let minus_along = &each([along, off, weighed, scale], |[along, off, weighed, scale]| {
            -((along - off * weighed) * scale / n)
        });
        r.pass::<NormalGrad, 0, false, true>(&[
            minus_mean,
            minus_off,
            scale,
            minus_shift,
            minus_along,
        ]);
        let far = &each([power, minus_shift, minus_along], |[power, shift, along]| {
            let finite = shift.is_finite() && along.is_finite();
            f64::from(!fits(power) || is_single && !finite)
        });
        r.batch().again(far, |row| row.norm(LAYER, GRAD, eps));
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
        let (x, g) = (|i: usize| at(x, i * gap, 0.0), |i: usize| at(g, i * gap, 1.0));
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
                false => h(i) * g(i) * w(i) + b(i),
            };
            // SAFETY: as above; the result has one owner.
            unsafe { y.add(i * gap).write(T::from_f64(value)) };
        }
    }
}
