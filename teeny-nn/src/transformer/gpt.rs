//! [`Gpt`]: the decoder of GPT-2, at any size: a [`CausalLm`] with GPT-2's options and names.
//!
//! Parameter names are the same as in Hugging Face's files, which [`teeny_formats::Mapping::gpt2`]
//! loads. The caller of [`CausalLm::generate`] passes the function that picks tokens.

use super::block::{BlockLayers, GPT2, Plain};
use super::causal_config::{CausalLmConfig, NormKind, Positions};
use super::causal_lm::CausalLm;
use crate::module::Activation;
use crate::options::setters;
use crate::store::Path;
use std::ops::Deref;
use teeny_core::{Error, Result};

/// Sizes and options of a [`Gpt`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GptConfig {
    /// V, the size of the vocabulary.
    pub vocab: usize,
    /// The largest number of tokens T.
    pub context: usize,
    /// The number of blocks.
    pub n_layer: usize,
    /// The number of heads per block.
    pub n_head: usize,
    /// E, the width.
    pub n_embd: usize,
    /// The probability of dropping, in training; 0.
    pub dropout: f64,
    /// Whether linear layers and norms have biases; true.
    pub bias: bool,
    /// Whether the head is the token embedding, or a weight `lm_head.weight` (V, E); true.
    pub tied: bool,
}

impl GptConfig {
    /// A model with biases and a tied head, without dropout.
    pub fn new(
        vocab: usize,
        context: usize,
        n_layer: usize,
        n_head: usize,
        n_embd: usize,
    ) -> GptConfig {
        GptConfig { vocab, context, n_layer, n_head, n_embd, dropout: 0.0, bias: true, tied: true }
    }

    setters! {
        /// Sets the size of the vocabulary.
        with_vocab(vocab: usize) => vocab = vocab;
        /// Sets the probability of dropping.
        with_dropout(p: f64) => dropout = p;
        /// Sets whether linear layers and norms have biases.
        with_bias(bias: bool) => bias = bias;
        /// Sets whether the head is the token embedding.
        with_tied(tied: bool) => tied = tied;
    }

    /// GPT-2 with 124 million parameters.
    pub fn gpt2() -> GptConfig {
        GptConfig::new(50_257, 1024, 12, 12, 768)
    }

    /// The floating-point operations of the matrix products in training on one sequence of `t`
    /// tokens: [`CausalLmConfig::flops`].
    pub fn flops(&self, t: usize) -> f64 {
        self.causal().flops(t)
    }

    /// The same as options of a [`CausalLm`].
    pub fn causal(&self) -> CausalLmConfig {
        let GptConfig { vocab, context, n_layer, n_head, n_embd, dropout, bias, tied } = *self;
        let hidden = n_embd.saturating_mul(4);
        CausalLmConfig {
            norm: NormKind::Layer { bias },
            norm_eps: 1e-5,
            activation: Activation::GeluTanh,
            gated: false,
            qkv_bias: bias,
            out_bias: bias,
            mlp_bias: bias,
            positions: Positions::Learned,
            tied,
            dropout,
            ..CausalLmConfig::new(vocab, context, n_layer, n_head, n_embd, hidden)
        }
    }
}

/// The decoder-only transformer of GPT-2, with the methods of [`CausalLm`].
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::transformer::{Gpt, GptConfig};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let gpt = Gpt::new(&store.root(), GptConfig::new(65, 32, 2, 4, 16))?;
/// let tokens = Tensor::new([[1i32, 2, 3]], store.device())?; // (B, T)
/// let logits = gpt.logits(&tokens)?; // (B, T, V)
/// assert_eq!(logits.shape()[..], [1, 3, 65]);
/// # Ok(()) }
/// ```
/// Source: Radford et al. 2019, also for the initial weights of the residual projections, with
/// standard deviation `0.02 / sqrt(2 n_layer)`.
pub struct Gpt {
    config: GptConfig,
    model: CausalLm,
}

impl Gpt {
    /// A model at `path`.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, `dropout` is outside `0..=1`, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: GptConfig) -> Result<Gpt> {
        path.build("Gpt::new", || Gpt::with_layers(path, config, &Plain))
    }

    /// A model at `path` whose blocks have the linear layers that `layers` makes, for ranks that
    /// share a model: `TensorParallel::gpt` of the crate `teeny-distributed`.
    ///
    /// # Errors
    /// As [`Gpt::new`], or of `layers`.
    #[track_caller]
    pub fn with_layers(path: &Path, config: GptConfig, layers: &dyn BlockLayers) -> Result<Gpt> {
        path.build("Gpt::with_layers", || {
            let GptConfig { n_head, n_embd, .. } = config;
            if n_head == 0 || !n_embd.is_multiple_of(n_head) {
                let text = format!("n_head = {n_head} does not divide n_embd = {n_embd}");
                let error = Error::value(text);
                return Err(error.help("n_embd is a multiple of n_head, which is not 0"));
            }
            let model = CausalLm::assemble(path, config.causal(), &GPT2, layers)?;
            Ok(Gpt { config, model })
        })
    }

    /// Sizes and options.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }
}

impl Deref for Gpt {
    type Target = CausalLm;

    fn deref(&self) -> &CausalLm {
        &self.model
    }
}
