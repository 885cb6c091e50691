//! Trains MNIST: data, model, loop, accuracy. `--help` lists the options, `mnist_tiny.rs` shows the same with fewer crates.
#![forbid(unsafe_code)]

use examples::options::{at_least_one, positive};
use examples::{Common, Parsed, Program, locate};
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use std::time::Instant;
use teeny_autograd::{Grad, no_grad};
use teeny_core::{Result, Tensor};
use teeny_nn::data::{DataLoader, ImageBatches, mnist::Images};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::train::{Mean, Plot, accuracy, require_finite};
use teeny_nn::{Activation, Conv2d, Flatten, Init, Linear, MaxPool2d, Module, Sequential, Store};

const PROGRAM: Program = Program {
    about: "Trains a classifier of handwritten digits.",
    options: "  --arch mlp|cnn   784-128-10 (default), or two convolutions of 8 and 16 channels
  --epochs N       passes over the training data [5; for the small built-in data 40]
  --batch N        images per step [64]
  --lr X           learning rate [mlp 0.4, cnn 0.1]
  --data DIR       folder with MNIST's four files; `builtin` for the digits inside the program
                   [TEENY_DATA, else an earlier download, else a download, else builtin]
",
    without: &["resume", "log"],
};

/// Losses are read from the device this many at a time: reading waits for the device, and it should not wait for us.
const READ_EVERY: usize = 50;

/// The network to train.
#[derive(Clone, Copy, Debug)]
enum Arch {
    /// One hidden layer.
    Mlp,
    /// Two convolutions.
    Cnn,
}

struct Options {
    arch: Arch,
    /// None if the data decides.
    epochs: Option<u64>,
    batch: usize,
    /// None if the network decides.
    lr: Option<f64>,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { arch: Arch::Mlp, epochs: None, batch: 64, lr: None }, option, run)
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    match name {
        "arch" => {
            options.arch = match parser.value()?.string()?.as_str() {
                "mlp" => Arch::Mlp,
                "cnn" => Arch::Cnn,
                other => return Err(format!("--arch is mlp or cnn, not {other}").into()),
            }
        }
        "epochs" => options.epochs = Some(parser.value()?.parse()?),
        "batch" => options.batch = parser.value()?.parse_with(at_least_one)?,
        "lr" => options.lr = Some(parser.value()?.parse_with(positive)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let (data, note) = locate::mnist(common.data.as_deref())?;
    println!("data    {note}");

    let store = Store::new(&device);
    let model = model(options.arch, &store, (data.train.height, data.train.width))?;
    if let Some(path) = &common.load {
        store.load(path)?;
        println!("loaded  {}", path.display());
    }
    let lr = options.lr.unwrap_or(match options.arch {
        Arch::Mlp => 0.4,
        Arch::Cnn => 0.1,
    });
    println!("model   {:?}, {} parameters, SGD at {lr}, batches of {}", options.arch, store.count(), options.batch);

    let mut sgd = Sgd::new(store.trainable(), lr);
    let loader = DataLoader::new(data.train.on(&device), options.batch)?.shuffle(common.seed);
    // small data needs more passes for as many steps
    let epochs = options.epochs.unwrap_or(if data.train.len() < 10_000 { 40 } else { 5 });
    let losses = train(epochs, &mut sgd, &loader, &store, &model, &data.test)?;
    if let Some(path) = &common.save {
        store.save(path)?;
        println!("saved   {}", path.display());
    }
    if let Some(path) = &common.plot {
        let points: Vec<(f64, f64)> = losses.iter().enumerate().map(|(step, loss)| (step as f64, *loss)).collect();
        Plot::new("Training on handwritten digits", "step", "loss").curve("cross-entropy of a batch", &points).save(path)?;
        println!("plotted {}", path.display());
    }
    Ok(())
}

/// The network of `arch` for images of (height, width), which it takes flattened: (N, height width) → (N, 10).
fn model(arch: Arch, store: &Store, (height, width): (usize, usize)) -> Result<Sequential> {
    match arch {
        Arch::Mlp => {
            let small = Init::Normal { mean: 0.0, std: 0.02 };
            let zeros = Some(Init::ZEROS);
            let fc1 = Linear::with_init(&store.at("fc1"), height * width, 128, small, zeros)?;
            let fc2 = Linear::with_init(&store.at("fc2"), 128, 10, small, zeros)?;
            Ok(Sequential::new().then(fc1).then(Activation::Relu).then(fc2))
        }
        Arch::Cnn => {
            let after = |size: usize| size.saturating_sub(2) / 2; // a 3x3 convolution and a pooling by 2
            let (h, w) = (after(after(height)), after(after(width)));
            Ok(Sequential::new()
                .then(move |x: &Tensor| x.reshape([-1, 1, height as isize, width as isize])) // (N, 1, 28, 28)
                .then(Conv2d::new(&store.at("conv1"), 1, 8, 3)?) // (N, 8, 26, 26)
                .then(Activation::Relu)
                .then(MaxPool2d::new(2)) // (N, 8, 13, 13)
                .then(Conv2d::new(&store.at("conv2"), 8, 16, 3)?) // (N, 16, 11, 11)
                .then(Activation::Relu)
                .then(MaxPool2d::new(2)) // (N, 16, 5, 5)
                .then(Flatten)
                .then(Linear::new(&store.at("fc"), 16 * h * w, 10)?))
        }
    }
}

/// Trains and reports; gives back the loss of every step.
fn train(epochs: u64, sgd: &mut Sgd, loader: &DataLoader<ImageBatches<'_>>, store: &Store, model: &impl Module, test: &Images) -> Result<Vec<f64>> {
    let mut losses = Vec::new();
    let mut seconds = 0.0;
    for epoch in 0..epochs {
        let start = Instant::now();
        let bar = progress(loader.batches());
        let mut unread = Vec::new();
        let first = losses.len();
        for batch in loader.epoch(epoch) {
            let (x, targets) = batch?; // (B, 784), (B)
            let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
            sgd.step(&loss.backward()?)?;
            unread.push(loss.detach()?);
            if unread.len() == READ_EVERY {
                read(&mut unread, &mut losses)?;
                bar.inc(READ_EVERY as u64);
                bar.set_message(format!("loss {:.3}", losses[losses.len() - 1]));
            }
        }
        read(&mut unread, &mut losses)?;
        bar.finish_and_clear();
        seconds += start.elapsed().as_secs_f64();
        if epoch == 0 {
            println!("first loss {:.4}", losses[0]);
        }
        let mut mean = Mean::new();
        losses[first..].iter().for_each(|loss| mean.add(*loss, 1.0));
        let right = evaluate(store, model, test)?;
        let percent = 100.0 * right as f64 / test.len() as f64;
        println!("epoch {:2}  loss {:.4}  test accuracy {percent:.2} %  {:.2} s", epoch + 1, mean.value(), start.elapsed().as_secs_f64());
    }
    let right = evaluate(store, model, test)?;
    println!("test accuracy {:.2} % ({right} of {}) after {seconds:.2} s of training", 100.0 * right as f64 / test.len() as f64, test.len());
    Ok(losses)
}

/// Moves losses from the device to `losses`, in one transfer; one that is NaN or infinite ends the training.
fn read(unread: &mut Vec<Tensor>, losses: &mut Vec<f64>) -> Result<()> {
    if unread.is_empty() {
        return Ok(());
    }
    let values = Tensor::stack(&unread.iter().collect::<Vec<_>>(), 0)?.to_vec::<f32>()?; // (READ_EVERY)
    unread.clear();
    for loss in values {
        losses.push(require_finite("loss", loss.into(), losses.len())?);
    }
    Ok(())
}

/// How many of `images` the model gets right.
fn evaluate(store: &Store, model: &impl Module, images: &Images) -> Result<usize> {
    store.set_training(false);
    let right = no_grad(|| {
        let loader = DataLoader::new(images.on(store.device()), 1000)?;
        loader.epoch(0).try_fold(0, |right, batch| {
            let (x, targets) = batch?;
            Ok(right + accuracy(&model.forward(&x)?, &targets)?)
        })
    });
    store.set_training(true);
    right
}

/// A bar on a terminal, nothing elsewhere.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {msg}").expect("a fixed template");
    ProgressBar::new(steps as u64).with_style(style)
}
