//! Fused attention beside its definition: forward, and forward with backward.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use teeny_core::{Attention, AttentionInputs, DType, Device, Result, Shape, StorageRef, Tensor};
use teeny_cpu::Cpu;

type Gradients = [Option<StorageRef>; 3];

/// Backward by the device, or by the definition.
fn gradients(inputs: &AttentionInputs<'_>, g: &Tensor, fused: bool) -> Result<Gradients> {
    let device = g.device();
    let (y, lse) = if fused { device.attention(inputs)? } else { inputs.composed_storages()? };
    let y = Tensor::from_result(y, *g.shape(), g.dtype(), device.clone())?;
    let rows = Shape::new(&g.shape()[..g.ndim() - 1])?;
    let lse = Tensor::from_result(lse, rows, g.dtype(), device.clone())?;
    if fused {
        device.attention_grad(inputs, &y, &lse, g, [true; 3])
    } else {
        inputs.composed_grad_storages(&y, &lse, g, [true; 3])
    }
}

fn attention(c: &mut Criterion) {
    let device = Cpu::new();
    let mut group = c.benchmark_group("attention");
    // The last is the peers' row: (8, 12, 256, 64), causal.
    for (heads, t, hs) in
        [(48, 64, 32), (48, 256, 32), (48, 256, 64), (48, 1024, 64), (96, 256, 64)]
    {
        let x = || Tensor::randn((heads, t, hs), DType::F32, &device).expect("memory");
        let (q, k, v, g) = (x(), x(), x(), x());
        let inputs =
            AttentionInputs { q: &q, k: &k, v: &v, mask: None, options: Attention::causal(0) };
        // floating-point operations of the full matrix
        group.throughput(Throughput::Elements((4 * heads * t * t * hs) as u64));
        let name = |what: &str| BenchmarkId::new(what, format!("{heads}x{t}x{hs}"));
        group.bench_function(name("fused"), |bench| {
            bench.iter(|| black_box(device.attention(&inputs)))
        });
        group.bench_function(name("defined"), |bench| bench.iter(|| black_box(inputs.composed())));
        group.bench_function(name("fused with gradients"), |bench| {
            bench.iter(|| black_box(gradients(&inputs, &g, true)))
        });
        group.bench_function(name("defined with gradients"), |bench| {
            bench.iter(|| black_box(gradients(&inputs, &g, false)))
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_secs(1));
    targets = attention
}
criterion_main!(benches);
