//! Generates names with one of thirteen models that are trained on a list of names, from counts of
//! character pairs to a transformer.
#![forbid(unsafe_code)]

use examples::makemore::bigrams::Bigrams;
use examples::makemore::{Arch, Examples, Model, sample};
use examples::options::{about, any, at_least_one, positive};
use examples::{Common, Program, Run, Step, locate, opt, println};
use std::process::ExitCode;
use teeny_core::{Result, Tensor};
use teeny_nn::Store;
use teeny_nn::loss::Reduction;
use teeny_nn::optim::{AdamW, Optimizer, Sgd};
use teeny_nn::train::RunOptions;
use teeny_text::names::Names;
use teeny_text::{Sampler, Tokenizer};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Trains a model on a list of names, then generates new ones.",
    options: &[
        opt("arch NAME", "count: counts of character pairs, without training;
bigram mlp mlp_bn deep wavenet_small wavenet: the next character
from a window of characters;
bow mlp16 rnn gru lstm transformer: from all characters before it [mlp]",
            |o, v| v.with(&mut o.arch, arch)),
        opt("steps N", "updates [bigram 500, windows 200000, sequences 20000]",
            |o, v| v.with(&mut o.steps, any::<u64>)),
        opt("batch N", "examples per update [32]", |o, v| v.with(&mut o.batch, at_least_one)),
        opt("lr X", "initial learning rate [bigram 50, windows 0.1, sequences 0.002]",
            |o, v| v.with(&mut o.lr, positive)),
        opt("smooth X", "added to every count [1]",
            |o, v| v.with(&mut o.smooth, smooth)),
        opt("samples N", "names to generate [20]", |o, v| v.with(&mut o.samples, any::<usize>)),
        opt("top-k N", "sample from the N most likely characters only",
            |o, v| v.with(&mut o.top_k, at_least_one)),
        opt("sample-only", "no training: generate names with the weights of --load or --resume",
            |o, v| v.flag(&mut o.sample_only)),
        about("data FILE",
            "list of names, one per line, or folder of names.txt; `builtin` for 748 names
[TEENY_DATA, else ../shared/datasets, else a download, else builtin]"),
    ],
    without: &[],
};

/// The seed of the split into training, validation and test names. It does not depend on `--seed`,
/// so that losses can be compared.
const SPLIT: u64 = 42;

/// The limit for the characters of a name from a window model, which may never generate the end.
const MAX_LENGTH: usize = 40;

struct Options {
    /// `None` for counting.
    arch: Option<Arch>,
    steps: Option<u64>,
    batch: usize,
    lr: Option<f64>,
    smooth: f64,
    samples: usize,
    top_k: Option<usize>,
    sample_only: bool,
}

fn main() -> ExitCode {
    let defaults = Options {
        arch: Some(Arch::Mlp),
        steps: None,
        batch: 32,
        lr: None,
        smooth: 1.0,
        samples: 20,
        top_k: None,
        sample_only: false,
    };
    PROGRAM.main(defaults, run)
}

/// The number that is added to each count: 0 or more.
fn smooth(text: &str) -> std::result::Result<f64, String> {
    if text == "0" { Ok(0.0) } else { positive(text) }
}

/// The model called `name`; `None` for counting.
fn arch(name: &str) -> std::result::Result<Option<Arch>, String> {
    let known = Arch::ALL.iter().find(|(known, _)| *known == name).map(|(_, arch)| *arch);
    if known.is_none() && name != "count" {
        let names: Vec<&str> = Arch::ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("--arch is count or one of {}, not {name}", names.join(" ")));
    }
    Ok(known)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let (text, note) = locate::text(common.data.as_deref(), "names.txt")?;
    let names = Names::parse(&text)?;
    let (train, dev, test) = names.split(SPLIT);
    let vocab = names.tokenizer().vocab_size();
    println!("data    {} names of {vocab} characters: {note}", names.len());

    let [all, counts, validation] =
        [&names, &train, &dev].map(|part| Bigrams::of(part, vocab, &device));
    let (all, counted) = (all?, counts?.loss(&validation?, options.smooth));
    let Some(arch) = options.arch else {
        let extent = (options.samples, MAX_LENGTH, common.seed);
        let generated = sample(
            |x| all.logits(x, options.smooth),
            Some(1),
            &names,
            &sampler(options),
            extent,
            &device,
        )?;
        show(&generated, MAX_LENGTH, &train, &names);
        println!(
            "loss {:.6} of {} pairs, counts + {}",
            all.loss(&all, options.smooth),
            all.total(),
            options.smooth
        );
        return Ok(());
    };
    let store = Store::new(&device);
    let model = Model::new(&store, arch, vocab, names.longest() + 1)?;
    common.load(&store)?;
    println!(
        "model   {arch:?}, {} parameters, context of {} characters",
        store.count(),
        model.context
    );

    let steps = if options.sample_only { 0 } else { options.steps.unwrap_or(arch.steps()) };
    let task = Task {
        arch,
        store: &store,
        batch: options.batch,
        examples: Examples::of(&train, &model, &device)?,
        pairs: &all,
        model: &model,
    };
    if arch.window().is_some() {
        task.train(options, common, steps, Sgd::new(store.trainable(), 0.0))?;
    } else {
        let adam = AdamW::new(store.trainable(), 0.0).betas(0.9, 0.99).weight_decay(0.1);
        task.train(options, common, steps, adam)?;
    }
    store.set_training(false);
    let limit = if arch.window().is_some() { MAX_LENGTH } else { model.context };
    let generated = sample(
        |x| model.logits(x),
        arch.window(),
        &names,
        &sampler(options),
        (options.samples, limit, common.seed),
        &device,
    )?;
    show(&generated, limit, &train, &names);
    let [dev, test] =
        [&dev, &test].map(|part| Examples::of(part, &model, &device)?.loss(&model, &store));
    println!("dev loss {:.4}, test loss {:.4} (counting pairs: dev {counted:.4})", dev?, test?);
    Ok(())
}

fn sampler(options: &Options) -> Sampler {
    options.top_k.map_or(Sampler::new(), |k| Sampler::new().top_k(k))
}

/// Prints the generated names, and how many of them are in the list. A name without its end within
/// `limit` characters is printed with ` ..`.
fn show(generated: &[String], limit: usize, train: &Names, names: &Names) {
    generated.iter().for_each(|name| {
        println!("  {name}{}", if name.chars().count() < limit { "." } else { " .." })
    });
    let (new, unseen) = (names.new_ones(generated).len(), train.new_ones(generated).len());
    println!(
        "{} generated: {} are training names, {} validation or test names, {new} are new",
        generated.len(),
        generated.len() - unseen,
        unseen - new
    );
}

/// A model and its training data.
struct Task<'a> {
    arch: Arch,
    batch: usize,
    store: &'a Store,
    model: &'a Model,
    examples: Examples,
    /// The counts of character pairs in all names.
    pairs: &'a Bigrams,
}

impl Task<'_> {
    fn train(
        &self,
        options: &Options,
        common: &Common,
        steps: u64,
        mut optimizer: impl Optimizer,
    ) -> Result<()> {
        let with =
            RunOptions::new().schedule(self.arch.schedule(options.lr, steps)).bar("examples");
        let mut run = Run::start(common, self.store, &mut optimizer, steps, with)?;
        let (part, before) = ((steps / 10).max(1), run.step());
        let mut replayed = Step::new(common, self.store, |x| self.loss(x))?;
        while let Some(step) = run.next_step() {
            let (loss, grads) = replayed.run(self.draw()?)?; // ()
            optimizer.set_lr(run.lr());
            optimizer.step(&grads)?;
            run.push(&loss, self.batch)?;
            if run.is_due(part) {
                let losses = run.losses()?;
                let (loss, first) = (losses.mean(part as usize), losses.values()[0].1);
                let line = format!("step {:6}  loss {loss:.4}  (first {first:.4})", step + 1);
                run.report(&optimizer, &line)?;
            }
        }
        run.losses()?; // waits for the last step
        let (seconds, trained) = (run.seconds(), run.step() - before);
        if trained > 0 {
            let microseconds = 1e6 * seconds / trained as f64;
            println!("trained {trained} steps in {seconds:.2} s, {microseconds:.1} us a step");
        }
        run.finish("Names", "cross-entropy of a batch")
    }

    /// A batch; none for the bigram network.
    fn draw(&self) -> Result<Vec<Tensor>> {
        if self.arch == Arch::Bigram {
            return Ok(Vec::new());
        }
        let (x, y) = self.examples.draw(self.batch)?;
        Ok(vec![x, y])
    }

    /// The loss of a batch; for the bigram network the loss of all pairs.
    fn loss(&self, batch: &[Tensor]) -> Result<Tensor> {
        match batch {
            [x, y] => self.model.loss(x, y, Reduction::Mean),
            _ => self.pairs.loss_of(&self.store.get("logits.weight")?.value()),
        }
    }
}
