//! Further functions of elements, as methods of [`Expr`]: inverse hyperbolic functions, the gamma
//! and error functions, angles and lengths, remainders, shrinking activations.
//!
//! Each formula keeps its digits near zeros of the function and does not overflow where the result
//! is finite. Signs are chosen by conditions instead of `abs` where the derivative at 0 matters.

use super::build::{Expr, ExprOperand};
use crate::dtype::DType;
use crate::error::Error;
use std::f64::consts::{FRAC_1_PI, FRAC_PI_2, LN_2, PI};

/// `x²` is finite below this number, and 1 is lost beside it above.
const LARGE: f64 = (1u64 << 28) as f64;

/// `lgamma(2 + t) / t` in powers of t: `1 - γ`, then `(-1)^n (ζ(n) - 1) / n`. The first 12 are
/// within 2e-8 for `|t| <= 1/2`, all within 4e-16. Source: Abramowitz & Stegun 6.1.33.
#[rustfmt::skip]
const LGAMMA: [f64; 24] = [
    0.42278433509846713, 0.3224670334241132, -0.0673523010531981, 0.020580808427784546,
    -0.007385551028673986, 0.0028905103307415234, -0.001192753911703261, 0.0005096695247430425,
    -0.00022315475845357939, 9.945751278180853e-5, -4.492623673813314e-5, 2.050721277567069e-5,
    -9.439488275268397e-6, 4.374866789907488e-6, -2.039215753801366e-6, 9.55141213040742e-7,
    -4.492469198764566e-7, 2.1207184805554665e-7, -1.0043224823968099e-7, 4.7698101693639804e-8,
    -2.2711094608943164e-8, 1.0838659214896955e-8, -5.183475041970047e-9, 2.4836745438024785e-9,
];

/// `B(2k) / (2k)` with Bernoulli's numbers, k from 8 to 1. Source: Abramowitz & Stegun 6.3.18.
#[rustfmt::skip]
const BERNOULLI: [f64; 8] = [
    -3617.0 / 8160.0, 1.0 / 12.0, -691.0 / 32760.0, 1.0 / 132.0,
    -1.0 / 240.0, 1.0 / 252.0, -1.0 / 120.0, 1.0 / 12.0,
];

/// Chebyshev coefficients of `log(erfc(z) / t) + z²` with `t = 2 / (2 + z)` from 1/16 to 4/5. The
/// first 10 are within 3e-8, all within 3e-16. Interpolated in 50 digits.
#[rustfmt::skip]
const ERFC: [f64; 21] = [
    -0.7470178177852527, 0.47337863492627824, 0.015771162503460053, -0.00361672358532697,
    -0.00046542866945039317, 7.058383550738655e-5, 1.4570667894366953e-5, -2.175083729911053e-6,
    -4.855263165245469e-7, 8.878009576489142e-8, 1.576598466083655e-8, -4.116662260684767e-9,
    -4.2456304755400725e-10, 1.9241858672708867e-10, 4.277542910154178e-12, -8.252870985687522e-12,
    5.288792973942227e-13, 2.8921006222180076e-13, -5.134265331669816e-14, -5.960319690374788e-15,
    2.8716848546757558e-15,
];

/// `erfinv(x) / x` in powers of `-log(1 - x²) - 5/2` below 5, and of `sqrt(-log(1 - x²)) - 3`
/// above, highest first. Within 4e-7. Source: Giles 2012, Approximating the erfinv function.
#[rustfmt::skip]
const ERFINV: [[f64; 9]; 2] = [
    [
        2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
    ],
    [
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
    ],
];

/// `Σ c[n] x^n` for coefficients that come highest first.
fn horner<'b>(x: Expr<'b>, coefficients: impl IntoIterator<Item = f64>) -> Expr<'b> {
    coefficients.into_iter().fold(x.like(0.0), |sum, c| sum * x + c)
}

impl<'b> Expr<'b> {
    /// Both values as the type that they promote to.
    fn promoted(self, rhs: impl ExprOperand<'b>) -> (Expr<'b>, Expr<'b>) {
        let rhs = rhs.expr(self);
        let dtype = self.dtype().promote(rhs.dtype());
        (self.cast(dtype), rhs.cast(dtype))
    }

    /// Both values as floats of one type.
    fn floats(self, rhs: impl ExprOperand<'b>) -> (Expr<'b>, Expr<'b>) {
        let (x, y) = self.promoted(rhs);
        (x.to_float(), y.to_float())
    }

    fn is_f64(self) -> bool {
        self.dtype() == DType::F64
    }

    /// `f(|x|)` with the sign of x: an odd function.
    fn odd(self, f: impl FnOnce(Expr<'b>) -> Expr<'b>) -> Expr<'b> {
        let negative = self.lt(0);
        let y = f(negative.where_cond(-self, self));
        negative.where_cond(-y, y)
    }

    /// `log(x / (1 - x))`; near 1/2 by `log1p((2 x - 1) / (1 - x))`.
    pub fn logit(self) -> Expr<'b> {
        let x = self.to_float();
        let (d, rest) = (x - 0.5, 1.0 - x);
        d.abs().lt(0.25).where_cond((d * 2.0 / rest).log1p(), (x / rest).log())
    }

    /// `log(exp(x) + exp(rhs))`, as the larger and `log1p(exp(-|x - rhs|))`.
    pub fn logaddexp(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, y, d) = self.difference(rhs);
        let first = d.gt(0.0);
        first.where_cond(x, y) + first.where_cond(-d, d).exp().log1p()
    }

    /// `log2(2^x + 2^rhs)`, as [`Expr::logaddexp`].
    pub fn logaddexp2(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, y, d) = self.difference(rhs);
        let first = d.gt(0.0);
        first.where_cond(x, y) + first.where_cond(-d, d).exp2().log1p() * (1.0 / LN_2)
    }

    /// Both values, and `x - rhs`, which is 0 of equal infinities.
    fn difference(self, rhs: impl ExprOperand<'b>) -> (Expr<'b>, Expr<'b>, Expr<'b>) {
        let (x, y) = self.floats(rhs);
        (x, y, x.eq(y).and(x.is_inf()).where_cond(x.like(0.0), x - y))
    }

    /// `x log(rhs)`; 0 where x is 0, unless `rhs` is NaN.
    pub fn xlogy(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, y) = self.floats(rhs);
        let zero = x.eq(0.0).and(y.le(0.0).or(y.eq(f64::INFINITY)));
        x * zero.where_cond(y.like(1.0), y).log()
    }

    /// The angle of the point (`rhs`, self) from the first axis, in radians.
    pub fn atan2(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (y, x) = self.floats(rhs);
        let left = x.signbit();
        let down = y.signbit();
        let (across, up) = (left.where_cond(-x, x), down.where_cond(-y, y));
        let steep = up.gt(across);
        let (near, far) = (steep.where_cond(across, up), steep.where_cond(up, across));
        // 1 of two infinities, 0 of two zeros: neither is divided, nor is its gradient.
        let infinite = near.is_inf().and(far.is_inf());
        let known = infinite.or(far.eq(0.0).and(near.eq(0.0)));
        let ratio = near / known.where_cond(far.like(1.0), far);
        let angle = known.where_cond(infinite.cast(near.dtype()), ratio).atan();
        let angle = steep.where_cond(FRAC_PI_2 - angle, angle);
        let angle = left.where_cond(PI - angle, angle);
        down.where_cond(-angle, angle)
    }

    /// `sqrt(x² + rhs²)`, of numbers scaled by a power of two: finite wherever the result is.
    pub fn hypot(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, y) = self.floats(rhs);
        let limit = if x.is_f64() { 1000.0 } else { 120.0 };
        let exponent = x.abs().maximum(y.abs()).log2().floor().clamp(-limit, limit);
        let scale = (-exponent).exp2();
        let length = ((x * scale).square() + (y * scale).square()).sqrt() / scale;
        x.is_inf().or(y.is_inf()).where_cond(x.like(f64::INFINITY), length)
    }

    /// `sin(πx) / (πx)`, 1 at 0.
    pub fn sinc(self) -> Expr<'b> {
        let x = self.to_float();
        // Near 0 by the series, whose derivatives neither cancel nor overflow.
        let small = x.abs().lt(if x.is_f64() { 0.002 } else { 0.06 });
        let square = (small.where_cond(x, 0.0) * PI).square();
        let near = 1.0 - square * (1.0 / 6.0) * (1.0 - square * 0.05);
        let t = small.where_cond(x.like(1.0), x);
        // Reduced to one turn before the sine, so large x lose no precision.
        let turn = t - (t * 0.5).round() * 2.0;
        small.where_cond(near, (turn * PI).sin() / (t * PI))
    }

    /// For integers whose floored remainder is `r`: true where the quotient rounds down to less
    /// than the truncated one. No absolute values, because the smallest integer has none.
    fn is_below(self, r: Expr<'b>) -> Expr<'b> {
        r.ne(0).and(self.lt(0).xor(r.lt(0)))
    }

    /// The remainder of the division with the sign of x, exactly.
    pub fn fmod(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, y) = self.promoted(rhs);
        if x.dtype().is_float() {
            return x.odd(|x| x.rem(y.abs()));
        }
        let r = x.rem(y);
        x.is_below(r).where_cond(r - y, r)
    }

    /// The quotient without its fraction. An integer divided by 0 is 0.
    pub fn div_trunc(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, y) = self.promoted(rhs);
        if x.dtype().is_float() {
            return (x / y).trunc();
        }
        let q = x.floor_div(y);
        q + x.is_below(x - q * y).cast(x.dtype())
    }

    /// Inverse hyperbolic sine, `log1p(|x| + x² / (1 + sqrt(x² + 1)))` with the sign of x.
    pub fn asinh(self) -> Expr<'b> {
        self.to_float().odd(|x| {
            let square = x * x;
            let y = (x + square / ((square + 1.0).sqrt() + 1.0)).log1p();
            x.gt(LARGE).where_cond(x.log() + LN_2, y)
        })
    }

    /// Inverse hyperbolic cosine, `log1p(x - 1 + sqrt(x - 1) sqrt(x + 1))`; NaN below 1.
    pub fn acosh(self) -> Expr<'b> {
        let x = self.to_float();
        let above = x - 1.0;
        let y = (above + above.sqrt() * (x + 1.0).sqrt()).log1p();
        x.gt(LARGE).where_cond(x.log() + LN_2, y)
    }

    /// Inverse hyperbolic tangent, `log1p(2 |x| / (1 - |x|)) / 2` with the sign of x.
    pub fn atanh(self) -> Expr<'b> {
        self.to_float().odd(|x| (x * 2.0 / (1.0 - x)).log1p() * 0.5)
    }

    /// `1 - erf(x)` without cancellation.
    ///
    /// Beyond 1/2 as `t exp(-z² + p(t))` with `z = |x|` and `t = 2 / (2 + z)`. The square is taken
    /// in two parts, of which the first is exact: its rounding error would be multiplied by z².
    pub fn erfc(self) -> Expr<'b> {
        let x = self.to_float();
        let z = x.abs().minimum(30.0);
        let t = (z + 2.0).recip() * 2.0;
        let (a, b) = (0.0625, 0.8);
        let u = (t - (a + b) / 2.0) * (4.0 / (b - a)); // twice the argument of the polynomials
        let count = if x.is_f64() { ERFC.len() } else { 10 };
        // Clenshaw's recurrence
        let (mut next, mut after) = (x.like(0.0), x.like(0.0));
        for &c in ERFC[1..count].iter().rev() {
            (next, after) = (u * next - after + c, next);
        }
        let p = u * 0.5 * next - after + ERFC[0];
        let head = (z * 16.0).floor() * 0.0625;
        let tail = (z - head) * (z + head);
        let far = t * (-head * head).exp() * (p - tail).exp();
        let far = x.lt(0.0).where_cond(2.0 - far, far);
        z.gt(0.5).where_cond(far, 1.0 - x.erf())
    }

    /// The inverse of `erf`; infinite at -1 and 1, NaN beyond. f64 takes two Newton steps.
    pub fn erfinv(self) -> Expr<'b> {
        let x = self.to_float();
        let w = -(x + 1.0).mul(1.0 - x).log();
        let [near, far] = ERFINV;
        let ratio =
            w.lt(5.0).where_cond(horner(w - 2.5, near), horner(w.maximum(0.0).sqrt() - 3.0, far));
        let mut y = ratio * x;
        for _ in 0..if x.is_f64() { 2 } else { 0 } {
            y = y - (y.erf() - x) * (y * y).exp() * (PI.sqrt() / 2.0);
        }
        x.abs().eq(1.0).where_cond(x * f64::INFINITY, y)
    }

    /// `log|Γ(x)|`: by its series around 2 after steps of the recurrence up to 7.5, by Stirling's
    /// series above, by reflection below 1/2.
    pub fn lgamma(self) -> Expr<'b> {
        let x = self.to_float();
        let reflected = x.lt(0.5);
        let y = reflected.where_cond(1.0 - x, x);
        let (mut m, mut product) = (y, y.like(1.0));
        for _ in 0..5 {
            let above = m.ge(2.5);
            m = above.where_cond(m - 1.0, m);
            product = above.where_cond(product * m, product);
        }
        let below = m.lt(1.5);
        let t = m - below.where_cond(m.like(1.0), 2.0);
        let count = if x.is_f64() { LGAMMA.len() } else { 12 };
        let series = t * horner(t, LGAMMA[..count].iter().rev().copied());
        let near = series - below.where_cond(t, 0.0).log1p() + product.log();
        // B(2k) / (2k (2k - 1)), Abramowitz & Stegun 6.1.41
        let stirling = BERNOULLI.iter().zip(1..).map(|(c, n)| c / f64::from(17 - 2 * n));
        let r = y.recip();
        let rest = horner(r * r, stirling) * r + ((2.0 * PI).ln() - 1.0) / 2.0;
        let value = y.lt(7.5).where_cond(near, (y - 0.5) * (y.log() - 1.0) + rest);
        // sin(πt) / π, t itself where π t would lose the digits of a subnormal number.
        let t = (x - x.round()).abs();
        let sine = t.lt(1e-9).where_cond(t, (t * PI).sin() * FRAC_1_PI);
        let value = reflected.where_cond(-sine.log() - value, value);
        let pole = reflected.and(sine.eq(0.0));
        x.is_inf().or(pole).where_cond(x.like(f64::INFINITY), value)
    }

    /// The derivative of [`Expr::lgamma`]: by eight steps of the recurrence and the asymptotic
    /// series, by reflection below 0; NaN at negative integers.
    pub fn digamma(self) -> Expr<'b> {
        let x = self.to_float();
        let negative = x.lt(0.0);
        let y = negative.where_cond(1.0 - x, x);
        let z = y + 8.0;
        let r = z.recip();
        let steps = (1..8).fold(y.recip(), |sum, k| sum + (y + f64::from(k)).recip());
        let value = z.log() - r * 0.5 - horner(r * r, BERNOULLI) * (r * r) - steps;
        // 1/4 in place of values that are not negative: their sine may be 0
        let turn = negative.where_cond(x - x.round(), 0.25);
        let turn = turn.eq(0.0).where_cond(turn * f64::NAN, turn);
        let angle = turn * PI;
        negative.where_cond(value - angle.cos() / angle.sin() * PI, value)
    }

    /// True where the sign is negative, of a zero too.
    pub fn signbit(self) -> Expr<'b> {
        match self.dtype().is_float() {
            true => self.lt(0.0).or(self.eq(0.0).and(self.recip().lt(0.0))),
            false => self.lt(0),
        }
    }

    /// `|x|` with the sign of `rhs`.
    pub fn copysign(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, sign) = self.floats(rhs);
        let size = x.abs();
        sign.signbit().where_cond(-size, size)
    }

    /// The greatest common divisor of two integers, by Euclid's algorithm.
    pub fn gcd(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (mut a, mut b) = self.promoted(rhs);
        let dtype = a.dtype();
        if dtype.is_float() {
            let error = Error::dtype(format!("expected integers, got {dtype}"))
                .help("x.cast(DType::I64)? converts");
            self.builder().fail(error);
        }
        // From the second step on, both have one sign: neighbours of Fibonacci's sequence take the
        // most steps.
        for _ in 0..dtype.size() * 12 + 2 {
            let zero = b.eq(0);
            (a, b) = (zero.where_cond(a, b), zero.where_cond(b, a.rem(b)));
        }
        a.abs()
    }

    /// The least common multiple of two integers; 0 if either is 0.
    pub fn lcm(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let rhs = rhs.expr(self);
        (self.floor_div(self.gcd(rhs)) * rhs).abs()
    }

    /// 0 below 0, 1 above, `rhs` at 0.
    pub fn heaviside(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let (x, rhs) = self.promoted(rhs);
        x.eq(0).where_cond(rhs, x.gt(0).cast(x.dtype()))
    }

    /// `x - trunc(x)`.
    pub fn frac(self) -> Expr<'b> {
        self - self.trunc()
    }

    /// x where positive, `alpha * (exp(x / alpha) - 1)` elsewhere.
    pub fn celu(self, alpha: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        let alpha = alpha.expr(x);
        let positive = x.gt(0.0);
        let low = (positive.where_cond(x.like(0.0), x) / alpha).expm1() * alpha;
        positive.where_cond(x, low)
    }

    /// 0 where `|x| <= lambda`, x elsewhere.
    pub fn hardshrink(self, lambda: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        x.abs().le(lambda).where_cond(x.like(0.0), x)
    }

    /// 0 where `|x| <= lambda`, `x - lambda` above, `x + lambda` below.
    pub fn softshrink(self, lambda: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        let lambda = lambda.expr(x);
        let shifted = x.lt(0.0).where_cond(x + lambda, x - lambda);
        x.abs().le(lambda).where_cond(x.like(0.0), shifted)
    }

    /// `x - tanh(x)`; below 1 by the continued fraction of tanh, which loses no digits to the
    /// difference.
    pub fn tanhshrink(self) -> Expr<'b> {
        let x = self.to_float();
        let square = x * x;
        let below =
            (1..10).rev().fold(x.like(21.0), |below, k| square / below + f64::from(2 * k + 1));
        let q = square / below;
        x.abs().lt(1.0).where_cond(x * q / (q + 1.0), x - x.tanh())
    }
}
