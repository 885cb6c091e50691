//! Optimizers: how gradients become new parameters.
//!
//! ```text
//! Optimizer      the trait: step                       mod      Ledger, Group: what is kept per parameter    ledger
//! Sgd Adam RMSprop Adagrad Lamb Lars Muon              sgd adam rmsprop adagrad lamb muon
//! clip_norm ..   between backward and step             clip     LossScale for 16-bit gradients               scale
//! Ema            an average beside the parameters      ema      learning rates by step                       crate::schedule
//! ```
//!
//! An update is one scalar program with several outputs (new parameter, new state): one pass over memory per parameter. Learning rate
//! and the like are run-time parameters of that program, so changing them, or counting steps, builds nothing anew.

mod adagrad;
mod adam;
mod clip;
mod ema;
mod lamb;
mod ledger;
mod muon;
mod rmsprop;
mod scale;
mod sgd;

pub use adagrad::Adagrad;
pub use adam::Adam;
pub use clip::{clip_norm, clip_value};
pub use ema::Ema;
pub use lamb::{Lamb, Lars};
pub use ledger::{Group, Ledger};
pub use muon::{Muon, newton_schulz};
pub use rmsprop::RmsProp;
pub use scale::LossScale;
pub use sgd::Sgd;

use crate::state::{State, Stateful};
use crate::store::Param;
use ledger::outputs;
use teeny_autograd::Gradients;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// A rule that turns a parameter and its gradient into the next parameter. What it keeps is in its [`Ledger`]; [`Stateful`] saves that.
///
/// # Example
/// An optimizer of your own: steps of equal size in the direction of a velocity (signSGD with momentum, Bernstein et al. 2018).
/// ```
/// use teeny_core::{Result, Tensor};
/// use teeny_nn::optim::{Ledger, Optimizer};
///
/// struct SignSgd(Ledger);
///
/// impl Optimizer for SignSgd {
///     fn ledger(&self) -> &Ledger {
///         &self.0
///     }
///     fn ledger_mut(&mut self) -> &mut Ledger {
///         &mut self.0
///     }
///     fn slots(&self) -> &'static [&'static str] {
///         &["velocity"]
///     }
///     fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
///         let ([velocity], _steps) = self.0.recall(i, value)?;
///         let velocity = velocity.mul(0.9)?.add(&gradient.mul(0.1)?)?;
///         let value = value.sub(&velocity.sign()?.mul(self.0.lr_of(i))?)?;
///         self.0.remember(i, [velocity]);
///         Ok(value)
///     }
/// }
/// # use teeny_nn::{Init, Store, state::Stateful};
/// # fn main() -> Result<()> {
/// # let store = Store::new(&teeny_nn::device("cpu")?);
/// # store.root().param("w", (2,), Init::ZEROS)?;
/// let mut optimizer = SignSgd(Ledger::new(store.trainable(), 0.5));
/// optimizer.step_by(&mut |param| Tensor::new([3.0f32, -7.0], &param.value()))?;
/// assert_eq!(store.get("w")?.value().to_vec::<f32>()?, [-0.5, 0.5]);
/// assert!(optimizer.state()?.tensors.contains_key("w.velocity"));
/// # Ok(()) }
/// ```
pub trait Optimizer {
    /// What is kept of each parameter.
    fn ledger(&self) -> &Ledger;

    /// The same, to change.
    fn ledger_mut(&mut self) -> &mut Ledger;

    /// The names of the tensors that [`Ledger::remember`] gets, each of the parameter's shape.
    fn slots(&self) -> &'static [&'static str];

    /// The next value of parameter `i` of [`Optimizer::params`], and new state for it. No tensor is tracked; the gradient has the
    /// value's type, or f32 where the value has 16 bits.
    ///
    /// # Errors
    /// If the device fails.
    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor>;

    /// The parameters, in a fixed order.
    fn params(&self) -> &[Param] {
        self.ledger().params()
    }

    /// The learning rate.
    fn lr(&self) -> f64 {
        self.ledger().lr
    }

    /// Changes the learning rate from the next step on: `optimizer.set_lr(schedule.at(step))`.
    fn set_lr(&mut self, lr: f64) {
        self.ledger_mut().lr = lr;
    }

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
        for ((i, _), g) in params.iter().zip(gradients) {
            let value = self.ledger().value(*i)?;
            // f32 gradients of 16-bit parameters keep their digits: unscaled ones may be too small for 16 bits
            let g = if g.dtype() == value.dtype().compute() { g } else { g.cast(value.dtype())? };
            let g = if self.ledger().maximize { g.neg()? } else { g };
            // the gradient of a transposed weight is a transposed view: turning it once is faster than an update that reads across memory
            let value = self.update(*i, &value, &g.contiguous()?)?;
            self.ledger_mut().put(*i, value)?;
        }
        Ok(())
    }
}

/// An optimizer chosen while the program runs.
impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn ledger(&self) -> &Ledger {
        (**self).ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        (**self).ledger_mut()
    }

    fn slots(&self) -> &'static [&'static str] {
        (**self).slots()
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        (**self).update(i, value, gradient)
    }
}

impl<O: Optimizer + ?Sized> Stateful for O {
    fn state(&self) -> Result<State> {
        Ok(self.ledger().state(self.slots()))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let slots = self.slots();
        self.ledger_mut().set_state(slots, state)
    }
}

/// The settings that all optimizers have, for the `impl` block of each.
macro_rules! settings {
    () => {
        /// How strongly parameters are pulled towards 0.
        pub fn weight_decay(mut self, weight_decay: f64) -> Self {
            self.ledger.set_weight_decay(weight_decay);
            self
        }

        /// Treats the parameters that `chosen` picks (by name, by shape) as `group` says; what a later group says counts.
        pub fn group(mut self, chosen: impl Fn(&Param) -> bool, group: Group) -> Self {
            self.ledger.group(chosen, group);
            self
        }

        /// Whether to climb instead of to descend: gradients are negated first, as PyTorch's `maximize`.
        pub fn maximize(mut self, maximize: bool) -> Self {
            self.ledger.maximize = maximize;
            self
        }

        /// Whether 16-bit parameters have an f32 copy that steps add up in, so that steps too small for 16 bits are not lost.
        ///
        /// Source: Micikevicius et al. 2017, arXiv:1710.03740.
        pub fn master_weights(mut self, master_weights: bool) -> Self {
            self.ledger.master_weights = master_weights;
            self
        }
    };
}

/// The methods of [`Optimizer`] that say where the ledger is.
macro_rules! its_ledger {
    () => {
        fn ledger(&self) -> &Ledger {
            &self.ledger
        }

        fn ledger_mut(&mut self) -> &mut Ledger {
            &mut self.ledger
        }
    };
}

use {its_ledger, settings};
