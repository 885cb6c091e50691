//! A line through noisy points by gradient descent.
//!
//! `cargo run --release --example regression`
#![forbid(unsafe_code)]

use teeny_nn::prelude::*;

/// The line that the points are near to: `y = 3 x - 2`.
const SLOPE: f64 = 3.0;
const INTERCEPT: f64 = -2.0;

fn main() -> Result<()> {
    let (slope, intercept) = train()?;
    println!("found   y = {slope:.3} x {intercept:+.3}");
    println!("made of y = {SLOPE:.3} x {INTERCEPT:+.3}, and noise of deviation 0.1");
    Ok(())
}

/// Trains, and returns the slope and the intercept of the line that was found.
pub fn train() -> Result<(f64, f64)> {
    manual_seed(1);
    let device = Autograd::new(device("cpu")?); // the CPU, with gradients
    let x = Tensor::randn((256, 1), DType::F32, &device)?; // (256, 1)
    let noise = Tensor::normal(0.0, 0.1, (256, 1), DType::F32, &device)?; // (256, 1)
    let y = x.mul(SLOPE)?.add(INTERCEPT)?.add(&noise)?; // (256, 1)

    let store = Store::new(&device); // holds the parameters by name
    let model = Linear::new(&store.root(), 1, 1)?; // weight (1, 1), bias (1)
    let mut sgd = Sgd::new(store.trainable(), 0.1);
    for step in 0..=100 {
        let predicted = model.forward(&x)?; // (256, 1)
        let loss = mse(&predicted, &y, Reduction::Mean)?; // ()
        if step % 20 == 0 {
            println!("step {step:3}  mean squared error {:.4}", loss.item::<f32>()?);
        }
        sgd.step(&loss.backward()?)?;
    }
    let value = |name: &str| Ok::<_, Error>(f64::from(store.get(name)?.value().item::<f32>()?));
    Ok((value("weight")?, value("bias")?))
}
