//! The metadata of a GGUF file for the options of a decoder, and the options that it cannot
//! express.

use super::{Metadata, Value};
use teeny_nn::attention::RopeScaling;
use teeny_nn::transformer::{CausalLmConfig, NormKind, Positions, Rotary};

/// The metadata of a model, and the tensors that belong to it.
pub(crate) struct GgufHeader {
    pub metadata: Metadata,
    /// Divisors of frequencies by name.
    pub divisors: Vec<(&'static str, Vec<f32>)>,
}

/// The description of a model of the architecture `name` with these options.
pub(crate) fn to_metadata(name: &str, options: &CausalLmConfig) -> GgufHeader {
    let (mut metadata, mut divisors) = (Metadata::new(), Vec::new());
    let text = Value::Text(name.to_string());
    metadata.insert("general.architecture".to_string(), text);
    let mut set = |key: &str, value| drop(metadata.insert(format!("{name}.{key}"), value));
    let is_layer_norm = matches!(options.norm, NormKind::Layer { .. });
    for row in options.clone().rows() {
        let value = row.value.json();
        let key = match row.key {
            "rms_norm_eps" if is_layer_norm => "attention.layer_norm_epsilon",
            // the size of a head follows from the width
            "head_dim" if options.learned_positions() => "",
            key if super::GRANITE.contains(&key) && name != "granite" => "",
            _ => row.gguf,
        };
        let value = value.as_u64().map(Value::Unsigned).or(value.as_f64().map(number));
        if let Some(value) = value.filter(|_| !key.is_empty()) {
            set(key, value);
        }
    }
    let windows: Vec<_> = (0..options.n_layer).map(|i| options.window(i)).collect();
    if let Some(window) = windows.iter().flatten().next() {
        set("attention.sliding_window", Value::Unsigned(*window as u64));
        let slides = windows.iter().map(|window| Value::Bool(window.is_some()));
        set("attention.sliding_window_pattern", Value::List(slides.collect()));
    }
    if let Positions::Rotary { full, windowed } = &options.positions {
        set("attention.value_length", Value::Unsigned(options.head_size as u64));
        set("rope.freq_base", number(full.base));
        if let Some(windowed) = windowed {
            set("rope.freq_base_swa", number(windowed.base));
        }
        let dims = full.dims.unwrap_or(options.head_size);
        set("rope.dimension_count", Value::Unsigned(dims as u64));
        for (key, value) in scaling(full, dims, &mut divisors) {
            set(key, value);
        }
    }
    GgufHeader { metadata, divisors }
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
        // none; the dynamic one begins beyond the context, and `config_diff` names any other
        _ => Vec::new(),
    }
}

/// The options in which `read`, parsed back from the metadata, differs from `own`.
pub(crate) fn config_diff(own: &CausalLmConfig, read: &CausalLmConfig) -> Vec<&'static str> {
    // numbers of 32 bits
    let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-6 * a.abs();
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
    // the 1 is in the file
    let (mut own, mut read) = (own.clone(), read.clone());
    if own.norm == NormKind::RmsUnitOffset {
        own.norm = NormKind::Rms;
    }
    let windows = (0..own.n_layer).all(|i| own.window(i) == read.window(i));
    let rows = own.rows().into_iter().zip(read.rows()).map(|(own, read)| {
        let (a, b) = (own.value.json(), read.value.json());
        let same = match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => close(a, b),
            _ => a == b,
        };
        (own.what, same)
    });
    let all = rows.chain([("positions", positions), ("windows", windows)]);
    let mut differing: Vec<_> = all.filter(|(_, same)| !same).map(|(name, _)| name).collect();
    differing.dedup();
    differing
}
