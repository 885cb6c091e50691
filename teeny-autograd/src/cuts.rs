//! Where gradients were cut off: the memory behind "cut by detach at src/model.rs:41".
//!
//! Every leaf owns one of 128 bits. A node knows the leaves it depends on as a mask; an operation that lets no gradient through leaves a [`Cut`] with
//! the mask of what it cut off. Results inherit the cuts of their operands, at most [`MAX_CUTS`] of them, one per line of code: bounded, whatever the
//! length of the program. A collision of bits can only make a message name one line too many; it never changes a gradient.

use std::panic::Location;
use std::sync::Arc;

/// The set of leaves a value depends on; leaf `n` of the process is bit `n % 128`.
pub(crate) type Mask = u128;

/// The most cuts a value remembers. A model has a handful of places that detach; beyond that the oldest tell enough.
const MAX_CUTS: usize = 16;

/// One place where a gradient path ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub op: &'static str,
    pub location: Option<&'static Location<'static>>,
    pub mask: Mask,
}

impl Cut {
    /// `cut by detach at src/model.rs:41`.
    pub fn describe(&self) -> String {
        match self.location {
            Some(place) => format!("cut by {} at {}:{}", self.op, place.file(), place.line()),
            None => format!("cut by {}", self.op),
        }
    }

    fn same_place(&self, other: &Cut) -> bool {
        let line = |cut: &Cut| cut.location.map(|l| (l.file(), l.line(), l.column()));
        self.op == other.op && line(self) == line(other)
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
        let other = |cut: &&Cut| cut.location.is_none_or(|l| (l.file(), l.line(), l.column()) != (line.file(), line.line(), line.column()));
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
