//! Optimizers: update rules from gradients to new parameters.
//!
//! ```text
//! Optimizer                                  the trait: step                     mod
//! Sgd Adam AdamW RmsProp Adagrad             PyTorch's optimizers                sgd adam ..
//! Lamb Lars Muon                             for large batches, for matrices     lamb muon
//! ParamStates, ParamGroup                    state and options per parameter     param_states
//! clip_grad_norm, clip_grad_value            between backward and step           clip
//! LossScale                                  for 16-bit gradients                scale
//! Ema                                        averages of the parameters          ema
//! ```
//!
//! An update is one scalar program with several outputs (new parameter, new state): one pass over
//! memory per parameter. The learning rate and other numbers are run-time parameters of that
//! program: a new value compiles nothing. [`crate::schedule`] has learning rates by step.

mod adagrad;
mod adam;
mod clip;
mod ema;
mod lamb;
mod muon;
mod param_states;
mod rmsprop;
mod scale;
mod sgd;

pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use clip::{
    SquaredNorms, clip_grad_norm, clip_grad_norm_async, clip_grad_norm_by, clip_grad_value,
};
pub use ema::Ema;
pub use lamb::{Lamb, Lars};
pub use muon::{Muon, newton_schulz};
pub(crate) use param_states::out_of_range;
pub use param_states::{ParamGroup, ParamStates, Update};
pub use rmsprop::RmsProp;
pub use scale::LossScale;
pub use sgd::Sgd;

use crate::state::Stateful;
use crate::store::Param;
use param_states::{ParamEntry, outputs};
use std::sync::Arc;
use teeny_autograd::Gradients;
use teeny_core::context::enter;
use teeny_core::{Error, ErrorKind, Result, Tensor};
use teeny_formats::State;

/// An update rule: a parameter and its gradient become the next parameter. The state is in a
/// [`ParamStates`], which [`Stateful`] saves.
///
/// # Example
/// A user's own optimizer: steps of equal size in the direction of a velocity (signSGD with
/// momentum, Bernstein et al. 2018).
/// ```
/// use teeny_core::{Result, Tensor};
/// use teeny_nn::optim::{ParamStates, Optimizer};
///
/// struct SignSgd(ParamStates);
///
/// impl Optimizer for SignSgd {
///     fn states(&self) -> &ParamStates {
///         &self.0
///     }
///     fn states_mut(&mut self) -> &mut ParamStates {
///         &mut self.0
///     }
///     fn state_names(&self) -> &'static [&'static str] {
///         &["velocity"]
///     }
///     fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
///         let ([velocity], _steps) = self.0.state(i, value)?;
///         let velocity = velocity.mul(0.9)?.add(&gradient.mul(0.1)?)?;
///         let value = value.sub(&velocity.sign()?.mul(self.0.lr_of(i))?)?;
///         self.0.set_state(i, [velocity]);
///         Ok(value)
///     }
/// }
/// # use teeny_nn::state::Stateful;
/// # use teeny_nn::{Init, Store};
/// # fn main() -> Result<()> {
/// # let store = Store::new(&teeny_nn::device("cpu")?);
/// # store.root().param("w", (2,), Init::ZEROS)?;
/// let mut optimizer = SignSgd(ParamStates::new(store.trainable(), 0.5));
/// optimizer.step_by(&mut |param| Tensor::new([3.0f32, -7.0], &param.value()))?;
/// assert_eq!(store.get("w")?.value().to_vec::<f32>()?, [-0.5, 0.5]);
/// assert!(optimizer.state()?.tensors.contains_key("w.velocity"));
/// # Ok(()) }
/// ```
pub trait Optimizer {
    /// The state of every parameter.
    fn states(&self) -> &ParamStates;

    /// The state of every parameter, mutable.
    fn states_mut(&mut self) -> &mut ParamStates;

    /// The names of the tensors in [`ParamStates::set_state`], each of the parameter's shape.
    fn state_names(&self) -> &'static [&'static str];

    /// Returns the next value of parameter `i` of [`Optimizer::params`] and sets its new state. No
    /// tensor is tracked; the gradient has the value's type, or f32 where the value has 16 bits.
    ///
    /// # Errors
    /// If the device fails.
    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor>;

    /// The update of parameter `i` as one kernel, if it is one. Where
    /// [`Device::prefers_batched_kernels`] says so, a step runs the kernels of all parameters
    /// together ([`Kernel::run_many`]) instead of [`Optimizer::update`]. Its first output is the
    /// next value, the others are the new state. None unless an optimizer says so.
    ///
    /// [`Device::prefers_batched_kernels`]: teeny_core::Device::prefers_batched_kernels
    /// [`Kernel::run_many`]: teeny_core::Kernel::run_many
    ///
    /// # Errors
    /// If the device fails.
    fn kernel_update(
        &mut self,
        _i: usize,
        _value: &Tensor,
        _gradient: &Tensor,
    ) -> Result<Option<Update>> {
        Ok(None)
    }

    /// Whether an element of a parameter is updated from that element of the gradient and of the
    /// state alone, so that rows can be updated apart; false unless an optimizer says so.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// The parameters, in a fixed order.
    fn params(&self) -> &[Param] {
        self.states().params()
    }

    /// The learning rate.
    fn lr(&self) -> f64 {
        self.states().lr
    }

    /// Sets the learning rate of the next steps: `optimizer.set_lr(schedule.at(step))`. One that is
    /// negative, NaN or infinite is an error of the next step.
    fn set_lr(&mut self, lr: f64) {
        self.states_mut().set_lr(lr);
    }

    /// Updates every trainable parameter with its gradient: all of them, or none after an error.
    ///
    /// # Errors
    /// - If the learning rate or another hyper-parameter is out of its range, such as NaN.
    /// - If the optimizer has no trainable parameters, or the store has trainable parameters
    ///   without an optimizer (a layer made after the optimizer); `partial(true)` allows the
    ///   latter.
    /// - If a parameter has no gradient; the error names the operation that stopped it. Freeze such
    ///   a parameter with [`Param::set_trainable`], or skip parameters that the loss does not
    ///   depend on with `skip_missing(true)`, as PyTorch does.
    /// - If a gradient is NaN or infinite. The first step and every hundredth after it check that;
    ///   `check_finite(1)` checks every step, as [`clip_grad_norm`] and [`LossScale`] do.
    /// - If the device fails.
    #[track_caller]
    fn step(&mut self, gradients: &Gradients) -> Result<()> {
        let _op = enter("step");
        let mut find = |param: &Param| gradient_of(gradients, param);
        if !self.states().skip_missing {
            return self.step_by(&mut find);
        }
        self.states_mut().check()?;
        let chosen: Vec<bool> =
            self.params().iter().map(|param| !can_skip(gradients, param)).collect();
        if !self.params().iter().zip(&chosen).any(|(param, chosen)| param.is_trainable() && *chosen)
        {
            return Err(no_gradient_at_all());
        }
        step_where(self, &|i| chosen[i], &mut find)
    }

    /// [`Optimizer::step`] with the gradients that `gradient` returns for each parameter.
    ///
    /// # Errors
    /// As [`Optimizer::step`]; also if a gradient has another shape than its parameter.
    #[track_caller]
    fn step_by(&mut self, gradient: &mut dyn FnMut(&Param) -> Result<Tensor>) -> Result<()> {
        let _op = enter("step");
        self.states_mut().check()?;
        step_where(self, &|_| true, gradient)
    }
}

/// Whether `param` has no gradient because the loss does not depend on it. Gradients of an older
/// value of the parameter are a mistake, not a reason to skip it.
fn can_skip(gradients: &Gradients, param: &Param) -> bool {
    let value = param.value();
    !gradients.contains(&value) && !gradients.is_stale(&value)
}

/// The gradient of `param`; the error has a help line for parameters that need none.
fn gradient_of(gradients: &Gradients, param: &Param) -> Result<Tensor> {
    gradient_or(gradients, param, NO_GRADIENT)
}

/// The gradient of `param`; the error has the line `help` unless the gradients are of an older
/// value.
fn gradient_or(gradients: &Gradients, param: &Param, help: &str) -> Result<Tensor> {
    let value = param.value();
    let gradient = gradients.get(&value).cloned();
    gradient.map_err(|e| if gradients.is_stale(&value) { e } else { e.help(help) })
}

const NO_GRADIENT: &str = "was its layer called? if it should not be trained: \
    param.set_trainable(false)?, or .skip_missing(true) on the optimizer";

fn no_gradient_at_all() -> Error {
    Error::gradient("the loss depends on no parameter of the optimizer, so a step changes nothing")
        .help("compute the loss with the layers whose parameters the optimizer has")
}

/// A step of the trainable parameters for whose index `chosen` returns true.
///
/// All new values are computed before the first parameter changes, so old and new values are in
/// memory together. In return a step that ran out of memory can be repeated.
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
    let states = optimizer.states();
    if states.finite_every > 0 && states.taken.is_multiple_of(states.finite_every) {
        require_finite(&params, &gradients)?;
    }
    let entries: Vec<(usize, ParamEntry)> =
        params.iter().map(|(i, _)| (*i, optimizer.states().entry(*i))).collect();
    let next = match updated(optimizer, &params, gradients) {
        Ok(next) => next,
        Err(error) => {
            entries.into_iter().for_each(|(i, entry)| optimizer.states_mut().restore(i, entry));
            return Err(error);
        }
    };
    let device = params.first().map(|(_, param)| param.value().device().clone());
    params.into_iter().zip(next).for_each(|((_, param), value)| param.put(value));
    optimizer.states_mut().taken += 1;
    if let Some(device) = device {
        device.flush(); // a step ends
    }
    Ok(())
}

/// The next values of `params` by these gradients. Updates that are kernels run together.
fn updated<O: Optimizer + ?Sized>(
    optimizer: &mut O,
    params: &[(usize, Param)],
    gradients: Vec<Tensor>,
) -> Result<Vec<Tensor>> {
    let mut values: Vec<Option<Tensor>> = Vec::with_capacity(params.len());
    let mut updates = Vec::with_capacity(params.len());
    for (place, ((i, _), g)) in params.iter().zip(gradients).enumerate() {
        let value = optimizer.states().value(*i)?;
        // gradients of 16-bit parameters stay f32: unscaled ones may be too small for 16 bits
        let g = if g.dtype() == value.dtype().compute() { g } else { g.cast(value.dtype())? };
        let g = if optimizer.states().maximize { g.neg()? } else { g };
        // the gradient of a transposed weight is a transposed view: a copy is faster than an update
        // with strided reads
        let g = g.contiguous()?;
        let joins = value.device().prefers_batched_kernels();
        let update = if joins { optimizer.kernel_update(*i, &value, &g)? } else { None };
        values.push(match update {
            Some(update) => {
                updates.push((place, update));
                None
            }
            None => Some(optimizer.update(*i, &value, &g)?),
        });
    }
    // Parameters of another type have another kernel.
    while let Some(kernel) = updates.first().map(|(_, update)| update.kernel.clone()) {
        let (together, others): (Vec<_>, Vec<_>) =
            updates.into_iter().partition(|(_, update)| Arc::ptr_eq(&update.kernel, &kernel));
        updates = others;
        let all = Update::run(together.iter().map(|(_, update)| update))?;
        for ((place, _), outputs) in together.iter().zip(all) {
            values[*place] = Some(optimizer.states_mut().set_outputs(params[*place].0, outputs)?);
        }
    }
    let values = params.iter().zip(values).map(|((i, param), value)| {
        let value = value.ok_or_else(|| {
            Error::internal(format!("parameter {:?} has no next value", param.name()))
        })?;
        optimizer.states_mut().prepare(*i, value)
    });
    values.collect()
}

/// An error that names the first parameter whose gradient has a NaN or an infinity.
fn require_finite(params: &[(usize, Param)], gradients: &[Tensor]) -> Result<()> {
    // 0 g is 0 where g is finite, and NaN elsewhere
    let zeros = match clip::read(&clip::sums_of(gradients, |g| g * 0.0)?) {
        // a browser's program checks its losses, which it awaits
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
        zeros => zeros?,
    };
    match zeros.iter().position(|zero| *zero != 0.0) {
        None => Ok(()),
        Some(first) => {
            let name = params[first].1.name();
            let text = format!(
                "the gradient of {name:?} has NaN or infinite elements; no parameter has changed"
            );
            Err(Error::value(text)
                .note("the first step and every hundredth check that; check_finite(n) changes it")
                .help(
                    "require_finite stops at the loss, the device wrapper Checked at the operation",
                ))
        }
    }
}

/// An optimizer chosen while the program runs.
impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn states(&self) -> &ParamStates {
        (**self).states()
    }

    fn states_mut(&mut self) -> &mut ParamStates {
        (**self).states_mut()
    }

    fn state_names(&self) -> &'static [&'static str] {
        (**self).state_names()
    }

    fn is_elementwise(&self) -> bool {
        (**self).is_elementwise()
    }

    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        (**self).update(i, value, gradient)
    }

    fn kernel_update(
        &mut self,
        i: usize,
        value: &Tensor,
        gradient: &Tensor,
    ) -> Result<Option<Update>> {
        (**self).kernel_update(i, value, gradient)
    }
}

impl<O: Optimizer + ?Sized> Stateful for O {
    fn state(&self) -> Result<State> {
        Ok(self.states().state_dict(self.state_names()))
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let names = self.state_names();
        self.states_mut().load_state_dict(names, state)
    }
}

/// The options that all optimizers have, for the `impl` block of each.
macro_rules! common_options {
    () => {
        /// Sets the weight decay.
        pub fn weight_decay(mut self, weight_decay: f64) -> Self {
            self.states.set_weight_decay(weight_decay);
            self
        }

        /// Applies `group` to the parameters for which `chosen` returns true (by name, by shape).
        /// If two groups match, the later one wins.
        pub fn group(mut self, chosen: impl Fn(&Param) -> bool, group: ParamGroup) -> Self {
            self.states.group(chosen, group);
            self
        }

        /// Sets whether to maximize the objective: gradients are negated first.
        pub fn maximize(mut self, maximize: bool) -> Self {
            self.states.maximize = maximize;
            self
        }

        /// Sets whether the store may have trainable parameters without an optimizer. By default
        /// the first step is an error that names them: a layer made after the optimizer would never
        /// be trained.
        pub fn partial(mut self, partial: bool) -> Self {
            self.states.set_partial(partial);
            self
        }

        /// Sets whether parameters that the loss does not depend on are skipped, as PyTorch does.
        /// By default they are an error.
        pub fn skip_missing(mut self, skip_missing: bool) -> Self {
            self.states.set_skip_missing(skip_missing);
            self
        }

        /// Sets the number of steps between two checks of the gradients for NaN and infinities: 1
        /// checks every step, 0 none; the default is 100.
        ///
        /// A check is one more pass over the gradients and waits for the device; a GPU in a
        /// browser, where nothing can wait, is not checked. NaN in a gradient is nearly always NaN
        /// in the next loss too, which [`crate::train::Losses`] reports.
        pub fn check_finite(mut self, every: u64) -> Self {
            self.states.set_finite_every(every);
            self
        }

        /// Sets whether 16-bit parameters have an f32 copy that sums the steps, so that steps too
        /// small for 16 bits are not lost.
        ///
        /// Source: Micikevicius et al. 2017, arXiv:1710.03740.
        pub fn master_weights(mut self, master_weights: bool) -> Self {
            self.states.master_weights = master_weights;
            self
        }
    };
}

/// The methods of [`Optimizer`] that return the field `states`. `elementwise` sets
/// [`Optimizer::is_elementwise`], and takes the update from the method `plan`, which returns it as
/// one kernel.
macro_rules! states_methods {
    (elementwise) => {
        states_methods!();

        fn is_elementwise(&self) -> bool {
            true
        }

        fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
            let update = self.plan(i, value, gradient)?;
            let outputs = Update::run([&update])?.pop().unwrap_or_default();
            self.states.set_outputs(i, outputs)
        }

        fn kernel_update(
            &mut self,
            i: usize,
            value: &Tensor,
            gradient: &Tensor,
        ) -> Result<Option<Update>> {
            self.plan(i, value, gradient).map(Some)
        }
    };
    () => {
        fn states(&self) -> &ParamStates {
            &self.states
        }

        fn states_mut(&mut self) -> &mut ParamStates {
            &mut self.states
        }
    };
}

/// Declares the run-time parameters of an update program as a struct, so that the kernel and the
/// step name them: expressions where the kernel is built, numbers where a step passes them. Both
/// have the order of the declaration.
macro_rules! kernel_params {
    ($name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        struct $name<T> {
            $($(#[$doc])* $field: T,)*
        }

        impl<'b> $name<teeny_core::Expr<'b>> {
            fn declare(b: &'b Builder, dtype: DType) -> Self {
                $name { $($field: b.param(dtype),)* }
            }
        }

        impl $name<f64> {
            fn scalars(self) -> Vec<Scalar> {
                vec![$(Scalar::Float(self.$field),)*]
            }
        }
    };
}

use {common_options, kernel_params, states_methods};
