//! Recording: deciding whether an operation becomes a node, and making it one.

use crate::cuts::{Cut, Cuts, Mask, Reason};
use crate::mode;
use crate::node::{Backward, Edge, Handle, Node, Value, Values};
use crate::storage::{Tracked, tracked};
use std::sync::Arc;
use teeny_core::{Layout, Result, StorageRef, Tensor, context};

/// What the operands of an operation bring along.
pub(crate) struct Operands {
    /// The leaves they depend on.
    pub mask: Mask,
    /// The cuts behind them.
    pub cuts: Cuts,
    /// True if the operation has to be recorded.
    pub recording: bool,
}

impl Operands {
    /// Looks at the operands; under `no_grad` leaves a cut where something would have been
    /// recorded.
    pub fn of(inputs: &[&Tensor]) -> Result<Operands> {
        Operands::of_with(inputs, None, &Cuts::default())
    }

    /// [`Operands::of`] with one more operand, given by its parts.
    pub fn of_with(inputs: &[&Tensor], handle: Option<&Handle>, cuts: &Cuts) -> Result<Operands> {
        let mut out = Operands {
            mask: handle.map_or(0, |h| h.node.mask),
            cuts: cuts.clone(),
            recording: handle.is_some(),
        };
        for x in inputs {
            let storage = tracked(x)?;
            out.cuts.merge(&storage.cuts);
            if let Some(handle) = &storage.handle {
                out.mask |= handle.node.mask;
                out.recording = true;
            }
        }
        if let (true, Some(off)) = (out.recording, mode::off()) {
            out.recording = false;
            inputs
                .iter()
                .filter_map(|x| tracked(x).ok()?.handle.as_ref())
                .chain(handle)
                .for_each(mode::seen);
            out.cuts.push(Cut {
                op: off.op,
                location: Some(off.location),
                mask: out.mask,
                reason: Reason::Cut,
            });
        }
        Ok(out)
    }

    /// The storage of a recorded result, the only one of its operation.
    pub fn store(self, value: Tensor, edges: Vec<Option<Edge>>, backward: Backward) -> StorageRef {
        let values = Values::One([Value { shape: *value.shape(), dtype: value.dtype() }]);
        let node = Arc::new(Node::op(backward, values, edges, self.mask, context::current()));
        Tracked::storage(value, Some(Handle { node, output: 0 }), self.cuts)
    }

    /// The storage of a result that is not recorded.
    fn untracked(self, value: Tensor) -> StorageRef {
        Tracked::storage(value, None, self.cuts)
    }

    /// The storage of a result no gradient passes through, whatever the operands.
    pub fn cut(mut self, value: Tensor) -> StorageRef {
        if self.recording {
            self.cuts.push(here(self.mask));
        }
        Tracked::storage(value, None, self.cuts)
    }
}

/// A cut by the operation in progress.
pub(crate) fn here(mask: Mask) -> Cut {
    let context = context::current();
    Cut {
        op: context.map_or("an operation", |c| c.op),
        location: context.map(|c| c.location),
        mask,
        reason: Reason::Cut,
    }
}

/// The edges of a node: which values it read, and how it saw them.
pub(crate) fn edges(inputs: &[&Tensor]) -> Result<Vec<Option<Edge>>> {
    let mut edges = Vec::with_capacity(inputs.len());
    for x in inputs {
        edges.push(tracked(x)?.handle.clone().map(|from| {
            let whole = *x.layout() == Layout::contiguous(from.value().shape);
            Edge { view: (!whole).then(|| Box::new(*x.layout())), from }
        }));
    }
    Ok(edges)
}

/// The storage of `value`, the one result of an operation on `inputs`; `rule` makes the backward
/// closure for the inputs that need a gradient.
///
/// The closure gets the gradient of the value, in its shape, and gives those of the inputs, in the
/// shapes the operation saw.
pub(crate) fn record<const N: usize, F>(
    inputs: [&Tensor; N],
    value: Tensor,
    rule: impl FnOnce([bool; N]) -> F,
) -> Result<StorageRef>
where
    F: Fn(&Tensor) -> Result<[Option<Tensor>; N]> + Send + Sync + 'static,
{
    record_by(inputs, &Cuts::default(), value, rule)
}

/// [`record`] of an operation that also reads positions, through which no gradient flows: `cuts`
/// are those behind them.
pub(crate) fn record_by<const N: usize, F>(
    inputs: [&Tensor; N],
    cuts: &Cuts,
    value: Tensor,
    rule: impl FnOnce([bool; N]) -> F,
) -> Result<StorageRef>
where
    F: Fn(&Tensor) -> Result<[Option<Tensor>; N]> + Send + Sync + 'static,
{
    let mut needs = [false; N];
    let (operands, edges) = match begin(&inputs, cuts, &mut needs)? {
        (operands, None) => return Ok(operands.untracked(value)),
        (operands, Some(edges)) => (operands, edges),
    };
    let rule = rule(needs);
    let backward: Backward = Box::new(move |g| match &g[0] {
        Some(g) => Ok(rule(g)?.into()),
        None => Ok(vec![None; N]),
    });
    Ok(operands.store(value, edges, backward))
}

/// What [`record`] does for every rule: looks at the operands, and if the operation is recorded, at
/// their edges and at which of them need a gradient.
fn begin(
    inputs: &[&Tensor],
    cuts: &Cuts,
    needs: &mut [bool],
) -> Result<(Operands, Option<Vec<Option<Edge>>>)> {
    let operands = Operands::of_with(inputs, None, cuts)?;
    if !operands.recording {
        return Ok((operands, None));
    }
    let edges = edges(inputs)?;
    for (need, edge) in needs.iter_mut().zip(&edges) {
        *need = edge.is_some();
    }
    Ok((operands, Some(edges)))
}

/// The storage of a result that carries no gradient by its nature: positions, comparisons.
pub(crate) fn cut(inputs: &[&Tensor], value: Tensor) -> Result<StorageRef> {
    Ok(Operands::of(inputs)?.cut(value))
}

/// `then` of `x`, if `need`ed: keeps rules to one line per input.
pub(crate) fn when(need: bool, then: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
    need.then(then).transpose()
}
