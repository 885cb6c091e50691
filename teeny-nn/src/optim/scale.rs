//! Loss scaling, so that gradients in `F16` do not underflow.

use super::clip::require_norm;
use super::{Optimizer, can_skip, gradient_of, no_gradient_at_all};
use crate::options::setters;
use crate::state::Stateful;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use teeny_autograd::Gradients;
use teeny_core::context::{continued, enter};
use teeny_core::{Capture, Error, Result, Tensor};
use teeny_formats::State;

/// A factor of the loss, and so of every gradient, that keeps small gradients in the range of
/// `F16`. If a gradient is not finite, the factor is halved and the step is skipped; after
/// `growth_interval` successful steps in a row it is doubled.
///
/// Gradients are divided by the factor in f32. `BF16` has the range of f32 and needs no loss
/// scaling: mixed precision is then `Store::with_dtype(device, DType::BF16)` with
/// `AdamW::new(..).master_weights(true)`, which sums and updates in f32.
///
/// Equivalent: `torch.amp.GradScaler`. Source: Micikevicius et al. 2017, arXiv:1710.03740.
///
/// # Example
/// ```
/// # use teeny_core::{Result, Tensor}; use teeny_autograd::Grad;
/// # use teeny_nn::optim::{LossScale, Optimizer};
/// # fn demo(loss: &Tensor, optimizer: &mut dyn Optimizer) -> Result<()> {
/// let mut scale = LossScale::new();
/// let gradients = scale.apply(loss)?.backward()?;
/// let stepped = scale.step(optimizer, &gradients)?;
/// # let _ = stepped; Ok(()) }
/// ```
/// A program that needs the gradients before the step, for example to clip them, calls
/// [`LossScale::unscale`] in place of [`LossScale::step`].
///
#[doc(alias = "GradScaler")]
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    factor: Factor,
    growth_interval: u64,
    good_steps: u64,
    max_norm: Option<f64>,
}

/// The factor, where replays of a captured loss read it.
struct Factor(Arc<AtomicU64>);

impl Factor {
    fn new(factor: f64) -> Factor {
        Factor(Arc::new(AtomicU64::new(factor.to_bits())))
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&mut self, factor: f64) {
        self.0.store(factor.to_bits(), Ordering::Relaxed);
    }
}

impl Clone for Factor {
    fn clone(&self) -> Factor {
        Factor::new(self.get())
    }
}

impl PartialEq for Factor {
    fn eq(&self, other: &Factor) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Default for LossScale {
    fn default() -> LossScale {
        LossScale::new()
    }
}

impl LossScale {
    /// PyTorch's defaults: a factor of 65,536, doubled after 2,000 successful steps.
    pub fn new() -> LossScale {
        LossScale {
            factor: Factor::new(65_536.0),
            growth_interval: 2000,
            good_steps: 0,
            max_norm: None,
        }
    }

    /// Sets the initial factor; scaling by a power of 2 is exact.
    pub fn initial_factor(mut self, factor: f64) -> LossScale {
        self.factor.set(factor);
        self
    }

    setters! {
        /// Sets the number of successful steps in a row after which the factor is doubled.
        growth_interval(steps: u64) => growth_interval = steps;
        /// Has [`LossScale::unscale`], and so each step, clip the gradients to a total norm of
        /// `max_norm`, as [`super::clip_grad_norm`] does, but without reading the norm. On scaled
        /// gradients, that function would compare `max_norm` with a norm larger by the factor.
        max_norm(max_norm: f64) => max_norm = Some(max_norm);
    }

    /// The current factor.
    pub fn factor(&self) -> f64 {
        self.factor.get()
    }

    /// The loss times the factor; its backward pass returns scaled gradients. In a captured
    /// function the factor is the present one in each replay.
    ///
    /// # Errors
    /// If the factor is not a finite number above 0, or the device fails.
    #[track_caller]
    pub fn apply(&self, loss: &Tensor) -> Result<Tensor> {
        let _op = enter("loss_scale");
        require_factor(self.factor())?;
        // a loss in F16 would overflow by the factor itself
        let loss = loss.cast(loss.dtype().compute())?;
        let (id, factor) = (Arc::as_ptr(&self.factor.0) as usize, self.factor.0.clone());
        let now = move || f64::from_bits(factor.load(Ordering::Relaxed));
        match Capture::number(id, loss.dtype(), loss.device(), now)? {
            Some(factor) => loss.mul(factor),
            None => loss.mul(self.factor.get()),
        }
    }

    /// Divides the gradients of the optimizer's parameters by the factor. Returns false if one is
    /// not finite: the gradients are as before then, the factor is halved, and the program skips
    /// the step. Waits for the device.
    ///
    /// Gradients of 16-bit parameters become f32. This counts as a step for the growth of the
    /// factor: it is called once for each backward pass, and not with [`LossScale::step`].
    ///
    /// # Example
    /// ```
    /// # use teeny_core::{Result, Tensor}; use teeny_autograd::Grad;
    /// # use teeny_nn::{Store, optim::{LossScale, Optimizer, clip_grad_norm}};
    /// # fn demo(loss: &Tensor, store: &Store, optimizer: &mut dyn Optimizer) -> Result<()> {
    /// let mut scale = LossScale::new();
    /// let mut gradients = scale.apply(loss)?.backward()?;
    /// if scale.unscale(optimizer, &mut gradients)? {
    ///     clip_grad_norm(&mut gradients, &store.trainable(), 1.0)?;
    ///     optimizer.step(&gradients)?;
    /// }
    /// # Ok(()) }
    /// ```
    /// Equivalent: `GradScaler.unscale_`, and `update` with its result.
    ///
    /// # Errors
    /// As [`LossScale::step`].
    #[track_caller]
    pub fn unscale(
        &mut self,
        optimizer: &mut dyn Optimizer,
        gradients: &mut Gradients,
    ) -> Result<bool> {
        let _op = enter("loss_scale");
        let (unscaled, finite) = self.unscaled(optimizer, gradients)?;
        self.conclude(&finite.to_vec()?, || {
            *gradients = unscaled;
            Ok(())
        })
    }

    /// A step with the gradients of a scaled loss. Returns false if a gradient is not finite; the
    /// step is then skipped. Waits for the device.
    ///
    /// # Errors
    /// As [`Optimizer::step`]; also if the factor would fall below 2⁻²⁴: then the factor is not the
    /// cause of the overflow. Factor and parameters have not changed then.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, gradients: &Gradients) -> Result<bool> {
        let _op = enter("loss_scale");
        let (unscaled, finite) = self.unscaled(optimizer, gradients)?;
        self.conclude(&finite.to_vec()?, || optimizer.step(&unscaled))
    }

    /// [`LossScale::step`] as a future.
    ///
    /// # Errors
    /// As [`LossScale::step`].
    #[track_caller]
    pub fn step_async<'a>(
        &'a mut self,
        optimizer: &'a mut dyn Optimizer,
        gradients: &Gradients,
    ) -> impl Future<Output = Result<bool>> + use<'a> {
        let _op = enter("loss_scale");
        let reading = self
            .unscaled(optimizer, gradients)
            .map(|(unscaled, finite)| (unscaled, finite.to_vec_async()));
        continued(async move {
            let (unscaled, finite) = reading?;
            self.conclude(&finite.await?, || optimizer.step(&unscaled))
        })
    }

    /// The gradients divided by the factor, and whether they are finite (parameters).
    fn unscaled(
        &self,
        optimizer: &mut dyn Optimizer,
        gradients: &Gradients,
    ) -> Result<(Gradients, Tensor)> {
        optimizer.states_mut().check()?;
        require_factor(self.factor())?;
        self.max_norm.map_or(Ok(()), require_norm)?;
        let (mut unscaled, mut finite) = (Vec::new(), Vec::new());
        let skip = optimizer.states().skip_missing;
        for param in optimizer
            .params()
            .iter()
            .filter(|p| p.is_trainable() && !(skip && can_skip(gradients, p)))
        {
            let g = gradient_of(gradients, param)?;
            let g = g.cast(g.dtype().compute())?.mul(1.0 / self.factor())?;
            // (1)
            finite.push(
                teeny_core::map([&g], |[g]| g.is_finite())?
                    .reshape((g.numel(),))?
                    .all(0)?
                    .reshape((1,))?,
            );
            unscaled.push((param.value(), g));
        }
        if finite.is_empty() {
            return Err(no_gradient_at_all());
        }
        if let Some(max_norm) = self.max_norm {
            clip(&mut unscaled, max_norm)?;
        }
        let mut all = gradients.clone(); // handles, not elements
        unscaled.into_iter().try_for_each(|(value, g)| all.set(&value, g))?;
        Ok((all, Tensor::cat(&finite, 0)?))
    }

    /// Uses unscaled gradients, or makes the factor smaller if one of them is not `finite`.
    fn conclude(&mut self, finite: &[bool], apply: impl FnOnce() -> Result<()>) -> Result<bool> {
        if finite.contains(&false) {
            let factor = self.factor() / 2.0;
            if factor < 2f64.powi(-24) {
                let text = format!(
                    "gradients are not finite even where the loss is multiplied by {}",
                    self.factor()
                );
                return Err(Error::value(text).help("check that the loss itself is finite"));
            }
            self.factor.set(factor);
            self.good_steps = 0;
            return Ok(false);
        }
        apply()?;
        self.good_steps += 1;
        if self.good_steps == self.growth_interval {
            self.factor.set(self.factor() * 2.0);
            self.good_steps = 0;
        }
        Ok(true)
    }
}

/// Multiplies gradients by `min(1, max_norm / (norm + 1e-6))` without a read. The norm is
/// `m sqrt(Σ (g / m)²)`, where m is the largest element: squares stay in the range of f32.
fn clip(gradients: &mut [(Tensor, Tensor)], max_norm: f64) -> Result<()> {
    let total = |all: Vec<Tensor>| Tensor::stack(&all, 0); // (parameters)
    let parts = gradients.iter().map(|(_, g)| g.abs()?.max_all());
    let largest =
        total(parts.collect::<Result<_>>()?)?.max_all()?.maximum(f64::from(f32::MIN_POSITIVE))?; // ()
    let parts = gradients.iter().map(|(_, g)| g.div(&largest)?.square()?.sum_all());
    let norm = total(parts.collect::<Result<_>>()?)?.sum_all()?.sqrt()?; // () by `largest`
    let eps = largest.recip()?.mul(1e-6)?; // ()
    // the norm itself may be beyond the range
    let factor = norm.add(&eps)?.recip()?.mul(max_norm)?.div(&largest)?.minimum(1.0)?; // ()
    gradients.iter_mut().try_for_each(|(_, g)| {
        *g = g.mul(&factor)?;
        Ok(())
    })
}

/// Returns an error unless a loss can be multiplied by `factor`, and its gradients be divided by
/// it.
fn require_factor(factor: f64) -> Result<()> {
    if !factor.is_finite() || factor <= 0.0 {
        return Err(Error::value(format!("a loss cannot be scaled by {factor}"))
            .help("a power of 2, as LossScale::new() has"));
    }
    Ok(())
}

impl Stateful for LossScale {
    fn state(&self) -> Result<State> {
        Ok(State::default().with("factor", self.factor()).with("good_steps", self.good_steps))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let (factor, good_steps) = (state.get("factor")?, state.get("good_steps")?);
        require_factor(factor)?;
        self.factor.set(factor);
        self.good_steps = good_steps;
        Ok(())
    }
}
