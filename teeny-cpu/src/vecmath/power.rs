//! Powers, remainders and floored quotients over vectors.
//!
//! Functions of f32 are computed in f64, half a vector at a time: `a^b = 2^(b log2 a)` needs a
//! logarithm of more bits than f32 has, and a remainder is exact there as long as the quotient is
//! below 2^28. Powers of f64 have a logarithm in two parts. Remainders of f64 are exact while the
//! quotient is below 2^50 and products are fused. Lanes beyond, infinities and NaN go through the
//! functions that define the operations (`kernel::eval` of core), one by one. Powers of f32 are
//! within 1 ulp, powers of f64 within 2.

use super::double::{self, LN2_HI, LN2_LO, exp_of_two, power_of_two, split};
use super::{patched, poly64};
use crate::simd::loops::{Binary, Unary, unary};
use crate::simd::{F32s, F64s, Lanes};
use teeny_core::kernel::eval::{self, floor_div, remainder};

/// `x^y` for a positive normal x, relative error 2^-33 where the result is an f32; 2^200 and 2^-200
/// stand for what is larger and smaller.
#[inline(always)]
fn power_of_positive<D: F64s>(x: D, y: D) -> D {
    let one = D::splat(1.0);
    let (e, m) = split(x);
    // log2 m = s P(s²), relative error 7.8e-14.
    let s = m.sub(one).div(m.add(one));
    let p = poly64(
        s.mul(s),
        [
            2.885_390_081_777_849,
            0.961_796_694_114_913_1,
            0.577_077_941_897_080_3,
            0.412_209_300_772_206_97,
            0.319_903_666_489_231_13,
            0.282_929_809_704_439_9,
        ],
    );
    let exponent = s.fma(p, e).mul(y);
    let exponent = D::splat(-200.0).max(D::splat(200.0).min(exponent));
    // 2^f on [-0.5, 0.5], relative error 4.0e-11.
    let n = exponent.round();
    let q = poly64(
        exponent.sub(n),
        [
            0.999_999_999_961_671_6,
            0.693_147_180_728_448_8,
            0.240_226_511_981_815_97,
            0.055_504_103_534_707_534,
            0.009_618_027_252_274_423,
            0.001_333_392_253_041_37,
            1.546_929_142_207_861_6e-4,
            1.520_193_132_512_416_5e-5,
        ],
    );
    q.mul(power_of_two(n))
}

/// `a^b` of f32.
#[inline(always)]
fn pow<V: F32s>(a: V, b: V) -> V {
    let (zero, one, size) = (V::splat(0.0), V::splat(1.0), a.abs());
    // 1 instead of 0, which has no logarithm.
    let base = V::select(zero.lt(size), size, one);
    let ((a0, a1), (b0, b1)) = (base.widen(), b.widen());
    let y = V::narrow(power_of_positive(a0, b0), power_of_positive(a1, b1));
    let of_zero = V::select(zero.lt(b), zero, V::select(b.lt(zero), V::splat(f32::INFINITY), one));
    let y = V::select(a.eq(zero), of_zero, y);
    // A negative base, -0 too: whole exponents only, odd ones keep the sign.
    let half = b.mul(V::splat(0.5));
    let odd = V::select(half.floor().eq(half), zero, V::select(b.floor().eq(b), a, zero));
    let y = y.xor_sign(odd);
    let y = V::select(a.lt(zero), V::select(b.floor().eq(b), y, V::splat(f32::NAN)), y);
    let infinity = V::splat(f32::INFINITY);
    let finite = V::select(size.lt(infinity), V::select(b.abs().lt(infinity), zero, one), one);
    patched(zero.lt(finite), a, b, y, eval::pow)
}

/// `ln x` of a positive normal x as a sum of two: `2 s + s z (2/3 + z t(z))` with `s = (m - 1) / (m +
/// 1)` and `z = s²`, relative error 1.2e-20; all but t are in two parts. Products are fused.
#[inline(always)]
fn log_in_two<D: F64s>(x: D) -> (D, D) {
    /// 2/3, and its rounding error.
    const C: [f64; 2] = [2.0 / 3.0, 3.700_743_415_417_188e-17];
    let (one, two, zero) = (D::splat(1.0), D::splat(2.0), D::splat(0.0));
    let minus = |x: D| x.xor_sign(D::splat(-0.0));
    let (e, m) = split(x);
    // m + 1 in two parts, its reciprocal, s.
    let f = m.sub(one);
    let d = f.add(two);
    let d_low = f.sub(d.sub(two));
    let q = one.div(d);
    let s = f.mul(q);
    let s_low = minus(s).fma(d_low, minus(s).fma(d, f)).mul(q);
    let z = s.mul(s);
    let z_low = s.add(s).fma(s_low, s.fma(s, minus(z)));
    let t = poly64(
        z,
        [
            0.400_000_000_000_022_56,
            0.285_714_285_700_992_3,
            0.222_222_225_199_802_9,
            0.181_817_843_623_987_15,
            0.153_867_575_377_518_63,
            0.132_568_131_473_369_6,
            0.131_963_698_069_124_42,
        ],
    );
    // 2/3 + z t, z times that, 2 more, s times that.
    let u = z.mul(t);
    let a = D::splat(C[0]).add(u);
    let a_low = D::splat(C[0]).sub(a).add(u).add(D::splat(C[1]));
    let b = z.mul(a);
    let b_low = z_low.fma(a, z.fma(a_low, z.fma(a, minus(b))));
    let g = two.add(b);
    let g_low = b.sub(g.sub(two)).add(b_low);
    let l = s.mul(g);
    let l_low = s_low.fma(g, s.fma(g_low, s.fma(g, minus(l))));
    // e ln 2, whose first product is exact.
    let n = e.mul(D::splat(LN2_HI));
    let sum = n.add(l);
    let lost = D::select(e.eq(zero), zero, l.sub(sum.sub(n)));
    let low = e.fma(D::splat(LN2_LO), lost.add(l_low));
    let high = sum.add(low);
    (high, low.sub(high.sub(sum)))
}

/// `a^b` of f64, wrong where the last value is 1: the base is zero, subnormal or not finite, or the
/// result may not be normal.
#[inline(always)]
fn power64<D: F64s>(a: D, b: D) -> (D, D) {
    let (zero, one, size) = (D::splat(0.0), D::splat(1.0), a.abs());
    let normal = |yes, no| {
        let y = D::select(size.lt(D::splat(f64::INFINITY)), yes, no);
        D::select(size.lt(D::splat(f64::MIN_POSITIVE)), no, y)
    };
    let (high, low) = log_in_two(normal(size, one));
    let w = b.mul(high);
    let w_low = b.fma(low, b.fma(high, w.xor_sign(D::splat(-0.0))));
    let bounded = w.abs().lt(D::splat(708.0));
    let y = exp_of_two(D::select(bounded, w, zero), w_low);
    // A negative base: whole exponents only, odd ones keep the sign.
    let half = b.mul(D::splat(0.5));
    let odd = D::select(half.floor().eq(half), zero, a);
    let whole = b.floor().eq(b);
    let negative = D::select(whole, y.xor_sign(odd), D::splat(f64::NAN));
    (D::select(a.lt(zero), negative, y), D::select(bounded, normal(zero, one), one))
}

/// The remainder and the floored quotient of `a / b` in f64, and 1 where the quotient is 2^bits or
/// more, or not a number, and both are wrong.
#[inline(always)]
fn divided<D: F64s>(a: D, b: D, limit: f64) -> (D, D, D) {
    let (zero, one) = (D::splat(0.0), D::splat(1.0));
    let exact = a.div(b);
    let q = exact.floor();
    let r = zero.sub(q).fma(b, a);
    // The quotient may have been rounded up to a whole number: the remainder's sign tells.
    let over = D::select(b.lt(zero), zero.sub(r), r).lt(zero);
    let r = D::select(over, r.add(b), r);
    let q = D::select(over, q.sub(one), q);
    let r = D::select(r.eq(zero), zero.xor_sign(b), r);
    let bounded = exact.abs().lt(D::splat(limit));
    let finite = b.abs().lt(D::splat(f64::INFINITY));
    (r, q, D::select(bounded, D::select(finite, zero, one), one))
}

/// Quotients of f32 below this have exact remainders in f64.
const LIMIT32: f64 = 268_435_456.0;
/// Quotients of f64 below this have exact remainders by a fused multiply-add.
const LIMIT64: f64 = 1_125_899_906_842_624.0;

macro_rules! division {
    ($(#[$doc:meta])* $name:ident, $of:ident: |$r:ident, $q:ident| $value:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl Binary for $name {
            const LONG: bool = true;
            #[inline(always)]
            fn eval<V: F32s>(a: V, b: V) -> V {
                let ((a0, a1), (b0, b1)) = (a.widen(), b.widen());
                let half = |a, b| {
                    let ($r, $q, wrong) = divided(a, b, LIMIT32);
                    ($value, wrong)
                };
                let (low, high) = (half(a0, b0), half(a1, b1));
                let wrong = V::splat(0.0).lt(V::narrow(low.1, high.1));
                patched(wrong, a, b, V::narrow(low.0, high.0), $of)
            }
            #[inline(always)]
            fn eval64<D: F64s>(a: D, b: D) -> D {
                let ($r, $q, wrong) = divided(a, b, LIMIT64);
                // Without a fused product the remainder is rounded.
                let fused = <D as Lanes<f64>>::FUSED;
                let wrong = if fused { wrong } else { D::splat(1.0) };
                double::patched(D::splat(0.0).lt(wrong), a, b, $value, $of)
            }
        }
    };
}

division! {
    /// The remainder with the sign of the divisor.
    Rem, remainder: |r, _q| r
}
division! {
    /// The quotient rounded down.
    FloorDiv, floor_div: |_r, q| q
}

// Powers with exponents that are frequent, with the special values of IEEE 754's `pow`.
unary! {
    /// `x²`.
    Square |x| x.mul(x);
    /// `x³`.
    Cube |x| x.mul(x).mul(x);
    /// `x^0.5`: -0 gives +0, -inf gives inf.
    PowHalf |x| {
        let y = x.sqrt().abs();
        V::select(x.eq(V::splat(f64::NEG_INFINITY as _)), V::splat(f64::INFINITY as _), y)
    };
    /// `x^-0.5`.
    PowMinusHalf |x| {
        let y = x.rsqrt().abs();
        V::select(x.eq(V::splat(f64::NEG_INFINITY as _)), V::splat(0.0), y)
    };
    /// `x^-2`. The quotient first: x² may overflow where 1 / x² is subnormal.
    RecipSquare |x| { let y = V::splat(1.0).div(x); y.mul(y) };
}

/// Replaces `y` by the value of the exponent's own loop in lanes with a frequent exponent. So an
/// element has one value, whether its exponent is one number for all elements or not.
macro_rules! with_frequent {
    ($V:ident, $eval:ident, $a:expr, $b:expr, $y:expr) => {{
        let (a, b, y) = ($a, $b, $y);
        // Twice a frequent exponent is a whole number of at most six.
        let (twice, far) = (b.add(b), $V::splat(7.0));
        let near = $V::select(twice.floor().eq(twice), twice.abs(), far).lt(far);
        if $V::any(near) {
            let pick = |y, exponent, value| $V::select(b.eq($V::splat(exponent)), value, y);
            let y = pick(pick(y, 1.0, a), 2.0, Square::$eval(a));
            let y = pick(pick(y, 3.0, Cube::$eval(a)), 0.5, PowHalf::$eval(a));
            let y = pick(pick(y, -0.5, PowMinusHalf::$eval(a)), -1.0, $V::splat(1.0).div(a));
            pick(y, -2.0, RecipSquare::$eval(a))
        } else {
            y
        }
    }};
}

/// `a^b`.
pub(crate) struct Pow;

impl Binary for Pow {
    const LONG: bool = true;
    #[inline(always)]
    fn eval<V: F32s>(a: V, b: V) -> V {
        with_frequent!(V, eval, a, b, pow(a, b))
    }
    #[inline(always)]
    fn eval64<D: F64s>(a: D, b: D) -> D {
        let one = D::splat(1.0);
        // Without fused products the logarithm has no second part.
        let (y, wrong) = if <D as Lanes<f64>>::FUSED { power64(a, b) } else { (a, one) };
        let y = double::patched(D::splat(0.0).lt(wrong), a, b, y, eval::pow);
        with_frequent!(D, eval64, a, b, y)
    }
}
