//! Attention as data: its options, and its operands as a device gets them. The definition is in
//! [`crate::attention`].

use crate::tensor::Tensor;
use std::ops::Range;

/// Which keys a query sees, and how scores are scaled.
///
/// # Example
/// ```
/// use teeny_core::Attention;
/// let cached = 5; // keys that are older than the first query
/// let options = Attention::causal(cached).window(3);
/// assert_eq!(options.keys(1, 8), 4..7); // query 1 is position 6; it sees 4, 5 and itself
/// assert_eq!(Attention::full().keys(1, 8), 0..8);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Attention {
    /// The factor of the scores; `None`: `1 / sqrt(hs)`.
    pub scale: Option<f64>,
    /// `Some(offset)`: query i sees keys `j <= i + offset` only. The offset is the number of keys
    /// before the first query: 0 where queries and keys are the same positions, S - T where the
    /// queries are the last T of S positions (a KV cache).
    pub causal: Option<usize>,
    /// A causal query sees only the last `window` of its keys: `j > i + offset - window`.
    pub window: Option<usize>,
    /// `c` of scores `c tanh(s / c)`, which stay within `±c`, before the mask. Positive.
    pub softcap: Option<f64>,
}

impl Attention {
    /// Every query sees every key.
    pub fn full() -> Attention {
        Attention::default()
    }

    /// Query i sees the keys up to `i + offset`.
    pub fn causal(offset: usize) -> Attention {
        Attention { causal: Some(offset), ..Attention::default() }
    }

    /// The same, but scores are multiplied by `scale` instead of `1 / sqrt(hs)`.
    pub fn scale(mut self, scale: f64) -> Attention {
        self.scale = Some(scale);
        self
    }

    /// The same, but a query sees only the last `window` of its keys, itself included.
    pub fn window(mut self, window: usize) -> Attention {
        self.window = Some(window);
        self
    }

    /// The same, but scores are `c tanh(s / c)`, as in Gemma 2.
    ///
    /// Source: Gemma Team 2024, arXiv:2408.00118, section 2.
    pub fn softcap(mut self, c: f64) -> Attention {
        self.softcap = Some(c);
        self
    }

    /// The factor of the scores for heads of size `hs`.
    pub fn factor(&self, hs: usize) -> f64 {
        self.scale.unwrap_or_else(|| 1.0 / (hs.max(1) as f64).sqrt())
    }

    /// The keys of `keys` that query `i` sees, masks aside.
    pub fn keys(&self, i: usize, keys: usize) -> Range<usize> {
        let Some((offset, window)) = self.limits(keys) else { return 0..keys };
        let end = i.saturating_add(offset).saturating_add(1);
        end.saturating_sub(window).min(keys)..end.min(keys)
    }

    /// Offset and window, as numbers that exclude no key without a limit: query i of `queries` sees
    /// key j of `keys` exactly if `0 <= i + offset - j < window`. The offset is at most `keys`, the
    /// window at most `queries + keys`.
    pub fn band(&self, queries: usize, keys: usize) -> (usize, usize) {
        let (offset, window) = self.limits(keys).unwrap_or((keys, usize::MAX));
        (offset, window.min(queries.saturating_add(offset)))
    }

    /// Offset and window of causal attention to `keys`. Beyond the last key, a larger offset only
    /// moves the window on.
    fn limits(&self, keys: usize) -> Option<(usize, usize)> {
        let causal = self.causal?;
        let offset = causal.min(keys);
        Some((offset, self.window.map_or(usize::MAX, |w| w.saturating_sub(causal - offset))))
    }
}

/// The operands of attention as a [`crate::Device`] gets them: one device, one float type, equal
/// leading axes, arbitrary strides. A head shared by several queries is an axis of stride 0 in `k`
/// and `v`.
#[derive(Clone, Copy)]
pub struct AttentionInputs<'a> {
    /// Queries (.., T, hs).
    pub q: &'a Tensor,
    /// Keys (.., S, hs).
    pub k: &'a Tensor,
    /// Values (.., S, hv).
    pub v: &'a Tensor,
    /// (.., T, S), usually with an axis of stride 0: bool (true: may attend), or of the operands'
    /// type and added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Scale and limits.
    pub options: Attention,
}

impl AttentionInputs<'_> {
    /// T, S, hs and hv.
    pub fn sizes(&self) -> [usize; 4] {
        let last = |x: &Tensor, back: usize| x.shape()[x.ndim() - back];
        [last(self.q, 2), last(self.k, 2), last(self.q, 1), last(self.v, 1)]
    }
}
