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
use teeny_nn::data::DataLoader;
use teeny_nn::data::mnist::{Images, Mnist};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::state::{Position, Random};
use teeny_nn::train::{Log, Losses, accuracy};
use teeny_nn::{Activation, Conv2d, Flatten, Init, Linear, MaxPool2d, Module, Sequential, Store};

const PROGRAM: Program = Program {
    about: "Trains a classifier of handwritten digits.",
    options: "  --arch mlp|cnn   784-128-10 (default), or two convolutions of 8 and 16 channels
  --epochs N       passes over the training data [5; for the small built-in data 40]
  --batch N        images per step [64]
  --lr X           learning rate [mlp 0.4, cnn 0.1]
  --data DIR       folder with MNIST's four files; `builtin` for the digits inside the program
                   [TEENY_DATA, else ../shared/datasets, else a download, else builtin]
",
    without: &[],
};

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
    common.load(&store)?;
    let lr = options.lr.unwrap_or(match options.arch {
        Arch::Mlp => 0.4,
        Arch::Cnn => 0.1,
    });
    println!("model   {:?}, {} parameters, SGD at {lr}, batches of {}", options.arch, store.count(), options.batch);

    let mut run = Run { sgd: Sgd::new(store.trainable(), lr), position: Position::default(), losses: Losses::new(), store, model };
    run.train(options, common, &data)?;
    common.save(&run.store)?;
    common.plot("Training on handwritten digits", "loss", &[("cross-entropy of a batch", &run.losses.curve())])
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

/// What changes while training.
struct Run {
    store: Store,
    model: Sequential,
    sgd: Sgd,
    position: Position,
    losses: Losses,
}

impl Run {
    /// Trains and reports.
    fn train(&mut self, options: &Options, common: &Common, data: &Mnist) -> Result<()> {
        let device = self.store.device().clone();
        let loader = DataLoader::new(data.train.on(&device), options.batch)?.shuffle(common.seed);
        let (store, sgd, position) = (&mut self.store, &mut self.sgd, &mut self.position);
        common.restore(&device, &mut [("model", store), ("optimizer", sgd), ("random", &mut Random), ("position", position)])?;
        self.losses = Losses::new().from_step(self.position.step);
        let mut log = common.log(&["step", "loss"])?;
        let mut seconds = 0.0;
        // small data needs more passes for as many steps
        let epochs = options.epochs.unwrap_or(if data.train.len() < 10_000 { 40 } else { 5 });
        while self.position.epoch < epochs {
            let start = Instant::now();
            let bar = progress(loader.batches());
            for batch in loader.epoch(self.position.epoch) {
                let (x, targets) = batch?; // (B, 784), (B)
                let loss = cross_entropy(&self.model.forward(&x)?, &targets)?; // ()
                self.sgd.step(&loss.backward()?)?;
                self.position.step += 1;
                record(self.losses.push(&loss)?, &bar, log.as_mut())?;
            }
            record(self.losses.read()?, &bar, log.as_mut())?;
            bar.finish_and_clear();
            seconds += start.elapsed().as_secs_f64();
            if self.position.epoch == 0 {
                println!("first loss {:.4}", self.losses.values()[0].1);
            }
            self.position.epoch += 1;
            let percent = 100.0 * self.evaluate(&data.test)? as f64 / data.test.len() as f64;
            let mean = self.losses.mean(loader.batches());
            println!("epoch {:2}  loss {mean:.4}  test accuracy {percent:.2} %  {:.2} s", self.position.epoch, start.elapsed().as_secs_f64());
            common.keep(&[("model", &self.store), ("optimizer", &self.sgd), ("random", &Random), ("position", &self.position)])?;
        }
        let right = self.evaluate(&data.test)?;
        let percent = 100.0 * right as f64 / data.test.len() as f64;
        println!("test accuracy {percent:.2} % ({right} of {}) after {seconds:.2} s of training", data.test.len());
        Ok(())
    }

    /// How many of `images` the model gets right.
    fn evaluate(&self, images: &Images) -> Result<usize> {
        self.store.set_training(false);
        let right = no_grad(|| {
            let loader = DataLoader::new(images.on(self.store.device()), 1000)?;
            loader.epoch(0).try_fold(0, |right, batch| {
                let (x, targets) = batch?; // (1000, 784), (1000)
                Ok(right + accuracy(&self.model.forward(&x)?, &targets)?)
            })
        });
        self.store.set_training(true);
        right
    }
}

/// Shows and logs the losses that have just been read.
fn record(read: &[(u64, f64)], bar: &ProgressBar, log: Option<&mut Log>) -> Result<()> {
    bar.inc(read.len() as u64);
    if let [.., (_, loss)] = read {
        bar.set_message(format!("loss {loss:.3}"));
    }
    let Some(log) = log else { return Ok(()) };
    read.iter().try_for_each(|&(step, loss)| log.write(&[step.into(), loss.into()]))
}

/// A bar on a terminal, nothing elsewhere.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {msg}").expect("a fixed template");
    ProgressBar::new(steps as u64).with_style(style)
}
