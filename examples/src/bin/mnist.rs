//! Trains a classifier of handwritten digits. This is the program to read first: data, model,
//! optimizer, training loop, accuracy. [`examples::digits`] has the networks, [`examples::Run`]
//! saves, resumes, logs and plots; `mnist_tiny.rs` does the same in one file with fewer crates.
#![forbid(unsafe_code)]

use examples::digits::{Accuracy, Options};
use examples::{Common, Program, Run, Step, locate};
use std::process::ExitCode;
use teeny_nn::prelude::*;

const PROGRAM: Program = Program {
    about: "Trains a classifier of handwritten digits.",
    options: "  --arch NAME      mlp: 784-128-10 by SGD;
                   cnn: four convolutions with batch normalisation by Adam;
                   small: two of 8 and 16 channels by Adam;
                   small-bn: with batch normalisation, by AdamW;
                   keras: Keras' simple convnet [mlp]
  --epochs N       passes over the training data [mlp 5; for the small built-in data 40]
  --steps N        steps instead of epochs [cnn 70, small 100, small-bn 200, keras 1000]
  --batch N        images per step [mlp 64, cnn 512, others 128]
  --lr X           learning rate [mlp 0.4, small and small-bn 0.01, cnn and keras 0.001]
  --data DIR       folder with MNIST's four files; `builtin` for the built-in digits
                   [TEENY_DATA, else an earlier download, else a download, else builtin]
",
    without: &[],
};

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), Options::take, train)
}

fn train(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let (data, note) = locate::mnist(common.data.as_deref())?;
    println!("data    {note}");

    let (arch, batch, lr) = (options.arch, options.batch(), options.lr());
    let store = Store::new(&device);
    let model = arch.build(&store, (data.train.height, data.train.width))?;
    let mut optimizer = arch.optimizer(&store, lr);
    common.load(&store)?;
    println!(
        "model   {arch}, {} parameters, learning rate {lr}, batches of {batch}",
        store.count()
    );

    let loader = DataLoader::new(data.train.on(&device), batch)?.shuffle(common.seed);
    let steps = options.steps(&loader);
    let mut run = Run::start(common, &store, &mut optimizer, steps)?.items("images");
    let mut step = Step::new(common, &store, |x| cross_entropy(&model.forward(&x[0])?, &x[1]));
    let evaluate = || Accuracy::of(&model, &data.test, &device);
    let mut accuracy = None;
    while let Some(batches) = run.next_epoch(&loader) {
        for batch in batches {
            let (x, targets) = batch?; // (B, 784), (B)
            let images = targets.numel();
            let (loss, gradients) = step.run(vec![x, targets])?; // ()
            optimizer.step(&gradients)?;
            run.push(&loss, images)?;
        }
        let tested = accuracy.insert(run.evaluate(evaluate)?);
        run.report_epoch(&optimizer, tested.percent())?;
    }
    // without an epoch, the accuracy of the weights that were loaded
    let accuracy = accuracy.map_or_else(|| run.evaluate(evaluate), Ok)?;
    let seconds = run.seconds();
    println!("test accuracy {accuracy} after {seconds:.2} s of training, {steps} steps");
    run.finish("Training on handwritten digits", "cross-entropy of a batch")
}
