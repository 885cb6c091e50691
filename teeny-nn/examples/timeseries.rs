//! The next half day of an hourly series by its last two days.
//!
//! `cargo run --release --example timeseries`
#![forbid(unsafe_code)]

use std::f32::consts::TAU;
use teeny_nn::data::SeriesWindows;
use teeny_nn::prelude::*;

/// Hours that are given, and hours that are predicted.
const LENGTH: usize = 48;
const HORIZON: usize = 12;

fn main() -> Result<()> {
    let (error, repeated) = train()?;
    println!("mean squared error {error:.4}; of yesterday's values {repeated:.4}");
    Ok(())
}

/// Days and weeks with noise of deviation 0.1: (hours).
fn series(hours: usize, device: impl ToDevice) -> Result<Tensor> {
    let hour = Tensor::arange(0f32, hours as f32, 1.0, &device)?; // (T)
    let [day, week] = [24.0, 168.0].map(|period| hour.mul(TAU / period)?.sin()); // (T) both
    let noise = Tensor::normal(0.0, 0.1, hours, DType::F32, &device)?; // (T)
    day?.add(&week?.mul(0.5)?)?.add(&noise)
}

/// Trains on the first four fifths of the hours. Returns the error in the last fifth, and the error
/// of predicting the values of the day before.
pub fn train() -> Result<(f32, f32)> {
    manual_seed(1);
    let device = Autograd::new(device("cpu")?);
    let windows = SeriesWindows::new(&series(24 * 100, &device)?, LENGTH, HORIZON, 1)?;
    let (train, test) = windows.split(0.8)?; // no hour is in both

    let store = Store::new(&device);
    let model = Sequential::new()
        .then(Flatten) // (B, 48, 1) → (B, 48)
        .then(Linear::new(&store.at("fc1"), LENGTH, 32)?) // (B, 32)
        .then(Activation::Relu)
        .then(Linear::new(&store.at("fc2"), 32, HORIZON)?); // (B, 12)
    let mut adam = Adam::new(store.trainable(), 3e-3);
    let loader = DataLoader::new(train, 64)?.shuffle(1);
    for epoch in 0..15 {
        let mut losses = Losses::new();
        for batch in loader.epoch(epoch) {
            let (x, y) = batch?; // (64, 48, 1), (64, 12, 1)
            let loss = mse(&model.forward(&x)?, &y.squeeze(2)?, Reduction::Mean)?; // ()
            adam.step(&loss.backward()?)?;
            losses.push(&loss)?;
        }
        losses.read()?;
        if epoch % 5 == 4 {
            println!("epoch {:2}  mean squared error {:.4}", epoch + 1, losses.mean(20));
        }
    }
    let (x, y) = test.all()?; // (N, 48, 1), (N, 12, 1)
    let predicted = no_grad(|| model.forward(&x))?.unsqueeze(2)?; // (N, 12, 1)
    let yesterday = x.slice(1, 24..24 + HORIZON as isize)?; // (N, 12, 1)
    let error = |x: &Tensor| mse(x, &y, Reduction::Mean)?.item::<f32>();
    Ok((error(&predicted)?, error(&yesterday)?))
}
