//! Trains a classifier of handwritten digits: data, model, optimizer, training loop, accuracy.
//! [`examples::digits`] has the networks and the options, [`examples::Run`] saves, resumes, logs
//! and plots; `mnist_tiny.rs` does the same in one file with fewer crates.
#![forbid(unsafe_code)]

use examples::digits::{Accuracy, OPTIONS, Options};
use examples::{Common, Program, Run, Step, locate};
use std::process::ExitCode;
use teeny_nn::prelude::*;

const PROGRAM: Program<Options> = Program {
    about: "Trains a classifier of handwritten digits.",
    options: &OPTIONS,
    without: &[],
};

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), train)
}

fn train(options: &Options, common: &Common) -> Result<()> {
    let ranks = common.join(&options.ranks)?;
    let device = common.device()?;
    let (data, note) = locate::mnist(common.data.as_deref())?;
    common.print(format_args!("data    {note}"));

    let (arch, batch, lr) = (options.arch, options.batch(), options.lr());
    let store = Store::with_dtype(&device, options.dtype());
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
    let with = RunOptions::new().bar("images");
    let mut run = Run::start(common, &store, &mut optimizer, steps, with)?;
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
