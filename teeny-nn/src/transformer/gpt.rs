//! [`Gpt`]: the decoder-only transformer of GPT-2, at any size, with a cache for generating.
//!
//! ```text
//! tokens (B, T) ─ wte + wpe ─ h.0 ─ h.1 ─ … ─ ln_f ─ head ─ logits (B, T, V)
//!                              │
//!                              x + attn(ln_1(x)),  x + mlp(ln_2(x))
//! ```
//!
//! Parameter names are those of Hugging Face's files, which [`crate::state::Mapping::gpt2`] loads.
//! The caller of [`Gpt::generate`] passes the function that picks tokens.

use crate::attention::{
    AttentionOptions, KvCache, Mark, MultiheadAttention, MultiheadAttentionOptions,
};
use crate::dropout::Dropout;
use crate::embedding::{Embedding, EmbeddingOptions};
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::module::Module;
use crate::norm::{LayerNorm, LayerNormOptions};
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The standard deviation of the initial weights, as in GPT-2.
pub(super) const STD: f64 = 0.02;

/// Sizes and options of a [`Gpt`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GptConfig {
    /// V, the size of the vocabulary.
    pub vocab: usize,
    /// The largest number of tokens T.
    pub context: usize,
    /// The number of blocks.
    pub n_layer: usize,
    /// The number of heads per block.
    pub n_head: usize,
    /// E, the width.
    pub n_embd: usize,
    /// The probability of dropping, in training; 0.
    pub dropout: f64,
    /// Whether linear layers and norms have biases; true.
    pub bias: bool,
    /// Whether the head is the token embedding, or a weight `lm_head.weight` (V, E); true.
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

    /// Sets the size of the vocabulary.
    pub fn with_vocab(mut self, vocab: usize) -> GptConfig {
        self.vocab = vocab;
        self
    }

    /// Sets the probability of dropping.
    pub fn with_dropout(mut self, p: f64) -> GptConfig {
        self.dropout = p;
        self
    }

    /// Sets whether linear layers and norms have biases.
    pub fn with_bias(mut self, bias: bool) -> GptConfig {
        self.bias = bias;
        self
    }

    /// Sets whether the head is the token embedding.
    pub fn with_tied(mut self, tied: bool) -> GptConfig {
        self.tied = tied;
        self
    }

    /// GPT-2 with 124 million parameters.
    pub fn gpt2() -> GptConfig {
        GptConfig::new(50_257, 1024, 12, 12, 768)
    }

    /// The floating-point operations of the matrix products in training on one sequence of `t`
    /// tokens: the forward pass, and the backward pass with twice as many.
    ///
    /// Per layer and token `8 E² + 4 t E` for attention and `16 E²` for the perceptron, and `2 E V`
    /// for the head.
    pub fn flops(&self, t: usize) -> f64 {
        let (e, v, t) = (self.n_embd as f64, self.vocab as f64, t as f64);
        let layer = 8.0 * e * e + 4.0 * t * e + 16.0 * e * e;
        3.0 * t * (self.n_layer as f64 * layer + 2.0 * e * v)
    }
}

/// The decoder-only transformer of GPT-2.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::transformer::{Gpt, GptConfig};
/// use teeny_nn::{Store, device::device};
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
/// Source: Radford et al. 2019, also for the initial weights of the residual projections, with
/// standard deviation `0.02 / sqrt(2 n_layer)`.
pub struct Gpt {
    config: GptConfig,
    wte: Embedding,
    wpe: Embedding,
    dropout: Dropout,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    /// (V, E), unless the head is the embedding.
    head: Option<Linear>,
    /// The number of ranks that share the model.
    pub(super) ranks: usize,
}

impl Gpt {
    /// A model at `path`.
    ///
    /// # Errors
    /// If `n_head` does not divide `n_embd`, `dropout` is outside `0..=1`, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: GptConfig) -> Result<Gpt> {
        path.build("Gpt::new", || Gpt::assemble(path, config, &Plain))
    }

    pub(super) fn assemble(path: &Path, config: GptConfig, layers: &dyn Layers) -> Result<Gpt> {
        let init = Init::Normal { mean: 0.0, std: STD };
        let embedding = |name: &str, count: usize| {
            let options = EmbeddingOptions::new().with_init(init);
            Embedding::with_options(&path.at(name), count, config.n_embd, options)
        };
        let (wte, wpe) = (embedding("wte", config.vocab)?, embedding("wpe", config.context)?);
        let blocks = (0..config.n_layer)
            .map(|i| Block::new(&path.at("h").at(i), &config, layers))
            .collect::<Result<_>>()?;
        let ln_f = norm(&path.at("ln_f"), &config)?;
        let head = if config.tied {
            None
        } else {
            let options = LinearOptions::new().with_weight_init(init).with_bias(false);
            let path = path.at("lm_head");
            Some(Linear::with_options(&path, config.n_embd, config.vocab, options)?)
        };
        let dropout = Dropout::new(path, config.dropout)?;
        Ok(Gpt { config, wte, wpe, dropout, blocks, ln_f, head, ranks: 1 })
    }

    /// Sizes and options.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The number of ranks that share the model.
    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    /// The token embedding (V, E).
    pub(crate) fn embedding(&self) -> &Param {
        &self.wte.weight
    }

    /// The logits of every next token: tokens (B, T) of integers → (B, T, V).
    ///
    /// # Errors
    /// If there are more tokens than the context holds, or one is not in the vocabulary.
    #[track_caller]
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        let _op = enter("gpt");
        self.head(&self.hidden(tokens, None)?)
    }

    /// Empty caches for [`Gpt::next`], one per block.
    pub fn caches(&self) -> Vec<KvCache> {
        (0..self.config.n_layer).map(|_| KvCache::new(self.config.context)).collect()
    }

    /// The logits of the next token: `tokens` (B, T) continue those in `caches` → (B, V).
    ///
    /// # Errors
    /// As [`Gpt::logits`]; also if there is not one cache per block. No cache has changed then; see
    /// [`KvCache::append`] for a device that fails.
    #[track_caller]
    pub fn next(&self, tokens: &Tensor, caches: &mut [KvCache]) -> Result<Tensor> {
        let _op = enter("gpt");
        if caches.len() != self.blocks.len() {
            let text = format!("{} caches for {} blocks", caches.len(), self.blocks.len());
            return Err(Error::value(text).help("gpt.caches() makes them"));
        }
        let marks: Vec<Mark> = caches.iter().map(KvCache::mark).collect();
        // (B, V) of (B, T, E)
        let logits = self.hidden(tokens, Some(&mut *caches)).and_then(|x| self.head(&x.at(1, -1)?));
        logits.inspect_err(|_| {
            caches.iter_mut().zip(marks).for_each(|(cache, mark)| cache.rewind(mark))
        })
    }

    /// Appends `count` tokens to `tokens` (B, T) → (B, T + count); `pick` chooses each from the
    /// logits (B, V), as tokens (B).
    ///
    /// Within the context every token is computed once. Beyond it the window moves, and is computed
    /// again at each step, because the learned positions move too.
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
                    x = block.forward(&x, AttentionOptions::causal())?;
                }
            }
            Some(caches) => {
                for (block, cache) in self.blocks.iter().zip(caches) {
                    x = block.forward(&x, AttentionOptions::causal().with_cache(cache))?;
                }
            }
        }
        self.ln_f.forward(&x)
    }

    /// (.., E) → (.., V).
    fn head(&self, x: &Tensor) -> Result<Tensor> {
        match &self.head {
            Some(head) => head.forward(x),
            None => x.matmul(&self.wte.weight.value().t()?),
        }
    }
}

/// Makes the layers of a block that ranks can share, in the order of their random draws.
pub(super) trait Layers {
    /// The attention at `path`, with `c_attn` and `c_proj`.
    fn attention(&self, path: &Path, config: &GptConfig) -> Result<MultiheadAttention>;

    /// `c_fc` and `c_proj` at `path`.
    fn perceptron(&self, path: &Path, config: &GptConfig) -> Result<[Box<dyn Module>; 2]>;
}

/// Layers of one rank.
struct Plain;

impl Layers for Plain {
    fn attention(&self, path: &Path, config: &GptConfig) -> Result<MultiheadAttention> {
        let n = config.n_embd;
        let (qkv, out) = (
            linear(&path.at("c_attn"), n, n.saturating_mul(3), config, STD)?,
            linear(&path.at("c_proj"), n, n, config, residual_std(config))?,
        );
        let options = attention_options(config);
        MultiheadAttention::from_linear(path, qkv, out, config.n_head, options)
    }

    fn perceptron(&self, path: &Path, config: &GptConfig) -> Result<[Box<dyn Module>; 2]> {
        let (n, hidden) = (config.n_embd, config.n_embd.saturating_mul(4));
        Ok([
            Box::new(linear(&path.at("c_fc"), n, hidden, config, STD)?),
            Box::new(linear(&path.at("c_proj"), hidden, n, config, residual_std(config))?),
        ])
    }
}

fn linear(
    path: &Path,
    inputs: usize,
    outputs: usize,
    config: &GptConfig,
    std: f64,
) -> Result<Linear> {
    Linear::with_options(path, inputs, outputs, linear_options(config, std))
}

pub(super) fn linear_options(config: &GptConfig, std: f64) -> LinearOptions {
    LinearOptions::new()
        .with_weight_init(Init::Normal { mean: 0.0, std })
        .with_bias_init(Init::ZEROS)
        .with_bias(config.bias)
}

pub(super) fn attention_options(config: &GptConfig) -> MultiheadAttentionOptions {
    MultiheadAttentionOptions::new().with_dropout(config.dropout)
}

/// The standard deviation of the last layer of a residual branch: the variances of the two branches
/// of each block add up.
pub(super) fn residual_std(config: &GptConfig) -> f64 {
    STD / (2.0 * config.n_layer as f64).sqrt()
}

/// One block: attention and a perceptron, each with a norm before it and a residual connection.
struct Block {
    ln_1: LayerNorm,
    attn: MultiheadAttention,
    ln_2: LayerNorm,
    c_fc: Box<dyn Module>,
    c_proj: Box<dyn Module>,
    dropout: Dropout,
}

impl Block {
    fn new(path: &Path, config: &GptConfig, layers: &dyn Layers) -> Result<Block> {
        let ln_1 = norm(&path.at("ln_1"), config)?;
        let attn = layers.attention(&path.at("attn"), config)?;
        let ln_2 = norm(&path.at("ln_2"), config)?;
        let [c_fc, c_proj] = layers.perceptron(&path.at("mlp"), config)?;
        Ok(Block { ln_1, attn, ln_2, c_fc, c_proj, dropout: Dropout::new(path, config.dropout)? })
    }

    /// (B, T, E) → the same.
    fn forward(&self, x: &Tensor, options: AttentionOptions<'_>) -> Result<Tensor> {
        let attended = self.attn.attend(&self.ln_1.forward(x)?, options)?;
        let x = x.add(&self.dropout.forward(&attended)?)?;
        let h = self.c_fc.forward(&self.ln_2.forward(&x)?)?.gelu_tanh()?; // (B, T, 4 E)
        x.add(&self.dropout.forward(&self.c_proj.forward(&h)?)?)
    }
}

fn norm(path: &Path, config: &GptConfig) -> Result<LayerNorm> {
    LayerNorm::with_options(path, config.n_embd, LayerNormOptions::new().with_bias(config.bias))
}
