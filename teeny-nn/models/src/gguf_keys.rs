//! A GGUF file as a decoder: translates its metadata to the keys of `config.json`, and its tensor
//! names. `header` makes the metadata of a decoder; `encoder` is the same for encoders.

mod encoder;
mod header;

use super::family::{family_of, with_names};
use super::rotary::{FULL, SLIDING};
use super::{GenerationConfig, decoder_family};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use teeny_core::{DeviceRef, Error, Result};
use teeny_formats::config::Config;
use teeny_formats::gguf::Value;
use teeny_formats::names::loading;
use teeny_formats::{Mapping, TensorSource};
use teeny_nn::attention::{RopePairing, RopeScaling};
use teeny_nn::transformer::{CausalLmConfig, NormKind, Positions};
use teeny_text::end_tokens;

pub(super) use encoder::{encoder_config, encoder_mapping, pooling};
pub(super) use header::{GgufHeader, config_diff, to_metadata};

/// The metadata of a file.
pub(super) type Metadata = BTreeMap<String, Value>;

/// The shapes of tensors by name.
type Shapes = BTreeMap<String, Vec<usize>>;

/// Keys of `config.json` and of the metadata, after the name of the architecture, besides
/// [`CausalLmConfig::rows`].
const KEYS: [(&str, &str); 8] = [
    ("partial_rotary_factor", "rope.dimension_count"),
    ("head_dim", "attention.value_length"),
    ("rms_norm_eps", "attention.layer_norm_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("rope_theta", "rope.freq_base"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("sliding_window", "attention.sliding_window"),
    ("sliding_window_pattern", "attention.sliding_window_pattern"),
];

/// Keys of `config.json` that llama.cpp reads for the architecture `granite` alone.
const GRANITE: [&str; 4] =
    ["attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"];

/// Keys of `config.json` without which llama.cpp opens no model.
const REQUIRED: [&str; 3] = ["max_position_embeddings", "hidden_size", "num_hidden_layers"];

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
    decoder_family::decoder(&config)?;
    let options = decoder_family::options(&config)?;
    let read = |name: &str| match shapes.contains_key(name) {
        true => tensors.read(name, device)?.to_vec::<f32>().map(|x| Some(x.to_vec())),
        false => Ok(None),
    };
    let options = adapt(options, &config, metadata, &read)?;
    Ok((config, options))
}

/// Whether rotated pairs of the heads of an architecture are neighbours.
pub(super) fn has_adjacent_pairs(architecture: &str) -> bool {
    ["llama", "granite"].contains(&architecture)
}

/// The name of the architecture.
fn architecture(metadata: &Metadata) -> Option<&str> {
    metadata.get("general.architecture").and_then(Value::as_str)
}

/// The metadata of the architecture as a configuration that knows its family.
///
/// # Errors
/// If it does not name an architecture, or a key is missing that every model has.
fn config(path: &Path, metadata: &Metadata, shapes: &Shapes) -> Result<Config> {
    let Some(name) = architecture(metadata) else {
        let text = "the metadata has no \"general.architecture\"";
        return Err(Error::format(text).named(loading(path)).help("use a GGUF file of a model"));
    };
    let prefix = format!("{name}.");
    let own = metadata.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
    let mut values: Map<_, _> = own.map(|(key, value)| (key.to_string(), json_of(value))).collect();
    let get = |key: &str| metadata.get(&format!("{name}.{key}"));
    // a number for each layer, which is the same for all
    let mut uneven = None;
    for key in PER_LAYER {
        let Some(all) = get(key).and_then(Value::as_list) else { continue };
        let fits = get("block_count").and_then(Value::as_u64) == Some(all.len() as u64);
        let same = |one: &&Value| fits && one.as_u64().is_some() && all.iter().all(|x| x == *one);
        match all.first().filter(same) {
            Some(one) => drop(values.insert(key.to_string(), json_of(one))),
            None => uneven = Some(key),
        }
    }
    // a window or factor of 0 means unset
    let none =
        "attention.sliding_window attention.scale embedding_scale residual_scale logit_scale";
    values.retain(|key, x| x.as_f64() != Some(0.0) || !none.split(' ').any(|own| own == key));
    let has_window = values.contains_key("attention.sliding_window");
    // Mistral's models have Llama's architecture
    let model_type = match name {
        "gemma3" => "gemma3_text",
        "llama" if has_window => "mistral",
        name => name,
    };
    let mut fixed = Map::from_iter([("model_type".to_string(), json!(model_type))]);
    let mut set = |key: &str, value| drop(fixed.insert(key.to_string(), value));
    // or a list in place of the number
    if let Some(slides) = get("attention.sliding_window_pattern").and_then(Value::as_list) {
        values.remove("attention.sliding_window_pattern");
        let kind = |slides: &Value| if slides.as_bool()? { Some(SLIDING) } else { Some(FULL) };
        if has_window {
            set("layer_types", json!(slides.iter().map(kind).collect::<Vec<_>>()));
            set("use_sliding_window", json!(true));
        }
    }
    for (tensor, key) in
        [("token_embd.weight", "vocab_size"), ("token_types.weight", "type_vocab_size")]
    {
        if let Some(rows) = shapes.get(tensor).and_then(|shape| shape.first()) {
            set(key, json!(rows));
        }
    }
    set("tie_word_embeddings", json!(!shapes.contains_key("output.weight")));
    let file = Config::of(path, Some(name), values.into());
    if let Some(key) = uneven {
        let text = format!("{key:?} is a list, not the same number for each layer");
        return Err(file.error(text));
    }
    let size = |key: &str| file.has(key).then(|| file.size(&[key], 0)).transpose();
    let scaling = |key: &str| file.number_of(&[&format!("rope.scaling.{key}")]);
    let [width, heads] = [size("embedding_length")?, size("attention.head_count")?];
    let usual = width.unwrap_or(0).checked_div(heads.unwrap_or(0)).unwrap_or(0);
    let head_size = size("attention.key_length")?.unwrap_or(usual);
    let values = size("attention.value_length")?.unwrap_or(head_size);
    if values != head_size {
        let text = format!("\"attention.value_length\" is {values}, not {head_size} as of keys");
        return Err(file.error(text));
    }
    if let Some(dims) = size("rope.dimension_count")?.filter(|_| head_size > 0) {
        set("partial_rotary_factor", json!(dims as f64 / head_size as f64));
    }
    let layers = size("block_count")?;
    let linear = file.number_of(&["rope.scale_linear"])?;
    let factor = scaling("factor")?.or(linear);
    let (own, original) = (scaling("attn_factor")?, size("rope.scaling.original_context_length")?);
    let (fast, slow) = (scaling("yarn_beta_fast")?, scaling("yarn_beta_slow")?);
    // a factor without a type divides all frequencies
    let kind = file.text("rope.scaling.type")?.or(factor.map(|_| "linear"));
    if let Some(kind) = kind.filter(|kind| !matches!(*kind, "none" | "longrope")) {
        let factor = factor.unwrap_or(1.0);
        // it multiplies what YaRN's paper has
        let attention = own.map(|own| own * (1.0 + 0.1 * factor.max(1.0).ln()));
        let scaling = json!({
            "rope_type": kind, "factor": factor, "original_max_position_embeddings": original,
            "attention_factor": attention, "beta_fast": fast, "beta_slow": slow,
        });
        set("rope_scaling", scaling);
    }
    let mut config = family_of(file, model_type);
    let family = Arc::make_mut(&mut config.family);
    if family.defaults.contains_key(SCALAR) {
        // the largest models divide the scores by the root of the width of a head without its own
        // size
        let largest = matches!((name, layers), ("gemma2", Some(46)) | ("gemma3", Some(62)));
        fixed.insert(SCALAR.to_string(), json!(if largest { usual } else { head_size }));
    }
    // llama.cpp's defaults
    for (key, usual) in [
        ("head_dim", json!(null)),
        ("num_key_value_heads", json!(null)),
        ("rope_theta", json!(1e4)),
    ] {
        family.defaults.insert(key.to_string(), usual);
    }
    family.fixed.extend(fixed);
    for (key, tensor) in [
        ("qkv_bias", "blk.0.attn_q.bias"),
        ("out_bias", "blk.0.attn_output.bias"),
        ("mlp_bias", "blk.0.ffn_up.bias"),
    ] {
        family.fixed.entry(key).or_insert(json!(shapes.contains_key(tensor)));
    }
    family.foreign.clear();
    family.names.clear();
    let mut options = CausalLmConfig::defaults();
    let rows = options.rows().into_iter().map(|row| (row.key, row.gguf)).collect::<Vec<_>>();
    let other = |key: &str| GRANITE.contains(&key) && name != "granite";
    let rows = rows.into_iter().chain(KEYS);
    for (key, theirs) in rows.filter(|(key, theirs)| !theirs.is_empty() && !other(key)) {
        family.names.entry(key.to_string()).or_default().push(theirs.to_string());
    }
    let eps = match config.text("norm")? {
        Some("rms" | "rms + 1") => "attention.layer_norm_rms_epsilon",
        _ => "attention.layer_norm_epsilon",
    };
    let required = REQUIRED.map(|key| config.family.names[key][0].clone());
    let mut required = required.iter().map(String::as_str).chain([eps]);
    match required.find(|key| !config.family.defaults.is_empty() && get(key).is_none()) {
        Some(key) => Err(config.error(format!("{key:?} is missing"))),
        None => Ok(config),
    }
}

/// The factor of the scores of families that have their own.
const SCALAR: &str = "query_pre_attn_scalar";

/// A value as JSON.
fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Unsigned(x) => json!(x),
        Value::Signed(x) => json!(x),
        Value::Float(x) if x.is_finite() => json!(x),
        Value::Float(x) => json!(x.to_string()),
        Value::Bool(x) => json!(x),
        Value::Text(x) => json!(x),
        Value::Bytes(x) => json!(x),
        Value::List(all) => all.iter().map(json_of).collect(),
    }
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

/// Which tensors of a layer a file has one by one.
#[derive(Clone, Copy)]
pub(super) struct SplitProjections {
    /// The projections to queries, keys and values.
    pub qkv: bool,
    /// The gate of an MLP.
    pub gate: bool,
}

impl SplitProjections {
    /// The layout of a file with these tensors.
    pub fn of(tensors: &dyn TensorSource) -> SplitProjections {
        let shapes = tensors.shapes();
        let has = |name| shapes.iter().any(|(own, _)| own == name);
        SplitProjections { qkv: has("blk.0.attn_q.weight"), gate: has("blk.0.ffn_gate.weight") }
    }
}

/// The names and the layout of a GGUF file.
pub(super) fn mapping(options: &CausalLmConfig, apart: SplitProjections) -> Mapping {
    let [q, kv] = options.widths();
    let names = [
        if apart.qkv { "gguf qkv" } else { "" },
        if apart.gate { "gguf gate" } else { "gguf up" },
        if options.post_norms { "gguf four norms" } else { "gguf two norms" },
        "gguf",
    ];
    let rows = [&[q, kv, kv][..], &[options.hidden; 2]];
    let with = |mapping, names: &&str| with_names(mapping, names, [""; 2], rows);
    names.iter().fold(Mapping::new().skip("rope_*"), with)
}
