//! Fused attention beside its definition: forward, and forward with backward.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use teeny_core::{Attention, AttentionInputs, DType, Op, Result, Tensor};
use teeny_cpu::Cpu;

/// The gradients for q, k and v, by the device or by the definition.
fn gradients(inputs: &AttentionInputs<'_>, g: &Tensor, fused: bool) -> Result<[Tensor; 3]> {
    let (inputs, needs) = (*inputs, [true; 3]);
    if fused {
        let [y, lse] = Op::Attention { inputs }.tensors(g.device())?;
        Op::AttentionGrad { inputs, y: &y, lse: &lse, g, needs }.tensors(g.device())
    } else {
        let (y, lse) = inputs.composed()?;
        let all = inputs.composed_grad(Some((&y, &lse)), g, needs)?;
        Ok(all.map(|x| x.expect("a gradient that is needed")))
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
            bench.iter(|| black_box(Op::Attention { inputs }.tensors::<2>(q.device())))
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
