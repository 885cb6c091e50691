//! The block of all transformers: attention and an MLP, each with a residual connection. A decoder
//! makes its blocks here too.

use super::causal_config::{CausalLmConfig, NormKind};
use crate::attention::{AttentionOptions, MultiheadAttention, MultiheadAttentionOptions};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::module::{Activation, Module};
use crate::norm::{LayerNorm, LayerNormOptions, RmsNorm, RmsNormOptions};
use crate::store::Path;
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

/// Where layers of a block are made, their names, and the sizes.
pub(super) type Place<'a> = (&'a Path, &'a Names, &'a CausalLmConfig);

/// Makes the layers of a block that ranks can share, in the order of their random draws.
pub(super) trait Layers {
    /// The attention at `path`.
    fn attention(&self, place: Place<'_>) -> Result<MultiheadAttention>;

    /// The two linear layers of the MLP at `path`.
    fn perceptron(&self, place: Place<'_>) -> Result<[Box<dyn Module>; 2]>;
}

/// Layers of one rank.
pub(super) struct Plain;

impl Layers for Plain {
    fn attention(&self, (path, names, config): Place<'_>) -> Result<MultiheadAttention> {
        let (e, [q, kv]) = (config.n_embd, config.widths());
        let [[first, last], _] = linears(config);
        let rows = kv.saturating_mul(2).saturating_add(q);
        let qkv = Linear::with_options(&path.at(names.qkv), e, rows, first)?;
        let out = Linear::with_options(&path.at(names.out), q, e, last)?;
        let options = attention_options(config);
        MultiheadAttention::from_linear(path, qkv, out, config.n_head, options)
    }

    fn perceptron(&self, (path, names, config): Place<'_>) -> Result<[Box<dyn Module>; 2]> {
        let (e, hidden) = (config.n_embd, config.hidden);
        let up = if config.gated { hidden.saturating_mul(2) } else { hidden };
        let [_, [first, last]] = linears(config);
        Ok([
            Box::new(Linear::with_options(&path.at(names.up), e, up, first)?),
            Box::new(Linear::with_options(&path.at(names.down), hidden, e, last)?),
        ])
    }
}

/// Options of the first and the last linear layer of attention, and of the MLP. The standard
/// deviation of the last layer of a residual branch is smaller: the variances of the two branches
/// of each block add up.
pub(super) fn linears(config: &CausalLmConfig) -> [[LinearOptions; 2]; 2] {
    let inits = [Init::GPT2, Init::scaled_residual(config.n_layer.saturating_mul(2))];
    let options = |(bias, init)| {
        LinearOptions::new().with_weight_init(init).with_bias_init(Init::ZEROS).with_bias(bias)
    };
    let biases = [[config.qkv_bias, config.out_bias], [config.mlp_bias; 2]];
    biases.map(|[first, last]| [(first, inits[0]), (last, inits[1])].map(options))
}

pub(super) fn attention_options(config: &CausalLmConfig) -> MultiheadAttentionOptions {
    MultiheadAttentionOptions::new()
        .with_n_kv_head(config.n_kv_head)
        .with_head_size(config.head_size)
        .with_dropout(config.dropout)
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
        layers: &dyn Layers,
    ) -> Result<Block> {
        let norm = |name: &str| norm(&path.at(name), config.n_embd, config);
        let first = norm(names.norms[0])?;
        let attention_path = path.at(names.attention);
        let mut attention = layers.attention((&attention_path, names, config))?;
        if config.qk_norms {
            let norm = |name| rms_norm(&attention_path.at(name), config.head_size, config);
            attention = attention.with_norms(norm("q_norm")?, norm("k_norm")?)?;
        }
        let (second, post_norms) = if config.post_norms {
            let post = norm("post_attention_layernorm")?;
            let second = norm("pre_feedforward_layernorm")?;
            (second, vec![post, norm("post_feedforward_layernorm")?])
        } else {
            (norm(names.norms[1])?, Vec::new())
        };
        let [up, down] = layers.perceptron((&path.at(names.mlp), names, config))?;
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
        self.residual(&x, self.norms.len() - 1, |x| self.perceptron(x))
    }

    fn perceptron(&self, x: &Tensor) -> Result<Tensor> {
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
