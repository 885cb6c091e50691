//! [`Decoder`]: generating with a [`CausalLm`] whose step for one token is recorded and replayed.
//!
//! ```text
//! next(prompt (B, T))   CausalLm::next                                  position 0 → T
//! next(token (B, 1))    ┌ token, keys, values ─ Capture ─ logits, keys, values ┐   T → T + 1, ..
//!                       └───────────────── written in place ◄──────────────────┘
//! ```
//!
//! The position is the symbol of the capture ([`Capture::with_symbol`]): sizes and offsets follow
//! it, so one recording serves the whole context. Keys and values are given up by each call and
//! returned by it, so that a new row is written in place.

use super::causal_lm::CausalLm;
use crate::attention::KvCache;
use std::fmt;
use std::mem;
use teeny_autograd::no_grad;
use teeny_core::context::enter;
use teeny_core::{Capture, DType, Error, Result, Tensor};

/// Generates with a [`CausalLm`] one token at a time, and from the fourth or fifth token on without
/// running the model: what it did is replayed ([`Capture`]). Logits are those of [`CausalLm::next`]
/// to the bit, untracked.
///
/// The model's device must record: `Autograd::new(Lazy::new(device))`. If the weights, the training
/// mode, the batch size or the dtype of the tokens change, the step is recorded again.
///
/// # Example
/// ```
/// use teeny_autograd::Autograd;
/// use teeny_core::{DeviceRef, Lazy, Result, Tensor};
/// use teeny_cpu::Cpu;
/// use teeny_nn::{Decoder, Gpt, GptConfig, Store};
/// # fn main() -> Result<()> {
/// let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
/// let store = Store::new(&device);
/// let gpt = Gpt::new(&store.root(), GptConfig::new(65, 32, 2, 4, 16))?;
/// store.set_training(false);
/// let mut decoder = Decoder::new(&gpt)?;
/// let prompt = Tensor::new([[1i32, 2, 3]], &device)?; // (B, T)
/// let mut logits = decoder.next(&prompt)?; // (B, V)
/// for _ in 0..8 {
///     let token = logits.argmax(-1)?.unsqueeze(1)?; // (B, 1)
///     logits = decoder.next(&token)?; // (B, V)
/// }
/// assert!(decoder.position() == 11 && decoder.is_replaying());
/// # Ok(()) }
/// ```
pub struct Decoder<'m> {
    model: &'m CausalLm,
    /// Keys and values of each layer, (B, n_head, context, hs). None before the first token, and
    /// after a call that failed.
    rows: Vec<Tensor>,
    position: usize,
    captures: Option<Captures<'m>>,
}

/// What was recorded, and for what.
struct Captures<'m> {
    /// Token (B, 1), keys and values → logits (B, V), keys and values.
    step: Capture<'m>,
    /// The last tokens of a longer text (B, context) → logits (B, V).
    window: Capture<'m>,
    /// The batch size and the dtype of the tokens.
    tokens: (usize, DType),
}

impl<'m> Decoder<'m> {
    /// A decoder at position 0.
    ///
    /// # Errors
    /// If the device of the model does not record, several ranks share the model, or its rotary
    /// embedding changes with the length ([`crate::attention::RopeScaling::LongRope`]).
    #[track_caller]
    pub fn new(model: &'m CausalLm) -> Result<Decoder<'m>> {
        let _op = enter("Decoder::new");
        if model.ranks() > 1 {
            let text = format!("the model is shared by {} ranks", model.ranks());
            return Err(Error::value(text)
                .note("a recorded step would wait for messages of other ranks")
                .help("model.generate runs each step"));
        }
        if let Some(length) = model.changes_after() {
            let text = format!("rotations change after {length} tokens");
            return Err(Error::value(text)
                .note("a recorded step has those of its first position")
                .help("model.generate runs each step"));
        }
        // The first call records; this one tells early whether the device can.
        Capture::new(model.embedding().value().device(), |_| Ok(Vec::new()))?;
        Ok(Decoder { model, rows: Vec::new(), position: 0, captures: None })
    }

    /// The number of tokens so far: the position of the next one.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether the next single token is replayed: the model is not run for it.
    pub fn is_replaying(&self) -> bool {
        self.captures.as_ref().is_some_and(|captures| captures.step.is_replaying())
    }

    /// Forgets all tokens, for another text. What was recorded stays.
    pub fn reset(&mut self) {
        self.rows.clear();
        self.position = 0;
    }

    /// The logits of the next token: `tokens` (B, T) continue those of earlier calls → (B, V),
    /// untracked. The first call, and calls of several tokens (a prompt), run the model.
    ///
    /// # Errors
    /// As [`CausalLm::next`]: among others, if the context is full. Nothing has changed then. If
    /// the device fails (no memory, a token outside of the vocabulary), keys and values are lost:
    /// later calls are errors until [`Decoder::reset`].
    #[track_caller]
    pub fn next(&mut self, tokens: &Tensor) -> Result<Tensor> {
        let _op = enter("decoder");
        let &[batch, count] = &tokens.shape()[..] else {
            return Err(Error::shape(format!("tokens are (B, T), not {}", tokens.shape()))
                .help("tokens.unsqueeze(0)? is a batch of one"));
        };
        self.check(batch, count)?;
        if count != 1 || self.rows.is_empty() {
            return self.run_model(tokens, count);
        }
        let mut inputs = vec![tokens.clone()];
        inputs.append(&mut self.rows);
        let position = self.position;
        let mut results = self.captures_for(tokens)?.step.run_at(inputs, position)?;
        if results.len() < 2 {
            return Err(Error::internal("a captured step returned too few tensors"));
        }
        self.rows = results.split_off(1);
        self.position += 1;
        Ok(results.remove(0))
    }

    /// Appends `count` tokens to `tokens` (B, T) → (B, T + count), from position 0; `pick` chooses
    /// each from the logits (B, V), as tokens (B). The tokens are those of [`CausalLm::generate`];
    /// where they are more than the context, the step for a whole window is recorded and replayed.
    ///
    /// # Errors
    /// As [`Decoder::next`], and those of `pick`.
    #[track_caller]
    pub fn generate(
        &mut self,
        tokens: &Tensor,
        count: usize,
        mut pick: impl FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _op = enter("generate");
        let context = self.model.config().context;
        self.reset();
        let (mut all, mut new) = (vec![tokens.clone()], tokens.clone());
        let start = tokens.size(1)?;
        let mut window: Option<Tensor> = None;
        for generated in 0..count {
            let logits = if start + generated <= context {
                self.next(&new)?
            } else {
                // Sizes stay the same from window to window, so that its operations are known.
                let last = match window.take() {
                    Some(window) => Tensor::cat(&[&window.slice(1, 1..)?, &new], 1)?,
                    None => {
                        let all = Tensor::cat(&all, 1)?;
                        all.slice(1, -(context as isize)..)?.contiguous()?
                    }
                }; // (B, context)
                let last = &*window.insert(last);
                let mut results = self.captures_for(last)?.window.run(vec![last.clone()])?;
                results.pop().ok_or_else(|| Error::internal("a captured window has no logits"))?
            }; // (B, V)
            new = pick(&logits)?.cast(tokens.dtype())?.unsqueeze(1)?; // (B, 1)
            all.push(new.clone());
        }
        Tensor::cat(&all, 1)
    }

    /// An error if `count` more tokens of `batch` sequences cannot continue those before.
    fn check(&self, batch: usize, count: usize) -> Result<()> {
        let Decoder { rows, position, .. } = self;
        if *position > 0 && rows.is_empty() {
            return Err(Error::value(format!(
                "keys and values of {position} tokens were lost when an earlier call failed"
            ))
            .help("decoder.reset(), then pass all tokens again"));
        }
        let context = self.model.config().context;
        if position.saturating_add(count) > context {
            return Err(Error::value(format!(
                "{count} more tokens do not fit: {position} of the context of {context} are used"
            ))
            .help(
                "decoder.reset(), then pass the last ones, fewer than the context; \
                 Decoder::generate moves the window at each token",
            ));
        }
        match rows.first() {
            Some(keys) if keys.shape()[0] != batch => Err(Error::shape(format!(
                "{batch} sequences do not continue the {} before",
                keys.shape()[0]
            ))
            .help("decoder.reset() for other sequences")),
            _ => Ok(()),
        }
    }

    /// [`CausalLm::next`].
    fn run_model(&mut self, tokens: &Tensor, count: usize) -> Result<Tensor> {
        let mut caches = caches(self.model, mem::take(&mut self.rows), self.position)?;
        let logits = no_grad(|| self.model.next(tokens, &mut caches));
        self.rows = rows(caches);
        let logits = logits?;
        self.position += count;
        Ok(logits)
    }

    /// The captures for such tokens.
    fn captures_for(&mut self, tokens: &Tensor) -> Result<&mut Captures<'m>> {
        let kind = (tokens.shape()[0], tokens.dtype());
        match self.captures.take().filter(|captures| captures.tokens == kind) {
            Some(captures) => Ok(self.captures.insert(captures)),
            None => Ok(self.captures.insert(Captures::new(self.model, kind)?)),
        }
    }
}

impl<'m> Captures<'m> {
    fn new(model: &'m CausalLm, tokens: (usize, DType)) -> Result<Captures<'m>> {
        let device = model.embedding().value().device().clone();
        let positions = 0..=model.config().context;
        let step = Capture::with_symbol(&device, positions, move |inputs, position| {
            let mut caches = caches(model, inputs[1..].to_vec(), position)?;
            let logits = no_grad(|| model.next(&inputs[0], &mut caches))?; // (B, V)
            Ok([logits].into_iter().chain(rows(caches)).collect())
        })?;
        let window = Capture::new(&device, move |inputs| {
            Ok(vec![no_grad(|| model.next(&inputs[0], &mut model.caches()))?])
        })?;
        Ok(Captures { step, window, tokens })
    }
}

/// Caches of these keys and values, which hold `position` tokens; empty ones of none.
fn caches(model: &CausalLm, rows: Vec<Tensor>, position: usize) -> Result<Vec<KvCache>> {
    let mut caches = model.caches();
    let of_each = rows.len() / caches.len().max(1);
    let mut rows = rows.into_iter();
    for cache in caches.iter_mut().filter(|_| of_each > 0) {
        cache.put(rows.by_ref().take(of_each).collect(), position)?;
    }
    Ok(caches)
}

/// The keys and values of all caches.
fn rows(caches: Vec<KvCache>) -> Vec<Tensor> {
    caches.into_iter().flat_map(KvCache::into_tensors).collect()
}

impl fmt::Debug for Decoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("position", &self.position)
            .field("replays", &self.is_replaying())
            .finish_non_exhaustive()
    }
}
