//! An exponential moving average of the parameters.

use crate::state::{Misfits, State, Stateful};
use crate::store::Param;
use crate::track;
use std::sync::Arc;
use teeny_core::{Builder, Kernel, Result, Scalar, Tensor};

/// Averages beside the parameters: `a ← a + (1 - decay) (w - a)` after each step. They are usually better than the last values.
///
/// Averages of 16-bit parameters are kept in f32. Equivalent: `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn(decay)`.
///
/// # Example
/// ```
/// # use teeny_core::Result; use teeny_nn::{Store, optim::Ema};
/// # fn demo(store: &Store, evaluate: impl Fn() -> Result<f64>) -> Result<()> {
/// let mut ema = Ema::new(store.trainable(), 0.999)?;
/// ema.update()?;                              // after each step of the optimizer
/// let loss = ema.applied(|| evaluate())?;     // with the averages in the parameters' places
/// # let _ = loss; Ok(()) }
/// ```
pub struct Ema {
    params: Vec<Param>,
    averages: Vec<Tensor>,
    decay: f64,
    kernels: Vec<(teeny_core::DType, Arc<Kernel>)>,
}

impl Ema {
    /// Averages that start at the present values.
    ///
    /// # Errors
    /// If `decay` is outside `0..=1`, or the device fails.
    pub fn new(params: Vec<Param>, decay: f64) -> Result<Ema> {
        if !(0.0..=1.0).contains(&decay) {
            return Err(teeny_core::Error::value(format!("decay is {decay}, but it lies in 0..=1")).named("ema"));
        }
        let averages = params.iter().map(|p| wide(&p.value())).collect::<Result<_>>()?;
        Ok(Ema { params, averages, decay, kernels: Vec::new() })
    }

    /// Moves the averages towards the present values.
    ///
    /// # Errors
    /// If the device fails.
    pub fn update(&mut self) -> Result<()> {
        for (param, average) in self.params.iter().zip(&mut self.averages) {
            let value = track::below(&param.value())?;
            let kernel = match self.kernels.iter().find(|(dtype, _)| *dtype == value.dtype()) {
                Some((_, kernel)) => kernel.clone(),
                None => {
                    let b = Builder::new();
                    let (w, a) = (b.input(value.dtype()).cast(average.dtype()), b.input(average.dtype()));
                    let kernel = Arc::new(b.finish(&[a + (w - a) * b.param(average.dtype())])?);
                    self.kernels.push((value.dtype(), kernel.clone()));
                    kernel
                }
            };
            let [next] = super::outputs(kernel.run(&[&value, average], &[Scalar::Float(1.0 - self.decay)])?)?;
            *average = next;
        }
        Ok(())
    }

    /// Exchanges parameters and averages. Twice is as if not done, but that averages of 16-bit parameters are then rounded.
    ///
    /// # Errors
    /// If the device fails.
    pub fn swap(&mut self) -> Result<()> {
        for (param, average) in self.params.iter().zip(&mut self.averages) {
            let value = wide(&param.value())?;
            param.set(average)?;
            *average = value;
        }
        Ok(())
    }

    /// Runs `body` with the averages in the parameters' places, and puts the parameters back whatever comes of it.
    ///
    /// # Errors
    /// The error of `body`, or of the device.
    pub fn applied<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let values: Vec<Tensor> = self.params.iter().map(Param::value).collect();
        let result = self.params.iter().zip(&self.averages).try_for_each(|(param, average)| param.set(average)).and_then(|()| body());
        self.params.iter().zip(&values).try_for_each(|(param, value)| param.set(value))?;
        result
    }

    /// The average of each parameter, in their order; untracked.
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
        let mut misfits = Misfits::default();
        let mut averages = Vec::new();
        for (param, old) in self.params.iter().zip(&self.averages) {
            match state.tensors.get(param.name()) {
                None => misfits.missing(param.name(), old.shape()),
                Some(found) if found.shape() != old.shape() => misfits.misshapen(param.name(), &found.shape()[..], old.shape()),
                Some(found) => averages.push(track::below(found)?.cast(old.dtype())?.to(old.device())?),
            }
        }
        let known = |name: &str| self.params.iter().any(|p| p.name() == name);
        state.tensors.keys().filter(|name| !known(name)).for_each(|name| misfits.unknown(name));
        misfits.check("the average")?;
        self.averages = averages;
        Ok(())
    }
}

/// The untracked value in the type averages are kept in.
fn wide(value: &Tensor) -> Result<Tensor> {
    let value = track::below(value)?;
    value.cast(value.dtype().compute())
}
