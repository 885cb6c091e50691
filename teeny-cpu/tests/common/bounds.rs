//! Generated numbers, and bounds on rounding errors against f64.

use std::sync::Arc;
use teeny_core::{DType, Tensor};
use teeny_cpu::Cpu;

/// The unit roundoff of f32.
pub const U: f64 = 1.0 / (1 << 24) as f64;

/// Random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// A size up to `most`, each power of two as likely.
    pub fn size(&mut self, most: usize) -> usize {
        ((most as f64).powf(self.uniform()) as usize).clamp(1, most)
    }
    /// Numbers of one kind: one number, of one sign and size, or of both signs over eight powers of
    /// ten.
    pub fn values(&mut self, n: usize) -> Vec<f32> {
        match self.next() % 4 {
            0 => vec![[0.1f32, 0.7, -1.3][(self.next() % 3) as usize]; n],
            1 => (0..n).map(|_| (self.uniform() + 0.5) as f32).collect(),
            2 => (0..n).map(|_| (self.uniform() * 2.0 - 1.0) as f32).collect(),
            _ => (0..n)
                .map(|_| {
                    ((self.uniform() * 2.0 - 1.0) * 10f64.powf(self.uniform() * 8.0 - 4.0)) as f32
                })
                .collect(),
        }
    }
    pub fn tensor(&mut self, shape: &[usize], device: &Arc<Cpu>) -> Tensor {
        let values = self.values(shape.iter().product());
        Tensor::from_slice(&values, shape, device).unwrap()
    }
}

/// The elements in f64.
pub fn f64s(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

/// The tensor in f64.
pub fn to_f64(x: &Tensor) -> Tensor {
    x.cast(DType::F64).unwrap()
}

/// Panics unless `|got - want| <= bound * scale` for each element, and half a unit of `want`.
pub fn within(got: &Tensor, want: &Tensor, bound: f64, scale: &Tensor, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let (got, want, scale) = (f64s(got), f64s(want), f64s(scale));
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        let most = bound * scale[i % scale.len()] + U * want.abs() + 1e-37;
        let off = (got - want).abs();
        assert!(
            off <= most,
            "{what}: element {i} is {got}, not {want}: {off:e} off, {most:e} allowed"
        );
    }
}

/// The bound of products that `Tensor::matmul` states, for f32.
pub fn product_bound(k: usize) -> f64 {
    (512.0f64.min(k as f64) + k as f64 / 192.0 + 8.0) * U
}
