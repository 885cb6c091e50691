//! The families of decoders: how each differs from Llama.

use super::rotary::{FULL, SLIDING, Usual, rotary};
use crate::config::Config;
use crate::module::Activation;
use crate::state::Mapping;
use crate::transformer::{CausalLmConfig, NormKind, Positions};
use serde_json::Value;
use teeny_core::Result;

/// Whether there is a bias.
enum Bias {
    Always(bool),
    /// If this key is true.
    Key(&'static str),
}

/// Which layers have a window of `sliding_window` keys, if the file has no `layer_types`.
enum Windows {
    None,
    /// All, if the key is there; if it is not, with this window.
    All(Option<usize>),
    /// From `max_window_layers` on, if `use_sliding_window` is true.
    Last,
    /// All but those whose number, counted from 1, is a multiple of `sliding_window_pattern`.
    Pattern(usize),
}

/// The names of tensors in the file.
#[derive(Clone, Copy, PartialEq)]
enum Tensors {
    /// Llama's: three projections, and a gated perceptron of three.
    Separate,
    /// Phi 3's: joined.
    Joined,
    /// GPT-2's.
    Gpt2,
}

/// A family: defaults of keys that a file may lack, and what no key says.
pub(super) struct DecoderFamily {
    /// Values of `model_type`.
    types: &'static [&'static str],
    vocab: usize,
    width: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    /// `heads`, if 0.
    kv_heads: usize,
    /// `width / heads`, if 0.
    head_size: usize,
    context: usize,
    norm: NormKind,
    norm_eps: f64,
    post_norms: bool,
    qk_norms: bool,
    activation: Activation,
    gated: bool,
    qkv_bias: Bias,
    out_bias: Bias,
    mlp_bias: Bias,
    windows: Windows,
    window: usize,
    /// The base of the rotary embedding of all layers, and of those with a window if it differs.
    theta: (f64, Option<f64>),
    /// The length of texts in pretraining of models whose long ones have LongRope.
    original: Option<usize>,
    /// The end token.
    pub eos: Option<u32>,
    /// The softcaps of scores and logits.
    softcaps: [Option<f64>; 2],
    tied: bool,
    /// Embeddings times the root of the width, and scores by `query_pre_attn_scalar`.
    gemma: bool,
    tensors: Tensors,
}

const LLAMA: DecoderFamily = DecoderFamily {
    types: &["llama"],
    vocab: 32_000,
    width: 4096,
    hidden: 11_008,
    layers: 32,
    heads: 32,
    kv_heads: 0,
    head_size: 0,
    context: 2048,
    norm: NormKind::Rms,
    norm_eps: 1e-6,
    post_norms: false,
    qk_norms: false,
    activation: Activation::Silu,
    gated: true,
    qkv_bias: Bias::Key("attention_bias"),
    out_bias: Bias::Key("attention_bias"),
    mlp_bias: Bias::Key("mlp_bias"),
    windows: Windows::None,
    window: 4096,
    theta: (10_000.0, None),
    original: None,
    eos: Some(2),
    softcaps: [None; 2],
    tied: false,
    gemma: false,
    tensors: Tensors::Separate,
};

const QWEN3: DecoderFamily = DecoderFamily {
    types: &["qwen3"],
    vocab: 151_936,
    hidden: 22_016,
    head_size: 128,
    context: 32_768,
    qk_norms: true,
    mlp_bias: Bias::Always(false),
    windows: Windows::Last,
    eos: None,
    ..LLAMA
};

const GEMMA2: DecoderFamily = DecoderFamily {
    types: &["gemma2"],
    vocab: 256_000,
    width: 2304,
    hidden: 9216,
    layers: 26,
    heads: 8,
    kv_heads: 4,
    head_size: 256,
    context: 8192,
    norm: NormKind::RmsUnitOffset,
    post_norms: true,
    activation: Activation::GeluTanh,
    mlp_bias: Bias::Always(false),
    windows: Windows::Pattern(2),
    eos: Some(1),
    softcaps: [Some(50.0), Some(30.0)],
    tied: true,
    gemma: true,
    ..LLAMA
};

/// The known families. A new one is a row.
const DECODERS: [DecoderFamily; 8] = [
    LLAMA,
    DecoderFamily {
        types: &["mistral"],
        hidden: 14_336,
        kv_heads: 8,
        context: 131_072,
        qkv_bias: Bias::Always(false),
        out_bias: Bias::Always(false),
        mlp_bias: Bias::Always(false),
        windows: Windows::All(Some(4096)),
        ..LLAMA
    },
    DecoderFamily {
        types: &["qwen2"],
        head_size: 0,
        qk_norms: false,
        qkv_bias: Bias::Always(true),
        out_bias: Bias::Always(false),
        ..QWEN3
    },
    QWEN3,
    GEMMA2,
    DecoderFamily {
        types: &["gemma3_text", "gemma3"],
        vocab: 262_208,
        context: 131_072,
        qk_norms: true,
        windows: Windows::Pattern(6),
        theta: (1_000_000.0, Some(10_000.0)),
        softcaps: [None; 2],
        ..GEMMA2
    },
    DecoderFamily {
        types: &["phi3"],
        vocab: 32_064,
        width: 3072,
        hidden: 8192,
        context: 4096,
        norm_eps: 1e-5,
        qkv_bias: Bias::Always(false),
        out_bias: Bias::Always(false),
        mlp_bias: Bias::Always(false),
        windows: Windows::All(None),
        original: Some(4096),
        eos: Some(32_000),
        tensors: Tensors::Joined,
        ..LLAMA
    },
    DecoderFamily {
        types: &["gpt2"],
        vocab: 50_257,
        width: 768,
        hidden: 0,
        layers: 12,
        heads: 12,
        context: 1024,
        norm: NormKind::Layer { bias: true },
        norm_eps: 1e-5,
        activation: Activation::GeluTanh,
        gated: false,
        qkv_bias: Bias::Always(true),
        out_bias: Bias::Always(true),
        mlp_bias: Bias::Always(true),
        eos: Some(50_256),
        tied: true,
        tensors: Tensors::Gpt2,
        ..LLAMA
    },
];

/// The size of a head at most: tables of positions grow with it before the weights are read.
const HEAD_SIZE: usize = 1024;

/// The family of the model that `config` describes.
///
/// # Errors
/// If it is not known.
pub(super) fn decoder(config: &Config) -> Result<&'static DecoderFamily> {
    let known: Vec<_> = DECODERS.iter().flat_map(|family| family.types).copied().collect();
    let name = config.family("decoder", &known)?;
    let found = DECODERS.iter().find(|family| family.types.contains(&name));
    Ok(found.unwrap_or(&LLAMA))
}

impl DecoderFamily {
    /// Sizes and options of a model with the context that its positions allow.
    pub fn options(&self, config: &Config) -> Result<CausalLmConfig> {
        let size = |keys: &[&str], default| config.size(keys, default);
        let or = |value: usize, other: usize| if value == 0 { other } else { value };
        let width = size(&["hidden_size", "n_embd"], self.width)?;
        let heads = size(&["num_attention_heads", "n_head"], self.heads)?;
        let kv_heads = size(&["num_key_value_heads"], or(self.kv_heads, heads))?;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || heads == 0 {
            let text = format!("{kv_heads} key heads do not divide {heads} heads");
            let keys = "\"num_key_value_heads\" and \"num_attention_heads\"";
            return Err(config.error(format!("{text}: {keys}")));
        }
        let head_size = size(&["head_dim"], or(self.head_size, width / heads))?;
        if head_size > HEAD_SIZE {
            let text = format!("\"head_dim\" is {head_size}, above {HEAD_SIZE}");
            return Err(config.error(text).help("config.json is damaged, or of another model"));
        }
        if head_size == 0 && config.has("head_dim") {
            return Err(config.error("\"head_dim\" is 0".to_string()).help("at least 2"));
        }
        if head_size == 0 || !config.has("head_dim") && width % heads != 0 && self.head_size == 0 {
            let text = format!("{heads} heads do not divide a width of {width}");
            return Err(config.error(text).help("see \"num_attention_heads\" and \"hidden_size\""));
        }
        let vocab = size(&["vocab_size"], self.vocab)?;
        let context = size(&["max_position_embeddings", "n_positions"], self.context)?;
        let n_layer = size(&["num_hidden_layers", "n_layer"], self.layers)?;
        let hidden = or(self.hidden, width.saturating_mul(4));
        let hidden = size(&["intermediate_size", "n_inner"], hidden)?;
        let bias = |bias: &Bias| match bias {
            Bias::Always(bias) => Ok(*bias),
            Bias::Key(key) => config.flag(key, false),
        };
        let cap = |key: &str, default: Option<f64>| {
            let cap = config.number_of(&[key])?.or(default.filter(|_| !config.is_null(key)));
            match cap {
                Some(c) if !(c > 0.0 && c.is_finite()) => {
                    Err(config.error(format!("{key:?} is {c}, not positive")))
                }
                cap => Ok(cap),
            }
        };
        let windows = self.windows(config, n_layer)?;
        let positions = match self.tensors {
            Tensors::Gpt2 => Positions::Learned,
            _ => {
                let (base, local) = self.theta;
                let (original, is_longrope) = (self.original, self.original.is_some());
                let usual = |key, base| Usual { key, base, original, is_longrope };
                let full = rotary(config, FULL, &usual("rope_theta", base), head_size)?;
                let local = local.map(|base| {
                    rotary(config, SLIDING, &usual("rope_local_base_freq", base), head_size)
                });
                Positions::Rotary { full, windowed: local.transpose()? }
            }
        };
        let scalar = config.number(&["query_pre_attn_scalar"], 256.0)?;
        let eps = ["rms_norm_eps", "layer_norm_epsilon"];
        let mut options = CausalLmConfig::new(vocab, context, n_layer, heads, width, hidden);
        options.n_kv_head = kv_heads;
        options.head_size = head_size;
        options.norm = self.norm;
        options.norm_eps = config.number(&eps, self.norm_eps)?;
        options.post_norms = self.post_norms;
        options.qk_norms = self.qk_norms;
        options.activation = config.activation(
            &["hidden_activation", "hidden_act", "activation_function"],
            self.activation,
        )?;
        options.gated = self.gated;
        options.qkv_bias = bias(&self.qkv_bias)?;
        options.out_bias = bias(&self.out_bias)?;
        options.mlp_bias = bias(&self.mlp_bias)?;
        options.positions = positions;
        options.windows = windows;
        if !(scalar > 0.0 && scalar.is_finite()) {
            let text = format!("\"query_pre_attn_scalar\" is {scalar}, not positive");
            return Err(config.error(text).help("the scores are divided by its root"));
        }
        options.scale = self.gemma.then_some(1.0 / scalar.sqrt());
        if !config.flag("scale_attn_weights", true)? {
            options.scale = Some(1.0);
        }
        options.scale_by_layer = config.flag("scale_attn_by_inverse_layer_idx", false)?;
        options.softcap = cap("attn_logit_softcapping", self.softcaps[0])?;
        options.logits_softcap = cap("final_logit_softcapping", self.softcaps[1])?;
        options.embed_scale = if self.gemma { (width as f64).sqrt() } else { 1.0 };
        options.tied = config.flag("tie_word_embeddings", self.tied)?;
        Ok(options)
    }

    /// The window of each layer.
    fn windows(&self, config: &Config, layers: usize) -> Result<Vec<Option<usize>>> {
        let window = match (&self.windows, config.is_null("sliding_window")) {
            (Windows::None, _) | (Windows::All(_) | Windows::Last, true) => return Ok(Vec::new()),
            (Windows::Pattern(_), true) => {
                return Err(config
                    .error("\"sliding_window\" is null".to_string())
                    .help("a number"));
            }
            (Windows::Last, _) if !config.flag("use_sliding_window", false)? => {
                return Ok(Vec::new());
            }
            (Windows::All(None), _) if !config.has("sliding_window") => return Ok(Vec::new()),
            (Windows::All(Some(default)), _) => config.size(&["sliding_window"], *default)?,
            _ => config.size(&["sliding_window"], self.window)?,
        };
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
                let text = format!("{} \"layer_types\" for {layers} layers", types.len());
                return Err(config.error(text));
            }
            Some(types) => types,
            None => {
                let first = config.size(&["max_window_layers"], 28)?;
                let period = match self.windows {
                    Windows::Pattern(default) => {
                        config.size(&["sliding_window_pattern"], default)?
                    }
                    _ => 0,
                };
                (0..layers.min(1 << 20))
                    .map(|i| match self.windows {
                        Windows::Last => i >= first,
                        Windows::Pattern(_) => period == 0 || (i + 1) % period != 0,
                        _ => true,
                    })
                    .collect()
            }
        };
        Ok(slides.into_iter().map(|slides| slides.then_some(window)).collect())
    }

    /// The names and the layout of the file.
    pub fn mapping(&self, options: &CausalLmConfig) -> Mapping {
        let mapping =
            ["*rotary_emb.inv_freq", "*.attn.bias", "*.attn.masked_bias", "vision_tower.*"]
                .iter()
                .chain(&["model.vision_tower.*", "*multi_modal_projector.*"])
                .fold(Mapping::new(), |mapping, name| mapping.skip(name));
        let mut mapping = mapping
            .rename("lm_head.weight", "lm_head.weight")
            .rename("language_model.lm_head.weight", "lm_head.weight");
        if options.tied {
            mapping = mapping.allow_unexpected("lm_head.weight");
        }
        if self.tensors == Tensors::Gpt2 {
            let linear = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"];
            for name in linear {
                mapping = mapping.transpose(&format!("*.{name}.weight"));
            }
            for prefix in ["transformer.", ""] {
                for (theirs, ours) in GPT2_NAMES {
                    for end in ["weight", "bias"] {
                        let ours = format!("{ours}.{end}");
                        mapping = mapping.rename(&format!("{prefix}{theirs}.{end}"), &ours);
                    }
                }
            }
            return mapping;
        }
        let [q, kv] = options.widths();
        // the first is that of files that are written
        let prefixes = ["model.", "", "language_model.model.", "model.language_model."];
        for prefix in prefixes {
            if self.tensors == Tensors::Separate {
                for end in ["weight", "bias"] {
                    let layer = |name: &str| format!("{prefix}layers.*.{name}_proj.{end}");
                    let [a, b, c] = ["self_attn.q", "self_attn.k", "self_attn.v"].map(layer);
                    let ours = format!("layers.*.self_attn.qkv_proj.{end}");
                    mapping = mapping.join(&[&a, &b, &c], &ours, &[q, kv, kv]);
                    let [gate, up] = ["mlp.gate", "mlp.up"].map(layer);
                    let ours = format!("layers.*.mlp.gate_up_proj.{end}");
                    mapping = mapping.join(&[&gate, &up], &ours, &[options.hidden; 2]);
                }
            }
            for name in ["embed_tokens.*", "layers.*.*", "norm.*"] {
                mapping = mapping.rename(&format!("{prefix}{name}"), name);
            }
        }
        mapping
    }
}

/// GPT-2's names and ours, without `.weight` and `.bias`.
const GPT2_NAMES: [(&str, &str); 9] = [
    ("wte", "embed_tokens"),
    ("wpe", "embed_positions"),
    ("h.*.ln_1", "layers.*.input_layernorm"),
    ("h.*.attn.c_attn", "layers.*.self_attn.qkv_proj"),
    ("h.*.attn.c_proj", "layers.*.self_attn.o_proj"),
    ("h.*.ln_2", "layers.*.post_attention_layernorm"),
    ("h.*.mlp.c_fc", "layers.*.mlp.gate_up_proj"),
    ("h.*.mlp.c_proj", "layers.*.mlp.down_proj"),
    ("ln_f", "norm"),
];
