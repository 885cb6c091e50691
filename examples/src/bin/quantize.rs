//! Writes a GGUF file of a model with quantised weights, and prints the error of each.
#![forbid(unsafe_code)]

use examples::options::any;
use examples::pretrained::{WITHOUT, element_type};
use examples::{Common, Program, opt, output, println};
use std::path::PathBuf;
use std::process::ExitCode;
use teeny_core::{Error, Result};
use teeny_formats::gguf::{ElementType, Gguf, WriteOptions, Written, save};
use teeny_models::GgufModel;

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Writes a GGUF file of a model, and prints the bytes and the error of each tensor.",
    options: &[
        opt("MODEL",
            "a folder of Hugging Face, ORG/NAME, or a GGUF file, of a divided model its first part",
            |o, v| v.path(&mut o.model)),
        opt("out FILE", "the file to write", |o, v| v.path(&mut o.out)),
        opt("type TYPE",
            "of matrices: q8_0, q6_k, q5_k, q4_k, q5_0, q4_0, .., bf16, f16 or f32 [q8_0]",
            |o, v| v.with(&mut o.of, element_type)),
        opt("tensor PART=TYPE",
            "of tensors whose names contain PART, such as output=q6_k; the last one counts",
            |o, v| { o.tensors.push(v.get(choice)?); Ok(()) }),
    ],
    without: WITHOUT,
};

struct Options {
    model: Option<PathBuf>,
    out: Option<PathBuf>,
    of: ElementType,
    tensors: Vec<(String, ElementType)>,
}

fn choice(text: &str) -> std::result::Result<(String, ElementType), String> {
    let (part, of) = text.split_once('=').ok_or("it is not PART=TYPE")?;
    Ok((any::<String>(part)?, element_type(of)?))
}

fn main() -> ExitCode {
    let of = ElementType::Quantized(teeny_core::QuantType::Q8_0);
    PROGRAM.main(Options { model: None, out: None, of, tensors: Vec::new() }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let (Some(from), Some(to)) = (&options.model, &options.out) else {
        return Err(Error::value("a model to read and a file to write are needed")
            .help("quantize model.gguf --type q4_k --out smaller.gguf"));
    };
    output::only_prints(false);
    let mut types = WriteOptions::new().with_matrices(options.of);
    types.tensors.clone_from(&options.tensors);
    let (device, mut total) = (common.device()?, [0u64; 2]);
    let file = from.is_file().then(|| Gguf::open(from)).transpose()?;
    let print = |tensor: &Written| {
        let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
        let (name, shape, [was, of]) = (&tensor.name, shape.join(" x "), tensor.types);
        let (mut was, [mut before, after]) = (was.to_string(), tensor.bytes);
        // of a type that is read as floats
        if let Some(entry) = file.as_ref().and_then(|file| file.entries().get(name)) {
            (was, before) = (entry.type_name().to_string(), entry.bytes());
        }
        total = [total[0] + before, total[1] + after];
        let error = tensor.error;
        println!("{name:32} {shape:>14} {was:>5} {before:>11} {of:>5} {after:>11} {error:9.2e}");
    };
    match &file {
        Some(file) => save(to, file.metadata(), file, &types, &device, print)?,
        None => {
            let model = GgufModel::open(from, &device)?;
            save(to, model.metadata(), &model, &types, &device, print)?;
        }
    }
    let [before, after] = total.map(|bytes| bytes as f64 / 1e6);
    println!("{before:.1} MB to {after:.1} MB");
    Ok(())
}
