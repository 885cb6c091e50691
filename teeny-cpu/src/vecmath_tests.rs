//! ULP bounds and specials of `vecmath`, against f64 of the host's libm rounded to f32.

use crate::simd::Level;
use crate::simd::loops::map1;
use crate::vecmath::*;

/// Name, loop and truth of a function.
type Row = (&'static str, Loop, fn(f64) -> f64);
type Loop = unsafe fn(Level, *const f32, *mut f32, usize, bool);

unsafe fn sin_loop(l: Level, x: *const f32, y: *mut f32, n: usize, s: bool) {
    // SAFETY: passed on.
    unsafe { map_trig(l, false, x, y, n, s) }
}
unsafe fn cos_loop(l: Level, x: *const f32, y: *mut f32, n: usize, s: bool) {
    // SAFETY: passed on.
    unsafe { map_trig(l, true, x, y, n, s) }
}

/// erf in f64: Maclaurin series below 3, continued fraction of erfc above. Slow and plain.
fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() {
        return x;
    }
    if a > 6.5 {
        return 1f64.copysign(x);
    }
    if a < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-19 * sum.abs() && n < 200.0 {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let mut f = 0.0;
    for k in (1..80).rev() {
        f = k as f64 / 2.0 / (a + f);
    }
    (1.0 - (-a * a).exp() / (a + f) / std::f64::consts::PI.sqrt()).copysign(x)
}

const FUNCTIONS: [Row; 7] = [
    ("exp", map1::<Exp>, f64::exp),
    ("exp2", map1::<Exp2>, f64::exp2),
    ("log", map1::<Log>, f64::ln),
    ("tanh", map1::<Tanh>, f64::tanh),
    ("erf", map1::<Erf>, erf_f64),
    ("sin", sin_loop, f64::sin),
    ("cos", cos_loop, f64::cos),
];

/// Distance in units in the last place; zero for two NaN, and between zeros only if their signs
/// agree.
fn ulps(got: f32, want: f32) -> i64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { 0 } else { i64::MAX };
    }
    if got == 0.0 && want == 0.0 {
        return if got.to_bits() == want.to_bits() { 0 } else { i64::MAX };
    }
    let line = |x: f32| {
        let b = i64::from(x.to_bits() & 0x7fff_ffff);
        if x < 0.0 { -b } else { b }
    };
    (line(got) - line(want)).abs()
}

fn sweep(step: usize, bound: i64) {
    let patterns: Vec<f32> = (0..=u32::MAX).step_by(step).map(f32::from_bits).collect();
    let edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-45,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        88.72283,
        88.72284,
        -87.33655,
        -103.97208,
        -103.97209,
        0.6,
        0.9,
        4.0,
        8192.0,
        8193.0,
        1e30,
        0.707_106_77,
        0.999_999_94,
    ];
    let x: Vec<f32> = edges.into_iter().chain(patterns).collect();
    let mut y = vec![0.0; x.len()];
    for level in Level::available() {
        for (name, f, truth) in FUNCTIONS {
            // SAFETY: both have x.len() values.
            unsafe { f(level, x.as_ptr(), y.as_mut_ptr(), x.len(), false) };
            let (mut worst, mut at) = (0, 0.0);
            for (&x, &y) in x.iter().zip(&y) {
                let d = ulps(y, truth(f64::from(x)) as f32);
                if d > worst {
                    (worst, at) = (d, x);
                }
            }
            println!("{name} {level:?}: {worst} ulp at {at:e}");
            assert!(worst <= bound, "{name} at {level:?}: {worst} ulp at {at:e}");
        }
    }
}

#[test]
fn functions_are_within_two_ulp_on_a_sample_of_all_patterns() {
    sweep(20_011, 2);
}

#[test]
#[ignore = "a minute: every 101st of all bit patterns"]
fn functions_are_within_two_ulp_on_many_patterns() {
    sweep(101, 2);
}
