//! Trains a small GPT on the characters of a text and generates more text: nanoGPT's configuration
//! for a CPU, 0.8 million parameters, with twice its learning rate, which lowers the validation
//! loss by 0.07.
#![forbid(unsafe_code)]

use examples::options::{about, any, at_least_one, positive, training_dtype};
use examples::ranks::Distributed;
use examples::{Common, Program, Ranks, Run, Update, locate, opt};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use teeny_autograd::no_grad;
use teeny_core::random::Key;
use teeny_core::{DType, Result, Tensor};
use teeny_nn::data::Corpus;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, ParamGroup};
use teeny_nn::train::RunOptions;
use teeny_nn::{Gpt, GptConfig, Schedule, Store};
use teeny_text::{CharTokenizer, Sampler, Tokenizer};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Trains a GPT on the characters of a text, then generates text.",
    options: &[
        opt("steps N", "updates [2000]", |o, v| v.with(&mut o.steps, any::<u64>)),
        opt("batch N", "sequences per update [12]", |o, v| v.with(&mut o.batch, at_least_one)),
        opt("context N", "characters per sequence [64]",
            |o, v| v.with(&mut o.model.context, at_least_one)),
        opt("layers N", "blocks [4]", |o, v| v.with(&mut o.model.n_layer, at_least_one)),
        opt("heads N", "heads per block [4]", |o, v| v.with(&mut o.model.n_head, at_least_one)),
        opt("width N", "size of the embeddings [128]",
            |o, v| v.with(&mut o.model.n_embd, at_least_one)),
        opt("dropout P", "probability of dropping [0]",
            |o, v| v.with(&mut o.model.dropout, any::<f64>)),
        opt("lr X", "highest learning rate; it warms up in 100 steps and falls to a tenth [0.002]",
            |o, v| v.with(&mut o.lr, positive)),
        opt("dtype NAME",
            "of weights and activations: f32, or bf16 with f32 copies of weights [f32]",
            |o, v| v.with(&mut o.dtype, training_dtype)),
        opt("decay-steps N", "step at which the learning rate is lowest [--steps]",
            |o, v| v.with(&mut o.decay_steps, any::<u64>)),
        opt("eval-every N", "updates between evaluations of the validation loss [500]",
            |o, v| v.with(&mut o.eval_every, at_least_one)),
        opt("eval-batches N", "batches per evaluation [20]",
            |o, v| v.with(&mut o.eval_batches, at_least_one)),
        opt("sample N", "characters to generate at the end [500]",
            |o, v| v.with(&mut o.sample, any::<usize>)),
        opt("temperature X", "temperature of sampling; 0 takes the most likely character [0.8]",
            |o, v| { o.sampler = o.sampler.temperature(v.get(any)?); Ok(()) }),
        opt("top-k N", "sample from the N most likely characters only",
            |o, v| { o.sampler = o.sampler.top_k(v.get(at_least_one)?); Ok(()) }),
        opt("prompt TEXT", "text to continue [a line feed]", |o, v| v.text(&mut o.prompt)),
        about("data PATH",
            "text file, or folder with tinyshakespeare.txt; `builtin` for a few scenes
[TEENY_DATA, else ../shared/datasets, else a download, else builtin]"),
        opt("distributed", "train on the ranks that mpirun starts, each on a part of every batch",
            |o, _| o.ranks.enable()),
        opt("zero", "each rank keeps a part of the optimizer's state", |o, v| v.flag(&mut o.zero)),
        opt("tensor-parallel N",
            "N ranks share a model: each has a part of the heads and of the perceptrons",
            |o, v| v.with(&mut o.ranks.tensor_parallel, at_least_one)),
        opt("rank-timeout X", "seconds after which a rank without a sign of life has failed [60]",
            |o, v| v.with(&mut o.ranks.timeout, positive)),
    ],
    without: &[],
};

struct Options {
    steps: u64,
    batch: usize,
    model: GptConfig,
    lr: f64,
    dtype: DType,
    decay_steps: Option<u64>,
    eval_every: usize,
    eval_batches: usize,
    sample: usize,
    sampler: Sampler,
    prompt: String,
    ranks: Distributed,
    zero: bool,
}

fn main() -> ExitCode {
    let model = GptConfig::new(0, 64, 4, 4, 128).with_bias(false);
    let options = Options {
        steps: 2000,
        batch: 12,
        model,
        lr: 2e-3,
        dtype: DType::F32,
        decay_steps: None,
        eval_every: 500,
        eval_batches: 20,
        sample: 500,
        sampler: Sampler::new().temperature(0.8),
        prompt: "\n".into(),
        ranks: Distributed::default(),
        zero: false,
    };
    PROGRAM.main(options, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let ranks = common.join(&options.ranks)?;
    let device = common.device()?;
    let (text, note) = locate::text(common.data.as_deref(), "tinyshakespeare.txt")?;
    common.print(format_args!("data    {note}"));
    let tokenizer = CharTokenizer::of(&text)?;
    let (training, validation) = Corpus::new(&tokenizer.encode(&text)?, &device)?.split(0.9)?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    ranks.require_same("the hash of the text", &format_args!("{:x}", hasher.finish()))?;

    let store = Store::with_dtype(&device, options.dtype);
    let config = options.model.with_vocab(tokenizer.vocab_size());
    let gpt = build(&store, config, ranks)?;
    common.load(&store)?;
    let positions = options.model.context * options.model.n_embd;
    common.print(format_args!(
        "model   {} parameters and {positions} for positions, {} characters, batches of {}",
        store.count() - positions,
        tokenizer.vocab_size(),
        options.batch
    ));

    let model = Model { store, gpt };
    train(&model, options, common, &training, &validation)?;
    model.generate(options, common, &tokenizer)
}

/// The network, or this rank's part of it.
fn build(store: &Store, config: GptConfig, ranks: &Ranks) -> Result<Gpt> {
    #[cfg(feature = "mpi")]
    if let Some(parallel) = ranks.model() {
        return parallel.gpt(&store.root(), config);
    }
    let _ = ranks;
    Gpt::new(&store.root(), config)
}

/// Trains `model` on `training` and reports the loss on `validation`.
fn train(
    model: &Model,
    options: &Options,
    common: &Common,
    training: &Corpus,
    validation: &Corpus,
) -> Result<()> {
    let (lr, end) = (options.lr, options.decay_steps.unwrap_or(options.steps));
    let adam = |params| {
        // weight decay for matrices, none for the vectors of the norms
        let is_vector = |p: &teeny_nn::Param| p.value().ndim() < 2;
        AdamW::new(params, lr)
            .betas(0.9, 0.99)
            .weight_decay(0.1)
            .master_weights(true)
            .group(is_vector, ParamGroup::new().weight_decay(0.0))
    };
    let loss = |x: &[Tensor]| model.loss(&x[0], &x[1]);
    let mut update = Update::new(common, options.zero, &model.store, adam, loss)?;
    let with =
        RunOptions::new().schedule(Schedule::warmup_cosine(lr, lr / 10.0, 100, end)).bar("tokens");
    let mut run = Run::start(common, &model.store, &mut update, options.steps, with)?;
    let (batch, context) = (options.batch, options.model.context);
    let ranks = common.ranks();
    let (part, parts) = ranks.part();
    let training = training.shard(part, parts)?;
    let mut last = None;
    while let Some(step) = run.next_step() {
        // (B, T) both
        let (x, y) = training.batch(batch, context, Key { seed: common.seed, draw: step })?;
        let loss = update.step(vec![x, y], run.lr())?; // ()
        run.push(&loss, batch * context)?;
        if run.is_due(options.eval_every as u64) {
            let val = *last.insert(run.evaluate(|| model.evaluate(options, ranks, validation))?);
            run.record_validation_loss(val)?;
            let loss = run.losses()?.mean(options.eval_every);
            let line = format!("step {:5}  loss {loss:.4}  val loss {val:.4}", step + 1);
            run.report(&update, &line)?;
        }
    }
    let seconds = run.seconds();
    if let ([(0, first), ..], Some(val)) = (run.losses()?.values(), last) {
        let tokens = (options.steps as usize * batch * context) as f64;
        common.print(format_args!(
            "first loss {first:.4}, val loss {val:.4} after {seconds:.1} s of training, \
             {:.0} tokens/s",
            tokens / seconds
        ));
    }
    run.finish("A GPT on characters", "training loss")
}

/// The parameters and the network that they belong to.
struct Model {
    store: Store,
    gpt: Gpt,
}

impl Model {
    fn loss(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let logits = self.gpt.logits(x)?; // (B, T, V)
        cross_entropy(&logits.flatten(0, 1)?, &y.flatten(0, 1)?) // ()
    }

    /// The mean loss of some batches of `validation`, the same batches in each evaluation, each of
    /// them on one rank.
    fn evaluate(&self, options: &Options, ranks: &Ranks, validation: &Corpus) -> Result<f64> {
        let (batch, context) = (options.batch, options.model.context);
        let (part, parts) = ranks.part();
        let losses = no_grad(|| {
            (part..options.eval_batches)
                .step_by(parts)
                .map(|i| {
                    let (x, y) =
                        validation.batch(batch, context, Key { seed: 0, draw: i as u64 })?;
                    self.loss(&x, &y)
                })
                .collect::<Result<Vec<_>>>()
        })?;
        let mut sum = 0.0;
        if !losses.is_empty() {
            let losses = Tensor::stack(&losses, 0)?; // (eval_batches)
            sum = f64::from(losses.cast(DType::F32)?.sum_all()?.item::<f32>()?);
        }
        Ok(ranks.sum(&[sum])?[0] / options.eval_batches as f64)
    }

    /// Generates text after the prompt and prints both.
    fn generate(
        &self,
        options: &Options,
        common: &Common,
        tokenizer: &CharTokenizer,
    ) -> Result<()> {
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
        let tokens = self.gpt.generate(&prompt, options.sample, pick)?;
        let tokens: Vec<u32> =
            tokens.to_vec::<i32>()?.into_iter().map(|token| token as u32).collect();
        common.print(tokenizer.decode(&tokens)?);
        Ok(())
    }
}
