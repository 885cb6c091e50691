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
  --distributed    train on the ranks that mpirun starts, each on a part of every batch
  --rank-timeout X seconds after which a rank without a sign of life has failed [60]
",
    without: &[],
};

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), Options::take, train)
}

fn train(options: &Options, common: &Common) -> Result<()> {
    let ranks = common.join(&options.ranks)?;
    let device = common.device()?;
    let (data, note) = locate::mnist(common.data.as_deref())?;
    common.print(format_args!("data    {note}"));

    let (arch, batch, lr) = (options.arch, options.batch(), options.lr());
    let store = Store::new(&device);
    let model = arch.build(&store, (data.train.height, data.train.width))?;
    let mut optimizer = arch.optimizer(&store, lr);
    common.load(&store)?;
    let parameters = store.count();
    common.print(format_args!(
        "model   {arch}, {parameters} parameters, learning rate {lr}, batches of {batch}"
    ));

    let (part, parts) = ranks.part();
    let loader =
        DataLoader::new(data.train.on(&device), batch)?.shuffle(common.seed).shard(part, parts)?;
    ranks.require_same("the order of the data", &format_args!("{:x}", loader.order_hash()))?;
    let steps = options.steps(&loader);
    let mut run = Run::start(common, &store, &mut optimizer, steps)?.items("images");
    let mut step = Step::new(common, &store, |x| cross_entropy(&model.forward(&x[0])?, &x[1]))?;
    let evaluate = || Accuracy::of(&model, &data.test, &device, ranks);
    let mut accuracy = None;
    while let Some(batches) = run.next_epoch(&loader) {
        for batch in batches {
            let (x, targets) = batch?; // (B, 784), (B)
            let images = targets.numel() * parts; // of all ranks: parts differ by one image at most
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
    common.print(format_args!(
        "test accuracy {accuracy} after {seconds:.2} s of training, {steps} steps"
    ));
    run.finish("Training on handwritten digits", "cross-entropy of a batch")
}
