//! Quantises the weights of a GGUF file, and says what each loses.
#![forbid(unsafe_code)]

use examples::options::any;
use examples::pretrained::{WITHOUT, element_type, quantized};
use examples::{Common, Program, opt};
use std::path::PathBuf;
use std::process::ExitCode;
use teeny_core::{DType, Error, Result};
use teeny_nn::state::Gguf;
use teeny_nn::state::gguf::{ElementType, Value, Writer};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Quantises the weights of a GGUF file, and prints the bytes and the error of each.",
    options: &[
        opt("FILE", "the GGUF file; of a divided model its first part",
            |o, v| v.path(&mut o.file)),
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
    file: Option<PathBuf>,
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
    PROGRAM.main(Options { file: None, out: None, of, tensors: Vec::new() }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let (Some(from), Some(to)) = (&options.file, &options.out) else {
        return Err(Error::value("a file to read and one to write are needed")
            .help("quantize model.gguf --type q4_k --out smaller.gguf"));
    };
    let (file, device) = (Gguf::open(from)?, common.device()?);
    if let Some((_, error)) = file.unreadable().iter().next() {
        return Err(error.clone());
    }
    let mut metadata = file.metadata().clone();
    metadata.insert("general.quantization_version".to_string(), Value::Unsigned(2));
    if let Some(number) = file_type(options.of) {
        metadata.insert("general.file_type".to_string(), Value::Unsigned(number));
    }
    let mut writer = Writer::new(metadata);
    let mut types = Vec::new();
    for (name, entry) in file.entries() {
        let of = options.element_type(name, entry.shape());
        // vectors, and what is not read as blocks, stay as they are
        let of = of.or(entry.element_type()).unwrap_or(ElementType::Plain(DType::F32));
        writer.add(name, entry.shape(), of)?;
        types.push((entry, of));
    }
    let (mut types, mut total) = (types.into_iter(), [0u64; 2]);
    writer.write(to, |name| {
        let (entry, of) = types.next().ok_or_else(|| Error::internal("a tensor without type"))?;
        let (bytes, error) = quantized(&file, name, of, &device)?;
        let shape: Vec<String> = entry.shape().iter().map(usize::to_string).collect();
        let (before, after) = (entry.bytes(), bytes.len() as u64);
        total = [total[0] + before, total[1] + after];
        let (was, shape) = (entry.type_name(), shape.join(" x "));
        println!("{name:32} {shape:>14} {was:>5} {before:>11} {of:>5} {after:>11} {error:9.2e}");
        Ok(bytes)
    })?;
    let [before, after] = total.map(|bytes| bytes as f64 / 1e6);
    println!("{before:.1} MB to {after:.1} MB");
    Ok(())
}

impl Options {
    /// The type of a tensor that is changed.
    fn element_type(&self, name: &str, shape: &[usize]) -> Option<ElementType> {
        let chosen = self.tensors.iter().rev().find(|(part, _)| name.contains(part.as_str()));
        let of = match (chosen, shape) {
            (Some((_, of)), _) => *of,
            (None, [_, _]) => self.of,
            _ => return None,
        };
        match (of, shape) {
            (ElementType::Quantized(kind), &[_, columns]) => {
                kind.fitting(columns).map(ElementType::Quantized)
            }
            // a vector cannot be quantised
            (ElementType::Quantized(_), _) => None,
            (plain, _) => Some(plain),
        }
    }
}

/// llama.cpp's number of a file most of whose weights have this type.
fn file_type(of: ElementType) -> Option<u64> {
    const NUMBERS: [(&str, u64); 11] = [
        ("F32", 0),
        ("F16", 1),
        ("Q4_0", 2),
        ("Q4_1", 3),
        ("Q8_0", 7),
        ("Q5_0", 8),
        ("Q5_1", 9),
        ("Q4_K", 14),
        ("Q5_K", 16),
        ("Q6_K", 18),
        ("BF16", 32),
    ];
    let name = of.to_string();
    NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}
