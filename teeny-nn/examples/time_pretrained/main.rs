//! Times pretrained models on the CPU: an encoder on batches of tokens, a decoder on prompts and on
//! single tokens; computes the perplexity of a text. `examples/compare/pretrained.py` does the same
//! with transformers, `examples/compare/gguf.py` with llama.cpp.
//!
//! ```text
//! cargo run --release -p teeny-nn --features pretrained --example time_pretrained -- \
//!     encoder minilm | decoder smollm2.gguf WEIGHTS | perplexity smollm2.gguf WEIGHTS FILE
//! ```
//!
//! `WEIGHTS` are `file` (as the file has them), `f32`, `bf16`, or a type such as `q8_0`, to which
//! the weights of the file are quantised again.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::time::Instant;
use teeny_core::{DType, Error, QuantType, Result, Tensor};
use teeny_nn::device::device;
use teeny_nn::pretrained::{Decoder, Encoder, OpenOptions};
use teeny_nn::text::Tokenizer;
use teeny_nn::transformer::EncoderInputs;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["encoder", path] => encoder(path),
        ["decoder", path, weights] => decoder(path, weights),
        ["perplexity", path, weights, file] => perplexity(path, weights, file),
        _ => Err(Error::value("no such arguments").help(
            "encoder PATH, decoder PATH WEIGHTS, or perplexity PATH WEIGHTS FILE; WEIGHTS are \
             file, f32, bf16 or a type such as q8_0",
        )),
    }
}

/// The least seconds of `n` calls.
fn least(n: usize, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..n {
        let start = Instant::now();
        f()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}

fn encoder(path: &str) -> Result<()> {
    let device = device("cpu")?;
    let encoder = Encoder::open(path, &device)?;
    for (batch, length) in [1, 32].into_iter().flat_map(|b| [8, 32, 128, 256].map(|t| (b, t))) {
        let ids = (0..batch * length).map(|i: usize| 1000 + (i * 7919 % 20_000) as i32);
        let tokens = Tensor::from_vec(ids.collect::<Vec<_>>(), (batch, length), &device)?;
        let inputs = EncoderInputs::new(&tokens);
        let calls = if batch * length < 300 { 50 } else { 8 };
        let time = least(calls, || encoder.embed(&inputs).map(drop))?;
        println!("encoder, {batch} texts of {length} tokens: {:.2} ms", time * 1e3);
    }
    Ok(())
}

/// Opens a decoder with the weights that the third argument names.
fn open(path: &str, weights: &str) -> Result<Decoder> {
    let floats = OpenOptions::new().with_dequantize(true);
    let options = match weights {
        "file" => OpenOptions::new(),
        "f32" => floats,
        "bf16" => floats.with_dtype(DType::BF16),
        name => floats.with_quantize(QuantType::by_name(&name.to_uppercase())?),
    };
    Decoder::open_with(path, &options, &device("cpu")?)
}

/// The tokens of a window, of which the second half is predicted.
const WINDOW: usize = 512;

fn perplexity(path: &str, weights: &str, file: &str) -> Result<()> {
    let decoder = open(path, weights)?;
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(format!("{file}: {e}")))?;
    let tokens: Vec<i32> =
        decoder.tokenizer()?.encode(&text)?.into_iter().map(|t| t as i32).collect();
    let (mut sum, mut count) = (0.0, 0);
    for window in tokens.chunks_exact(WINDOW) {
        let tokens = Tensor::from_vec(window.to_vec(), (1, WINDOW), decoder.store.device())?;
        let logits = decoder.model.logits(&tokens)?; // (1, WINDOW, vocabulary)
        let half = WINDOW / 2;
        let predicted = logits.slice(1, half - 1..WINDOW - 1)?.squeeze(0)?.cast(DType::F32)?;
        let targets = tokens.slice(1, half..)?.squeeze(0)?;
        sum += f64::from(predicted.cross_entropy(&targets, None)?.sum_all()?.item::<f32>()?);
        count += half;
    }
    println!("{weights}, perplexity of {count} tokens: {:.4}", (sum / count as f64).exp());
    Ok(())
}

fn decoder(path: &str, weights: &str) -> Result<()> {
    let decoder = open(path, weights)?;
    let generate = |prompt: &[u32], count: usize| {
        let mut config = decoder.generation.clone().with_max_new_tokens(count);
        config.eos_tokens.clear();
        let go = |_, _| ControlFlow::Continue(());
        least(4, || decoder.generate(&[prompt.to_vec()], &config, go).map(drop))
    };
    for length in [128, 512] {
        let prompt: Vec<u32> = (0..length).map(|i| 100 + i * 7 % 3000).collect();
        let time = generate(&prompt, 1)?;
        println!("{weights}, prompt of {length} tokens: {:.1} ms", time * 1e3);
    }
    let prompt: Vec<u32> = (500..505).collect();
    let time = generate(&prompt, 65)? - generate(&prompt, 1)?;
    println!("{weights}, decoding: {:.1} tokens per second", 64.0 / time);
    Ok(())
}
