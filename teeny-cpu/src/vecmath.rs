//! Elementary functions of f32 over vectors, branch-free, each within 2 ulp of the correctly
//! rounded value at every level.
//!
//! The naive form calls the C library for each lane. Here an argument is reduced to a small
//! interval (`x = n ln 2 + r` for exp, `2^e m` for log, multiples of π/2 for sin), a polynomial is
//! evaluated there by Horner's rule, and the result is scaled back; the formula stands at each
//! function.
//!
//! Coefficients are minimax fits of our own (Remez exchange in 200-bit arithmetic on the interval
//! stated, then rounded to f32); each set names its error before rounding. Specials follow IEEE 754
//! and C99: NaN gives NaN, infinities and signed zeros are kept. Measured on every 101st bit
//! pattern, distance to the rounded f64 value: exp, exp2, log, tanh and erf at most 1 ulp, sin and
//! cos at most 2 (`vecmath_tests`). Functions that are missing here
//! (pow, tan, atan …) go through f64 per element in `elementwise::loops::float`.

use crate::simd::loops::{Unary, map1};
use crate::simd::{F32s, Level, Work};

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

/// `p * 2^n` for |n| <= 252 in two factors, so that overflow and gradual underflow round once.
#[inline(always)]
fn scale<V: F32s>(p: V, n: V::I) -> V {
    let half = V::i_sra::<1>(n);
    let rest = V::i_sub(n, half);
    let power = |k| V::from_bits(V::i_shl::<23>(V::i_add(k, V::i_splat(127))));
    p.mul(power(half)).mul(power(rest))
}

/// `e^r` for |r| <= 0.348: `1 + r + r² q(r)`, relative error 3.1e-9.
#[inline(always)]
fn exp_core<V: F32s>(r: V) -> V {
    let q = poly(r, [0.499_999_94, 0.166_665_2, 0.041_668_4, 0.008_368_851, 0.001_381_435]);
    r.mul(r).fma(q, r).add(V::splat(1.0))
}

/// `e^x`.
#[inline(always)]
pub(crate) fn exp<V: F32s>(x: V) -> V {
    // Beyond these bounds the result is 0 or inf; a NaN passes both because max and min return the
    // second operand.
    let x = V::splat(-105.0).max(V::splat(89.0).min(x));
    let n = x.mul(V::splat(LOG2_E)).round();
    let r = n.fma(V::splat(-LN2_HI), x);
    let r = n.fma(V::splat(-LN2_LO), r);
    scale(exp_core(r), n.to_i32())
}

/// `2^x`: the fraction in [-0.5, 0.5] is exact.
#[inline(always)]
pub(crate) fn exp2<V: F32s>(x: V) -> V {
    let x = V::splat(-151.0).max(V::splat(129.0).min(x));
    let n = x.round();
    let r = x.sub(n).mul(V::splat(std::f32::consts::LN_2));
    scale(exp_core(r), n.to_i32())
}

/// `ln x`: `x = 2^e m` with m in [√½, √2), then `ln(1 + f) = f - f²/2 + f³ q(f)`, relative error
/// 5.9e-9.
#[inline(always)]
pub(crate) fn log<V: F32s>(x: V) -> V {
    let tiny = x.lt(V::splat(f32::MIN_POSITIVE));
    let up = V::select(tiny, x.mul(V::splat(8_388_608.0)), x); // 2^23 lifts every subnormal
    let bias = V::select(tiny, V::splat(-23.0), V::splat(0.0));
    let shifted = V::i_sub(up.bits(), V::i_splat(0x3f35_04f3)); // the bits of √½
    let exponent = V::i_sra::<23>(shifted);
    let m = V::from_bits(V::i_sub(up.bits(), V::i_shl::<23>(exponent)));
    let e = V::from_i32(exponent).add(bias);
    let f = m.sub(V::splat(1.0));
    let q = poly(
        f,
        [
            0.333_333_3,
            -0.250_008_26,
            0.200_012_36,
            -0.166_231_48,
            0.142_013_92,
            -0.131_619_9,
            0.127_652_65,
            -0.076_342_22,
        ],
    );
    let f2 = f.mul(f);
    let tail = f2.mul(f).fma(q, e.mul(V::splat(LN2_LO)));
    let tail = f2.fma(V::splat(-0.5), tail);
    let y = e.fma(V::splat(LN2_HI), f.add(tail));
    let zero = V::splat(0.0);
    let y = V::select(x.lt(V::splat(f32::INFINITY)), y, x); // inf and NaN stay
    let y = V::select(x.lt(zero), V::splat(f32::NAN), y);
    V::select(x.eq(zero), V::splat(f32::NEG_INFINITY), y)
}

/// `tanh x`: `x + x³ q(x²)` below 0.6 (relative error 2.6e-9), `1 - 2 / (e^2x + 1)` above, where
/// that difference is at least one half and so costs no accuracy.
#[inline(always)]
pub(crate) fn tanh<V: F32s>(x: V) -> V {
    let a = x.abs();
    let u = x.mul(x);
    let q = poly(u, [-0.333_333, 0.133_319_59, -0.053_786_684, 0.020_805_389, -0.005_905_872_7]);
    let small = u.mul(x).fma(q, x);
    let e = exp(V::splat(10.0).min(a).mul(V::splat(2.0)));
    let large = V::splat(1.0).sub(V::splat(2.0).div(e.add(V::splat(1.0)))).xor_sign(x);
    // For x = -0 the fused sum is +0 + -0; taking the sign from x keeps it.
    V::select(a.lt(V::splat(0.6)), V::select(x.eq(V::splat(0.0)), x, small), large)
}

/// `erf x`: `x + x q(x²)` below 0.9 (relative error 6.0e-10), `1 - e^-p(x)` above with
/// `p = -ln erfc` on [0.9, 4] (relative error of erf 6.0e-11); beyond 4 the result rounds to one.
#[inline(always)]
pub(crate) fn erf<V: F32s>(x: V) -> V {
    let a = x.abs();
    let q = poly(
        x.mul(x),
        [
            0.128_379_17,
            -0.376_126_32,
            0.112_836_73,
            -0.026_858_104,
            0.005_197_796,
            -8.105_952e-4,
            8.215_379e-5,
        ],
    );
    let small = x.fma(q, x);
    let p = poly(
        V::splat(4.0).min(a),
        [
            -1.692_047_4e-4,
            1.129_488_3,
            0.633_400_86,
            0.108_220_38,
            -0.025_080_616,
            0.004_156_254_7,
            -4.313_935e-4,
            2.082_861_6e-5,
        ],
    );
    let large = V::splat(1.0).sub(exp(V::splat(0.0).sub(p))).xor_sign(x);
    V::select(a.lt(V::splat(0.9)), V::select(x.eq(V::splat(0.0)), x, small), large)
}

/// π/2 in three parts of 24 bits each, by rounding and subtracting.
const PI_2: [f32; 3] = [1.570_796_4, -4.371_139e-8, -1.715_124_5e-15];
/// Beyond this the three parts no longer suffice: `k * PI_2[0]` must cancel exactly, which needs k
/// < 2^13.
pub(crate) const TRIG_LIMIT: f32 = 8192.0;

/// `sin(x + quarter * π/2)` for |x| <= `TRIG_LIMIT`; unspecified above.
///
/// On [-π/4, π/4]: `sin r = r + r³ q(r²)`, relative error 3.7e-9; `cos r = 1 - r²/2 + r⁴ q(r²)`,
/// error 9.8e-11.
#[inline(always)]
fn trig<V: F32s>(x: V, quarter: i32) -> V {
    let k = x.mul(V::splat(std::f32::consts::FRAC_2_PI)).round();
    let r = k.fma(V::splat(-PI_2[0]), x);
    let r = k.fma(V::splat(-PI_2[1]), r);
    let r = k.fma(V::splat(-PI_2[2]), r);
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

/// `sin x` for |x| <= `TRIG_LIMIT`.
#[inline(always)]
pub(crate) fn sin<V: F32s>(x: V) -> V {
    V::select(x.eq(V::splat(0.0)), x, trig(x, 0))
}

/// `cos x` for |x| <= `TRIG_LIMIT`.
#[inline(always)]
pub(crate) fn cos<V: F32s>(x: V) -> V {
    trig(x, 1)
}

/// Declares the function types of this file for `simd::loops`.
macro_rules! functions {
    ($($name:ident => $f:ident),* $(,)?) => {$(
        #[doc = concat!("`", stringify!($f), "`")]
        pub(crate) struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn eval<V: F32s>(x: V) -> V {
                $f(x)
            }
        }
    )*};
}

functions! { Exp => exp, Exp2 => exp2, Log => log, Tanh => tanh, Erf => erf, SinSmall => sin, CosSmall => cos }

/// `y[i] = sin x[i]` or `cos x[i]`: the vector loop, then std in f64 for arguments beyond
/// `TRIG_LIMIT`.
///
/// # Safety
/// As `map1`.
pub(crate) unsafe fn map_trig(
    level: Level,
    cosine: bool,
    x: *const f32,
    y: *mut f32,
    n: usize,
    stream: bool,
) {
    /// Blocks that stay in L1 between the three passes.
    const BLOCK: usize = 1024;
    let mut at = 0;
    while at < n {
        let count = BLOCK.min(n - at);
        let mut large = [0u16; BLOCK];
        // SAFETY: `at + count <= n`. Where x and y are one range, the large arguments are taken
        // before they are overwritten.
        unsafe {
            let (x, y) = (x.add(at), y.add(at));
            let input = std::slice::from_raw_parts(x, count);
            let mut many = 0;
            let mut saved = [0.0f32; BLOCK];
            if level.run(AnyLarge(input)) {
                for (i, &v) in input.iter().enumerate() {
                    if beyond(v) {
                        large[many] = i as u16;
                        saved[many] = v;
                        many += 1;
                    }
                }
            }
            if cosine {
                map1::<CosSmall>(level, x, y, count, stream);
            } else {
                map1::<SinSmall>(level, x, y, count, stream);
            }
            for (&i, &v) in large[..many].iter().zip(&saved) {
                let v = f64::from(v);
                *y.add(usize::from(i)) = if cosine { v.cos() } else { v.sin() } as f32;
            }
        }
        at += count;
    }
}

/// Whether `v` is too large for `trig`, or NaN.
#[inline(always)]
fn beyond(v: f32) -> bool {
    v.is_nan() | (v.abs() > TRIG_LIMIT)
}

/// Whether any value is `beyond`.
struct AnyLarge<'a>(&'a [f32]);

impl Work for AnyLarge<'_> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        let mut outside = 0u32;
        for &v in self.0 {
            outside |= u32::from(beyond(v));
        }
        outside != 0
    }
}
