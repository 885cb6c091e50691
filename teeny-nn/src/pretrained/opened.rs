//! [`Opened`]: a decoder whose parameters are not read yet.

use super::gguf::Apart;
use super::{GenerationConfig, decoder_family, gguf};
use crate::config::Config;
use crate::state::{Gguf, Mapping, TensorSource, Weights, found, open_weights};
use crate::text::PretrainedTokenizer;
use crate::transformer::CausalLmConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teeny_core::{DeviceRef, Result};

/// A model whose parameters are not read yet.
pub(super) struct Opened {
    pub config: Config,
    /// Whether it is a folder, which is written as it is read.
    pub is_folder: bool,
    pub generation: GenerationConfig,
    /// Keys that are not known.
    pub notes: Vec<String>,
    pub sizes: CausalLmConfig,
    pub weights: Weights,
    pub mapping: Mapping,
    pub tokenizer: Result<PretrainedTokenizer>,
    #[cfg(feature = "chat")]
    pub template: Result<Option<super::ChatTemplate>>,
}

impl Opened {
    /// The model of the folder `path`.
    pub fn folder(path: &Path, ignored: &[String], device: &DeviceRef) -> Result<Opened> {
        let whole = Config::open(path)?;
        let family = decoder_family::decoder(&whole)?;
        // the language model of one that sees images too
        let config = whole.section("text_config").unwrap_or_else(|| whole.clone());
        let sizes = family.options(&config)?;
        let (generation, mut notes) = GenerationConfig::open(path, [&whole, &config], family.eos)?;
        notes.extend(config.check(&["config", "decoder"], ignored)?);
        let (weights, mapping) = (open_weights(path, device)?, family.mapping(&sizes));
        Ok(Opened {
            config,
            is_folder: true,
            generation,
            notes,
            sizes,
            weights,
            mapping,
            tokenizer: PretrainedTokenizer::open(path),
            #[cfg(feature = "chat")]
            template: super::ChatTemplate::open(path),
        })
    }

    /// The model of the GGUF file `path`.
    pub fn gguf(path: &Path, device: &DeviceRef) -> Result<Opened> {
        let file = Gguf::open(path)?;
        let (config, sizes) = gguf::options(path, file.metadata(), &file, device)?;
        let mapping = gguf::mapping(&sizes, Apart::of(&file));
        let generation = gguf::generation(file.metadata());
        Ok(Opened {
            config,
            is_folder: false,
            generation,
            notes: Vec::new(),
            sizes,
            mapping,
            tokenizer: PretrainedTokenizer::from_gguf(&file),
            #[cfg(feature = "chat")]
            template: super::ChatTemplate::from_gguf(&file),
            weights: Arc::new(file),
        })
    }
}

/// An error if the weights have heads of other sizes.
pub(super) fn check_heads(
    sizes: &CausalLmConfig,
    config: &Config,
    mapping: &Mapping,
    weights: &Weights,
) -> Result<()> {
    let out = "layers.0.self_attn.o_proj.weight";
    let (heads, size) = (sizes.n_head, sizes.head_size);
    match mapping
        .apply(weights)
        .map_err(|e| config.noted(e))?
        .shapes()
        .iter()
        .find(|(name, _)| name == out)
    {
        Some((_, shape)) if shape.get(1) != Some(&sizes.widths()[0]) => {
            let text = format!("{heads} heads of size {size}, but {out} is {shape:?}");
            Err(config.error(text).help("see \"num_attention_heads\" and \"head_dim\""))
        }
        _ => Ok(()),
    }
}

/// The file or folder of the model `path`: a folder with one GGUF file and no configuration is that
/// file.
pub(super) fn located(path: &Path) -> Result<PathBuf> {
    let path = found(path)?;
    Ok(gguf_in(&path).unwrap_or(path))
}

/// The only GGUF file of the folder `path`, if it has no `config.json`.
fn gguf_in(path: &Path) -> Option<PathBuf> {
    if path.join("config.json").exists() {
        return None;
    }
    let files = path.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = files.filter(|path| path.extension().is_some_and(|end| end == "gguf"));
    files.next().filter(|_| files.next().is_none())
}
