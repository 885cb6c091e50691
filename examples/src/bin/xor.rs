//! Learns exclusive or, the smallest problem that needs a hidden layer (Minsky & Papert 1969).
#![forbid(unsafe_code)]

use examples::options::{at_least_one, positive};
use examples::{Common, Program, Step, opt, println};
use std::process::ExitCode;
use teeny_autograd::no_grad;
use teeny_core::{DeviceRef, Result, Tensor, manual_seed};
use teeny_nn::loss::{Reduction, bce_with_logits};
use teeny_nn::optim::{Adam, Optimizer};
use teeny_nn::train::Losses;
use teeny_nn::{Activation, Linear, Module, Sequential, Store};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Learns exclusive or.",
    options: &[
        opt("steps N", "updates [300]", |o, v| v.with(&mut o.steps, at_least_one)),
        opt("hidden N", "neurons of the hidden layer [8]",
            |o, v| v.with(&mut o.hidden, at_least_one)),
        opt("lr X", "learning rate [0.05]", |o, v| v.with(&mut o.lr, positive)),
        opt("runs N", "trainings, with seeds from --seed upwards [1]",
            |o, v| v.with(&mut o.runs, at_least_one)),
    ],
    without: &["data", "load", "save", "resume", "log", "graph"],
};

struct Options {
    steps: usize,
    hidden: usize,
    lr: f64,
    runs: usize,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { steps: 300, hidden: 8, lr: 0.05, runs: 1 }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let mut solved = 0;
    for seed in common.seed..common.seed + options.runs as u64 {
        let (answers, losses) = train(options, seed, common, &device)?;
        let right = answers.iter().zip(TARGETS).filter(|(p, t)| (**p > 0.5) == (*t > 0.5)).count();
        println!(
            "seed {seed}: {right}/4 right, loss {:.4} → {:.4}",
            losses.values()[0].1,
            losses.last()
        );
        solved += usize::from(right == 4);
        if seed == common.seed {
            INPUTS
                .iter()
                .zip(&answers)
                .for_each(|([a, b], p)| println!("  {a} xor {b} = 1 with probability {p:.3}"));
            common.plot("Exclusive or", "loss", &[("binary cross-entropy", &losses.curve())])?;
        }
    }
    println!("4/4 right in {solved} of {} runs", options.runs);
    Ok(())
}

const INPUTS: [[f32; 2]; 4] = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]];
const TARGETS: [f32; 4] = [0.0, 1.0, 1.0, 0.0];

/// Trains, and returns the probability of 1 for each of the four inputs, and the losses.
fn train(
    options: &Options,
    seed: u64,
    common: &Common,
    device: &DeviceRef,
) -> Result<(Vec<f32>, Losses)> {
    manual_seed(seed);
    let x = Tensor::new(INPUTS, device)?; // (4, 2)
    let y = Tensor::new(TARGETS, device)?.unsqueeze(1)?; // (4, 1)
    let store = Store::new(device);
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc1"), 2, options.hidden)?) // (4, hidden)
        .then(Activation::Tanh)
        .then(Linear::new(&store.at("fc2"), options.hidden, 1)?); // (4, 1)
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
    let answers = no_grad(|| model.forward(&x)?.sigmoid())?.to_vec()?;
    Ok((answers, losses))
}
