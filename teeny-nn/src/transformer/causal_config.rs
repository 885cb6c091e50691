//! [`CausalLmConfig`]: the sizes and options by which families of decoders differ.

use crate::attention::{RopePairing, RopeScaling};
use crate::module::Activation;
use crate::state::gguf::ElementType;

/// The norms of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormKind {
    /// [`crate::norm::LayerNorm`], with a bias or without.
    Layer {
        /// Whether there is a bias.
        bias: bool,
    },
    /// [`crate::norm::RmsNorm`].
    Rms,
    /// [`crate::norm::RmsNorm`] with the factor `1 + weight`.
    RmsUnitOffset,
}

/// Rotary embedding of a decoder.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rotary {
    /// The base of the frequencies.
    pub base: f64,
    /// The number of rotated elements of a head, if not all.
    pub dims: Option<usize>,
    /// How frequencies are scaled.
    pub scaling: RopeScaling,
    /// The pairs of elements that are rotated together; halves.
    pub pairing: RopePairing,
}

impl Rotary {
    /// All elements of a head, without scaling.
    pub fn new(base: f64) -> Rotary {
        Rotary { base, dims: None, scaling: RopeScaling::None, pairing: RopePairing::Halves }
    }

    /// Sets the number of rotated elements of a head.
    pub fn with_dims(mut self, dims: usize) -> Rotary {
        self.dims = Some(dims);
        self
    }

    /// Sets the scaling.
    pub fn with_scaling(mut self, scaling: RopeScaling) -> Rotary {
        self.scaling = scaling;
        self
    }
}

/// How a decoder knows the positions of its tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Positions {
    /// A learnt vector for each, added to that of the token.
    Learned,
    /// Queries and keys are rotated.
    Rotary {
        /// In layers without a window.
        full: Rotary,
        /// In layers with a window, if they differ.
        windowed: Option<Rotary>,
    },
}

/// Sizes and options of a [`super::CausalLm`]. [`CausalLmConfig::new`] has those of Llama.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CausalLmConfig {
    /// V, the size of the vocabulary.
    pub vocab: usize,
    /// The largest number of tokens T.
    pub context: usize,
    /// The number of blocks.
    pub n_layer: usize,
    /// E, the width.
    pub n_embd: usize,
    /// The number of query heads per block.
    pub n_head: usize,
    /// The number of key heads per block; `n_head`.
    pub n_kv_head: usize,
    /// The size of a head; `n_embd / n_head`.
    pub head_size: usize,
    /// The width between the linear layers of a perceptron.
    pub hidden: usize,
    /// The norms; [`NormKind::Rms`].
    pub norm: NormKind,
    /// Added to the variance by the norms; 1e-6.
    pub norm_eps: f64,
    /// Whether attention and perceptron have norms after them too, as in Gemma; false.
    pub post_norms: bool,
    /// Whether queries and keys have a norm of each head; false.
    pub qk_norms: bool,
    /// The activation; SiLU.
    pub activation: Activation,
    /// Whether the perceptron is `down(activation(gate x) * up x)`; true.
    pub gated: bool,
    /// Whether the projection to queries, keys and values has a bias; false.
    pub qkv_bias: bool,
    /// Whether the projection of the heads has a bias; false.
    pub out_bias: bool,
    /// Whether the perceptron has biases; false.
    pub mlp_bias: bool,
    /// Positions; rotary with the base 10,000.
    pub positions: Positions,
    /// The number of keys that a query sees at most, for each layer; without limit.
    pub windows: Vec<Option<usize>>,
    /// The factor of the scores; `1 / sqrt(head_size)`.
    pub scale: Option<f64>,
    /// Whether scores are divided by the number of the layer, counted from 1; false.
    pub scale_by_layer: bool,
    /// `c` of scores `c tanh(s / c)`; none.
    pub softcap: Option<f64>,
    /// `c` of logits `c tanh(z / c)`; none.
    pub logits_softcap: Option<f64>,
    /// The factor of token embeddings; 1.
    pub embed_scale: f64,
    /// Whether the head is the token embedding; false.
    pub tied: bool,
    /// The probability of dropping, in training; 0.
    pub dropout: f64,
    /// The type in which the model's caches keep keys and values
    /// ([`crate::attention::KvCache::with_type`]); that of the activations.
    pub cache: Option<ElementType>,
}

impl CausalLmConfig {
    /// Llama with these sizes.
    pub fn new(
        vocab: usize,
        context: usize,
        n_layer: usize,
        n_head: usize,
        n_embd: usize,
        hidden: usize,
    ) -> CausalLmConfig {
        CausalLmConfig {
            vocab,
            context,
            n_layer,
            n_embd,
            n_head,
            n_kv_head: n_head,
            head_size: n_embd / n_head.max(1),
            hidden,
            norm: NormKind::Rms,
            norm_eps: 1e-6,
            post_norms: false,
            qk_norms: false,
            activation: Activation::Silu,
            gated: true,
            qkv_bias: false,
            out_bias: false,
            mlp_bias: false,
            positions: Positions::Rotary { full: Rotary::new(10_000.0), windowed: None },
            windows: Vec::new(),
            scale: None,
            scale_by_layer: false,
            softcap: None,
            logits_softcap: None,
            embed_scale: 1.0,
            tied: false,
            dropout: 0.0,
            cache: None,
        }
    }

    /// The number of keys that a query of layer `i` sees at most.
    pub fn window(&self, i: usize) -> Option<usize> {
        self.windows.get(i).copied().flatten()
    }

    /// Whether there is a learnt vector for each position.
    #[cfg(feature = "pretrained")]
    pub(crate) fn learned_positions(&self) -> bool {
        self.positions == Positions::Learned
    }

    /// Q and KV, the widths of the queries and of the keys. Sizes that memory cannot hold are an
    /// error of the allocation.
    pub(crate) fn widths(&self) -> [usize; 2] {
        [self.n_head, self.n_kv_head].map(|heads| heads.saturating_mul(self.head_size))
    }

    /// The factor of the scores of layer `i`, if it is not the usual one.
    pub(super) fn scale_of(&self, i: usize) -> Option<f64> {
        if !self.scale_by_layer {
            return self.scale;
        }
        let scale = self.scale.unwrap_or_else(|| 1.0 / (self.head_size as f64).sqrt());
        Some(scale / (i + 1) as f64)
    }

    /// The floating-point operations of the matrix products in training on one sequence of `t`
    /// tokens: the forward pass, and the backward pass with twice as many.
    ///
    /// A product of n weights takes 2 n for each token, and attention `4 t n_head head_size`.
    pub fn flops(&self, t: usize) -> f64 {
        let [e, v, hidden, hs, n, kv, t, layers] = [
            self.n_embd,
            self.vocab,
            self.hidden,
            self.head_size,
            self.n_head,
            self.n_kv_head,
            t,
            self.n_layer,
        ]
        .map(|x| x as f64);
        let projections = e * hs * (2.0 * n + 2.0 * kv);
        let perceptron = e * hidden * if self.gated { 3.0 } else { 2.0 };
        let layer = 2.0 * (projections + perceptron) + 4.0 * t * n * hs;
        3.0 * t * (layers * layer + 2.0 * e * v)
    }
}
