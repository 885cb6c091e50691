//! The options of a decoder that a configuration describes, and the names of its tensors.

use super::family;
use super::rotary::{FULL, SLIDING, rotary};
use serde_json::Value;
use teeny_core::Result;
use teeny_formats::Mapping;
use teeny_formats::config::Config;
use teeny_nn::Activation;
use teeny_nn::transformer::{CausalLmConfig, Positions};

/// The size of a head at most: tables of positions grow with it before the weights are read.
const HEAD_SIZE: usize = 1024;

/// The number of layers at most whose windows are listed before the weights are read.
const LAYERS: usize = 1 << 20;

/// The family of the model that `config` describes.
///
/// # Errors
/// If it is not known.
pub(super) fn decoder(config: &Config) -> Result<String> {
    family::known_family(config, "decoder", "llama")
}

/// Sizes and options of a model with the context that its positions allow. `config` knows its
/// family.
pub(super) fn options(config: &Config) -> Result<CausalLmConfig> {
    let mut options = CausalLmConfig::read(config)?;
    let (width, heads) = (options.n_embd, options.n_head);
    if !config.has("num_key_value_heads") {
        options.n_kv_head = heads;
    }
    let kv_heads = options.n_kv_head;
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || heads == 0 {
        let text = format!("{kv_heads} key heads do not divide {heads} heads");
        let keys = ["num_key_value_heads", "num_attention_heads"].map(|key| config.shown(key));
        return Err(config.error(format!("{text}: {:?} and {:?}", keys[0], keys[1])));
    }
    if !config.has("head_dim") {
        options.head_size = if width % heads == 0 { width / heads } else { 0 };
        if options.head_size == 0 {
            let text = format!("{heads} heads do not divide a width of {width}");
            return Err(config.error(text).help("see \"num_attention_heads\" and \"hidden_size\""));
        }
    }
    match options.head_size {
        0 => return Err(config.error("\"head_dim\" is 0".to_string()).help("at least 2")),
        size if size > HEAD_SIZE => {
            let text = format!("\"head_dim\" is {size}, above {HEAD_SIZE}");
            return Err(config.error(text).help("config.json is damaged, or of another model"));
        }
        _ => {}
    }
    if !config.has("intermediate_size") {
        options.hidden = width.saturating_mul(4);
    }
    options.windows = windows(config, options.n_layer)?;
    let of_layers = |layers, key| rotary(config, layers, key, options.head_size);
    options.positions = match config.text("positions")? {
        Some("learned") => Positions::Learned,
        _ => {
            let local = config.has("rope_local_base_freq");
            let windowed = local.then(|| of_layers(SLIDING, "rope_local_base_freq")).transpose()?;
            Positions::Rotary { full: of_layers(FULL, "rope_theta")?, windowed }
        }
    };
    if let Some(scalar) = config.number_of(&["query_pre_attn_scalar"])? {
        if !(scalar > 0.0 && scalar.is_finite()) {
            let text = format!("\"query_pre_attn_scalar\" is {scalar}, not positive");
            return Err(config.error(text).help("the scores are divided by its root"));
        }
        options.scale = Some(1.0 / scalar.sqrt());
    }
    if !config.flag("scale_attn_weights", true)? {
        options.scale = Some(1.0);
    }
    if options.logits_divisor == 0.0 {
        let text = "\"logits_scaling\" is 0".to_string();
        return Err(config.error(text).help("the logits are divided by it"));
    }
    if config.flag("gelu_is_tanh", false)? && options.activation == Activation::Gelu {
        options.activation = Activation::GeluTanh;
    }
    if config.text("embeddings")? == Some("scaled") {
        options.embed_scale = (width as f64).sqrt();
    }
    Ok(options)
}

/// The window of each layer.
fn windows(config: &Config, layers: usize) -> Result<Vec<Option<usize>>> {
    let rule = config.text("windows")?.unwrap_or_default();
    if rule == "pattern" && config.is_null("sliding_window") {
        return Err(config.error("\"sliding_window\" is null".to_string()).help("a number"));
    }
    let is_off = rule == "last" && !config.flag("use_sliding_window", false)?;
    let has_size = config.has("sliding_window") && !config.is_null("sliding_window");
    let window = config.size(&["sliding_window"], 0)?;
    if rule == "none" || is_off || !has_size {
        return Ok(Vec::new());
    }
    if window == 0 {
        return Err(config.error("\"sliding_window\" is 0".to_string()).help("at least 1"));
    }
    let kind = |value: &Value| match value.as_str() {
        Some(SLIDING) => Some(true),
        Some(FULL) => Some(false),
        _ => None,
    };
    let wanted = "a list of \"full_attention\" and \"sliding_attention\"";
    let slides: Vec<bool> = match config.list("layer_types", wanted, kind)? {
        Some(types) if types.len() != layers => {
            let text = format!("{} \"layer_types\" do not fit {layers} layers", types.len());
            return Err(config.error(text));
        }
        Some(types) => types,
        None => {
            let first = config.size(&["max_window_layers"], 0)?;
            let period = config.size(&["sliding_window_pattern"], 0)?;
            let slides = |i: usize| i >= first && (period == 0 || !(i + 1).is_multiple_of(period));
            (0..layers.min(LAYERS)).map(slides).collect()
        }
    };
    Ok(slides.into_iter().map(|slides| slides.then_some(window)).collect())
}

/// The names and the layout of the file.
pub(super) fn mapping(config: &Config, options: &CausalLmConfig) -> Result<Mapping> {
    let mapping = ["*rotary_emb.inv_freq", "*.attn.bias", "*.attn.masked_bias", "vision_tower.*"]
        .iter()
        .chain(&["model.vision_tower.*", "multi_modal_projector.*", "*.multi_modal_projector.*"])
        .fold(Mapping::new(), |mapping, name| mapping.skip(name));
    let mut mapping = mapping
        .rename("lm_head.weight", "lm_head.weight")
        .rename("language_model.lm_head.weight", "lm_head.weight");
    if options.tied {
        mapping = mapping.allow_unexpected("lm_head.weight");
    }
    let names = config.text("names")?.unwrap_or("separate joined");
    // files are written with the first prefix
    let mut prefixes = &["model.", "", "language_model.model.", "model.language_model."][..];
    if names == "gpt2" {
        prefixes = &["transformer.", ""];
        for name in ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"] {
            mapping = mapping.transpose(&format!("*.{name}.weight"));
        }
    }
    let [q, kv] = options.widths();
    let rows = [&[q, kv, kv][..], &[options.hidden; 2]];
    let sections =
        prefixes.iter().flat_map(|prefix| names.split(' ').map(move |own| (own, *prefix)));
    Ok(sections
        .fold(mapping, |all, (own, prefix)| family::with_names(all, own, [prefix, ""], rows)))
}
