//! The places where gradients stop: the record for the error "stopped by detach at
//! src/model.rs:41".
//!
//! Every leaf has one of 128 bits, and a node has the mask of the leaves it depends on. An
//! operation without a gradient adds a [`DetachPoint`] with the mask of its operands to its result.
//! Results inherit the detach points of their operands, one per line of code and at most
//! [`MAX_DETACH_POINTS`], so the memory is bounded. Two leaves with the same bit can make a message
//! name an unrelated line; they never change a gradient.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};
use teeny_core::context;

/// The set of leaves a value depends on; leaf `n` of the process is bit `n % 128`.
pub(crate) type Mask = u128;

/// The most detach points of a value. Models detach in a few places; the oldest points are kept.
const MAX_DETACH_POINTS: usize = 16;

/// How a gradient path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The operation has no gradient: `detach`, `no_grad`, positions, integers.
    NotDifferentiable,
    /// The backward function of the operation gave `None` for its input of this number.
    NoGradient(usize),
}

/// One place where a gradient path ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachPoint {
    pub op: &'static str,
    pub location: Option<&'static Location<'static>>,
    pub mask: Mask,
    pub reason: Reason,
}

impl DetachPoint {
    /// `stopped by detach at src/model.rs:41`.
    pub fn describe(&self) -> String {
        let place = self
            .location
            .map(|place| format!(" at {}:{}", place.file(), place.line()))
            .unwrap_or_default();
        match self.reason {
            Reason::NotDifferentiable => format!("stopped by {}{place}", self.op),
            Reason::NoGradient(input) => {
                format!("the backward function of {}{place} gave None for input {input}", self.op)
            }
        }
    }

    /// The help line: how to get a gradient.
    pub fn help(&self) -> &'static str {
        match self.op {
            "no_grad" => {
                "compute it outside of no_grad and of store.evaluate, which record nothing"
            }
            _ => "compute it without that operation, or start backward from another tensor",
        }
    }

    fn same_place(&self, other: &DetachPoint) -> bool {
        let line = |point: &DetachPoint| point.location.map(|l| (l.file(), l.line(), l.column()));
        (self.op, self.reason) == (other.op, other.reason) && line(self) == line(other)
    }
}

/// The detach points of a value. Results share them until an operation adds one.
#[derive(Clone, Debug, Default)]
pub(crate) struct DetachPoints(Option<Arc<[DetachPoint]>>);

impl DetachPoints {
    pub fn iter(&self) -> impl Iterator<Item = &DetachPoint> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// Adds the other's points.
    pub fn merge(&mut self, other: &DetachPoints) {
        let Some(theirs) = &other.0 else { return };
        match &self.0 {
            None => self.0 = Some(theirs.clone()),
            Some(ours) if Arc::ptr_eq(ours, theirs) => {}
            Some(_) => theirs.iter().for_each(|point| self.push(*point)),
        }
    }

    /// Removes the points of one line: a checkpoint's, which runs backward itself.
    pub fn forget(&mut self, line: &'static Location<'static>) {
        let other = |point: &&DetachPoint| {
            point.location.is_none_or(|l| {
                (l.file(), l.line(), l.column()) != (line.file(), line.line(), line.column())
            })
        };
        let rest: Vec<DetachPoint> = self.iter().filter(other).copied().collect();
        self.0 = (!rest.is_empty()).then(|| rest.into());
    }

    /// Adds a point, or merges its mask into the point of the same place.
    pub fn push(&mut self, point: DetachPoint) {
        if point.mask == 0 {
            return;
        }
        let ours = self.0.as_deref().unwrap_or_default();
        let place = ours.iter().position(|c| c.same_place(&point));
        match place {
            Some(i) if ours[i].mask | point.mask == ours[i].mask => return,
            None if ours.len() >= MAX_DETACH_POINTS => return,
            Some(_) | None => {}
        }
        let mut all = ours.to_vec();
        match place {
            Some(i) => all[i].mask |= point.mask,
            None => all.push(point),
        }
        self.0 = Some(all.into());
    }
}

/// The most places in [`MOVES`]: the latest of the whole process.
const MAX_MOVES: usize = 16;

/// Where recorded values were copied to another device. The copy has no history.
static MOVES: Mutex<VecDeque<DetachPoint>> = Mutex::new(VecDeque::new());

/// Records that a value that depends on `mask` is copied from its device by `to`, or by `to_vec` of
/// several elements.
pub(crate) fn record_move(mask: Mask, numel: usize) {
    let Some(context) = context::current() else { return };
    if context.later || !(context.op == "to" || (context.op == "to_vec" && numel > 1)) {
        return;
    }
    let point = DetachPoint {
        op: context.op,
        location: Some(context.location),
        mask,
        reason: Reason::NotDifferentiable,
    };
    let mut all = MOVES.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = all
        .iter()
        .position(|old| old.same_place(&point))
        .and_then(|i| all.remove(i))
        .map_or(0, |old| old.mask);
    all.push_back(DetachPoint { mask: point.mask | mask, ..point });
    if all.len() > MAX_MOVES {
        all.pop_front();
    }
}

/// Where values that depend on `mask` were copied from their device, the latest first.
pub(crate) fn moves_of(mask: Mask) -> Vec<DetachPoint> {
    MOVES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .rev()
        .filter(|point| point.mask & mask != 0)
        .copied()
        .collect()
}
