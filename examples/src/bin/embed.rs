//! Embeddings of the lines of a file, and those that are most similar to a question.
#![forbid(unsafe_code)]

use examples::options::at_least_one;
use examples::pretrained::{Model, WITHOUT, dtype, lines, quant_type, rate};
use examples::{Common, Program, opt, println};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use teeny_core::{Extremum, Result};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Embeds lines of text by a pretrained model, and finds those similar to a text.",
    options: &[
        opt("FILE", "the lines [standard input]", |o, v| v.path(&mut o.file)),
        opt("model PATH", "a folder of Hugging Face, a GGUF file, or ORG/NAME of the local cache",
            |o, v| v.path(&mut o.model.path)),
        opt("query TEXT", "print the lines that are most similar to this text",
            |o, v| v.text(&mut o.query)),
        opt("top N", "how many lines are printed [5]", |o, v| v.with(&mut o.top, at_least_one)),
        opt("out FILE", "write the vectors, a row for each line (.npy)", |o, v| v.path(&mut o.out)),
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
    query: Option<String>,
    top: usize,
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let (file, model) = (None, Model::default());
    PROGRAM.main(Options { file, model, query: None, top: 5, out: None }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let encoder = options.model.encoder(common)?;
    let texts = lines(options.file.as_deref())?;
    // instructions of the model for both sides of a search
    let prefixed = |name: &str, text: &str| format!("{}{text}", encoder.prompt(name).unwrap_or(""));
    let passages: Vec<String> = match options.query {
        Some(_) => texts.iter().map(|text| prefixed("passage", text)).collect(),
        None => texts.clone(),
    };
    let start = Instant::now();
    let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
    let vectors = encoder.embed_texts(&passages)?; // (N, E)
    vectors.sum_all()?.item::<f32>()?; // a GPU has finished
    println!(
        "{} vectors of {} numbers, {:.1} texts per second",
        texts.len(),
        vectors.shape()[1],
        rate(texts.len(), start.elapsed())
    );
    if let Some(path) = &options.out {
        vectors.save_npy(path)?;
    }
    if let Some(query) = options.query.as_ref().filter(|_| !texts.is_empty()) {
        let query = encoder.embed_texts(&[&prefixed("query", query)])?; // (1, E)
        let lengths = vectors.vector_norm(2.0, 1)?.mul(&query.vector_norm(2.0, 1)?)?; // (N)
        let cosines = vectors.matmul(&query.t()?)?.squeeze(1)?.div(&lengths)?; // (N)
        let (best, places) = cosines.topk(options.top.min(texts.len()), 0, Extremum::Largest)?;
        for (score, place) in best.to_vec::<f32>()?.iter().zip(places.to_vec::<i32>()?.iter()) {
            println!("{score:.3}  {}", texts[*place as usize]);
        }
    }
    Ok(())
}
