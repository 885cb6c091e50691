//! The next token from a model's logits: the most likely one, or a random one.
//!
//! ```text
//! logits (B, V) ─ / temperature ─ top-k ─ top-p ─ min-p ─ + Gumbel noise ─ argmax ─ tokens (B)
//! ```
//!
//! All steps run on the logits' device, for all rows at once. `argmax(logits + Gumbel noise)` is a
//! draw from `softmax(logits)` without computing it. Sources: Gumbel 1954; top-k: Fan et al. 2018,
//! arXiv:1805.04833; top-p: Holtzman et al. 2019, arXiv:1904.09751; min-p: Nguyen et al. 2024,
//! arXiv:2407.01082; repetition penalty: Keskar et al. 2019, arXiv:1909.05858.

use teeny_autograd::detached;
use teeny_core::context::{continued, enter};
use teeny_core::random::Key;
use teeny_core::setters;
use teeny_core::{DType, Distribution, Error, Expr, Extremum, Result, SortOrder, Tensor, map};

/// Below this temperature sampling is greedy.
const GREEDY: f64 = 1e-6;

/// The spacing of 24-bit uniform numbers.
const ULP: f64 = 1.0 / 16_777_216.0;

/// Chooses the next token. The options apply in the order of the methods; without any, a token is
/// drawn from the softmax.
///
/// # Example
/// ```
/// use teeny_core::{Tensor, random::Key};
/// use teeny_nn::device::device;
/// use teeny_text::Sampler;
/// # fn main() -> teeny_core::Result<()> {
/// let logits = Tensor::new([[0.0f32, 5.0, 1.0], [2.0, 1.0, 0.0]], &device("cpu")?)?; // (2, 3)
/// let key = Key { seed: 1, draw: 0 };
/// assert_eq!(Sampler::greedy().tokens(&logits, key)?, [1, 0]);
/// let tokens = Sampler::new().temperature(0.8).top_k(2).tokens(&logits, key)?;
/// assert!(tokens[0] != 0 && tokens[1] != 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    temperature: f64,
    top_k: Option<usize>,
    top_p: f64,
    min_p: f64,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { temperature: 1.0, top_k: None, top_p: 1.0, min_p: 0.0 }
    }
}

impl Sampler {
    /// Sampling from the softmax of the logits.
    pub fn new() -> Sampler {
        Sampler::default()
    }

    /// Greedy sampling: the most likely token, the first of equals.
    pub fn greedy() -> Sampler {
        Sampler::new().temperature(0.0)
    }

    setters! {
        /// Sets the divisor of the logits: below 1 the distribution gets sharper, above 1 flatter.
        /// Below 1e-6 sampling is greedy.
        temperature(temperature: f64) => temperature = temperature;
        /// Keeps the `k` largest logits and those equal to the last of them.
        top_k(k: usize) => top_k = Some(k);
        /// Keeps the most likely tokens whose total probability reaches `p`, and those as likely as
        /// the last of them (nucleus sampling).
        top_p(p: f64) => top_p = p;
        /// Keeps the tokens that are at least `p` times as likely as the most likely one.
        min_p(p: f64) => min_p = p;
    }

    /// The logits that [`Sampler::draw`] draws from: divided by the temperature, with `-inf` for
    /// tokens that are not kept.
    ///
    /// Shapes: logits (.., V) → the same, `F32` or `F64`.
    ///
    /// # Errors
    /// If an option is out of range, or logits are not floats or have no axis.
    #[track_caller]
    pub fn filter(&self, logits: &Tensor) -> Result<Tensor> {
        let _op = enter("filter");
        let logits = self.check(logits)?;
        let vocab = logits.shape()[logits.ndim() - 1];
        // a temperature near 0 does not divide: `draw` is then greedy
        let mut x =
            if self.temperature < GREEDY { logits } else { logits.div(self.temperature)? };
        if let Some(k) = self.top_k.filter(|k| *k < vocab) {
            let (largest, _) = x.topk(k, -1, Extremum::Largest)?; // (.., k)
            x = keep_from(&x, &largest.slice(-1, -1..)?)?;
        }
        if self.top_p < 1.0 {
            let (sorted, _) = x.sort(-1, SortOrder::Descending)?; // (.., V)
            let p = sorted.softmax(-1)?; // (.., V)
            let before = p.cumsum(-1)?.sub(&p)?; // (.., V), the probability of more likely tokens
            let kept = before.lt(self.top_p)?.where_cond(&sorted, f64::INFINITY)?; // (.., V)
            x = keep_from(&x, &kept.min_keepdim(-1)?)?;
        }
        if self.min_p > 0.0 {
            x = keep_from(&x, &x.max_keepdim(-1)?.add(self.min_p.ln())?)?;
        }
        Ok(x)
    }

    /// Draws one token per row on the device, without waiting for it. A row without a valid
    /// distribution (with NaN or +inf, or only -inf) gives -1, which no embedding accepts;
    /// [`Sampler::tokens`] returns an error for it.
    ///
    /// Shapes: logits (.., V) → (..) of `I32`. `key` determines the draw:
    /// `Key { seed, draw: position }` makes a text reproducible.
    ///
    /// # Errors
    /// As [`Sampler::filter`].
    #[track_caller]
    pub fn draw(&self, logits: &Tensor, key: Key) -> Result<Tensor> {
        let _op = enter("sample");
        let x = self.filter(logits)?; // (.., V)
        // (..)
        let tokens =
            if self.temperature < GREEDY { x.argmax(-1)? } else { noisy(&x, key)?.argmax(-1)? };
        // filters may have removed a NaN, so the original logits decide
        mark_invalid(&detached_floats(logits)?, &tokens)
    }

    /// [`Sampler::draw`], read to the host.
    ///
    /// # Errors
    /// As [`Sampler::filter`]; also if a row has no valid distribution: the error names the row.
    #[track_caller]
    pub fn tokens(&self, logits: &Tensor, key: Key) -> Result<Vec<u32>> {
        let _op = enter("sample");
        checked(&self.draw(logits, key)?.reshape(-1)?.to_vec()?)
    }

    /// [`Sampler::tokens`] as a future.
    ///
    /// # Errors
    /// As [`Sampler::tokens`].
    #[track_caller]
    pub fn tokens_async(
        &self,
        logits: &Tensor,
        key: Key,
    ) -> impl Future<Output = Result<Vec<u32>>> + Send + use<> {
        let _op = enter("sample");
        let tokens = self.draw(logits, key).and_then(|tokens| tokens.reshape(-1)); // (rows)
        let reading = tokens.map(|tokens| tokens.to_vec_async());
        continued(async { checked(&reading?.await?) })
    }

    /// The logits, detached and in their compute dtype, if all options are in range.
    fn check(&self, logits: &Tensor) -> Result<Tensor> {
        let settings = [
            (
                "the temperature must be a finite number of at least 0",
                self.temperature,
                self.temperature.is_finite() && self.temperature >= 0.0,
            ),
            (
                "top_p is a probability above 0, at most 1",
                self.top_p,
                self.top_p > 0.0 && self.top_p <= 1.0,
            ),
            ("min_p is a probability, at most 1", self.min_p, (0.0..=1.0).contains(&self.min_p)),
        ];
        if let Some((rule, value, _)) = settings.iter().find(|(_, _, valid)| !valid) {
            return Err(Error::value(format!("{rule}, not {value}")).help(
                "1 switches top_p off, 0 min_p; a temperature of 0 takes the most probable token",
            ));
        }
        if self.top_k == Some(0) {
            return Err(Error::value("top_k is 0, but must be at least 1")
                .help("without top_k, all tokens are candidates"));
        }
        detached_floats(logits)
    }
}

/// Whether a drawn token can be drawn again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Draws are independent.
    With,
    /// The tokens of a row are distinct, in the order in which they were drawn.
    Without,
}

/// Draws `n` tokens for each row from `softmax(logits)`. For probabilities pass their logarithm.
///
/// Shapes: logits (.., V) → (.., n) of `I32`. Drawing with replacement needs memory for n x V
/// numbers per row. Tokens that cannot be drawn are -1: in rows without a valid distribution, as in
/// [`Sampler::draw`], and without replacement after all tokens of probability above 0.
///
/// # Errors
/// If logits are not floats or have no axis, or without replacement `n` is more than V.
///
/// Equivalent: `torch.multinomial`.
#[track_caller]
pub fn multinomial(
    logits: &Tensor,
    n: usize,
    replacement: Replacement,
    key: Key,
) -> Result<Tensor> {
    let _op = enter("multinomial");
    let x = detached_floats(logits)?; // (.., V)
    let vocab = x.shape()[x.ndim() - 1];
    let row = x.unsqueeze(-2)?; // (.., 1, V)
    let tokens = if replacement == Replacement::With {
        let mut sizes = x.shape().to_vec();
        sizes.insert(x.ndim() - 1, n);
        noisy(&row.expand(sizes)?, key)?.argmax(-1)? // (.., n)
    } else {
        if n > vocab {
            return Err(Error::value(format!("cannot draw {n} distinct tokens from {vocab}"))
                .help("draw at most one of each"));
        }
        let (scores, tokens) = noisy(&x, key)?.topk(n, -1, Extremum::Largest)?; // (.., n)
        map([&scores, &tokens], |[score, token]| {
            score.is_finite().where_cond(token, token.like(-1))
        })?
    };
    mark_invalid(&row, &tokens)
}

/// Makes earlier tokens less likely: their logits are divided by `penalty` if positive, multiplied
/// by it if negative.
///
/// Shapes: logits (B, V), previous (B, T) of integers → (B, V). 1 changes nothing, 1.2 is usual.
///
/// # Errors
/// If the shapes do not fit, a token is not below V, or `penalty` is not positive.
#[track_caller]
pub fn repetition_penalty(logits: &Tensor, previous: &Tensor, penalty: f64) -> Result<Tensor> {
    let _op = enter("repetition_penalty");
    if !(penalty > 0.0 && penalty.is_finite()) {
        return Err(Error::value(format!("the penalty must be positive, not {penalty}"))
            .help("1 changes nothing, 1.1 is usual"));
    }
    let (logits, previous) = (detached_floats(logits)?, detached(previous)?);
    let x = logits.gather(-1, &previous)?; // (B, T)
    let less = map([&x], |[x]| x.gt(0.0).where_cond(x.div(penalty), x * penalty))?; // (B, T)
    logits.scatter(-1, &previous, &less)
}

/// `logits`, detached, as `F32` or `F64`.
fn detached_floats(logits: &Tensor) -> Result<Tensor> {
    if !logits.dtype().is_float() || logits.ndim() == 0 || logits.shape()[logits.ndim() - 1] == 0 {
        return Err(Error::value(format!(
            "logits are floats of shape (.., V) with V above 0, not {} {}",
            logits.dtype(),
            logits.shape()
        ))
        .help("logits.at(1, -1)? of a model are (B, V)"));
    }
    detached(logits)?.cast(logits.dtype().compute())
}

/// `x` where it is at least `least`, `-inf` elsewhere.
fn keep_from(x: &Tensor, least: &Tensor) -> Result<Tensor> {
    map([x, least], |[x, least]| x.ge(least).where_cond(x, x.like(f64::NEG_INFINITY)))
}

/// `logits + Gumbel noise`, whose argmax is a draw from their softmax.
///
/// The noise is `-ln E` with E exponentially distributed; the smallest E decide. Two uniform
/// numbers are combined to 48 bits, exact near 0, so that no two tokens of a large vocabulary get
/// the same E. PyTorch's multinomial does the same with 24 bits.
fn noisy(logits: &Tensor, key: Key) -> Result<Tensor> {
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    // two draws per key, from a separate seed ("gumbel"), so that other draws with the same seed
    // have other numbers
    let draw = |half: u64| {
        let key = Key {
            seed: key.seed ^ 0x6775_6d62_656c,
            draw: key.draw.wrapping_mul(2).wrapping_add(half),
        };
        Tensor::random(uniform, *logits.shape(), DType::F32, key, logits.device()) // (.., V)
    };
    let (high, low) = (draw(0)?, draw(1)?);
    map([logits, &high, &low], |[x, high, low]: [Expr<'_>; 3]| {
        // u is not 0, so the noise is finite; -inf stays -inf
        let u = (high + low * ULP).maximum(ULP * ULP);
        x - (-(-u).log1p()).log()
    })
}

/// `tokens` (.., n), or -1 where the row of `x` (.., V) has no valid distribution.
fn mark_invalid(x: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    let largest = x.max(-1)?; // (..), NaN if there is one
    map([&largest, tokens], |[largest, token]| {
        largest.is_finite().where_cond(token, token.like(-1))
    })
}

/// The tokens that were read; an error if one is -1.
fn checked(tokens: &[i32]) -> Result<Vec<u32>> {
    let token = |(row, &token): (usize, &i32)| {
        u32::try_from(token).map_err(|_| {
            Error::value(format!(
                "row {row} of the logits has NaN or +inf in it, or nothing above -inf"
            ))
            .help("a diverged model returns NaN; check its loss")
        })
    };
    tokens.iter().enumerate().map(token).collect()
}
