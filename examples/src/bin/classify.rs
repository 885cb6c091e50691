//! Classes of the lines of a file, or scores of pairs of texts, by a pretrained model.
#![forbid(unsafe_code)]

use examples::pretrained::{Model, WITHOUT, dtype, lines, quant_type, rate};
use examples::{Common, Program, opt, println};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use teeny_core::{DType, Error, Result};
use teeny_text::EncodeInput;

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Classifies lines of text by a pretrained model. A line with a tab is a pair of texts.",
    options: &[
        opt("FILE", "the lines [standard input]", |o, v| v.path(&mut o.file)),
        opt("model PATH", "a folder of Hugging Face, or ORG/NAME of a downloaded model",
            |o, v| v.path(&mut o.model.path)),
        opt("dtype NAME", "of the weights: f32, bf16 or f16 [f32]",
            |o, v| v.with(&mut o.model.dtype, dtype)),
        opt("quantize TYPE", "quantise the weights: q8_0, q6_k, q5_k, q4_k, q5_0, q4_0, ..",
            |o, v| v.with(&mut o.model.quantize, quant_type)),
    ],
    without: WITHOUT,
};

struct Options {
    file: Option<PathBuf>,
    model: Model,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { file: None, model: Model::default() }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let encoder = options.model.encoder(common)?;
    let texts = lines(options.file.as_deref())?;
    let input = |line: &'_ String| match line.split_once('\t') {
        Some((text, pair)) => (text.to_string(), Some(pair.to_string())),
        None => (line.clone(), None),
    };
    let pairs: Vec<(String, Option<String>)> = texts.iter().map(input).collect();
    let inputs: Vec<EncodeInput<'_>> =
        pairs.iter().map(|(text, pair)| EncodeInput { text, pair: pair.as_deref() }).collect();
    let start = Instant::now();
    let logits = encoder.classify_texts(&inputs)?; // (N, L)
    let head =
        encoder.head.as_ref().ok_or_else(|| Error::internal("a classifier without a head"))?;
    let probabilities = head.probabilities(&logits)?.cast(DType::F32)?.to_vec::<f32>()?;
    let time = start.elapsed();
    for (line, row) in texts.iter().zip(probabilities.chunks(head.labels.len().max(1))) {
        let named = head.labels.iter().zip(row);
        if row.len() == 1 || head.multi_label {
            let all: Vec<String> = named.map(|(label, p)| format!("{label} {p:.3}")).collect();
            println!("{}  {line}", all.join(", "));
        } else if let Some((label, p)) = named.max_by(|a, b| a.1.total_cmp(b.1)) {
            println!("{label} {p:.3}  {line}");
        }
    }
    println!("{} texts, {:.1} per second", texts.len(), rate(texts.len(), time));
    Ok(())
}
