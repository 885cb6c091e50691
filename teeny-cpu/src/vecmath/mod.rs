//! Elementary functions of f32 over vectors, branch-free, each within 2 ulp of the correctly
//! rounded value at every level. `double` has the functions of f64, `power` the functions of two
//! operands.
//!
//! The naive form calls the C library for each lane. Here an argument is reduced to a small
//! interval (`x = n ln 2 + r` for exp, `2^e m` for log, multiples of π/2 for sin), a polynomial is
//! evaluated there by Horner's rule, and the result is scaled back; the formula stands at each
//! function. tanh and erf have a polynomial for each of sixteen intervals, whose coefficients are
//! looked up in registers (`tables`).
//!
//! Coefficients are minimax fits of our own (Remez exchange in 200-bit arithmetic on the interval
//! stated, then rounded to f32); each set names its error before rounding. Specials follow IEEE 754
//! and C99: NaN gives NaN, infinities and signed zeros are kept. Measured on every 101st bit
//! pattern, distance to the rounded f64 value: exp, exp2, log, log1p and tanh at most 1 ulp, erf,
//! log2, sin and the others at most 2 (`vecmath_tests`). Arguments that are rare and need another
//! method, such as sines of numbers beyond 8192, go through their definitions in f64, lane by
//! lane ([`patched`]).

pub(crate) mod double;
mod power;
mod tables;

pub(crate) use power::{Cube, FloorDiv, Pow, PowHalf, PowMinusHalf, RecipSquare, Rem, Square};

use crate::simd::loops::{Real, Unary};
use crate::simd::{F32s, F64s, Lanes};
use teeny_core::kernel::FloatFunction;
use teeny_core::kernel::eval::float_function;

/// `1 / ln 2`
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// The first 15 bits of ln 2, so that `n * LN2_HI` is exact for |n| < 512 (Cody and Waite 1980),
/// and the rest.
const LN2_HI: f32 = 0.693_145_75;
const LN2_LO: f32 = 1.428_606_8e-6;
/// `Σ c[i] x^i` by Horner's rule.
#[inline(always)]
fn poly<V: F32s, const N: usize>(x: V, c: [f32; N]) -> V {
    let mut y = V::splat(c[N - 1]);
    for &c in c[..N - 1].iter().rev() {
        y = y.fma(x, V::splat(c));
    }
    y
}

/// `Σ c[i] x^i` of f64 by Horner's rule.
#[inline(always)]
fn poly64<D: F64s, const N: usize>(x: D, c: [f64; N]) -> D {
    let mut y = D::splat(c[N - 1]);
    for &c in c[..N - 1].iter().rev() {
        y = y.fma(x, D::splat(c));
    }
    y
}

/// Added to a number below 2^22, it rounds it to a whole number, whose low bits become its own.
const MAGIC: f32 = 12_582_912.0;

/// The whole number next to `x * factor`, plus [`MAGIC`].
#[inline(always)]
fn whole<V: F32s>(x: V, factor: f32) -> V {
    let (factor, magic) = (V::splat(factor), V::splat(MAGIC));
    if V::FUSED { x.fma(factor, magic) } else { x.mul(factor).add(magic) }
}

/// `e^r` for |r| <= 0.3475, relative error 2.0e-9.
#[inline(always)]
fn exp_core<V: F32s>(r: V) -> V {
    poly(r, [1.0, 1.0, 0.499_999_94, 0.166_665_2, 0.041_668_22, 0.008_368_81, 0.001_382_552_6])
}

/// `e^x`.
#[inline(always)]
pub(crate) fn exp<V: F32s>(x: V) -> V {
    // Beyond these bounds the result is 0 or inf; a NaN passes both because max and min return the
    // second operand.
    let x = V::splat(-105.0).max(V::splat(89.0).min(x));
    let n = whole(x, LOG2_E).sub(V::splat(MAGIC));
    let r = n.fma(V::splat(-LN2_HI), x);
    exp_core(n.fma(V::splat(-LN2_LO), r)).scale(n)
}

/// `2^f` for |f| <= 0.5, relative error 2.0e-9.
#[inline(always)]
fn exp2_core<V: F32s>(f: V) -> V {
    poly(
        f,
        [
            1.0,
            std::f32::consts::LN_2,
            0.240_226_48,
            0.055_503_596,
            0.009_618_49,
            0.001_339_091_6,
            0.000_153_340_4,
        ],
    )
}

/// `2^x`: the fraction in [-0.5, 0.5] is exact.
#[inline(always)]
pub(crate) fn exp2<V: F32s>(x: V) -> V {
    let x = V::splat(-151.0).max(V::splat(129.0).min(x));
    let n = x.round();
    exp2_core(x.sub(n)).scale(n)
}

/// The place in a table of `m` in [3/4, 3/2).
#[inline(always)]
fn place<V: F32s>(m: V) -> V::I {
    V::i_sra::<19>(m.bits())
}

/// `e ln 2 + ln (1 / c) + ln(1 + f)` for the c at a place of the table: `f + f² q(f)` on [-1/32,
/// 1/16], relative error 3.2e-9.
#[inline(always)]
fn log_of<V: F32s>(e: V, place: V::I, f: V) -> V {
    let q = poly(f, [-0.5, 0.333_344_34, -0.250_074_5, 0.188_686_97]);
    let large = e.fma(V::splat(std::f32::consts::LN_2), V::lookup(&tables::LOGARITHMS, place));
    large.add(f.mul(f).fma(q, f))
}

/// `ln x = ln(2^e m)` with `f = c m - 1`.
#[inline(always)]
pub(crate) fn log<V: F32s>(x: V) -> V {
    let (e, m) = x.split();
    let f = m.fma(V::lookup(&tables::RECIPROCALS, place(m)), V::splat(-1.0));
    log_of(e, place(m), f)
}

/// `log2 x`, as [`log`]: `f log2(e) + f² q(f)`, relative error 1.3e-8, from log2(e) as f32.
#[inline(always)]
pub(crate) fn log2<V: F32s>(x: V) -> V {
    let (e, m) = x.split();
    let f = m.fma(V::lookup(&tables::RECIPROCALS_OF_LOG2, place(m)), V::splat(-1.0));
    let q = poly(f, [-0.721_347_5, 0.480_959_15, -0.360_999, 0.264_118_7]);
    let large = e.add(V::lookup(&tables::LOG2, place(m)));
    large.add(f.fma(V::splat(LOG2_E), f.mul(f).mul(q)))
}

/// `log10 x`, as [`log`]: `e log10 2 + log10 (1 / c)` is exact except the lower part of log10 2, so
/// that the logarithm of a power of ten is whole.
#[inline(always)]
pub(crate) fn log10<V: F32s>(x: V) -> V {
    let (e, m) = x.split();
    let f = m.fma(V::lookup(&tables::RECIPROCALS_OF_LOG10, place(m)), V::splat(-1.0));
    let q = poly(f, [-0.217_147_25, 0.144_769_61, -0.108_605_97, 0.081_945_71]);
    let large = e.fma(V::splat(0.301_029_2), V::lookup(&tables::LOG10, place(m)));
    let tail = e.fma(V::splat(7.903_417e-7), f.mul(f).mul(q));
    large.add(f.fma(V::splat(std::f32::consts::LOG10_E), tail))
}

/// `ln(1 + x)`: the logarithm of `u = 1 + x`, with the rounding error of u added to its fraction.
#[inline(always)]
pub(crate) fn log1p<V: F32s>(x: V) -> V {
    let one = V::splat(1.0);
    let u = x.add(one);
    let part = u.sub(one);
    // Exactly 1 + x - u; 1, and not NaN, where x is infinite.
    let lost = one.sub(u.sub(part)).add(x.sub(part)).min(one);
    let (e, m) = u.split();
    // 2^-e, of no importance where u is so large that it lacks nothing.
    let e_small = V::splat(100.0).min(e);
    let power = V::from_bits(V::i_shl::<23>(V::i_sub(V::i_splat(127), e_small.to_i32())));
    let c = V::lookup(&tables::RECIPROCALS, place(m));
    let f = m.fma(c, V::splat(-1.0)).add(lost.mul(power).mul(c));
    V::select(x.eq(V::splat(0.0)), x, log_of(e, place(m), f))
}

/// `e^x - 1`: `2^n (r + r² q(r)) + (2^n - 1)`, relative error of the first 2.4e-10. Half of it is
/// computed, as 2^n may overflow where the result does not.
#[inline(always)]
pub(crate) fn expm1<V: F32s>(x: V) -> V {
    let bounded = V::splat(-25.0).max(V::splat(89.0).min(x));
    let n = bounded.mul(V::splat(LOG2_E)).round();
    let r = n.fma(V::splat(-LN2_HI), bounded);
    let r = n.fma(V::splat(-LN2_LO), r);
    let q = poly(
        r,
        [0.5, 0.166_666_67, 0.041_666_355, 0.008_333_273, 0.001_394_103_9, 0.000_199_140_85],
    );
    let p = r.mul(r).fma(q, r);
    let half = V::from_bits(V::i_shl::<23>(V::i_add(n.to_i32(), V::i_splat(126))));
    let y = half.fma(p, half.sub(V::splat(0.5)));
    V::select(x.eq(V::splat(0.0)), x, y.add(y))
}

/// `tanh x`, by a table of polynomials.
#[inline(always)]
pub(crate) fn tanh<V: F32s>(x: V) -> V {
    tables::TANH.eval(x)
}

/// `erf x`, by a table of polynomials.
#[inline(always)]
pub(crate) fn erf<V: F32s>(x: V) -> V {
    tables::ERF.eval(x)
}

/// π/2 in three parts of 24 bits each, by rounding and subtracting.
const PI_2: [f32; 3] = [1.570_796_4, -4.371_139e-8, -1.715_124_5e-15];
/// Beyond this the three parts no longer suffice: `k * PI_2[0]` must cancel exactly, which needs k
/// < 2^13.
pub(crate) const TRIG_LIMIT: f32 = 8192.0;

/// `x - k π/2`.
#[inline(always)]
fn reduced<V: F32s>(x: V, k: V) -> V {
    let r = k.fma(V::splat(-PI_2[0]), x);
    let r = k.fma(V::splat(-PI_2[1]), r);
    k.fma(V::splat(-PI_2[2]), r)
}

/// `sin(x + quarter * π/2)` for |x| <= `TRIG_LIMIT`; unspecified above.
///
/// On [-π/4, π/4]: `sin r = r + r³ q(r²)`, relative error 3.7e-9; `cos r = 1 - r²/2 + r⁴ q(r²)`,
/// error 9.8e-11.
#[inline(always)]
fn trig<V: F32s>(x: V, quarter: i32) -> V {
    let k = x.mul(V::splat(std::f32::consts::FRAC_2_PI)).round();
    let r = reduced(x, k);
    let u = r.mul(r);
    let s = poly(u, [-0.166_666_55, 0.008_332_164, -1.951_536_7e-4]);
    let s = u.mul(r).fma(s, r);
    let c = poly(u, [0.041_666_646, -0.001_388_734_9, 2.443_628_5e-5]);
    let c = u.mul(u).fma(c, u.fma(V::splat(-0.5), V::splat(1.0)));
    let q = V::i_add(k.to_i32(), V::i_splat(quarter));
    // Odd quarters take the cosine, quarters 2 and 3 the minus sign.
    let odd = V::from_bits(V::i_shl::<30>(V::i_and(q, V::i_splat(1)))); // 2.0 or 0.0
    let y = V::select(odd.eq(V::splat(0.0)), s, c);
    y.xor_sign(V::from_bits(V::i_shl::<30>(q)))
}

/// `sin x`.
#[inline(always)]
pub(crate) fn sin<V: F32s>(x: V) -> V {
    let y = V::select(x.eq(V::splat(0.0)), x, trig(x, 0));
    patched(V::splat(TRIG_LIMIT).lt(x.abs()), x, x, y, |x, _| float_function(FloatFunction::Sin, x))
}

/// `cos x`.
#[inline(always)]
pub(crate) fn cos<V: F32s>(x: V) -> V {
    patched(V::splat(TRIG_LIMIT).lt(x.abs()), x, x, trig(x, 1), |x, _| {
        float_function(FloatFunction::Cos, x)
    })
}

/// `tan x`: on [-π/4, π/4] `r + r³ q(r²)`, relative error 2.0e-8 / 8; `-1 / tan r` in odd quarters.
#[inline(always)]
pub(crate) fn tan<V: F32s>(x: V) -> V {
    let k = x.mul(V::splat(std::f32::consts::FRAC_2_PI)).round();
    let r = reduced(x, k);
    let u = r.mul(r);
    let q =
        poly(u, [0.333_331_4, 0.133_392, 0.053_381_15, 0.024_528_738, 0.002_973_521, 0.009_466_23]);
    let t = u.mul(r).fma(q, r);
    let odd = V::from_bits(V::i_shl::<30>(V::i_and(k.to_i32(), V::i_splat(1))));
    let y = V::select(odd.eq(V::splat(0.0)), t, V::splat(-1.0).div(t));
    let y = V::select(x.eq(V::splat(0.0)), x, y);
    patched(V::splat(TRIG_LIMIT).lt(x.abs()), x, x, y, |x, _| float_function(FloatFunction::Tan, x))
}

/// `atan x`: by `atan a = π/4 + atan((a - 1) / (a + 1)) = π/2 - atan(1 / a)` to |r| <= tan π/8,
/// then `r + r³ q(r²)`, relative error 6.6e-10. The rounding errors of π/4 and π/2 are added to the
/// smallest term.
#[inline(always)]
pub(crate) fn atan<V: F32s>(x: V) -> V {
    use std::f32::consts::{FRAC_PI_2, FRAC_PI_4};
    let (a, one) = (x.abs(), V::splat(1.0));
    let (above, far) = (V::splat(0.414_213_57).lt(a), V::splat(2.414_213_7).lt(a));
    let pick = |near: V, middle: V, large: V| V::select(far, large, V::select(above, middle, near));
    let r = pick(a, a.sub(one), V::splat(-1.0)).div(pick(one, a.add(one), a));
    let base = pick(V::splat(0.0), V::splat(FRAC_PI_4), V::splat(FRAC_PI_2));
    let rest = pick(V::splat(0.0), V::splat(-2.185_569_4e-8), V::splat(-4.371_139e-8));
    let u = r.mul(r);
    let q = poly(u, [-0.333_333_16, 0.199_984_91, -0.142_438_58, 0.105_960_07, -0.060_833_484]);
    let y = base.add(r.add(u.mul(r).fma(q, rest)));
    // NaN is above nothing.
    y.xor_sign(x)
}

/// `y`, but `f(a, b)` in the lanes of `wrong`, one by one: for arguments that the vector's formula
/// does not cover and that are rare.
#[inline(always)]
fn patched<V: F32s>(wrong: V::M, a: V, b: V, y: V, f: fn(f64, f64) -> f64) -> V {
    if !V::any(wrong) {
        return y;
    }
    let marks = V::select(wrong, V::splat(1.0), V::splat(0.0));
    by_lanes([a, b, y, marks], |a, b| f(f64::from(a), f64::from(b)) as f32)
}

/// The third vector, but `f` of the first two in lanes where the fourth is not zero.
#[inline(always)]
fn by_lanes<T: Real, V: Lanes<T>>(x: [V; 4], f: impl Fn(T, T) -> T) -> V {
    let mut lanes = [[T::default(); 16]; 4];
    // SAFETY: no vector has more than sixteen lanes.
    unsafe {
        for (x, lanes) in x.into_iter().zip(&mut lanes) {
            x.store(lanes.as_mut_ptr());
        }
        patch(&mut lanes, f);
        V::load(lanes[2].as_ptr())
    }
}

/// See [`by_lanes`].
#[cold]
#[inline(never)]
fn patch<T: Real>([a, b, y, marks]: &mut [[T; 16]; 4], f: impl Fn(T, T) -> T) {
    for i in 0..16 {
        if marks[i] != T::default() {
            y[i] = f(a[i], b[i]);
        }
    }
}

/// Declares the function types of this file for `simd::loops`.
macro_rules! functions {
    ($($name:ident => $f:ident),* $(,)?) => {$(
        #[doc = concat!("`", stringify!($f), "`")]
        pub(crate) struct $name;
        impl Unary for $name {
            const LONG: bool = true;
            #[inline(always)]
            fn eval<V: F32s>(x: V) -> V {
                $f(x)
            }
            #[inline(always)]
            fn eval64<D: F64s>(x: D) -> D {
                double::$f(x)
            }
        }
    )*};
}

functions! {
    Exp => exp, Exp2 => exp2, Expm1 => expm1, Log => log, Log2 => log2, Log10 => log10,
    Log1p => log1p, Sin => sin, Cos => cos, Tan => tan, Atan => atan, Tanh => tanh, Erf => erf,
}
