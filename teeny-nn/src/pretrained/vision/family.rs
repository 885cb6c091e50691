//! The options of encoders of images, and the names of their tensors and of CLIP's texts.

use crate::config::Config;
use crate::pretrained::encoder_family::layers;
use crate::state::Mapping;
use crate::transformer::VisionConfig;
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

/// Sizes and options of an encoder of images.
pub(super) fn vision(config: &Config) -> Result<VisionConfig> {
    let options = VisionConfig { layer: layers(config)?, ..VisionConfig::read(config)? };
    if options.patches() == 0 {
        let (image, patch) = (options.image, options.patch);
        return Err(config.error(format!(
            "images of {image:?} have no patch of {patch:?}: \"image_size\" and \"patch_size\""
        )));
    }
    Ok(options)
}
