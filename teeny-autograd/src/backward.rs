//! The backward pass: pending gradients by node id, the largest first. Without recursion, so deep
//! graphs do not overflow the stack.

use crate::adjoint::{add_adjoint, adjoint};
use crate::detach_points::{DetachPoint, DetachPoints, Reason};
use crate::node::{Handle, Kind, Node};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use teeny_core::{Error, Layout, Result, Tensor, context};

/// Gradients that are kept, by node and output, with the node they belong to. Row-major, so that an
/// optimizer reads them as fast as the parameter, and assigning into one is legal: the gradient of
/// a sum is a view that repeats one element.
pub(crate) type Kept = HashMap<(u64, u8), (Arc<Node>, Tensor)>;

struct Pending {
    node: Arc<Node>,
    g: Vec<Option<Tensor>>,
}

/// Propagates `g`, the gradient of `root`, to the leaves.
///
/// `root` is taken by value: where the caller held the last handle, each node is dropped, with what
/// it saved, as soon as its rule has run.
///
/// Operations whose backward function returned no gradient are added to `detach_points`.
pub(crate) fn run(root: Handle, g: Tensor, detach_points: &mut DetachPoints) -> Result<Kept> {
    run_until(root, g, &[], detach_points)
}

/// [`run`] that stops at the values in `stops` and keeps their gradients. Their hooks run in the
/// pass that continues from them.
pub(crate) fn run_until(
    root: Handle,
    g: Tensor,
    stops: &[Handle],
    detach_points: &mut DetachPoints,
) -> Result<Kept> {
    let mut kept = Kept::new();
    let mut pending = BTreeMap::new();
    accumulate(&mut pending, root, None, g)?;
    while let Some((_, Pending { node, mut g })) = pending.pop_last() {
        for stop in stops.iter().filter(|stop| stop.node.id == node.id) {
            if let Some(g) = g[stop.output as usize].take() {
                kept.insert(stop.key(), (node.clone(), g));
            }
        }
        if g.iter().all(Option::is_none) {
            continue;
        }
        if let Some(first) = g[0].take() {
            g[0] = Some(node.hooks.apply(first)?);
        }
        if node.is_leaf() || node.retain.load(Ordering::Relaxed) {
            for (output, g) in g.iter().enumerate().filter_map(|(o, g)| Some((o, g.as_ref()?))) {
                kept.insert((node.id, output as u8), (node.clone(), g.contiguous()?));
            }
        }
        let Kind::Op(backward) = &node.kind else { continue };
        // An error in a rule names the operation the user called, and a nested graph records it
        // under that name.
        let _op = node.context.map(context::resume);
        let grads = backward(&g)?;
        drop(g);
        if grads.len() != node.edges.len() {
            return Err(Error::internal(format!(
                "{} operands but {} gradients",
                node.edges.len(),
                grads.len()
            )));
        }
        for (i, (edge, g)) in node.edges.iter().zip(grads).enumerate() {
            let Some(edge) = edge else { continue };
            let Some(g) = g else {
                let (op, location) =
                    node.context.map_or(("an operation", None), |c| (c.op, Some(c.location)));
                detach_points.push(DetachPoint {
                    op,
                    location,
                    mask: edge.from.node.mask,
                    reason: Reason::NoGradient(i),
                });
                continue;
            };
            accumulate(&mut pending, edge.from.clone(), edge.view.as_deref(), g)?;
        }
    }
    Ok(kept)
}

/// Adds `g` to the pending gradient of a value; `g` is the gradient of the value, or of its view
/// through `view`. A sum is a new tensor, or is written to one without another owner, so two values
/// never share a gradient that changes.
fn accumulate(
    pending: &mut BTreeMap<u64, Pending>,
    to: Handle,
    view: Option<&Layout>,
    g: Tensor,
) -> Result<()> {
    let value = to.value();
    let slot = pending
        .entry(to.node.id)
        .or_insert_with(|| Pending { g: vec![None; to.node.values.len()], node: to.node.clone() });
    let sum = &mut slot.g[to.output as usize];
    let g = match (sum.take(), view) {
        (None, None) => g,
        (None, Some(view)) => adjoint(view, &value.shape, &g)?,
        (Some(before), None) => before.add(&g)?,
        (Some(before), Some(view)) => add_adjoint(before, view, &g)?,
    };
    if *g.shape() != value.shape || g.dtype() != value.dtype {
        let what = format!(
            "a rule returned a gradient {} {} for a value {} {}",
            g.dtype(),
            g.shape(),
            value.dtype,
            value.shape
        );
        return Err(Error::internal(what));
    }
    *sum = Some(g);
    Ok(())
}
