//! The next token from a model's logits: the likeliest, or one drawn.
//!
//! ```text
//! logits (B, V) ─ / temperature ─ top-k ─ top-p ─ min-p ─ what is left ─ + Gumbel noise ─ argmax ─ tokens (B)
//! ```
//!
//! Everything happens on the logits' device, for all rows at once. `argmax(logits + Gumbel)` is a
//! draw from `softmax(logits)` without computing it. Sources: Gumbel 1954; top-k: Fan et al. 2018,
//! arXiv:1805.04833; top-p: Holtzman et al. 2019, arXiv:1904.09751; min-p: Nguyen et al. 2024,
//! arXiv:2407.01082; repetition penalty: Keskar et al. 2019, arXiv:1909.05858.

use crate::track;
use teeny_core::context::enter;
use teeny_core::random::Key;
use teeny_core::{DType, Distribution, Error, Expr, Result, Tensor, map};

/// Temperatures below this mean: take the likeliest.
const COLD: f64 = 1e-6;

/// The spacing of 24-bit uniform numbers.
const ULP: f64 = 1.0 / 16_777_216.0;

/// How to choose the next token. The settings apply in the order in which they are listed here;
/// without any it draws from the softmax.
///
/// # Example
/// ```
/// use teeny_core::{Tensor, random::Key};
/// use teeny_nn::{device::device, text::Sampler};
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
    /// Draws from the softmax of the logits.
    pub fn new() -> Sampler {
        Sampler::default()
    }

    /// Takes the likeliest token, the first of equals.
    pub fn greedy() -> Sampler {
        Sampler::new().temperature(0.0)
    }

    /// Divides logits by this: below 1 the likely gets likelier, above 1 less so. Less than 1e-6
    /// takes the likeliest.
    pub fn temperature(mut self, temperature: f64) -> Sampler {
        self.temperature = temperature;
        self
    }

    /// Keeps the `k` largest logits, and those equal to the last of them; all, if there are fewer
    /// than `k`.
    pub fn top_k(mut self, k: usize) -> Sampler {
        self.top_k = Some(k);
        self
    }

    /// Keeps the likeliest tokens that together have probability `p`, and those as likely as the
    /// last of them.
    pub fn top_p(mut self, p: f64) -> Sampler {
        self.top_p = p;
        self
    }

    /// Keeps the tokens that are at least `p` times as likely as the likeliest.
    pub fn min_p(mut self, p: f64) -> Sampler {
        self.min_p = p;
        self
    }

    /// The logits that [`Sampler::draw`] draws from: divided by the temperature, with `-inf` for
    /// what is left out.
    ///
    /// Shapes: logits (.., V) → the same, `F32` or `F64`.
    ///
    /// # Errors
    /// If a setting makes no sense, or logits are no floats or have no axis.
    #[track_caller]
    pub fn filter(&self, logits: &Tensor) -> Result<Tensor> {
        let _op = enter("filter");
        let logits = self.check(logits)?;
        let vocab = logits.shape()[logits.ndim() - 1];
        // dividing by (nearly) 0 is left to `draw`, which does not draw then
        let mut x = if self.temperature < COLD { logits } else { logits.div(self.temperature)? };
        if let Some(k) = self.top_k.filter(|k| *k < vocab) {
            let (largest, _) = x.topk(k, -1, true)?; // (.., k)
            x = keep_from(&x, &largest.slice(-1, -1..)?)?;
        }
        if self.top_p < 1.0 {
            let (sorted, _) = x.sort(-1, true)?; // (.., V)
            let p = sorted.softmax(-1)?; // (.., V)
            let before = p.cumsum(-1)?.sub(&p)?; // (.., V), the probability of what is likelier
            let kept = before.lt(self.top_p)?.select(&sorted, f64::INFINITY)?; // (.., V)
            x = keep_from(&x, &kept.min_keepdim(-1)?)?;
        }
        if self.min_p > 0.0 {
            x = keep_from(&x, &x.max_keepdim(-1)?.add(self.min_p.ln())?)?;
        }
        Ok(x)
    }

    /// One token per row, on the device: nothing is waited for. A row that cannot be drawn from
    /// (with NaN or +inf in it, or only -inf) gives -1, which no embedding accepts;
    /// [`Sampler::tokens`] makes an error of it.
    ///
    /// Shapes: logits (.., V) → (..) of `I32`. `key` decides the draw:
    /// `Key { seed, draw: position }` makes a text repeatable.
    ///
    /// # Errors
    /// As [`Sampler::filter`].
    #[track_caller]
    pub fn draw(&self, logits: &Tensor, key: Key) -> Result<Tensor> {
        let _op = enter("sample");
        let x = self.filter(logits)?; // (.., V)
        // (..)
        let tokens =
            if self.temperature < COLD { x.argmax(-1)? } else { noisy(&x, key)?.argmax(-1)? };
        // filters may have dropped a NaN: the logits as they were tell
        mark(&plain(logits)?, &tokens)
    }

    /// [`Sampler::draw`], brought to the host.
    ///
    /// # Errors
    /// As [`Sampler::filter`], and if a row cannot be drawn from: the error says which.
    #[track_caller]
    pub fn tokens(&self, logits: &Tensor, key: Key) -> Result<Vec<u32>> {
        let _op = enter("sample");
        read(&self.draw(logits, key)?)
    }

    /// The logits to work with, without history and in a type that is computed in, if everything
    /// makes sense.
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
        if let Some((rule, value, _)) = settings.iter().find(|(_, _, fine)| !fine) {
            return Err(Error::value(format!("{rule}, not {value}")));
        }
        if self.top_k == Some(0) {
            return Err(Error::value("top_k is 0, which leaves no token to choose"));
        }
        plain(logits)
    }
}

/// `n` tokens for each row, drawn from `softmax(logits)`: with replacement independent ones,
/// without it different ones, in the order in which they were drawn. For probabilities take their
/// logarithm.
///
/// Shapes: logits (.., V) → (.., n) of `I32`. A draw with replacement takes memory for n x V
/// numbers per row. What cannot be drawn is -1: rows as in [`Sampler::draw`], and without
/// replacement more tokens than have a probability above 0.
///
/// # Errors
/// If logits are no floats or have no axis, or without replacement `n` is more than V. Equivalent:
/// `torch.multinomial`.
#[track_caller]
pub fn multinomial(logits: &Tensor, n: usize, replacement: bool, key: Key) -> Result<Tensor> {
    let _op = enter("multinomial");
    let x = plain(logits)?; // (.., V)
    let vocab = x.shape()[x.ndim() - 1];
    let row = x.unsqueeze(-2)?; // (.., 1, V)
    let tokens = if replacement {
        let mut sizes = x.shape().to_vec();
        sizes.insert(x.ndim() - 1, n);
        noisy(&row.expand(sizes)?, key)?.argmax(-1)? // (.., n)
    } else {
        if n > vocab {
            return Err(Error::value(format!("{n} different tokens cannot be drawn from {vocab}")));
        }
        let (scores, tokens) = noisy(&x, key)?.topk(n, -1, true)?; // (.., n)
        map([&scores, &tokens], |[score, token]| score.is_finite().select(token, token.like(-1)))?
    };
    mark(&row, &tokens)
}

/// Makes tokens that came before less likely: their logits are divided by `penalty` if positive,
/// multiplied by it if negative.
///
/// Shapes: logits (B, V), previous (B, T) of integers → (B, V). 1 changes nothing, 1.2 is usual.
///
/// # Errors
/// If the shapes do not fit, a token is not below V, or `penalty` is not positive.
#[track_caller]
pub fn repetition_penalty(logits: &Tensor, previous: &Tensor, penalty: f64) -> Result<Tensor> {
    let _op = enter("repetition_penalty");
    if !(penalty > 0.0 && penalty.is_finite()) {
        return Err(Error::value(format!("the penalty must be positive, not {penalty}")));
    }
    let (logits, previous) = (plain(logits)?, track::below(previous)?);
    let x = logits.gather(-1, &previous)?; // (B, T)
    let less = map([&x], |[x]| x.gt(0.0).select(x.div(penalty), x * penalty))?; // (B, T)
    logits.scatter(-1, &previous, &less)
}

/// `logits` without history, as `F32` or `F64`.
fn plain(logits: &Tensor) -> Result<Tensor> {
    if !logits.dtype().is_float() || logits.ndim() == 0 || logits.shape()[logits.ndim() - 1] == 0 {
        return Err(Error::value(format!(
            "logits are floats of shape (.., V) with V above 0, not {} {}",
            logits.dtype(),
            logits.shape()
        )));
    }
    track::below(logits)?.cast(logits.dtype().compute())
}

/// `x` where it is at least `least`, `-inf` elsewhere.
fn keep_from(x: &Tensor, least: &Tensor) -> Result<Tensor> {
    map([x, least], |[x, least]| x.ge(least).select(x, x.like(f64::NEG_INFINITY)))
}

/// `logits + Gumbel noise`, whose argmax is a draw from their softmax.
///
/// The noise is `-ln E` with E exponentially distributed, and small E decide. Two uniform numbers
/// make 48 bits of one, which is exact near 0, so that of a large vocabulary no two tokens get the
/// same E. PyTorch's multinomial is the same race with 24 bits.
fn noisy(logits: &Tensor, key: Key) -> Result<Tensor> {
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    // two draws per key, from a seed of their own ("gumbel") so that other draws under the same
    // seed do not have the same numbers
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
        let u = (high + low * ULP).max(ULP * ULP);
        x - (-(-u).log1p()).log()
    })
}

/// `tokens` (.., n), or -1 where their row of `x` (.., V) cannot be drawn from.
fn mark(x: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    let largest = x.max(-1)?; // (..), NaN if there is one
    map([&largest, tokens], |[largest, token]| largest.is_finite().select(token, token.like(-1)))
}

/// `tokens` on the host, if all could be drawn.
fn read(tokens: &Tensor) -> Result<Vec<u32>> {
    let tokens: Vec<i32> = tokens.reshape(-1)?.to_vec()?;
    let token = |(row, &token): (usize, &i32)| {
        u32::try_from(token).map_err(|_| {
            Error::value(format!(
                "row {row} of the logits has NaN or +inf in it, or nothing above -inf"
            ))
            .help("a model that has diverged gives NaN; check its loss")
        })
    };
    tokens.iter().enumerate().map(token).collect()
}
