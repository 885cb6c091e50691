//! Benchmarks of the CPU device: products, streams, reductions, rows, convolutions, and the cost of
//! one small operation. The machine's limits are measured first, and each kernel's share of its
//! limit is printed beside its time.

mod limits;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use limits::Limits;
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;
use teeny_core::{DType, Result, Tensor, Window};
use teeny_cpu::Cpu;

/// Times `run` and prints the share of `limit` per second that `work` at the best of its times
/// amounts to.
fn share(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    work: f64,
    limit: f64,
    run: impl Fn() -> Result<Tensor>,
) {
    let best = Cell::new(f64::INFINITY);
    group.bench_function(name, |bench| {
        bench.iter_custom(|n| {
            let start = Instant::now();
            for _ in 0..n {
                let _ = black_box(run()).expect("a result");
            }
            let time = start.elapsed();
            best.set(best.get().min(time.as_secs_f64() / n as f64));
            time
        })
    });
    if best.get().is_finite() {
        println!(
            "                        {:.1} G/s, {:.2} of the limit",
            work / best.get() / 1e9,
            work / best.get() / limit
        );
    }
}

fn ops(c: &mut Criterion) {
    let limits = Limits::measure();
    let device = Cpu::new();
    let randn =
        |shape: &[usize]| Tensor::randn(shape, DType::F32, &device).expect("a small tensor");

    let mut group = c.benchmark_group("matmul");
    for n in [64, 128, 256, 512, 1024, 2048] {
        let (a, b) = (randn(&[n, n]), randn(&[n, n]));
        share(&mut group, &n.to_string(), (2 * n * n * n) as f64, limits.flops, || a.matmul(&b));
    }
    let (a, b) = (randn(&[64, 784]), randn(&[128, 784]));
    share(
        &mut group,
        "mlp 64x784 @ (128x784).t",
        (2 * 64 * 784 * 128) as f64,
        limits.flops,
        || a.matmul(&b.t()?),
    );
    let (a, b) = (randn(&[1, 2304]), randn(&[50257, 2304]));
    share(&mut group, "decode 1x2304", 4.0 * b.numel() as f64, limits.read, || a.matmul(&b.t()?));
    group.finish();

    let mut group = c.benchmark_group("16M");
    let x = randn(&[4096, 4096]);
    let (y, bytes) = (randn(&[4096, 4096]), 4.0 * x.numel() as f64);
    share(&mut group, "copy", 2.0 * bytes, limits.copy, || x.copy());
    share(&mut group, "exp", 2.0 * bytes, limits.copy, || x.exp());
    share(&mut group, "tanh", 2.0 * bytes, limits.copy, || x.tanh());
    share(&mut group, "softmax", 2.0 * bytes, limits.copy, || x.softmax(-1));
    share(&mut group, "copy transposed", 2.0 * bytes, limits.copy, || x.t()?.copy());
    share(&mut group, "add", 3.0 * bytes, limits.add, || x.add(&y));
    share(&mut group, "add transposed", 3.0 * bytes, limits.add, || x.add(y.t()?));
    share(&mut group, "sum", bytes, limits.read, || x.sum_all());
    share(&mut group, "sum axis 0", bytes, limits.read, || x.sum(0));
    share(&mut group, "sum axis 1", bytes, limits.read, || x.sum(1));
    share(&mut group, "argmax axis 1", bytes, limits.read, || x.argmax(1));
    group.finish();

    let mut group = c.benchmark_group("conv");
    let window = |padding| Window {
        stride: vec![1; 2],
        padding: vec![padding; 2],
        dilation: vec![1; 2],
        groups: 1,
    };
    let (x, w, padded) = (randn(&[16, 64, 56, 56]), randn(&[64, 64, 3, 3]), window(1));
    // as many as without Winograd's filtering, so that the share may be above 1
    let flops = 2.0 * (16 * 64 * 56 * 56) as f64 * (64 * 9) as f64;
    share(&mut group, "64 to 64, 3x3", flops, limits.flops, || x.conv(&w, &padded));
    let (w, plain) = (randn(&[64, 64, 1, 1]), window(0));
    share(&mut group, "64 to 64, 1x1", flops / 9.0, limits.flops, || x.conv(&w, &plain));
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
