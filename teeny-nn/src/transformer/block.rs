//! The blocks of a decoder: attention and a perceptron, each with a residual connection.

use super::causal_config::{CausalLmConfig, NormKind};
use crate::attention::{AttentionOptions, MultiheadAttention, MultiheadAttentionOptions};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::module::{Activation, Module};
use crate::norm::{LayerNorm, LayerNormOptions, RmsNorm, RmsNormOptions};
use crate::store::Path;
use teeny_core::{Result, Tensor};

/// The standard deviation of the initial weights, as in GPT-2.
pub(super) const STD: f64 = 0.02;

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
    /// The norms before attention and before the perceptron.
    pub norms: [&'static str; 2],
    pub last_norm: &'static str,
}

/// Those of Phi 3, whose projections are joined; with post-norms, those of Gemma.
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

/// Those of GPT-2.
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

    /// The two linear layers of the perceptron at `path`.
    fn perceptron(&self, place: Place<'_>) -> Result<[Box<dyn Module>; 2]>;
}

/// Layers of one rank.
pub(super) struct Plain;

impl Layers for Plain {
    fn attention(&self, (path, names, config): Place<'_>) -> Result<MultiheadAttention> {
        let (e, [q, kv]) = (config.n_embd, config.widths());
        let [first, last] = linears(config, [config.qkv_bias, config.out_bias]);
        let rows = kv.saturating_mul(2).saturating_add(q);
        let qkv = Linear::with_options(&path.at(names.qkv), e, rows, first)?;
        let out = Linear::with_options(&path.at(names.out), q, e, last)?;
        let options = attention_options(config);
        MultiheadAttention::from_linear(path, qkv, out, config.n_head, options)
    }

    fn perceptron(&self, (path, names, config): Place<'_>) -> Result<[Box<dyn Module>; 2]> {
        let (e, hidden) = (config.n_embd, config.hidden);
        let up = if config.gated { hidden.saturating_mul(2) } else { hidden };
        let [first, last] = linears(config, [config.mlp_bias; 2]);
        Ok([
            Box::new(Linear::with_options(&path.at(names.up), e, up, first)?),
            Box::new(Linear::with_options(&path.at(names.down), hidden, e, last)?),
        ])
    }
}

/// Options of the first and the last linear layer of attention or a perceptron, with these biases.
/// The standard deviation of the last layer of a residual branch is smaller: the variances of the
/// two branches of each block add up.
pub(super) fn linears(config: &CausalLmConfig, [first, last]: [bool; 2]) -> [LinearOptions; 2] {
    let residual = STD / (2.0 * config.n_layer as f64).sqrt();
    [(first, STD), (last, residual)].map(|(bias, std)| {
        LinearOptions::new()
            .with_weight_init(Init::Normal { mean: 0.0, std })
            .with_bias_init(Init::ZEROS)
            .with_bias(bias)
    })
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

/// One block.
pub(super) struct Block {
    norms: [Box<dyn Module>; 2],
    /// After attention and after the perceptron.
    post_norms: Option<[Box<dyn Module>; 2]>,
    attention: MultiheadAttention,
    up: Box<dyn Module>,
    down: Box<dyn Module>,
    activation: Activation,
    gated: bool,
    dropout: Dropout,
    residual_scale: f64,
}

impl Block {
    pub fn new(
        path: &Path,
        names: &Names,
        config: &CausalLmConfig,
        layers: &dyn Layers,
    ) -> Result<Block> {
        let e = config.n_embd;
        let [first, second] = names.norms;
        let first = norm(&path.at(first), e, config)?;
        let attention_path = path.at(names.attention);
        let mut attention = layers.attention((&attention_path, names, config))?;
        if config.qk_norms {
            let norm = |name| rms_norm(&attention_path.at(name), config.head_size, config);
            attention = attention.with_norms(norm("q_norm")?, norm("k_norm")?)?;
        }
        let (second, post_norms) = if config.post_norms {
            let post = norm(&path.at("post_attention_layernorm"), e, config)?;
            let second = norm(&path.at("pre_feedforward_layernorm"), e, config)?;
            (second, Some([post, norm(&path.at("post_feedforward_layernorm"), e, config)?]))
        } else {
            (norm(&path.at(second), e, config)?, None)
        };
        let [up, down] = layers.perceptron((&path.at(names.mlp), names, config))?;
        let (norms, dropout) = ([first, second], Dropout::new(path, config.dropout)?);
        let CausalLmConfig { activation, gated, residual_scale, .. } = *config;
        Ok(Block {
            norms,
            post_norms,
            attention,
            up,
            down,
            activation,
            gated,
            dropout,
            residual_scale,
        })
    }

    /// (B, T, E) → the same.
    pub fn forward(&self, x: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let attended = self.attention.attend(&self.norms[0].forward(x)?, options)?;
        let x = self.residual(x, attended, 0)?;
        self.residual(&x, self.perceptron(&self.norms[1].forward(&x)?)?, 1)
    }

    fn perceptron(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.up.forward(x)?; // (B, T, hidden), twice if gated
        let h = match self.gated {
            false => self.activation.forward(&h)?,
            true => {
                let parts = h.chunk(-1, 2)?; // gate, up
                self.activation.forward(&parts[0])?.mul(&parts[1])?
            }
        };
        self.down.forward(&h) // (B, T, E)
    }

    /// `x + branch`, with the norm after the branch if there is one.
    fn residual(&self, x: &Tensor, mut branch: Tensor, i: usize) -> Result<Tensor> {
        if let Some(norms) = &self.post_norms {
            branch = norms[i].forward(&branch)?;
        }
        if self.residual_scale != 1.0 {
            branch = branch.mul(self.residual_scale)?;
        }
        x.add(&self.dropout.forward(&branch)?)
    }
}
