//! Times pretrained models on the CPU: an encoder on batches of tokens, a decoder on prompts and on
//! single tokens. `examples/compare/pretrained.py` does the same with transformers.
//!
//! ```text
//! cargo run --release -p teeny-nn --features pretrained --example time_pretrained -- \
//!     encoder minilm | decoder smollm2.gguf f32 | decoder smollm2.gguf bf16
//! ```
#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::time::Instant;
use teeny_core::{DType, Error, Result, Tensor};
use teeny_nn::device::device;
use teeny_nn::pretrained::{Decoder, Encoder, OpenOptions};
use teeny_nn::transformer::EncoderInputs;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["encoder", path] => encoder(path),
        ["decoder", path, "f32"] => decoder(path, DType::F32),
        ["decoder", path, "bf16"] => decoder(path, DType::BF16),
        _ => Err(Error::value("the arguments are: encoder PATH, or decoder PATH f32 or bf16")),
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

fn decoder(path: &str, dtype: DType) -> Result<()> {
    let options = OpenOptions::new().with_dtype(dtype);
    let decoder = Decoder::open_with(path, &options, &device("cpu")?)?;
    let generate = |prompt: &[u32], count: usize| {
        let mut config = decoder.generation.clone().with_max_new_tokens(count);
        config.eos_tokens.clear();
        let go = |_, _| ControlFlow::Continue(());
        least(4, || decoder.generate(&[prompt.to_vec()], &config, go).map(drop))
    };
    for length in [128, 512] {
        let prompt: Vec<u32> = (0..length).map(|i| 100 + i * 7 % 3000).collect();
        let time = generate(&prompt, 1)?;
        println!("{dtype}, prompt of {length} tokens: {:.1} ms", time * 1e3);
    }
    let prompt: Vec<u32> = (500..505).collect();
    let time = generate(&prompt, 65)? - generate(&prompt, 1)?;
    println!("{dtype}, decoding: {:.1} tokens per second", 64.0 / time);
    Ok(())
}
