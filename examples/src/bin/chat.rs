//! A conversation with a pretrained chat model, on the terminal.
#![forbid(unsafe_code)]

use examples::options::{any, at_least_one, positive};
use examples::pretrained::{
    Choice, Model, WITHOUT, cache_type, dtype, parameter_count, quant_type, rate, show,
};
use examples::{Common, Program, opt, println};
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::time::Instant;
use teeny_core::{Error, Result};
use teeny_models::Message;

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "A conversation with a pretrained model, by lines; /reset forgets it, /quit ends.",
    options: &[
        opt("model PATH",
            "a folder of Hugging Face, a GGUF file, or ORG/NAME of a downloaded\nmodel",
            |o, v| v.path(&mut o.model.path)),
        opt("adapter PATH", "folder of a LoRA adapter, as `finetune` or peft writes it",
            |o, v| v.path(&mut o.model.adapter)),
        opt("system TEXT", "the instruction before the conversation [that of the model]",
            |o, v| v.text(&mut o.system)),
        opt("tokens N", "new tokens of an answer at most [those of the model, or 256]",
            |o, v| v.with(&mut o.choice.tokens, at_least_one)),
        opt("context N", "tokens of the conversation at most [4096]",
            |o, v| v.with(&mut o.context, at_least_one)),
        opt("temperature X", "temperature of sampling; 0 takes the most likely token",
            |o, v| v.with(&mut o.choice.temperature, any::<f64>)),
        opt("top-p X", "sample from the most likely tokens that together have probability X",
            |o, v| v.with(&mut o.choice.top_p, positive)),
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
    system: Option<String>,
    context: usize,
    choice: Choice,
}

fn main() -> ExitCode {
    let (model, choice) = (Model::default(), Choice::default());
    PROGRAM.main(Options { model, system: None, context: 4096, choice }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let decoder = options.model.decoder(common)?;
    let config = options.choice.of(&decoder, common);
    let system: Vec<Message> = options.system.iter().map(Message::system).collect();
    let mut chat = decoder.chat(options.context, system.clone())?;
    println!(
        "{:.1} million parameters; /reset, /quit",
        parameter_count(&decoder.store) as f64 / 1e6
    );
    let stdin = std::io::stdin();
    let terminal = stdin.is_terminal();
    let mut lines = stdin.lock().lines();
    loop {
        let _ = show("\n> ");
        let line = match lines.next() {
            Some(line) => {
                line.map_err(|e| Error::io(format!("cannot read a message: {e}")).with_source(e))?
            }
            None => break,
        };
        if !terminal {
            println!("{line}");
        }
        match line.trim() {
            "" => continue,
            "/quit" => break,
            "/reset" => {
                chat.messages = system.clone();
                println!("a new conversation");
                continue;
            }
            _ => {}
        }
        let start = Instant::now();
        match chat.send(&line, &config, show) {
            Ok(answer) => println!(
                "\n[{} tokens in all, {} new ones, {:.1} per second]",
                answer.prompt_tokens + answer.new_tokens,
                answer.new_tokens,
                rate(answer.new_tokens, start.elapsed())
            ),
            // the conversation is as before: a shorter message, or a new conversation, may fit
            Err(error) if terminal => println!("\nerror: {error}"),
            Err(error) => return Err(error),
        }
    }
    println!();
    Ok(())
}
