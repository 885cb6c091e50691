//! Trains a small GPT on the characters of a text and lets it write: nanoGPT's configuration for a
//! CPU, 0.8 million parameters, but with twice its learning rate, which is worth 0.07 of validation
//! loss.
#![forbid(unsafe_code)]

use examples::options::{at_least_one, positive};
use examples::{Bar, Common, Parsed, Program, locate};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use std::time::Instant;
use teeny_autograd::{Grad, no_grad};
use teeny_core::random::Key;
use teeny_core::{Result, Tensor};
use teeny_nn::data::Corpus;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer, ParamGroup, clip_grad_norm};
use teeny_nn::state::{Position, Random};
use teeny_nn::text::{CharTokenizer, Sampler, Tokenizer};
use teeny_nn::train::Losses;
use teeny_nn::{Gpt, GptConfig, Schedule, Store};

const PROGRAM: Program = Program {
    about: "Trains a GPT on the characters of a text, then lets it write.",
    options: "  --steps N        updates [2000]
  --batch N        sequences per update [12]
  --context N      characters a sequence has [64]
  --layers N       blocks [4]
  --heads N        heads per block [4]
  --width N        numbers per character [128]
  --dropout P      probability of dropping [0]
  --lr X           the highest learning rate; it warms up in 100 steps and falls to a tenth [0.002]
  --decay-steps N  the step at which it has fallen [--steps]
  --eval-every N   updates between looks at the validation loss [500]
  --eval-batches N batches of a look [20]
  --sample N       characters to write at the end [500]
  --temperature X  how bold to write; 0 takes the likeliest character [0.8]
  --top-k N        choose among the N likeliest characters only
  --prompt TEXT    what to continue [a new line]
  --data PATH      a text file, or a folder with tinyshakespeare.txt; `builtin` for a few scenes inside the program
                   [TEENY_DATA, else ../shared/datasets, else a download, else builtin]
",
    without: &[],
};

struct Options {
    steps: u64,
    batch: usize,
    model: GptConfig,
    lr: f64,
    decay_steps: Option<u64>,
    eval_every: u64,
    eval_batches: u64,
    sample: usize,
    sampler: Sampler,
    prompt: String,
}

fn main() -> ExitCode {
    let model = GptConfig::new(0, 64, 4, 4, 128).with_bias(false);
    let options = Options {
        steps: 2000,
        batch: 12,
        model,
        lr: 2e-3,
        decay_steps: None,
        eval_every: 500,
        eval_batches: 20,
        sample: 500,
        sampler: Sampler::new().temperature(0.8),
        prompt: "\n".into(),
    };
    PROGRAM.main(options, option, run)
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    let model = &mut options.model;
    match name {
        "steps" => options.steps = parser.value()?.parse()?,
        "batch" => options.batch = parser.value()?.parse_with(at_least_one)?,
        "context" => model.context = parser.value()?.parse_with(at_least_one)?,
        "layers" => model.n_layer = parser.value()?.parse_with(at_least_one)?,
        "heads" => model.n_head = parser.value()?.parse_with(at_least_one)?,
        "width" => model.n_embd = parser.value()?.parse_with(at_least_one)?,
        "dropout" => model.dropout = parser.value()?.parse()?,
        "lr" => options.lr = parser.value()?.parse_with(positive)?,
        "decay-steps" => options.decay_steps = Some(parser.value()?.parse()?),
        "eval-every" => options.eval_every = parser.value()?.parse_with(at_least_one)? as u64,
        "eval-batches" => options.eval_batches = parser.value()?.parse_with(at_least_one)? as u64,
        "sample" => options.sample = parser.value()?.parse()?,
        "temperature" => options.sampler = options.sampler.temperature(parser.value()?.parse()?),
        "top-k" => {
            options.sampler = options.sampler.top_k(parser.value()?.parse_with(at_least_one)?)
        }
        "prompt" => options.prompt = parser.value()?.string()?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let (text, note) = locate::text(common.data.as_deref(), "tinyshakespeare.txt")?;
    println!("data    {note}");
    let tokenizer = CharTokenizer::of(&text)?;
    let (train, val) = Corpus::new(&tokenizer.encode(&text)?, &device)?.split(0.9)?;

    let store = Store::new(&device);
    let gpt = Gpt::new(&store.root(), options.model.with_vocab(tokenizer.vocab_size()))?;
    common.load(&store)?;
    let positions = options.model.context * options.model.n_embd;
    println!(
        "model   {} parameters and {positions} for positions, {} characters, batches of {}",
        store.count() - positions,
        tokenizer.vocab_size(),
        options.batch
    );

    let mut run = Run { store, gpt, val_losses: Vec::new() };
    let losses = run.train(options, common, &train, &val)?;
    common.save(&run.store)?;
    common.plot(
        "A GPT on characters",
        "loss",
        &[("training", &losses.curve()), ("validation", &run.val_losses)],
    )?;
    run.write(options, common, &tokenizer)
}

/// What training changes and leaves behind.
struct Run {
    store: Store,
    gpt: Gpt,
    val_losses: Vec<(f64, f64)>,
}

impl Run {
    fn train(
        &mut self,
        options: &Options,
        common: &Common,
        train: &Corpus,
        val: &Corpus,
    ) -> Result<Losses> {
        let device = self.store.device().clone();
        let schedule = Schedule::warmup_cosine(
            options.lr,
            options.lr / 10.0,
            100,
            options.decay_steps.unwrap_or(options.steps),
        );
        // matrices decay, norms do not
        let is_line = |p: &teeny_nn::Param| p.value().ndim() < 2;
        let adam =
            AdamW::new(self.store.trainable(), options.lr).betas(0.9, 0.99).weight_decay(0.1);
        let mut adam = adam.group(is_line, ParamGroup::new().weight_decay(0.0));
        let mut position = Position::default();
        common.restore(
            &device,
            &mut [
                ("model", &mut self.store),
                ("optimizer", &mut adam),
                ("random", &mut Random),
                ("position", &mut position),
            ],
        )?;
        let mut record = common.record(position.step, schedule.clone())?;
        let (batch, context) = (options.batch, options.model.context);
        let start = Instant::now();
        let mut evaluating = 0.0;
        let mut bar = Bar::new(options.steps - position.step.min(options.steps), "tokens");
        while position.step < options.steps {
            adam.set_lr(schedule.at(position.step));
            // (B, T) both
            let (x, y) =
                train.batch(batch, context, Key { seed: common.seed, draw: position.step })?;
            let loss = self.loss(&x, &y)?; // ()
            let mut grads = loss.backward()?;
            clip_grad_norm(&mut grads, &self.store.trainable(), 1.0)?;
            adam.step(&grads)?;
            record.push(&loss)?;
            position.step += 1;
            bar.step(batch * context, record.losses().last());
            if position.step % options.eval_every == 0 || position.step == options.steps {
                record.flush()?;
                let before = Instant::now();
                let val = self.evaluate(options, val)?;
                evaluating += before.elapsed().as_secs_f64();
                self.val_losses.push((position.step as f64, val));
                let mean = record.losses().mean(options.eval_every as usize);
                bar.suspend(|| {
                    println!("step {:5}  loss {mean:.4}  val loss {val:.4}", position.step)
                });
                common.keep(&[
                    ("model", &self.store),
                    ("optimizer", &adam),
                    ("random", &Random),
                    ("position", &position),
                ])?;
            }
        }
        drop(bar);
        let (seconds, steps) =
            (start.elapsed().as_secs_f64() - evaluating, record.losses().values().len());
        let tokens = (steps * batch * context) as f64;
        if let ([(0, first), ..], Some((_, val))) =
            (record.losses().values(), self.val_losses.last())
        {
            println!(
                "first loss {first:.4}, val loss {val:.4} after {seconds:.1} s of training, {:.0} tokens/s",
                tokens / seconds
            );
        }
        Ok(record.into_losses())
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let logits = self.gpt.logits(x)?; // (B, T, V)
        cross_entropy(&logits.flatten(0, 1)?, &y.flatten(0, 1)?) // ()
    }

    /// The mean loss of some batches, the same at each look.
    fn evaluate(&self, options: &Options, val: &Corpus) -> Result<f64> {
        self.store.set_training(false);
        let losses = no_grad(|| {
            let batch =
                |i| val.batch(options.batch, options.model.context, Key { seed: 0, draw: i });
            (0..options.eval_batches)
                .map(|i| batch(i).and_then(|(x, y)| self.loss(&x, &y)))
                .collect::<Result<Vec<_>>>()
        });
        self.store.set_training(true);
        let losses = losses?;
        Tensor::stack(&losses.iter().collect::<Vec<_>>(), 0)?
            .mean_all()?
            .item::<f32>()
            .map(f64::from)
    }

    fn write(&self, options: &Options, common: &Common, tokenizer: &CharTokenizer) -> Result<()> {
        self.store.set_training(false);
        let prompt: Vec<i32> =
            tokenizer.encode(&options.prompt)?.into_iter().map(|token| token as i32).collect();
        // (1, T)
        let prompt = Tensor::from_vec(prompt.clone(), (1, prompt.len()), self.store.device())?;
        let mut draw = 0;
        let pick = |logits: &Tensor| {
            draw += 1;
            options.sampler.draw(logits, Key { seed: common.seed, draw })
        };
        let tokens = no_grad(|| self.gpt.generate(&prompt, options.sample, pick))?;
        let tokens: Vec<u32> =
            tokens.to_vec::<i32>()?.into_iter().map(|token| token as u32).collect();
        println!("{}", tokenizer.decode(&tokens)?);
        Ok(())
    }
}
