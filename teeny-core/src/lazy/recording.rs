//! The recording of a call of a captured function, and the difference of two calls.

use super::device::Lazy;
use super::list::{List, Node, NodeContext};
use super::reads::{Number, Reads};
use super::symbol::Work;
use super::value::Value;
use crate::context::OpContext;
use crate::error::{Error, Result};
use crate::random::{Draws, Source};
use crate::scalar::Scalar;
use std::sync::Arc;

/// The operations that a call recorded.
#[derive(Clone)]
pub(super) struct Recording {
    pub(super) work: Work,
    pub(super) contexts: Vec<NodeContext>,
    pub(super) params: Vec<Scalar>,
    /// The leaves, with their slots.
    pub(super) leaves: Vec<(u32, Leaf)>,
    pub(super) slots: usize,
    pub(super) draws: Draws,
    pub(super) reads: Reads,
}

#[derive(Clone)]
pub(super) enum Leaf {
    /// An input of the function: all that are this tensor.
    Input(Vec<usize>),
    /// A tensor that every call reads.
    Constant(Arc<Value>),
    /// Equal elements that every call uploads.
    Uploaded(Arc<Value>),
    /// A number that each call reads.
    Number(Number),
}

impl Leaf {
    /// The tensor that every call reads, which may be recorded outside of the function.
    pub(super) fn constant(&self) -> Option<Arc<Value>> {
        match self {
            Leaf::Constant(value) => Some(value.clone()),
            Leaf::Input(_) | Leaf::Uploaded(_) | Leaf::Number(_) => None,
        }
    }
}

/// The leaves of a list by slot.
pub(super) fn leaves(list: &List, inputs: &[Arc<Value>], reads: &Reads) -> Vec<(u32, Leaf)> {
    let mut is_leaf = vec![true; list.slots.len()];
    for slot in list.nodes.iter().flat_map(|node| node.outputs.clone()) {
        is_leaf[slot as usize] = false;
    }
    let leaf = |(slot, value): (usize, &Arc<Value>)| {
        let is_same = |&i: &usize| Arc::ptr_eq(&inputs[i], value);
        let found: Vec<usize> = (0..inputs.len()).filter(is_same).collect();
        let leaf = match reads.number(value) {
            Some(number) => Leaf::Number(number.clone()),
            None if !found.is_empty() => Leaf::Input(found),
            None if list.uploads.contains(&(slot as u32)) => Leaf::Uploaded(value.clone()),
            None => Leaf::Constant(value.clone()),
        };
        is_leaf[slot].then_some((slot as u32, leaf))
    };
    list.slots.iter().enumerate().filter_map(leaf).collect()
}

/// An operation and its line.
pub(super) fn place(node_context: &NodeContext) -> String {
    match node_context.context {
        Some(OpContext { op, location, .. }) => {
            format!("{op} at {}:{}", location.file(), location.line())
        }
        None => node_context.name.to_string(),
    }
}

impl Recording {
    /// Whether something changed that the function read beside its inputs.
    pub(super) fn is_stale(&self) -> bool {
        !self.reads.are_current()
    }

    /// Whether two inputs were one tensor.
    pub(super) fn has_equal_inputs(&self) -> bool {
        self.leaves.iter().any(|(_, leaf)| matches!(leaf, Leaf::Input(same) if same.len() > 1))
    }

    /// An error unless `later` has the same numbers and reads the same tensors. Which inputs these
    /// are is known best by both together: two inputs may be one tensor once.
    pub(super) fn same_data(&self, later: &mut Recording, lazy: &Lazy) -> Result<()> {
        for (i, (a, b)) in self.work.nodes.iter().zip(&later.work.nodes).enumerate() {
            for (before, after) in a.params.clone().zip(b.params.clone()) {
                let before = self.params.get(before as usize);
                let after = later.params.get(after as usize);
                if let (Some(before), Some(after)) = (before, after)
                    && before != after
                {
                    return Err(Error::value(format!(
                        "the number {after} of {} was {before} in the call before: a replay would \
                         repeat it",
                        place(&later.contexts[i])
                    ))
                    .help("pass it to the function as a tensor of shape ()"));
                }
            }
        }
        if !self.draws.is_alike(&later.draws) {
            return Err(Error::value(
                "the captured function drew a different number of keys from the generator than in \
                 the call before, or set it to another state",
            )
            .help("draw as often in each call, and seed the generator outside"));
        }
        let sources = self.contexts.iter().zip(&later.contexts).map(|(a, b)| (a.source, b.source));
        let other = |(a, b): (Option<Source>, Option<Source>)| a.is_some() && b.is_some() && a != b;
        if let Some(i) = sources.into_iter().position(other) {
            return Err(Error::value(format!(
                "the key of {} is another one than in the call before, and the generator did not \
                 give it: a replay would repeat it",
                place(&later.contexts[i])
            ))
            .help("draw without a key, as Tensor::rand does: each call then draws other numbers"));
        }
        for (slot, leaf) in &mut later.leaves {
            let Some((_, before)) = self.leaves.iter().find(|(other, _)| other == slot) else {
                continue; // other work: see `difference`
            };
            let agrees = match (before, &mut *leaf) {
                (Leaf::Input(before), Leaf::Input(now)) => {
                    now.retain(|i| before.contains(i));
                    !now.is_empty()
                }
                (Leaf::Constant(a), Leaf::Constant(b)) => Arc::ptr_eq(a, b),
                (Leaf::Uploaded(a), Leaf::Uploaded(b)) => lazy.is_equal(a, b)?,
                (Leaf::Number(a), Leaf::Number(b)) => a.is_same(b),
                _ => false,
            };
            if !agrees {
                let reads = |node: &Node| {
                    node.operands.iter().any(|x| x.slot == *slot) || node.destination == Some(*slot)
                };
                let reader = later.work.nodes.iter().position(reads);
                let by = reader.map_or_else(String::new, |i| {
                    format!(" that {} reads", place(&later.contexts[i]))
                });
                return Err(Error::value(format!(
                    "a tensor{by} is another one than in the call before: a replay would read the \
                     old one"
                ))
                .help("pass it to the function as an input, or make it once, outside"));
            }
        }
        Ok(())
    }
}

/// An error that names the first operation of `later` that differs from `before`, unless the work
/// of `before` equals `work`, the work of `later`.
pub(super) fn difference(before: &Recording, later: &Recording, work: &Work) -> Result<()> {
    let old = &before.work;
    if old == work {
        return Ok(());
    }
    let first = old.nodes.iter().zip(&work.nodes).position(|(a, b)| a != b);
    let first = first.unwrap_or(old.nodes.len().min(work.nodes.len()));
    let node_context = later.contexts.get(first).or(before.contexts.get(first));
    let at = node_context.map_or_else(|| "its results".into(), place);
    Err(Error::value(format!(
        "this call did different work than the call before; the first difference is {at}"
    ))
    .help(
        "make sizes and operations the same in every call, or use Capture::with_symbol for a \
           size that changes by one integer",
    ))
}
