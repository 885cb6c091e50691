//! Continues a text with a pretrained language model.
#![forbid(unsafe_code)]

use examples::options::{any, at_least_one, positive};
use examples::pretrained::{
    Choice, Model, WITHOUT, cache_type, dtype, parameter_count, quant_type, rate, show,
};
use examples::{Common, Program, opt, print, println};
use std::process::ExitCode;
use std::time::Instant;
use teeny_core::Result;

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Continues a text with a pretrained language model.",
    options: &[
        opt("model PATH",
            "a folder of Hugging Face, a GGUF file, or ORG/NAME of a downloaded\nmodel",
            |o, v| v.path(&mut o.model.path)),
        opt("adapter PATH", "folder of a LoRA adapter, as `finetune` or peft writes it",
            |o, v| v.path(&mut o.model.adapter)),
        opt("prompt TEXT", "text to continue [Once upon a time]", |o, v| v.text(&mut o.prompt)),
        opt("tokens N", "new tokens at most [those of the model, or 256]",
            |o, v| v.with(&mut o.choice.tokens, at_least_one)),
        opt("temperature X", "temperature of sampling; 0 takes the most likely token",
            |o, v| v.with(&mut o.choice.temperature, any::<f64>)),
        opt("top-p X", "sample from the most likely tokens that together have probability X",
            |o, v| v.with(&mut o.choice.top_p, positive)),
        opt("stop TEXT", "end the text before this one; may be given several times",
            |o, v| { o.choice.stops.push(v.get(any)?); Ok(()) }),
        opt("dtype NAME", "of the weights: f32, bf16 or f16 [f32]",
            |o, v| v.with(&mut o.model.dtype, dtype)),
        opt("quantize TYPE", "quantise the weights: q8_0, q6_k, q5_k, q4_k, q5_0, q4_0, ..",
            |o, v| v.with(&mut o.model.quantize, quant_type)),
        opt("cache TYPE", "of the keys and values that are kept: f32, bf16, f16 or q8_0 [f32]",
            |o, v| v.with(&mut o.model.cache, cache_type)),
    ],
    without: WITHOUT,
};

struct Options {
    model: Model,
    prompt: String,
    choice: Choice,
}

fn main() -> ExitCode {
    let (model, prompt) = (Model::default(), "Once upon a time".to_string());
    PROGRAM.main(Options { model, prompt, choice: Choice::default() }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let start = Instant::now();
    let decoder = options.model.decoder(common)?;
    let (count, opened) = (parameter_count(&decoder.store), start.elapsed());
    println!("{:.1} million parameters, opened in {opened:.2?}\n", count as f64 / 1e6);
    print!("{}", options.prompt);
    let (start, mut first) = (Instant::now(), None);
    let config = options.choice.of(&decoder, common);
    let completion = decoder.complete(&options.prompt, &config, |piece| {
        first.get_or_insert_with(|| start.elapsed());
        show(piece)
    })?;
    let (first, total) = (first.unwrap_or_default(), start.elapsed());
    println!(
        "\n\n{} tokens of the prompt, the first new text after {first:.2?}; {} new tokens, \
         {:.1} per second",
        completion.prompt_tokens,
        completion.new_tokens,
        rate(completion.new_tokens.saturating_sub(1), total.saturating_sub(first))
    );
    Ok(())
}
