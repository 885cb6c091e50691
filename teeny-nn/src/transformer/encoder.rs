//! [`Encoder`]: the encoder of BERT and of its family, and of CLIP's texts.
//!
//! ```text
//! tokens (B, T) ─ word + position + type ─ norm ─ layers.0 ─ layers.1 ─ … ─ hidden states (B, T, E)
//!                                                     │
//!                                     TransformerEncoderLayer
//! ```
//!
//! Layers that begin with their norms (CLIP) have the norm of the embeddings after the last layer.
//! Positions start at 0, or, as in RoBERTa, at the id of the padding token plus 1; padding is not
//! counted. The crate `teeny-models` opens files of such models.

use super::{TransformerConfig, TransformerEncoderLayer};
use crate::attention::AttentionOptions;
use crate::dropout::Dropout;
use crate::embedding::{Embedding, EmbeddingOptions};
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::model_options::model_options;
use crate::module::Module;
use crate::norm::{LayerNorm, LayerNormOptions};
use crate::options::setters;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor};

model_options! {
    /// Sizes and options of an [`Encoder`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct EncoderConfig {
        /// V, the size of the vocabulary.
        vocab: usize = 0, "vocab_size";
        /// The number of positions that have an embedding.
        positions: usize = 0, "max_position_embeddings";
        /// The number of token types (the first and the second sentence of a pair); 0 for none.
        types: usize = 2, "type_vocab_size";
        /// The number of layers.
        n_layer: usize = 0, "num_hidden_layers";
        /// The layers: their width is E.
        layer: TransformerConfig = TransformerConfig::defaults();
        /// The token that is padding, for models whose first token has the position after its
        /// number; none.
        padding_idx: Option<usize> = None, "pad_token_id";
        /// Whether there is a pooler, a linear layer and tanh on the state of the first token;
        /// false.
        pooler: bool = false;
        /// Whether a token sees only itself and those before it; false.
        causal: bool = false, "causal";
    }
}

impl EncoderConfig {
    /// These sizes, with two token types and without a pooler.
    pub fn new(
        vocab: usize,
        positions: usize,
        n_layer: usize,
        layer: TransformerConfig,
    ) -> EncoderConfig {
        EncoderConfig { vocab, positions, n_layer, layer, ..EncoderConfig::defaults() }
    }

    setters! {
        /// Sets the number of token types.
        with_types(types: usize) => types = types;
        /// Sets the token after whose number positions begin.
        with_padding_idx(padding_idx: usize) => padding_idx = Some(padding_idx);
        /// Sets whether there is a pooler.
        with_pooler(pooler: bool) => pooler = pooler;
        /// Sets whether a token sees only itself and those before it.
        with_causal(causal: bool) => causal = causal;
    }
}

/// The tokens of an encoder, their types and their mask.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EncoderInputs<'a> {
    /// (B, T) of integers.
    pub tokens: &'a Tensor,
    /// (B, T) of bool: true for a token, false for padding; all are tokens.
    pub mask: Option<&'a Tensor>,
    /// (B, T) of integers: 0 for the first sentence of a pair, 1 for the second; all are 0.
    pub types: Option<&'a Tensor>,
}

impl<'a> EncoderInputs<'a> {
    /// Tokens (B, T) without padding, of one sentence each.
    pub fn new(tokens: &'a Tensor) -> EncoderInputs<'a> {
        EncoderInputs { tokens, mask: None, types: None }
    }

    setters! {
        /// Sets which tokens are not padding.
        with_mask(mask: &'a Tensor) => mask = Some(mask);
        /// Sets the types of the tokens.
        with_types(types: &'a Tensor) => types = Some(types);
    }
}

/// The encoder of BERT: embeddings and layers with full attention, or causal attention.
///
/// The norm `embeddings.norm` follows the embeddings. If the norms of layers come first, a norm
/// called `norm` follows the last layer instead.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::Activation;
/// use teeny_nn::transformer::{Encoder, EncoderConfig, EncoderInputs, TransformerConfig};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let layer = TransformerConfig::new(32, 4, 64).with_activation(Activation::Gelu);
/// let encoder = Encoder::new(&store.root(), EncoderConfig::new(100, 16, 2, layer))?;
/// let tokens = Tensor::new([[7i32, 8, 9], [5, 6, 0]], store.device())?; // (B, T)
/// let mask = Tensor::new([[true, true, true], [true, true, false]], store.device())?;
/// let states = encoder.hidden(&EncoderInputs::new(&tokens).with_mask(&mask))?; // (B, T, E)
/// assert_eq!(states.shape()[..], [2, 3, 32]);
/// # Ok(()) }
/// ```
/// Source: Devlin et al. 2018, arXiv:1810.04805; Liu et al. 2019, arXiv:1907.11692.
pub struct Encoder {
    config: EncoderConfig,
    word: Embedding,
    position: Embedding,
    types: Option<Embedding>,
    norm: LayerNorm,
    dropout: Dropout,
    layers: Vec<TransformerEncoderLayer>,
    pooler: Option<Linear>,
}

impl Encoder {
    /// A model at `path`.
    ///
    /// # Errors
    /// If the number of heads does not divide the width, `dropout` is outside `0..=1`, or names are
    /// taken.
    #[track_caller]
    pub fn new(path: &Path, config: EncoderConfig) -> Result<Encoder> {
        path.build("Encoder::new", || {
            let TransformerConfig { n_embd, norm_eps, dropout, .. } = config.layer;
            let init = Init::GPT2; // of BERT and ViT too
            let embeddings = path.at("embeddings");
            let table = |name: &str, count: usize| {
                let options = EmbeddingOptions::new().with_init(init);
                Embedding::with_options(&embeddings.at(name), count, n_embd, options)
            };
            let (word, position) =
                (table("word", config.vocab)?, table("position", config.positions)?);
            let types = (config.types > 0).then(|| table("type", config.types)).transpose()?;
            let options = LayerNormOptions::new().with_eps(norm_eps);
            let first = config.layer.norm_first;
            let norm_path = if first { path.at("norm") } else { embeddings.at("norm") };
            let norm = LayerNorm::with_options(&norm_path, n_embd, options)?;
            let layers = (0..config.n_layer)
                .map(|i| TransformerEncoderLayer::new(&path.at("layers").at(i), config.layer))
                .collect::<Result<_>>()?;
            let options = LinearOptions::new().with_weight_init(init);
            let pooler = config
                .pooler
                .then(|| Linear::with_options(&path.at("pooler"), n_embd, n_embd, options));
            let (pooler, dropout) = (pooler.transpose()?, Dropout::new(path, dropout)?);
            Ok(Encoder { config, word, position, types, norm, dropout, layers, pooler })
        })
    }

    /// Sizes and options.
    pub fn config(&self) -> &EncoderConfig {
        &self.config
    }

    /// The number of tokens that a sequence has at most.
    pub fn context(&self) -> usize {
        self.config.positions - self.first_position().min(self.config.positions)
    }

    /// The word embedding (V, E).
    pub fn word(&self) -> &crate::store::Param {
        &self.word.weight
    }

    fn first_position(&self) -> usize {
        self.config.padding_idx.map_or(0, |id| id.saturating_add(1))
    }

    /// The states of the last layer, or of the norm after it → (B, T, E). The states of padding
    /// mean nothing.
    ///
    /// # Errors
    /// If shapes do not fit, there are more tokens than positions, or a token or a type is not in
    /// its table.
    #[track_caller]
    pub fn hidden(&self, inputs: &EncoderInputs<'_>) -> Result<Tensor> {
        let _op = enter("encoder");
        self.check(inputs)?;
        let mut x = self.word.forward(inputs.tokens)?.add(&self.positions(inputs.tokens)?)?;
        if let Some(table) = &self.types {
            let types = match inputs.types {
                Some(types) => table.forward(types)?, // (B, T, E)
                None => table.range(0, 1)?,           // (1, E)
            };
            x = x.add(&types)?;
        }
        let first = self.config.layer.norm_first;
        let embedded = if first { x } else { self.norm.forward(&x)? };
        let mut x = self.dropout.forward(&embedded)?; // (B, T, E)
        for layer in &self.layers {
            let (causal, key_mask) = (self.config.causal, inputs.mask);
            x = layer.attend(&x, AttentionOptions { causal, key_mask, ..Default::default() })?;
        }
        if first { self.norm.forward(&x) } else { Ok(x) }
    }

    /// `tanh` of the pooler's linear layer on the states (B, T, E) of the first tokens → (B, E).
    ///
    /// # Errors
    /// If the model has no pooler, or shapes do not fit.
    #[track_caller]
    pub fn pooled(&self, states: &Tensor) -> Result<Tensor> {
        let _op = enter("pooler");
        let pooler = self.pooler.as_ref().ok_or_else(|| {
            Error::value("the model has no pooler").help("EncoderConfig::with_pooler makes one")
        })?;
        pooler.forward(&states.at(1, 0)?)?.tanh()
    }

    fn check(&self, inputs: &EncoderInputs<'_>) -> Result<()> {
        let shape = *inputs.tokens.shape();
        if shape.len() != 2 || inputs.tokens.numel() == 0 {
            return Err(Error::shape(format!("tokens are (B, T) with T > 0, not {shape}"))
                .help("tokens.unsqueeze(0)? is a batch of one"));
        }
        if shape[1] > self.context() {
            let text =
                format!("{} tokens are more than the context of {}", shape[1], self.context());
            return Err(Error::value(text).help("keep the first ones: tokens.slice(1, ..context)"));
        }
        for (what, other) in [("the mask", inputs.mask), ("types", inputs.types)] {
            if let Some(other) = other.filter(|other| *other.shape() != shape) {
                return Err(Error::shape(format!("tokens are {shape}, {what} {}", other.shape()))
                    .help("one value for each token: (B, T)"));
            }
        }
        if inputs.types.is_some() && self.types.is_none() {
            return Err(Error::value("the model has no token types")
                .help("models such as DistilBERT see no difference between two sentences"));
        }
        Ok(())
    }

    /// The embeddings of the positions of `tokens` (B, T) → (T, E) or (B, T, E).
    fn positions(&self, tokens: &Tensor) -> Result<Tensor> {
        let Some(padding) = self.config.padding_idx else {
            return self.position.range(0, tokens.shape()[1]);
        };
        let real = tokens.ne(padding as i64)?.cast(DType::I32)?; // (B, T)
        let counted = real.cumsum(1)?.cast(DType::I32)?.mul(&real)?; // 1, 2, .. and 0 for padding
        self.position.forward(&counted.add(padding as i64)?)
    }
}
