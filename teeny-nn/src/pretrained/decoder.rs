//! [`Decoder`]: a language model of a folder or of a GGUF file.

use super::config::Config;
use super::options::OpenOptions;
use super::origin::Origin;
use super::{GenerationConfig, decoder_family, gguf};
use crate::state::{Gguf, Mapping, TensorSource, Weights, found, is_gguf, open_weights};
use crate::store::{self, Store};
use crate::text::PretrainedTokenizer;
use crate::transformer::{CausalLm, CausalLmConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Result, ToDevice};

/// The number of tokens that a model takes at most, unless [`OpenOptions::context`] says otherwise.
const CONTEXT: usize = 8192;

/// A pretrained language model: GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 2 and 3, Phi 3, and
/// models that are made of them, such as SmolLM and TinyLlama.
///
/// # Example
/// ```no_run
/// use teeny_core::Tensor;
/// use teeny_nn::device::device;
/// use teeny_nn::pretrained::Decoder;
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
    /// None for a GGUF file.
    origin: Option<Origin>,
    /// Why there is none, if there is none.
    pub(super) tokenizer: Result<PretrainedTokenizer>,
    #[cfg(feature = "chat")]
    pub(super) template: Result<Option<super::ChatTemplate>>,
}

impl Decoder {
    /// Opens the folder `path`, a GGUF file, or `ORG/NAME` in the local cache of the Hugging Face
    /// hub, as f32.
    ///
    /// # Errors
    /// If a file is missing, damaged or of another kind, the family is not known, sizes in
    /// `config.json` contradict those of the weights, or tensors are missing.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, device: impl ToDevice) -> Result<Decoder> {
        let _op = enter("Decoder::open");
        Decoder::open_with(path, &OpenOptions::new(), device)
    }

    /// [`Decoder::open`] with options.
    ///
    /// # Errors
    /// As [`Decoder::open`].
    #[track_caller]
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        device: impl ToDevice,
    ) -> Result<Decoder> {
        let _op = enter("Decoder::open_with");
        let store = Store::with_dtype(device, options.checked_dtype()?);
        let path = found(path.as_ref())?;
        let path = gguf_in(&path).unwrap_or(path);
        let opened = match is_gguf(&path) {
            true => open_gguf(&path, &store)?,
            false => open_folder(&path, &store)?,
        };
        let Opened { config, generation, mut sizes, weights, mapping, tokenizer, .. } = opened;
        let weights = options.renamed(weights)?;
        config.check_layers(sizes.n_layer, weights.shapes().len())?;
        check_heads(&sizes, &config, &mapping, &weights).map_err(|e| config.noted(e))?;
        let limit = sizes.context;
        sizes.context = options.context.unwrap_or(limit.min(CONTEXT));
        if sizes.learned_positions() {
            // a row of a table for each
            if let Some(context) = options.context.filter(|context| *context != limit) {
                let text = format!("a context of {context}, but positions are a table of {limit}");
                return Err(config.error(text).help("open the model without with_context"));
            }
            sizes.context = limit;
        }
        sizes.cache = options.cache;
        let make = |root: &store::Path| CausalLm::new(root, sizes);
        let (model, _) = store.build_from(weights, &mapping, make).map_err(|e| config.noted(e))?;
        options.quantize(&store)?;
        store.set_training(false);
        let origin = Origin { folder: path, config, mapping, class: None };
        let origin = opened.is_folder.then_some(origin);
        Ok(Decoder {
            store,
            model,
            generation,
            origin,
            tokenizer,
            #[cfg(feature = "chat")]
            template: opened.template,
        })
    }

    /// Writes the model into the folder `path`, which transformers opens: weights under the names
    /// of the family, in parts above 5 GB, `config.json`, and the other files of the folder that it
    /// was opened from.
    ///
    /// # Errors
    /// If it was opened from a GGUF file, a file cannot be written, or `path` is the folder that it
    /// was opened from.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("Decoder::save");
        let origin = self.origin.as_ref().ok_or_else(|| {
            Error::value("the model was opened from a GGUF file, which has another layout")
                .help("store.save keeps its parameters under the names of this crate")
        })?;
        origin.save(&self.store, path.as_ref())
    }
}

/// A model whose parameters are not read yet.
struct Opened {
    config: Config,
    /// Whether it is a folder, which is written as it is read.
    is_folder: bool,
    generation: GenerationConfig,
    sizes: CausalLmConfig,
    weights: Weights,
    mapping: Mapping,
    tokenizer: Result<PretrainedTokenizer>,
    #[cfg(feature = "chat")]
    template: Result<Option<super::ChatTemplate>>,
}

/// An error if the weights have heads of other sizes.
fn check_heads(
    sizes: &CausalLmConfig,
    config: &Config,
    mapping: &Mapping,
    weights: &Weights,
) -> Result<()> {
    let out = "layers.0.self_attn.o_proj.weight";
    let (heads, size) = (sizes.n_head, sizes.head_size);
    match mapping.apply(weights)?.shapes().iter().find(|(name, _)| name == out) {
        Some((_, shape)) if shape.get(1) != Some(&sizes.widths()[0]) => {
            let text = format!("{heads} heads of size {size}, but {out} is {shape:?}");
            Err(config.error(text).help("see \"num_attention_heads\" and \"head_dim\""))
        }
        _ => Ok(()),
    }
}

fn open_folder(path: &Path, store: &Store) -> Result<Opened> {
    let whole = Config::open(path)?;
    let family = decoder_family::decoder(&whole)?;
    // the language model of one that sees images too
    let config = whole.section("text_config").unwrap_or_else(|| whole.clone());
    let sizes = family.options(&config)?;
    let generation = GenerationConfig::open(path, [&whole, &config], family.eos)?;
    let (weights, mapping) = (open_weights(path, store.device())?, family.mapping(&sizes));
    Ok(Opened {
        config,
        is_folder: true,
        generation,
        sizes,
        weights,
        mapping,
        tokenizer: PretrainedTokenizer::open(path),
        #[cfg(feature = "chat")]
        template: super::ChatTemplate::open(path),
    })
}

fn open_gguf(path: &Path, store: &Store) -> Result<Opened> {
    let file = Gguf::open(path)?;
    let config = gguf::config(path, &file)?;
    let sizes = decoder_family::decoder(&config)?.options(&config)?;
    let sizes = gguf::adapt(sizes, &config, &file, store.device())?;
    let mapping = gguf::mapping(&sizes, &file);
    let generation = gguf::generation(&file);
    Ok(Opened {
        config,
        is_folder: false,
        generation,
        sizes,
        mapping,
        tokenizer: PretrainedTokenizer::from_gguf(&file),
        #[cfg(feature = "chat")]
        template: super::ChatTemplate::from_gguf(&file),
        weights: Arc::new(file),
    })
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
