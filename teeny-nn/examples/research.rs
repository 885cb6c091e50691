//! A measurement for a paper: how the sharpness of a loss (the largest eigenvalue of its Hessian)
//! and the noise of its gradients follow the learning rate, with the same numbers on every run.
//!
//! `cargo run --release --example research`. Source of the question: Cohen et al. 2021,
//! arXiv:2103.00065, gradient descent at the edge of stability, where the sharpness is 2 / lr.
#![forbid(unsafe_code)]

use teeny_nn::prelude::*;
use teeny_nn::{grad, teeny_autograd::hvp};

/// The parameters of a network as one point: a tensor for each.
type Weights = Vec<Tensor>;

/// An MLP on generated data of two classes.
struct Experiment {
    store: Store,
    model: Sequential,
    x: Tensor,
    y: Tensor,
}

/// The measurements after the training.
pub struct Measured {
    /// The learning rate.
    pub lr: f64,
    /// The loss of all items.
    pub loss: f64,
    /// The largest eigenvalue of the Hessian.
    pub sharpness: f64,
    /// The variance of the gradients of single items, divided by the square of their mean's norm.
    pub noise: f64,
}

fn main() -> Result<()> {
    println!("    lr    loss  sharpness   2 / lr   noise");
    for lr in [0.05, 0.2, 0.5] {
        let Measured { loss, sharpness, noise, .. } = measure(lr, 1)?;
        println!("{lr:6} {loss:7.4} {sharpness:10.2} {:8.2} {noise:7.1}", 2.0 / lr);
    }
    Ok(())
}

/// Trains with plain gradient descent at `lr` and measures.
pub fn measure(lr: f64, seed: u64) -> Result<Measured> {
    let run = Experiment::new(seed)?;
    let mut sgd = Sgd::new(run.store.trainable(), lr);
    for _ in 0..600 {
        sgd.step(&run.loss_of(&run.x, &run.y)?.backward()?)?;
    }
    let loss = run.loss_of(&run.x, &run.y)?.item::<f32>()?.into();
    Ok(Measured { lr, loss, sharpness: run.sharpness()?, noise: run.noise()? })
}

impl Experiment {
    fn new(seed: u64) -> Result<Experiment> {
        manual_seed(seed);
        let device = Autograd::new(device("cpu")?);
        let store = Store::new(&device);
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 2, 16)?)
            .then(Activation::Tanh)
            .then(Linear::new(&store.at("fc2"), 16, 1)?);
        let x = Tensor::randn((128, 2), DType::F32, &device)?; // (N, 2)
        let y = x.sin()?.sum(1)?; // (N)
        Ok(Experiment { store, model, x, y })
    }

    /// The mean squared error on these items.
    fn loss_of(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        self.model.forward(x)?.squeeze(1)?.sub(y)?.square()?.mean_all() // ()
    }

    /// The loss as a function of the weights, for derivatives of any order.
    fn at(&self, weights: &Weights, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let params = self.store.trainable();
        let values = params.iter().map(Param::name).zip(weights);
        self.store.with_values(values, || self.loss_of(x, y))
    }

    fn weights(&self) -> Result<Weights> {
        self.store.trainable().iter().map(|param| param.value().detach()).collect()
    }

    /// The largest eigenvalue of the Hessian, by power iteration on Hessian-vector products.
    fn sharpness(&self) -> Result<f64> {
        let w = self.weights()?;
        let mut v: Weights = w.iter().map(Tensor::randn_like).collect::<Result<_>>()?;
        let mut length = 0.0;
        for _ in 0..50 {
            let (_, product) = hvp(|w| self.at(w, &self.x, &self.y), &w, &v)?;
            length = norm(&product)?;
            v = product.iter().map(|t| t.div(length)).collect::<Result<_>>()?;
        }
        Ok(length)
    }

    /// The variance of the gradients of single items by their mean's squared norm.
    fn noise(&self) -> Result<f64> {
        let w = self.weights()?;
        let items = self.x.shape()[0];
        let mean = norm(&grad(|w| self.at(w, &self.x, &self.y), &w)?)?.powi(2);
        let mut squares = 0.0;
        for i in 0..items {
            let (x, y) = (self.x.slice(0, i..i + 1)?, self.y.slice(0, i..i + 1)?); // (1, 2), (1)
            squares += norm(&grad(|w| self.at(w, &x, &y), &w)?)?.powi(2);
        }
        Ok((squares / items as f64 - mean) / mean)
    }
}

/// The Euclidean norm of all elements of all tensors.
fn norm(tensors: &[Tensor]) -> Result<f64> {
    let square = |t: &Tensor| Ok(f64::from(t.square()?.sum_all()?.item::<f32>()?));
    Ok(tensors.iter().map(square).sum::<Result<f64>>()?.sqrt())
}
