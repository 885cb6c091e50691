//! [`ModelFiles`]: a decoder whose parameters are not read yet.

use super::family::family_of;
use super::gguf_keys::SplitProjections;
use super::{GenerationConfig, decoder_family, gguf_keys};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teeny_core::{DeviceRef, Result};
use teeny_formats::config::Config;
use teeny_formats::{Gguf, Mapping, TensorSource, Weights, open_weights, resolve_path};
use teeny_nn::transformer::CausalLmConfig;
use teeny_text::PretrainedTokenizer;

/// A model whose parameters are not read yet.
pub(super) struct ModelFiles {
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

impl ModelFiles {
    /// The model of the folder `path`.
    pub fn folder(path: &Path, ignored: &[String], device: &DeviceRef) -> Result<ModelFiles> {
        let whole = Config::open(path)?;
        let family = decoder_family::decoder(&whole)?;
        // the language model of one that sees images too
        let config = whole.section("text_config").unwrap_or_else(|| whole.clone());
        let config = family_of(config, &family);
        let mut sizes = decoder_family::options(&config)?;
        let (generation, mut notes) = GenerationConfig::open(path, [&whole, &config])?;
        notes.extend(config.check(&["config", "decoder"], ignored)?);
        let weights = open_weights(path, device)?;
        let mut mapping = decoder_family::mapping(&config, &sizes)?;
        let names = ["lm_head.weight", "embed_tokens.weight"];
        if sizes.tied && differ(&mapping.apply(weights.clone())?, names, device)? {
            sizes.tied = false;
            mapping = decoder_family::mapping(&config, &sizes)?;
        }
        let tokenizer = PretrainedTokenizer::open(path);
        notes.extend(tokenizer.iter().flat_map(|tokenizer| tokenizer.notes().to_vec()));
        Ok(ModelFiles {
            config,
            is_folder: true,
            generation,
            notes,
            sizes,
            weights,
            mapping,
            tokenizer,
            #[cfg(feature = "chat")]
            template: super::ChatTemplate::open(path),
        })
    }

    /// The model of the GGUF file `path`.
    pub fn gguf(path: &Path, ignored: &[String], device: &DeviceRef) -> Result<ModelFiles> {
        let file = Gguf::open(path)?;
        let (config, sizes) = gguf_keys::options(path, file.metadata(), &file, device)?;
        let notes = config.check(&["gguf", "gguf-decoder"], ignored)?;
        let mapping = gguf_keys::mapping(&sizes, SplitProjections::of(&file));
        let generation = gguf_keys::generation(file.metadata());
        Ok(ModelFiles {
            config,
            is_folder: false,
            generation,
            notes,
            sizes,
            mapping,
            tokenizer: PretrainedTokenizer::from_gguf(&file),
            #[cfg(feature = "chat")]
            template: super::ChatTemplate::from_gguf(&file),
            weights: Arc::new(file),
        })
    }
}

/// Whether the weights have both tensors, and they are not the same: transformers 5 takes a head
/// that is not the embedding, whatever `tie_word_embeddings` says.
pub(super) fn differ(
    weights: &dyn TensorSource,
    names: [&str; 2],
    device: &DeviceRef,
) -> Result<bool> {
    let shapes = weights.shapes();
    if !names.iter().all(|name| shapes.iter().any(|(own, _)| own == name)) {
        return Ok(false);
    }
    let (head, embedding) = (weights.read(names[0], device)?, weights.read(names[1], device)?);
    Ok(head.shape() != embedding.shape() || head.ne(&embedding)?.any(..)?.item::<bool>()?)
}

/// Returns an error if the weights have heads of other sizes.
pub(super) fn check_heads(
    sizes: &CausalLmConfig,
    config: &Config,
    mapping: &Mapping,
    weights: &Weights,
) -> Result<()> {
    let out = "layers.0.self_attn.o_proj.weight";
    let (heads, size) = (sizes.n_head, sizes.head_size);
    match mapping.apply(weights).map_err(|e| config.noted(e))?.shape(out) {
        Some(shape) if shape.get(1) != Some(&sizes.widths()[0]) => {
            let text = format!("{heads} heads of size {size}, but {out} is {shape:?}");
            Err(config.error(text).help("see \"num_attention_heads\" and \"head_dim\""))
        }
        _ => Ok(()),
    }
}

/// The file or folder of the model `path`: a folder with one GGUF file and no configuration is that
/// file.
pub(super) fn resolve_model(path: &Path) -> Result<PathBuf> {
    let path = resolve_path(path)?;
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
