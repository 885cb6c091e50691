//! [`Encoder`]: an encoder of a folder, for embeddings.

use super::config::Config;
use super::encoder_family;
use super::head::{self, Head, HeadFamily};
use super::options::OpenOptions;
use super::pooling::Pooling;
use crate::state::open_weights;
use crate::store::{self, Store};
use crate::transformer::{self, EncoderInputs};
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, ToDevice};

/// A pretrained encoder: BERT, RoBERTa, XLM-RoBERTa, DistilBERT, and models for embeddings that are
/// made of them, such as MiniLM, BGE and E5.
///
/// In training mode the layers drop as PyTorch's `TransformerEncoderLayer` does, between the linear
/// layers too, with `hidden_dropout_prob` for attention weights as well.
///
/// # Example
/// ```no_run
/// use teeny_core::Tensor;
/// use teeny_nn::device::device;
/// use teeny_nn::pretrained::Encoder;
/// use teeny_nn::transformer::EncoderInputs;
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let encoder = Encoder::open("sentence-transformers/all-MiniLM-L6-v2", &device)?;
/// let tokens = Tensor::new([[101i32, 7592, 2088, 102]], &device)?; // [CLS] hello world [SEP]
/// let vectors = encoder.embed(&EncoderInputs::new(&tokens))?; // (1, 384), of length 1
/// # Ok(()) }
/// ```
pub struct Encoder {
    /// The parameters, in evaluation mode.
    pub store: Store,
    /// The model.
    pub model: transformer::Encoder,
    /// How the states of the tokens become the embedding of a text.
    pub pooling: Pooling,
    /// What the model predicts, if it is one for classes or masked tokens.
    pub head: Option<Head>,
}

impl Encoder {
    /// Opens the folder `path`, or `ORG/NAME` in the local cache of the Hugging Face hub, as f32.
    ///
    /// # Errors
    /// If a file is missing, damaged or of another kind, the family is not known, sizes in
    /// `config.json` contradict those of the weights, or tensors are missing.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, device: impl ToDevice) -> Result<Encoder> {
        let _op = enter("Encoder::open");
        Encoder::open_with(path, &OpenOptions::new(), device)
    }

    /// [`Encoder::open`] with options.
    ///
    /// # Errors
    /// As [`Encoder::open`].
    #[track_caller]
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        device: impl ToDevice,
    ) -> Result<Encoder> {
        let _op = enter("Encoder::open_with");
        let dtype = options.checked_dtype()?;
        let folder = crate::state::found(path.as_ref())?;
        let (config, pooling) = (Config::open(&folder)?, Pooling::open(&folder)?);
        let family = encoder_family::encoder(&config)?;
        let store = Store::with_dtype(device, dtype);
        let weights = options.renamed(open_weights(&folder, store.device())?)?;
        let tensors = weights.shapes();
        let has_pooler = tensors.iter().any(|(name, _)| name.ends_with("pooler.dense.weight"));
        let sizes = family.options(&config)?.with_pooler(has_pooler);
        config.check_layers(sizes.n_layer, tensors.len())?;
        let head = head::task(&config).and_then(|task| HeadFamily::of(family.heads_of, task));
        let mapping = family.mapping(sizes.layer.n_embd, head);
        let make = |root: &store::Path| {
            let model = transformer::Encoder::new(root, sizes)?;
            Ok((model, head.map(|head| head.build(root, &config, &sizes)).transpose()?))
        };
        let ((model, head), _) = store.build_from(weights, &mapping, make)?;
        store.set_training(false);
        Ok(Encoder { store, model, pooling, head })
    }

    /// The logits of the model's [`Head`]: of classes of a text (B, L), of classes of tokens (B, T,
    /// L), or of masked tokens (B, T, V).
    ///
    /// # Errors
    /// If the model has no head; as [`transformer::Encoder::hidden`].
    #[track_caller]
    pub fn logits(&self, inputs: &EncoderInputs<'_>) -> Result<Tensor> {
        let _op = enter("logits");
        let head = self.head.as_ref().ok_or_else(|| {
            Error::value("the model has no head for classes or masked tokens")
                .help("see \"architectures\" in its config.json; embed is for embeddings")
        })?;
        head.logits(&self.model, &self.model.hidden(inputs)?)
    }

    /// The embeddings of texts: the states of their tokens, pooled → (B, E).
    ///
    /// # Errors
    /// As [`transformer::Encoder::hidden`].
    #[track_caller]
    pub fn embed(&self, inputs: &EncoderInputs<'_>) -> Result<Tensor> {
        let _op = enter("embed");
        self.pooling.apply(&self.model.hidden(inputs)?, inputs.mask)
    }
}
