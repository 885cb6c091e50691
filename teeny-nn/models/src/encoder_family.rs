//! The options of an encoder that a configuration describes, and the names of its tensors.

use super::family::{family_of, known_family, with_names};
use super::head::{self, HeadFamily};
use teeny_core::Result;
use teeny_formats::Mapping;
use teeny_formats::config::Config;
use teeny_nn::transformer::{EncoderConfig, TransformerConfig};

/// The tensors of a family in the file.
pub(super) struct Names {
    /// The family's section of names.
    names: &'static str,
    /// The prefix of tensors of a model that has a head.
    prefix: &'static str,
    /// The heads.
    pub heads_of: &'static [HeadFamily],
}

const BERT: Names = Names { names: "bert", prefix: "bert.", heads_of: &head::BERT };
const ROBERTA: Names = Names { names: "bert", prefix: "roberta.", heads_of: &head::ROBERTA };
const DISTILBERT: Names =
    Names { names: "distilbert", prefix: "distilbert.", heads_of: &head::DISTILBERT };

/// The family of the model that `config` describes.
///
/// # Errors
/// If it is not known.
pub(super) fn encoder(config: &Config) -> Result<String> {
    known_family(config, "encoder", "bert")
}

/// `config` with the defaults of its family, and the names of the family.
///
/// # Errors
/// If the family is not known.
pub(super) fn named(config: Config) -> Result<(Config, &'static Names)> {
    let family = encoder(&config)?;
    let config =
        if config.family.defaults.is_empty() { family_of(config, &family) } else { config };
    let names = match config.text("names")? {
        Some("roberta") => &ROBERTA,
        Some("distilbert") => &DISTILBERT,
        _ => &BERT,
    };
    Ok((config, names))
}

/// The options of the layers of an encoder.
pub(super) fn layers(config: &Config) -> Result<TransformerConfig> {
    let mut layer = TransformerConfig::read(config)?;
    layer.dropout = config.probability(&["hidden_dropout_prob"], 0.0)?;
    let (width, heads) = (layer.n_embd, layer.n_head);
    if heads == 0 || width == 0 || width % heads != 0 {
        let [heads_key, width_key] =
            ["num_attention_heads", "hidden_size"].map(|key| config.shown(key));
        let text = format!("{heads} heads do not divide a width of {width}");
        return Err(config.error(format!("{text}: {heads_key:?} and {width_key:?}")));
    }
    Ok(layer)
}

/// Sizes and options of a model.
pub(super) fn options(config: &Config) -> Result<EncoderConfig> {
    let mut options = EncoderConfig::read(config)?;
    options.layer = layers(config)?;
    Ok(options)
}

impl Names {
    /// The names and the layout of the file, for a model of this width with this head. Other heads
    /// are skipped; encoder tensors unknown to the family keep their names, which no parameter has.
    pub fn mapping(&self, width: usize, head: Option<&HeadFamily>) -> Mapping {
        let mut mapping = Mapping::new().skip("*position_ids");
        // files are written with the first prefix: models with a head have one
        let prefixes = if head.is_some() { [self.prefix, ""] } else { ["", self.prefix] };
        for prefix in prefixes {
            mapping = with_names(mapping, self.names, [prefix, ""], [&[width; 3], &[]]);
        }
        if let Some(head) = head {
            mapping = head.mapping(mapping);
        }
        let roots = [self.prefix, "embeddings.", "encoder.", "transformer."];
        let kept = roots.iter().map(|root| format!("{root}*"));
        kept.fold(mapping, |mapping, names| mapping.rename(&names, &names)).skip("*")
    }
}
