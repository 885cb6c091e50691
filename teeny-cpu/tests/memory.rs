//! Memory of the device: steps without the operating system, limits as errors, writes in place.

use std::sync::Arc;
use teeny_core::{DType, Device, ErrorKind, Result, Tensor};
use teeny_cpu::{Cpu, CpuOptions};

/// Forward and backward of a small layer with all their temporaries, by hand.
fn step(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let h = x.matmul(w)?;
    let y = h.tanh()?;
    let g = y.mul(&y)?.mul(-1.0f32)?.add(1.0f32)?.mul(&y)?;
    let dw = x.t()?.matmul(&g)?;
    let _loss = y.mul(&y)?.mean_all()?;
    w.sub(&dw.mul(1e-3f32)?)
}

#[test]
fn a_hundred_steps_ask_the_system_for_nothing() {
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| hundred_steps(threads));
    }
}

fn hundred_steps(threads: usize) {
    let device = Cpu::new();
    let x = Tensor::randn((64, 784), DType::F32, &device).unwrap();
    let mut w = Tensor::randn((784, 128), DType::F32, &device).unwrap();
    for _ in 0..2 {
        w = step(&x, &w).unwrap();
    }
    // On one thread the second step already asks for nothing. A second thread allocates its own
    // scratch memory the first time it takes part in an operation, which the scheduler decides.
    // Each of the few sizes is requested once, so there is soon a hundred steps without a request.
    let rounds = if threads == 1 { 1 } else { 20 };
    let quiet = (0..rounds).any(|_| {
        let warm = device.pool_stats();
        for _ in 0..100 {
            w = step(&x, &w).unwrap();
        }
        let after = device.pool_stats();
        let (requests, hits) = (after.requests - warm.requests, after.hits - warm.hits);
        assert!(hits as f64 > 0.99 * requests as f64 && requests > 500, "{warm:?} {after:?}");
        assert_eq!(after.live_bytes, warm.live_bytes, "nothing leaks");
        after.os_allocations == warm.os_allocations
    });
    assert!(quiet, "{threads} threads: {:?}", device.pool_stats());
}

#[test]
fn the_limit_is_an_error_and_the_device_lives_on() {
    let device = Cpu::with_options(CpuOptions::new().with_memory_limit(Some(1 << 20)));
    let x = Tensor::zeros(100_000, DType::F32, &device).unwrap();
    let y = x.add(1.0f32).unwrap();
    let error = y.add(1.0f32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("memory limit is 1048576 bytes"), "{error}");
    drop(x);
    assert_eq!(y.add(1.0f32).unwrap().sum_all().unwrap().item::<f32>().unwrap(), 200_000.0);
    let huge = Tensor::zeros((1usize << 40, 1usize << 10), DType::F64, &device).unwrap_err();
    assert!(matches!(huge.kind(), ErrorKind::OutOfMemory | ErrorKind::Value), "{huge}");
}

#[test]
fn cleared_memory_goes_back() {
    let device = Cpu::new();
    drop(Tensor::zeros(1 << 22, DType::F32, &device).unwrap());
    assert!(device.pool_stats().cached_bytes >= 16 << 20);
    device.trim_cache(1 << 20);
    assert!(device.pool_stats().cached_bytes <= 1 << 20);
    device.clear_cache();
    let stats = device.pool_stats();
    assert_eq!((stats.cached_bytes, stats.live_bytes), (0, 0));
    assert_eq!(stats.os_allocations, stats.os_frees);
}

#[test]
fn assigning_happens_in_place_only_for_the_only_owner() {
    let device: Arc<Cpu> = Cpu::new();
    let cache = Tensor::zeros((4, 3), DType::F32, &device).unwrap();
    let row = Tensor::new([[1f32, 2.0, 3.0]], &device).unwrap();
    let before = device.pool_stats().requests;
    let cache = cache.assign_view(|c| c.slice(0, 1..2), &row).unwrap();
    assert_eq!(device.pool_stats().requests, before, "in place");
    let kept = cache.clone();
    let cache = cache.assign_view(|c| c.slice(0, 2..3), &row).unwrap();
    assert_eq!(kept.sum_all().unwrap().item::<f32>().unwrap(), 6.0);
    assert_eq!(cache.sum_all().unwrap().item::<f32>().unwrap(), 12.0);
}

#[test]
fn an_operand_given_away_lends_its_memory() {
    let device = Cpu::new();
    for n in [1usize, 16, 1000, 300_000] {
        let a = Tensor::randn((1, n), DType::F32, &device).unwrap();
        let b = Tensor::randn((1, n), DType::F32, &device).unwrap();
        let want = [
            a.mul(2.0f32).unwrap().add(&b).unwrap(),
            b.sub(a.mul(2.0f32).unwrap()).unwrap(),
            a.mul(-2.0f32).unwrap().add(3.0f32).unwrap(),
        ];
        let storages = || Device::stats(&*device).allocations;
        let before = storages();
        let got = [&a * 2.0 + &b, &b - &a * 2.0, 3.0 - &a * 2.0];
        assert_eq!(storages() - before, 3, "one allocation each for {n} elements");
        for (got, want) in got.iter().zip(&want) {
            assert!(got.to_vec::<f32>().unwrap() == want.to_vec::<f32>().unwrap(), "{n} elements");
        }
    }
}

#[test]
fn an_operand_with_another_owner_keeps_its_values() {
    let device = Cpu::new();
    let x = Tensor::arange(0.0f32, 6.0, 1.0, &device).unwrap();
    let view = x.reshape((2, 3)).unwrap();
    let row = Tensor::full(3, 10.0, DType::F32, &device).unwrap();
    let sums = view.t().unwrap() + row.unsqueeze(1).unwrap();
    assert_eq!(sums.to_vec::<f32>().unwrap(), [10.0, 13.0, 11.0, 14.0, 12.0, 15.0]);
    assert_eq!((view.clone() * 2.0).to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    assert_eq!(
        (view + row).to_vec::<f32>().unwrap(),
        [10.0, 11.0, 12.0, 13.0, 14.0, 15.0],
        "broadcast"
    );
    assert_eq!(x.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    // A part of its storage, another type, and a result of another shape need new memory.
    let part = Tensor::arange(0.0f32, 6.0, 1.0, &device).unwrap().slice(0, 2..5).unwrap();
    assert_eq!((part + 1.0).to_vec::<f32>().unwrap(), [3.0, 4.0, 5.0]);
    let whole = Tensor::arange(0i64, 3, 1, &device).unwrap();
    assert_eq!((whole / 2).to_vec::<f32>().unwrap(), [0.0, 0.5, 1.0]);
    let wide = Tensor::full(1, 2.0, DType::F32, &device).unwrap() * x;
    assert_eq!(wide.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
}
