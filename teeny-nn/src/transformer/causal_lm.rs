//! [`CausalLm`]: a decoder-only transformer of any published family.
//!
//! ```text
//! tokens (B, T) ─ embedding ─ block ─ block ─ … ─ norm ─ head ─ logits (B, T, V)
//!                               │
//!                               x + attention(norm(x)),  x + mlp(norm(x))
//! ```
//!
//! Families differ by options ([`CausalLmConfig`]), not by code. Parameter names are Phi 3's
//! without `model.`: `embed_tokens`, `layers.0.self_attn.qkv_proj`, `layers.0.mlp.gate_up_proj` and
//! so on. The crate `teeny-models` opens files of such models; [`super::Gpt`] is GPT-2 with its
//! names.

use super::CachedLm;
use super::block::{Block, BlockLayers, LLAMA, Names, Plain, norm};
use super::causal_config::{CausalLmConfig, Positions, Rotary};
use crate::attention::{AttentionOptions, KvCache, Mark, Rope};
use crate::dropout::Dropout;
use crate::embedding::{Embedding, EmbeddingOptions};
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::module::Module;
use crate::options::setters;
use crate::store::{Param, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teeny_autograd::checkpoint;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor};

/// The tokens of a decoder, and which of them are padding.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CausalInputs<'a> {
    /// (B, T) of integers.
    pub tokens: &'a Tensor,
    /// (B, S) of bool, for the tokens of the caches and the T new ones: true for a token, false for
    /// padding; all are tokens. Positions count tokens only.
    pub mask: Option<&'a Tensor>,
}

impl<'a> CausalInputs<'a> {
    /// Tokens (B, T) without padding.
    pub fn new(tokens: &'a Tensor) -> CausalInputs<'a> {
        CausalInputs { tokens, mask: None }
    }

    setters! {
        /// Sets which tokens are not padding.
        with_mask(mask: &'a Tensor) => mask = Some(mask);
    }
}

impl<'a> From<&'a Tensor> for CausalInputs<'a> {
    fn from(tokens: &'a Tensor) -> CausalInputs<'a> {
        CausalInputs::new(tokens)
    }
}

/// Makes the table of rotations of texts of a length, for positions below the second number.
type Table = dyn Fn(usize, usize) -> Result<Rope> + Send + Sync;

/// Tables of rotations, for texts up to a length and for longer ones.
struct Ropes {
    short: Rope,
    /// The length beyond which rotations are others, and their table; without one each length has
    /// its own.
    long: Option<(usize, Option<Rope>)>,
    table: Box<Table>,
}

impl Ropes {
    fn new(path: &Path, rotary: &Rotary, config: &CausalLmConfig) -> Result<Ropes> {
        let device = path.store().device().clone();
        let dims = rotary.dims.unwrap_or(config.head_size);
        if dims == 0 || !dims.is_multiple_of(2) || dims > config.head_size {
            let text = format!("{dims} of {} elements of a head are rotated", config.head_size);
            return Err(Error::value(text).help("an even number, at least 2"));
        }
        let (context, size, rotary) = (config.context, config.head_size, rotary.clone());
        let (after, grows) = (rotary.scaling.changes_after(), rotary.scaling.grows());
        let table = move |length: usize, capacity: usize| {
            let (f, factor) = rotary.scaling.frequencies(dims, rotary.base, length);
            Rope::from_frequencies(&f, factor, size, capacity, rotary.pairing, &device)
        };
        let (short, long) = match after.filter(|&length| length < context) {
            None => (table(context, context)?, None),
            Some(length) => {
                let long = (!grows).then(|| table(context, context)).transpose()?;
                (table(length, length)?, Some((length, long)))
            }
        };
        Ok(Ropes { short, long, table: Box::new(table) })
    }

    /// The table for texts of `length` tokens.
    fn of(&self, length: usize) -> Result<Rope> {
        match &self.long {
            Some((above, Some(long))) if length > *above => Ok(long.clone()),
            Some((above, None)) if length > *above => (self.table)(length, length),
            _ => Ok(self.short.clone()),
        }
    }
}

/// A decoder-only transformer.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::transformer::{CausalLm, CausalLmConfig};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let config = CausalLmConfig::new(65, 32, 2, 4, 16, 40); // a small Llama
/// let model = CausalLm::new(&store.root(), config)?;
/// let tokens = Tensor::new([[1i32, 2, 3]], store.device())?; // (B, T)
/// let logits = model.logits(&tokens)?; // (B, T, V)
/// assert_eq!(logits.shape()[..], [1, 3, 65]);
/// // two more tokens, each the most likely one
/// let longer = model.generate(&tokens, 2, |logits| logits.argmax(-1))?;
/// assert_eq!(longer.shape()[..], [1, 5]);
/// # Ok(()) }
/// ```
/// Source: Touvron et al. 2023, arXiv:2302.13971; the initial weights are from GPT-2, Radford et
/// al. 2019, with standard deviation `0.02 / sqrt(2 n_layer)` for the residual projections.
pub struct CausalLm {
    config: Arc<CausalLmConfig>,
    tokens: Embedding,
    positions: Option<Embedding>,
    /// Without a window, and with one.
    ropes: Option<[Option<Ropes>; 2]>,
    dropout: Dropout,
    blocks: Vec<Arc<Block>>,
    norm: Box<dyn Module>,
    /// (V, E), unless the head is the embedding.
    head: Option<Linear>,
    /// The number of ranks that share the model.
    pub(super) ranks: usize,
    /// Whether blocks are checkpoints.
    checkpoints: AtomicBool,
}

impl CausalLm {
    /// A model at `path`.
    ///
    /// # Errors
    /// If numbers of heads or sizes do not fit each other, `dropout` is outside `0..=1`, or names
    /// are taken.
    #[track_caller]
    pub fn new(path: &Path, config: CausalLmConfig) -> Result<CausalLm> {
        path.build("CausalLm::new", || CausalLm::assemble(path, config, &LLAMA, &Plain))
    }

    pub(super) fn assemble(
        path: &Path,
        config: CausalLmConfig,
        names: &Names,
        layers: &dyn BlockLayers,
    ) -> Result<CausalLm> {
        let init = Init::GPT2;
        let embedding = |name: &str, count: usize| {
            let options = EmbeddingOptions::new().with_init(init);
            Embedding::with_options(&path.at(name), count, config.n_embd, options)
        };
        let tokens = embedding(names.tokens, config.vocab)?;
        let (positions, ropes) = match &config.positions {
            Positions::Learned => (Some(embedding(names.positions, config.context)?), None),
            Positions::Rotary { full, windowed } => {
                let other = windowed.as_ref().map(|rotary| Ropes::new(path, rotary, &config));
                (None, Some([Some(Ropes::new(path, full, &config)?), other.transpose()?]))
            }
        };
        let blocks = (0..config.n_layer)
            .map(|i| Block::new(&path.at(names.blocks).at(i), names, &config, layers).map(Arc::new))
            .collect::<Result<_>>()?;
        let norm = norm(&path.at(names.last_norm), config.n_embd, &config)?;
        let head = if config.tied {
            tokens.weight.tie();
            None
        } else {
            let options = LinearOptions::new().with_weight_init(init).with_bias(false);
            let path = path.at("lm_head");
            Some(Linear::with_options(&path, config.n_embd, config.vocab, options)?)
        };
        let dropout = Dropout::new(path, config.dropout)?;
        let (config, checkpoints) = (Arc::new(config), AtomicBool::new(false));
        Ok(CausalLm {
            config,
            tokens,
            positions,
            ropes,
            dropout,
            blocks,
            norm,
            head,
            ranks: layers.ranks().size(),
            checkpoints,
        })
    }

    /// Sets whether the forward pass keeps the inputs of blocks alone, for less memory: the
    /// backward pass computes each block again ([`teeny_autograd::checkpoint`]), a third more time.
    /// False at first. Gradients are the same to the bit.
    pub fn set_checkpoints(&self, on: bool) {
        self.checkpoints.store(on, Ordering::Relaxed);
    }

    /// Sizes and options.
    pub fn config(&self) -> &CausalLmConfig {
        &self.config
    }

    /// The token embedding (V, E).
    pub fn embedding(&self) -> &Param {
        &self.tokens.weight
    }

    /// The length beyond which positions mean other rotations.
    pub fn changes_after(&self) -> Option<usize> {
        self.longer().map(|(length, _)| *length).min()
    }

    /// The length after which rotations change, if a text of `end` tokens is beyond it and `past`
    /// ones in caches are not: their keys are to be computed again.
    pub fn rotations_change(&self, past: usize, end: usize) -> Option<usize> {
        let last = self.changes_after().filter(|_| !self.grows());
        last.filter(|&last| 0 < past && past <= last && last < end)
    }

    /// Whether each length beyond [`CausalLm::changes_after`] has its own rotations.
    pub fn grows(&self) -> bool {
        self.longer().any(|(_, table)| table.is_none())
    }

    fn longer(&self) -> impl Iterator<Item = &(usize, Option<Rope>)> {
        self.ropes.iter().flatten().flatten().filter_map(|ropes| ropes.long.as_ref())
    }

    /// The logits of every next token: tokens (B, T) of integers → (B, T, V).
    ///
    /// # Errors
    /// If there are more tokens than the context holds, or one is not in the vocabulary.
    #[track_caller]
    pub fn logits<'a>(&self, inputs: impl Into<CausalInputs<'a>>) -> Result<Tensor> {
        let _op = enter("causal_lm");
        self.head(&self.states(inputs.into(), None)?)
    }

    /// The states of the last norm: tokens (B, T) of integers → (B, T, E).
    ///
    /// # Errors
    /// As [`CausalLm::logits`].
    #[track_caller]
    pub fn hidden<'a>(&self, inputs: impl Into<CausalInputs<'a>>) -> Result<Tensor> {
        let _op = enter("causal_lm");
        self.states(inputs.into(), None)
    }

    /// Empty caches for [`CausalLm::next`], one per block.
    pub fn caches(&self) -> Vec<KvCache> {
        self.caches_of(self.config.context)
    }

    /// Empty caches for up to `capacity` tokens.
    pub fn caches_of(&self, capacity: usize) -> Vec<KvCache> {
        let cache = || match self.config.cache {
            Some(of) => KvCache::new(capacity).with_type(of),
            None => KvCache::new(capacity),
        };
        (0..self.config.n_layer).map(|_| cache()).collect()
    }

    /// The logits of the next token: `tokens` (B, T) continue those in `caches` → (B, V).
    ///
    /// # Errors
    /// As [`CausalLm::logits`]; also if there is not one cache per block, or rotations change with
    /// this length ([`crate::attention::RopeScaling::LongRope`]). No cache has changed then; see
    /// [`KvCache::append`] for a device that fails.
    #[track_caller]
    pub fn next<'a>(
        &self,
        inputs: impl Into<CausalInputs<'a>>,
        caches: &mut [KvCache],
    ) -> Result<Tensor> {
        let _op = enter("causal_lm");
        if caches.len() != self.blocks.len() {
            let text = format!("got {} caches for {} blocks", caches.len(), self.blocks.len());
            return Err(Error::value(text).help("model.caches() makes them"));
        }
        let marks: Vec<Mark> = caches.iter().map(KvCache::mark).collect();
        // (B, V) of (B, T, E)
        let logits =
            self.states(inputs.into(), Some(&mut *caches)).and_then(|x| self.head(&x.at(1, -1)?));
        logits.inspect_err(|_| {
            caches.iter_mut().zip(marks).for_each(|(cache, mark)| cache.rewind(mark))
        })
    }

    /// Appends `count` tokens to `tokens` (B, T) → (B, T + count); `pick` chooses each from the
    /// logits (B, V), untracked, as tokens (B). [`CachedLm::generate`] does it with new caches.
    ///
    /// # Errors
    /// As [`CachedLm::generate`].
    #[track_caller]
    pub fn generate(
        &self,
        tokens: &Tensor,
        count: usize,
        pick: impl FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _op = enter("generate");
        CachedLm::new(self).generate(tokens, count, pick)
    }

    fn states(
        &self,
        inputs: CausalInputs<'_>,
        mut caches: Option<&mut [KvCache]>,
    ) -> Result<Tensor> {
        let (config, tokens) = (&self.config, inputs.tokens);
        let past = caches.as_ref().map_or(0, |caches| caches.first().map_or(0, KvCache::len));
        let end = self.check(&inputs, past)?;
        let mut x = self.tokens.forward(tokens)?; // (B, T, E)
        if config.embed_scale != 1.0 {
            // rounded to the type of the weights, as in Gemma
            let scale = Tensor::full((), config.embed_scale, x.dtype(), &x)?;
            x = x.mul(&scale)?;
        }
        let positions = inputs.mask.map(|mask| positions(mask, past)).transpose()?; // (B, T)
        if let Some(table) = &self.positions {
            x = x.add(&match &positions {
                Some(positions) => table.forward(positions)?, // (B, T, E)
                None => table.range(past, end)?,              // (T, E)
            })?;
        }
        x = self.dropout.forward(&x)?;
        let ropes = self.ropes.iter().flatten().map(|ropes| ropes.as_ref().map(|r| r.of(end)));
        let ropes = ropes.map(Option::transpose).collect::<Result<Vec<_>>>()?;
        for (i, block) in self.blocks.iter().enumerate() {
            // without a window, and with one
            let own = ropes.get(1).filter(|_| config.window(i).is_some()).and_then(Option::as_ref);
            let rope = own.or(ropes.first().and_then(Option::as_ref));
            if self.checkpoints.load(Ordering::Relaxed) && caches.is_none() {
                let (block, config, rope) = (block.clone(), self.config.clone(), rope.cloned());
                let (mask, positions) = (inputs.mask.cloned(), positions.clone());
                let body = move |x: &[Tensor]| {
                    let options = AttentionOptions {
                        key_mask: mask.as_ref(),
                        rope: rope.as_ref(),
                        positions: positions.as_ref(),
                        ..of_block(&config, i)
                    };
                    block.forward(&x[0], options, None)
                };
                x = checkpoint(body, &[&x])?;
                continue;
            }
            let options = AttentionOptions {
                key_mask: inputs.mask,
                rope,
                positions: positions.as_ref(),
                cache: caches.as_mut().and_then(|caches| caches.get_mut(i)),
                ..of_block(config, i)
            };
            x = block.forward(&x, options, None)?;
        }
        self.norm.forward(&x)
    }

    /// The number of tokens including cached ones; an error if shapes do not fit.
    fn check(&self, inputs: &CausalInputs<'_>, past: usize) -> Result<usize> {
        let shape = inputs.tokens.shape();
        if shape.len() != 2 || inputs.tokens.numel() == 0 {
            return Err(Error::shape(format!("tokens are (B, T) with T > 0, not {shape}"))
                .help("tokens.unsqueeze(0)? is a batch of one"));
        }
        let (batch, end) = (shape[0], past.saturating_add(shape[1]));
        // with a mask, padding has no positions, and the tables of these know where they end
        if end > self.config.context && inputs.mask.is_none() {
            let text = format!("{end} tokens are more than the context of {}", self.config.context);
            return Err(Error::value(text).help("keep the last ones: tokens.slice(1, -context..)"));
        }
        if let Some(last) = self.rotations_change(past, end) {
            let text = format!("cannot continue the keys of {past} tokens beyond position {last}");
            return Err(Error::value(text)
                .note("RopeScaling::LongRope rotates longer texts by other frequencies")
                .help("compute all tokens again, with empty caches"));
        }
        match inputs.mask {
            Some(mask) if mask.dtype() != DType::Bool || mask.shape()[..] != [batch, end] => {
                Err(Error::shape(format!(
                    "a mask of {} {} does not fit {end} tokens of {batch} texts",
                    mask.dtype(),
                    mask.shape()
                ))
                .help(
                    "(B, S) of bool, true for tokens: first the cached tokens, then the new ones",
                ))
            }
            _ => Ok(end),
        }
    }

    /// (.., E) → (.., V).
    fn head(&self, x: &Tensor) -> Result<Tensor> {
        self.head_of().logits(x)
    }

    /// The head, for functions that outlive the call.
    pub(super) fn head_of(&self) -> Head {
        Head {
            linear: self.head.clone(),
            tied: self.tokens.weight.clone(),
            divisor: self.config.logits_divisor,
            softcap: self.config.logits_softcap,
        }
    }
}

/// The layer from states to logits.
pub(super) struct Head {
    linear: Option<Linear>,
    /// The weight of a model without that layer: the token embedding.
    tied: Param,
    divisor: f64,
    softcap: Option<f64>,
}

impl Head {
    /// (.., E) → (.., V).
    pub fn logits(&self, x: &Tensor) -> Result<Tensor> {
        let mut logits = match &self.linear {
            Some(head) => head.forward(x)?,
            None => self.tied.linear(x)?,
        };
        if self.divisor != 1.0 {
            logits = logits.div(self.divisor)?;
        }
        match self.softcap {
            Some(c) => logits.div(c)?.tanh()?.mul(c),
            None => Ok(logits),
        }
    }
}

/// The attention options of block `i` that no call changes.
fn of_block<'a>(config: &CausalLmConfig, i: usize) -> AttentionOptions<'a> {
    AttentionOptions {
        causal: true,
        window: config.window(i),
        scale: config.scale_of(i),
        softcap: config.softcap,
        ..AttentionOptions::new()
    }
}

/// The positions of the new tokens of `mask` (B, S), the first `past` of which are in the caches:
/// the number of tokens before each, and 0 for padding before them → (B, S - past).
fn positions(mask: &Tensor, past: usize) -> Result<Tensor> {
    let counted = mask.cast(DType::I32)?.cumsum(1)?.cast(DType::I32)?.sub(1)?; // (B, S)
    counted.clamp(0, i32::MAX)?.slice(1, past as isize..)
}
