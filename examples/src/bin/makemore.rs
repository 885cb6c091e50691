//! Makes up names: trains one of a dozen models on a list of them, from counted pairs of characters
//! to a transformer.
#![forbid(unsafe_code)]

use examples::makemore::bigrams::Bigrams;
use examples::makemore::{Arch, Examples, Model, sample};
use examples::options::{at_least_one, positive};
use examples::{Bar, Common, Parsed, Program, locate};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use std::time::Instant;
use teeny_autograd::Grad;
use teeny_core::{Result, Tensor};
use teeny_nn::Store;
use teeny_nn::data::names::Names;
use teeny_nn::loss::Reduction;
use teeny_nn::optim::{AdamW, Optimizer, Sgd};
use teeny_nn::state::{Position, Random, Stateful};
use teeny_nn::text::{Sampler, Tokenizer};

const PROGRAM: Program = Program {
    about: "Makes up names, after learning from a list of them.",
    options: "  --arch NAME      count: pairs of characters are counted;
                   bigram mlp mlp_bn deep wavenet_small wavenet: the next character from those in a window;
                   bow mlp16 rnn gru lstm transformer: from the name so far [mlp]
  --steps N        updates [bigram 500, windows 200000, names 20000]
  --batch N        examples per update [32]
  --lr X           the first learning rate [bigram 50, windows 0.1, names 0.002]
  --smooth X       added to every count [1]
  --samples N      how many names to make up [20]
  --top-k N        draw from the N likeliest characters only
  --sample-only    no training: make up names with the weights of --load or --resume
  --data FILE      a list of names, one per line, or the folder of names.txt; `builtin` for 748 names
                   [TEENY_DATA, else ../shared/datasets, else a download, else builtin]
",
    without: &[],
};

/// The split into names to learn from and others is the same whatever the seed, so that losses can
/// be compared.
const SPLIT: u64 = 42;

/// The longest name that a window model, which could go on for ever, may make up.
const LONGEST: usize = 40;

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
    PROGRAM.main(defaults, option, run)
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    match name {
        "arch" => {
            let name = parser.value()?.string()?;
            let known = Arch::ALL.iter().find(|(known, _)| *known == name).map(|(_, arch)| *arch);
            if known.is_none() && name != "count" {
                let names: Vec<&str> = Arch::ALL.iter().map(|(name, _)| *name).collect();
                return Err(
                    format!("--arch is count or one of {}, not {name}", names.join(" ")).into()
                );
            }
            options.arch = known;
        }
        "steps" => options.steps = Some(parser.value()?.parse()?),
        "batch" => options.batch = parser.value()?.parse_with(at_least_one)?,
        "lr" => options.lr = Some(parser.value()?.parse_with(positive)?),
        "smooth" => {
            options.smooth = parser
                .value()?
                .parse_with(|text| if text == "0" { Ok(0.0) } else { positive(text) })?
        }
        "samples" => options.samples = parser.value()?.parse()?,
        "top-k" => options.top_k = Some(parser.value()?.parse_with(at_least_one)?),
        "sample-only" => options.sample_only = true,
        _ => return Ok(false),
    }
    Ok(true)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let (text, note) = locate::text(common.data.as_deref(), "names.txt")?;
    let names = Names::parse(&text)?;
    let (train, dev, test) = names.split(SPLIT);
    let vocab = names.tokenizer().vocab_size();
    println!("data    {} names of {vocab} characters: {note}", names.len());

    let [all, learnt, other] = [&names, &train, &dev].map(|part| Bigrams::of(part, vocab, &device));
    let (all, counted) = (all?, learnt?.loss(&other?, options.smooth));
    let Some(arch) = options.arch else {
        let extent = (options.samples, LONGEST, common.seed);
        let made = sample(
            |x| all.logits(x, options.smooth),
            Some(1),
            &names,
            &sampler(options),
            extent,
            &device,
        )?;
        show(&made, LONGEST, &train, &names);
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
    println!("model   {arch:?}, {} parameters, sees {} characters", store.count(), model.context);

    let steps = if options.sample_only { 0 } else { options.steps.unwrap_or(arch.steps()) };
    let run = Run {
        arch,
        steps,
        store: &store,
        batch: options.batch,
        examples: Examples::of(&train, &model, &device)?,
        pairs: &all,
        model: &model,
    };
    if arch.window().is_some() {
        run.train(options, common, Sgd::new(store.trainable(), 0.0))?;
    } else {
        run.train(
            options,
            common,
            AdamW::new(store.trainable(), 0.0).betas(0.9, 0.99).weight_decay(0.1),
        )?;
    }
    common.save(&store)?;
    store.set_training(false);
    let limit = if arch.window().is_some() { LONGEST } else { model.context };
    let made = sample(
        |x| model.logits(x),
        arch.window(),
        &names,
        &sampler(options),
        (options.samples, limit, common.seed),
        &device,
    )?;
    show(&made, limit, &train, &names);
    let [dev, test] =
        [&dev, &test].map(|part| Examples::of(part, &model, &device)?.loss(&model, &store));
    println!("dev loss {:.4}, test loss {:.4} (counting pairs: dev {counted:.4})", dev?, test?);
    Ok(())
}

fn sampler(options: &Options) -> Sampler {
    options.top_k.map_or(Sampler::new(), |k| Sampler::new().top_k(k))
}

/// The names made up, and how many of them are more than memory. One that came to no end within
/// `limit` characters has no `.`.
fn show(made: &[String], limit: usize, train: &Names, names: &Names) {
    made.iter().for_each(|name| {
        println!("  {name}{}", if name.chars().count() < limit { "." } else { " .." })
    });
    let (new, unseen) = (names.new_ones(made).len(), train.new_ones(made).len());
    println!(
        "{} made up: {} stand in the list that was learnt from, {} in the rest of it, {new} are new",
        made.len(),
        made.len() - unseen,
        unseen - new
    );
}

/// What is trained on what.
struct Run<'a> {
    arch: Arch,
    steps: u64,
    batch: usize,
    store: &'a Store,
    model: &'a Model,
    examples: Examples,
    /// Of all names.
    pairs: &'a Bigrams,
}

impl Run<'_> {
    fn train(
        &self,
        options: &Options,
        common: &Common,
        mut optimizer: impl Optimizer,
    ) -> Result<()> {
        let (mut position, mut store) = (Position::default(), self.store.clone());
        let parts: &mut [(&str, &mut dyn Stateful)] = &mut [
            ("model", &mut store),
            ("optimizer", &mut optimizer),
            ("random", &mut Random),
            ("position", &mut position),
        ];
        common.restore(self.store.device(), parts)?;
        if position.step >= self.steps {
            return Ok(());
        }
        let schedule = self.arch.schedule(options.lr, self.steps);
        let mut record = common.record(position.step, schedule.clone())?;
        let (start, first) = (Instant::now(), position.step);
        let mut bar = Bar::new(self.steps - first, "examples");
        // a tenth at a time: reported, and kept if the run may be continued
        let part = (self.steps / 10).max(1);
        while position.step < self.steps {
            let loss = self.loss()?; // ()
            let grads = loss.backward()?;
            optimizer.set_lr(schedule.at(position.step));
            optimizer.step(&grads)?;
            record.push(&loss)?;
            bar.step(self.batch, record.losses().last());
            position.step += 1;
            if position.step.is_multiple_of(part) || position.step == self.steps {
                record.flush()?;
                let losses = record.losses();
                bar.suspend(|| {
                    println!(
                        "step {:6}  loss {:.4}  (first {:.4})",
                        position.step,
                        losses.mean(part as usize),
                        losses.values()[0].1
                    )
                });
                common.keep(&[
                    ("model", self.store),
                    ("optimizer", &optimizer),
                    ("random", &Random),
                    ("position", &position),
                ])?;
            }
        }
        drop(bar);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "trained {} steps in {seconds:.2} s, {:.1} us a step",
            self.steps - first,
            1e6 * seconds / (self.steps - first) as f64
        );
        common.plot(
            "Making up names",
            "loss",
            &[("cross-entropy of a batch", &record.losses().curve())],
        )
    }

    /// The loss of a batch; for the table of bigrams that of all pairs.
    fn loss(&self) -> Result<Tensor> {
        if self.arch == Arch::Bigram {
            return self.pairs.loss_of(&self.store.get("logits.weight")?.value());
        }
        let (x, y) = self.examples.draw(self.batch)?;
        self.model.loss(&x, &y, Reduction::Mean)
    }
}
