//! An exponential moving average of the parameters.

use crate::state::Stateful;
use crate::store::Param;
use crate::track;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Builder, Error, Kernel, Result, Scalar, Tensor};
use teeny_formats::{KeyMismatch, State};

/// Exponential moving averages of parameters: `a ← a + (1 - decay) (w - a)` after each step. They
/// usually generalise better than the last values.
///
/// Averages of 16-bit parameters are f32. Equivalent: `torch.optim.swa_utils.AveragedModel` with
/// `get_ema_multi_avg_fn(decay)`.
///
/// # Example
/// ```
/// # use teeny_core::Result; use teeny_nn::{Store, optim::Ema};
/// # fn demo(store: &Store, evaluate: impl Fn() -> Result<f64>) -> Result<()> {
/// let mut ema = Ema::new(store.trainable(), 0.999)?;
/// ema.update()?;                              // after each step of the optimizer
/// let loss = ema.applied(|| evaluate())?;     // with the averages as parameters
/// # let _ = loss; Ok(()) }
/// ```
#[doc(alias = "AveragedModel")]
pub struct Ema {
    params: Vec<Param>,
    averages: Vec<Tensor>,
    decay: f64,
    kernels: Vec<(teeny_core::DType, Arc<Kernel>)>,
}

impl Ema {
    /// Averages that start at the current values.
    ///
    /// # Errors
    /// If `decay` is outside `0..=1`, or the device fails.
    #[track_caller]
    pub fn new(params: Vec<Param>, decay: f64) -> Result<Ema> {
        let _op = enter("Ema::new");
        if !(0.0..=1.0).contains(&decay) {
            let error = Error::value(format!("decay is {decay}, but must be within 0..=1"));
            return Err(error.help("0.999 averages over about the last thousand steps"));
        }
        let averages = params.iter().map(|p| cast_to_compute(&p.value())).collect::<Result<_>>()?;
        Ok(Ema { params, averages, decay, kernels: Vec::new() })
    }

    /// Moves the averages towards the current values: all of them, or none after an error.
    ///
    /// # Errors
    /// If the device fails.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let _op = enter("ema.update");
        let mut averages = Vec::with_capacity(self.averages.len());
        for (param, average) in self.params.iter().zip(&self.averages) {
            let value = track::detached(&param.value())?;
            let kernel = match self.kernels.iter().find(|(dtype, _)| *dtype == value.dtype()) {
                Some((_, kernel)) => kernel.clone(),
                None => {
                    let b = Builder::new();
                    let (w, a) =
                        (b.input(value.dtype()).cast(average.dtype()), b.input(average.dtype()));
                    let kernel = Arc::new(b.finish(&[a + (w - a) * b.param(average.dtype())])?);
                    self.kernels.push((value.dtype(), kernel.clone()));
                    kernel
                }
            };
            let [next] = super::outputs(
                kernel.run(&[&value, average], &[Scalar::Float(1.0 - self.decay)])?,
            )?;
            averages.push(next);
        }
        self.averages = averages;
        Ok(())
    }

    /// Exchanges parameters and averages. A second call restores both; averages of 16-bit
    /// parameters have then been rounded.
    ///
    /// # Errors
    /// If the device fails. Nothing has changed then.
    #[track_caller]
    pub fn swap(&mut self) -> Result<()> {
        let _op = enter("ema.swap");
        let averages =
            self.params.iter().map(|p| cast_to_compute(&p.value())).collect::<Result<_>>()?;
        Param::set_all(self.params.iter().zip(&self.averages))?;
        self.averages = averages;
        Ok(())
    }

    /// Runs `body` with the averages as parameters, then restores the parameters, also after an
    /// error.
    ///
    /// # Errors
    /// The error of `body`, or of the device.
    #[track_caller]
    pub fn applied<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let values: Vec<(Tensor, bool)> =
            self.params.iter().map(|p| (p.value(), p.is_trainable())).collect();
        {
            let _op = enter("ema.applied");
            Param::set_all(self.params.iter().zip(&self.averages))?;
        }
        let result = body();
        for (param, (value, trainable)) in self.params.iter().zip(values) {
            if param.is_trainable() == trainable {
                param.put(value); // the same tensor, so that its gradients are still found
            } else {
                param.set(&value)?; // `body` froze it or made it trainable
            }
        }
        result
    }

    /// The average of each parameter, in the parameters' order; untracked.
    pub fn averages(&self) -> &[Tensor] {
        &self.averages
    }
}

impl Stateful for Ema {
    fn state(&self) -> Result<State> {
        let names = self.params.iter().map(|p| p.name().to_string());
        let mut state = State::default();
        state.tensors.extend(names.zip(self.averages.iter().cloned()));
        Ok(state)
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let mut mismatch = KeyMismatch::default();
        let mut averages = Vec::new();
        for (param, old) in self.params.iter().zip(&self.averages) {
            match state.tensors.get(param.name()) {
                None => mismatch.missing(param.name(), old.shape()),
                Some(found) if found.shape() != old.shape() => {
                    mismatch.shape(param.name(), &found.shape()[..], old.shape())
                }
                Some(found) => {
                    averages.push(track::detached(found)?.cast(old.dtype())?.to(old.device())?)
                }
            }
        }
        let known = |key: &str| self.params.iter().any(|p| p.name() == key);
        state.tensors.keys().filter(|key| !known(key)).for_each(|key| mismatch.unexpected(key));
        mismatch.check("the averages")?;
        self.averages = averages;
        Ok(())
    }
}

/// The untracked value, cast to the dtype of the averages.
fn cast_to_compute(value: &Tensor) -> Result<Tensor> {
    let value = track::detached(value)?;
    value.cast(value.dtype().compute())
}
