//! Classifies generated reviews as positive or negative by their words.
//!
//! In the first set single words decide, and a linear model is enough. In the second set "not"
//! negates them, and only a model with a hidden layer can combine words. See
//! [`teeny_nn::data::sentiment`] for the grammar of both.
#![forbid(unsafe_code)]

use examples::options::{at_least_one, positive};
use examples::{Common, Program, Step, opt, println};
use std::process::ExitCode;
use teeny_autograd::no_grad;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::data::generated::Samples;
use teeny_nn::data::sentiment::{BagOfWords, Review, negated, separable};
use teeny_nn::loss::{Reduction, bce_with_logits};
use teeny_nn::optim::{Adam, Optimizer};
use teeny_nn::train::Losses;
use teeny_nn::{Activation, Linear, Module, Sequential, Store};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Classifies reviews by their words, with a linear model and with a hidden layer.",
    options: &[
        opt("reviews N", "reviews per set, a fifth of them for the test [2000]",
            |o, v| v.with(&mut o.reviews, enough)),
        opt("steps N", "updates, each on all reviews [200]",
            |o, v| v.with(&mut o.steps, at_least_one)),
        opt("hidden N", "neurons of the hidden layer [32]",
            |o, v| v.with(&mut o.hidden, at_least_one)),
        opt("lr X", "learning rate [0.02]", |o, v| v.with(&mut o.lr, positive)),
    ],
    without: &["data", "load", "save", "resume", "log", "graph"],
};

struct Options {
    reviews: usize,
    steps: usize,
    hidden: usize,
    lr: f64,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { reviews: 2000, steps: 200, hidden: 32, lr: 0.02 }, run)
}

fn enough(text: &str) -> std::result::Result<usize, String> {
    text.parse().ok().filter(|n| *n >= 50).ok_or_else(|| "at least 50 reviews are needed".into())
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let mut curves = Vec::new();
    for (set, reviews) in [
        ("separable", separable(options.reviews, common.seed)),
        ("negated", negated(options.reviews, common.seed)),
    ] {
        show(set, &reviews);
        let (training, test) = reviews.split_at(reviews.len() - reviews.len() / 5);
        let bag = BagOfWords::of(training);
        let (training, test) = (bag.count(training), bag.count(test));
        println!(
            "  {} training and {} test reviews, {} words",
            training.len(),
            test.len(),
            training.features
        );
        for (name, hidden) in [("linear", None), ("hidden", Some(options.hidden))] {
            let (accuracy, losses) = train(options, hidden, &training, &test, common, &device)?;
            println!("  {set} {name}: test accuracy {accuracy:.1} %");
            curves.push((format!("{set}, {name}"), losses.curve()));
        }
    }
    let curves: Vec<(&str, &[(f64, f64)])> =
        curves.iter().map(|(name, points)| (name.as_str(), points.as_slice())).collect();
    common.plot("Sentiment of reviews", "loss", &curves)
}

/// Prints the first reviews of a set.
fn show(set: &str, reviews: &[Review]) {
    println!("{set} reviews, such as");
    reviews
        .iter()
        .take(3)
        .for_each(|r| println!("  {} {}", if r.positive { "(+)" } else { "(-)" }, r.text));
}

/// Trains on `training` a model with a hidden layer of `hidden` neurons, or without. Returns the
/// accuracy on `test` in percent, and the losses.
fn train(
    options: &Options,
    hidden: Option<usize>,
    training: &Samples,
    test: &Samples,
    common: &Common,
    device: &DeviceRef,
) -> Result<(f64, Losses)> {
    let store = Store::new(device);
    let model = match hidden {
        // (N, 1)
        None => Sequential::new().then(Linear::new(&store.at("fc"), training.features, 1)?),
        Some(hidden) => Sequential::new()
            .then(Linear::new(&store.at("fc1"), training.features, hidden)?) // (N, hidden)
            .then(Activation::Relu)
            .then(Linear::new(&store.at("fc2"), hidden, 1)?), // (N, 1)
    };
    // (N, words), (N, 1)
    let (x, y) = (training.x(DType::F32, device)?, training.y(DType::F32, device)?.unsqueeze(1)?);
    let mut adam = Adam::new(store.trainable(), options.lr);
    let mut losses = Losses::new();
    let loss = |x: &[Tensor]| bce_with_logits(&model.forward(&x[0])?, &x[1], Reduction::Mean);
    let mut step = Step::new(common, &store, loss)?;
    for _ in 0..options.steps {
        let (loss, gradients) = step.run(vec![x.clone(), y.clone()])?; // ()
        adam.step(&gradients)?;
        losses.push(&loss)?;
    }
    losses.read()?;
    let scores = no_grad(|| model.forward(&test.x(DType::F32, device)?))?; // (N, 1)
    let right = scores
        .gt(0.0)?
        .eq(&test.y(DType::F32, device)?.gt(0.5)?.unsqueeze(1)?)?
        .sum_all()?
        .item::<i64>()?;
    Ok((100.0 * right as f64 / test.len() as f64, losses))
}
