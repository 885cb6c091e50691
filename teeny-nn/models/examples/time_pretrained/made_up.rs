//! A GGUF file with the shape of a larger model and drawn weights: what does not fit in caches.

use std::collections::BTreeMap;
use teeny_core::{DType, Error, QuantTensor, Result, Tensor, random};
use teeny_core::{QuantType, ToDevice};
use teeny_formats::Gguf;
use teeny_formats::gguf::{ElementType, Value, Writer};
use teeny_nn::device::device;

/// The tokens of a file without a vocabulary.
const VOCABULARY: usize = 49_152;
/// The number of rows that are drawn; the others repeat them.
const DRAWN: usize = 256;

/// Writes a Llama of the size `135m`, `1b` or `3b` with weights of type `kind` to `out`. It has the
/// vocabulary of the file `of`.
pub fn write(size: &str, kind: &str, out: &str, of: Option<&str>) -> Result<()> {
    // width, layers, heads, key heads, the size of a head, and the width of the perceptron
    let sizes = match size {
        "135m" => [576, 30, 9, 3, 64, 1536],
        "1b" => [2048, 16, 16, 4, 128, 8192],
        "3b" => [3072, 28, 24, 8, 128, 8192],
        _ => return Err(Error::value(format!("no size {size}")).help("135m, 1b or 3b")),
    };
    let [width, layers, heads, kv_heads, head, hidden] = sizes;
    let kind = match kind {
        "f32" => ElementType::Plain(DType::F32),
        "bf16" => ElementType::Plain(DType::BF16),
        name => ElementType::Quantized(QuantType::by_name(&name.to_uppercase())?),
    };
    let file = of.map(Gguf::open).transpose()?;
    let mut metadata = BTreeMap::new();
    let kept = |key: &str| key.starts_with("tokenizer.");
    for (key, value) in file.iter().flat_map(|file| file.metadata()).filter(|(key, _)| kept(key)) {
        metadata.insert(key.clone(), value.clone());
    }
    let vocabulary = match metadata.get("tokenizer.ggml.tokens") {
        Some(Value::List(tokens)) => tokens.len(),
        _ => VOCABULARY,
    };
    let mut put = |key: &str, value: Value| metadata.insert(key.to_string(), value);
    put("general.architecture", Value::Text("llama".to_string()));
    put("general.quantization_version", Value::Unsigned(2));
    for (key, value) in [
        ("context_length", 8192),
        ("embedding_length", width),
        ("block_count", layers),
        ("feed_forward_length", hidden),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv_heads),
        ("rope.dimension_count", head),
        ("vocab_size", vocabulary),
    ] {
        put(&format!("llama.{key}"), Value::Unsigned(value as u64));
    }
    put("llama.attention.layer_norm_rms_epsilon", Value::Float(f64::from(1e-5f32)));
    put("llama.rope.freq_base", Value::Float(10_000.0));

    let mut shapes = vec![("token_embd".to_string(), vec![vocabulary, width])];
    for i in 0..layers {
        for (name, shape) in [
            ("attn_norm", vec![width]),
            ("attn_q", vec![heads * head, width]),
            ("attn_k", vec![kv_heads * head, width]),
            ("attn_v", vec![kv_heads * head, width]),
            ("attn_output", vec![width, heads * head]),
            ("ffn_norm", vec![width]),
            ("ffn_gate", vec![hidden, width]),
            ("ffn_up", vec![hidden, width]),
            ("ffn_down", vec![width, hidden]),
        ] {
            shapes.push((format!("blk.{i}.{name}"), shape));
        }
    }
    shapes.push(("output_norm".to_string(), vec![width]));
    let mut writer = Writer::new(metadata);
    for (name, shape) in &shapes {
        let of = if shape.len() == 1 { ElementType::Plain(DType::F32) } else { kind };
        writer.add(&format!("{name}.weight"), shape, of)?;
    }
    let mut rest = shapes.iter();
    random::with_seed(1, || {
        writer.write(out, |_| {
            let (_, shape) = rest.next().ok_or_else(|| Error::internal("no more tensors"))?;
            bytes(shape, kind)
        })
    })
}

/// A weight of this shape: ones, or rows of small numbers.
fn bytes(shape: &[usize], kind: ElementType) -> Result<Vec<u8>> {
    let device = device("cpu")?.to_device();
    let &[rows, columns] = shape else {
        return Tensor::ones(shape[0], DType::F32, &device)?.to_bytes();
    };
    let x = Tensor::normal(0.0, 0.02, (DRAWN, columns), DType::F32, &device)?;
    let drawn = match kind {
        ElementType::Plain(dtype) => x.cast(dtype)?.to_bytes()?,
        ElementType::Quantized(kind) => {
            let blocks = QuantTensor::quantize(&x, kind)?.to_blocks()?;
            blocks.into_iter().flat_map(|(_, blocks)| blocks).collect()
        }
    };
    Ok(drawn.iter().copied().cycle().take(drawn.len() / DRAWN * rows).collect())
}
