//! Options of attention: of one call, and of a layer.

use super::{KvCache, Rope};
use crate::options::options;
use teeny_core::{Result, Tensor};

options! {
    /// Options of one call of attention, with PyTorch's defaults: every query sees every key.
    #[derive(Debug)]
    pub struct AttentionOptions ['a] ['a] {
        /// Whether query i sees only the keys up to its own position; false.
        causal: bool = false, with_causal;
        /// With `causal`, the number of keys that a query sees at most; all.
        window: Option<usize> = None, with_window(usize);
        /// The factor of the scores; `1 / sqrt(hs)`.
        scale: Option<f64> = None, with_scale(f64);
        /// A mask that broadcasts to (B, n_head, T, S): bool (true: may attend), or a float that is
        /// added to the scores.
        mask: Option<&'a Tensor> = None, with_mask(&'a Tensor);
        /// (B, S) of bool: true for a token, false for padding. PyTorch's `key_padding_mask` is the
        /// negation.
        key_mask: Option<&'a Tensor> = None, with_key_mask(&'a Tensor);
        /// `c` of scores `c tanh(s / c)`, before the mask; none.
        softcap: Option<f64> = None, with_softcap(f64);
        /// Rotates queries and keys by their positions, counted from the first position in the
        /// cache.
        rope: Option<&'a Rope> = None, with_rope(&'a Rope);
        /// (B, T) of integers: the positions for `rope`, where they are not counted. Texts that are
        /// padded on the left begin later.
        positions: Option<&'a Tensor> = None, with_positions(&'a Tensor);
        /// Keys and values of earlier calls: the input continues them.
        cache: Option<&'a mut KvCache> = None, with_cache(&'a mut KvCache);
    }
}

impl<'a> AttentionOptions<'a> {
    /// Causal attention: every position sees itself and those before it.
    pub fn causal() -> AttentionOptions<'a> {
        AttentionOptions { causal: true, ..AttentionOptions::default() }
    }

    /// Runs `body` with these options; an error reverts the cache.
    pub(crate) fn revert_on_error<T>(
        mut self,
        body: impl FnOnce(AttentionOptions<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(cache) = self.cache.take() else { return body(self) };
        let mark = cache.mark();
        body(AttentionOptions { cache: Some(&mut *cache), ..self })
            .inspect_err(|_| cache.rewind(mark))
    }
}

options! {
    /// Options of a [`super::MultiheadAttention`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct MultiheadAttentionOptions {
        /// The number of key heads, each shared by `n_head / n_kv_head` query heads (grouped
        /// queries); `n_head`.
        n_kv_head: Option<usize> = None, with_n_kv_head(usize);
        /// The size of a head, hs; `n_embd / n_head`.
        head_size: Option<usize> = None, with_head_size(usize);
        /// Whether there are biases; true.
        bias: bool = true, with_bias;
        /// With `bias`, whether the projections to queries, keys and values have them too; true.
        qkv_bias: bool = true, with_qkv_bias;
        /// The probability of dropping an attention weight, in training; 0. The weights,
        /// (B, n_head, T, S), are then stored.
        dropout: f64 = 0.0, with_dropout;
    }
}
