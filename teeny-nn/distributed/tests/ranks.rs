//! Ranks that are threads, and comparisons of what they compute with one rank.

use std::sync::{Arc, OnceLock};
use teeny_autograd::Autograd;
use teeny_core::random::with_seed;
use teeny_core::{DeviceRef, Reference, Result, Scalar, Tensor};
use teeny_distributed::{TensorParallel, Threads};

pub fn device() -> DeviceRef {
    static DEVICE: OnceLock<DeviceRef> = OnceLock::new();
    DEVICE.get_or_init(|| Autograd::new(Reference::new())).clone()
}

pub fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(Scalar::to_f64).collect()
}

pub fn close(what: &str, own: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(own.shape(), expected.shape(), "{what}");
    let (own, expected) = (values(own), values(expected));
    let size = expected.iter().fold(1e-9, |size: f64, x| size.max(x.abs()));
    for (a, b) in own.iter().zip(&expected) {
        assert!((a - b).abs() <= tolerance * size, "{what}: {a} {b}\n{own:?}\n{expected:?}");
    }
}

/// Runs `body` as each of `ranks`, with the same generator on all.
pub fn on_ranks<T: Send>(
    ranks: usize,
    seed: u64,
    body: impl Fn(&Threads, &TensorParallel) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    Threads::run(ranks, |comm| {
        with_seed(seed, || body(&comm, &TensorParallel::new(Arc::new(comm.clone()))?))
    })
}
