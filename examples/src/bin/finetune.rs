//! Fine-tunes a pretrained decoder on texts, prompts with completions, or conversations: an adapter
//! beside it (LoRA), or all of its parameters. Fine-tunes an encoder on classes or pairs of texts.
#![forbid(unsafe_code)]

use examples::options::{about, any, at_least_one, one_of, positive};
use examples::pretrained::{Model, dtype, parameter_count, quant_type};
use examples::tuning::{
    Classes, Division, Learner, NextTokens, Pairs, Parts, Tuning, bytes, cpu_of,
};
use examples::{Common, Program, Run, opt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use teeny_core::{Error, ErrorKind, Result};
use teeny_models::lora::{Lora, LoraOptions, Modules};
use teeny_models::{Decoder, LabeledTexts, TextPairs, TextSamples};
use teeny_nn::data::{DataLoader, Dataset};
use teeny_nn::optim::{AdamW, Optimizer, clip_grad_norm};
use teeny_nn::train::RunOptions;
use teeny_nn::{Param, Schedule, Store};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Fine-tunes a pretrained model on texts, prompts with completions, or conversations.",
    options: &[
        opt("model PATH",
            "a folder of Hugging Face, a GGUF file, or ORG/NAME of a downloaded\nmodel",
            |o, v| v.path(&mut o.model.path)),
        about("data FILE",
            "lines of JSON with \"text\", \"prompt\" and \"completion\", or \"messages\", in a
.jsonl file; any other file is one text. For classes \"text\" and \"label\", for pairs
\"anchor\" and \"positive\", as .jsonl, .csv or .tsv"),
        opt("task NAME",
            "text: next tokens, of a decoder; of an encoder, with all its parameters: classes of
texts, or pairs of texts that belong together [text]",
            |o, v| v.with(&mut o.task, |name| one_of(name, &TASKS))),
        opt("output PATH", "folder of the result [adapter, or model for all parameters]",
            |o, v| v.path(&mut o.output)),
        opt("adapter PATH", "begin with this adapter, of peft or finetune, instead of a new one",
            |o, v| v.path(&mut o.adapter)),
        opt("lora N", "rank of the adapters [8]", |o, v| v.with(&mut o.rank, at_least_one)),
        opt("alpha X", "their factor times the rank [twice the rank]",
            |o, v| v.with(&mut o.alpha, positive)),
        opt("targets NAMES",
            "layers with an adapter, comma-separated endings of names, or
all-linear [all-linear]",
            |o, v| v.text(&mut o.targets)),
        opt("dropout P", "probability of dropping inputs of adapters [0]",
            |o, v| v.with(&mut o.dropout, any::<f64>)),
        opt("full", "train all parameters, without adapters", |o, v| v.flag(&mut o.full)),
        opt("epochs X", "passes over the texts [3]", |o, v| v.with(&mut o.epochs, positive)),
        opt("batch N", "texts per update [4]", |o, v| v.with(&mut o.batch, at_least_one)),
        opt("length N", "tokens of a text at most [512, or the model's context]",
            |o, v| v.with(&mut o.length, at_least_one)),
        opt("lr X",
            "highest learning rate; it warms up and falls to a tenth [2e-4, or 2e-5
for all parameters]",
            |o, v| v.with(&mut o.lr, positive)),
        opt("held-out X", "share of the texts that are not trained on, but measured [0.05]",
            |o, v| v.with(&mut o.held_out, any::<f64>)),
        opt("report N", "updates between reports [those of an epoch]",
            |o, v| v.with(&mut o.report, at_least_one)),
        opt("prompt TEXT", "a prompt whose answer is printed at each report",
            |o, v| v.text(&mut o.prompt)),
        opt("memory SIZE", "memory at most, such as 4GB; the step is divided to fit",
            |o, v| v.with(&mut o.memory, bytes)),
        opt("dtype NAME", "of the model's weights: f32, bf16 or f16 [f32]",
            |o, v| v.with(&mut o.model.dtype, dtype)),
        opt("quantize TYPE", "quantise the model's weights: q8_0, q6_k, q5_k, q4_k, q5_0, q4_0, ..",
            |o, v| v.with(&mut o.model.quantize, quant_type)),
    ],
    without: &["load", "save", "lazy", "captured", "graph"],
};

const TASKS: [(&str, Task); 3] =
    [("text", Task::Text), ("classes", Task::Classes), ("pairs", Task::Pairs)];

#[derive(Clone, Copy, PartialEq)]
enum Task {
    Text,
    Classes,
    Pairs,
}

struct Options {
    model: Model,
    task: Task,
    output: Option<PathBuf>,
    adapter: Option<PathBuf>,
    rank: usize,
    alpha: Option<f64>,
    targets: Option<String>,
    dropout: f64,
    full: bool,
    epochs: f64,
    batch: usize,
    length: Option<usize>,
    lr: Option<f64>,
    held_out: f64,
    report: Option<usize>,
    prompt: Option<String>,
    memory: Option<usize>,
}

fn main() -> ExitCode {
    let options = Options {
        model: Model::default(),
        task: Task::Text,
        output: None,
        adapter: None,
        rank: 8,
        alpha: None,
        targets: None,
        dropout: 0.0,
        full: false,
        epochs: 3.0,
        batch: 4,
        length: None,
        lr: None,
        held_out: 0.05,
        report: None,
        prompt: None,
        memory: None,
    };
    PROGRAM.main(options, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let data = common
        .data
        .as_deref()
        .ok_or_else(|| Error::value("no data").help("--data FILE is a .jsonl file, see --help"))?;
    let result = match options.task {
        Task::Text => tune_decoder(options, common, data),
        _ => tune_encoder(options, common, data),
    };
    result.map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => error.help(
            "use more --memory, shorter texts (--length), a smaller rank (--lora) or a quantised \
             model (--quantize)",
        ),
        _ => error,
    })
}

/// Sets the limit of `--memory`.
fn limit_memory(options: &Options, store: &Store) -> Result<()> {
    if let Some(memory) = options.memory {
        let cpu = cpu_of(store.device()).ok_or_else(|| {
            Error::unsupported("--memory limits the CPU engine alone").help("--device cpu")
        })?;
        cpu.set_memory_limit(Some(memory));
    }
    Ok(())
}

fn tune_decoder(options: &Options, common: &Common, data: &Path) -> Result<()> {
    let decoder = options.model.decoder(common)?;
    limit_memory(options, &decoder.store)?;
    let length = options.length.unwrap_or(decoder.model.config().context.min(512));
    let (samples, report) = TextSamples::open(data, &decoder, length)?;
    let share = options.share(samples.samples().len());
    let (train, held) = samples.split(share, common.seed)?;
    common.print(format_args!("data    {report}; {} held out", held.samples().len()));
    let lora = options.adapter_of(&decoder)?;
    let summary = match &lora {
        Some(lora) => lora.summary(),
        None => format!("all {} parameters are trained", parameter_count(&decoder.store)),
    };
    common.print(format_args!("model   {summary}"));
    let output = options.output(if lora.is_some() { "adapter" } else { "model" });
    let params = lora.as_ref().map_or_else(|| decoder.store.trainable(), Lora::trainable);
    let job = Job {
        options,
        common,
        base: &decoder.store,
        trained: lora.as_ref().map_or(&decoder.store, Lora::store),
        save: &|| match &lora {
            Some(lora) => lora.save(&output),
            None => decoder.save(&output),
        },
        output: &output,
    };
    let lengths = |samples: &TextSamples| -> Vec<usize> {
        samples.samples().iter().map(|sample| sample.tokens.len()).collect()
    };
    let data = [(&train, lengths(&train)), (&held, lengths(&held))];
    job.train(NextTokens { decoder: &decoder, chat: report.conversations > 0 }, params, &data)?;
    if lora.is_some() {
        let model = options.model.path.as_deref().unwrap_or(Path::new(""));
        let (model, adapter) = (model.display(), output.display());
        common.print(format_args!("        chat --model {model} --adapter {adapter}"));
    }
    Ok(())
}

fn tune_encoder(options: &Options, common: &Common, data: &Path) -> Result<()> {
    if options.adapter.is_some() || options.model.quantize.is_some() {
        return Err(Error::unsupported("encoders are trained with all parameters, as floats")
            .help("leave out --adapter and --quantize; programs can use teeny_models::lora"));
    }
    let labels = match options.task {
        Task::Classes => Some(LabeledTexts::labels(data)?),
        _ => None,
    };
    let encoder = options.model.encoder_with(common, labels)?;
    limit_memory(options, &encoder.store)?;
    let length = options.length.unwrap_or(encoder.max_length().min(256));
    let output = options.output("model");
    let count = parameter_count(&encoder.store);
    let model = format!("model   all {count} parameters are trained");
    let job = Job {
        options,
        common,
        base: &encoder.store,
        trained: &encoder.store,
        save: &|| encoder.save(&output),
        output: &output,
    };
    let params = encoder.store.trainable();
    if options.task == Task::Classes {
        let (texts, report) = LabeledTexts::open(data, &encoder, length)?;
        let share = options.share(texts.texts().len());
        let (train, held) = texts.split(share, common.seed)?;
        common.print(format_args!("data    {report}; {} held out\n{model}", held.texts().len()));
        let lengths = |texts: &LabeledTexts| -> Vec<usize> {
            texts.texts().iter().map(|text| text.tokens.len()).collect()
        };
        let data = [(&train, lengths(&train)), (&held, lengths(&held))];
        return job.train(Classes(&encoder), params, &data);
    }
    let (pairs, report) = TextPairs::open(data, &encoder, length)?;
    let share = options.share(pairs.pairs().len());
    let (train, held) = pairs.split(share, common.seed)?;
    common.print(format_args!("data    {report}; {} held out\n{model}", held.pairs().len()));
    let lengths = |pairs: &TextPairs| -> Vec<usize> {
        pairs.pairs().iter().map(|pair| pair.anchor.len().max(pair.positive.len())).collect()
    };
    let data = [(&train, lengths(&train)), (&held, lengths(&held))];
    job.train(Pairs(&encoder), params, &data)
}

impl Options {
    fn output(&self, default: &str) -> PathBuf {
        self.output.clone().unwrap_or_else(|| default.into())
    }

    /// The share of `count` texts that is held out.
    fn share(&self, count: usize) -> f64 {
        if count < 2 { 0.0 } else { self.held_out }
    }

    /// A new adapter, or the one in `--adapter`; none with `--full`.
    fn adapter_of(&self, decoder: &Decoder) -> Result<Option<Lora>> {
        if self.full {
            if decoder.store.all().iter().any(|param| param.quantized().is_some()) {
                return Err(Error::value("quantised weights are not trained")
                    .help("train an adapter (without --full), or use weights of floats"));
            }
            return Ok(None);
        }
        if let Some(path) = &self.adapter {
            return Lora::open(decoder, path).map(Some);
        }
        let targets = match self.targets.as_deref().unwrap_or("all-linear") {
            "all-linear" => Modules::AllLinear,
            names => Modules::names(names.split(',').map(str::trim)),
        };
        let lora = LoraOptions::new()
            .with_rank(self.rank)
            .with_alpha(self.alpha.unwrap_or(2.0 * self.rank as f64))
            .with_dropout(self.dropout)
            .with_target_modules(targets);
        Lora::attach(decoder, lora).map(Some)
    }
}

/// A training run, whatever is learned.
struct Job<'a> {
    options: &'a Options,
    common: &'a Common,
    /// The parameters of the model, and those that are trained.
    base: &'a Store,
    trained: &'a Store,
    /// Writes the trained parameters to `output`.
    save: &'a dyn Fn() -> Result<()>,
    output: &'a Path,
}

/// Texts to train on and held-out ones, each with the tokens of each.
type Data<'d, D> = [(&'d D, Vec<usize>); 2];

impl Job<'_> {
    fn train<L: Learner, D: Dataset<Batch = L::Batch>>(
        &self,
        learner: L,
        params: Vec<Param>,
        data: &Data<'_, D>,
    ) -> Result<()> {
        let (options, common, (train, lengths)) = (self.options, self.common, &data[0]);
        let batch = options.batch.min(train.len());
        let division = Division { texts: batch, slice: 1024, checkpoints: false };
        let mut tuning = Tuning { learner, params: params.clone(), division };
        self.base.set_training(true);
        std::fs::create_dir_all(self.output).map_err(|e| {
            Error::io(format!("cannot make the folder {}: {e}", self.output.display()))
                .with_source(e)
        })?;
        let time = tuning.fit(*train, lengths, batch)?;

        let per_epoch = train.len().div_ceil(batch);
        let steps = ((per_epoch as f64 * options.epochs).round() as u64).max(1);
        let whole = std::ptr::eq(self.base, self.trained);
        let lr = options.lr.unwrap_or(if whole { 2e-5 } else { 2e-4 });
        self.print_plan(tuning.division, (steps, batch, lr), time);
        let parts = Parts { data: *train, lengths, texts: tuning.division.texts };
        let loader = DataLoader::new(parts, batch)?.shuffle(common.seed);
        let mut optimizer = AdamW::new(params.clone(), lr).weight_decay(0.0);
        let with = RunOptions::new()
            .schedule(Schedule::warmup_cosine(lr, lr / 10.0, steps / 20, steps))
            .bar("texts")
            .interrupt();
        let mut run = Run::start(common, self.trained, &mut optimizer, steps, with)?;
        let every = options.report.unwrap_or(per_epoch);
        while let Some(batches) = run.next_epoch(&loader) {
            for parts in batches {
                let (loss, mut gradients) = tuning.gradients(&parts?)?; // ()
                clip_grad_norm(&mut gradients, &params, 1.0)?;
                optimizer.set_lr(run.lr());
                optimizer.step(&gradients)?;
                run.push(&loss, batch)?;
                if run.is_interrupted() && !run.step().is_multiple_of(every as u64) {
                    run.report(&optimizer, "stopped")?; // without an evaluation
                } else if run.is_due(every as u64) {
                    self.report(&tuning, &mut run, (&optimizer, every), data)?;
                }
            }
        }
        if run.is_interrupted() && run.step() < steps {
            let how = match &common.resume {
                Some(path) => format!("--resume {} continues", path.display()),
                None => "without --resume FILE it cannot continue".to_string(),
            };
            common.print(how);
            return Ok(());
        }
        run.finish("Fine-tuning", "loss")?;
        common.print(format_args!("saved   {}", self.output.display()));
        Ok(())
    }

    fn print_plan(
        &self,
        Division { texts, slice, checkpoints }: Division,
        (steps, batch, lr): (u64, usize, f64),
        time: Duration,
    ) {
        let blocks = if checkpoints { ", blocks computed again" } else { "" };
        let logits = match self.options.task {
            Task::Text => format!(", logits of {slice} tokens{blocks}"),
            _ => String::new(),
        };
        self.common.print(format_args!(
            "plan    {steps} updates of {batch} texts ({texts} at a time{logits}), \
             learning rate {lr}"
        ));
        let memory = cpu_of(self.base.device())
            .map(|cpu| format!(", {:.2} GB", cpu.pool_stats().peak_live_bytes as f64 / 1e9));
        let all = time.as_secs_f64() * steps as f64 / 60.0;
        self.common.print(format_args!(
            "        {:.2} s for the longest texts{}: {all:.1} minutes at most",
            time.as_secs_f64(),
            memory.unwrap_or_default()
        ));
    }

    /// Measures the held-out loss, keeps the best result, prints a line and the answer to the
    /// prompt.
    fn report<L: Learner, D: Dataset<Batch = L::Batch>>(
        &self,
        tuning: &Tuning<L>,
        run: &mut Run<'_>,
        (optimizer, every): (&AdamW, usize),
        data: &Data<'_, D>,
    ) -> Result<()> {
        let mut line = format!("loss {:.4}", run.losses()?.mean(every));
        let (held, lengths) = &data[1];
        let loss = match held.is_empty() {
            true => None,
            false => Some(run.evaluate(|| self.base.evaluate(|| tuning.evaluate(*held, lengths)))?),
        };
        let is_best = match loss {
            Some(loss) => run.record_validation_loss(loss)?,
            None => true,
        };
        if let Some(loss) = loss {
            line += &format!("  held-out loss {loss:.4}");
        }
        if is_best {
            self.base.evaluate(self.save)?;
            line += "  saved";
        }
        let epoch = run.epoch();
        run.report(optimizer, &format!("epoch {epoch:2}  {line}"))?;
        if let Some(prompt) = &self.options.prompt {
            let answer = || self.base.evaluate(|| tuning.learner.answer(prompt));
            if let Some(answer) = run.evaluate(answer)? {
                self.common.print(format_args!("        {prompt} -> {}", answer.trim()));
            }
        }
        Ok(())
    }
}
