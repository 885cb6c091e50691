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

    /// Learns at this multiple of the optimizer's rate, so that a schedule moves all groups together.
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

/// The parameters of an optimizer with everything that is kept for them. An optimizer of your own holds one.
pub struct Ledger {
    pub(super) lr: f64,
    pub(super) weight_decay: f64,
    pub(super) maximize: bool,
    pub(super) master_weights: bool,
    params: Vec<Param>,
    rows: Vec<Row>,
    kernels: Vec<(Variant, Arc<Kernel>)>,
}

/// What is kept of one parameter.
#[derive(Default)]
struct Row {
    group: Group,
    memory: Option<Memory>,
    master: Option<Master>,
}

struct Memory {
    tensors: Vec<Tensor>,
    steps: u64,
}

/// The f32 value of a 16-bit parameter, and the rounded value it stands for: if the parameter is another by now, the copy is stale.
struct Master {
    value: Tensor,
    rounded: Tensor,
}

/// Which update program: the types of parameter and gradient, and what distinguishes programs of one optimizer.
type Variant = (DType, DType, u32);

impl Ledger {
    /// A ledger of parameters of which nothing is remembered yet.
    pub fn new(params: Vec<Param>, lr: f64) -> Ledger {
        let rows = params.iter().map(|_| Row::default()).collect();
        Ledger { lr, weight_decay: 0.0, maximize: false, master_weights: false, params, rows, kernels: Vec::new() }
    }

    /// The parameters, in a fixed order.
    pub fn params(&self) -> &[Param] {
        &self.params
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

    /// What is remembered of parameter `i`, whose value is `value`, and after how many steps: zeros after none.
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

    /// The update program for these types and this variant of the optimizer, built when first needed.
    ///
    /// # Errors
    /// The error of `build`.
    pub fn kernel(&mut self, value: &Tensor, gradient: &Tensor, variant: u32, build: impl FnOnce() -> Result<Kernel>) -> Result<Arc<Kernel>> {
        let variant = (value.dtype(), gradient.dtype(), variant);
        if let Some((_, kernel)) = self.kernels.iter().find(|(v, _)| *v == variant) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(build()?);
        self.kernels.push((variant, kernel.clone()));
        Ok(kernel)
    }

    /// The value that an update of parameter `i` starts from, untracked: the parameter's, or its f32 copy.
    pub(super) fn value(&self, i: usize) -> Result<Tensor> {
        let value = track::below(&self.params[i].value())?;
        if !self.master_weights || !value.dtype().is_half() {
            return Ok(value);
        }
        match &self.rows[i].master {
            Some(master) if Arc::ptr_eq(master.rounded.storage(), value.storage()) => Ok(master.value.clone()),
            _ => value.cast(DType::F32),
        }
    }

    /// Puts the updated value in the place of parameter `i`.
    pub(super) fn put(&mut self, i: usize, value: Tensor) -> Result<()> {
        self.params[i].set(&value)?;
        if self.master_weights && value.dtype() != self.params[i].value().dtype() {
            self.rows[i].master = Some(Master { value, rounded: track::below(&self.params[i].value())? });
        }
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
                state.tensors.extend(slots.iter().zip(&memory.tensors).map(|(slot, t)| (format!("{name}.{slot}"), t.clone())));
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
                    let tensors = slots.iter().filter_map(|slot| find(slot, true).transpose()).collect::<Result<Vec<_>>>()?;
                    Some(Memory { tensors, steps })
                }
                None => None,
            };
            let master = find("master", false)?.map(|copy| Master { value: copy, rounded: value.clone() });
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
    tensors.try_into().map_err(|t: Vec<Tensor>| Error::internal(format!("{N} tensors were expected, there are {}", t.len())))
}
