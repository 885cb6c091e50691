//! [`CachedLm`]: a [`CausalLm`] that continues a text, one token at a time.
//!
//! ```text
//! next(prompt (B, T))   CausalLm::next                                  position 0 → T
//! next(token (B, 1))    ┌ token, keys, values ─ Capture ─ logits, keys, values ┐   T → T + 1, ..
//!                       └───────────────── written in place ◄──────────────────┘
//! ```
//!
//! On a device that records, the step for one token is recorded and replayed. The position is the
//! symbol of the capture ([`Capture::with_symbol`]): sizes and offsets follow it, so one recording
//! serves the whole context. Each call takes ownership of keys and values and returns them, so that
//! a new row is written in place. On other devices each step runs the model.

use super::causal_lm::{CausalInputs, CausalLm};
use crate::attention::{KvCache, is_collecting};
use teeny_autograd::no_grad;
use teeny_core::context::enter;
use teeny_core::{Capture, DType, DeviceRef, Error, Result, Tensor};

/// A [`CausalLm`] with the keys and values of the past tokens, of one text or of several.
///
/// If the model's device records, `Autograd::new(Lazy::new(device))` or `Lazy::new(device)`, then
/// from the fourth or fifth token on the recorded operations of the model are replayed
/// ([`Capture`]). Logits have the bits of [`CausalLm::next`] and are untracked. A step of more
/// operations than [`teeny_core::LazyOptions::max_nodes`] is an error. If the weights, the training
/// mode, the batch size or the dtype of the tokens change, the step is recorded again. Models that
/// ranks share, and models whose rotary embedding changes with the length
/// ([`crate::attention::RopeScaling::LongRope`]), run at each step.
///
/// # Example
/// ```
/// use teeny_autograd::Autograd;
/// use teeny_core::{DeviceRef, Lazy, Result, Tensor};
/// use teeny_cpu::Cpu;
/// use teeny_nn::{CachedLm, Gpt, GptConfig, Store};
/// # fn main() -> Result<()> {
/// let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
/// let store = Store::new(&device);
/// let gpt = Gpt::new(&store.root(), GptConfig::new(65, 32, 2, 4, 16))?;
/// store.set_training(false);
/// let mut text = CachedLm::new(&gpt);
/// let prompt = Tensor::new([[1i32, 2, 3]], &device)?; // (B, T)
/// let mut logits = text.next(&prompt)?; // (B, V)
/// for _ in 0..8 {
///     let token = logits.argmax(-1)?.unsqueeze(1)?; // (B, 1)
///     logits = text.next(&token)?; // (B, V)
/// }
/// assert!(text.len() == 11 && text.is_replaying());
/// # Ok(()) }
/// ```
pub struct CachedLm<'m> {
    model: &'m CausalLm,
    caches: Vec<KvCache>,
    capacity: usize,
    /// The device of the model, if steps are recorded.
    recorder: Option<DeviceRef>,
    step: Option<Step<'m>>,
}

/// A function that is recorded, and for what: the shape and the dtype of the tokens, and whether
/// some are padding.
struct Step<'m> {
    kind: ([usize; 2], DType, bool),
    capture: Capture<'m>,
}

impl<'m> CachedLm<'m> {
    /// No tokens yet, and memory for as many as the context of the model.
    pub fn new(model: &'m CausalLm) -> CachedLm<'m> {
        CachedLm::with_capacity(model, model.config().context)
    }

    /// No tokens yet, and memory for `capacity`.
    pub fn with_capacity(model: &'m CausalLm, capacity: usize) -> CachedLm<'m> {
        let device = model.embedding().stored().device().clone();
        let once = model.ranks == 1 && model.changes_after().is_none();
        let records = once && Capture::new(&device, |_| Ok(Vec::new())).is_ok();
        let (caches, recorder) = (model.caches_of(capacity), records.then_some(device));
        CachedLm { model, caches, capacity, recorder, step: None }
    }

    /// The model.
    pub fn model(&self) -> &'m CausalLm {
        self.model
    }

    /// The number of past tokens: the position of the next one.
    pub fn len(&self) -> usize {
        self.caches.first().map_or(0, KvCache::len)
    }

    /// Whether it has no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of tokens that there is memory for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets the tokens from `len` on, for another continuation; 0 for another text. What was
    /// recorded stays.
    pub fn truncate(&mut self, len: usize) {
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
    }

    /// Whether a step has been recorded: the model is not run for the next token of each text.
    pub fn is_replaying(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.capture.is_replaying())
    }

    /// The logits of the next token: `inputs` (B, T) continue the tokens of earlier calls → (B, V),
    /// untracked. The first call, calls of several tokens (a prompt), and those for which there is
    /// no place, run the model.
    ///
    /// # Errors
    /// As [`CausalLm::next`]: among others, if the context is full. Nothing has changed then. If
    /// the device fails (no memory, a token outside of the vocabulary), keys and values are lost:
    /// later calls are errors until `truncate(0)`.
    #[track_caller]
    pub fn next<'a>(&mut self, inputs: impl Into<CausalInputs<'a>>) -> Result<Tensor> {
        let _op = enter("cached_lm");
        let (inputs, position) = (inputs.into(), self.len());
        let recorder = self.recorder.as_ref().filter(|_| self.repeats(&inputs, position));
        let Some(device) = recorder else {
            return no_grad(|| self.model.next(inputs, &mut self.caches));
        };
        let (model, capacity) = (self.model, self.capacity);
        let padded = inputs.mask.is_some();
        let function = move |inputs: &[Tensor], position: usize| {
            let mut caches = model.caches_of(capacity);
            put(&mut caches, inputs[1 + usize::from(padded)..].to_vec(), position)?;
            let mask = inputs.get(1).filter(|_| padded);
            let inputs = CausalInputs { mask, ..CausalInputs::new(&inputs[0]) };
            let logits = no_grad(|| model.next(inputs, &mut caches))?; // (B, V)
            Ok([logits].into_iter().chain(caches.iter_mut().flat_map(KvCache::take)).collect())
        };
        let make = || Capture::with_symbol(device, 0..=capacity, function);
        let mut step = kept(self.step.take(), &inputs, make)?;
        let mut passed = vec![inputs.tokens.clone()];
        passed.extend(inputs.mask.cloned());
        passed.extend(self.caches.iter_mut().flat_map(KvCache::take));
        let results = step.capture.run_at(passed, position);
        self.step = Some(step);
        let mut results = results?;
        put(&mut self.caches, results.split_off(1), position + 1)?;
        results.pop().ok_or_else(|| Error::internal("a captured step without logits"))
    }

    /// Appends `count` tokens to `tokens` (B, T) → (B, T + count), from position 0; `pick` chooses
    /// each from the logits (B, V), as tokens (B).
    ///
    /// Within the context and the capacity every token is computed once. Beyond them the window
    /// moves, and is computed again at each step, because positions move too.
    ///
    /// # Errors
    /// As [`CachedLm::next`]; if `pick` fails.
    #[track_caller]
    pub fn generate(
        &mut self,
        tokens: &Tensor,
        count: usize,
        mut pick: impl FnMut(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let _op = enter("generate");
        self.truncate(0);
        let (model, start) = (self.model, tokens.size(1)?);
        let limit = self.capacity.min(model.config().context).max(1);
        let (mut all, mut new) = (vec![tokens.clone()], tokens.clone());
        let (mut window, mut of_window): (Option<Tensor>, Option<Step<'_>>) = (None, None);
        for length in start..start.saturating_add(count) {
            if model.rotations_change(self.len(), self.len() + 1).is_some() {
                new = Tensor::cat(&all, 1)?;
                self.truncate(0);
            }
            let logits = if length <= limit {
                self.next(&new)?
            } else {
                // Sizes stay the same from window to window, so that its operations are known.
                let last = match window.take() {
                    Some(window) => Tensor::cat(&[&window.slice(1, 1..)?, &new], 1)?,
                    None => {
                        let all = Tensor::cat(&all, 1)?;
                        all.slice(1, -(limit as isize)..)?.contiguous()?
                    }
                }; // (B, limit)
                let last = &*window.insert(last);
                let run = move |inputs: &[Tensor]| {
                    Ok(vec![no_grad(|| model.next(&inputs[0], &mut model.caches()))?])
                };
                let mut results = match &self.recorder {
                    Some(device) => {
                        let make = || Capture::new(device, run);
                        let step = kept(of_window.take(), &last.into(), make)?;
                        of_window.insert(step).capture.run(vec![last.clone()])?
                    }
                    None => run(std::slice::from_ref(last))?,
                };
                results.pop().ok_or_else(|| Error::internal("a captured window has no logits"))?
            }; // (B, V)
            new = pick(&logits)?.cast(tokens.dtype())?.unsqueeze(1)?; // (B, 1)
            all.push(new.clone());
        }
        Tensor::cat(&all, 1)
    }

    /// Whether `inputs` are one more token of each text, for which there is place.
    fn repeats(&self, inputs: &CausalInputs<'_>, position: usize) -> bool {
        let fits = |mask: &Tensor| {
            mask.dtype() == DType::Bool
                && mask.shape()[..] == [inputs.tokens.shape()[0], position + 1]
        };
        let batch = self.caches.first().and_then(KvCache::batch);
        let end = match inputs.mask {
            Some(_) => self.capacity,
            None => self.capacity.min(self.model.config().context),
        };
        batch.is_some_and(|batch| inputs.tokens.shape()[..] == [batch, 1])
            && inputs.tokens.dtype().is_int()
            && !is_collecting()
            && (1..end).contains(&position)
            && inputs.mask.is_none_or(fits)
    }
}

/// `step` if it is for such inputs, or one of the capture that `make` returns.
fn kept<'m>(
    step: Option<Step<'m>>,
    inputs: &CausalInputs<'_>,
    make: impl FnOnce() -> Result<Capture<'m>>,
) -> Result<Step<'m>> {
    let shape = inputs.tokens.shape();
    let kind = ([shape[0], shape[1]], inputs.tokens.dtype(), inputs.mask.is_some());
    match step.filter(|step| step.kind == kind) {
        Some(step) => Ok(step),
        None => Ok(Step { kind, capture: make()? }),
    }
}

/// Gives `caches` these keys and values, of `position` tokens.
fn put(caches: &mut [KvCache], rows: Vec<Tensor>, position: usize) -> Result<()> {
    let of_each = rows.len() / caches.len().max(1);
    let mut rows = rows.into_iter();
    caches
        .iter_mut()
        .try_for_each(|cache| cache.put(rows.by_ref().take(of_each).collect(), position))
}
