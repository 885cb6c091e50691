//! Transformers: PyTorch's encoder and decoder layers; [`Encoder`], of BERT and of CLIP's texts;
//! [`VisionEncoder`], of images in ViT and CLIP; [`CausalLm`], the decoder of Llama and its
//! relatives, and of GPT-2 as [`Gpt`], with which [`CachedLm`] continues texts.

mod block;
mod cached_lm;
mod causal_config;
mod causal_lm;
mod causal_loss;
mod encoder;
mod gpt;
mod vision;

pub use block::{BlockLayers, BlockLinear};
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
use block::Block;
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
        /// Whether norms precede attention and MLP, which trains without warm-up, or follow them,
        /// as in the paper; false.
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
        TransformerConfig { n_embd, n_head, hidden, ..TransformerConfig::defaults() }
    }

    setters! {
        /// Sets the activation.
        with_activation(activation: Activation) => activation = activation;
        /// Sets the probability of dropping.
        with_dropout(p: f64) => dropout = p;
        /// Sets whether norms precede attention and MLP.
        with_norm_first(norm_first: bool) => norm_first = norm_first;
        /// Sets the number that the norms add to the variance.
        with_norm_eps(eps: f64) => norm_eps = eps;
        /// Sets whether the projections to queries, keys and values have biases.
        with_qkv_bias(qkv_bias: bool) => qkv_bias = qkv_bias;
    }
}

/// A layer of an encoder: self-attention and an MLP.
///
/// Shapes: x (B, T, E) → the same. Names and values are the same as in
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
pub struct TransformerEncoderLayer(Block);

impl TransformerEncoderLayer {
    /// A layer at `path`.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, `dropout` is outside `0..=1`, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: TransformerConfig) -> Result<TransformerEncoderLayer> {
        path.build("TransformerEncoderLayer::new", || {
            Ok(TransformerEncoderLayer(block(path, &config, false)?))
        })
    }

    /// The layer's output for `x` (B, T, E), with these options of its attention.
    ///
    /// # Errors
    /// If shapes do not fit. A cache has not changed then.
    #[track_caller]
    pub fn attend(&self, x: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let _op = enter("transformer_encoder_layer");
        options.revert_on_error(|options| self.0.forward(x, options, None))
    }
}

impl Module for TransformerEncoderLayer {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, AttentionOptions::default())
    }
}

/// A layer of a decoder: self-attention, attention to a context, and an MLP.
///
/// Names and values are the same as in `torch.nn.TransformerDecoderLayer(batch_first=True)`:
/// `self_attn`, `multihead_attn`, `linear1`, `linear2`, `norm1`, `norm2`, `norm3`.
pub struct TransformerDecoderLayer(Block);

impl TransformerDecoderLayer {
    /// A layer at `path`.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::new`].
    #[track_caller]
    pub fn new(path: &Path, config: TransformerConfig) -> Result<TransformerDecoderLayer> {
        path.build("TransformerDecoderLayer::new", || {
            Ok(TransformerDecoderLayer(block(path, &config, true)?))
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
        let context = Some((context, context_options));
        options.revert_on_error(|options| self.0.forward(x, options, context))
    }
}

/// A block with PyTorch's names, with attention to a context or without.
fn block(path: &Path, config: &TransformerConfig, attends_context: bool) -> Result<Block> {
    let TransformerConfig { n_embd, n_head, hidden, activation, dropout, .. } = *config;
    let options =
        MultiheadAttentionOptions::new().with_qkv_bias(config.qkv_bias).with_dropout(dropout);
    let attention =
        |name| MultiheadAttention::with_options(&path.at(name), n_embd, n_head, options);
    let norm = |name| -> Result<Box<dyn Module>> {
        let options = LayerNormOptions::new().with_eps(config.norm_eps);
        Ok(Box::new(LayerNorm::with_options(&path.at(name), n_embd, options)?))
    };
    let mut block = Block {
        attention: attention("self_attn")?,
        up: Box::new(Linear::new(&path.at("linear1"), n_embd, hidden)?),
        down: Box::new(Linear::new(&path.at("linear2"), hidden, n_embd)?),
        norms: vec![norm("norm1")?, norm("norm2")?],
        norm_first: config.norm_first,
        post_norms: Vec::new(),
        cross: None,
        activation,
        gated: false,
        dropout: Dropout::new(path, dropout)?,
        drops_inside: true,
        residual_scale: 1.0,
    };
    if attends_context {
        block.cross = Some(attention("multihead_attn")?);
        block.norms.push(norm("norm3")?);
    }
    Ok(block)
}
