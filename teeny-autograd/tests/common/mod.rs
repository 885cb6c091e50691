//! What the tests share: a device, values that avoid kinks, and closeness.
#![allow(dead_code)]

pub mod cases;

use std::sync::Arc;
use teeny_autograd::Autograd;
use teeny_core::{IntoShape, Reference, Tensor, ToDevice};

/// A fresh autograd device over the naive one.
pub fn device() -> Arc<Autograd> {
    Autograd::new(Reference::new())
}

/// Distinct values of both signs, none near 0, 1 or an integer, in no order: `((i * 7 + 3) % 11 - 5 + 0.3 + i/100) / 4`.
pub fn values(shape: impl IntoShape, device: &(impl ToDevice + ?Sized)) -> Tensor {
    let shape = shape.shape().unwrap();
    let all = (0..shape.numel()).map(|i| (((i * 7 + 3) % 11) as f64 - 5.0 + 0.3 + i as f64 / 100.0) / 4.0);
    Tensor::from_vec(all.collect::<Vec<f64>>(), shape, device).unwrap()
}

/// The same, all positive.
pub fn positive(shape: impl IntoShape, device: &(impl ToDevice + ?Sized)) -> Tensor {
    values(shape, device).abs().unwrap().add(0.3).unwrap()
}

/// A vector of [`values`].
pub fn vector(device: &(impl ToDevice + ?Sized), n: usize) -> Tensor {
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
