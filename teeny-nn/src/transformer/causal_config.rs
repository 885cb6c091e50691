//! [`CausalLmConfig`]: the sizes and options by which families of decoders differ.

use crate::attention::{RopePairing, RopeScaling};
use crate::model_options::{model_options, option_values};
use crate::module::Activation;
use crate::options::setters;
use teeny_formats::gguf::ElementType;

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

option_values! {
    NormKind: |config, key, old| match config.text(key)? {
        Some("layer") => NormKind::Layer { bias: true },
        Some("rms") => NormKind::Rms,
        Some("rms + 1") => NormKind::RmsUnitOffset,
        _ => old,
    }, |x| serde_json::json!(format!("{x:?}"));
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

    setters! {
        /// Sets the number of rotated elements of a head.
        with_dims(dims: usize) => dims = Some(dims);
        /// Sets the scaling.
        with_scaling(scaling: RopeScaling) => scaling = scaling;
    }
}

/// How a decoder knows the positions of its tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Positions {
    /// A learnt vector for each, added to the embedding of the token.
    Learned,
    /// Queries and keys are rotated.
    Rotary {
        /// In layers without a window.
        full: Rotary,
        /// In layers with a window, if they differ.
        windowed: Option<Rotary>,
    },
}

model_options! {
    /// Sizes and options of a [`super::CausalLm`]. [`CausalLmConfig::new`] describes Llama.
    #[derive(Clone, Debug, PartialEq)]
    pub struct CausalLmConfig {
        /// V, the size of the vocabulary.
        vocab: usize = 0, "vocab_size" "vocab_size" "sizes";
        /// The largest number of tokens T.
        context: usize = 0, "max_position_embeddings" "context_length" "sizes";
        /// The number of blocks.
        n_layer: usize = 0, "num_hidden_layers" "block_count" "sizes";
        /// E, the width.
        n_embd: usize = 0, "hidden_size" "embedding_length" "sizes";
        /// The number of query heads per block.
        n_head: usize = 0, "num_attention_heads" "attention.head_count" "heads";
        /// The number of key heads per block; `n_head`.
        n_kv_head: usize = 0, "num_key_value_heads" "attention.head_count_kv" "heads";
        /// The size of a head; `n_embd / n_head`.
        head_size: usize = 0, "head_dim" "attention.key_length" "heads";
        /// The width between the linear layers of an MLP.
        hidden: usize = 0, "intermediate_size" "feed_forward_length" "sizes";
        /// The norms; [`NormKind::Rms`].
        norm: NormKind = NormKind::Rms, "norm" "" "norms";
        /// Added to the variance by the norms; 1e-6.
        norm_eps: f64 = 1e-6, "rms_norm_eps" "attention.layer_norm_rms_epsilon" "norms";
        /// Whether attention and MLP have norms after them too, as in Gemma; false.
        post_norms: bool = false, "post_norms" "" "norms after attention";
        /// Whether queries and keys have a norm of each head; false.
        qk_norms: bool = false, "qk_norms" "" "norms of queries and keys";
        /// The activation; SiLU.
        activation: Activation = Activation::Silu, "hidden_act" "" "activation";
        /// Whether the MLP is `down(activation(gate x) * up x)`; true.
        gated: bool = true, "gated" "" "activation";
        /// Whether the projection to queries, keys and values has a bias; false.
        qkv_bias: bool = false, "qkv_bias" "" "biases of queries, keys and values";
        /// Whether the projection of the heads has a bias; false.
        out_bias: bool = false, "out_bias" "" "bias after attention";
        /// Whether the MLP has biases; false.
        mlp_bias: bool = false, "mlp_bias" "" "biases of the MLP";
        /// Positions; rotary with the base 10,000.
        positions: Positions = Positions::Rotary { full: Rotary::new(1e4), windowed: None };
        /// The number of keys that a query sees at most, for each layer; without limit.
        windows: Vec<Option<usize>> = Vec::new();
        /// The factor of the scores; `1 / sqrt(head_size)`.
        scale: Option<f64> = None,
            "attention_multiplier" "attention.scale" "factor of the scores";
        /// Whether scores are divided by the number of the layer, counted from 1; false.
        scale_by_layer: bool = false,
            "scale_attn_by_inverse_layer_idx" "" "factor of the scores by layer";
        /// `c` of scores `c tanh(s / c)`; none.
        softcap: Option<f64> = None,
            "attn_logit_softcapping" "attn_logit_softcapping" "softcap of the scores";
        /// `c` of logits `c tanh(z / c)`; none.
        logits_softcap: Option<f64> = None,
            "final_logit_softcapping" "final_logit_softcapping" "softcap of the logits";
        /// The divisor of logits; 1.
        logits_divisor: f64 = 1.0, "logits_scaling" "logit_scale" "divisor of the logits";
        /// The factor of token embeddings; 1.
        embed_scale: f64 = 1.0,
            "embedding_multiplier" "embedding_scale" "factor of the embeddings";
        /// The factor of the outputs of attention and MLP in the residual sums; 1.
        residual_scale: f64 = 1.0,
            "residual_multiplier" "residual_scale" "factor of the residual branches";
        /// Whether the head is the token embedding; false.
        tied: bool = false, "tie_word_embeddings" "" "tied embeddings";
        /// The probability of dropping, in training; 0.
        dropout: f64 = 0.0;
        /// The type in which the model's caches keep keys and values
        /// ([`crate::attention::KvCache::with_type`]); the dtype of the activations.
        cache: Option<ElementType> = None;
    }
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
            ..CausalLmConfig::defaults()
        }
    }

    /// The number of keys that a query of layer `i` sees at most.
    pub fn window(&self, i: usize) -> Option<usize> {
        self.windows.get(i).copied().flatten()
    }

    /// Whether there is a learnt vector for each position.
    pub fn learned_positions(&self) -> bool {
        self.positions == Positions::Learned
    }

    /// Q and KV, the widths of the queries and of the keys. Sizes that memory cannot hold are an
    /// error of the allocation.
    pub fn widths(&self) -> [usize; 2] {
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
        let mlp = e * hidden * if self.gated { 3.0 } else { 2.0 };
        let layer = 2.0 * (projections + mlp) + 4.0 * t * n * hs;
        3.0 * t * (layers * layer + 2.0 * e * v)
    }
}
