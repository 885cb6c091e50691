//! [`Encoder`]: a text encoder opened from a folder, for embeddings and classes.

use super::head::{self, Head, HeadFamily, Task};
use super::model_files::resolve_model;
use super::options::{OpenOptions, open_functions};
use super::pooling::Pooling;
use super::source_folder::SourceFolder;
use super::texts::Texts;
use super::{encoder_family, gguf_keys};
use crate::lora::LayerNames;
use std::path::Path;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor, ToDevice};
use teeny_formats::config::Config;
use teeny_formats::{Gguf, TensorSource, Weights, is_gguf, open_weights};
use teeny_nn::store::{self, Store};
use teeny_nn::transformer::{self, EncoderInputs};
use teeny_text::{EncodeInput, PretrainedTokenizer};

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
/// use teeny_models::Encoder;
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
    /// The head, if the model predicts classes or masked tokens.
    pub head: Option<Head>,
    texts: Texts,
    /// The names of layers in files of Hugging Face.
    pub(super) names: LayerNames,
    /// None for a GGUF file.
    origin: Option<SourceFolder>,
    notes: Vec<String>,
}

open_functions! {
    Encoder,
    /// Opens the folder `path`, a GGUF file of BERT's architecture, or `ORG/NAME` in the local
    /// cache of the Hugging Face hub, as f32. Embeddings of a GGUF file are divided by their
    /// length.
}

impl Encoder {
    fn read(path: &Path, options: &OpenOptions, store: Store) -> Result<Encoder> {
        let path = resolve_model(path)?;
        let file = is_gguf(&path).then(|| Gguf::open(&path)).transpose()?.map(Arc::new);
        let (pooling, folder, config) = match &file {
            Some(file) => {
                let config = gguf_keys::encoder_config(&path, file)?;
                (gguf_keys::pooling(&config)?, path.clone(), config)
            }
            None => {
                let (pooling, folder) = Pooling::open(&path)?;
                let config = Config::open(&folder)?;
                (pooling, folder, config)
            }
        };
        let (mut config, family) = encoder_family::named(config)?;
        let is_new = match &options.labels {
            Some(labels) => {
                let class = config.text("class")?.unwrap_or_default();
                config.set_labels(&format!("{class}ForSequenceClassification"), labels)?
            }
            None => false,
        };
        let weights: Weights = match &file {
            Some(file) => file.clone(),
            None => open_weights(&folder, store.device())?,
        };
        let weights = options.renamed(weights)?;
        let tensors = weights.shapes();
        let has_pooler = tensors.iter().any(|(name, _)| name.ends_with("pooler.dense.weight"));
        let head = head::task(&config).and_then(|task| HeadFamily::of(family.heads_of, task));
        let own = head.map_or(Ok(None), |head| head.own(&*weights, store.device()))?;
        let head = head.filter(|_| own.is_none());
        let new_pooler = is_new && !has_pooler && head.is_some_and(HeadFamily::reads_pooler);
        let sizes = encoder_family::options(&config)?.with_pooler(has_pooler || new_pooler);
        let kinds = match file {
            Some(_) => ["gguf", "gguf-encoder"],
            None => ["config", "encoder"],
        };
        let mut notes = config.check(&kinds, &options.ignored)?;
        notes.extend(own);
        config.check_layers(sizes.n_layer, tensors.len())?;
        let width = sizes.layer.n_embd;
        let theirs = family.mapping(width, head);
        let mapping = match file {
            Some(_) => gguf_keys::encoder_mapping(width),
            // a head of other classes is skipped
            None if is_new => family.mapping(width, None),
            None => theirs.clone(),
        };
        let reading = match is_new {
            true => mapping.allow_missing("head.*").allow_missing("pooler.*"),
            false => mapping,
        };
        let make = |root: &store::Path| {
            let model = transformer::Encoder::new(root, sizes)?;
            let head = head.map(|head| head.build(root, &config, (&sizes.layer, sizes.vocab)));
            let head = head.transpose()?;
            if head.as_ref().is_some_and(|head| head.task() == Task::MaskedLm) {
                model.word().tie();
            }
            Ok((model, head))
        };
        let built = store.build_quantized(weights, &reading, options.blocks(), make);
        let ((model, head), _) = built.map_err(|e| config.noted(e))?;
        let unread = has_pooler && !head.as_ref().is_some_and(Head::reads_pooler);
        if unread {
            // neither embeddings nor logits depend on it
            for param in [store.get("pooler.weight")?, store.get("pooler.bias")?] {
                if param.is_trainable() {
                    param.set_trainable(false)?;
                }
            }
        }
        store.set_training(false);
        let texts = match &file {
            Some(file) => Texts::of(PretrainedTokenizer::from_gguf(file), model.context()),
            None => Texts::open([&path, &folder], model.context())?,
        };
        notes.extend(texts.tokenizer().iter().flat_map(|tokenizer| tokenizer.notes().to_vec()));
        // a head that is not read is not written either
        let class = config.first_text("architectures").filter(|_| head.is_none());
        let class = class.and_then(|name| Some(format!("{}Model", name.split_once("For")?.0)));
        let mut names = super::head::layer_names(theirs.clone(), &path, head.as_ref());
        names.modules_to_save.extend(new_pooler.then(|| "pooler".to_string()));
        names.unread.extend(unread.then(|| "pooler.dense".to_string()));
        let inside = folder.strip_prefix(&path).unwrap_or(Path::new("")).to_path_buf();
        let origin = SourceFolder { folder: path, inside, config, mapping: theirs, class };
        let origin = file.is_none().then_some(origin);
        Ok(Encoder { store, model, pooling, head, texts, names, origin, notes })
    }

    /// Whether the folder or GGUF file `path`, or `ORG/NAME` in the local cache, has an encoder of
    /// a family that this opens.
    pub fn knows(path: impl AsRef<Path>) -> bool {
        let config = resolve_model(path.as_ref()).and_then(|path| match is_gguf(&path) {
            true => gguf_keys::encoder_config(&path, &Gguf::open(&path)?),
            false => Config::open(&Pooling::open(&path)?.1),
        });
        config.and_then(|config| encoder_family::encoder(&config).map(drop)).is_ok()
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

impl Encoder {
    /// The tokenizer of the model.
    ///
    /// # Errors
    /// If the folder has none, or one of a kind that is not known.
    #[track_caller]
    pub fn tokenizer(&self) -> Result<&PretrainedTokenizer> {
        let _op = enter("tokenizer");
        self.texts.tokenizer()
    }

    /// The number of tokens of a text at most; longer texts are truncated.
    pub fn max_length(&self) -> usize {
        self.texts.max_length
    }

    /// The instruction of the model for texts of this kind, such as `query` or `passage`.
    pub fn prompt(&self, name: &str) -> Option<&str> {
        let found = self.texts.prompts.iter().find(|(own, _)| own == name);
        found.map(|(_, text)| text.as_str())
    }

    /// The number of tokens that [`Encoder::embed_texts`] computes for `text`: with special tokens
    /// and the model's default instruction, [`Encoder::max_length`] at most.
    ///
    /// # Errors
    /// If the model has no tokenizer.
    #[track_caller]
    pub fn token_count(&self, text: &str) -> Result<usize> {
        let _op = enter("token_count");
        let prompted = format!("{}{text}", self.texts.default_prompt);
        Ok(self.texts.encode(prompted.as_str().into(), self.max_length())?.len())
    }

    /// The tokens of a text to train on, `max_length` at most, and whether it was longer. Texts
    /// that are `prompted` have the model's default instruction before them.
    pub(super) fn tokens(
        &self,
        text: &str,
        max_length: usize,
        prompted: bool,
    ) -> Result<(Vec<u32>, bool)> {
        let prompt = if prompted { &self.texts.default_prompt[..] } else { "" };
        let text = format!("{prompt}{text}");
        let encode = |most| Ok::<_, Error>(self.texts.encode(text.as_str().into(), most)?.ids);
        let all = encode(usize::MAX)?;
        if all.len() <= max_length {
            return Ok((all, false));
        }
        Ok((encode(max_length)?, true))
    }

    /// The embeddings of `texts` → (N, E), each after the model's default instruction if it has
    /// one.
    ///
    /// # Errors
    /// If the model has no tokenizer, or the device fails.
    ///
    /// # Example
    /// ```no_run
    /// use teeny_models::Encoder;
    /// use teeny_nn::device::device;
    /// # fn main() -> teeny_core::Result<()> {
    /// let encoder = Encoder::open("sentence-transformers/all-MiniLM-L6-v2", device("cpu")?)?;
    /// let vectors = encoder.embed_texts(&["a cat", "a kitten", "the stock market"])?; // (3, 384)
    /// let similar = vectors.matmul(&vectors.t()?)?; // (3, 3), cosines
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn embed_texts(&self, texts: &[&str]) -> Result<Tensor> {
        let _op = enter("embed_texts");
        let width = self.model.config().layer.n_embd;
        let prompt = &self.texts.default_prompt;
        if prompt.is_empty() {
            return self.in_batches(texts, width, &|inputs| self.embed(inputs));
        }
        let texts: Vec<String> = texts.iter().map(|text| format!("{prompt}{text}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let left_out = self.left_out()?;
        self.in_batches(&texts, width, &|inputs| self.embed_after(left_out, inputs))
    }

    /// The number of tokens of the default instruction that are not pooled.
    pub(super) fn left_out(&self) -> Result<usize> {
        let prompt = &self.texts.default_prompt;
        if self.pooling.include_prompt || prompt.is_empty() {
            return Ok(0);
        }
        // without the end token, as sentence-transformers counts them
        Ok(self.texts.encode(prompt.as_str().into(), usize::MAX)?.len().saturating_sub(1))
    }

    /// [`Encoder::embed`] without the first `left_out` tokens of each text.
    pub(super) fn embed_after(
        &self,
        left_out: usize,
        inputs: &EncoderInputs<'_>,
    ) -> Result<Tensor> {
        if left_out == 0 {
            return self.embed(inputs);
        }
        let states = self.model.hidden(inputs)?; // (B, T, E)
        let [batch, length] = [states.shape()[0], states.shape()[1]];
        let is_text = Tensor::arange(0, length as i32, 1, &states)?.ge(left_out as i64)?; // (T)
        let mask = match inputs.mask {
            Some(mask) => is_text.where_cond(&mask.cast(DType::Bool)?, false)?,
            None => is_text.expand((batch, length))?,
        };
        self.pooling.apply(&states, Some(&mask))
    }

    /// The logits of the classes of texts, or of pairs of texts → (N, L).
    ///
    /// # Errors
    /// If the model is not one for classes of texts or has no tokenizer, or the device fails.
    #[track_caller]
    pub fn classify_texts<'a, T: Into<EncodeInput<'a>> + Copy>(
        &self,
        texts: &[T],
    ) -> Result<Tensor> {
        let _op = enter("classify_texts");
        let head = self.head.as_ref().filter(|head| head.task() == Task::Sequence);
        let Some(head) = head else {
            return Err(Error::value("the model has no head for classes of texts")
                .help("see \"architectures\" in its config.json; embed_texts is for embeddings"));
        };
        self.in_batches(texts, head.labels.len(), &|inputs| self.logits(inputs))
    }

    fn in_batches<'a, T: Into<EncodeInput<'a>> + Copy>(
        &self,
        texts: &[T],
        width: usize,
        compute: &dyn Fn(&EncoderInputs<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let inputs: Vec<EncodeInput<'_>> = texts.iter().map(|&text| text.into()).collect();
        let (like, types) = (self.store.empty()?, self.model.config().types > 1);
        self.texts.in_batches(&inputs, width, (&like, types), compute)
    }
}
