//! The state of every optimizer: its parameters, their groups, and the state tensors of each.
//!
//! ```text
//! ParamStates ── lr, weight_decay     the optimizer's defaults
//!   └─ per parameter: ParamGroup      overrides of the defaults
//!                     State           tensors (Optimizer::state_names) and a step count
//!                     Master          the f32 copy of a 16-bit parameter (master_weights)
//! ```
//!
//! The update rules are in the other files of this folder.

use crate::options::setters;
use crate::store::Param;
use crate::track;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;
use teeny_core::{DType, Error, Kernel, Result, Scalar, Tensor};
use teeny_formats::{KeyMismatch, State};

/// The update of one parameter as one kernel: its first output is the next value, the others are
/// the new state.
#[derive(Clone, Debug)]
pub struct Update {
    /// The scalar program; the same for all parameters of one type.
    pub kernel: Arc<Kernel>,
    /// Its inputs: the value, the gradient and the state.
    pub inputs: Vec<Tensor>,
    /// Values of its run-time parameters.
    pub params: Vec<Scalar>,
}

impl Update {
    /// The outputs of updates that have one kernel.
    ///
    /// # Errors
    /// If [`Kernel::run_many`] fails.
    pub(super) fn run<'a>(
        updates: impl IntoIterator<Item = &'a Update>,
    ) -> Result<Vec<Vec<Tensor>>> {
        let updates: Vec<&Update> = updates.into_iter().collect();
        let inputs: Vec<Vec<&Tensor>> = updates.iter().map(|u| u.inputs.iter().collect()).collect();
        let launches = updates.iter().zip(&inputs).map(|(u, inputs)| (&inputs[..], &u.params[..]));
        match updates.first() {
            Some(first) => first.kernel.run_many(&launches.collect::<Vec<_>>()),
            None => Ok(Vec::new()),
        }
    }
}

/// Options that some parameters of an optimizer have in place of the optimizer's own.
///
/// # Example
/// nanoGPT's rule: only parameters with two or more axes decay.
/// ```
/// # use teeny_nn::{Store, optim::{AdamW, ParamGroup}};
/// # fn demo(store: &Store) -> AdamW {
/// let no_decay = ParamGroup::new().weight_decay(0.0);
/// AdamW::new(store.trainable(), 6e-4).weight_decay(0.1).group(|p| p.value().ndim() < 2, no_decay)
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ParamGroup {
    lr_scale: Option<f64>,
    weight_decay: Option<f64>,
}

impl ParamGroup {
    /// A group without overrides.
    pub fn new() -> ParamGroup {
        ParamGroup::default()
    }

    setters! {
        /// Sets the factor of the optimizer's learning rate, so that a schedule moves all groups
        /// together.
        lr_scale(scale: f64) => lr_scale = Some(scale);
        /// Sets the weight decay.
        weight_decay(weight_decay: f64) => weight_decay = Some(weight_decay);
    }
}

/// The parameters of an optimizer, their groups and their state tensors. A user's own optimizer
/// holds one.
pub struct ParamStates {
    pub(super) lr: f64,
    pub(super) weight_decay: f64,
    pub(super) maximize: bool,
    pub(super) master_weights: bool,
    /// Whether the store may have trainable parameters without an optimizer.
    pub(super) partial: bool,
    /// Whether parameters without a gradient are skipped.
    pub(super) skip_missing: bool,
    /// Steps between two checks of the gradients for NaN and infinities, 0 for no checks.
    pub(super) finite_every: u64,
    /// Steps since the optimizer was made.
    pub(super) taken: u64,
    /// The stores of the parameters, each with its version at the last check.
    seen: Vec<(usize, u64)>,
    params: Vec<Param>,
    entries: Vec<ParamEntry>,
    kernels: Vec<(Variant, Arc<Kernel>)>,
    /// Hyper-parameters out of their ranges, each with the text of the error of a step.
    invalid: Vec<(&'static str, String)>,
}

/// Gradients are checked in the first step and in every hundredth. A check costs about one more
/// pass over the gradients and waits for the device; a hundredth of that is not noticeable.
const FINITE_EVERY: u64 = 100;

/// Group and state of one parameter. A clone shares the tensors, which are immutable.
#[derive(Clone, Default)]
pub(super) struct ParamEntry {
    group: ParamGroup,
    /// None before the first step.
    state: Option<ParamState>,
    master: Option<Master>,
}

#[derive(Clone)]
struct ParamState {
    tensors: Vec<Tensor>,
    steps: u64,
}

/// The f32 value of a 16-bit parameter, and the rounded value that the parameter then had: if the
/// parameter has another value now, the copy is stale.
#[derive(Clone)]
struct Master {
    value: Tensor,
    rounded: Tensor,
}

/// Key of an update program: the types of parameter and gradient, and a number that tells the
/// programs of one optimizer apart.
type Variant = (DType, DType, u32);

impl ParamStates {
    /// The states of `params` before the first step.
    pub fn new(params: Vec<Param>, lr: f64) -> ParamStates {
        let entries = params.iter().map(|_| ParamEntry::default()).collect();
        params.iter().for_each(Param::claim);
        let mut states = ParamStates {
            lr,
            weight_decay: 0.0,
            maximize: false,
            master_weights: false,
            partial: false,
            skip_missing: false,
            finite_every: FINITE_EVERY,
            taken: 0,
            seen: Vec::new(),
            params,
            entries,
            kernels: Vec::new(),
            invalid: Vec::new(),
        };
        states.set_lr(lr);
        states
    }

    /// Sets the learning rate.
    pub(super) fn set_lr(&mut self, lr: f64) {
        self.lr = self.checked("the learning rate", lr, 0.0..);
    }

    /// The value of the hyper-parameter `name`. If it is not finite or not within `range`, the next
    /// step is an error, until a call with the same name sets another value.
    pub(super) fn checked(
        &mut self,
        name: &'static str,
        value: f64,
        range: impl RangeBounds<f64> + Debug,
    ) -> f64 {
        self.invalid.retain(|(own, _)| *own != name);
        self.invalid.extend(out_of_range(name, value, range).map(|text| (name, text)));
        value
    }

    /// The parameters, in a fixed order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Sets the weight decay of parameters whose group sets none.
    pub fn set_weight_decay(&mut self, weight_decay: f64) {
        self.weight_decay = self.checked("weight_decay", weight_decay, 0.0..);
    }

    /// Sets whether the store may have trainable parameters without an optimizer.
    pub fn set_partial(&mut self, partial: bool) {
        self.partial = partial;
    }

    /// Sets whether a parameter that the loss does not depend on is skipped.
    pub fn set_skip_missing(&mut self, skip_missing: bool) {
        self.skip_missing = skip_missing;
    }

    /// Sets the number of steps between two checks of the gradients for NaN and infinities: 1
    /// checks every step, 0 none.
    pub fn set_finite_every(&mut self, steps: u64) {
        self.finite_every = steps;
    }

    /// Applies `group` to the parameters for which `chosen` returns true. If two groups match, the
    /// later one wins.
    pub fn group(&mut self, chosen: impl Fn(&Param) -> bool, group: ParamGroup) {
        let numbers = [("lr_scale", group.lr_scale), ("weight_decay", group.weight_decay)];
        for (name, number) in numbers {
            let text = number.and_then(|number| out_of_range(name, number, 0.0..));
            self.invalid.extend(text.map(|text| ("a group", format!("{text}, also in a group"))));
        }
        let chosen = self.entries.iter_mut().zip(&self.params).filter(|(_, param)| chosen(param));
        for (entry, _) in chosen {
            entry.group.lr_scale = group.lr_scale.or(entry.group.lr_scale);
            entry.group.weight_decay = group.weight_decay.or(entry.group.weight_decay);
        }
    }

    /// The learning rate of parameter `i`.
    pub fn lr_of(&self, i: usize) -> f64 {
        self.lr * self.entries[i].group.lr_scale.unwrap_or(1.0)
    }

    /// The weight decay of parameter `i`.
    pub fn weight_decay_of(&self, i: usize) -> f64 {
        self.entries[i].group.weight_decay.unwrap_or(self.weight_decay)
    }

    /// The state tensors of parameter `i`, whose value is `value`, and the number of its steps:
    /// zeros before the first step.
    ///
    /// State is f32 for 16-bit parameters: it sums changes that are too small for 16 bits.
    ///
    /// # Errors
    /// If the state has another number of tensors than `N`, or the zeros cannot be allocated.
    pub fn state<const N: usize>(&self, i: usize, value: &Tensor) -> Result<([Tensor; N], u64)> {
        match &self.entries[i].state {
            Some(state) => Ok((outputs(state.tensors.clone())?, state.steps)),
            None => {
                let zero = Tensor::zeros(*value.shape(), value.dtype().compute(), value)?;
                Ok((std::array::from_fn(|_| zero.clone()), 0))
            }
        }
    }

    /// Sets the state tensors of parameter `i` and counts one more step.
    pub fn set_state<const N: usize>(&mut self, i: usize, tensors: [Tensor; N]) {
        let state = &mut self.entries[i].state;
        let steps = state.as_ref().map_or(0, |s| s.steps) + 1;
        *state = Some(ParamState { tensors: tensors.into(), steps });
    }

    /// The state tensors of parameter `i`, whose value is `value`, as many as it has: `count` zeros
    /// before the first step. Also the number of its steps.
    pub(super) fn tensors(
        &self,
        i: usize,
        value: &Tensor,
        count: usize,
    ) -> Result<(Vec<Tensor>, u64)> {
        match &self.entries[i].state {
            Some(state) if state.tensors.len() == count => Ok((state.tensors.clone(), state.steps)),
            Some(state) => Err(Error::internal(format!(
                "the state has {} tensors instead of {count}",
                state.tensors.len()
            ))),
            None if count == 0 => Ok((Vec::new(), 0)),
            None => {
                let zero = Tensor::zeros(*value.shape(), value.dtype().compute(), value)?;
                Ok((vec![zero; count], 0))
            }
        }
    }

    /// Takes the outputs of an [`Update`] of parameter `i`: the others are its state, the first is
    /// its next value. Counts one more step.
    pub(super) fn set_outputs(&mut self, i: usize, mut outputs: Vec<Tensor>) -> Result<Tensor> {
        if outputs.is_empty() {
            return Err(Error::internal("an update without a value"));
        }
        let tensors = outputs.split_off(1);
        let state = &mut self.entries[i].state;
        let steps = state.as_ref().map_or(0, |s| s.steps) + 1;
        *state = Some(ParamState { tensors, steps });
        Ok(outputs.remove(0))
    }

    /// The update program for these types and this variant of the optimizer; built once, then
    /// cached.
    ///
    /// # Errors
    /// The error of `build`.
    pub fn kernel(
        &mut self,
        value: &Tensor,
        gradient: &Tensor,
        variant: u32,
        build: impl FnOnce() -> Result<Kernel>,
    ) -> Result<Arc<Kernel>> {
        let variant = (value.dtype(), gradient.dtype(), variant);
        if let Some((_, kernel)) = self.kernels.iter().find(|(v, _)| *v == variant) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(build()?);
        self.kernels.push((variant, kernel.clone()));
        Ok(kernel)
    }

    /// The untracked value that an update of parameter `i` starts from: the parameter's value or
    /// its f32 copy.
    pub(super) fn value(&self, i: usize) -> Result<Tensor> {
        let value = track::detached(&self.params[i].value())?;
        if !self.master_weights || !value.dtype().is_half() {
            return Ok(value);
        }
        match &self.entries[i].master {
            Some(master) if Arc::ptr_eq(master.rounded.storage(), value.storage()) => {
                Ok(master.value.clone())
            }
            _ => value.cast(DType::F32),
        }
    }

    /// The tensor that replaces the value of parameter `i` at the end of the step; `value` is the
    /// updated value.
    pub(super) fn prepare(&mut self, i: usize, value: Tensor) -> Result<Tensor> {
        let next = self.params[i].prepare(&value)?;
        if self.master_weights && value.dtype() != next.dtype() {
            self.entries[i].master = Some(Master { value, rounded: track::detached(&next)? });
        }
        Ok(next)
    }

    /// Group and state of parameter `i`, for [`ParamStates::restore`].
    pub(super) fn entry(&self, i: usize) -> ParamEntry {
        self.entries[i].clone()
    }

    /// Reverts parameter `i` to `entry` after a step that failed.
    pub(super) fn restore(&mut self, i: usize, entry: ParamEntry) {
        self.entries[i] = entry;
    }

    /// Returns an error if a hyper-parameter is out of its range, a step would change nothing, or a
    /// store has trainable parameters without any optimizer.
    ///
    /// The stores are searched in the first step and after they changed; otherwise the check is
    /// one comparison.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some((_, text)) = self.invalid.first() {
            return Err(Error::value(text.clone()).note("no parameter has changed").help(
                "a schedule or the optimizer's methods have set it, such as set_lr or weight_decay",
            ));
        }
        const REBUILD: &str =
            "make the optimizer after the last layer: Adam::new(store.trainable(), lr)";
        if self.params.is_empty() {
            return Err(Error::value("the optimizer has no parameters, so a step changes nothing")
                .help(REBUILD));
        }
        if self.params.iter().all(|p| !p.is_trainable()) {
            let text = format!(
                "all {} parameters of the optimizer are frozen, so a step changes nothing",
                self.params.len()
            );
            return Err(
                Error::value(text).help("param.set_trainable(true)? makes one trainable again")
            );
        }
        if self.partial {
            return Ok(());
        }
        let mut seen: Vec<(usize, u64)> = Vec::new();
        for param in &self.params {
            let Some(store) = param.store() else { continue };
            if seen.iter().any(|(id, _)| *id == store.id()) {
                continue;
            }
            let now = (store.id(), store.changes());
            if !self.seen.contains(&now) {
                let names = store.unclaimed();
                if !names.is_empty() {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let text = format!(
                        "the store has trainable parameters that no optimizer has: {}",
                        teeny_formats::names::listed(&names)
                    );
                    return Err(Error::value(text)
                        .note("no step changes them; are their layers newer than the optimizer?")
                        .help(format!(
                            "{REBUILD}; or freeze them with param.set_trainable(false)?, \
                             or call .partial(true) on the optimizer"
                        )));
                }
            }
            seen.push(now);
        }
        self.seen = seen;
        Ok(())
    }

    /// Learning rate, step counts and state tensors; tensor keys are `parameter.state_name`.
    pub(super) fn state_dict(&self, state_names: &[&str]) -> State {
        let mut dict = State::default();
        dict.set("lr", self.lr);
        for (param, entry) in self.params.iter().zip(&self.entries) {
            let name = param.name();
            if let Some(state) = &entry.state {
                dict.set(&format!("{name}.steps"), state.steps);
                dict.tensors.extend(
                    state_names
                        .iter()
                        .zip(&state.tensors)
                        .map(|(state_name, t)| (format!("{name}.{state_name}"), t.clone())),
                );
            }
            if let Some(master) = &entry.master {
                dict.tensors.insert(format!("{name}.master"), master.value.clone());
            }
        }
        dict
    }

    /// Loads the result of [`ParamStates::state_dict`]: all of it, or nothing after an error.
    pub(super) fn load_state_dict(&mut self, state_names: &[&str], dict: &State) -> Result<()> {
        let lr = dict.get("lr")?;
        if let Some(text) = out_of_range("the saved learning rate", lr, 0.0..) {
            return Err(Error::value(text).help("a file with such a rate is damaged"));
        }
        let mut mismatch = KeyMismatch::default();
        let mut unexpected: Vec<&String> = dict.tensors.keys().collect();
        let mut entries = Vec::with_capacity(self.entries.len());
        for (param, entry) in self.params.iter().zip(&self.entries) {
            let value = track::detached(&param.value())?;
            let mut find = |state_name: &str, required: bool| -> Result<Option<Tensor>> {
                let key = format!("{}.{state_name}", param.name());
                unexpected.retain(|k| **k != key);
                let Some(found) = dict.tensors.get(&key) else {
                    if required {
                        mismatch.missing(&key, value.shape());
                    }
                    return Ok(None);
                };
                if found.shape() != value.shape() {
                    mismatch.shape(&key, &found.shape()[..], value.shape());
                    return Ok(None);
                }
                let found = track::detached(found)?.cast(value.dtype().compute())?;
                found.to(value.device()).map(Some)
            };
            let state = match dict.find(&format!("{}.steps", param.name()))? {
                Some(steps) => {
                    let tensors = state_names
                        .iter()
                        .filter_map(|state_name| find(state_name, true).transpose())
                        .collect::<Result<Vec<_>>>()?;
                    Some(ParamState { tensors, steps })
                }
                None => None,
            };
            // without master weights a saved copy stays an unexpected key: to drop it would make
            // the resumed run another run
            let master = if self.master_weights { find("master", false)? } else { None };
            let master = master.map(|copy| Master { value: copy, rounded: value.clone() });
            entries.push(ParamEntry { group: entry.group, state, master });
        }
        unexpected.into_iter().for_each(|key| mismatch.unexpected(key));
        mismatch.check("the optimizer")?;
        self.set_lr(lr);
        self.entries = entries;
        Ok(())
    }
}

/// The text of an error, if the hyper-parameter `name` is not finite or not within `range`.
pub(crate) fn out_of_range(
    name: &str,
    value: f64,
    range: impl RangeBounds<f64> + Debug,
) -> Option<String> {
    let valid = value.is_finite() && range.contains(&value);
    (!valid).then(|| format!("{name} is {value}, but must be a finite number within {range:?}"))
}

/// The outputs of a kernel as an array.
pub(super) fn outputs<const N: usize>(tensors: Vec<Tensor>) -> Result<[Tensor; N]> {
    tensors.try_into().map_err(|t: Vec<Tensor>| {
        Error::internal(format!("a kernel has {} outputs instead of {N}", t.len()))
    })
}
