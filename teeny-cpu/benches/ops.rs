//! The yardstick of the CPU device: products, streams, reductions, rows, and what one small operation costs.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use teeny_core::{DType, Tensor};
use teeny_cpu::Cpu;

fn ops(c: &mut Criterion) {
    let device = Cpu::new();
    let randn = |shape: &[usize]| Tensor::randn(shape, DType::F32, &device).expect("a small tensor");

    let mut group = c.benchmark_group("matmul");
    for n in [64, 128, 256, 512, 1024] {
        let (a, b) = (randn(&[n, n]), randn(&[n, n]));
        group.throughput(Throughput::Elements((2 * n * n * n) as u64)); // floating-point operations
        group.bench_function(n.to_string(), |bench| bench.iter(|| black_box(a.matmul(&b))));
    }
    let (a, b) = (randn(&[64, 784]), randn(&[128, 784]));
    group.bench_function("mlp 64x784 @ (128x784).t", |bench| bench.iter(|| black_box(a.matmul(&b.t().expect("two axes")))));
    let (a, b) = (randn(&[1, 2304]), randn(&[768, 2304]));
    group.bench_function("decode 1x2304", |bench| bench.iter(|| black_box(a.matmul(&b.t().expect("two axes")))));
    group.finish();

    let mut group = c.benchmark_group("16M");
    let x = randn(&[4096, 4096]);
    let bytes = 4 * x.numel() as u64;
    group.throughput(Throughput::Bytes(2 * bytes));
    group.bench_function("copy", |bench| bench.iter(|| black_box(x.copy())));
    group.bench_function("exp", |bench| bench.iter(|| black_box(x.exp())));
    group.bench_function("tanh", |bench| bench.iter(|| black_box(x.tanh())));
    group.bench_function("softmax", |bench| bench.iter(|| black_box(x.softmax(-1))));
    group.bench_function("copy transposed", |bench| bench.iter(|| black_box(x.t().and_then(|t| t.copy()))));
    group.throughput(Throughput::Bytes(3 * bytes));
    group.bench_function("add", |bench| bench.iter(|| black_box(x.add(&x))));
    group.bench_function("add transposed", |bench| bench.iter(|| black_box(x.add(x.t().expect("two axes")))));
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("sum", |bench| bench.iter(|| black_box(x.sum_all())));
    group.bench_function("sum axis 0", |bench| bench.iter(|| black_box(x.sum(0))));
    group.bench_function("argmax axis 1", |bench| bench.iter(|| black_box(x.argmax(1))));
    group.finish();

    let mut group = c.benchmark_group("small");
    let x = randn(&[16]);
    group.bench_function("x + 1, 16 elements", |bench| bench.iter(|| black_box(x.add(1.0f32))));
    let x = randn(&[1024]);
    group.bench_function("add, 1024 elements", |bench| bench.iter(|| black_box(x.add(&x))));
    group.bench_function("gelu, 1024 elements", |bench| bench.iter(|| black_box(x.gelu())));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_secs(2));
    targets = ops
}
criterion_main!(benches);
