//! [`Decoder`]: a language model opened from a folder or a GGUF file.

use super::model_files::{ModelFiles, check_heads, resolve_model};
use super::options::{OpenOptions, open_functions};
use super::source_folder::SourceFolder;
use super::{GenerationConfig, GgufModel, decoder_family};
use crate::lora::LayerNames;
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::{Error, Result, ToDevice};
use teeny_formats::gguf::{WriteOptions, save};
use teeny_formats::{TensorSource, is_gguf};
use teeny_nn::attention::{RopePairing, RopeScaling};
use teeny_nn::store::{self, Store};
use teeny_nn::transformer::{CausalLm, Positions};
use teeny_text::PretrainedTokenizer;

/// The number of tokens that a model takes at most, unless [`OpenOptions::context`] says otherwise.
const CONTEXT: usize = 8192;

/// A pretrained language model: GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 1 to 3, Phi 3, Granite,
/// StarCoder 2, and models that are made of them, such as SmolLM and TinyLlama.
///
/// # Example
/// ```no_run
/// use teeny_core::Tensor;
/// use teeny_nn::device::device;
/// use teeny_models::Decoder;
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let decoder = Decoder::open("HuggingFaceTB/SmolLM2-135M", &device)?;
/// let tokens = Tensor::new([[504i32, 3575, 282]], &device)?; // The capital of
/// let longer = decoder.model.generate(&tokens, 8, |logits| logits.argmax(-1))?; // (1, 11)
/// # Ok(()) }
/// ```
pub struct Decoder {
    /// The parameters, in evaluation mode.
    pub store: Store,
    /// The model.
    pub model: CausalLm,
    /// How the model's files say that tokens are chosen.
    pub generation: GenerationConfig,
    /// The names of layers in files of Hugging Face.
    pub(super) names: LayerNames,
    /// None for a GGUF file.
    origin: Option<SourceFolder>,
    notes: Vec<String>,
    /// The tokenizer, or why it could not be opened.
    pub(super) tokenizer: Result<PretrainedTokenizer>,
    #[cfg(feature = "chat")]
    pub(super) template: Result<Option<super::ChatTemplate>>,
}

open_functions! {
    Decoder,
    /// Opens the folder `path`, a GGUF file, or `ORG/NAME` in the local cache of the Hugging Face
    /// hub, as f32.
}

impl Decoder {
    fn read(path: &Path, options: &OpenOptions, store: Store) -> Result<Decoder> {
        let path = resolve_model(path)?;
        let opened = match is_gguf(&path) {
            true => ModelFiles::gguf(&path, &options.ignored, store.device())?,
            false => ModelFiles::folder(&path, &options.ignored, store.device())?,
        };
        let ModelFiles {
            config, generation, notes, mut sizes, weights, mapping, tokenizer, ..
        } = opened;
        let weights = options.renamed(weights)?;
        config.check_layers(sizes.n_layer, weights.shapes().len())?;
        check_heads(&sizes, &config, &mapping, &weights)?;
        let mut limit = sizes.context;
        if let Positions::Rotary { full, .. } = &sizes.positions
            && let RopeScaling::Dynamic { factor, .. } = full.scaling
        {
            limit = (limit as f64 * factor) as usize; // the length that it is made for
        }
        sizes.context = options.context.unwrap_or(limit.min(CONTEXT));
        if sizes.learned_positions() {
            // a row of a table for each
            if let Some(context) = options.context.filter(|context| *context != limit) {
                let text = format!("expected a context of {limit} (position table), got {context}");
                return Err(config.error(text).help("open the model without with_context"));
            }
            sizes.context = limit;
        }
        sizes.cache = options.cache;
        let adjacent_pairs = match &sizes.positions {
            Positions::Rotary { full, .. } if !opened.is_folder => {
                (full.pairing == RopePairing::Interleaved).then_some(sizes.head_size)
            }
            _ => None,
        };
        let names = LayerNames::new()
            .with_mapping(decoder_family::mapping(&config, &sizes)?)
            .with_task(Some("CAUSAL_LM".to_string()))
            .with_base_model(Some(path.display().to_string()))
            .with_adjacent_pairs(adjacent_pairs);
        let make = |root: &store::Path| CausalLm::new(root, sizes);
        let (model, _) = store
            .build_quantized(weights, &mapping, options.blocks(), make)
            .map_err(|e| config.noted(e))?;
        store.set_training(false);
        let origin =
            SourceFolder { folder: path, inside: PathBuf::new(), config, mapping, class: None };
        let origin = opened.is_folder.then_some(origin);
        Ok(Decoder {
            store,
            model,
            generation,
            notes,
            names,
            origin,
            tokenizer,
            #[cfg(feature = "chat")]
            template: opened.template,
        })
    }

    /// Writes the model as the GGUF file `path`, which llama.cpp opens: see [`GgufModel`]. Weights
    /// that are quantised keep their type, unless `options` say otherwise.
    ///
    /// # Errors
    /// If it was opened from a GGUF file, GGUF does not have its options or its tokenizer, or the
    /// file cannot be written.
    #[track_caller]
    pub fn save_gguf(&self, path: impl AsRef<Path>, options: &WriteOptions) -> Result<()> {
        let _op = enter("Decoder::save_gguf");
        let origin = self.origin.as_ref().ok_or_else(|| {
            Error::value("the model was opened from a GGUF file")
                .help("gguf::save writes a file with other types")
        })?;
        let model = GgufModel::of_store(&origin.folder, &self.store)?;
        save(path, model.metadata(), &model, options, self.store.device(), |_| {})
    }
}
