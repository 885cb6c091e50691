//! Benchmarks of the GPU device: the cost of a launch, products, streams, reductions, rows,
//! windows, and a training step.
//!
//! Every iteration ends in `synchronize`, so the times cover finished work. Sizes are smaller on a
//! software adapter. After the groups a few lines print what criterion cannot:
//! host time of a launch, tiled against naive products, the first training step.

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, Device, Result, Tensor, Window};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::{Activation, Linear, Module, Sequential, Store};
use teeny_wgpu::{AdapterKind, CooperativeMatrices, MatmulKernels, Options, Wgpu};

/// Runs `f` until its work is done on the GPU.
fn row(
    group: &mut BenchmarkGroup<'_, WallTime>,
    gpu: &Wgpu,
    name: impl Into<String>,
    work: Throughput,
    f: impl Fn() -> Result<Tensor>,
) {
    group.throughput(work);
    group.bench_function(name.into(), |bench| {
        bench.iter(|| {
            let _ = black_box(f()).expect("a supported operation");
            gpu.synchronize().expect("the GPU is there");
        })
    });
}

/// The median time of nine runs of `f`, in seconds.
fn median(gpu: &Wgpu, f: impl Fn() -> Result<Tensor>) -> f64 {
    let time = || {
        let start = Instant::now();
        let _ = f().expect("a supported operation");
        gpu.synchronize().expect("the GPU is there");
        start.elapsed().as_secs_f64()
    };
    time();
    let mut times: Vec<f64> = (0..9).map(|_| time()).collect();
    times.sort_by(f64::total_cmp);
    times[4]
}

fn kernels(c: &mut Criterion, gpu: &Arc<Wgpu>, software: bool) {
    let randn =
        |shape: &[usize]| Tensor::randn(shape, DType::F32, gpu).expect("a tensor that fits");

    let x = randn(&[16]);
    let mut group = c.benchmark_group("dispatch");
    row(&mut group, gpu, "chain of 1000 additions", Throughput::Elements(1000), || {
        (0..1000).try_fold(x.clone(), |y, _| y.add(&x))
    });
    group.finish();

    let mut group = c.benchmark_group("matmul"); // elements are floating-point operations
    let sizes: &[usize] =
        if software { &[64, 256, 512] } else { &[64, 256, 512, 1024, 2048, 4096] };
    for &n in sizes {
        let (a, b) = (randn(&[n, n]), randn(&[n, n]));
        row(&mut group, gpu, n.to_string(), Throughput::Elements((2 * n * n * n) as u64), || {
            a.matmul(&b)
        });
    }
    let (a, b) = (randn(&[64, 784]), randn(&[128, 784]));
    row(
        &mut group,
        gpu,
        "mlp 64x784 @ (128x784).t",
        Throughput::Elements(2 * 64 * 784 * 128),
        || a.matmul(&b.t()?),
    );
    let (a, b) = (randn(&[64, 8192]), randn(&[8192, 64]));
    row(
        &mut group,
        gpu,
        "long k 64x8192 @ 8192x64",
        Throughput::Elements(2 * 64 * 8192 * 64),
        || a.matmul(&b),
    );
    let (a, b) = (randn(&[1, 2304]), randn(&[768, 2304]));
    row(
        &mut group,
        gpu,
        "vector 1x2304 @ (768x2304).t",
        Throughput::Elements(2 * 2304 * 768),
        || a.matmul(&b.t()?),
    );
    let (a, b) = (randn(&[1, 2304]), randn(&[2304, 768]));
    row(&mut group, gpu, "vector 1x2304 @ 2304x768", Throughput::Elements(2 * 2304 * 768), || {
        a.matmul(&b)
    });
    group.finish();

    let side = if software { 1024 } else { 4096 };
    let x = randn(&[side, side]);
    let bytes = 4 * (side * side) as u64;
    let mut group = c.benchmark_group(format!("{side}x{side}"));
    row(&mut group, gpu, "copy", Throughput::Bytes(2 * bytes), || x.copy());
    row(&mut group, gpu, "add", Throughput::Bytes(3 * bytes), || x.add(&x));
    row(&mut group, gpu, "exp", Throughput::Bytes(2 * bytes), || x.exp());
    row(&mut group, gpu, "gelu", Throughput::Bytes(2 * bytes), || x.gelu());
    row(&mut group, gpu, "copy transposed", Throughput::Bytes(2 * bytes), || x.t()?.copy());
    row(&mut group, gpu, "sum of all", Throughput::Bytes(bytes), || x.sum_all());
    row(&mut group, gpu, "sum of rows", Throughput::Bytes(bytes), || x.sum(1));
    row(&mut group, gpu, "sum of columns", Throughput::Bytes(bytes), || x.sum(0));
    row(&mut group, gpu, "argmax of all", Throughput::Bytes(bytes), || {
        x.reshape(side * side)?.argmax(0)
    });
    row(&mut group, gpu, "softmax", Throughput::Bytes(2 * bytes), || x.softmax(-1));
    row(&mut group, gpu, "cumsum of one line", Throughput::Bytes(2 * bytes), || {
        x.reshape(side * side)?.cumsum(0)
    });
    group.finish();

    let (batch, window) = (if software { 8 } else { 128 }, Window::new(2).padding(1));
    let (x, w) = (randn(&[batch, 16, 28, 28]), randn(&[32, 16, 3, 3]));
    let work = Throughput::Elements((2 * batch * 32 * 28 * 28 * 16 * 9) as u64);
    let mut group = c.benchmark_group("window");
    row(&mut group, gpu, format!("conv {batch}x16x28x28, 32 of 3x3"), work, || x.conv(&w, &window));
    let pool = Window::new(2).stride(2);
    row(&mut group, gpu, "max_pool 2x2", Throughput::Bytes(4 * x.numel() as u64), || {
        x.max_pool(&[2, 2], &pool)
    });
    group.finish();
}

/// One training step of 784-128-10 on a batch of 64; returns the loss.
fn trainer(gpu: &Arc<Wgpu>) -> Result<impl FnMut() -> Result<Tensor> + use<>> {
    let store = Store::new(Autograd::new(gpu.clone()));
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc1"), 784, 128)?)
        .then(Activation::Relu)
        .then(Linear::new(&store.at("fc2"), 128, 10)?);
    let x = Tensor::rand((64, 784), DType::F32, store.device())?; // (B, 784)
    let targets = Tensor::randint(0, 10, 64, DType::I32, store.device())?; // (B)
    let mut sgd = Sgd::new(store.trainable(), 0.1);
    Ok(move || {
        let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
        sgd.step(&loss.backward()?)?;
        Ok(loss)
    })
}

fn all(c: &mut Criterion) {
    let gpu = match Wgpu::new() {
        Ok(gpu) => gpu,
        Err(error) => return eprintln!("no GPU, nothing to measure: {error}"),
    };
    println!("{}", gpu.capabilities());
    let software = gpu.capabilities().kind == AdapterKind::Cpu;

    // Before anything else is compiled for this device.
    let mut step = trainer(&gpu).expect("a model that fits");
    let start = Instant::now();
    step().and_then(|loss| loss.item::<f32>()).expect("a step");
    let first = start.elapsed().as_secs_f64() * 1e3;

    kernels(c, &gpu, software);

    let mut group = c.benchmark_group("training");
    group.throughput(Throughput::Elements(1));
    group.bench_function("mnist mlp step, batch 64", |bench| {
        bench.iter(|| {
            let _ = step().expect("a step");
            gpu.synchronize().expect("the GPU is there");
        })
    });
    group.finish();

    let before = gpu.counters();
    (0..50).for_each(|_| _ = step().and_then(|loss| loss.item::<f32>()).expect("a step"));
    let after = gpu.counters();
    println!(
        "\nmnist mlp: first step {first:.0} ms (shaders compiled), \
         then {:.1} launches and {:.2} submissions a step",
        (after.dispatches - before.dispatches) as f64 / 50.0,
        (after.submissions - before.submissions) as f64 / 50.0
    );

    let x = Tensor::ones(16, DType::F32, &gpu).expect("a tensor that fits");
    gpu.synchronize().expect("the GPU is there");
    // Fewer than a batch, so that nothing is submitted meanwhile.
    let mut times: Vec<f64> = (0..51)
        .map(|_| {
            let start = Instant::now();
            let _ = (0..50).try_fold(x.clone(), |y, _| y.add(&x)).expect("a supported operation");
            let time = start.elapsed().as_secs_f64() * 1e6 / 50.0;
            gpu.synchronize().expect("the GPU is there");
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("a launch costs the host {:.2} us", times[25]);

    let naive = Wgpu::with_options(&Options::new().with_matmul_kernels(MatmulKernels::Naive))
        .expect("a second device");
    let n = if software { 512 } else { 2048 };
    let time = |gpu: &Arc<Wgpu>| {
        let a = Tensor::ones((n, n), DType::F32, gpu).expect("a tensor that fits");
        median(gpu, || a.matmul(&a))
    };
    let (slow, fast) = (time(&naive), time(&gpu));
    let gflops = |t: f64| 2.0 * (n as f64).powi(3) / t / 1e9;
    println!(
        "matmul {n}: naive {:.1} GFLOP/s, tiled {:.1} GFLOP/s, ratio {:.2}",
        gflops(slow),
        gflops(fast),
        slow / fast
    );
    cooperative(n);
}

/// f16 products with and without cooperative matrices, where this adapter has them.
fn cooperative(n: usize) {
    let open = |cooperative_matrices| {
        Wgpu::with_options(&Options::new().with_cooperative_matrices(cooperative_matrices))
            .expect("another device")
    };
    let (with, without) = (open(CooperativeMatrices::Always), open(CooperativeMatrices::Never));
    if with.capabilities().cooperative_matrices.is_empty() {
        return;
    }
    for n in [n / 4, n] {
        let time = |gpu: &Arc<Wgpu>| {
            let a = Tensor::ones((n, n), DType::F16, gpu).expect("a tensor that fits");
            median(gpu, || a.matmul(&a))
        };
        let (other, matrices) = (time(&without), time(&with));
        println!(
            "matmul {n} in f16: {:.2} ms, on cooperative matrices {:.2} ms, ratio {:.2}",
            other * 1e3,
            matrices * 1e3,
            other / matrices
        );
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = all
}
criterion_main!(benches);
