//! Transformers: PyTorch's encoder and decoder layers; [`Encoder`], that of BERT and of CLIP's
//! texts; [`VisionEncoder`], that of images in ViT and CLIP; [`CausalLm`], the decoder of Llama and
//! its relatives, and of GPT-2 as [`Gpt`], which [`CachedLm`] continues texts with.

mod block;
mod cached_lm;
mod causal_config;
mod causal_lm;
mod causal_loss;
mod encoder;
mod gpt;
#[cfg(feature = "distributed")]
mod gpt_parallel;
mod vision;

pub use cached_lm::CachedLm;
pub use causal_config::{CausalLmConfig, NormKind, Positions, Rotary};
pub use causal_lm::{CausalInputs, CausalLm};
pub use causal_loss::CausalBatch;
pub use encoder::{Encoder, EncoderConfig, EncoderInputs};
pub use gpt::{Gpt, GptConfig};
pub use vision::{VisionConfig, VisionEncoder};

use crate::attention::{AttentionOptions, MultiheadAttention, MultiheadAttentionOptions};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::model_options::model_options;
use crate::module::{Activation, Module};
use crate::norm::{LayerNorm, LayerNormOptions};
use crate::options::setters;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Result, Tensor};

model_options! {
    /// Sizes and options of transformer layers.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct TransformerConfig {
        /// E, the width.
        n_embd: usize = 0, "hidden_size";
        /// The number of heads.
        n_head: usize = 0, "num_attention_heads";
        /// The width between the two linear layers.
        hidden: usize = 0, "intermediate_size";
        /// The activation between them; ReLU.
        activation: Activation = Activation::Relu, "hidden_act";
        /// The probability of dropping, in training; 0.1.
        dropout: f64 = 0.1;
        /// Whether norms precede attention and perceptron, which trains without warm-up, or follow
        /// them, as in the paper; false.
        norm_first: bool = false, "norm_first";
        /// Added to the variance by the norms; 1e-5.
        norm_eps: f64 = 1e-5, "layer_norm_eps";
        /// Whether the projections to queries, keys and values have biases; true.
        qkv_bias: bool = true, "qkv_bias";
    }
}

impl TransformerConfig {
    /// These sizes with PyTorch's defaults: ReLU, dropout 0.1, norms last.
    pub fn new(n_embd: usize, n_head: usize, hidden: usize) -> TransformerConfig {
        TransformerConfig { n_embd, n_head, hidden, ..TransformerConfig::usual() }
    }

    setters! {
        /// Sets the activation.
        with_activation(activation: Activation) => activation = activation;
        /// Sets the probability of dropping.
        with_dropout(p: f64) => dropout = p;
        /// Sets whether norms precede attention and perceptron.
        with_norm_first(norm_first: bool) => norm_first = norm_first;
        /// Sets what the norms add to the variance.
        with_norm_eps(eps: f64) => norm_eps = eps;
        /// Sets whether the projections to queries, keys and values have biases.
        with_qkv_bias(qkv_bias: bool) => qkv_bias = qkv_bias;
    }
}

/// A layer of an encoder: self-attention and a perceptron.
///
/// Shapes: x (B, T, E) → the same. Names and values are those of
/// `torch.nn.TransformerEncoderLayer(batch_first=True)`: `self_attn`, `linear1`, `linear2`,
/// `norm1`, `norm2`.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::attention::AttentionOptions;
/// use teeny_nn::transformer::{TransformerConfig, TransformerEncoderLayer};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let config = TransformerConfig::new(32, 4, 64);
/// let layer = TransformerEncoderLayer::new(&store.at("layers.0"), config)?;
/// let x = Tensor::randn((2, 3, 32), DType::F32, store.device())?; // (B, T, E)
/// // (B, T): the second sequence is shorter
/// let real = Tensor::new([[true, true, true], [true, true, false]], store.device())?;
/// let y = layer.attend(&x, AttentionOptions::new().with_key_mask(&real))?; // (2, 3, 32)
/// assert_eq!(y.shape(), x.shape());
/// # Ok(()) }
/// ```
/// Source: Vaswani et al. 2017, arXiv:1706.03762; norms first: Xiong et al. 2020, arXiv:2002.04745.
pub struct TransformerEncoderLayer {
    self_attn: MultiheadAttention,
    linear1: Linear,
    linear2: Linear,
    norm1: LayerNorm,
    norm2: LayerNorm,
    dropout: Dropout,
    config: TransformerConfig,
}

impl TransformerEncoderLayer {
    /// A layer at `path`.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, `dropout` is outside `0..=1`, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: TransformerConfig) -> Result<TransformerEncoderLayer> {
        let TransformerConfig { n_embd, hidden, dropout, .. } = config;
        path.build("TransformerEncoderLayer::new", || {
            Ok(TransformerEncoderLayer {
                self_attn: attention(&path.at("self_attn"), &config)?,
                linear1: Linear::new(&path.at("linear1"), n_embd, hidden)?,
                linear2: Linear::new(&path.at("linear2"), hidden, n_embd)?,
                norm1: norm(&path.at("norm1"), &config)?,
                norm2: norm(&path.at("norm2"), &config)?,
                dropout: Dropout::new(path, dropout)?,
                config,
            })
        })
    }

    /// The layer's output for `x` (B, T, E), with these options of its attention.
    ///
    /// # Errors
    /// If shapes do not fit. A cache has not changed then.
    #[track_caller]
    pub fn attend(&self, x: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let _op = enter("transformer_encoder_layer");
        let first = self.config.norm_first;
        options.revert_on_error(|options| {
            let x = residual(x, &self.norm1, first, &self.dropout, |x| {
                self.self_attn.attend(x, options)
            })?;
            residual(&x, &self.norm2, first, &self.dropout, |x| self.feed_forward(x))
        })
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.config.activation.forward(&self.linear1.forward(x)?)?; // (B, T, hidden)
        self.linear2.forward(&self.dropout.forward(&h)?)
    }
}

impl Module for TransformerEncoderLayer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, AttentionOptions::default())
    }
}

/// A layer of a decoder: self-attention, attention to a context, and a perceptron.
///
/// Names and values are those of `torch.nn.TransformerDecoderLayer(batch_first=True)`: `self_attn`,
/// `multihead_attn`, `linear1`, `linear2`, `norm1`, `norm2`, `norm3`.
pub struct TransformerDecoderLayer {
    encoder: TransformerEncoderLayer,
    multihead_attn: MultiheadAttention,
    norm3: LayerNorm,
}

impl TransformerDecoderLayer {
    /// A layer at `path`.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::new`].
    #[track_caller]
    pub fn new(path: &Path, config: TransformerConfig) -> Result<TransformerDecoderLayer> {
        path.build("TransformerDecoderLayer::new", || {
            let encoder = TransformerEncoderLayer::new(path, config)?;
            let multihead_attn = attention(&path.at("multihead_attn"), &config)?;
            let norm3 = norm(&path.at("norm3"), &config)?;
            Ok(TransformerDecoderLayer { encoder, multihead_attn, norm3 })
        })
    }

    /// The layer's output for `x` (B, T, E), with the options of its self-attention (usually
    /// [`AttentionOptions::causal`]) and of its attention to `context` (B, S, E).
    ///
    /// # Errors
    /// If shapes do not fit. A cache has not changed then.
    #[track_caller]
    pub fn attend(
        &self,
        x: &Tensor,
        context: &Tensor,
        options: AttentionOptions<'_>,
        context_options: AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let _op = enter("transformer_decoder_layer");
        let layer = &self.encoder;
        let first = layer.config.norm_first;
        options.revert_on_error(|options| {
            let x = residual(x, &layer.norm1, first, &layer.dropout, |x| {
                layer.self_attn.attend(x, options)
            })?;
            let x = residual(&x, &layer.norm2, first, &layer.dropout, |x| {
                self.multihead_attn.attend_to(x, context, context_options)
            })?;
            residual(&x, &self.norm3, first, &layer.dropout, |x| layer.feed_forward(x))
        })
    }
}

fn norm(path: &Path, config: &TransformerConfig) -> Result<LayerNorm> {
    let options = LayerNormOptions::new().with_eps(config.norm_eps);
    LayerNorm::with_options(path, config.n_embd, options)
}

/// Attention with the sizes and dropout of `config`.
fn attention(path: &Path, config: &TransformerConfig) -> Result<MultiheadAttention> {
    let options = MultiheadAttentionOptions::new()
        .with_qkv_bias(config.qkv_bias)
        .with_dropout(config.dropout);
    MultiheadAttention::with_options(path, config.n_embd, config.n_head, options)
}

/// `x + dropout(f(norm(x)))` with the norm first, otherwise `norm(x + dropout(f(x)))`.
fn residual(
    x: &Tensor,
    norm: &LayerNorm,
    first: bool,
    dropout: &Dropout,
    f: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if first {
        x.add(&dropout.forward(&f(&norm.forward(x)?)?)?)
    } else {
        norm.forward(&x.add(&dropout.forward(&f(x)?)?)?)
    }
}
