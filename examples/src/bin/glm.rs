//! Generalised linear models: one layer, and the loss of what is predicted. Yes or no (logistic),
//! how many (Poisson), which of ten digits (softmax).
//!
//! The first two are fitted to data made with known coefficients, by Newton's steps: gradient from
//! autograd, information matrix `xᵀ w x` with w the variance of each answer. Its inverse also says
//! how exact the coefficients are. Source: McCullagh & Nelder, *Generalized linear models*, 1983.
#![forbid(unsafe_code)]

use examples::digits::right;
use examples::options::{at_least_one, positive};
use examples::{Common, Parsed, Program, locate};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use teeny_autograd::Grad;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::data::DataLoader;
use teeny_nn::data::generated::{self, Samples};
use teeny_nn::loss::{Reduction, bce_with_logits, cross_entropy, poisson_nll};
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::train::Losses;
use teeny_nn::{Init, Linear, LinearOptions, Module, Schedule, Store};

const PROGRAM: Program = Program {
    about: "Fits generalised linear models: logistic, Poisson, softmax on digits.",
    options: "  --rows N         rows of the logistic and the Poisson data [5000]
  --epochs N       passes over the digits [6; for the small built-in data 40]
  --batch N        digits per update [100]
  --lr X           the highest learning rate for the digits [0.3]
",
    without: &["load", "resume", "log"],
};

/// What the data are made with: three weights and the constant.
const LOGISTIC: [f64; 4] = [1.0, -2.0, 0.5, 0.3];
const POISSON: [f64; 4] = [0.4, -0.3, 0.6, 1.0];

struct Options {
    rows: usize,
    /// None if the data decides.
    epochs: Option<u64>,
    batch: usize,
    lr: f64,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { rows: 5000, epochs: None, batch: 100, lr: 0.3 }, option, run)
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    match name {
        "rows" => options.rows = parser.value()?.parse_with(enough)?,
        "epochs" => options.epochs = Some(parser.value()?.parse()?),
        "batch" => options.batch = parser.value()?.parse_with(at_least_one)?,
        "lr" => options.lr = parser.value()?.parse_with(positive)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn enough(text: &str) -> std::result::Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n >= 100)
        .ok_or_else(|| "four coefficients need at least 100 rows".into())
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let yes_or_no = generated::logistic(options.rows, &LOGISTIC, common.seed)?;
    let logistic = Family {
        loss: bce_with_logits,
        score: |mean| (mean / (1.0 - mean)).ln(),
        variance: |s| s.sigmoid()?.mul(s.neg()?.sigmoid()?),
    };
    fit("logistic", &logistic, &LOGISTIC, &yes_or_no, &device)?;
    let counts = generated::poisson(options.rows, &POISSON, common.seed)?;
    fit(
        "poisson",
        &Family { loss: poisson_nll, score: f64::ln, variance: Tensor::exp },
        &POISSON,
        &counts,
        &device,
    )?;
    digits(options, common, &device)
}

/// What answers are like.
struct Family {
    loss: fn(&Tensor, &Tensor, Reduction) -> Result<Tensor>,
    /// The score of answers whose mean is this: the link function.
    score: fn(f64) -> f64,
    /// The variance of an answer, by its score.
    variance: fn(&Tensor) -> Result<Tensor>,
}

/// Fits `samples` by Newton's steps and compares with the coefficients they were made with.
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
    // at first the constant alone, which answers everything with the mean: from 0 Newton's steps
    // could go astray
    let mut start = vec![0.0; truth.len()];
    start[truth.len() - 1] = (family.score)(samples.targets.iter().sum::<f64>() / n as f64) as f32;
    let mut beta = Tensor::from_vec(start, truth.len(), device)?; // (4)
    let mut covariance = Tensor::eye(truth.len(), DType::F32, device)?; // (4, 4)
    for step in 0..8 {
        let leaf = beta.requires_grad()?;
        let score = x.matmul(&leaf)?; // (N)
        let nll = (family.loss)(&score, &y, Reduction::Sum)?; // ()
        let gradient = nll.backward()?.get(&leaf)?.clone(); // (4)
        let score = score.detach()?;
        // (4, 4)
        covariance = inverse(&x.t()?.matmul(&x.mul((family.variance)(&score)?.unsqueeze(1)?)?)?)?;
        beta = beta.sub(&covariance.matmul(&gradient)?)?;
        println!("{name} step {step}: loss {:.6}", nll.item::<f32>()? / n as f32);
    }
    let errors: Vec<f64> =
        covariance.diagonal(0, 0, 1)?.sqrt()?.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let beta: Vec<f64> = beta.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let distances: Vec<f64> =
        beta.iter().zip(truth).zip(&errors).map(|((b, t), e)| (b - t).abs() / e).collect();
    for i in 0..truth.len() {
        println!("  {:7.4} +- {:.4}, made with {:4.1}", beta[i], errors[i], truth[i]);
    }
    println!(
        "{name} coefficients within {:.2} standard errors",
        distances.iter().copied().fold(0.0, f64::max)
    );
    Ok(())
}

/// The inverse of a positive definite matrix (k, k), by Newton and Schulz's iteration
/// `z ← z (2 - a z)`, which doubles the right digits each time.
fn inverse(a: &Tensor) -> Result<Tensor> {
    let size = a.abs()?.sum(1)?.max_all()?; // () no eigenvalue is larger
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
    let schedule = Schedule::cosine(options.lr, 0.0, epochs * loader.batches() as u64);
    let mut sgd = Sgd::new(store.trainable(), options.lr);
    let mut losses = Losses::new();
    let mut step = 0;
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch) {
            let (x, targets) = batch?; // (B, 784), (B)
            let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
            sgd.set_lr(schedule.at(step));
            sgd.step(&loss.backward()?)?;
            losses.push(&loss)?;
            step += 1;
        }
        losses.read()?;
        println!("softmax epoch {:2}: loss {:.4}", epoch + 1, losses.mean(loader.batches()));
    }
    common.save(&store)?;
    common.plot(
        "Softmax regression of digits",
        "loss",
        &[("cross-entropy of a batch", &losses.curve())],
    )?;
    let right = right(&model, &data.test, device)?;
    println!(
        "softmax test accuracy {:.2} % ({right} of {})",
        100.0 * right as f64 / data.test.len() as f64,
        data.test.len()
    );
    Ok(())
}
