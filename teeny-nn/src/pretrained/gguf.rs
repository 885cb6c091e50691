//! A GGUF file as a decoder: its metadata under the keys of `config.json`, and its names.
//! `describe` makes the metadata of a decoder; `encoder` is the same for encoders.

mod describe;
mod encoder;

use super::rotary::{FULL, SLIDING};
use super::{GenerationConfig, decoder_family};
use crate::attention::{RopePairing, RopeScaling};
use crate::config::Config;
use crate::names::loading;
use crate::state::gguf::Value;
use crate::state::{Mapping, TensorSource};
use crate::text::end_tokens;
use crate::transformer::{CausalLmConfig, NormKind, Positions};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::path::Path;
use teeny_core::{DeviceRef, Error, Result};

pub(super) use describe::{Description, describe, differing};
pub(super) use encoder::{encoder_config, encoder_mapping, pooling};

/// The metadata of a file.
pub(super) type Metadata = BTreeMap<String, Value>;

/// The shapes of tensors by name.
type Shapes = BTreeMap<String, Vec<usize>>;

/// Keys of the metadata, after the name of the architecture, and of `config.json`.
const KEYS: [(&str, &str); 16] = [
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.value_length", "head_dim"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.sliding_window_pattern", "sliding_window_pattern"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
];

/// Keys that may have a list of a number for each layer. Models whose layers differ are not read.
const PER_LAYER: [&str; 3] =
    ["attention.head_count", "attention.head_count_kv", "feed_forward_length"];

/// The configuration of a file with this metadata and these tensors, and the options of its model.
///
/// # Errors
/// If the metadata does not describe a known model, or a tensor of factors cannot be read.
pub(super) fn options(
    path: &Path,
    metadata: &Metadata,
    tensors: &dyn TensorSource,
    device: &DeviceRef,
) -> Result<(Config, CausalLmConfig)> {
    let shapes = tensors.shapes().into_iter().collect();
    let config = config(path, metadata, &shapes)?;
    let options = decoder_family::decoder(&config)?.options(&config)?;
    let read = |name: &str| match shapes.contains_key(name) {
        true => tensors.read(name, device)?.to_vec::<f32>().map(|x| Some(x.to_vec())),
        false => Ok(None),
    };
    let options = adapt(options, &config, metadata, &read)?;
    Ok((config, options))
}

/// Whether rotated pairs of the heads of an architecture are neighbours.
pub(super) fn has_adjacent_pairs(architecture: &str) -> bool {
    architecture == "llama"
}

/// The name of the architecture.
fn architecture(metadata: &Metadata) -> Option<&str> {
    metadata.get("general.architecture").and_then(Value::as_str)
}

/// The metadata as a `config.json`.
///
/// # Errors
/// If it does not name an architecture.
fn config(path: &Path, metadata: &Metadata, shapes: &Shapes) -> Result<Config> {
    let Some(name) = architecture(metadata) else {
        let text = "the metadata has no \"general.architecture\"";
        return Err(Error::format(text).named(loading(path)).help("use a GGUF file of a model"));
    };
    let get = |key: &str| metadata.get(&format!("{name}.{key}"));
    let uint = |key: &str| get(key).and_then(Value::as_u64);
    let mut values = Map::new();
    for (theirs, ours) in KEYS {
        // a window of 0 is none, and a pattern may be a list, see below
        let none = |value: &&Value| match ours {
            "sliding_window" => value.as_u64() == Some(0),
            "sliding_window_pattern" => value.as_list().is_some(),
            _ => false,
        };
        let Some(value) = get(theirs).filter(|value| !none(value)) else { continue };
        let number = match value {
            Value::Float(x) => json!(x),
            Value::List(all) => {
                let is_read = PER_LAYER.contains(&theirs);
                let fits = is_read && uint("block_count") == Some(all.len() as u64);
                let one = all.first().filter(|one| fits && all.iter().all(|x| x == *one));
                json!(one.and_then(Value::as_u64).ok_or_else(|| {
                    let end = if is_read { "the same number for each layer" } else { "a number" };
                    let text = format!("\"{name}.{theirs}\" is a list, not {end}");
                    Config::of(path, json!({})).error(text)
                })?)
            }
            value => json!(value.as_u64()),
        };
        values.insert(ours.to_string(), number);
    }
    // Mistral's models have Llama's architecture
    let model_type = match name {
        "gemma3" => "gemma3_text",
        "llama" if values.contains_key("sliding_window") => "mistral",
        name => name,
    };
    values.insert("model_type".to_string(), json!(model_type));
    // or a list in place of the number
    let slides = get("attention.sliding_window_pattern").and_then(Value::as_list);
    if let Some(slides) = slides.filter(|_| values.contains_key("sliding_window")) {
        let kind = |slides: &Value| if slides.as_bool()? { Some(SLIDING) } else { Some(FULL) };
        let types: Vec<_> = slides.iter().map(kind).collect();
        values.insert("layer_types".to_string(), json!(types));
        values.insert("use_sliding_window".to_string(), json!(true));
    }
    for (tensor, key) in
        [("token_embd.weight", "vocab_size"), ("token_types.weight", "type_vocab_size")]
    {
        let rows = shapes.get(tensor).and_then(|shape| shape.first());
        values.extend(rows.map(|rows| (key.to_string(), json!(rows))));
    }
    // BERT's name for it
    let eps = values.get("layer_norm_epsilon").cloned();
    values.extend(eps.map(|eps| ("layer_norm_eps".to_string(), eps)));
    for (key, tensor, with) in [
        ("tie_word_embeddings", "output.weight", false),
        ("attention_bias", "blk.0.attn_q.bias", true),
        ("mlp_bias", "blk.0.ffn_up.bias", true),
    ] {
        values.insert(key.to_string(), json!(shapes.contains_key(tensor) == with));
    }
    let [width, heads] = ["hidden_size", "num_attention_heads"]
        .map(|key| values.get(key).and_then(|value| value.as_u64()).unwrap_or(0));
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
        let beta = |key: &str| get(&format!("rope.scaling.yarn_{key}")).and_then(Value::as_f64);
        let scaling = json!({
            "rope_type": kind, "factor": factor, "original_max_position_embeddings": original,
            "attention_factor": attention, "beta_fast": beta("beta_fast"),
            "beta_slow": beta("beta_slow"),
        });
        values.insert("rope_scaling".to_string(), scaling);
    }
    Ok(Config::of(path, values.into()))
}

/// `options` as the tensors of this kind of file are to be used: rotated pairs of Llama's heads are
/// neighbours, factors of Gemma's norms have the 1, and factors of frequencies are tensors, which
/// `read` returns.
///
/// # Errors
/// If a tensor of factors cannot be read.
fn adapt(
    mut options: CausalLmConfig,
    config: &Config,
    metadata: &Metadata,
    read: &dyn Fn(&str) -> Result<Option<Vec<f32>>>,
) -> Result<CausalLmConfig> {
    if options.norm == NormKind::RmsUnitOffset {
        options.norm = NormKind::Rms;
    }
    let name = architecture(metadata).unwrap_or_default();
    let Positions::Rotary { full, .. } = &mut options.positions else { return Ok(options) };
    if has_adjacent_pairs(name) {
        full.pairing = RopePairing::Interleaved;
    }
    let dims = full.dims.unwrap_or(options.head_size);
    let divisors = |name: &str| -> Result<Option<Vec<f64>>> {
        let Some(values) = read(name)? else { return Ok(None) };
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
        let number = |key: &str| metadata.get(&format!("{name}.rope.scaling.{key}"));
        let original = number("original_context_length").and_then(Value::as_u64).unwrap_or(4096);
        let attention = number("attn_factor").and_then(Value::as_f64).unwrap_or(1.0);
        let original = original as usize;
        full.scaling = RopeScaling::LongRope { short, long, original, attention };
    }
    Ok(options)
}

/// How tokens are chosen: the file has the end tokens alone.
pub(super) fn generation(metadata: &Metadata) -> GenerationConfig {
    GenerationConfig { eos_tokens: end_tokens(metadata), ..Default::default() }
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

/// Which tensors of a layer a file has one by one.
#[derive(Clone, Copy)]
pub(super) struct Apart {
    /// The projections to queries, keys and values.
    pub qkv: bool,
    /// The gate of a perceptron.
    pub gate: bool,
}

impl Apart {
    /// Those of a file with these tensors.
    pub fn of(tensors: &dyn TensorSource) -> Apart {
        let shapes = tensors.shapes();
        let has = |name| shapes.iter().any(|(own, _)| own == name);
        Apart { qkv: has("blk.0.attn_q.weight"), gate: has("blk.0.ffn_gate.weight") }
    }
}

/// The names and the layout of a GGUF file.
pub(super) fn mapping(options: &CausalLmConfig, apart: Apart) -> Mapping {
    let mut mapping = Mapping::new().skip("rope_*");
    let [q, kv] = options.widths();
    let before_mlp =
        if options.post_norms { "pre_feedforward_layernorm" } else { "post_attention_layernorm" };
    for end in ["weight", "bias"] {
        let layer = |name: &str| format!("blk.*.{name}.{end}");
        let [a, b, c] = ["attn_q", "attn_k", "attn_v"].map(layer);
        let ours = format!("layers.*.self_attn.qkv_proj.{end}");
        if apart.qkv {
            mapping = mapping.join(&[&a, &b, &c], &ours, &[q, kv, kv]);
        }
        let ours = format!("layers.*.mlp.gate_up_proj.{end}");
        let (gate, up) = (layer("ffn_gate"), layer("ffn_up"));
        mapping = match apart.gate {
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
