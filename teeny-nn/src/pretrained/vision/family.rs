//! The families of encoders of images, and CLIP's encoder of texts: keys, defaults, names.

use crate::config::Config;
use crate::module::Activation;
use crate::state::Mapping;
use crate::transformer::{EncoderConfig, TransformerConfig, VisionConfig};
use teeny_core::Result;

/// Names of tensors: in the file and here.
pub(super) struct Names {
    /// The projections to queries, keys and values of layer `*`.
    qkv: [&'static str; 3],
    /// Layers, without `.weight` and `.bias`.
    layers: &'static [(&'static str, &'static str)],
    /// Other tensors.
    tensors: &'static [(&'static str, &'static str)],
}

/// The defaults of a family.
pub(super) struct Family {
    width: usize,
    layers: usize,
    heads: usize,
    hidden: usize,
    activation: Activation,
    norm_eps: f64,
    dropout: &'static str,
    patch: usize,
    /// Whether it is [`VisionConfig::pre_norm`], with CLIP's shapes, or ViT.
    clip: bool,
}

pub(super) const VIT: Family = Family {
    width: 768,
    layers: 12,
    heads: 12,
    hidden: 3072,
    activation: Activation::Gelu,
    norm_eps: 1e-12,
    dropout: "hidden_dropout_prob",
    patch: 16,
    clip: false,
};

pub(super) const CLIP_VISION: Family = Family {
    activation: Activation::QuickGelu,
    norm_eps: 1e-5,
    dropout: "attention_dropout",
    patch: 32,
    clip: true,
    ..VIT
};

pub(super) const CLIP_TEXT: Family = Family { width: 512, heads: 8, hidden: 2048, ..CLIP_VISION };

pub(super) const VIT_NAMES: Names = Names {
    qkv: [
        "encoder.layer.*.attention.attention.query",
        "encoder.layer.*.attention.attention.key",
        "encoder.layer.*.attention.attention.value",
    ],
    layers: &[
        ("encoder.layer.*.attention.output.dense", "layers.*.self_attn.out_proj"),
        ("encoder.layer.*.layernorm_before", "layers.*.norm1"),
        ("encoder.layer.*.layernorm_after", "layers.*.norm2"),
        ("encoder.layer.*.intermediate.dense", "layers.*.linear1"),
        ("encoder.layer.*.output.dense", "layers.*.linear2"),
        ("embeddings.patch_embeddings.projection", "embeddings.patch"),
        ("layernorm", "norm"),
        ("pooler.dense", "pooler"),
    ],
    tensors: &[
        ("embeddings.cls_token", "embeddings.class"),
        ("embeddings.position_embeddings", "embeddings.position"),
    ],
};

/// Those that modules of transformers 5 have, which files of `state_dict` keep.
pub(super) const NEW_VIT_NAMES: Names = Names {
    qkv: ["layers.*.attention.q_proj", "layers.*.attention.k_proj", "layers.*.attention.v_proj"],
    layers: &[
        ("layers.*.attention.o_proj", "layers.*.self_attn.out_proj"),
        ("layers.*.layernorm_before", "layers.*.norm1"),
        ("layers.*.layernorm_after", "layers.*.norm2"),
        ("layers.*.mlp.fc1", "layers.*.linear1"),
        ("layers.*.mlp.fc2", "layers.*.linear2"),
    ],
    tensors: &[],
};

const CLIP_QKV: [&str; 3] = [
    "encoder.layers.*.self_attn.q_proj",
    "encoder.layers.*.self_attn.k_proj",
    "encoder.layers.*.self_attn.v_proj",
];
const CLIP_OUT: (&str, &str) =
    ("encoder.layers.*.self_attn.out_proj", "layers.*.self_attn.out_proj");
const CLIP_NORM1: (&str, &str) = ("encoder.layers.*.layer_norm1", "layers.*.norm1");
const CLIP_NORM2: (&str, &str) = ("encoder.layers.*.layer_norm2", "layers.*.norm2");
const CLIP_FC1: (&str, &str) = ("encoder.layers.*.mlp.fc1", "layers.*.linear1");
const CLIP_FC2: (&str, &str) = ("encoder.layers.*.mlp.fc2", "layers.*.linear2");

pub(super) const CLIP_VISION_NAMES: Names = Names {
    qkv: CLIP_QKV,
    layers: &[
        CLIP_OUT,
        CLIP_NORM1,
        CLIP_NORM2,
        CLIP_FC1,
        CLIP_FC2,
        ("embeddings.patch_embedding", "embeddings.patch"),
        ("pre_layrnorm", "embeddings.norm"),
        ("pre_layernorm", "embeddings.norm"),
        ("post_layernorm", "norm"),
    ],
    tensors: &[
        ("embeddings.class_embedding", "embeddings.class"),
        ("embeddings.position_embedding.weight", "embeddings.position"),
    ],
};

pub(super) const CLIP_TEXT_NAMES: Names = Names {
    qkv: CLIP_QKV,
    layers: &[
        CLIP_OUT,
        CLIP_NORM1,
        CLIP_NORM2,
        CLIP_FC1,
        CLIP_FC2,
        ("embeddings.token_embedding", "embeddings.word"),
        ("embeddings.position_embedding", "embeddings.position"),
        ("final_layer_norm", "norm"),
    ],
    tensors: &[],
};

impl Names {
    /// `mapping` with the names of the file after `theirs` and of the parameters after `ours`, for
    /// a model of this width.
    pub fn mapping(&self, mut mapping: Mapping, theirs: &str, ours: &str, width: usize) -> Mapping {
        for end in ["weight", "bias"] {
            let parts = self.qkv.map(|name| format!("{theirs}{name}.{end}"));
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let joined = format!("{ours}layers.*.self_attn.in_proj_{end}");
            mapping = mapping.join(&parts, &joined, &[width; 3]);
            for (name, own) in self.layers {
                let (name, own) = (format!("{theirs}{name}.{end}"), format!("{ours}{own}.{end}"));
                mapping = mapping.rename(&name, &own);
            }
        }
        self.tensors.iter().fold(mapping, |mapping, (name, own)| {
            mapping.rename(&format!("{theirs}{name}"), &format!("{ours}{own}"))
        })
    }
}

impl Family {
    /// The number of layers, and their sizes and options.
    fn layers(&self, config: &Config) -> Result<(usize, TransformerConfig)> {
        let size = |key: &str, default: usize| config.size(&[key], default);
        let width = size("hidden_size", self.width)?;
        let heads = size("num_attention_heads", self.heads)?;
        if heads == 0 || width == 0 || width % heads != 0 {
            return Err(config.error(format!(
                "{heads} heads do not divide a width of {width}: \"num_attention_heads\" and \
                 \"hidden_size\""
            )));
        }
        let hidden = size("intermediate_size", self.hidden)?;
        let layer = TransformerConfig::new(width, heads, hidden)
            .with_activation(config.activation(&["hidden_act"], self.activation)?)
            .with_norm_eps(config.number(&["layer_norm_eps"], self.norm_eps)?)
            .with_dropout(config.probability(&[self.dropout], 0.0)?)
            .with_qkv_bias(self.clip || config.flag("qkv_bias", true)?)
            .with_norm_first(true);
        Ok((size("num_hidden_layers", self.layers)?, layer))
    }

    /// Sizes and options of an encoder of images.
    pub fn vision(&self, config: &Config) -> Result<VisionConfig> {
        let (n_layer, layer) = self.layers(config)?;
        let sides = |key: &str, default: usize| {
            config.sides(key).map(|sides| sides.unwrap_or([default; 2]))
        };
        let (image, patch) = (sides("image_size", 224)?, sides("patch_size", self.patch)?);
        let options = VisionConfig::new(image, patch, n_layer, layer);
        if options.patches() == 0 {
            return Err(config.error(format!(
                "images of {image:?} have no patch of {patch:?}: \"image_size\" and \"patch_size\""
            )));
        }
        let clip = self.clip;
        Ok(VisionConfig { patch_bias: !clip, pre_norm: clip, batch_axes: !clip, ..options })
    }

    /// Sizes and options of an encoder of texts.
    pub fn text(&self, config: &Config) -> Result<EncoderConfig> {
        let (n_layer, layer) = self.layers(config)?;
        let vocab = config.size(&["vocab_size"], 49_408)?;
        let positions = config.size(&["max_position_embeddings"], 77)?;
        let options = EncoderConfig::new(vocab, positions, n_layer, layer);
        Ok(options.with_types(0).with_causal(true))
    }
}
