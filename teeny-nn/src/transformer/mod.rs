//! Transformers: PyTorch's encoder and decoder layers here, GPT-2's decoder in [`gpt`](self::gpt).

mod gpt;

pub use gpt::{Gpt, GptConfig};

use crate::attention::{Attend, MultiheadAttention};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Activation, Module};
use crate::norm::LayerNorm;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Result, Tensor};

/// Sizes and options of transformer layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerConfig {
    /// E, the width.
    pub n_embd: usize,
    /// Heads.
    pub n_head: usize,
    /// The width between the two linear layers.
    pub hidden: usize,
    /// Between them.
    pub activation: Activation,
    /// Probability of dropping, in training.
    pub dropout: f64,
    /// Whether norms stand before attention and perceptron (which trains without warm-up) or after,
    /// as in the paper.
    pub norm_first: bool,
}

impl TransformerConfig {
    /// PyTorch's defaults but for dropout, which is 0: ReLU, norms last, `hidden` numbers inside.
    pub fn new(n_embd: usize, n_head: usize, hidden: usize) -> TransformerConfig {
        TransformerConfig {
            n_embd,
            n_head,
            hidden,
            activation: Activation::Relu,
            dropout: 0.0,
            norm_first: false,
        }
    }
}

/// One layer of an encoder: self-attention and a perceptron.
///
/// Shapes: x (B, T, E) → the same. Names and values as
/// `torch.nn.TransformerEncoderLayer(batch_first=True)`: `self_attn`, `linear1`, `linear2`,
/// `norm1`, `norm2`.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{Attend, Store, TransformerConfig, TransformerEncoderLayer, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let layer = TransformerEncoderLayer::new(&store.at("layers.0"), TransformerConfig::new(32, 4, 64))?;
/// let x = Tensor::randn((2, 3, 32), DType::F32, store.device())?; // (B, T, E)
/// let real = Tensor::new([[true, true, true], [true, true, false]], store.device())?; // (B, T): the second sequence is shorter
/// let y = layer.attend(&x, Attend::default().padding(&real))?; // (2, 3, 32)
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
    /// If `n_head` does not divide `n_embd`, `dropout` is no probability, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: TransformerConfig) -> Result<TransformerEncoderLayer> {
        let TransformerConfig { n_embd, n_head, hidden, dropout, .. } = config;
        path.build("TransformerEncoderLayer::new", || {
            Ok(TransformerEncoderLayer {
                self_attn: MultiheadAttention::new(&path.at("self_attn"), n_embd, n_head)?
                    .with_dropout(path, dropout)?,
                linear1: Linear::new(&path.at("linear1"), n_embd, hidden)?,
                linear2: Linear::new(&path.at("linear2"), hidden, n_embd)?,
                norm1: LayerNorm::new(&path.at("norm1"), n_embd)?,
                norm2: LayerNorm::new(&path.at("norm2"), n_embd)?,
                dropout: Dropout::new(path, dropout)?,
                config,
            })
        })
    }

    /// The layer's output for `x` (B, T, E), where attention sees what `attend` says.
    ///
    /// # Errors
    /// If shapes do not fit. A cache is then what it was.
    #[track_caller]
    pub fn attend(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _op = enter("transformer_encoder_layer");
        let first = self.config.norm_first;
        attend.undone_on_error(|attend| {
            let x = residual(x, &self.norm1, first, &self.dropout, |x| {
                self.self_attn.attend(x, attend)
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
        self.attend(x, Attend::default())
    }
}

/// One layer of a decoder: causal self-attention, attention to a context, and a perceptron.
///
/// Names and values as `torch.nn.TransformerDecoderLayer(batch_first=True)`: `self_attn`,
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
            let multihead_attn =
                MultiheadAttention::new(&path.at("multihead_attn"), config.n_embd, config.n_head)?;
            let norm3 = LayerNorm::new(&path.at("norm3"), config.n_embd)?;
            Ok(TransformerDecoderLayer {
                encoder,
                multihead_attn: multihead_attn.with_dropout(path, config.dropout)?,
                norm3,
            })
        })
    }

    /// The layer's output for `x` (B, T, E), which sees itself as `attend` says (usually
    /// [`Attend::causal`]) and `context` (B, S, E) as `to_context` says.
    ///
    /// # Errors
    /// If shapes do not fit. A cache is then what it was.
    #[track_caller]
    pub fn attend(
        &self,
        x: &Tensor,
        context: &Tensor,
        attend: Attend<'_>,
        to_context: Attend<'_>,
    ) -> Result<Tensor> {
        let _op = enter("transformer_decoder_layer");
        let layer = &self.encoder;
        let first = layer.config.norm_first;
        attend.undone_on_error(|attend| {
            let x = residual(x, &layer.norm1, first, &layer.dropout, |x| {
                layer.self_attn.attend(x, attend)
            })?;
            let x = residual(&x, &layer.norm2, first, &layer.dropout, |x| {
                self.multihead_attn.attend_to(x, context, to_context)
            })?;
            residual(&x, &self.norm3, first, &layer.dropout, |x| layer.feed_forward(x))
        })
    }
}

/// `x + dropout(f(norm(x)))`, or `norm(x + dropout(f(x)))`.
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
