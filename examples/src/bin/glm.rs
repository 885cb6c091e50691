//! Generalised linear models: a linear layer and the loss of the distribution of the response. Here
//! that is binary (logistic regression), a count (Poisson) and one of ten digits (softmax).
//!
//! The first two are fitted to data with known coefficients by Newton's method: the gradient comes
//! from autograd, the information matrix is `xᵀ w x` with w the variance of each response. Its
//! inverse is the covariance of the coefficients. Source: McCullagh & Nelder, *Generalized linear
//! models*, 1983.
#![forbid(unsafe_code)]

use examples::digits::Accuracy;
use examples::options::{any, at_least_one, positive};
use examples::{Common, Program, Run, Step, locate, opt, println};
use std::process::ExitCode;
use teeny_autograd::Grad;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::data::DataLoader;
use teeny_nn::data::generated::{self, Samples};
use teeny_nn::loss::{Reduction, bce_with_logits, cross_entropy, poisson_nll};
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::train::RunOptions;
use teeny_nn::{Init, Linear, LinearOptions, Module, Schedule, Store};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Fits generalised linear models: logistic, Poisson, softmax on digits.",
    options: &[
        opt("rows N", "rows of the logistic and the Poisson data [5000]",
            |o, v| v.with(&mut o.rows, enough)),
        opt("epochs N", "passes over the digits [6; for the small built-in data 40]",
            |o, v| v.with(&mut o.epochs, any::<u64>)),
        opt("batch N", "digits per update [100]", |o, v| v.with(&mut o.batch, at_least_one)),
        opt("lr X", "highest learning rate for the digits [0.3]",
            |o, v| v.with(&mut o.lr, positive)),
    ],
    without: &["load", "resume", "log"],
};

/// The coefficients that the data are generated with: three weights and the intercept.
const LOGISTIC: [f64; 4] = [1.0, -2.0, 0.5, 0.3];
const POISSON: [f64; 4] = [0.4, -0.3, 0.6, 1.0];

struct Options {
    rows: usize,
    /// `None`: by the size of the data.
    epochs: Option<u64>,
    batch: usize,
    lr: f64,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { rows: 5000, epochs: None, batch: 100, lr: 0.3 }, run)
}

fn enough(text: &str) -> std::result::Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n >= 100)
        .ok_or_else(|| "four coefficients need at least 100 rows".into())
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let binary = generated::logistic(options.rows, &LOGISTIC, common.seed)?;
    let logistic = Family {
        loss: bce_with_logits,
        link: |mean| (mean / (1.0 - mean)).ln(),
        variance: |s| s.sigmoid()?.mul(s.neg()?.sigmoid()?),
    };
    fit("logistic", &logistic, &LOGISTIC, &binary, &device)?;
    let counts = generated::poisson(options.rows, &POISSON, common.seed)?;
    fit(
        "poisson",
        &Family { loss: poisson_nll, link: f64::ln, variance: Tensor::exp },
        &POISSON,
        &counts,
        &device,
    )?;
    digits(options, common, &device)
}

/// The distribution of the response.
struct Family {
    loss: fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>,
    /// The link function: mean → linear predictor.
    link: fn(f64) -> f64,
    /// The variance of a response, by its linear predictor.
    variance: fn(&Tensor) -> Result<Tensor>,
}

/// Fits `samples` by Newton's method and compares the result with the true coefficients.
fn fit(
    name: &str,
    family: &Family,
    truth: &[f64],
    samples: &Samples,
    device: &DeviceRef,
) -> Result<()> {
    let n = samples.len();
    let x = samples.x(DType::F32, device)?; // (N, 3)
    let x = Tensor::cat(&[&x, &Tensor::ones((n, 1), DType::F32, device)?], 1)?; // (N, 4)
    let y = samples.y(DType::F32, device)?; // (N)
    // start from the intercept that predicts the mean: from 0 Newton's method may diverge
    let mut start = vec![0.0; truth.len()];
    start[truth.len() - 1] = (family.link)(samples.targets.iter().sum::<f64>() / n as f64) as f32;
    let mut beta = Tensor::from_vec(start, truth.len(), device)?; // (4)
    let mut covariance = Tensor::eye(truth.len(), DType::F32, device)?; // (4, 4)
    for step in 0..8 {
        let leaf = beta.requires_grad()?;
        let predictor = x.matmul(&leaf)?; // (N)
        let nll = (family.loss)(&predictor, &y, Reduction::Sum)?; // ()
        let gradient = nll.backward()?.get(&leaf)?.clone(); // (4)
        let predictor = predictor.detach()?;
        // (4, 4)
        covariance =
            inverse(&x.t()?.matmul(&x.mul((family.variance)(&predictor)?.unsqueeze(1)?)?)?)?;
        beta = beta.sub(&covariance.matmul(&gradient)?)?;
        println!("{name} step {step}: loss {:.6}", nll.item::<f32>()? / n as f32);
    }
    let errors: Vec<f64> =
        covariance.diagonal(0, 0, 1)?.sqrt()?.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let beta: Vec<f64> = beta.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let deviations: Vec<f64> =
        beta.iter().zip(truth).zip(&errors).map(|((b, t), e)| (b - t).abs() / e).collect();
    for i in 0..truth.len() {
        println!("  {:7.4} +- {:.4}, true value {:4.1}", beta[i], errors[i], truth[i]);
    }
    println!(
        "{name} coefficients within {:.2} standard errors",
        deviations.iter().copied().fold(0.0, f64::max)
    );
    Ok(())
}

/// The inverse of a positive definite matrix (k, k) by the Newton-Schulz iteration
/// `z ← z (2 - a z)`, which doubles the number of correct digits in each step.
fn inverse(a: &Tensor) -> Result<Tensor> {
    let size = a.abs()?.sum(1)?.max_all()?; // () a bound of the eigenvalues
    let two = Tensor::eye(a.shape()[0], a.dtype(), a.device())?.mul(2.0)?; // (k, k)
    let mut z = two.div(&size)?.mul(0.5)?; // (k, k)
    for _ in 0..30 {
        z = z.matmul(&two.sub(&a.matmul(&z)?)?)?;
    }
    Ok(z)
}

/// Softmax regression of handwritten digits.
fn digits(options: &Options, common: &Common, device: &DeviceRef) -> Result<()> {
    let (data, note) = locate::mnist(common.data.as_deref())?;
    println!("data    {note}");
    let store = Store::new(device);
    // (N, 784) → (N, 10)
    let model = Linear::with_options(
        &store.at("fc"),
        data.train.area(),
        10,
        LinearOptions::new().with_weight_init(Init::ZEROS).with_bias_init(Init::ZEROS),
    )?;
    let loader = DataLoader::new(data.train.on(device), options.batch)?.shuffle(common.seed);
    let epochs = options.epochs.unwrap_or(if data.train.len() < 10_000 { 40 } else { 6 });
    let steps = epochs * loader.batches() as u64;
    let mut sgd = Sgd::new(store.trainable(), options.lr);
    let with = RunOptions::new().schedule(Schedule::cosine(options.lr, 0.0, steps)).bar("images");
    let mut run = Run::start(common, &store, &mut sgd, steps, with)?;
    let mut step = Step::new(common, &store, |x| cross_entropy(&model.forward(&x[0])?, &x[1]))?;
    let evaluate = || Accuracy::of(&model, &data.test, device, common.ranks());
    while let Some(batches) = run.next_epoch(&loader) {
        for batch in batches {
            let (x, targets) = batch?; // (B, 784), (B)
            let images = targets.numel();
            let (loss, gradients) = step.run(vec![x, targets])?; // ()
            sgd.set_lr(run.lr());
            sgd.step(&gradients)?;
            run.push(&loss, images)?;
        }
        let accuracy = run.evaluate(evaluate)?;
        run.record_accuracy(accuracy.percent())?;
        let (epoch, loss) = (run.epoch(), run.losses()?.mean(loader.batches()));
        run.report(&sgd, &format!("softmax epoch {epoch:2}: loss {loss:.4}"))?;
    }
    run.finish("Softmax regression of digits", "cross-entropy of a batch")?;
    println!("softmax test accuracy {}", evaluate()?);
    Ok(())
}
