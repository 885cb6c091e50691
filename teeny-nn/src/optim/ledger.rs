//! What every optimizer keeps: its parameters, how each is treated, and what is remembered of each.
//!
//! ```text
//! Ledger ── lr, weight_decay               the optimizer's own
//!   └─ per parameter: Group                what differs for it
//!                     Memory               the tensors of Optimizer::slots and a count of steps; none before the first
//!                     master               an f32 copy of a 16-bit parameter, if asked for
//! ```
//!
//! Rules (how a gradient becomes a step) are in the other files of this folder.

use crate::state::{Misfits, State};
use crate::store::Param;
use crate::track;
use std::sync::Arc;
use teeny_core::{DType, Error, Kernel, Result, Tensor};

/// What differs for some parameters of an optimizer.
///
/// # Example
/// nanoGPT's rule: only parameters of two or more axes decay.
/// ```
/// # use teeny_nn::{Store, optim::{Adam, Group}};
/// # fn demo(store: &Store) -> Adam {
/// Adam::decoupled(store.trainable(), 6e-4).weight_decay(0.1).group(|p| p.value().ndim() < 2, Group::new().weight_decay(0.0))
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    lr_scale: Option<f64>,
    weight_decay: Option<f64>,
}

impl Group {
    /// A group that differs in nothing yet.
    pub fn new() -> Group {
        Group::default()
    }

    /// Learns at this multiple of the optimizer's rate, so that a schedule moves all groups
    /// together.
    pub fn lr_scale(mut self, scale: f64) -> Group {
        self.lr_scale = Some(scale);
        self
    }

    /// Decays by this instead of the optimizer's weight decay.
    pub fn weight_decay(mut self, weight_decay: f64) -> Group {
        self.weight_decay = Some(weight_decay);
        self
    }
}

/// The parameters of an optimizer with everything that is kept for them. An optimizer of your own
/// holds one.
pub struct Ledger {
    pub(super) lr: f64,
    pub(super) weight_decay: f64,
    pub(super) maximize: bool,
    pub(super) master_weights: bool,
    /// Whether parameters of the store that no optimizer has are left as they are.
    pub(super) partial: bool,
    /// Whether parameters without a gradient are left as they are.
    pub(super) skip_missing: bool,
    /// How often gradients are looked through for NaN and infinities: every so many steps, 0 for
    /// never.
    pub(super) finite_every: u64,
    /// Steps since the optimizer was made.
    pub(super) taken: u64,
    /// The stores of the parameters, and how they were when they were last looked at.
    seen: Vec<(usize, u64)>,
    params: Vec<Param>,
    rows: Vec<Row>,
    kernels: Vec<(Variant, Arc<Kernel>)>,
}

/// Gradients are looked through in the first step and then in every hundredth: a hundredth of the
/// cost, which is about that of one more pass over the gradients, and of a wait for a device that
/// works ahead.
const FINITE_EVERY: u64 = 100;

/// What is kept of one parameter. A copy shares the tensors, which never change.
#[derive(Clone, Default)]
pub(super) struct Row {
    group: Group,
    memory: Option<Memory>,
    master: Option<Master>,
}

#[derive(Clone)]
struct Memory {
    tensors: Vec<Tensor>,
    steps: u64,
}

/// The f32 value of a 16-bit parameter, and the rounded value it stands for: if the parameter is
/// another by now, the copy is stale.
#[derive(Clone)]
struct Master {
    value: Tensor,
    rounded: Tensor,
}

/// Which update program: the types of parameter and gradient, and what distinguishes programs of
/// one optimizer.
type Variant = (DType, DType, u32);

impl Ledger {
    /// A ledger of parameters of which nothing is remembered yet.
    pub fn new(params: Vec<Param>, lr: f64) -> Ledger {
        let rows = params.iter().map(|_| Row::default()).collect();
        params.iter().for_each(Param::claim);
        Ledger {
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
            rows,
            kernels: Vec::new(),
        }
    }

    /// The parameters, in a fixed order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Sets the weight decay of parameters whose group has none of its own.
    pub fn set_weight_decay(&mut self, weight_decay: f64) {
        self.weight_decay = weight_decay;
    }

    /// Sets whether the store may have trainable parameters that no optimizer was made with.
    pub fn set_partial(&mut self, partial: bool) {
        self.partial = partial;
    }

    /// Sets whether a parameter that the loss does not depend on is left as it is.
    pub fn set_skip_missing(&mut self, skip_missing: bool) {
        self.skip_missing = skip_missing;
    }

    /// Sets in how many steps gradients are looked through for NaN and infinities once: 1 for every
    /// step, 0 for never.
    pub fn set_finite_every(&mut self, steps: u64) {
        self.finite_every = steps;
    }

    /// Treats the parameters that `chosen` picks as `group` says; what a later group says counts.
    pub fn group(&mut self, chosen: impl Fn(&Param) -> bool, group: Group) {
        for (row, _) in self.rows.iter_mut().zip(&self.params).filter(|(_, param)| chosen(param)) {
            row.group.lr_scale = group.lr_scale.or(row.group.lr_scale);
            row.group.weight_decay = group.weight_decay.or(row.group.weight_decay);
        }
    }

    /// The learning rate of parameter `i`.
    pub fn lr_of(&self, i: usize) -> f64 {
        self.lr * self.rows[i].group.lr_scale.unwrap_or(1.0)
    }

    /// The weight decay of parameter `i`.
    pub fn weight_decay_of(&self, i: usize) -> f64 {
        self.rows[i].group.weight_decay.unwrap_or(self.weight_decay)
    }

    /// What is remembered of parameter `i`, whose value is `value`, and after how many steps: zeros
    /// after none.
    ///
    /// State is kept in f32 for 16-bit parameters, whose small changes it must not lose.
    ///
    /// # Errors
    /// If another number of tensors than `N` is remembered, or zeros cannot be made.
    pub fn recall<const N: usize>(&self, i: usize, value: &Tensor) -> Result<([Tensor; N], u64)> {
        match &self.rows[i].memory {
            Some(memory) => Ok((outputs(memory.tensors.clone())?, memory.steps)),
            None => {
                let zero = Tensor::zeros(*value.shape(), value.dtype().compute(), value)?;
                Ok((std::array::from_fn(|_| zero.clone()), 0))
            }
        }
    }

    /// Remembers `tensors` of parameter `i`, and that one more step was taken.
    pub fn remember<const N: usize>(&mut self, i: usize, tensors: [Tensor; N]) {
        let memory = &mut self.rows[i].memory;
        let steps = memory.as_ref().map_or(0, |m| m.steps) + 1;
        *memory = Some(Memory { tensors: tensors.into(), steps });
    }

    /// The update program for these types and this variant of the optimizer, built when first
    /// needed.
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

    /// The value that an update of parameter `i` starts from, untracked: the parameter's, or its
    /// f32 copy.
    pub(super) fn value(&self, i: usize) -> Result<Tensor> {
        let value = track::below(&self.params[i].value())?;
        if !self.master_weights || !value.dtype().is_half() {
            return Ok(value);
        }
        match &self.rows[i].master {
            Some(master) if Arc::ptr_eq(master.rounded.storage(), value.storage()) => {
                Ok(master.value.clone())
            }
            _ => value.cast(DType::F32),
        }
    }

    /// What takes the place of parameter `i`, whose updated value is `value`, once all parameters
    /// of the step have one.
    pub(super) fn prepare(&mut self, i: usize, value: Tensor) -> Result<Tensor> {
        let next = self.params[i].prepare(&value)?;
        if self.master_weights && value.dtype() != next.dtype() {
            self.rows[i].master = Some(Master { value, rounded: track::below(&next)? });
        }
        Ok(next)
    }

    /// What is kept of parameter `i`, to be put back by [`Ledger::restore`].
    pub(super) fn row(&self, i: usize) -> Row {
        self.rows[i].clone()
    }

    /// Undoes what an update that is not to count has changed.
    pub(super) fn restore(&mut self, i: usize, row: Row) {
        self.rows[i] = row;
    }

    /// An error if this optimizer would train nothing, or leave out parameters of a store that
    /// nobody else trains either.
    ///
    /// Stores are looked through at the first step and whenever they have changed: later it is one
    /// comparison.
    pub(super) fn check(&mut self) -> Result<()> {
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
                        crate::state::listed(&names)
                    );
                    return Err(Error::value(text)
                        .note("they would stay what they are: were their layers made after the optimizer?")
                        .help(format!("{REBUILD}; or param.set_trainable(false)? for those, or .partial(true) on the optimizer")));
                }
            }
            seen.push(now);
        }
        self.seen = seen;
        Ok(())
    }

    /// Learning rate, counts of steps, and the remembered tensors as `name.slot`.
    pub(super) fn state(&self, slots: &[&str]) -> State {
        let mut state = State::default();
        state.set("lr", self.lr);
        for (param, row) in self.params.iter().zip(&self.rows) {
            let name = param.name();
            if let Some(memory) = &row.memory {
                state.set(&format!("{name}.steps"), memory.steps);
                state.tensors.extend(
                    slots
                        .iter()
                        .zip(&memory.tensors)
                        .map(|(slot, t)| (format!("{name}.{slot}"), t.clone())),
                );
            }
            if let Some(master) = &row.master {
                state.tensors.insert(format!("{name}.master"), master.value.clone());
            }
        }
        state
    }

    /// Takes over what [`Ledger::state`] gave, all of it or nothing.
    pub(super) fn set_state(&mut self, slots: &[&str], state: &State) -> Result<()> {
        let lr = state.get("lr")?;
        let mut misfits = Misfits::default();
        let mut unknown: Vec<&String> = state.tensors.keys().collect();
        let mut rows = Vec::with_capacity(self.rows.len());
        for (param, row) in self.params.iter().zip(&self.rows) {
            let value = track::below(&param.value())?;
            let mut find = |slot: &str, needed: bool| -> Result<Option<Tensor>> {
                let name = format!("{}.{slot}", param.name());
                unknown.retain(|n| **n != name);
                let Some(found) = state.tensors.get(&name) else {
                    if needed {
                        misfits.missing(&name, value.shape());
                    }
                    return Ok(None);
                };
                if found.shape() != value.shape() {
                    misfits.misshapen(&name, &found.shape()[..], value.shape());
                    return Ok(None);
                }
                track::below(found)?.cast(value.dtype().compute())?.to(value.device()).map(Some)
            };
            let memory = match state.find(&format!("{}.steps", param.name()))? {
                Some(steps) => {
                    let tensors = slots
                        .iter()
                        .filter_map(|slot| find(slot, true).transpose())
                        .collect::<Result<Vec<_>>>()?;
                    Some(Memory { tensors, steps })
                }
                None => None,
            };
            // where none are kept, a copy is unknown and reported: going on without it would be
            // another run
            let master = if self.master_weights { find("master", false)? } else { None };
            let master = master.map(|copy| Master { value: copy, rounded: value.clone() });
            rows.push(Row { group: row.group, memory, master });
        }
        unknown.into_iter().for_each(|name| misfits.unknown(name));
        misfits.check("the optimizer")?;
        (self.lr, self.rows) = (lr, rows);
        Ok(())
    }
}

/// The outputs of a kernel as an array.
pub(super) fn outputs<const N: usize>(tensors: Vec<Tensor>) -> Result<[Tensor; N]> {
    tensors.try_into().map_err(|t: Vec<Tensor>| {
        Error::internal(format!("{N} tensors were expected, there are {}", t.len()))
    })
}
