//! Attention as a layer: projections to heads, the fused attention of the device, the projection
//! back.
//!
//! ```text
//! x (B, T, E) ─ qkv ─┬─ q (B, n_head,    T, hs) ─ rope ─┐
//!                    ├─ k (B, n_kv_head, T, hs) ─ rope ─┤ cache ─ attention ─ (B, T, E) ─ out
//!                    └─ v (B, n_kv_head, T, hs) ────────┘
//! ```
//!
//! Heads are views of the projections. [`AttentionOptions`] says for each call which keys a query
//! sees. The computation is `Tensor::attention`.

mod cache;
mod ranks;
mod rope;

pub use cache::KvCache;
pub(crate) use cache::Mark;
pub use rope::{Rope, RopeOptions, RopePairing};

use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::{Module, require_type};
use crate::store::Path;
use ranks::Ranks;
use teeny_core::context::enter;
use teeny_core::{Attention, DType, Error, Result, Tensor};

/// Options of one call of attention, with PyTorch's defaults: every query sees every key.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct AttentionOptions<'a> {
    /// Whether query i sees only the keys up to its own position; false.
    pub causal: bool,
    /// With `causal`, the number of keys that a query sees at most; all.
    pub window: Option<usize>,
    /// The factor of the scores; `1 / sqrt(hs)`.
    pub scale: Option<f64>,
    /// A mask that broadcasts to (B, n_head, T, S): bool (true: may attend), or a float that is
    /// added to the scores.
    pub mask: Option<&'a Tensor>,
    /// (B, S) of bool: true for a token, false for padding. PyTorch's `key_padding_mask` is the
    /// negation.
    pub key_mask: Option<&'a Tensor>,
    /// Rotates queries and keys by their positions, counted from the first position in the cache.
    pub rope: Option<&'a Rope>,
    /// Keys and values of earlier calls: the input continues them.
    pub cache: Option<&'a mut KvCache>,
}

impl<'a> AttentionOptions<'a> {
    /// The defaults.
    pub fn new() -> AttentionOptions<'a> {
        AttentionOptions::default()
    }

    /// Causal attention: every position sees itself and those before it.
    pub fn causal() -> AttentionOptions<'a> {
        AttentionOptions { causal: true, ..AttentionOptions::default() }
    }

    /// Sets the number of keys that a query of causal attention sees at most.
    pub fn with_window(mut self, window: usize) -> AttentionOptions<'a> {
        self.window = Some(window);
        self
    }

    /// Sets the factor of the scores.
    pub fn with_scale(mut self, scale: f64) -> AttentionOptions<'a> {
        self.scale = Some(scale);
        self
    }

    /// Sets the mask.
    pub fn with_mask(mut self, mask: &'a Tensor) -> AttentionOptions<'a> {
        self.mask = Some(mask);
        self
    }

    /// Sets the mask of the keys.
    pub fn with_key_mask(mut self, key_mask: &'a Tensor) -> AttentionOptions<'a> {
        self.key_mask = Some(key_mask);
        self
    }

    /// Sets the rotary embedding.
    pub fn with_rope(mut self, rope: &'a Rope) -> AttentionOptions<'a> {
        self.rope = Some(rope);
        self
    }

    /// Sets the cache.
    pub fn with_cache(mut self, cache: &'a mut KvCache) -> AttentionOptions<'a> {
        self.cache = Some(cache);
        self
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

/// Options of a [`MultiheadAttention`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MultiheadAttentionOptions {
    /// The number of key heads, each shared by `n_head / n_kv_head` query heads (grouped queries);
    /// `n_head`.
    pub n_kv_head: Option<usize>,
    /// Whether there are biases; true.
    pub bias: bool,
    /// The probability of dropping an attention weight, in training; 0. The weights, (B, n_head, T,
    /// S), are then stored.
    pub dropout: f64,
}

impl Default for MultiheadAttentionOptions {
    fn default() -> MultiheadAttentionOptions {
        MultiheadAttentionOptions { n_kv_head: None, bias: true, dropout: 0.0 }
    }
}

impl MultiheadAttentionOptions {
    /// The defaults.
    pub fn new() -> MultiheadAttentionOptions {
        MultiheadAttentionOptions::default()
    }

    /// Sets the number of key heads.
    pub fn with_n_kv_head(mut self, n_kv_head: usize) -> MultiheadAttentionOptions {
        self.n_kv_head = Some(n_kv_head);
        self
    }

    /// Sets whether there are biases.
    pub fn with_bias(mut self, bias: bool) -> MultiheadAttentionOptions {
        self.bias = bias;
        self
    }

    /// Sets the probability of dropping an attention weight.
    pub fn with_dropout(mut self, p: f64) -> MultiheadAttentionOptions {
        self.dropout = p;
        self
    }
}

/// Multi-head attention of a sequence to itself or to another.
///
/// Shapes: x (B, T, E) or (T, E) → the same. Parameters have the names and layout of
/// `torch.nn.MultiheadAttention`: `in_proj_weight` (E + 2 KV, E) with the rows of queries, keys and
/// values in this order, `in_proj_bias`, `out_proj.weight` (E, E), `out_proj.bias`. KV is E, or
/// less if several query heads share a key head ([`MultiheadAttentionOptions::n_kv_head`]).
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::attention::{AttentionOptions, MultiheadAttention};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let attention = MultiheadAttention::new(&store.at("attn"), 32, 4)?;
/// let x = Tensor::randn((2, 5, 32), DType::F32, store.device())?; // (B, T, E)
/// let y = attention.attend(&x, AttentionOptions::causal())?; // (2, 5, 32)
/// assert_eq!(y.shape(), x.shape());
/// # Ok(()) }
/// ```
/// Source: Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023,
/// arXiv:2305.13245.
#[derive(Clone, Debug)]
pub struct MultiheadAttention {
    /// (E + 2 KV, E); the rows of this rank if the heads are split over ranks.
    pub qkv: Linear,
    /// (E, E); the columns of this rank if the heads are split over ranks.
    pub out: Linear,
    /// The heads of this rank.
    n_head: usize,
    n_kv_head: usize,
    dropout: Dropout,
    ranks: Ranks,
}

impl MultiheadAttention {
    /// A layer at `path` with `n_head` heads of size `n_embd / n_head`, and PyTorch's defaults and
    /// initial weights.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, or the names are taken.
    #[track_caller]
    pub fn new(path: &Path, n_embd: usize, n_head: usize) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::new");
        MultiheadAttention::with_options(path, n_embd, n_head, MultiheadAttentionOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, `n_kv_head` does not divide `n_head`, `dropout` is
    /// outside `0..=1`, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        n_embd: usize,
        n_head: usize,
        options: MultiheadAttentionOptions,
    ) -> Result<MultiheadAttention> {
        path.build("MultiheadAttention::with_options", || {
            let n_kv_head = options.n_kv_head.unwrap_or(n_head);
            check_heads(n_embd, n_head, n_kv_head)?;
            let rows = rows(n_embd, n_head, n_kv_head);
            let bias_of = |path: &Path, name: &str, size: usize| {
                let bias = options.bias.then(|| path.param(name, (size,), Init::ZEROS));
                bias.transpose()
            };
            let weight =
                path.param("in_proj_weight", (rows, n_embd), Init::XavierUniform { gain: 1.0 })?;
            let qkv = Linear { weight, bias: bias_of(path, "in_proj_bias", rows)? };
            let out_proj = path.at("out_proj");
            let out = Linear {
                weight: out_proj.param("weight", (n_embd, n_embd), Init::TORCH)?,
                bias: bias_of(&out_proj, "bias", n_embd)?,
            };
            MultiheadAttention::from_linear(path, qkv, out, n_head, options)
        })
    }

    /// A layer with the given projections, for models with other names: `qkv` (E + 2 KV, E) and
    /// `out` (E, E). `options.bias` is not used: the projections have biases or not. `path` is any
    /// path of the store.
    ///
    /// # Errors
    /// If the numbers of heads do not fit the weights, or `dropout` is outside `0..=1`.
    #[track_caller]
    pub fn from_linear(
        path: &Path,
        qkv: Linear,
        out: Linear,
        n_head: usize,
        options: MultiheadAttentionOptions,
    ) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::from_linear");
        MultiheadAttention::assemble(path, (qkv, out), n_head, options, Ranks::default())
    }

    /// `n_head` and `options` are those of all ranks together.
    fn assemble(
        path: &Path,
        (qkv, out): (Linear, Linear),
        n_head: usize,
        options: MultiheadAttentionOptions,
        ranks: Ranks,
    ) -> Result<MultiheadAttention> {
        let n_kv_head = options.n_kv_head.unwrap_or(n_head);
        let (weight, out_weight) = (qkv.weight.value(), out.weight.value());
        let n_embd = weight.shape()[1];
        check_heads(n_embd, n_head, n_kv_head)?;
        let rows = rows(n_embd, n_head, n_kv_head) / ranks.size();
        let columns = n_embd / ranks.size();
        if weight.shape()[0] != rows || out_weight.shape()[..] != [n_embd, columns] {
            let text = format!(
                "{} is {}, {} is {}",
                qkv.weight.name(),
                weight.shape(),
                out.weight.name(),
                out_weight.shape()
            );
            return Err(Error::shape(text).help(format!(
                "{n_head} heads over {n_kv_head} need ({rows}, {n_embd}) and ({n_embd}, {columns})"
            )));
        }
        let dropout = Dropout::new(path, options.dropout)?;
        let (n_head, n_kv_head) = (n_head / ranks.size(), n_kv_head / ranks.size());
        Ok(MultiheadAttention { qkv, out, n_head, n_kv_head, dropout, ranks })
    }

    /// The width E.
    pub fn n_embd(&self) -> usize {
        self.qkv.weight.value().shape()[1]
    }

    /// The number of query heads, of all ranks together.
    pub fn n_head(&self) -> usize {
        self.n_head * self.ranks.size()
    }

    /// The number of key heads, of all ranks together.
    pub fn n_kv_head(&self) -> usize {
        self.n_kv_head * self.ranks.size()
    }

    /// The widths of this rank's queries, E, and of its keys, KV.
    fn widths(&self) -> (usize, usize) {
        let head_size = self.n_embd() / self.n_head();
        (self.n_head * head_size, self.n_kv_head * head_size)
    }

    /// Self-attention: queries, keys and values of `x` (B, T, E), with the keys and values of the
    /// cache before them.
    ///
    /// # Errors
    /// If a shape does not fit, or the cache is full. The cache has not changed then; see
    /// [`KvCache::append`] for a device that fails.
    #[track_caller]
    pub fn attend(&self, x: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let _op = enter("multihead_attention");
        options.revert_on_error(|options| self.attend_with(x, options))
    }

    fn attend_with(&self, x: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        if x.ndim() == 2 {
            return self.attend_with(&x.unsqueeze(0)?, options)?.squeeze(0);
        }
        self.check(x, "x")?;
        let (q, kv) = self.widths();
        let projected = self.qkv.forward(&self.ranks.input(x)?)?; // (B, T, E + 2 KV)
        let parts = projected.split_sizes(-1, &[q, kv, kv])?;
        self.attend_heads(&parts[0], &parts[1], &parts[2], options)
    }

    /// Cross-attention: queries of `x` (B, T, E), keys and values of `context` (B, S, E).
    ///
    /// # Errors
    /// If a shape does not fit, or `options` has a cache.
    #[track_caller]
    pub fn attend_to(
        &self,
        x: &Tensor,
        context: &Tensor,
        options: AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let _op = enter("multihead_attention");
        if options.cache.is_some() {
            return Err(Error::value("a cache continues a sequence, and a context does not grow")
                .help("call attend_to without AttentionOptions::cache"));
        }
        if x.ndim() == 2 && context.ndim() == 2 {
            return self.attend_to(&x.unsqueeze(0)?, &context.unsqueeze(0)?, options)?.squeeze(0);
        }
        self.check(x, "x")?;
        self.check(context, "context")?;
        let queries = self.widths().0 as isize;
        let project = |x: &Tensor, from: isize, to: Option<isize>| -> Result<Tensor> {
            let (weight, bias) =
                (self.qkv.weight.value(), self.qkv.bias.as_ref().map(|bias| bias.value()));
            require_type(x, &self.qkv.weight)?;
            let rows = |t: &Tensor| match to {
                Some(to) => t.slice(0, from..to),
                None => t.slice(0, from..),
            };
            let y = self.ranks.input(x)?.matmul(&rows(&weight)?.t()?)?;
            match bias {
                Some(bias) => y.add(&rows(&bias)?),
                None => Ok(y),
            }
        };
        let q = project(x, 0, Some(queries))?; // (B, T, E)
        let kv = project(context, queries, None)?.chunk(-1, 2)?; // (B, S, KV) twice
        self.attend_heads(&q, &kv[0], &kv[1], options)
    }

    fn check(&self, x: &Tensor, what: &str) -> Result<()> {
        if x.ndim() == 3 && x.shape()[2] == self.n_embd() {
            return Ok(());
        }
        Err(Error::shape(format!("{what} must be (B, T, {}), not {}", self.n_embd(), x.shape()))
            .help("the last axis has size n_embd"))
    }

    /// The layer's output for projected q (B, T, E), k and v (B, S, KV).
    fn attend_heads(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        options: AttentionOptions<'_>,
    ) -> Result<Tensor> {
        // (B, n, T, hs)
        let heads = |x: &Tensor, n: usize| x.unflatten(-1, (n, x.shape()[2] / n))?.transpose(1, 2);
        let (mut q, mut k, mut v) =
            (heads(q, self.n_head)?, heads(k, self.n_kv_head)?, heads(v, self.n_kv_head)?);
        let past = options.cache.as_ref().map_or(0, |cache| cache.len());
        if let Some(rope) = options.rope {
            (q, k) = (rope.apply(&q, past)?, rope.apply(&k, past)?);
        }
        if let Some(cache) = options.cache {
            (k, v) = cache.append(&k, &v)?; // (B, n_kv_head, S, hs)
        }
        let mask = combined_mask(options.mask, options.key_mask)?;
        let mask = mask.map(|mask| self.ranks.mask(mask, self.n_head)).transpose()?;
        let attention = Attention {
            scale: options.scale,
            causal: options.causal.then_some(past),
            window: options.window,
        };
        let group = self.n_head / self.n_kv_head;
        let y = if group == 1 {
            self.scored(&q, &k, &v, mask.as_ref(), &attention)? // (B, n_head, T, hs)
        } else {
            let mask = mask.map(|mask| grouped_mask(mask, self.n_kv_head, group)).transpose()?;
            let q = q.unflatten(1, (self.n_kv_head, group))?; // (B, n_kv_head, G, T, hs)
            self.scored(&q, &k.unsqueeze(2)?, &v.unsqueeze(2)?, mask.as_ref(), &attention)?
                .flatten(1, 2)?
        };
        self.ranks.output(&self.out, &y.transpose(1, 2)?.flatten(2, 3)?) // (B, T, E)
    }

    fn scored(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        options: &Attention,
    ) -> Result<Tensor> {
        if self.dropout.drops() {
            let weights = q.attention_weights(k, mask, options)?; // (B, n_head, T, S)
            self.ranks.dropout(&self.dropout, &weights)?.matmul(v)
        } else {
            q.attention(k, v, mask, options)
        }
    }
}

impl Module for MultiheadAttention {
    /// Self-attention without a mask.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, AttentionOptions::default())
    }

    fn describe(&self) -> String {
        format!(
            "MultiheadAttention({}, {} heads over {})",
            self.n_embd(),
            self.n_head(),
            self.n_kv_head()
        )
    }
}

fn check_heads(n_embd: usize, n_head: usize, n_kv_head: usize) -> Result<()> {
    let divides = |n: usize, of: usize| n > 0 && of.is_multiple_of(n);
    if divides(n_head, n_embd) && divides(n_kv_head, n_head) {
        return Ok(());
    }
    let text = format!(
        "n_embd is {n_embd}, n_head {n_head}, n_kv_head {n_kv_head}: \
         each must be a multiple of the next"
    );
    Err(Error::value(text).help(
        "n_embd = n_head * head size, and n_head = n_kv_head * query heads per key head; none is 0",
    ))
}

/// The rows of queries, keys and values together. Sizes that memory cannot hold are an error of the
/// allocation.
fn rows(n_embd: usize, n_head: usize, n_kv_head: usize) -> usize {
    (n_embd / n_head).saturating_mul(n_kv_head).saturating_mul(2).saturating_add(n_embd)
}

/// A mask and a key mask (B, S) as one mask with four axes.
fn combined_mask(mask: Option<&Tensor>, key_mask: Option<&Tensor>) -> Result<Option<Tensor>> {
    let mask = match mask {
        Some(mask) if mask.ndim() > 4 => {
            return Err(Error::shape(format!(
                "a mask of {} has more axes than (B, n_head, T, S)",
                mask.shape()
            )));
        }
        Some(mask) => {
            let missing = 4 - mask.ndim();
            // (B, n_head, T, S), with 1 for missing axes
            Some((0..missing).try_fold(mask.clone(), |mask, _| mask.unsqueeze(0))?)
        }
        None => None,
    };
    let Some(key_mask) = key_mask else { return Ok(mask) };
    if key_mask.ndim() != 2 || key_mask.dtype() != DType::Bool {
        let text = format!(
            "key_mask must be (B, S) of bool, true for tokens, not {} of {}",
            key_mask.shape(),
            key_mask.dtype()
        );
        return Err(Error::shape(text));
    }
    let key_mask = key_mask.unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, S)
    match mask {
        None => Ok(Some(key_mask)),
        Some(mask) if mask.dtype() == DType::Bool => mask.and(&key_mask).map(Some),
        Some(mask) => key_mask.where_cond(&mask, f64::NEG_INFINITY).map(Some),
    }
}

/// A mask (B, n_head, T, S) reshaped for grouped queries: (B, n_kv_head, G, T, S).
fn grouped_mask(mask: Tensor, n_kv_head: usize, group: usize) -> Result<Tensor> {
    if mask.shape()[1] == 1 { mask.unsqueeze(1) } else { mask.unflatten(1, (n_kv_head, group)) }
}
