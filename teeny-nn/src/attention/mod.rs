//! Attention as a layer: projections to heads, the fused attention of the device, the projection
//! back.
//!
//! ```text
//! x (B, T, E) ─ qkv ─┬─ q (B, n_head,    T, hs) ─ rope ─┐
//!                    ├─ k (B, n_kv_head, T, hs) ─ rope ─┤ cache ─ attention ─ (B, T, E) ─ out
//!                    └─ v (B, n_kv_head, T, hs) ────────┘
//! ```
//!
//! `qkv` is one projection or three ([`Projections`]); queries and keys may have a norm of each
//! head before `rope`. Heads are views of the projections. [`AttentionOptions`] says for each call
//! which keys a query sees. The computation is `Tensor::attention`.

mod cache;
mod masks;
mod options;
mod projections;
mod ranks;
mod rope;
mod rope_scaling;
mod weights;

pub use cache::KvCache;
pub(crate) use cache::Mark;
pub use options::{AttentionOptions, MultiheadAttentionOptions};
pub use projections::Projections;
pub use ranks::HeadRanks;
pub(crate) use ranks::OneRank;
pub use rope::{Rope, RopeOptions, RopePairing};
pub use rope_scaling::RopeScaling;
pub(crate) use weights::is_collecting;
pub use weights::with_weights;

use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::Module;
use crate::norm::RmsNorm;
use crate::store::Path;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Attention, Error, Result, Tensor};

/// Multi-head attention of a sequence to itself or to another.
///
/// Shapes: x (B, T, E) or (T, E) → the same. Parameters have the names and layout of
/// `torch.nn.MultiheadAttention`: `in_proj_weight` (Q + 2 KV, E) with the rows of queries, keys and
/// values in this order, `in_proj_bias`, `out_proj.weight` (E, Q), `out_proj.bias`. Q is `n_head *
/// hs` and KV `n_kv_head * hs`: both are E, unless several query heads share a key head
/// ([`MultiheadAttentionOptions::n_kv_head`]) or heads have another size.
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
    /// To Q + 2 KV features; the rows of this rank if the heads are split over ranks.
    pub qkv: Projections,
    /// (E, Q); the columns of this rank if the heads are split over ranks.
    pub out: Linear,
    /// The heads of this rank.
    n_head: usize,
    n_kv_head: usize,
    head_size: usize,
    /// The norms of the query heads and of the key heads.
    norms: Option<[RmsNorm; 2]>,
    dropout: Dropout,
    ranks: Arc<dyn HeadRanks>,
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
            let heads = Heads::new(n_embd, n_head, &options)?;
            let (columns, rows) = (heads.queries(), heads.rows());
            let bias_of = |path: &Path, name: &str, size: usize, bias: bool| {
                bias.then(|| path.param(name, (size,), Init::ZEROS)).transpose()
            };
            let [bias, qkv_bias] = [options.bias, options.bias && options.qkv_bias];
            let weight =
                path.matrix("in_proj_weight", [rows, n_embd], Init::XavierUniform { gain: 1.0 })?;
            let qkv = Linear { weight, bias: bias_of(path, "in_proj_bias", rows, qkv_bias)? };
            let out_proj = path.at("out_proj");
            let out = Linear {
                weight: out_proj.matrix("weight", [n_embd, columns], Init::TORCH)?,
                bias: bias_of(&out_proj, "bias", n_embd, bias)?,
            };
            MultiheadAttention::from_linear(path, qkv, out, n_head, options)
        })
    }

    /// A layer with the given projections, for models with other names: `qkv`, one of (Q + 2 KV, E)
    /// or three of (Q, E), (KV, E) and (KV, E), and `out` (E, Q). `options.bias` and
    /// `options.qkv_bias` are not used: the projections have biases or not. `path` is any path of
    /// the store.
    ///
    /// # Errors
    /// If the numbers of heads do not fit the weights, or `dropout` is outside `0..=1`.
    #[track_caller]
    pub fn from_linear(
        path: &Path,
        qkv: impl Into<Projections>,
        out: Linear,
        n_head: usize,
        options: MultiheadAttentionOptions,
    ) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::from_linear");
        MultiheadAttention::from_ranks(path, qkv, out, n_head, options, Arc::new(OneRank))
    }

    /// The same layer with norms of each head of the queries and of the keys, before they are
    /// rotated.
    ///
    /// # Errors
    /// If they do not normalise the size of a head.
    ///
    /// Source: Dehghani et al. 2023, arXiv:2302.05442, section 2.
    #[track_caller]
    pub fn with_norms(mut self, q: RmsNorm, k: RmsNorm) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::with_norms");
        for (what, norm) in [("queries", &q), ("keys", &k)] {
            if norm.sizes()[..] != [self.head_size] {
                let (own, head_size) = (norm.sizes(), self.head_size);
                return Err(Error::shape(format!(
                    "the norm of the {what} is of {own}, but heads are of size {head_size}"
                ))
                .help("RmsNorm::new(path, head_size)"));
            }
        }
        self.norms = Some([q, k]);
        Ok(self)
    }

    /// [`MultiheadAttention::from_linear`] of a layer whose heads are split over `ranks`: the
    /// projections are this rank's, `qkv` with its share of the queries, keys and values, and `out`
    /// with the columns that read its heads. Inputs, outputs, `n_head` and `options` describe the
    /// whole layer and are the same on all ranks; a cache has the heads of its rank.
    ///
    /// # Errors
    /// As [`MultiheadAttention::from_linear`]; if the number of ranks does not divide the number of
    /// key heads.
    ///
    /// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
    #[track_caller]
    pub fn from_ranks(
        path: &Path,
        qkv: impl Into<Projections>,
        out: Linear,
        n_head: usize,
        options: MultiheadAttentionOptions,
        ranks: Arc<dyn HeadRanks>,
    ) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::from_ranks");
        let (size, n_kv_head) = (ranks.size(), options.n_kv_head.unwrap_or(n_head));
        if !n_kv_head.is_multiple_of(size) {
            let text = format!("{n_kv_head} key heads cannot be split over {size} ranks");
            return Err(Error::value(text).help(format!(
                "a multiple of {size} heads, or a number of tensor-parallel ranks that divides \
                 {n_kv_head}"
            )));
        }
        let qkv = qkv.into();
        let n_embd = qkv.inputs();
        let heads = Heads::new(n_embd, n_head, &options)?;
        let out_shape = [n_embd, heads.queries() / size];
        let out_weight = out.weight.shape();
        let [q, kv] = [heads.queries() / size, heads.keys() / size];
        if !qkv.fits(q, kv) || out_weight[..] != out_shape {
            let out = format!("{} is {out_weight}", out.weight.name());
            let n_kv_head = heads.n_kv_head;
            return Err(Error::shape(format!("{}, {out}", qkv.described())).help(format!(
                "{n_head} heads over {n_kv_head} need ({}, {n_embd}) and ({n_embd}, {})",
                heads.rows() / size,
                out_shape[1]
            )));
        }
        let dropout = Dropout::new(path, options.dropout)?;
        let (n_head, n_kv_head) = (n_head / size, heads.n_kv_head / size);
        let head_size = heads.size;
        Ok(MultiheadAttention {
            qkv,
            out,
            n_head,
            n_kv_head,
            head_size,
            norms: None,
            dropout,
            ranks,
        })
    }

    /// The width E.
    pub fn n_embd(&self) -> usize {
        self.qkv.inputs()
    }

    /// The number of query heads, of all ranks together.
    pub fn n_head(&self) -> usize {
        self.n_head * self.ranks.size()
    }

    /// The number of key heads, of all ranks together.
    pub fn n_kv_head(&self) -> usize {
        self.n_kv_head * self.ranks.size()
    }

    /// The size of a head.
    pub fn head_size(&self) -> usize {
        self.head_size
    }

    /// The widths of this rank's queries, Q, and of its keys, KV.
    fn widths(&self) -> [usize; 2] {
        [self.n_head * self.head_size, self.n_kv_head * self.head_size]
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
        self.check(x, "x")?;
        if x.ndim() == 2 {
            return self.attend_with(&x.unsqueeze(0)?, options)?.squeeze(0);
        }
        let [q, k, v] = self.qkv.all(&self.ranks.input(x)?, self.widths())?;
        self.attend_heads(&q, &k, &v, options)
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
        self.check(x, "x")?;
        self.check(context, "context")?;
        if x.ndim() == 2 && context.ndim() == 2 {
            return self.attend_to(&x.unsqueeze(0)?, &context.unsqueeze(0)?, options)?.squeeze(0);
        }
        let [own, other] = [x, context].map(|x| x.shape()[0]);
        if x.ndim() != context.ndim() || own != other && own != 1 && other != 1 {
            let text = format!("x {} and context {} differ in batches", x.shape(), context.shape());
            return Err(Error::shape(text).help("x is (B, T, E), context (B, S, E)"));
        }
        let [x, context] = [self.ranks.input(x)?, self.ranks.input(context)?];
        let (q, [k, v]) = self.qkv.of_two(&x, &context, self.widths())?;
        self.attend_heads(&q, &k, &v, options)
    }

    fn check(&self, x: &Tensor, what: &str) -> Result<()> {
        if [2, 3].contains(&x.ndim()) && x.shape().last() == Some(&self.n_embd()) {
            return Ok(());
        }
        let (shape, dtype) = (x.shape(), x.dtype());
        let text = format!("{what} must be (B, T, {}), not {shape} of {dtype}", self.n_embd());
        Err(Error::shape(text).help(match dtype.is_float() {
            true => "the last axis has size n_embd",
            false => "an Embedding makes numbers of tokens (B, T) vectors (B, T, n_embd)",
        }))
    }

    /// The layer's output for projected q (B, T, Q), k and v (B, S, KV).
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
        if let Some([q_norm, k_norm]) = &self.norms {
            (q, k) = (q_norm.forward(&q)?, k_norm.forward(&k)?);
        }
        let past = options.cache.as_ref().map_or(0, |cache| cache.len());
        if let Some(rope) = options.rope {
            let rotated = |x: &Tensor| match options.positions {
                Some(positions) => rope.apply_at(x, positions),
                None => rope.apply(x, past),
            };
            (q, k) = (rotated(&q)?, rotated(&k)?);
        }
        let dtype = q.dtype();
        if let Some(cache) = options.cache {
            (k, v) = cache.append(&k, &v)?; // (B, n_kv_head, S, hs)
            q = q.cast(k.dtype())?; // not all keys to the type of one query
        }
        let sizes = [q.shape()[0].max(k.shape()[0]), q.shape()[2], k.shape()[2]];
        let mask = masks::combined(options.mask, options.key_mask, sizes)?;
        let mask = mask.map(|mask| self.ranks.mask(mask, self.n_head)).transpose()?;
        let mut attention = Attention::full();
        attention.scale = options.scale;
        attention.causal = options.causal.then_some(past);
        attention.window = options.window;
        attention.softcap = options.softcap;
        let group = self.n_head / self.n_kv_head;
        let y = if group == 1 {
            self.scored(&q, &k, &v, mask.as_ref(), &attention)? // (B, n_head, T, hs)
        } else {
            let mask = mask.map(|mask| masks::grouped(mask, self.n_kv_head, group)).transpose()?;
            let q = q.unflatten(1, (self.n_kv_head, group))?; // (B, n_kv_head, G, T, hs)
            self.scored(&q, &k.unsqueeze(2)?, &v.unsqueeze(2)?, mask.as_ref(), &attention)?
                .flatten(1, 2)?
        }
        .cast(dtype)?;
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
        let collects = weights::is_collecting();
        if !self.dropout.drops() && !collects {
            return q.attention(k, v, mask, options);
        }
        let weights = q.attention_weights(k, mask, options)?; // (B, n_head, T, S)
        if collects {
            let groups = weights.ndim() == 5;
            weights::collect(if groups { weights.flatten(1, 2)? } else { weights.clone() });
        }
        self.ranks.dropout(&self.dropout, &weights)?.matmul(v)
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

/// The heads of all ranks together.
struct Heads {
    n_head: usize,
    n_kv_head: usize,
    size: usize,
}

impl Heads {
    fn new(n_embd: usize, n_head: usize, options: &MultiheadAttentionOptions) -> Result<Heads> {
        let n_kv_head = options.n_kv_head.unwrap_or(n_head);
        let divides = |n: usize, of: usize| n > 0 && of.is_multiple_of(n);
        let size = options.head_size.or(n_embd.checked_div(n_head)).unwrap_or(0);
        let fits = options.head_size.is_some() || divides(n_head, n_embd);
        if fits && size > 0 && divides(n_kv_head, n_head) {
            return Ok(Heads { n_head, n_kv_head, size });
        }
        let own = options.head_size.map(|size| format!(", head_size {size}")).unwrap_or_default();
        let text = format!(
            "n_embd is {n_embd}, n_head {n_head}, n_kv_head {n_kv_head}{own}: \
             each must be a multiple of the next"
        );
        Err(Error::value(text).help(
            "n_embd = n_head * head size, and n_head = n_kv_head * query heads per key head; \
             none is 0",
        ))
    }

    /// Q, the width of the queries. Sizes that memory cannot hold are an error of the allocation.
    fn queries(&self) -> usize {
        self.n_head.saturating_mul(self.size)
    }

    /// KV, the width of the keys.
    fn keys(&self) -> usize {
        self.n_kv_head.saturating_mul(self.size)
    }

    /// The rows of queries, keys and values together.
    fn rows(&self) -> usize {
        self.keys().saturating_mul(2).saturating_add(self.queries())
    }
}
