//! Optimizers: how gradients become new parameters.
//!
//! An update is one scalar program with several outputs (new parameter, new state): one pass over memory per parameter. Learning rate
//! and the like are run-time parameters of that program, so changing them, or counting steps, builds nothing anew.

mod adam;
mod sgd;

pub use adam::Adam;
pub use sgd::Sgd;

use crate::store::Param;
use std::sync::Arc;
use teeny_autograd::Gradients;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Kernel, Result, Tensor};

/// A rule that turns a parameter and its gradient into the next parameter.
pub trait Optimizer {
    /// The parameters, in a fixed order.
    fn params(&self) -> &[Param];

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Changes the learning rate from the next step on; what schedules call.
    fn set_lr(&mut self, lr: f64);

    /// The next value of parameter `i` of [`Optimizer::params`], and new state for it. Neither tensor is tracked.
    ///
    /// # Errors
    /// If the device fails.
    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor>;

    /// Updates every trainable parameter with its gradient.
    ///
    /// # Errors
    /// If a parameter has no gradient: what cut it off is named, and nothing has changed. A parameter that is not meant to have one is
    /// frozen with [`Param::set_trainable`].
    #[track_caller]
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let _op = enter("step");
        self.step_by(&mut |param| gradients.get(&param.value()).cloned())
    }

    /// [`Optimizer::step`] with gradients from elsewhere: `gradient` finds that of a parameter.
    ///
    /// # Errors
    /// If a gradient is missing or has another shape. All are looked up before the first parameter changes.
    fn step_by(&mut self, gradient: &mut dyn FnMut(&Param) -> Result<Tensor>) -> Result<()> {
        let params: Vec<(usize, Param)> = self.params().iter().cloned().enumerate().filter(|(_, p)| p.is_trainable()).collect();
        let mut gradients = Vec::with_capacity(params.len());
        for (_, param) in &params {
            let g = gradient(param)
                .map_err(|e| e.fact(format!("parameter {:?}", param.name())).hint("if it is not meant to be trained: param.set_trainable(false)?"))?;
            if g.shape() != param.value().shape() {
                return Err(
                    Error::shape(format!("parameter {:?} is {}, its gradient {}", param.name(), param.value().shape(), g.shape())).named("step")
                );
            }
            gradients.push(g);
        }
        for ((i, param), g) in params.iter().zip(gradients) {
            let value = crate::track::below(&param.value())?;
            // the gradient of a transposed weight is a transposed view: turning it once is faster than an update that reads across memory
            let g = g.cast(value.dtype())?.contiguous()?;
            param.set(&self.update(*i, &value, &g)?)?;
        }
        Ok(())
    }
}

/// The update program for each element type that occurs, built when first needed.
#[derive(Default)]
struct Kernels(Vec<(DType, Arc<Kernel>)>);

impl Kernels {
    fn get(&mut self, dtype: DType, build: impl FnOnce() -> Result<Kernel>) -> Result<Arc<Kernel>> {
        if let Some((_, kernel)) = self.0.iter().find(|(d, _)| *d == dtype) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(build()?);
        self.0.push((dtype, kernel.clone()));
        Ok(kernel)
    }
}

/// Zeros of the type that state is kept in: f32 for 16-bit parameters, whose small changes it must not lose.
fn zero_state(value: &Tensor) -> Result<Tensor> {
    Tensor::zeros(*value.shape(), value.dtype().compute(), value)
}
