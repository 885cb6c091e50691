//! A classifier of handwritten digits: data, model, optimizer, training loop, accuracy.
//!
//! `cargo run --release --example mnist [FOLDER]`, where the folder has MNIST's four files, plain
//! or gzipped. Without it and without `TEENY_DATA` it trains on 1,797 digits, a part of the
//! library.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use teeny_nn::prelude::*;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).or_else(|| std::env::var_os("TEENY_DATA"));
    let data = match folder.filter(|folder| !folder.is_empty()).map(PathBuf::from) {
        Some(folder) => Mnist::read(folder)?,
        None => digits::load()?,
    };
    train(&data)?;
    Ok(())
}

/// Trains, and returns the accuracy on the test images in percent.
pub fn train(data: &Mnist) -> Result<f64> {
    manual_seed(1);
    let device = Autograd::new(device("auto")?); // the CPU or a GPU, with gradients
    println!("{} images for training, {} for testing", data.train.len(), data.test.len());

    let store = Store::new(&device); // holds the parameters by name
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc1"), data.train.area(), 128)?) // (B, 784) → (B, 128)
        .then(Activation::Relu)
        .then(Linear::new(&store.at("fc2"), 128, 10)?); // (B, 128) → (B, 10)
    println!("{} parameters", store.count());

    let mut adam = Adam::new(store.trainable(), 1e-3);
    let loader = DataLoader::new(data.train.on(&device), 64)?.shuffle(1);
    // fewer images need more epochs for as many steps
    let epochs = if data.train.len() < 10_000 { 20 } else { 3 };
    let mut percent = 0.0;
    for epoch in 0..epochs {
        let mut losses = Losses::new();
        for batch in loader.epoch(epoch) {
            let (x, targets) = batch?; // (B, 784), (B)
            let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
            adam.step(&loss.backward()?)?;
            losses.push(&loss)?;
        }
        losses.read()?;
        let loss = losses.mean(loader.batches());
        percent = test(&model, data, store.device())?;
        println!("epoch {:2}  loss {loss:.4}  test accuracy {percent:.2} %", epoch + 1);
    }
    Ok(percent)
}

/// The share of test images that the model classifies correctly, in percent.
fn test(model: &impl Module, data: &Mnist, device: &DeviceRef) -> Result<f64> {
    let mut correct = 0;
    for batch in DataLoader::new(data.test.on(device), 1000)?.epoch(0) {
        let (x, targets) = batch?; // (B, 784), (B)
        let logits = no_grad(|| model.forward(&x))?; // (B, 10), without a history for gradients
        correct += accuracy(&logits, &targets)?;
    }
    Ok(100.0 * correct as f64 / data.test.len() as f64)
}
