//! A GGUF file as a decoder: its metadata under the keys of `config.json`, and its names.

use super::GenerationConfig;
use super::config::Config;
use crate::attention::{RopePairing, RopeScaling};
use crate::names::loading;
use crate::state::gguf::Value;
use crate::state::{Gguf, Mapping};
use crate::text::end_tokens;
use crate::transformer::{CausalLmConfig, NormKind, Positions};
use serde_json::{Map, json};
use std::path::Path;
use teeny_core::{DeviceRef, Error, Result};

/// Keys of the metadata, after the name of the architecture, and of `config.json`.
const KEYS: [(&str, &str); 13] = [
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    ("rope.freq_base", "rope_theta"),
    ("attention.sliding_window", "sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
];

/// The metadata of `file` as a `config.json`.
///
/// # Errors
/// If it does not name an architecture.
pub(super) fn config(path: &Path, file: &Gguf) -> Result<Config> {
    let metadata = file.metadata();
    let Some(name) = metadata.get("general.architecture").and_then(Value::as_str) else {
        let text = "the metadata has no \"general.architecture\"";
        return Err(Error::format(text).named(loading(path)).help("use a GGUF file of a model"));
    };
    let get = |key: &str| metadata.get(&format!("{name}.{key}"));
    let mut values = Map::new();
    let number = |value: &Value| match value {
        Value::Float(x) => json!(x),
        value => json!(value.as_u64()),
    };
    for (theirs, ours) in KEYS {
        // a window of 0 is none
        let none = |value: &&Value| ours == "sliding_window" && value.as_u64() == Some(0);
        if let Some(value) = get(theirs).filter(|value| !none(value)) {
            values.insert(ours.to_string(), number(value));
        }
    }
    let model_type = if name == "gemma3" { "gemma3_text" } else { name };
    values.insert("model_type".to_string(), json!(model_type));
    let rows = |name: &str| file.entries().get(name).and_then(|entry| entry.shape().first());
    if let Some(rows) = rows("token_embd.weight") {
        values.insert("vocab_size".to_string(), json!(rows));
    }
    values.insert("tie_word_embeddings".to_string(), json!(rows("output.weight").is_none()));
    let uint = |key: &str| get(key).and_then(Value::as_u64);
    let [width, heads] =
        ["embedding_length", "attention.head_count"].map(|key| uint(key).unwrap_or(0));
    let usual = width.checked_div(heads).unwrap_or(0);
    let head_size = uint("attention.key_length").unwrap_or(usual);
    if let Some(dims) = uint("rope.dimension_count").filter(|_| head_size > 0) {
        values.insert("partial_rotary_factor".to_string(), json!(dims as f64 / head_size as f64));
    }
    // the largest models divide the scores by the root of the width of a head without its own size
    let largest =
        matches!((name, uint("block_count")), ("gemma2", Some(46)) | ("gemma3", Some(62)));
    let scalar = if largest { usual } else { head_size };
    values.insert("query_pre_attn_scalar".to_string(), json!(scalar));
    let factor = get("rope.scaling.factor").or(get("rope.scale_linear")).and_then(Value::as_f64);
    // a factor without a type divides all frequencies
    let kind = get("rope.scaling.type").and_then(Value::as_str).or(factor.map(|_| "linear"));
    if let Some(kind) = kind.filter(|kind| !matches!(*kind, "none" | "longrope")) {
        let factor = factor.unwrap_or(1.0);
        // it multiplies what YaRN's paper has
        let own = get("rope.scaling.attn_factor").and_then(Value::as_f64);
        let attention = own.map(|own| own * (1.0 + 0.1 * factor.max(1.0).ln()));
        let original = uint("rope.scaling.original_context_length");
        let scaling = json!({
            "rope_type": kind, "factor": factor, "original_max_position_embeddings": original,
            "attention_factor": attention,
        });
        values.insert("rope_scaling".to_string(), scaling);
    }
    Ok(Config::of(path, values.into()))
}

/// `options` as the tensors of this kind of file are to be used: rotated pairs of Llama's heads are
/// neighbours, factors of Gemma's norms have the 1, and factors of frequencies are tensors.
///
/// # Errors
/// If a tensor of factors cannot be read.
pub(super) fn adapt(
    mut options: CausalLmConfig,
    config: &Config,
    file: &Gguf,
    device: &DeviceRef,
) -> Result<CausalLmConfig> {
    if options.norm == NormKind::RmsUnitOffset {
        options.norm = NormKind::Rms;
    }
    let Positions::Rotary { full, .. } = &mut options.positions else { return Ok(options) };
    if config.text("model_type")? == Some("llama") {
        full.pairing = RopePairing::Interleaved;
    }
    let dims = full.dims.unwrap_or(options.head_size);
    let divisors = |name: &str| -> Result<Option<Vec<f64>>> {
        if !file.entries().contains_key(name) {
            return Ok(None);
        }
        let values = file.tensor(name, device)?.to_vec::<f32>()?;
        let valid = values.len() == dims / 2 && values.iter().all(|x| *x > 0.0 && x.is_finite());
        if valid {
            return Ok(Some(values.into_iter().map(f64::from).collect()));
        }
        Err(config.error(format!("tensor {name:?} is not {} numbers above 0", dims / 2)))
    };
    if let Some(all) = divisors("rope_freqs.weight")? {
        let (short, long) = (all.clone(), all);
        let original = usize::MAX;
        full.scaling = RopeScaling::LongRope { short, long, original, attention: 1.0 };
    }
    if let (Some(short), Some(long)) =
        (divisors("rope_factors_short.weight")?, divisors("rope_factors_long.weight")?)
    {
        let name = config.text("model_type")?.unwrap_or_default().trim_end_matches("_text");
        let number = |key: &str| file.metadata().get(&format!("{name}.rope.scaling.{key}"));
        let original = number("original_context_length").and_then(Value::as_u64).unwrap_or(4096);
        let attention = number("attn_factor").and_then(Value::as_f64).unwrap_or(1.0);
        let original = original as usize;
        full.scaling = RopeScaling::LongRope { short, long, original, attention };
    }
    Ok(options)
}

/// How tokens are chosen: the file has the end tokens alone.
pub(super) fn generation(file: &Gguf) -> GenerationConfig {
    GenerationConfig { eos_tokens: end_tokens(file), ..Default::default() }
}

/// Names in GGUF and ours, without `.weight` and `.bias`.
const NAMES: [(&str, &str); 12] = [
    ("token_embd", "embed_tokens"),
    ("position_embd", "embed_positions"),
    ("output_norm", "norm"),
    ("output", "lm_head"),
    ("blk.*.attn_norm", "layers.*.input_layernorm"),
    ("blk.*.attn_qkv", "layers.*.self_attn.qkv_proj"),
    ("blk.*.attn_output", "layers.*.self_attn.o_proj"),
    ("blk.*.attn_q_norm", "layers.*.self_attn.q_norm"),
    ("blk.*.attn_k_norm", "layers.*.self_attn.k_norm"),
    ("blk.*.ffn_down", "layers.*.mlp.down_proj"),
    ("blk.*.post_attention_norm", "layers.*.post_attention_layernorm"),
    ("blk.*.post_ffw_norm", "layers.*.post_feedforward_layernorm"),
];

/// The names and the layout of a GGUF file.
pub(super) fn mapping(options: &CausalLmConfig, file: &Gguf) -> Mapping {
    let mut mapping = Mapping::new().skip("rope_*");
    let [q, kv] = options.widths();
    let before_mlp =
        if options.post_norms { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
    let gate_apart = file.entries().contains_key("blk.0.ffn_gate.weight");
    for end in ["weight", "bias"] {
        let layer = |name: &str| format!("blk.*.{name}.{end}");
        let [a, b, c] = ["attn_q", "attn_k", "attn_v"].map(layer);
        let ours = format!("layers.*.self_attn.qkv_proj.{end}");
        mapping = mapping.join(&[&a, &b, &c], &ours, &[q, kv, kv]);
        let ours = format!("layers.*.mlp.gate_up_proj.{end}");
        let (gate, up) = (layer("ffn_gate"), layer("ffn_up"));
        mapping = match gate_apart {
            true => mapping.join(&[&gate, &up], &ours, &[options.hidden; 2]),
            false => mapping.rename(&up, &ours),
        };
        mapping = mapping.rename(&layer("ffn_norm"), &format!("layers.*.{before_mlp}.{end}"));
        for (theirs, ours) in NAMES {
            mapping = mapping.rename(&format!("{theirs}.{end}"), &format!("{ours}.{end}"));
        }
    }
    mapping
}
