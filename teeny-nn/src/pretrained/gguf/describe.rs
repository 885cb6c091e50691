//! The metadata of a GGUF file for the options of a decoder, and what it cannot say.

use super::{KEYS, Metadata, Value};
use crate::attention::RopeScaling;
use crate::transformer::{CausalLmConfig, NormKind, Positions, Rotary};
use serde_json::{Map, json};

/// The metadata of a model, and the tensors that belong to it.
pub(in crate::pretrained) struct Description {
    pub metadata: Metadata,
    /// Divisors of frequencies by name.
    pub divisors: Vec<(&'static str, Vec<f32>)>,
}

/// The description of a model of the architecture `name` with these options.
pub(in crate::pretrained) fn describe(name: &str, options: &CausalLmConfig) -> Description {
    let mut values = Map::new();
    for (key, size) in [
        ("max_position_embeddings", options.context),
        ("hidden_size", options.n_embd),
        ("num_hidden_layers", options.n_layer),
        ("intermediate_size", options.hidden),
        ("num_attention_heads", options.n_head),
        ("num_key_value_heads", options.n_kv_head),
    ] {
        values.insert(key.to_string(), json!(size));
    }
    let is_layer_norm = matches!(options.norm, NormKind::Layer { .. });
    let eps = if is_layer_norm { "layer_norm_epsilon" } else { "rms_norm_eps" };
    values.insert(eps.to_string(), json!(options.norm_eps));
    for (key, cap) in [
        ("attn_logit_softcapping", options.softcap),
        ("final_logit_softcapping", options.logits_softcap),
    ] {
        values.extend(cap.map(|cap| (key.to_string(), json!(cap))));
    }
    let windows: Vec<_> = (0..options.n_layer).map(|i| options.window(i)).collect();
    let window = windows.iter().flatten().next();
    values.extend(window.map(|window| ("sliding_window".to_string(), json!(window))));
    let (mut more, mut divisors) = (Vec::new(), Vec::new());
    more.push(("vocab_size", Value::Unsigned(options.vocab as u64)));
    if window.is_some() {
        let slides = windows.iter().map(|window| Value::Bool(window.is_some()));
        more.push(("attention.sliding_window_pattern", Value::List(slides.collect())));
    }
    if let Positions::Rotary { full, windowed } = &options.positions {
        values.insert("head_dim".to_string(), json!(options.head_size));
        values.insert("rope_theta".to_string(), json!(full.base));
        if let Some(windowed) = windowed {
            values.insert("rope_local_base_freq".to_string(), json!(windowed.base));
        }
        let dims = full.dims.unwrap_or(options.head_size);
        more.push(("rope.dimension_count", Value::Unsigned(dims as u64)));
        more.extend(scaling(full, dims, &mut divisors));
    }
    let key = |key: &str| format!("{name}.{key}");
    let architecture = Value::Text(name.to_string());
    let mut metadata = Metadata::from([("general.architecture".to_string(), architecture)]);
    for (theirs, ours) in KEYS {
        if let Some(value) = values.get(ours) {
            let number = || number(value.as_f64().unwrap_or_default());
            metadata.insert(key(theirs), value.as_u64().map_or_else(number, Value::Unsigned));
        }
    }
    metadata.extend(more.into_iter().map(|(name, value)| (key(name), value)));
    Description { metadata, divisors }
}

/// A number of 32 bits, which is all that readers take.
fn number(x: f64) -> Value {
    Value::Float(f64::from(x as f32))
}

/// The keys of the scaling of `full`; `divisors` gets its tensors.
fn scaling(
    full: &Rotary,
    dims: usize,
    divisors: &mut Vec<(&'static str, Vec<f32>)>,
) -> Vec<(&'static str, Value)> {
    let kind = |kind: &str| ("rope.scaling.type", Value::Text(kind.to_string()));
    let length = |n: usize| ("rope.scaling.original_context_length", Value::Unsigned(n as u64));
    let singles = |all: &[f64]| all.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    match &full.scaling {
        // the dynamic one begins beyond the context
        RopeScaling::None | RopeScaling::Dynamic { .. } => Vec::new(),
        RopeScaling::Linear { factor } => {
            vec![kind("linear"), ("rope.scaling.factor", number(*factor))]
        }
        scaled @ RopeScaling::Llama3 { .. } => {
            let plain = RopeScaling::None.frequencies(dims, full.base, 1).0;
            let scaled = scaled.frequencies(dims, full.base, 1).0;
            let ratios: Vec<f64> = plain.iter().zip(&scaled).map(|(a, b)| a / b).collect();
            divisors.push(("rope_freqs.weight", singles(&ratios)));
            Vec::new()
        }
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original, attention, .. } => {
            // readers multiply it by what YaRN's paper has
            let own = attention / (1.0 + 0.1 * factor.max(1.0).ln());
            vec![
                kind("yarn"),
                length(*original),
                ("rope.scaling.factor", number(*factor)),
                ("rope.scaling.attn_factor", number(own)),
                ("rope.scaling.yarn_beta_fast", number(*beta_fast)),
                ("rope.scaling.yarn_beta_slow", number(*beta_slow)),
            ]
        }
        RopeScaling::LongRope { short, long, original, attention } => {
            divisors.push(("rope_factors_short.weight", singles(short)));
            divisors.push(("rope_factors_long.weight", singles(long)));
            let attention = ("rope.scaling.attn_factor", number(*attention));
            vec![kind("longrope"), length(*original), attention]
        }
    }
}

/// The options by which `read`, which is what a reader makes of a description, differs from `own`.
pub(in crate::pretrained) fn differing(
    own: &CausalLmConfig,
    read: &CausalLmConfig,
) -> Vec<&'static str> {
    // numbers of 32 bits
    let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-6 * a.abs();
    let either = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => close(a, b),
        (a, b) => a == b,
    };
    let rotary = |a: &Rotary, b: &Rotary| {
        let dims = a.dims.unwrap_or(own.head_size);
        let same = |length: usize| {
            let (f, scale) = a.scaling.frequencies(dims, a.base, length);
            let (g, other) = b.scaling.frequencies(dims, b.base, length);
            close(scale, other) && f.iter().zip(&g).all(|(a, b)| close(*a, *b))
        };
        dims == b.dims.unwrap_or(own.head_size) && same(1) && same(own.context)
    };
    let positions = match (&own.positions, &read.positions) {
        (
            Positions::Rotary { full: a, windowed: c },
            Positions::Rotary { full: b, windowed: d },
        ) => {
            let windowed = match (c, d) {
                (Some(c), Some(d)) => rotary(c, d),
                (c, d) => c.is_none() && d.is_none(),
            };
            windowed && rotary(a, b)
        }
        (a, b) => a == b,
    };
    let sizes = |of: &CausalLmConfig| {
        let heads = [of.n_head, of.n_kv_head, of.head_size];
        ([of.vocab, of.context, of.n_layer, of.n_embd, of.hidden], heads)
    };
    // the 1 is in the file
    let norm = if own.norm == NormKind::RmsUnitOffset { NormKind::Rms } else { own.norm };
    let all = [
        ("sizes", sizes(own) == sizes(read)),
        ("norms", norm == read.norm && close(own.norm_eps, read.norm_eps)),
        ("norms after attention", own.post_norms == read.post_norms),
        ("norms of queries and keys", own.qk_norms == read.qk_norms),
        ("activation", own.activation == read.activation && own.gated == read.gated),
        ("biases of queries, keys and values", own.qkv_bias == read.qkv_bias),
        ("bias after attention", own.out_bias == read.out_bias),
        ("biases of the perceptron", own.mlp_bias == read.mlp_bias),
        ("positions", positions),
        ("windows", (0..own.n_layer).all(|i| own.window(i) == read.window(i))),
        ("factor of the scores", either(own.scale, read.scale)),
        ("factor of the scores by layer", own.scale_by_layer == read.scale_by_layer),
        ("softcap of the scores", either(own.softcap, read.softcap)),
        ("softcap of the logits", either(own.logits_softcap, read.logits_softcap)),
        ("factor of the embeddings", close(own.embed_scale, read.embed_scale)),
        ("tied embeddings", own.tied == read.tied),
    ];
    all.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
