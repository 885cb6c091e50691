//! [`Gpt`]: the decoder-only transformer of GPT-2, at any size, with a cache for generating.
//!
//! ```text
//! tokens (B, T) ─ wte + wpe ─ h.0 ─ h.1 ─ … ─ ln_f ─ head ─ logits (B, T, V)
//!                              │
//!                              x + attn(ln_1(x)),  x + mlp(ln_2(x))
//! ```
//!
//! Names are those of Hugging Face's files, so [`crate::state::Mapping::gpt2`] loads them. Sampling
//! is not its business: [`Gpt::generate`] is told how.

use crate::attention::{Attend, KvCache, Mark, MultiheadAttention};
use crate::dropout::Dropout;
use crate::embedding::Embedding;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::Module;
use crate::norm::LayerNorm;
use crate::store::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The standard deviation of all first weights, GPT-2's.
const STD: f64 = 0.02;

/// Sizes and options of a [`Gpt`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptConfig {
    /// V, the number of tokens there are.
    pub vocab: usize,
    /// The largest T.
    pub context: usize,
    /// Blocks.
    pub n_layer: usize,
    /// Heads per block.
    pub n_head: usize,
    /// E, the width.
    pub n_embd: usize,
    /// Probability of dropping, in training.
    pub dropout: f64,
    /// Whether linear layers and norms have biases.
    pub bias: bool,
    /// Whether the head is the token embedding; otherwise it is `lm_head.weight` (V, E).
    pub tied: bool,
}

impl GptConfig {
    /// A model with biases and a tied head, without dropout.
    pub fn new(
        vocab: usize,
        context: usize,
        n_layer: usize,
        n_head: usize,
        n_embd: usize,
    ) -> GptConfig {
        GptConfig { vocab, context, n_layer, n_head, n_embd, dropout: 0.0, bias: true, tied: true }
    }

    /// GPT-2 of 124 million parameters.
    pub fn gpt2() -> GptConfig {
        GptConfig::new(50_257, 1024, 12, 12, 768)
    }

    /// Floating-point operations of training on one sequence of `t` tokens: those of the matrix
    /// products, forward and, twice as many, backward.
    ///
    /// Per layer and token `8 E² + 4 t E` for attention and `16 E²` for the perceptron, and `2 E V`
    /// for the head.
    pub fn flops(&self, t: usize) -> f64 {
        let (e, v, t) = (self.n_embd as f64, self.vocab as f64, t as f64);
        let layer = 8.0 * e * e + 4.0 * t * e + 16.0 * e * e;
        3.0 * t * (self.n_layer as f64 * layer + 2.0 * e * v)
    }
}

/// A GPT-2.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::{Gpt, GptConfig, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let gpt = Gpt::new(&store.root(), GptConfig::new(65, 32, 2, 4, 16))?;
/// let tokens = Tensor::new([[1i32, 2, 3]], store.device())?; // (B, T)
/// let logits = gpt.logits(&tokens)?; // (B, T, V)
/// assert_eq!(logits.shape()[..], [1, 3, 65]);
/// // two more tokens, each the most likely one
/// let longer = gpt.generate(&tokens, 2, |logits| logits.argmax(-1))?;
/// assert_eq!(longer.shape()[..], [1, 5]);
/// # Ok(()) }
/// ```
/// Source: Radford et al. 2019; the first values of residual projections, `0.02 / sqrt(2 n_layer)`,
/// as there.
pub struct Gpt {
    config: GptConfig,
    wte: Embedding,
    wpe: Embedding,
    dropout: Dropout,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    /// (V, E), if the head is not the embedding.
    head: Option<Linear>,
}

impl Gpt {
    /// A model at `path`.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, `dropout` is no probability, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: GptConfig) -> Result<Gpt> {
        path.build("Gpt::new", || {
            let small = Init::Normal { mean: 0.0, std: STD };
            let wte = Embedding::with_init(&path.at("wte"), config.vocab, config.n_embd, small)?;
            let wpe = Embedding::with_init(&path.at("wpe"), config.context, config.n_embd, small)?;
            let blocks = (0..config.n_layer)
                .map(|i| Block::new(&path.at("h").at(i), &config))
                .collect::<Result<_>>()?;
            let ln_f = norm(&path.at("ln_f"), &config)?;
            let head = if config.tied {
                None
            } else {
                Some(Linear::with_init(
                    &path.at("lm_head"),
                    config.n_embd,
                    config.vocab,
                    small,
                    None,
                )?)
            };
            Ok(Gpt {
                config,
                wte,
                wpe,
                dropout: Dropout::new(path, config.dropout)?,
                blocks,
                ln_f,
                head,
            })
        })
    }

    /// Sizes and options.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The scores of every next token: tokens (B, T) of integers → (B, T, V).
    ///
    /// # Errors
    /// If there are more tokens than the context holds, or one is not in the vocabulary.
    #[track_caller]
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let _op = enter("gpt");
        self.score(&self.hidden(tokens, None)?)
    }

    /// Empty caches for [`Gpt::next`], one per block.
    pub fn caches(&self) -> Vec<KvCache> {
        (0..self.config.n_layer).map(|_| KvCache::new(self.config.context)).collect()
    }

    /// The scores of the token after the last: `tokens` (B, T) continue those in `caches` → (B, V).
    ///
    /// # Errors
    /// As [`Gpt::logits`]; also if there is not one cache per block. All caches are then what they
    /// were; see [`KvCache::append`] for a device that fails.
    #[track_caller]
    pub fn next(&self, tokens: &Tensor, caches: &mut [KvCache]) -> Result<Tensor> {
        let _op = enter("gpt");
        if caches.len() != self.blocks.len() {
            let text = format!("{} caches for {} blocks", caches.len(), self.blocks.len());
            return Err(Error::value(text).help("gpt.caches() makes them"));
        }
        let marks: Vec<Mark> = caches.iter().map(KvCache::mark).collect();
        // (B, V) of (B, T, E)
        let scores =
            self.hidden(tokens, Some(&mut *caches)).and_then(|x| self.score(&x.at(1, -1)?));
        scores.inspect_err(|_| {
            caches.iter_mut().zip(marks).for_each(|(cache, mark)| cache.rewind(mark))
        })
    }

    /// `tokens` (B, T) and `count` more (B, T + count), each chosen by `pick` from the scores (B,
    /// V) as class numbers (B).
    ///
    /// Within the context every token is computed once. Beyond it the window moves and is computed
    /// anew at each step, since learned positions move too.
    ///
    /// # Errors
    /// As [`Gpt::logits`], and those of `pick`.
    #[track_caller]
    pub fn generate(
        &self,
        tokens: &Tensor,
        count: usize,
        mut pick: impl FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _op = enter("generate");
        let dtype = tokens.dtype();
        let (mut all, mut caches) = (tokens.clone(), self.caches());
        let mut new = tokens.clone();
        for _ in 0..count {
            let length = all.size(1)?;
            let logits = if length <= self.config.context {
                self.next(&new, &mut caches)?
            } else {
                self.next(&all.slice(1, -(self.config.context as isize)..)?, &mut self.caches())?
            }; // (B, V)
            new = pick(&logits)?.cast(dtype)?.unsqueeze(1)?; // (B, 1)
            all = Tensor::cat(&[&all, &new], 1)?;
        }
        Ok(all)
    }

    fn hidden(&self, tokens: &Tensor, caches: Option<&mut [KvCache]>) -> Result<Tensor> {
        if tokens.ndim() != 2 || tokens.numel() == 0 {
            return Err(Error::shape(format!(
                "tokens are (B, T) with T > 0, not {}",
                tokens.shape()
            ))
            .help("tokens.unsqueeze(0)? is a batch of one"));
        }
        let past = caches.as_ref().map_or(0, |caches| caches.first().map_or(0, KvCache::len));
        let end = past + tokens.shape()[1];
        if end > self.config.context {
            let text = format!("{end} tokens are more than the context of {}", self.config.context);
            return Err(Error::value(text).help("keep the last ones: tokens.slice(1, -context..)"));
        }
        let positions = self.wpe.weight.value().slice(0, past as isize..end as isize)?; // (T, E)
        let mut x = self.dropout.forward(&self.wte.forward(tokens)?.add(&positions)?)?; // (B, T, E)
        match caches {
            None => {
                for block in &self.blocks {
                    x = block.forward(&x, Attend::causal())?;
                }
            }
            Some(caches) => {
                for (block, cache) in self.blocks.iter().zip(caches) {
                    x = block.forward(&x, Attend::causal().cached(cache))?;
                }
            }
        }
        self.ln_f.forward(&x)
    }

    /// (.., E) → (.., V).
    fn score(&self, x: &Tensor) -> Result<Tensor> {
        match &self.head {
            Some(head) => head.forward(x),
            None => x.matmul(&self.wte.weight.value().t()?),
        }
    }
}

/// One layer: attention and a perceptron, each behind a norm and around it a residual path.
struct Block {
    ln_1: LayerNorm,
    attn: MultiheadAttention,
    ln_2: LayerNorm,
    c_fc: Linear,
    c_proj: Linear,
    dropout: Dropout,
}

impl Block {
    fn new(path: &Path, config: &GptConfig) -> Result<Block> {
        let n = config.n_embd;
        let bias = config.bias.then_some(Init::ZEROS);
        let linear = |path: &Path, inputs, outputs, std| {
            Linear::with_init(path, inputs, outputs, Init::Normal { mean: 0.0, std }, bias)
        };
        // two residual branches per layer add up their variances
        let residual = STD / (2.0 * config.n_layer as f64).sqrt();
        let ln_1 = norm(&path.at("ln_1"), config)?;
        let at = path.at("attn");
        let (qkv, out) = (
            linear(&at.at("c_attn"), n, n.saturating_mul(3), STD)?,
            linear(&at.at("c_proj"), n, n, residual)?,
        );
        let attn = MultiheadAttention::from_parts(qkv, out, config.n_head, config.n_head)?
            .with_dropout(path, config.dropout)?;
        let ln_2 = norm(&path.at("ln_2"), config)?;
        let (mlp, wide) = (path.at("mlp"), n.saturating_mul(4));
        let (c_fc, c_proj) =
            (linear(&mlp.at("c_fc"), n, wide, STD)?, linear(&mlp.at("c_proj"), wide, n, residual)?);
        Ok(Block { ln_1, attn, ln_2, c_fc, c_proj, dropout: Dropout::new(path, config.dropout)? })
    }

    /// (B, T, E) → the same.
    fn forward(&self, x: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        let seen = self.attn.attend(&self.ln_1.forward(x)?, attend)?;
        let x = x.add(&self.dropout.forward(&seen)?)?;
        let h = self.c_fc.forward(&self.ln_2.forward(&x)?)?.gelu_tanh()?; // (B, T, 4 E)
        x.add(&self.dropout.forward(&self.c_proj.forward(&h)?)?)
    }
}

fn norm(path: &Path, config: &GptConfig) -> Result<LayerNorm> {
    if config.bias {
        LayerNorm::new(path, config.n_embd)
    } else {
        LayerNorm::without_bias(path, config.n_embd)
    }
}
