//! The block of all transformers: attention and an MLP, each with a residual connection. A decoder
//! makes its blocks here too.

use super::causal_config::{CausalLmConfig, NormKind};
use crate::attention::{
    AttentionOptions, HeadRanks, MultiheadAttention, MultiheadAttentionOptions, OneRank,
};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::module::{Activation, Module};
use crate::norm::{LayerNorm, LayerNormOptions, RmsNorm, RmsNormOptions};
use crate::store::Path;
use std::sync::Arc;
use teeny_core::{Result, Tensor};

/// The names of a decoder's layers.
pub(super) struct Names {
    pub tokens: &'static str,
    pub positions: &'static str,
    pub blocks: &'static str,
    pub attention: &'static str,
    pub qkv: &'static str,
    pub out: &'static str,
    pub mlp: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// The norms before attention and before the MLP.
    pub norms: [&'static str; 2],
    pub last_norm: &'static str,
}

/// The names of Phi 3, whose projections are fused; with post-norms, the names of Gemma.
pub(super) const LLAMA: Names = Names {
    tokens: "embed_tokens",
    positions: "embed_positions",
    blocks: "layers",
    attention: "self_attn",
    qkv: "qkv_proj",
    out: "o_proj",
    mlp: "mlp",
    up: "gate_up_proj",
    down: "down_proj",
    norms: ["input_layernorm", "post_attention_layernorm"],
    last_norm: "norm",
};

/// The names of GPT-2.
pub(super) const GPT2: Names = Names {
    tokens: "wte",
    positions: "wpe",
    blocks: "h",
    attention: "attn",
    qkv: "c_attn",
    out: "c_proj",
    mlp: "mlp",
    up: "c_fc",
    down: "c_proj",
    norms: ["ln_1", "ln_2"],
    last_norm: "ln_f",
};

/// A linear layer of a block that is to be made: its path and sizes.
pub struct BlockLinear {
    /// The path of its parameters.
    pub path: Path,
    /// The number of its inputs.
    pub inputs: usize,
    /// The numbers of its outputs by part, such as queries, keys and values.
    pub parts: Vec<usize>,
    /// Its biases and initial values.
    pub options: LinearOptions,
}

impl BlockLinear {
    /// The number of all outputs.
    pub fn outputs(&self) -> usize {
        self.parts.iter().fold(0, |sum: usize, &part| sum.saturating_add(part))
    }

    fn plain(&self) -> Result<Linear> {
        Linear::with_options(&self.path, self.inputs, self.outputs(), self.options)
    }
}

/// Makes the linear layers of a decoder's blocks, which ranks can share, in the order of their
/// random draws: [`super::Gpt::with_layers`].
pub trait BlockLayers {
    /// The ranks that share the model.
    fn ranks(&self) -> Arc<dyn HeadRanks>;

    /// The projections to heads and back, of this rank's heads.
    ///
    /// # Errors
    /// If the sizes cannot be split over the ranks, or a name is taken.
    fn attention(&self, qkv: BlockLinear, out: BlockLinear) -> Result<[Linear; 2]>;

    /// The two linear layers of the MLP.
    ///
    /// # Errors
    /// As [`BlockLayers::attention`].
    fn mlp(&self, up: BlockLinear, down: BlockLinear) -> Result<[Box<dyn Module>; 2]>;
}

/// Layers of one rank.
pub(super) struct Plain;

impl BlockLayers for Plain {
    fn ranks(&self) -> Arc<dyn HeadRanks> {
        Arc::new(OneRank)
    }

    fn attention(&self, qkv: BlockLinear, out: BlockLinear) -> Result<[Linear; 2]> {
        Ok([qkv.plain()?, out.plain()?])
    }

    fn mlp(&self, up: BlockLinear, down: BlockLinear) -> Result<[Box<dyn Module>; 2]> {
        Ok([Box::new(up.plain()?), Box::new(down.plain()?)])
    }
}

/// The first and the last linear layer of attention or of the MLP at `path`: names, inputs and
/// parts of the outputs, and whether there are biases. The standard deviation of the last layer of
/// a residual branch is smaller: the variances of the two branches of each block add up.
fn pair(
    path: &Path,
    config: &CausalLmConfig,
    layers: [(&str, usize, &[usize], bool); 2],
) -> [BlockLinear; 2] {
    let last = Init::scaled_residual(config.n_layer.saturating_mul(2));
    let mut inits = [Init::GPT2, last].into_iter();
    layers.map(|(name, inputs, parts, bias)| {
        let init = inits.next().unwrap_or(last);
        let options = LinearOptions::new().with_weight_init(init).with_bias_init(Init::ZEROS);
        let (path, parts) = (path.at(name), parts.to_vec());
        BlockLinear { path, inputs, parts, options: options.with_bias(bias) }
    })
}

/// A norm of `size` features.
pub(super) fn norm(path: &Path, size: usize, config: &CausalLmConfig) -> Result<Box<dyn Module>> {
    Ok(match config.norm {
        NormKind::Layer { bias } => {
            let options = LayerNormOptions::new().with_bias(bias).with_eps(config.norm_eps);
            Box::new(LayerNorm::with_options(path, size, options)?)
        }
        _ => Box::new(rms_norm(path, size, config)?),
    })
}

fn rms_norm(path: &Path, size: usize, config: &CausalLmConfig) -> Result<RmsNorm> {
    let unit_offset = config.norm == NormKind::RmsUnitOffset;
    let options = RmsNormOptions::new().with_eps(config.norm_eps).with_unit_offset(unit_offset);
    RmsNorm::with_options(path, size, options)
}

/// One block: attention, perhaps attention to a context, and an MLP, each added to its input.
pub(super) struct Block {
    /// The norms of attention, of attention to a context, and of the MLP.
    pub norms: Vec<Box<dyn Module>>,
    /// Whether the norms come first, or follow the sums.
    pub norm_first: bool,
    /// Further norms, of the outputs of attention and the MLP, if norms come first.
    pub post_norms: Vec<Box<dyn Module>>,
    pub attention: MultiheadAttention,
    pub cross: Option<MultiheadAttention>,
    pub up: Box<dyn Module>,
    pub down: Box<dyn Module>,
    pub activation: Activation,
    pub gated: bool,
    pub dropout: Dropout,
    /// Whether there is dropout between the layers of the MLP too.
    pub drops_inside: bool,
    pub residual_scale: f64,
}

impl Block {
    pub fn new(
        path: &Path,
        names: &Names,
        config: &CausalLmConfig,
        layers: &dyn BlockLayers,
    ) -> Result<Block> {
        let norm = |name: &str| norm(&path.at(name), config.n_embd, config);
        let first = norm(names.norms[0])?;
        let (at, e, [q, kv]) = (path.at(names.attention), config.n_embd, config.widths());
        let qkv = (names.qkv, e, &[q, kv, kv][..], config.qkv_bias);
        let out = (names.out, q, &[e][..], config.out_bias);
        let [qkv, out] = pair(&at, config, [qkv, out]);
        let options = MultiheadAttentionOptions::new()
            .with_n_kv_head(config.n_kv_head)
            .with_head_size(config.head_size)
            .with_dropout(config.dropout);
        let [qkv, out] = layers.attention(qkv, out)?;
        let (n_head, ranks) = (config.n_head, layers.ranks());
        let mut attention = MultiheadAttention::from_ranks(&at, qkv, out, n_head, options, ranks)?;
        if config.qk_norms {
            let norm = |name| rms_norm(&at.at(name), config.head_size, config);
            attention = attention.with_norms(norm("q_norm")?, norm("k_norm")?)?;
        }
        let (second, post_norms) = if config.post_norms {
            let post = norm("post_attention_layernorm")?;
            let second = norm("pre_feedforward_layernorm")?;
            (second, vec![post, norm("post_feedforward_layernorm")?])
        } else {
            (norm(names.norms[1])?, Vec::new())
        };
        let (hidden, bias) = (config.hidden, config.mlp_bias);
        let parts = if config.gated { &[hidden; 2][..] } else { &[hidden] };
        let (up, down) = ((names.up, e, parts, bias), (names.down, hidden, &[e][..], bias));
        let [up, down] = pair(&path.at(names.mlp), config, [up, down]);
        let [up, down] = layers.mlp(up, down)?;
        Ok(Block {
            norms: vec![first, second],
            norm_first: true,
            post_norms,
            attention,
            cross: None,
            up,
            down,
            activation: config.activation,
            gated: config.gated,
            dropout: Dropout::new(path, config.dropout)?,
            drops_inside: false,
            residual_scale: config.residual_scale,
        })
    }

    /// (B, T, E) → the same, with the context (B, S, E) of [`Block::cross`] and its options.
    pub fn forward(
        &self,
        x: &Tensor,
        options: AttentionOptions<'_>,
        context: Option<(&Tensor, AttentionOptions<'_>)>,
    ) -> Result<Tensor> {
        let mut x = self.residual(x, 0, |x| self.attention.attend(x, options))?;
        if let Some((cross, (context, options))) = self.cross.as_ref().zip(context) {
            x = self.residual(&x, 1, |x| cross.attend_to(x, context, options))?;
        }
        self.residual(&x, self.norms.len() - 1, |x| self.mlp(x))
    }

    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = self.up.forward(x)?; // (B, T, hidden), twice if gated
        h = match self.gated {
            false => self.activation.forward(&h)?,
            true => {
                let parts = h.chunk(-1, 2)?; // gate, up
                self.activation.forward(&parts[0])?.mul(&parts[1])?
            }
        };
        if self.drops_inside {
            h = self.dropout.forward(&h)?;
        }
        self.down.forward(&h) // (B, T, E)
    }

    /// `x + dropout(scale * post_norm(branch(norm(x))))` with the norm first, otherwise
    /// `norm(x + dropout(branch(x)))`.
    fn residual(
        &self,
        x: &Tensor,
        i: usize,
        branch: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        if !self.norm_first {
            return self.norms[i].forward(&x.add(self.dropout.forward(&branch(x)?)?)?);
        }
        let mut y = branch(&self.norms[i].forward(x)?)?;
        if let Some(norm) = self.post_norms.get(i) {
            y = norm.forward(&y)?;
        }
        if self.residual_scale != 1.0 {
            y = y.mul(self.residual_scale)?;
        }
        x.add(&self.dropout.forward(&y)?)
    }
}
