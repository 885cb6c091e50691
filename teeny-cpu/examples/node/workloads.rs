//! The workloads of the benchmark: the training of a perceptron, and single operations.

use teeny_core::{DType, Result, Tensor, Window};
use teeny_cpu::Cpu;
use teeny_nn::prelude::*;

/// Does the work once.
pub type Work = Box<dyn FnMut() -> Result<()>>;

/// A name, and the function that prepares the work.
type Workload = (&'static str, fn() -> Result<Work>);

/// Every workload.
pub const ALL: [Workload; 10] = [
    ("perceptron 784-128-10, step of 64 digits", perceptron),
    ("convolutions 8 and 16, step of 64 images", convolutions),
    ("matmul (64, 784) @ (784, 128)", || product([64, 784, 128])),
    ("matmul (512, 512) @ (512, 512)", || product([512, 512, 512])),
    ("conv (8, 16, 28, 28), 32 of 3 x 3", || {
        let [x, w] = randn([&[8, 16, 28, 28], &[32, 16, 3, 3]])?;
        each(move || x.conv(&w, &Window::new(2).padding(1)))
    }),
    ("add 65536", || {
        let [x, y] = randn([&[65536], &[65536]])?;
        each(move || x.add(&y))
    }),
    ("exp 65536", || unary(&[65536], |x| x.exp())),
    ("gelu 65536", || unary(&[65536], |x| x.gelu())),
    ("softmax (256, 256)", || unary(&[256, 256], |x| x.softmax(-1))),
    ("sum of columns (256, 256)", || unary(&[256, 256], |x| x.sum(0))),
];

/// Normally distributed numbers on one device, the same in every run.
fn randn<const N: usize>(shapes: [&[usize]; N]) -> Result<[Tensor; N]> {
    let cpu = Cpu::new();
    manual_seed(1);
    let tensors: Result<Vec<Tensor>> =
        shapes.into_iter().map(|shape| Tensor::randn(shape, DType::F32, &cpu)).collect();
    Ok(tensors?.try_into().expect("a tensor per shape"))
}

fn each(f: impl Fn() -> Result<Tensor> + 'static) -> Result<Work> {
    Ok(Box::new(move || f().map(drop)))
}

fn unary(shape: &[usize], f: fn(&Tensor) -> Result<Tensor>) -> Result<Work> {
    let [x] = randn([shape])?;
    each(move || f(&x))
}

fn product([m, k, n]: [usize; 3]) -> Result<Work> {
    let [lhs, rhs] = randn([&[m, k], &[k, n]])?;
    each(move || lhs.matmul(&rhs))
}

/// A step of training on the built-in digits, an epoch of which has 22.5. After ten epochs the loss
/// must have fallen to a tenth.
fn perceptron() -> Result<Work> {
    manual_seed(1);
    let device = Autograd::new(Cpu::new());
    let store = Store::new(&device);
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc1"), 784, 128)?)
        .then(Activation::Relu)
        .then(Linear::new(&store.at("fc2"), 128, 10)?);
    let mut optimizer = Sgd::new(store.trainable(), 0.4);
    let images = digits::load()?.train;
    let loader = DataLoader::new(images.on(&device), 64)?.shuffle(1);
    let mut batches = loader.epoch(0).collect::<Result<Vec<_>>>()?;
    // The last one is smaller.
    batches.pop();
    let (mut step, mut first) = (0, None);
    Ok(Box::new(move || {
        let (x, targets) = &batches[step % batches.len()]; // (64, 784), (64)
        let loss = cross_entropy(&model.forward(x)?, targets)?; // ()
        optimizer.step(&loss.backward()?)?;
        if step % (10 * batches.len()) == 0 {
            let loss = loss.item::<f32>()?;
            let first = *first.get_or_insert(loss);
            assert!(step == 0 || loss < 0.1 * first, "step {step}: {loss}, at first {first}");
        }
        step += 1;
        Ok(())
    }))
}

/// A step of two small convolutions on one batch.
fn convolutions() -> Result<Work> {
    manual_seed(1);
    let device = Autograd::new(Cpu::new());
    let store = Store::new(&device);
    let model = Sequential::new()
        .then(Conv2d::new(&store.at("conv1"), 1, 8, 3)?)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2))
        .then(Conv2d::new(&store.at("conv2"), 8, 16, 3)?)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Linear::new(&store.at("fc"), 400, 10)?);
    let mut optimizer = Adam::new(store.trainable(), 1e-3);
    let x = Tensor::randn([64, 1, 28, 28], DType::F32, &device)?;
    let targets: Vec<i64> = (0..64).map(|i| i % 10).collect();
    let targets = Tensor::from_vec(targets, 64, &device)?;
    Ok(Box::new(move || {
        let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
        optimizer.step(&loss.backward()?)
    }))
}

/// The shortest and the median time of each workload in milliseconds, a line each, as `run.mjs`
/// measures them.
#[cfg(not(target_family = "wasm"))]
pub fn bench() -> super::Outcome {
    use std::time::{Duration, Instant};
    let mut report = Vec::new();
    for (name, make) in ALL {
        let mut work = make().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (mut times, begin) = (Vec::new(), Instant::now());
        while times.len() < 20 || begin.elapsed() < Duration::from_millis(500) {
            let start = Instant::now();
            work().unwrap_or_else(|error| panic!("{name}: {error}"));
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        report.push(format!("{name}\t{:.4}\t{:.4}", times[0], times[times.len() / 2]));
    }
    (true, report.join("\n"))
}
