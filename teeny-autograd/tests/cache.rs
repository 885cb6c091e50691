//! Row A08: a cache that grows row by row, as a KV cache does: appending writes into the storage
//! that is there.

use std::time::Instant;
use teeny_autograd::{Autograd, no_grad};
use teeny_core::{DType, DeviceRef, Tensor, s};
use teeny_cpu::Cpu;

/// Heads and head size of the cache.
const HEADS: usize = 4;
const SIZE: usize = 64;

fn cache(capacity: usize, device: &DeviceRef) -> Tensor {
    Tensor::zeros((1, HEADS, capacity, SIZE), DType::F32, device).unwrap()
}

fn append(cache: Tensor, at: usize, rows: &Tensor) -> Tensor {
    cache.assign(s![.., .., at..at + rows.shape()[2]], rows).unwrap()
}

#[test]
fn appending_rows_allocates_nothing_on_the_cpu_and_under_no_grad() {
    let cpu: DeviceRef = Cpu::new();
    for device in [cpu.clone(), Autograd::new(&cpu)] {
        let mut cache = cache(1000, &device);
        let row = Tensor::randn((1, HEADS, 1, SIZE), DType::F32, &device).unwrap();
        let before = cpu.stats();
        no_grad(|| {
            (0..1000)
                .for_each(|t| cache = append(std::mem::replace(&mut cache, row.clone()), t, &row))
        });
        assert_eq!(cpu.stats(), before, "{}", device.info().name);
        assert_eq!(
            cache.to_vec::<f32>().unwrap(),
            row.expand((1, HEADS, 1000, SIZE)).unwrap().to_vec::<f32>().unwrap()
        );
    }
}

#[test]
fn the_time_to_append_does_not_depend_on_the_capacity() {
    let device: DeviceRef = Cpu::new();
    let row = Tensor::ones((1, HEADS, 1, SIZE), DType::F32, &device).unwrap();
    let seconds = |capacity: usize| {
        let mut cache = cache(capacity, &device);
        // The fastest of several rounds: other work on the machine only makes rounds slower.
        let round = || {
            let start = Instant::now();
            for t in 0..64 {
                cache = append(std::mem::replace(&mut cache, row.clone()), t, &row);
            }
            start.elapsed().as_secs_f64()
        };
        std::iter::repeat_with(round).take(50).fold(f64::INFINITY, f64::min)
    };
    let (small, large) = (seconds(64), seconds(64 << 10));
    println!("64 appends: {:.1} us of 64 rows, {:.1} us of 65536", small * 1e6, large * 1e6);
    assert!(large < 4.0 * small, "64 appends to 64 rows: {small:e} s, to 65536 rows: {large:e} s");
}

#[test]
fn a_second_owner_keeps_its_rows() {
    let device: DeviceRef = Cpu::new();
    let row = Tensor::ones((1, HEADS, 1, SIZE), DType::F32, &device).unwrap();
    let first = append(cache(8, &device), 0, &row);
    let before = device.stats().allocations;
    let second = append(first.clone(), 1, &row);
    assert_eq!(device.stats().allocations, before + 1, "a copy, once");
    let sum = |x: &Tensor| x.sum_all().unwrap().item::<f32>().unwrap();
    assert_eq!((sum(&first), sum(&second)), ((HEADS * SIZE) as f32, (2 * HEADS * SIZE) as f32));
}
