//! Trains MNIST: data, model, loop, accuracy. `--help` lists the options, `mnist_tiny.rs` shows the same with fewer crates.
#![forbid(unsafe_code)]

use examples::locate;
use examples::options::{Arch, Options, USAGE};
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
use std::time::Instant;
use teeny_autograd::{Autograd, Grad, no_grad};
use teeny_core::{DeviceRef, Error, Result, Tensor, manual_seed};
use teeny_nn::data::{DataLoader, mnist::Images};
use teeny_nn::device::choose;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::train::{Mean, Plot, accuracy, require_finite};
use teeny_nn::{Activation, Conv2d, Flatten, Init, Linear, MaxPool2d, Module, Sequential, Store};

/// Losses are read from the device this many at a time: reading waits for the device, and it should not wait for us.
const READ_EVERY: usize = 50;

fn main() -> ExitCode {
    let options = match Options::parse(lexopt::Parser::from_env()) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if let Some(n) = options.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build_global();
        pool.map_err(|e| Error::value(format!("--threads {n}: {e}")))?;
    }
    manual_seed(options.seed);
    let choice = choose(&options.device)?;
    println!("device  {}", choice.note);
    let (data, note) = locate::mnist(options.data.as_deref())?;
    println!("data    {note}");
    let device: DeviceRef = Autograd::new(choice.device);

    let store = Store::new(&device);
    let model = model(options.arch, &store, (data.train.height, data.train.width))?;
    if let Some(path) = &options.load {
        store.load(path)?;
        println!("loaded  {}", path.display());
    }
    println!("model   {:?}, {} parameters, SGD at {}, batches of {}", options.arch, store.count(), options.lr, options.batch);

    let losses = train(options, &store, &model, &data.train, &data.test)?;
    if let Some(path) = &options.save {
        store.save(path)?;
        println!("saved   {}", path.display());
    }
    if let Some(path) = &options.plot {
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
fn train(options: &Options, store: &Store, model: &impl Module, training: &Images, test: &Images) -> Result<Vec<f64>> {
    let loader = DataLoader::new(training.on(store.device()), options.batch)?.shuffle(options.seed);
    let mut sgd = Sgd::new(store.trainable(), options.lr);
    let mut losses = Vec::new();
    let mut seconds = 0.0;
    // small data needs more passes for as many steps
    let epochs = options.epochs.unwrap_or(if training.len() < 10_000 { 40 } else { 5 });
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
