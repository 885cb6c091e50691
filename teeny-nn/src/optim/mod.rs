//! Optimizers: how gradients become new parameters.
//!
//! ```text
//! Optimizer      the trait: step                       mod      Ledger, Group: what is kept per parameter    ledger
//! Sgd Adam RMSprop Adagrad Lamb Lars Muon              sgd adam rmsprop adagrad lamb muon
//! clip_norm ..   between backward and step             clip     LossScale for 16-bit gradients               scale
//! Ema            an average beside the parameters      ema      learning rates by step                       crate::schedule
//! ```
//!
//! An update is one scalar program with several outputs (new parameter, new state): one pass over
//! memory per parameter. Learning rate and the like are run-time parameters of that program, so
//! changing them, or counting steps, builds nothing anew.

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
use ledger::{Row, outputs};
use teeny_autograd::Gradients;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// A rule that turns a parameter and its gradient into the next parameter. What it keeps is in its
/// [`Ledger`]; [`Stateful`] saves that.
///
/// # Example
/// An optimizer of your own: steps of equal size in the direction of a velocity (signSGD with
/// momentum, Bernstein et al. 2018).
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

    /// The next value of parameter `i` of [`Optimizer::params`], and new state for it. No tensor is
    /// tracked; the gradient has the value's type, or f32 where the value has 16 bits.
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

    /// Updates every trainable parameter with its gradient: all of them, or none after an error.
    ///
    /// # Errors
    /// - If the optimizer has no trainable parameters, or the store has some that no optimizer was
    ///   made with (a layer made after the optimizer); `partial(true)` allows the latter.
    /// - If a parameter has no gradient: what stopped it is named. A parameter that is not meant to
    ///   have one is frozen with [`Param::set_trainable`]; `skip_missing(true)` leaves parameters
    ///   that the loss does not depend on as they are, as PyTorch does.
    /// - If a gradient is NaN or infinite. That is looked for in the first step and in every
    ///   hundredth after it; `check_finite(1)` does so in every step, as [`clip_norm`] and
    ///   [`LossScale`] do.
    /// - If the device fails.
    #[track_caller]
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let _op = enter("step");
        let mut find = |param: &Param| gradient_of(gradients, param);
        if !self.ledger().skip_missing {
            return self.step_by(&mut find);
        }
        self.ledger_mut().check()?;
        let chosen: Vec<bool> =
            self.params().iter().map(|param| !can_skip(gradients, param)).collect();
        if !self.params().iter().zip(&chosen).any(|(param, chosen)| param.is_trainable() && *chosen)
        {
            return Err(no_gradient_at_all());
        }
        step_where(self, &|i| chosen[i], &mut find)
    }

    /// [`Optimizer::step`] with gradients from elsewhere: `gradient` finds that of a parameter.
    ///
    /// # Errors
    /// As [`Optimizer::step`], or if a gradient has another shape than its parameter.
    #[track_caller]
    fn step_by(&mut self, gradient: &mut dyn FnMut(&Param) -> Result<Tensor>) -> Result<()> {
        let _op = enter("step");
        self.ledger_mut().check()?;
        step_where(self, &|_| true, gradient)
    }
}

/// Whether `param` has no gradient because the loss does not depend on it. Gradients of another
/// value of it are a mistake.
fn can_skip(gradients: &Gradients, param: &Param) -> bool {
    let value = param.value();
    !gradients.contains(&value) && !gradients.is_stale(&value)
}

/// The gradient of `param`; the error says what to do if it is not meant to have one.
fn gradient_of(gradients: &Gradients, param: &Param) -> Result<Tensor> {
    let value = param.value();
    gradients
        .get(&value)
        .cloned()
        .map_err(|e| if gradients.is_stale(&value) { e } else { e.help(NO_GRADIENT) })
}

const NO_GRADIENT: &str = "was its layer called? if it is not meant to be trained: param.set_trainable(false)?, or .skip_missing(true) on the optimizer";

fn no_gradient_at_all() -> Error {
    Error::gradient("the loss depends on no parameter of the optimizer, so a step changes nothing")
        .help("compute the loss with the layers whose parameters the optimizer has")
}

/// A step of the trainable parameters whose number `chosen` picks.
///
/// Every new value is computed before the first parameter changes, so both are in memory until the
/// last one is known. That is the price for a step that can be repeated after it ran out of memory.
fn step_where<O: Optimizer + ?Sized>(
    optimizer: &mut O,
    chosen: &dyn Fn(usize) -> bool,
    gradient: &mut dyn FnMut(&Param) -> Result<Tensor>,
) -> Result<()> {
    let params: Vec<(usize, Param)> = optimizer
        .params()
        .iter()
        .cloned()
        .enumerate()
        .filter(|(i, p)| p.is_trainable() && chosen(*i))
        .collect();
    let mut gradients = Vec::with_capacity(params.len());
    for (_, param) in &params {
        let g = gradient(param).map_err(|e| {
            let error = e.note(format!("parameter {:?}", param.name()));
            if error.has_help() { error } else { error.help(NO_GRADIENT) }
        })?;
        if g.shape() != param.value().shape() {
            let text = format!(
                "parameter {:?} is {}, its gradient {}",
                param.name(),
                param.value().shape(),
                g.shape()
            );
            return Err(Error::shape(text).help("a gradient has the shape of its parameter"));
        }
        gradients.push(g);
    }
    let ledger = optimizer.ledger();
    if ledger.finite_every > 0 && ledger.taken.is_multiple_of(ledger.finite_every) {
        require_finite(&params, &gradients)?;
    }
    let mut rows: Vec<(usize, Row)> = Vec::with_capacity(params.len());
    let mut next = Vec::with_capacity(params.len());
    let updated = params.iter().zip(gradients).try_for_each(|((i, _), g)| -> Result<()> {
        rows.push((*i, optimizer.ledger().row(*i)));
        let value = optimizer.ledger().value(*i)?;
        // f32 gradients of 16-bit parameters keep their digits: unscaled ones may be too small for
        // 16 bits
        let g = if g.dtype() == value.dtype().compute() { g } else { g.cast(value.dtype())? };
        let g = if optimizer.ledger().maximize { g.neg()? } else { g };
        // the gradient of a transposed weight is a transposed view: a copy is faster than an update
        // that reads across memory
        let value = optimizer.update(*i, &value, &g.contiguous()?)?;
        next.push(optimizer.ledger_mut().prepare(*i, value)?);
        Ok(())
    });
    if let Err(error) = updated {
        rows.into_iter().for_each(|(i, row)| optimizer.ledger_mut().restore(i, row));
        return Err(error);
    }
    params.into_iter().zip(next).for_each(|((_, param), value)| param.put(value));
    optimizer.ledger_mut().taken += 1;
    Ok(())
}

/// An error that names the first parameter whose gradient is NaN or infinite somewhere.
fn require_finite(params: &[(usize, Param)], gradients: &[Tensor]) -> Result<()> {
    // 0 g is 0 where g is finite, and NaN elsewhere
    let zeros = |g: &Tensor| g.cast(g.dtype().compute())?.mul(0.0)?.sum_all()?.reshape((1,)); // (1)
    let zeros = gradients.iter().map(zeros).collect::<Result<Vec<_>>>()?;
    match clip::read(&zeros)?.iter().position(|zero| *zero != 0.0) {
        None => Ok(()),
        Some(first) => {
            Err(Error::value(format!("the gradient of {:?} is NaN or infinite somewhere; no parameter has changed", params[first].1.name()))
                .note("gradients are checked in the first step and in every hundredth, or as check_finite says")
                .help("train::require_finite stops at the loss, and the device wrapper Checked at the operation that made it"))
        }
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

        /// Treats the parameters that `chosen` picks (by name, by shape) as `group` says; what a
        /// later group says counts.
        pub fn group(mut self, chosen: impl Fn(&Param) -> bool, group: Group) -> Self {
            self.ledger.group(chosen, group);
            self
        }

        /// Whether to climb instead of to descend: gradients are negated first, as PyTorch's
        /// `maximize`.
        pub fn maximize(mut self, maximize: bool) -> Self {
            self.ledger.maximize = maximize;
            self
        }

        /// Whether the store may have trainable parameters that no optimizer was made with.
        /// Otherwise the first step is an error that names them, as a layer that was made after the
        /// optimizer would never be trained.
        pub fn partial(mut self, partial: bool) -> Self {
            self.ledger.set_partial(partial);
            self
        }

        /// Whether parameters that the loss does not depend on are left as they are, as PyTorch
        /// does. Otherwise they are an error.
        pub fn skip_missing(mut self, skip_missing: bool) -> Self {
            self.ledger.set_skip_missing(skip_missing);
            self
        }

        /// Looks gradients through for NaN and infinities once in so many steps: 1 for every step,
        /// 0 for never, 100 unless one says otherwise.
        ///
        /// A look is one more pass over the gradients and waits for the device, so the default
        /// costs a hundredth of that. NaN in a gradient is nearly always NaN in the next loss too,
        /// which [`crate::train::Losses`] notices.
        pub fn check_finite(mut self, every: u64) -> Self {
            self.ledger.set_finite_every(every);
            self
        }

        /// Whether 16-bit parameters have an f32 copy that steps add up in, so that steps too small
        /// for 16 bits are not lost.
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
