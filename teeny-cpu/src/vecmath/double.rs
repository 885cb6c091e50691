//! Elementary functions of f64 over vectors.
//!
//! The formulas follow the parent module, with more terms: an argument is reduced, a minimax
//! polynomial (Remez exchange in 200-bit arithmetic, then rounded to f64) is evaluated, the result
//! is scaled back. Each function is within 2 ulp of the correctly rounded value, tan and log1p
//! within 3 (`vecmath_tests`), with and without a fused multiply-add. The reduction constants have
//! 33 bits or less, so that their products with n are exact.

use super::tables::{LOGARITHMS64, RECIPROCALS64, ROOTS64};
use super::{by_lanes, poly64 as poly};
use crate::simd::F64s;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, TAU};
use teeny_core::kernel::FloatFunction;
use teeny_core::kernel::eval::float_function;

/// The first 32 bits of ln 2, and the rest.
pub(super) const LN2_HI: f64 = 6.931_471_803_691_238e-1;
pub(super) const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
/// π/2 in three parts of 33 bits.
const PI_2: [f64; 3] =
    [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_711_166_5e-21];
/// The largest argument for which `k * PI_2[0]` is exact: above it k has more than 19 bits.
const TRIG_LIMIT: f64 = 800_000.0;
/// Added to a whole number, it leaves it in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// Whole numbers below 2^51 as integers.
#[inline(always)]
pub(super) fn to_int<D: F64s>(n: D) -> D::I {
    D::i_sub(n.add(D::splat(MAGIC)).bits(), D::splat(MAGIC).bits())
}

/// `2^n` for whole n in -1022 ..= 1023.
#[inline(always)]
pub(super) fn power_of_two<D: F64s>(n: D) -> D {
    D::from_bits(D::i_shl::<52>(D::i_add(to_int(n), D::i_splat(1023))))
}

/// q of `e^r - 1 = r + r² q(r)` for |r| <= 0.347; relative error of the whole 3.6e-18.
#[inline(always)]
fn expm1_tail<D: F64s>(r: D) -> D {
    poly(
        r,
        [
            0.500_000_000_000_001_1,
            0.166_666_666_666_664_13,
            0.041_666_666_666_529_87,
            0.008_333_333_333_494_739,
            0.001_388_888_894_371_700_4,
            1.984_126_950_615_720_7e-4,
            2.480_149_299_904_853_5e-5,
            2.755_758_657_478_657_3e-6,
            2.763_028_709_625_29e-7,
            2.500_005_629_982_154e-8,
        ],
    )
}

/// `e^r - 1` for |r| <= 0.347.
#[inline(always)]
fn expm1_core<D: F64s>(r: D) -> D {
    r.mul(r).fma(expm1_tail(r), r)
}

/// `x - n ln 2` for the nearest whole n to x / ln 2, and n.
#[inline(always)]
fn by_ln2<D: F64s>(x: D) -> (D, D) {
    let n = x.mul(D::splat(LOG2_E)).round();
    let r = n.fma(D::splat(-LN2_HI), x);
    (n.fma(D::splat(-LN2_LO), r), n)
}

/// Added to a number below 2^47, it rounds it to sixteenths, whose number becomes the low bits.
const MAGIC16: f64 = 422_212_465_065_984.0;

/// `2^n (1 + p)` with `p` of `r`, where n is the whole number of sixteenths plus [`MAGIC16`].
#[inline(always)]
fn by_sixteenths<D: F64s>(shifted: D, p: D) -> D {
    let root = D::lookup(&ROOTS64, shifted.bits());
    root.fma(p, root).scale(shifted.sub(D::splat(MAGIC16)))
}

/// `e^(x + low)` for |x| < 746 and a `low` below its last place: `2^n e^r`. No table, whose rounded
/// roots of two would be in the last place: powers with an exact result have it.
#[inline(always)]
pub(super) fn exp_of_two<D: F64s>(x: D, low: D) -> D {
    let (r, n) = by_ln2(x);
    expm1_core(r.add(low)).add(D::splat(1.0)).scale(n)
}

/// `e^x`: `2^(n / 16) e^r` where the level has tables, `e^r - 1 = r + r² q(r)` for |r| <= 0.0217,
/// relative error 1.2e-17.
#[inline(always)]
pub(crate) fn exp<D: F64s>(x: D) -> D {
    let x = D::splat(-746.0).max(D::splat(710.0).min(x));
    if !D::TABLES {
        return exp_of_two(x, D::splat(0.0));
    }
    let shifted = x.fma(D::splat(LOG2_E), D::splat(MAGIC16));
    let n = shifted.sub(D::splat(MAGIC16));
    let r = n.fma(D::splat(-LN2_LO), n.fma(D::splat(-LN2_HI), x));
    let q = poly(
        r,
        [
            0.499_999_999_999_996_06,
            0.166_666_666_644_151_03,
            0.041_666_666_692_706_51,
            0.008_333_471_830_626_127,
            0.001_388_860_606_441_412_5,
        ],
    );
    by_sixteenths(shifted, r.mul(r).fma(q, r))
}

/// `2^x`: the fraction is exact; with tables `2^r - 1` for |r| <= 1/32, relative error 7.2e-18.
#[inline(always)]
pub(super) fn exp2<D: F64s>(x: D) -> D {
    let x = D::splat(-1080.0).max(D::splat(1025.0).min(x));
    if !D::TABLES {
        let n = x.round();
        return expm1_core(x.sub(n).mul(D::splat(LN_2))).add(D::splat(1.0)).scale(n);
    }
    let shifted = x.add(D::splat(MAGIC16));
    let r = x.sub(shifted.sub(D::splat(MAGIC16)));
    let p = poly(
        r,
        [
            LN_2,
            0.240_226_506_959_099_36,
            0.055_504_108_652_165_76,
            0.009_618_129_111_387_758,
            0.001_333_381_839_319_644,
            1.540_340_210_870_210_2e-4,
        ],
    );
    by_sixteenths(shifted, r.mul(p))
}

/// `e^x - 1`: `2^n (e^r - 1) + (2^n - 1)`. Half of it is computed, as 2^n may overflow where the
/// result does not.
#[inline(always)]
pub(super) fn expm1<D: F64s>(x: D) -> D {
    let (r, n) = by_ln2(D::splat(-45.0).max(D::splat(710.0).min(x)));
    let half = power_of_two(n.sub(D::splat(1.0)));
    let y = half.fma(expm1_core(r), half.sub(D::splat(0.5)));
    D::select(x.eq(D::splat(0.0)), x, y.add(y))
}

/// `x = 2^e m` with m in [√½, √2), for a normal positive x: e and m.
#[inline(always)]
pub(super) fn split<D: F64s>(x: D) -> (D, D) {
    const ROOT_HALF: i64 = 0x3fe6_a09e_667f_3bcd;
    const BIAS: i64 = 1023 << 52;
    // The exponent in the upper bits, biased so that it is positive.
    let shifted = D::i_add(x.bits(), D::i_splat(BIAS - ROOT_HALF));
    let biased = D::i_shr::<52>(shifted);
    let m = D::i_sub(x.bits(), D::i_sub(D::i_shl::<52>(biased), D::i_splat(BIAS)));
    // 2^52 + the integer, by its bits.
    let two52 = D::splat(4_503_599_627_370_496.0);
    let e = D::from_bits(D::i_xor(biased, two52.bits()))
        .sub(D::splat(4_503_599_627_370_496.0 + 1023.0));
    (e, D::from_bits(m))
}

/// `ln(1 + f) - f = -s (f - R(s²))` with `s = f / (2 + f)`, where `ln((1 + s) / (1 - s)) = 2 s + s
/// R(s²)`; relative error of R 1.7e-20.
#[inline(always)]
fn log_tail<D: F64s>(f: D) -> D {
    let s = f.div(f.add(D::splat(2.0)));
    let z = s.mul(s);
    let r = z.mul(poly(
        z,
        [
            0.666_666_666_666_666_6,
            0.400_000_000_000_062_86,
            0.285_714_285_690_729_4,
            0.222_222_226_487_568_65,
            0.181_817_755_078_959_28,
            0.153_870_976_821_539_02,
            0.132_499_612_566_152_23,
            0.132_527_622_661_528_87,
        ],
    ));
    // -f²/2 + s (f²/2 + R)
    let half = f.mul(f).mul(D::splat(0.5));
    s.mul(half.add(r)).sub(half)
}

/// `y`, the logarithm of `x`, or the value of IEEE 754 for zeros, negative numbers, infinity and
/// NaN.
#[inline(always)]
fn log_specials<D: F64s>(x: D, y: D) -> D {
    let zero = D::splat(0.0);
    let y = D::select(x.lt(D::splat(f64::INFINITY)), y, x);
    let y = D::select(x.lt(zero), D::splat(f64::NAN), y);
    D::select(x.eq(zero), D::splat(f64::NEG_INFINITY), y)
}

/// `x = 2^e (1 + f)` for a positive x, subnormal too: e and f.
#[inline(always)]
fn parts<D: F64s>(x: D) -> (D, D) {
    // 2^54 lifts a subnormal number into the normal ones.
    let tiny = x.lt(D::splat(f64::MIN_POSITIVE));
    let (e, m) = split(D::select(tiny, x.mul(D::splat(18_014_398_509_481_984.0)), x));
    (e.add(D::select(tiny, D::splat(-54.0), D::splat(0.0))), m.sub(D::splat(1.0)))
}

/// `f² q(f)` of `ln(1 + f) = f + f² q(f)` on [-1/32, 1/16], relative error 3.6e-19.
#[inline(always)]
fn log1p_tail<D: F64s>(f: D) -> D {
    let q = poly(
        f,
        [
            -0.499_999_999_999_999_94,
            0.333_333_333_333_333_26,
            -0.250_000_000_000_486_2,
            0.200_000_000_002_983_9,
            -0.166_666_665_442_375_52,
            0.142_857_128_319_004_85,
            -0.125_001_218_796_697_73,
            0.111_134_476_923_052_37,
            -0.099_649_622_511_235_21,
            0.079_135_619_480_883_21,
        ],
    );
    f.mul(f).mul(q)
}

/// `x = 2^e m`, `ln m = large + f + tail`, with tables as for f32.
#[inline(always)]
fn log_parts<D: F64s>(x: D) -> (D, D, D, D) {
    if D::TABLES {
        let (e, m) = x.split();
        let index = D::i_shr::<48>(m.bits());
        let f = m.fma(D::lookup(&RECIPROCALS64, index), D::splat(-1.0));
        return (e, D::lookup(&LOGARITHMS64, index), f, log1p_tail(f));
    }
    let (e, f) = parts(x);
    (e, D::splat(0.0), f, log_tail(f))
}

/// `ln x`.
#[inline(always)]
pub(crate) fn log<D: F64s>(x: D) -> D {
    let (e, large, f, tail) = log_parts(x);
    let y = e.fma(D::splat(LN2_HI), large).add(f.add(e.fma(D::splat(LN2_LO), tail)));
    if D::TABLES { y } else { log_specials(x, y) }
}

/// The factors of two normal numbers of two numbers in [0, 1) (Box & Muller 1958):
/// `√(-2 ln(1 - u))`, `sin 2πv` and `cos 2πv`. `1 - u` is at least 2^-53, the angle below 2π: neither
/// has special values.
#[inline(always)]
pub(crate) fn normal_factors<D: F64s>(u: D, v: D) -> (D, D, D) {
    let (e, m) = split(D::splat(1.0).sub(u));
    let f = m.sub(D::splat(1.0));
    let tail = log_tail(f).add(e.mul(D::splat(LN2_LO)));
    let log = e.fma(D::splat(LN2_HI), f.add(tail));
    let radius = log.mul(D::splat(-2.0)).sqrt();
    let (k, s, c) = sine_and_cosine(v.mul(D::splat(TAU)));
    let even = D::from_bits(D::i_shl::<62>(D::i_and(k, D::i_splat(1)))).eq(D::splat(0.0));
    let next = D::i_add(k, D::i_splat(1));
    let sine = D::select(even, s, c).xor_sign(D::from_bits(D::i_shl::<62>(k)));
    let cosine = D::select(even, c, s).xor_sign(D::from_bits(D::i_shl::<62>(next)));
    (radius, sine, cosine)
}

/// `log2 x`.
#[inline(always)]
pub(super) fn log2<D: F64s>(x: D) -> D {
    let (e, f) = parts(x);
    let tail = log_tail(f);
    // log2(e) = 1 + 0.442..: the largest term is added last and unrounded.
    let part = D::splat(LOG2_E - 1.0);
    let y = f.fma(part, tail.mul(part)).add(tail).add(f);
    log_specials(x, e.add(y))
}

/// `log10 x`: products with the upper parts of the constants and of `ln m` are exact, so that the
/// logarithm of a power of ten is a whole number (FreeBSD's e_log10.c).
#[inline(always)]
pub(super) fn log10<D: F64s>(x: D) -> D {
    /// `1 / ln 10` and `log10 2`, in two parts.
    const LOG10_E: [f64; 2] = [0.434_294_462_203_979_5, 1.969_927_233_546_362_7e-8];
    const LOG10_2: [f64; 2] = [0.301_029_920_578_002_93, 7.508_597_826_552_624e-8];
    let (e, large, f, tail) = log_parts(x);
    // ln m in two parts
    let high = D::from_bits(D::i_and(large.add(f.add(tail)).bits(), D::i_splat(!0xffff_ffff)));
    let low = large.sub(high).add(f).add(tail);
    let (large, part) = (e.mul(D::splat(LOG10_2[0])), high.mul(D::splat(LOG10_E[0])));
    let rest = low.add(high).fma(D::splat(LOG10_E[1]), low.mul(D::splat(LOG10_E[0])));
    let y = large.add(part);
    let lost = part.sub(y.sub(large)).add(e.fma(D::splat(LOG10_2[1]), rest));
    log_specials(x, y.add(lost))
}

/// `ln(1 + x)`: the logarithm of `u = 1 + x`, with the rounding error of u added to its fraction.
#[inline(always)]
pub(super) fn log1p<D: F64s>(x: D) -> D {
    let one = D::splat(1.0);
    let u = x.add(one);
    let part = u.sub(one);
    let lost = one.sub(u.sub(part)).add(x.sub(part));
    let (e, m) = split(u);
    // 2^-e, of no importance where u is so large that it lacks nothing.
    let power = power_of_two(D::splat(0.0).sub(D::splat(1000.0).min(e)));
    let f = m.sub(one).add(lost.mul(power));
    let tail = log_tail(f).add(e.mul(D::splat(LN2_LO)));
    let y = log_specials(u, e.fma(D::splat(LN2_HI), f.add(tail)));
    D::select(x.eq(D::splat(0.0)), x, y)
}

/// The nearest k to `x / (π/2)`, and sine and cosine of `x - k π/2`: `r + r³ S(r²)`, relative error
/// 3.4e-18, and `1 - r²/2 + r⁴ C(r²)`, error 4.7e-20.
#[inline(always)]
fn sine_and_cosine<D: F64s>(x: D) -> (D::I, D, D) {
    let k = x.mul(D::splat(FRAC_2_PI)).round();
    let r = k.fma(D::splat(-PI_2[0]), x);
    let r = k.fma(D::splat(-PI_2[1]), r);
    let r = k.fma(D::splat(-PI_2[2]), r);
    let u = r.mul(r);
    let s = poly(
        u,
        [
            -0.166_666_666_666_666_32,
            0.008_333_333_333_322_42,
            -1.984_126_982_981_237_5e-4,
            2.755_731_369_354_568_7e-6,
            -2.505_075_837_782_674e-8,
            1.589_681_132_881_568_3e-10,
        ],
    );
    let c = poly(
        u,
        [
            0.041_666_666_666_666_6,
            -0.001_388_888_888_887_414_2,
            2.480_158_728_949_218e-5,
            -2.755_731_435_506_963_4e-7,
            2.087_572_363_218_407_4e-9,
            -1.135_966_593_189_144_4e-11,
        ],
    );
    let (half, one) = (u.mul(D::splat(0.5)), D::splat(1.0));
    let rounded = one.sub(half);
    let lost = one.sub(rounded).sub(half);
    (to_int(k), u.mul(r).fma(s, r), rounded.add(u.mul(u).fma(c, lost)))
}

/// `sin(x + quarter * π/2)`.
#[inline(always)]
fn trig<D: F64s>(x: D, quarter: i64) -> D {
    let (k, s, c) = sine_and_cosine(x);
    let q = D::i_add(k, D::i_splat(quarter));
    let odd = D::from_bits(D::i_shl::<62>(D::i_and(q, D::i_splat(1)))); // 2.0 or 0.0
    let y = D::select(odd.eq(D::splat(0.0)), s, c);
    y.xor_sign(D::from_bits(D::i_shl::<62>(q)))
}

/// `sin x`.
#[inline(always)]
pub(super) fn sin<D: F64s>(x: D) -> D {
    let y = D::select(x.eq(D::splat(0.0)), x, trig(x, 0));
    patched(D::splat(TRIG_LIMIT).lt(x.abs()), x, x, y, |x, _| float_function(FloatFunction::Sin, x))
}

/// `cos x`.
#[inline(always)]
pub(super) fn cos<D: F64s>(x: D) -> D {
    patched(D::splat(TRIG_LIMIT).lt(x.abs()), x, x, trig(x, 1), |x, _| {
        float_function(FloatFunction::Cos, x)
    })
}

/// `tan x`, the quotient of both.
#[inline(always)]
pub(super) fn tan<D: F64s>(x: D) -> D {
    let (k, s, c) = sine_and_cosine(x);
    let odd = D::from_bits(D::i_shl::<62>(D::i_and(k, D::i_splat(1)))).eq(D::splat(0.0));
    let y = D::select(odd, s, D::splat(0.0).sub(c)).div(D::select(odd, c, s));
    let y = D::select(x.eq(D::splat(0.0)), x, y);
    patched(D::splat(TRIG_LIMIT).lt(x.abs()), x, x, y, |x, _| float_function(FloatFunction::Tan, x))
}

/// `atan x`: by `atan a = π/4 + atan((a - 1) / (a + 1)) = π/2 - atan(1 / a)` to |r| <= tan π/8, then
/// `r + r³ q(r²)`, relative error 4.5e-20.
#[inline(always)]
pub(super) fn atan<D: F64s>(x: D) -> D {
    /// π/2 minus its nearest f64.
    const REST: f64 = 6.123_233_995_736_766e-17;
    let (a, one) = (x.abs(), D::splat(1.0));
    let (above, far) =
        (D::splat(0.414_213_562_373_095).lt(a), D::splat(2.414_213_562_373_095).lt(a));
    let pick = |near: D, middle: D, large: D| D::select(far, large, D::select(above, middle, near));
    let r = pick(a, a.sub(one), D::splat(-1.0)).div(pick(one, a.add(one), a));
    let base = pick(D::splat(0.0), D::splat(FRAC_PI_4), D::splat(FRAC_PI_2));
    let rest = pick(D::splat(0.0), D::splat(REST / 2.0), D::splat(REST));
    let u = r.mul(r);
    let q = poly(
        u,
        [
            -0.333_333_333_333_333_26,
            0.199_999_999_999_976_92,
            -0.142_857_142_853_907_85,
            0.111_111_110_883_513_26,
            -0.090_909_081_508_008_8,
            0.076_922_829_006_911_93,
            -0.066_662_288_573_305_32,
            0.058_770_423_849_953_24,
            -0.052_185_370_579_370_005,
            0.045_040_894_906_657_34,
            -0.033_487_044_665_547_75,
            0.015_207_953_027_267_155,
        ],
    );
    base.add(u.mul(r).fma(q, r).add(rest)).xor_sign(x)
}

/// `tanh x = (p - 1) / (p + 1)` with `p = e^2x = 2^n e^r`; beyond 22 the result rounds to one.
/// Where n is zero it is `x + (t / 2 - h² / (1 + h))` with `e^r - 1 = r + t = 2 h`, whose first
/// term is exact. Else the rounding error of r is added to t: where n is one and r negative,
/// `2^n (e^r - 1) + (2^n - 1)` is a small difference.
#[inline(always)]
pub(crate) fn tanh<D: F64s>(x: D) -> D {
    let (a, half) = (D::splat(22.0).min(x.abs()), D::splat(0.5));
    let (r, n) = by_ln2(a.add(a));
    let exact = n.fma(D::splat(-LN2_HI), a.add(a));
    let lost = n.fma(D::splat(-LN2_LO), exact.sub(r));
    let t = r.mul(r).fma(expm1_tail(r), lost);
    let (e, power) = (r.add(t), power_of_two(n.sub(D::splat(1.0))));
    // Half of p - 1 and p + 1, as in `expm1`.
    let (less, more) = (power.fma(e, power.sub(half)), power.fma(e, power.add(half)));
    let small = n.lt(half);
    let y = D::select(small, D::splat(0.0).sub(less.mul(less)), less).div(more);
    D::select(small, a.add(t.fma(half, y)), y).xor_sign(x)
}

/// `erf x`: `x + x q(x²)` below 1, error of q 7.1e-18; above, `1 - e^(-x²) p(t)` with `t = (x - 3) /
/// (x + 3)`, error 3.5e-19 of the result; beyond 6 the result rounds to one.
#[inline(always)]
pub(crate) fn erf<D: F64s>(x: D) -> D {
    let (a, three) = (D::splat(6.0).min(x.abs()), D::splat(3.0));
    let q = poly(
        x.mul(x),
        [
            0.128_379_167_095_512_56,
            -0.376_126_389_031_835_5,
            0.112_837_916_709_452_53,
            -0.026_866_170_643_276_22,
            0.005_223_977_607_423_468,
            -8.548_325_989_696_758e-4,
            1.205_529_532_049_429_4e-4,
            -1.492_474_466_333_548_9e-5,
            1.644_751_767_787_187_3e-6,
            -1.620_917_591_174_869_6e-7,
            1.372_297_626_592_450_4e-8,
            -7.801_188_874_097_751e-10,
        ],
    );
    let small = x.fma(q, x);
    let t = a.sub(three).div(a.add(three));
    let p = poly(
        t,
        [
            0.179_001_151_181_39,
            -0.326_233_560_043_162_56,
            0.245_603_801_707_810_35,
            -0.150_115_936_545_659_44,
            0.071_665_837_440_560_5,
            -0.024_392_489_967_989_98,
            0.004_269_232_733_217_759,
            7.083_055_735_230_279e-4,
            -5.950_000_133_462_688e-4,
            5.021_866_999_199_047_6e-5,
            7.162_413_728_278_834e-5,
            -6.440_897_291_180_611e-6,
            -6.579_390_038_462_761e-6,
        ],
    );
    let e = exp(D::splat(0.0).sub(a.mul(a)));
    let large = D::splat(1.0).sub(e.mul(p)).xor_sign(x);
    D::select(a.lt(D::splat(1.0)), D::select(x.eq(D::splat(0.0)), x, small), large)
}

/// As `patched` of the parent module.
#[inline(always)]
pub(super) fn patched<D: F64s>(wrong: D::M, a: D, b: D, y: D, f: fn(f64, f64) -> f64) -> D {
    if !D::any(wrong) {
        return y;
    }
    let marks = D::select(wrong, D::splat(1.0), D::splat(0.0));
    by_lanes([a, b, y, marks], f)
}
