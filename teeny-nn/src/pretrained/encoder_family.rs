//! The families of encoders: what each calls its sizes and its tensors.

use super::head::{self, HeadFamily};
use crate::config::Config;
use crate::module::Activation;
use crate::state::Mapping;
use crate::transformer::{EncoderConfig, TransformerConfig};
use teeny_core::Result;

/// The names of a family: keys of `config.json` with their defaults, tensors.
pub(super) struct EncoderFamily {
    /// Values of `model_type`, and what names of classes in `architectures` begin with.
    types: &'static [(&'static str, &'static str)],
    /// The prefix of tensors of a model that has a head.
    prefix: &'static str,
    /// Keys with defaults.
    width: (&'static str, usize),
    layers: (&'static str, usize),
    heads: (&'static str, usize),
    hidden: (&'static str, usize),
    activation: &'static str,
    dropout: &'static str,
    vocab: usize,
    norm_eps: (&'static str, f64),
    token_types: usize,
    padding_idx: Option<usize>,
    /// The projections to queries, keys and values of layer `*`.
    qkv: [&'static str; 3],
    /// Other names in the file and here, without `.weight` and `.bias`.
    layer: &'static [(&'static str, &'static str)],
    /// The heads.
    pub heads_of: &'static [HeadFamily],
}

const BERT: EncoderFamily = EncoderFamily {
    types: &[("bert", "Bert")],
    prefix: "bert.",
    width: ("hidden_size", 768),
    layers: ("num_hidden_layers", 12),
    heads: ("num_attention_heads", 12),
    hidden: ("intermediate_size", 3072),
    activation: "hidden_act",
    dropout: "hidden_dropout_prob",
    vocab: 30_522,
    norm_eps: ("layer_norm_eps", 1e-12),
    token_types: 2,
    padding_idx: None,
    qkv: [
        "encoder.layer.*.attention.self.query",
        "encoder.layer.*.attention.self.key",
        "encoder.layer.*.attention.self.value",
    ],
    layer: &[
        ("encoder.layer.*.attention.output.dense", "layers.*.self_attn.out_proj"),
        ("encoder.layer.*.attention.output.LayerNorm", "layers.*.norm1"),
        ("encoder.layer.*.intermediate.dense", "layers.*.linear1"),
        ("encoder.layer.*.output.dense", "layers.*.linear2"),
        ("encoder.layer.*.output.LayerNorm", "layers.*.norm2"),
    ],
    heads_of: &head::BERT,
};

/// The known families. A new one is a row.
const ENCODERS: [EncoderFamily; 4] = [
    BERT,
    EncoderFamily {
        types: &[("roberta", "Roberta")],
        prefix: "roberta.",
        vocab: 50_265,
        padding_idx: Some(1),
        heads_of: &head::ROBERTA,
        ..BERT
    },
    EncoderFamily {
        types: &[("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert")],
        prefix: "roberta.",
        padding_idx: Some(1),
        heads_of: &head::ROBERTA,
        ..BERT
    },
    EncoderFamily {
        types: &[("distilbert", "DistilBert")],
        prefix: "distilbert.",
        width: ("dim", 768),
        layers: ("n_layers", 6),
        heads: ("n_heads", 12),
        hidden: ("hidden_dim", 3072),
        activation: "activation",
        dropout: "dropout",
        token_types: 0,
        norm_eps: ("", 1e-12), // no key
        qkv: [
            "transformer.layer.*.attention.q_lin",
            "transformer.layer.*.attention.k_lin",
            "transformer.layer.*.attention.v_lin",
        ],
        layer: &[
            ("transformer.layer.*.attention.out_lin", "layers.*.self_attn.out_proj"),
            ("transformer.layer.*.sa_layer_norm", "layers.*.norm1"),
            ("transformer.layer.*.ffn.lin1", "layers.*.linear1"),
            ("transformer.layer.*.ffn.lin2", "layers.*.linear2"),
            ("transformer.layer.*.output_layer_norm", "layers.*.norm2"),
        ],
        heads_of: &head::DISTILBERT,
        ..BERT
    },
];

/// The family of the model that `config` describes, and what the names of its classes begin with.
///
/// # Errors
/// If it is not known, or the weights are quantised by a method of their own.
pub(super) fn encoder(config: &Config) -> Result<(&'static EncoderFamily, &'static str)> {
    let all = || ENCODERS.iter().flat_map(|family| family.types.iter().map(move |t| (family, t)));
    let known: Vec<_> = all().map(|(_, (name, _))| *name).collect();
    let name = config.family("encoder", &known)?;
    let found = all().find(|(_, (own, _))| *own == name);
    Ok(found.map_or((&ENCODERS[0], "Bert"), |(family, (_, class))| (family, *class)))
}

impl EncoderFamily {
    /// Sizes and options of a model.
    pub fn options(&self, config: &Config) -> Result<EncoderConfig> {
        let size = |(key, default): (&str, usize)| config.size(&[key], default);
        let (width, heads) = (size(self.width)?, size(self.heads)?);
        if heads == 0 || width % heads != 0 {
            let text = format!("{heads} heads do not divide a width of {width}");
            return Err(config.error(format!("{text}: {:?} and {:?}", self.heads.0, self.width.0)));
        }
        let layer = TransformerConfig::new(width, heads, size(self.hidden)?)
            .with_activation(config.activation(&[self.activation], Activation::Gelu)?)
            .with_dropout(config.probability(&[self.dropout], 0.1)?)
            .with_norm_eps(config.number(&[self.norm_eps.0], self.norm_eps.1)?);
        let positions = config.size(&["max_position_embeddings"], 512)?;
        let vocab = config.size(&["vocab_size"], self.vocab)?;
        let types = match self.token_types {
            0 => 0,
            default => config.size(&["type_vocab_size"], default)?,
        };
        let options = EncoderConfig::new(vocab, positions, size(self.layers)?, layer);
        let padding = match self.padding_idx {
            Some(default) => Some(config.size(&["pad_token_id"], default)?),
            None => None,
        };
        Ok(EncoderConfig { padding_idx: padding, types, ..options })
    }

    /// The names and the layout of the file, for a model of this width with this head. Other heads
    /// are skipped; other tensors of the encoder than those of the family keep their names, which
    /// no parameter has.
    pub fn mapping(&self, width: usize, head: Option<&HeadFamily>) -> Mapping {
        let mut mapping = Mapping::new().skip("*position_ids");
        // the first is that of files that are written: those with a head have the prefix
        let prefixes = if head.is_some() { [self.prefix, ""] } else { ["", self.prefix] };
        for prefix in prefixes {
            for (theirs, ours) in [
                ("embeddings.word_embeddings.weight", "embeddings.word.weight"),
                ("embeddings.position_embeddings.weight", "embeddings.position.weight"),
                ("embeddings.token_type_embeddings.weight", "embeddings.type.weight"),
            ] {
                mapping = mapping.rename(&format!("{prefix}{theirs}"), ours);
            }
            // files of 2018 call the weight and the bias of a norm gamma and beta
            for (end, own) in
                [("weight", "weight"), ("bias", "bias"), ("gamma", "weight"), ("beta", "bias")]
            {
                let parts = self.qkv.map(|name| format!("{prefix}{name}.{own}"));
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                mapping =
                    mapping.join(&parts, &format!("layers.*.self_attn.in_proj_{own}"), &[width; 3]);
                let others =
                    [("embeddings.LayerNorm", "embeddings.norm"), ("pooler.dense", "pooler")];
                for (theirs, ours) in self.layer.iter().chain(&others) {
                    mapping = mapping
                        .rename(&format!("{prefix}{theirs}.{end}"), &format!("{ours}.{own}"));
                }
            }
        }
        if let Some(head) = head {
            mapping = head.mapping(mapping);
        }
        let roots = [self.prefix, "embeddings.", "encoder.", "transformer."];
        let kept = roots.iter().map(|root| format!("{root}*"));
        kept.fold(mapping, |mapping, names| mapping.rename(&names, &names)).skip("*")
    }
}
