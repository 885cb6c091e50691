//! Attention as a layer: projections to heads, the device's attention, the projection back.
//!
//! ```text
//! x (B, T, E) ── qkv ──┬─ q (B, n_head,    T, hs) ─ rope ─┐
//!                      ├─ k (B, n_kv_head, T, hs) ─ rope ─┤ cache ─ Tensor::attention ─ (B, T, E) ── out
//!                      └─ v (B, n_kv_head, T, hs) ────────┘
//! ```
//!
//! Heads are views of the projections; what a query may see is said by [`Attend`] at each call. The
//! mathematics is `Tensor::attention`.

mod cache;
mod rope;

pub use cache::KvCache;
pub(crate) use cache::Mark;
pub use rope::{Pairs, Rope};

use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::Module;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Attention, DType, Error, Result, Tensor};

/// What a call of attention may see, and what it uses besides its input. The default: everything
/// sees everything.
#[derive(Debug, Default)]
pub struct Attend<'a> {
    /// Query i sees keys up to its own position.
    pub causal: bool,
    /// Of those, the last `window` only.
    pub window: Option<usize>,
    /// The factor of the scores instead of `1 / sqrt(hs)`.
    pub scale: Option<f64>,
    /// Broadcasts to (B, n_head, T, S): bool (true: may attend) or a float that is added to the
    /// scores.
    pub mask: Option<&'a Tensor>,
    /// (B, S) of bool: true where there is a token, false where the batch was filled up. PyTorch's
    /// `key_padding_mask` is the negation.
    pub padding: Option<&'a Tensor>,
    /// Turns queries and keys by their positions, which go on from those in the cache.
    pub rope: Option<&'a Rope>,
    /// Keys and values of earlier calls: the input continues them.
    pub cache: Option<&'a mut KvCache>,
}

impl<'a> Attend<'a> {
    /// Every position sees those before it and itself.
    pub fn causal() -> Attend<'a> {
        Attend { causal: true, ..Attend::default() }
    }

    /// The same with a cache.
    pub fn cached(mut self, cache: &'a mut KvCache) -> Attend<'a> {
        self.cache = Some(cache);
        self
    }

    /// The same with rotary embedding.
    pub fn rope(mut self, rope: &'a Rope) -> Attend<'a> {
        self.rope = Some(rope);
        self
    }

    /// The same with padding.
    pub fn padding(mut self, padding: &'a Tensor) -> Attend<'a> {
        self.padding = Some(padding);
        self
    }

    /// The same with a mask.
    pub fn mask(mut self, mask: &'a Tensor) -> Attend<'a> {
        self.mask = Some(mask);
        self
    }

    /// Runs `body` with this; after an error the cache is what it was.
    pub(crate) fn undone_on_error<T>(
        mut self,
        body: impl FnOnce(Attend<'_>) -> Result<T>,
    ) -> Result<T> {
        let Some(cache) = self.cache.take() else { return body(self) };
        let mark = cache.mark();
        body(Attend { cache: Some(&mut *cache), ..self }).inspect_err(|_| cache.rewind(mark))
    }
}

/// Multi-head attention, of a sequence on itself or on another.
///
/// Shapes: x (B, T, E) or (T, E) → the same. Parameters as `torch.nn.MultiheadAttention` names and
/// lays them out: `in_proj_weight` (E + 2 KV, E) with the rows of queries, keys and values below
/// each other, `in_proj_bias`, `out_proj.weight` (E, E), `out_proj.bias`; KV is E unless several
/// query heads share a key head (grouped queries, [`MultiheadAttention::grouped`]).
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{Attend, MultiheadAttention, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let attention = MultiheadAttention::new(&store.at("attn"), 32, 4)?;
/// let x = Tensor::randn((2, 5, 32), DType::F32, store.device())?; // (B, T, E)
/// let y = attention.attend(&x, Attend::causal())?; // (2, 5, 32)
/// assert_eq!(y.shape(), x.shape());
/// # Ok(()) }
/// ```
/// Source: Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023,
/// arXiv:2305.13245.
#[derive(Clone, Debug)]
pub struct MultiheadAttention {
    /// (E + 2 KV, E).
    pub qkv: Linear,
    /// (E, E).
    pub out: Linear,
    n_head: usize,
    n_kv_head: usize,
    dropout: Option<Dropout>,
}

impl MultiheadAttention {
    /// A layer at `path` with `n_head` heads of `n_embd / n_head` numbers, biases, and PyTorch's
    /// first values.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, or the names are taken.
    #[track_caller]
    pub fn new(path: &Path, n_embd: usize, n_head: usize) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::new");
        MultiheadAttention::grouped(path, n_embd, n_head, n_head, true)
    }

    /// A layer whose `n_head` query heads share `n_kv_head` heads of keys and values, with or
    /// without biases.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd` or `n_kv_head` does not divide `n_head`, or the names
    /// are taken.
    #[track_caller]
    pub fn grouped(
        path: &Path,
        n_embd: usize,
        n_head: usize,
        n_kv_head: usize,
        bias: bool,
    ) -> Result<MultiheadAttention> {
        path.build("MultiheadAttention::grouped", || {
            check_heads(n_embd, n_head, n_kv_head)?;
            let rows = rows(n_embd, n_head, n_kv_head);
            let bias_of = |path: &Path, name: &str, size: usize| {
                if bias { path.param(name, (size,), Init::ZEROS).map(Some) } else { Ok(None) }
            };
            let weight =
                path.param("in_proj_weight", (rows, n_embd), Init::XavierUniform { gain: 1.0 })?;
            let qkv = Linear { weight, bias: bias_of(path, "in_proj_bias", rows)? };
            let below = path.at("out_proj");
            let out = Linear {
                weight: below.param("weight", (n_embd, n_embd), Init::TORCH)?,
                bias: bias_of(&below, "bias", n_embd)?,
            };
            MultiheadAttention::from_parts(qkv, out, n_head, n_kv_head)
        })
    }

    /// A layer of projections made elsewhere, for models whose names differ: `qkv` (E + 2 KV, E)
    /// and `out` (E, E).
    ///
    /// # Errors
    /// If the numbers of heads do not fit the weights.
    #[track_caller]
    pub fn from_parts(
        qkv: Linear,
        out: Linear,
        n_head: usize,
        n_kv_head: usize,
    ) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::from_parts");
        let (weight, out_weight) = (qkv.weight.value(), out.weight.value());
        let n_embd = weight.shape()[1];
        check_heads(n_embd, n_head, n_kv_head)?;
        let rows = rows(n_embd, n_head, n_kv_head);
        if weight.shape()[0] != rows || out_weight.shape()[..] != [n_embd, n_embd] {
            let text = format!(
                "{} is {}, {} is {}",
                qkv.weight.name(),
                weight.shape(),
                out.weight.name(),
                out_weight.shape()
            );
            return Err(Error::shape(text).help(format!(
                "{n_head} heads over {n_kv_head} need ({rows}, {n_embd}) and ({n_embd}, {n_embd})"
            )));
        }
        Ok(MultiheadAttention { qkv, out, n_head, n_kv_head, dropout: None })
    }

    /// The same layer, dropping attention weights with probability `p` in training. The weights
    /// must then be stored: (B, n_head, T, S) numbers.
    ///
    /// # Errors
    /// If `p` is outside `0..=1`.
    #[track_caller]
    pub fn with_dropout(mut self, path: &Path, p: f64) -> Result<MultiheadAttention> {
        let _op = enter("MultiheadAttention::with_dropout");
        self.dropout = Some(Dropout::new(path, p)?);
        Ok(self)
    }

    /// The width E.
    pub fn n_embd(&self) -> usize {
        self.qkv.weight.value().shape()[1]
    }

    /// The number of query heads.
    pub fn n_head(&self) -> usize {
        self.n_head
    }

    /// The number of key heads.
    pub fn n_kv_head(&self) -> usize {
        self.n_kv_head
    }

    /// Self-attention: queries, keys and values of `x` (B, T, E), with the keys and values of the
    /// cache before them.
    ///
    /// # Errors
    /// If a shape does not fit, or the cache is full. The cache is then what it was; see
    /// [`KvCache::append`] for a device that fails.
    #[track_caller]
    pub fn attend(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _op = enter("multihead_attention");
        attend.undone_on_error(|attend| self.attend_with(x, attend))
    }

    fn attend_with(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        if x.ndim() == 2 {
            return self.attend_with(&x.unsqueeze(0)?, attend)?.squeeze(0);
        }
        self.check(x, "x")?;
        let kv = self.n_kv_head * (self.n_embd() / self.n_head);
        let projected = self.qkv.forward(x)?; // (B, T, E + 2 KV)
        let parts = projected.split_sizes(-1, &[self.n_embd(), kv, kv])?;
        self.over(&parts[0], &parts[1], &parts[2], attend)
    }

    /// Cross-attention: queries of `x` (B, T, E), keys and values of `context` (B, S, E). A cache
    /// keeps nothing here: the context does not grow.
    ///
    /// # Errors
    /// If a shape does not fit, or `attend` brings a cache.
    #[track_caller]
    pub fn attend_to(&self, x: &Tensor, context: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let _op = enter("multihead_attention");
        if attend.cache.is_some() {
            return Err(Error::value("a cache continues a sequence, and a context does not grow")
                .help("leave Attend::cache empty"));
        }
        if x.ndim() == 2 && context.ndim() == 2 {
            return self.attend_to(&x.unsqueeze(0)?, &context.unsqueeze(0)?, attend)?.squeeze(0);
        }
        self.check(x, "x")?;
        self.check(context, "context")?;
        let n_embd = self.n_embd() as isize;
        let half = |x: &Tensor, from: isize, to: Option<isize>| -> Result<Tensor> {
            let (weight, bias) =
                (self.qkv.weight.value(), self.qkv.bias.as_ref().map(|bias| bias.value()));
            let rows = |t: &Tensor| match to {
                Some(to) => t.slice(0, from..to),
                None => t.slice(0, from..),
            };
            let y = x.matmul(&rows(&weight)?.t()?)?;
            match bias {
                Some(bias) => y.add(&rows(&bias)?),
                None => Ok(y),
            }
        };
        let q = half(x, 0, Some(n_embd))?; // (B, T, E)
        let kv = half(context, n_embd, None)?.chunk(-1, 2)?; // (B, S, KV) twice
        self.over(&q, &kv[0], &kv[1], attend)
    }

    fn check(&self, x: &Tensor, what: &str) -> Result<()> {
        if x.ndim() == 3 && x.shape()[2] == self.n_embd() {
            return Ok(());
        }
        Err(Error::shape(format!("{what} must be (B, T, {}), not {}", self.n_embd(), x.shape()))
            .help("the last axis holds n_embd numbers"))
    }

    /// Projected q (B, T, E), k and v (B, S, KV) to the layer's output.
    fn over(&self, q: &Tensor, k: &Tensor, v: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        // (B, n, T, hs)
        let heads = |x: &Tensor, n: usize| x.unflatten(-1, (n, x.shape()[2] / n))?.transpose(1, 2);
        let (mut q, mut k, mut v) =
            (heads(q, self.n_head)?, heads(k, self.n_kv_head)?, heads(v, self.n_kv_head)?);
        let past = attend.cache.as_ref().map_or(0, |cache| cache.len());
        if let Some(rope) = attend.rope {
            (q, k) = (rope.apply(&q, past)?, rope.apply(&k, past)?);
        }
        if let Some(cache) = attend.cache {
            (k, v) = cache.append(&k, &v)?; // (B, n_kv_head, S, hs)
        }
        let mask = joined(attend.mask, attend.padding)?;
        let options = Attention {
            scale: attend.scale,
            causal: attend.causal.then_some(past),
            window: attend.window,
        };
        let group = self.n_head / self.n_kv_head;
        let y = if group == 1 {
            self.scored(&q, &k, &v, mask.as_ref(), &options)? // (B, n_head, T, hs)
        } else {
            let mask = mask.map(|mask| grouped_mask(mask, self.n_kv_head, group)).transpose()?;
            let q = q.unflatten(1, (self.n_kv_head, group))?; // (B, n_kv_head, G, T, hs)
            self.scored(&q, &k.unsqueeze(2)?, &v.unsqueeze(2)?, mask.as_ref(), &options)?
                .flatten(1, 2)?
        };
        self.out.forward(&y.transpose(1, 2)?.flatten(2, 3)?) // (B, T, E)
    }

    fn scored(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        options: &Attention,
    ) -> Result<Tensor> {
        match self.dropout.as_ref().filter(|dropout| dropout.drops()) {
            Some(dropout) => dropout.forward(&q.attention_weights(k, mask, options)?)?.matmul(v),
            None => q.attention(k, v, mask, options),
        }
    }
}

impl Module for MultiheadAttention {
    /// Self-attention in which everything sees everything.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, Attend::default())
    }

    fn describe(&self) -> String {
        format!(
            "MultiheadAttention({} numbers, {} heads over {})",
            self.n_embd(),
            self.n_head,
            self.n_kv_head
        )
    }
}

fn check_heads(n_embd: usize, n_head: usize, n_kv_head: usize) -> Result<()> {
    let divides = |n: usize, of: usize| n > 0 && of.is_multiple_of(n);
    if divides(n_head, n_embd) && divides(n_kv_head, n_head) {
        return Ok(());
    }
    let text = format!(
        "{n_embd} numbers, {n_head} heads and {n_kv_head} heads of keys: each must be a multiple of the next"
    );
    Err(Error::value(text).help(
        "n_embd = n_head * head size, and n_head = n_kv_head * queries per key head; none is 0",
    ))
}

/// How many rows queries, keys and values take together. Sizes that memory cannot hold are refused
/// where they are allocated.
fn rows(n_embd: usize, n_head: usize, n_kv_head: usize) -> usize {
    (n_embd / n_head).saturating_mul(n_kv_head).saturating_mul(2).saturating_add(n_embd)
}

/// A mask and the padding (B, S) as one mask of four axes.
fn joined(mask: Option<&Tensor>, padding: Option<&Tensor>) -> Result<Option<Tensor>> {
    let mask = match mask {
        Some(mask) if mask.ndim() > 4 => {
            return Err(Error::shape(format!(
                "a mask of {} has more axes than (B, n_head, T, S)",
                mask.shape()
            )));
        }
        Some(mask) => {
            let missing = 4 - mask.ndim();
            // (B, n_head, T, S), mostly of ones
            Some((0..missing).try_fold(mask.clone(), |mask, _| mask.unsqueeze(0))?)
        }
        None => None,
    };
    let Some(padding) = padding else { return Ok(mask) };
    if padding.ndim() != 2 || padding.dtype() != DType::Bool {
        let text = format!(
            "padding must be (B, S) of bool, true for tokens, not {} of {}",
            padding.shape(),
            padding.dtype()
        );
        return Err(Error::shape(text));
    }
    let padding = padding.unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, S)
    match mask {
        None => Ok(Some(padding)),
        Some(mask) if mask.dtype() == DType::Bool => mask.and(&padding).map(Some),
        Some(mask) => padding.select(&mask, f64::NEG_INFINITY).map(Some),
    }
}

/// A mask of (B, n_head, T, S) for queries in groups: (B, n_kv_head, G, T, S).
fn grouped_mask(mask: Tensor, n_kv_head: usize, group: usize) -> Result<Tensor> {
    if mask.shape()[1] == 1 { mask.unsqueeze(1) } else { mask.unflatten(1, (n_kv_head, group)) }
}
