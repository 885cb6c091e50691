//! Shared by the tests of this crate: devices at every level, views of one content in every
//! layout, distances, and processes for one case each.
#![allow(dead_code)]

pub mod bounds;
pub mod ops;

use std::process::Command;
use std::sync::Arc;
use teeny_core::{DType, Reference, Scalar, Tensor};
use teeny_cpu::{Cpu, CpuOptions, FloatMatmul, Level};

/// Numbers that look random, the same ones for the same seed.
pub struct Draw(pub u64);

impl Draw {
    /// A number less than `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// One of `all`.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A device per instruction level of the architecture, at most this machine's. The number of
/// devices is the same on every processor, so that the random numbers of a test do not depend on
/// it.
pub fn devices() -> Vec<Arc<Cpu>> {
    devices_with(CpuOptions::new())
}

/// [`devices`] with these options.
fn devices_with(options: CpuOptions) -> Vec<Arc<Cpu>> {
    let all: &[Level] = match cfg!(target_arch = "x86_64") {
        true => &[Level::Portable, Level::Avx2, Level::Avx512],
        false => &[Level::Portable],
    };
    all.iter().map(|&level| Cpu::with_options(options.with_level(level))).collect()
}

/// [`devices`], and as many whose products of floats are the `gemm` crate's.
pub fn devices_of_both_matmuls() -> Vec<Arc<Cpu>> {
    let gemm_crate = devices_with(CpuOptions::new().with_float_matmul(FloatMatmul::GemmCrate));
    devices().into_iter().chain(gemm_crate).collect()
}

/// The same content under other strides: packed, transposed storage, offset, stepped, flipped.
pub fn layouts(x: &Tensor) -> Vec<(&'static str, Tensor)> {
    let mut all = vec![("packed", x.clone())];
    if x.ndim() >= 2 {
        all.push((
            "transposed",
            x.transpose(0, -1).unwrap().copy().unwrap().transpose(0, -1).unwrap(),
        ));
    }
    if x.ndim() >= 1 {
        let pad = Tensor::stack(&[x, x], -1).unwrap(); // (.., 2)
        all.push(("stepped", pad.slice(-1, 1..2).unwrap().squeeze(-1).unwrap()));
        all.push(("flipped", x.flip([0]).unwrap().copy().unwrap().flip([0]).unwrap()));
        let padded = Tensor::cat(&[x, x], 0).unwrap();
        let n = x.shape()[0] as isize;
        all.push(("offset", padded.slice(0, n..2 * n).unwrap()));
    }
    all
}

/// Units in the last place of `dtype` between two floats; 0 for NaN and NaN.
pub fn ulps(got: f64, want: f64, dtype: DType) -> f64 {
    if got == want || got.is_nan() && want.is_nan() {
        return 0.0;
    }
    let (bits, least) = match dtype {
        DType::F16 => (11, -24),
        DType::BF16 => (8, -133),
        DType::F32 => (24, -149),
        _ => (53, -1074),
    };
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let exponent = want.abs().max(got.abs()).max(f64::MIN_POSITIVE).log2().floor() as i32;
    // In two steps: `powi` divides by the positive power, which may overflow.
    let place = (exponent - bits + 1).max(least);
    (got - want).abs() / 2f64.powi(place / 2) / 2f64.powi(place - place / 2)
}

/// Panics unless both are equal, or floats within `bound` units in the last place.
pub fn close(got: &[Scalar], want: &[Scalar], dtype: DType, bound: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let ok = match dtype.is_float() {
            true => ulps(g.to_f64(), w.to_f64(), dtype) <= bound,
            false => g == w,
        };
        assert!(ok, "{what}: element {i} is {g}, not {w}");
    }
}

/// One device for all reference results of this process.
pub fn oracle() -> Arc<Reference> {
    static ORACLE: std::sync::OnceLock<Arc<Reference>> = std::sync::OnceLock::new();
    ORACLE.get_or_init(Reference::new).clone()
}

/// Small whole numbers of `shape` on the reference device.
pub fn sample(shape: &[usize], dtype: DType) -> Tensor {
    let reference = oracle();
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n)
        .map(|i| ((i * 7919 + 13) % 23) as f32 - if dtype.is_unsigned_int() { 0.0 } else { 9.0 })
        .collect();
    Tensor::from_slice(&values, shape, &reference).unwrap().cast(dtype).unwrap()
}

/// Panics unless both have one shape, one dtype and [`close`] elements.
pub fn same(got: &Tensor, want: &Tensor, bound: f64, what: &str) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
    close(&got.to_scalars().unwrap(), &want.to_scalars().unwrap(), want.dtype(), bound, what);
}

/// Runs `case` in a separate process, which the test of this `name` starts.
pub fn alone(name: &str, case: impl FnOnce()) {
    const INSIDE: &str = "TEENY_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return case();
    }
    let this = std::env::current_exe().unwrap();
    let under = std::env::var("TEENY_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(this);
            command
        }
        None => Command::new(this),
    };
    // One arena: the arenas of other threads reserve 64 MiB each, and hide that a limit is met.
    let command = command.env("MALLOC_ARENA_MAX", "1");
    let output =
        command.args([name, "--exact", "--test-threads=1"]).env(INSIDE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(text.contains("1 passed"), "no test is named {name}\n{text}");
}

/// Fails unless shapes and dtypes are equal, and values differ by at most `tolerance` times the
/// largest finite size of those wanted, or times 1.
#[track_caller]
pub fn near(got: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
    let (got, want) = (got.to_scalars().unwrap(), want.to_scalars().unwrap());
    let scale = want.iter().map(|v| v.to_f64().abs()).filter(|v| v.is_finite()).fold(1.0, f64::max);
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        let (g, w) = (g.to_f64(), w.to_f64());
        assert!(
            g == w || (g - w).abs() <= tolerance * scale || g.is_nan() && w.is_nan(),
            "{what}: element {i} is {g}, not {w}"
        );
    }
}
