//! Times pretrained models on the CPU: an encoder on batches of tokens, a decoder on prompts and on
//! single tokens; computes the perplexity of a text. `examples/compare/pretrained.py` does the same
//! with transformers, `examples/compare/gguf.py` with llama.cpp.
//!
//! ```text
//! cargo run --release -p teeny-models --example time_pretrained -- \
//!     encoder minilm | decoder smollm2.gguf WEIGHTS [CACHE]
//!     | perplexity smollm2.gguf WEIGHTS FILE [CACHE] | greedy smollm2.gguf WEIGHTS FILE
//!     | made-up 135m|1b|3b TYPE OUT.gguf [VOCABULARY.gguf]
//! ```
//!
//! `WEIGHTS` are `file` (as the file has them), `f32`, `bf16`, or a type such as `q8_0`, to which
//! the weights of the file are quantised again. `CACHE` is the type of keys and values that are
//! kept, `f32` if absent; with one, the second half of each window is read token by token.
//! `TEENY_DEVICE` selects the device, the CPU if absent.
#![forbid(unsafe_code)]

mod made_up;

use std::ops::ControlFlow;
use std::time::Instant;
use teeny_core::{DType, DeviceRef, Error, QuantType, Result, Tensor};
use teeny_models::{Decoder, Encoder, OpenOptions};
use teeny_nn::transformer::EncoderInputs;
use teeny_text::Tokenizer;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["encoder", path] => encoder(path),
        ["decoder", path, weights] => decoder(path, weights, None),
        ["decoder", path, weights, cache] => decoder(path, weights, Some(cache)),
        ["perplexity", path, weights, file] => perplexity(path, weights, file, None),
        ["perplexity", path, weights, file, cache] => perplexity(path, weights, file, Some(cache)),
        ["greedy", path, weights, file] => greedy(path, weights, file),
        ["made-up", size, kind, out] => made_up::write(size, kind, out, None),
        ["made-up", size, kind, out, of] => made_up::write(size, kind, out, Some(of)),
        _ => Err(Error::value("no such arguments").help(
            "encoder PATH, decoder PATH WEIGHTS [CACHE], perplexity PATH WEIGHTS FILE [CACHE], \
             greedy PATH WEIGHTS FILE, or made-up 135m|1b|3b TYPE OUT [VOCABULARY]; WEIGHTS are \
             file, f32, bf16 or a type such as q8_0",
        )),
    }
}

/// The device that `TEENY_DEVICE` names, or the CPU.
fn device() -> Result<DeviceRef> {
    let name = std::env::var("TEENY_DEVICE").unwrap_or_default();
    teeny_nn::device::device(if name.is_empty() { "cpu" } else { &name })
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
    let device = device()?;
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

/// Opens a decoder with the weights and the cache that arguments name.
fn open(path: &str, weights: &str, cache: Option<&str>) -> Result<Decoder> {
    let floats = OpenOptions::new().with_dequantize(true);
    let mut options = match weights {
        "file" => OpenOptions::new(),
        "f32" => floats,
        "bf16" => floats.with_dtype(DType::BF16),
        name => floats.with_quantize(QuantType::by_name(&name.to_uppercase())?),
    };
    options.cache = match cache {
        None | Some("f32") => None,
        Some("bf16") => Some(DType::BF16.into()),
        Some(name) => Some(QuantType::by_name(&name.to_uppercase())?.into()),
    };
    let (start, device) = (Instant::now(), device()?);
    let decoder = Decoder::open_with(path, &options, &device)?;
    device.synchronize()?;
    println!("{weights}, opened in {:.2} s", start.elapsed().as_secs_f64());
    Ok(decoder)
}

/// The tokens of the text in `file`.
fn encoded(decoder: &Decoder, file: &str) -> Result<Vec<u32>> {
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(format!("{file}: {e}")))?;
    decoder.tokenizer()?.encode(&text)
}

/// The tokens of a window, of which the second half is predicted.
const WINDOW: usize = 512;

fn perplexity(path: &str, weights: &str, file: &str, cache: Option<&str>) -> Result<()> {
    let decoder = open(path, weights, cache)?;
    let tokens: Vec<i32> = encoded(&decoder, file)?.into_iter().map(|t| t as i32).collect();
    let (mut sum, mut count) = (0.0, 0);
    for window in tokens.chunks_exact(WINDOW) {
        let tokens = Tensor::from_vec(window.to_vec(), (1, WINDOW), decoder.store.device())?;
        let half = WINDOW / 2;
        let predicted = match cache {
            None => {
                let logits = decoder.model.logits(&tokens)?; // (1, WINDOW, vocabulary)
                logits.slice(1, half as isize - 1..WINDOW as isize - 1)?.squeeze(0)?
            }
            Some(_) => cached(&decoder, &tokens)?,
        };
        let targets = tokens.slice(1, half as isize..)?.squeeze(0)?;
        let loss = predicted.cast(DType::F32)?.cross_entropy(&targets, None)?;
        sum += f64::from(loss.sum_all()?.item::<f32>()?);
        count += half;
    }
    let cache = cache.map(|cache| format!(", cache {cache}")).unwrap_or_default();
    println!("{weights}{cache}, perplexity of {count} tokens: {:.4}", (sum / count as f64).exp());
    Ok(())
}

/// The logits of the second half of `tokens` (1, WINDOW), each token with the keys and values that
/// are kept of those before: (WINDOW / 2, vocabulary).
fn cached(decoder: &Decoder, tokens: &Tensor) -> Result<Tensor> {
    let (mut caches, half) = (decoder.model.caches_of(WINDOW), WINDOW as isize / 2);
    let mut logits = vec![decoder.model.next(&tokens.slice(1, 0..half)?, &mut caches)?];
    for i in half..WINDOW as isize - 1 {
        logits.push(decoder.model.next(&tokens.slice(1, i..i + 1)?, &mut caches)?);
    }
    Tensor::cat(&logits, 0)
}

/// Prints the 64 most likely tokens after each of 16 pieces of 32 tokens of a text.
fn greedy(path: &str, weights: &str, file: &str) -> Result<()> {
    let decoder = open(path, weights, None)?;
    let tokens = encoded(&decoder, file)?;
    let mut config = decoder.generation.clone().with_max_new_tokens(64);
    (config.do_sample, config.repetition_penalty) = (false, 1.0);
    config.eos_tokens.clear();
    for piece in tokens.chunks(1000).filter(|piece| piece.len() >= 32).take(16) {
        let go = |_, _| ControlFlow::Continue(());
        println!("{:?}", decoder.generate(&[piece[..32].to_vec()], &config, go)?[0].tokens);
    }
    Ok(())
}

fn decoder(path: &str, weights: &str, cache: Option<&str>) -> Result<()> {
    let decoder = open(path, weights, cache)?;
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
    // after 5 tokens, and after 1024
    for length in [5, 1024] {
        let prompt: Vec<u32> = (500..500 + length).collect();
        let time = generate(&prompt, 65)? - generate(&prompt, 1)?;
        println!("{weights}, decoding after {length} tokens: {:.1} tokens per second", 64.0 / time);
    }
    Ok(())
}
