//! Helpers of the tests: a device, values that avoid kinks, and closeness.
#![allow(dead_code, unused_imports)]

pub use teeny_autograd::cases::{self, positive, values};

pub mod counter;

use std::sync::Arc;
use teeny_autograd::Autograd;
use teeny_core::{Reference, Tensor, ToDevice};

/// A fresh autograd device over the naive one.
pub fn device() -> Arc<Autograd> {
    Autograd::new(Reference::new())
}

/// A vector of [`values`].
pub fn vector(device: impl ToDevice, n: usize) -> Tensor {
    values(n, device)
}

/// The elements.
pub fn vec(x: &Tensor) -> Vec<f64> {
    x.to_vec::<f64>().unwrap()
}

/// Asserts that all elements agree to `tolerance`, relative to their size or 1.
pub fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len(), "{a:?} and {b:?}");
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= tolerance * x.abs().max(y.abs()).max(1.0), "{a:?}\n{b:?}");
    }
}
