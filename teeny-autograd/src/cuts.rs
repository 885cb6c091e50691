//! Where gradients were cut off: the memory behind "cut by detach at src/model.rs:41".
//!
//! Every leaf owns one of 128 bits. A node knows the leaves it depends on as a mask; an operation
//! that lets no gradient through leaves a [`Cut`] with the mask of what it cut off. Results inherit
//! the cuts of their operands, at most [`MAX_CUTS`] of them, one per line of code: bounded,
//! whatever the length of the program. A collision of bits can only make a message name one line
//! too many; it never changes a gradient.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};
use teeny_core::context;

/// The set of leaves a value depends on; leaf `n` of the process is bit `n % 128`.
pub(crate) type Mask = u128;

/// The most cuts a value remembers. A model has a handful of places that detach; beyond that the
/// oldest tell enough.
const MAX_CUTS: usize = 16;

/// How a gradient path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The operation lets no gradient through: `detach`, `no_grad`, positions, integers.
    Cut,
    /// The backward function of the operation gave `None` for its input of this number.
    NoGradient(usize),
}

/// One place where a gradient path ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub op: &'static str,
    pub location: Option<&'static Location<'static>>,
    pub mask: Mask,
    pub reason: Reason,
}

impl Cut {
    /// `cut by detach at src/model.rs:41`.
    pub fn describe(&self) -> String {
        let place = self
            .location
            .map(|place| format!(" at {}:{}", place.file(), place.line()))
            .unwrap_or_default();
        match self.reason {
            Reason::Cut => format!("cut by {}{place}", self.op),
            Reason::NoGradient(input) => {
                format!("the backward function of {}{place} gave None for input {input}", self.op)
            }
        }
    }

    fn same_place(&self, other: &Cut) -> bool {
        let line = |cut: &Cut| cut.location.map(|l| (l.file(), l.line(), l.column()));
        (self.op, self.reason) == (other.op, other.reason) && line(self) == line(other)
    }
}

/// The cuts behind a value, shared by everything computed from it without a new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(Option<Arc<[Cut]>>);

impl Cuts {
    pub fn iter(&self) -> impl Iterator<Item = &Cut> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// These and the other's.
    pub fn merge(&mut self, other: &Cuts) {
        let Some(theirs) = &other.0 else { return };
        match &self.0 {
            None => self.0 = Some(theirs.clone()),
            Some(ours) if Arc::ptr_eq(ours, theirs) => {}
            Some(_) => theirs.iter().for_each(|cut| self.push(*cut)),
        }
    }

    /// These without what the given line cut: a checkpoint mends its own.
    pub fn forget(&mut self, line: &'static Location<'static>) {
        let other = |cut: &&Cut| {
            cut.location.is_none_or(|l| {
                (l.file(), l.line(), l.column()) != (line.file(), line.line(), line.column())
            })
        };
        let rest: Vec<Cut> = self.iter().filter(other).copied().collect();
        self.0 = (!rest.is_empty()).then(|| rest.into());
    }

    /// These and one more.
    pub fn push(&mut self, cut: Cut) {
        if cut.mask == 0 {
            return;
        }
        let ours = self.0.as_deref().unwrap_or_default();
        let place = ours.iter().position(|c| c.same_place(&cut));
        match place {
            Some(i) if ours[i].mask | cut.mask == ours[i].mask => return,
            None if ours.len() >= MAX_CUTS => return,
            Some(_) | None => {}
        }
        let mut all = ours.to_vec();
        match place {
            Some(i) => all[i].mask |= cut.mask,
            None => all.push(cut),
        }
        self.0 = Some(all.into());
    }
}

/// The most places that [`left`] remembers, in the whole process: the latest ones.
const MAX_LEFT: usize = 16;

/// Where recorded values were moved to another device. A copy there has no history, and neither has
/// what comes back.
static LEFT: Mutex<VecDeque<Cut>> = Mutex::new(VecDeque::new());

/// Remembers that a value of `mask` leaves its device, if the user asked for that: by `to`, or by
/// `to_vec` of several elements.
pub(crate) fn leaves(mask: Mask, numel: usize) {
    let Some(context) = context::current() else { return };
    if context.later || !(context.op == "to" || (context.op == "to_vec" && numel > 1)) {
        return;
    }
    let cut = Cut { op: context.op, location: Some(context.location), mask, reason: Reason::Cut };
    let mut all = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = all
        .iter()
        .position(|old| old.same_place(&cut))
        .and_then(|i| all.remove(i))
        .map_or(0, |old| old.mask);
    all.push_back(Cut { mask: cut.mask | mask, ..cut });
    if all.len() > MAX_LEFT {
        all.pop_front();
    }
}

/// The places where values that depend on `mask` left their device, the latest first.
pub(crate) fn left(mask: Mask) -> Vec<Cut> {
    LEFT.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .rev()
        .filter(|cut| cut.mask & mask != 0)
        .copied()
        .collect()
}
