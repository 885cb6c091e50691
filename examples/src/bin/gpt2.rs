//! Continues a text with GPT-2 of 124 million parameters: one pass over the prompt, then token by
//! token with a cache of keys and values.
#![forbid(unsafe_code)]

use examples::options::{about, any, at_least_one, one_of, positive};
use examples::{Common, Program, opt, print, println};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use teeny_autograd::no_grad;
use teeny_core::random::Key;
use teeny_core::{DType, Error, Result, Tensor};
use teeny_formats::{Mapping, SafeTensors};
use teeny_nn::transformer::CausalLm;
use teeny_nn::{CachedLm, Gpt, GptConfig, Path, Store};
use teeny_text::{Bpe, ByteTokenizer, DecodeStream, Sampler, Tokenizer};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Continues a text with GPT-2.",
    options: &[
        about("load FILE", "weights: Hugging Face's model.safetensors [random]"),
        opt("tokenizer FILE", "the tokenizer.json of the weights [bytes]",
            |o, v| v.path(&mut o.tokenizer)),
        opt("prompt TEXT", "text to continue [Once upon a time]", |o, v| v.text(&mut o.prompt)),
        opt("tokens N", "tokens to generate [32]", |o, v| v.with(&mut o.tokens, at_least_one)),
        opt("temperature X", "temperature of sampling; 0 takes the most likely token [0]",
            |o, v| { o.sampler = o.sampler.temperature(v.get(any)?); Ok(()) }),
        opt("top-k N", "sample from the N most likely tokens only",
            |o, v| { o.sampler = o.sampler.top_k(v.get(at_least_one)?); Ok(()) }),
        opt("top-p X", "sample from the most likely tokens that together have probability X",
            |o, v| { o.sampler = o.sampler.top_p(v.get(positive)?); Ok(()) }),
        opt("half", "weights in bf16", |o, v| v.flag(&mut o.half)),
        opt("size SIZE", "124m, or tiny, which has no published weights [124m]",
            |o, v| v.with(&mut o.config, size)),
        opt("verify", "generate again without the cache, and compare",
            |o, v| v.flag(&mut o.verify)),
    ],
    without: &["data", "resume", "plot", "log", "save", "graph"],
};

struct Options {
    tokenizer: Option<PathBuf>,
    prompt: String,
    tokens: usize,
    sampler: Sampler,
    half: bool,
    config: GptConfig,
    verify: bool,
}

fn main() -> ExitCode {
    let options = Options {
        tokenizer: None,
        prompt: "Once upon a time".into(),
        tokens: 32,
        sampler: Sampler::greedy(),
        half: false,
        config: GptConfig::gpt2(),
        verify: false,
    };
    PROGRAM.main(options, run)
}

/// The model of this size.
fn size(name: &str) -> std::result::Result<GptConfig, String> {
    one_of(name, &[("124m", GptConfig::gpt2()), ("tiny", GptConfig::new(256, 256, 2, 4, 32))])
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let store = Store::with_dtype(&device, if options.half { DType::BF16 } else { DType::F32 });
    let make = |root: &Path| Gpt::new(root, options.config);
    let gpt = match &common.load {
        Some(path) => {
            let file = Arc::new(SafeTensors::open(path)?);
            let (gpt, report) = store.build_from(file, &Mapping::gpt2(), make)?;
            println!("loaded  {} tensors from {}", report.loaded.len(), path.display());
            gpt
        }
        None => {
            println!(
                "weights random, so the text is meaningless; --load model.safetensors loads GPT-2's"
            );
            make(&store.root())?
        }
    };
    store.set_training(false);
    let tokenizer: Box<dyn Tokenizer> = match &options.tokenizer {
        Some(path) => Box::new(Bpe::load(path)?),
        None => Box::new(ByteTokenizer),
    };
    let prompt = tokenizer.encode(&options.prompt)?;
    let config = options.config;
    if prompt.is_empty() || prompt.len() + options.tokens > config.context {
        let text = format!(
            "{} tokens of prompt and {} to generate do not fit the context of {}",
            prompt.len(),
            options.tokens,
            config.context
        );
        return Err(
            Error::value(text).help("give a --prompt of at least one token, or fewer --tokens")
        );
    }
    println!("model   {} parameters, {} tokens of prompt", store.count(), prompt.len());
    println!(
        "        one training sequence of {} tokens would take {:.1} GFLOP",
        config.context,
        config.flops(config.context) / 1e9
    );
    let choose = |logits: &Tensor, i: usize| {
        Ok(options.sampler.tokens(logits, Key { seed: common.seed, draw: i as u64 })?[0])
    };
    no_grad(|| {
        let text = CachedLm::new(&gpt);
        generate(options, text, &store, tokenizer.as_ref(), &prompt, &choose)
    })
}

/// Samples token number `i` of the continuation from the logits (1, V).
type Choose<'a> = &'a dyn Fn(&Tensor, usize) -> Result<u32>;

/// Generates the continuation of the prompt and prints each token as soon as it is sampled.
fn generate(
    options: &Options,
    mut text: CachedLm<'_>,
    store: &Store,
    tokenizer: &dyn Tokenizer,
    prompt: &[u32],
    choose: Choose<'_>,
) -> Result<()> {
    // (1, T)
    let row = |tokens: &[u32]| {
        Tensor::from_vec(
            tokens.iter().map(|&t| t as i32).collect::<Vec<_>>(),
            (1, tokens.len()),
            store.device(),
        )
    };
    let start = Instant::now();
    let mut logits = text.next(&row(prompt)?)?; // (1, V)
    let mut generated = Vec::with_capacity(options.tokens);
    let (mut read, mut decoded) = (0.0, 0.0);
    let mut stream = DecodeStream::new(tokenizer);
    print!("{}", options.prompt);
    while generated.len() < options.tokens {
        let token = choose(&logits, generated.len())?;
        if generated.is_empty() {
            read = start.elapsed().as_secs_f64();
        }
        generated.push(token);
        if (token as usize) < tokenizer.vocab_size() {
            print!("{}", stream.push(token)?);
        } else {
            print!("<{token}>");
        }
        let before = Instant::now();
        logits = text.next(&row(&[token])?)?; // (1, V)
        store.device().synchronize()?;
        decoded += before.elapsed().as_secs_f64();
    }
    println!("{}", stream.finish()?);
    if options.verify {
        verify(text.model(), &row, prompt, &generated, choose)?;
    }
    let per_second = options.tokens as f64 / decoded;
    let bytes: usize =
        store.all().iter().map(|p| p.value().numel() * p.value().dtype().size()).sum();
    println!(
        "read {:.0} tokens/s, wrote {per_second:.1} tokens/s: {:.1} GB of weights a second",
        prompt.len() as f64 / read,
        per_second * bytes as f64 / 1e9
    );
    Ok(())
}

/// Generates the tokens again without the cache, and fails if they differ.
fn verify(
    gpt: &CausalLm,
    row: &dyn Fn(&[u32]) -> Result<Tensor>,
    prompt: &[u32],
    generated: &[u32],
    choose: Choose<'_>,
) -> Result<()> {
    let mut all = prompt.to_vec();
    for (i, &token) in generated.iter().enumerate() {
        let again = choose(&gpt.logits(&row(&all)?)?.at(1, -1)?, i)?;
        if again != token {
            return Err(Error::value(format!(
                "token {i} is {token} with the cache and {again} without"
            ))
            .named("verify"));
        }
        all.push(token);
    }
    println!("the same {} tokens without the cache", generated.len());
    Ok(())
}
