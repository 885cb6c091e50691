//! Trains MNIST: data, model, loop, accuracy. `--help` lists the options, `mnist_tiny.rs` shows the
//! same with fewer crates.
#![forbid(unsafe_code)]

use examples::digits::{Arch, right};
use examples::options::{at_least_one, positive};
use examples::{Bar, Common, Parsed, Program, locate};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use std::time::Instant;
use teeny_autograd::Grad;
use teeny_core::Result;
use teeny_nn::data::mnist::{Images, Mnist};
use teeny_nn::data::{DataLoader, ImageBatches};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::Optimizer;
use teeny_nn::state::{Position, Random};
use teeny_nn::train::Losses;
use teeny_nn::{Module, Schedule, Sequential, Store};

const PROGRAM: Program = Program {
    about: "Trains a classifier of handwritten digits.",
    options: "  --arch NAME      mlp: 784-128-10 by SGD; cnn: four convolutions with batch normalisation by Adam; small: two of 8 and
                   16 channels by Adam; small-bn: with batch normalisation, by AdamW; keras: Keras' simple convnet [mlp]
  --epochs N       passes over the training data [mlp 5; for the small built-in data 40]
  --steps N        steps instead of passes [cnn 70, small 100, small-bn 200, keras 1000]
  --batch N        images per step [mlp 64, cnn 512, others 128]
  --lr X           learning rate [mlp 0.4, small and small-bn 0.01, cnn and keras 0.001]
  --data DIR       folder with MNIST's four files; `builtin` for the digits inside the program
                   [TEENY_DATA, else an earlier download, else a download, else builtin]
",
    without: &[],
};

struct Options {
    arch: Arch,
    // what is not given here, the network decides
    epochs: Option<u64>,
    steps: Option<u64>,
    batch: Option<usize>,
    lr: Option<f64>,
}

fn main() -> ExitCode {
    PROGRAM.main(
        Options { arch: Arch::Mlp, epochs: None, steps: None, batch: None, lr: None },
        option,
        run,
    )
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    match name {
        "arch" => options.arch = parser.value()?.parse_with(Arch::named)?,
        "epochs" => options.epochs = Some(parser.value()?.parse()?),
        "steps" => options.steps = Some(parser.value()?.parse()?),
        "batch" => options.batch = Some(parser.value()?.parse_with(at_least_one)?),
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
    let (arch, recipe) = (options.arch, options.arch.recipe());
    let (batch, lr) = (options.batch.unwrap_or(recipe.batch), options.lr.unwrap_or(recipe.lr));
    let model = arch.build(&store, (data.train.height, data.train.width))?;
    common.load(&store)?;
    println!(
        "model   {arch}, {} parameters, learning rate {lr}, batches of {batch}",
        store.count()
    );

    let loader = DataLoader::new(data.train.on(&device), batch)?.shuffle(common.seed);
    let steps = match (options.epochs, options.steps.or(recipe.steps)) {
        (None, Some(steps)) => steps,
        // small data needs more passes for as many steps
        (epochs, _) => {
            epochs.unwrap_or(if data.train.len() < 10_000 { 40 } else { 5 })
                * loader.batches() as u64
        }
    };
    let optimizer = arch.optimizer(&store, lr);
    let mut run = Run { store, model, optimizer, position: Position::default() };
    let losses = run.train(steps, &loader, common, &data)?;
    common.save(&run.store)?;
    common.plot(
        "Training on handwritten digits",
        "loss",
        &[("cross-entropy of a batch", &losses.curve())],
    )
}

/// What changes while training.
struct Run {
    store: Store,
    model: Sequential,
    optimizer: Box<dyn Optimizer>,
    position: Position,
}

impl Run {
    /// Trains for `steps` in all and reports after each pass over the data.
    fn train(
        &mut self,
        steps: u64,
        loader: &DataLoader<ImageBatches<'_>>,
        common: &Common,
        data: &Mnist,
    ) -> Result<Losses> {
        let device = self.store.device().clone();
        let (store, optimizer, position) =
            (&mut self.store, &mut self.optimizer, &mut self.position);
        common.restore(
            &device,
            &mut [
                ("model", store),
                ("optimizer", optimizer),
                ("random", &mut Random),
                ("position", position),
            ],
        )?;
        let mut record =
            common.record(self.position.step, Schedule::constant(self.optimizer.lr()))?;
        let (mut seconds, mut right) = (0.0, None);
        while self.position.step < steps {
            let start = Instant::now();
            let Position { step, epoch, batch } = self.position;
            let here = ((steps - step) as usize).min(loader.batches() - batch);
            let mut bar = Bar::new(here as u64, "images");
            for item in loader.epoch_from(epoch, batch).take(here) {
                let (x, targets) = item?; // (B, 784), (B)
                let loss = cross_entropy(&self.model.forward(&x)?, &targets)?; // ()
                self.optimizer.step(&loss.backward()?)?;
                record.push(&loss)?;
                bar.step(x.shape()[0], record.losses().last());
            }
            record.flush()?;
            drop(bar);
            let taken = start.elapsed().as_secs_f64();
            seconds += taken;
            let ended = batch + here == loader.batches();
            self.position = Position {
                step: step + here as u64,
                epoch: epoch + u64::from(ended),
                batch: if ended { 0 } else { batch + here },
            };
            if step == 0 {
                println!("first loss {:.4}", record.losses().values()[0].1);
            }
            let percent =
                100.0 * *right.insert(self.evaluate(&data.test)?) as f64 / data.test.len() as f64;
            println!(
                "epoch {:2}  loss {:.4}  test accuracy {percent:.2} %  {taken:.2} s",
                epoch + 1,
                record.losses().mean(here)
            );
            common.keep(&[
                ("model", &self.store),
                ("optimizer", &self.optimizer),
                ("random", &Random),
                ("position", &self.position),
            ])?;
        }
        let right = right.map_or_else(|| self.evaluate(&data.test), Ok)?;
        let percent = 100.0 * right as f64 / data.test.len() as f64;
        println!(
            "test accuracy {percent:.2} % ({right} of {}) after {seconds:.2} s of training, {steps} steps",
            data.test.len()
        );
        Ok(record.into_losses())
    }

    /// How many of `images` the model gets right.
    fn evaluate(&self, images: &Images) -> Result<usize> {
        self.store.set_training(false);
        let right = right(&self.model, images, self.store.device());
        self.store.set_training(true);
        right
    }
}
