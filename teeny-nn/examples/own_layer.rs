//! Your own layer and your own fused operation: a classifier by the cosine of the angle between an
//! input and a vector of each class.
//!
//! `cargo run --release --example own_layer`
//!
//! The operation makes the length of a row 1. Its kernel, its derivative and the kernel of that
//! follow from the formula. The same in tensor operations makes more requests and moves more bytes.
#![forbid(unsafe_code)]

use std::time::Instant;
use teeny_nn::prelude::*;
use teeny_nn::{map_rows, wrappers::Trace};

/// `x / |x|` of each row, written for one element: (.., n) → (.., n).
fn unit(x: &Tensor) -> Result<Tensor> {
    map_rows([x], -1, |[x]| x / (x.square().sum() + 1e-12).sqrt())
}

/// The same in tensor operations, each of which reads and writes memory.
fn unit_by_operations(x: &Tensor) -> Result<Tensor> {
    x.div(&x.square()?.sum_keepdim(-1)?.add(1e-12)?.sqrt()?)
}

/// Logits from cosines: (B, inputs) → (B, classes).
struct Cosine {
    weight: Param, // (classes, inputs)
}

impl Module for Cosine {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let weight = unit(&self.weight.value())?; // (classes, inputs)
        unit(x)?.matmul(&weight.t()?)?.mul(16.0) // (B, classes), each from -16 to 16
    }
}

fn main() -> Result<()> {
    println!("test accuracy {:.1} %", train()?);
    println!("the gradients of both forms differ by at most {:.1e}", compare()?);
    Ok(())
}

/// Trains on small digits, and returns the accuracy on others in percent.
pub fn train() -> Result<f64> {
    manual_seed(1);
    let (device, data) = (Autograd::new(device("auto")?), digits::load()?);
    let store = Store::new(&device);
    let normal = Init::Normal { mean: 0.0, std: 1.0 };
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc"), data.train.area(), 64)?) // (B, 784) → (B, 64)
        .then(Activation::Relu)
        .then(Cosine { weight: store.at("cosine").param("weight", (10, 64), normal)? }); // (B, 10)
    let mut adam = Adam::new(store.trainable(), 2e-3);
    let loader = DataLoader::new(data.train.on(&device), 64)?.shuffle(1);
    for batch in (0..10).flat_map(|epoch| loader.epoch(epoch)) {
        let (x, targets) = batch?; // (B, 784), (B)
        adam.step(&cross_entropy(&model.forward(&x)?, &targets)?.backward()?)?;
    }
    let (x, targets) = data.test.on(&device).all()?; // (N, 784), (N)
    Ok(100.0 * accuracy(&no_grad(|| model.forward(&x))?, &targets)? as f64 / data.test.len() as f64)
}

/// Prints the work of both forms with their gradients, and returns how far the gradients differ.
pub fn compare() -> Result<f32> {
    let trace = Trace::new(device("cpu")?); // a device that records what runs
    let device = Autograd::new(&trace);
    let x = Tensor::randn((4096, 1024), DType::F32, &device)?.requires_grad()?; // (4096, 1024)
    let mut gradients = Vec::new();
    for (name, unit) in [("operations", unit_by_operations as fn(&_) -> _), ("fused", unit)] {
        unit(&x)?.sum_all()?.backward()?; // kernels and derivatives are built once
        trace.clear();
        let start = Instant::now();
        gradients.push(unit(&x)?.square()?.mul(&x)?.sum_all()?.backward()?.take(&x)?);
        let (ms, spans) = (start.elapsed().as_secs_f64() * 1e3, trace.spans());
        let bytes: u64 = spans.iter().map(|span| span.bytes).sum();
        println!("{name:<10} {:3} requests {:4} MB {ms:6.1} ms", spans.len(), bytes / 1_000_000);
    }
    gradients[0].sub(&gradients[1])?.abs()?.max_all()?.item()
}
