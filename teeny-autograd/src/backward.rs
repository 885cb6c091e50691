//! The backward pass: pending gradients by node id, the largest first. No recursion, so depth costs
//! nothing.

use crate::adjoint::{add_adjoint, adjoint};
use crate::cuts::{Cut, Cuts, Reason};
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

/// Carries `g`, the gradient of `root`, down to the leaves.
///
/// `root` is taken by value: where the caller held the last handle, each node is dropped, with what
/// it saved, as soon as its rule has run.
///
/// `cuts` gets the operations whose backward function gave no gradient.
pub(crate) fn run(root: Handle, g: Tensor, cuts: &mut Cuts) -> Result<Kept> {
    run_until(root, g, &[], cuts)
}

/// [`run`] that goes no further than the values in `stops`, and keeps their gradients. Hooks of
/// these are left to the pass that meets them for good.
pub(crate) fn run_until(
    root: Handle,
    g: Tensor,
    stops: &[Handle],
    cuts: &mut Cuts,
) -> Result<Kept> {
    let mut kept = Kept::new();
    let mut pending = BTreeMap::new();
    arrive(&mut pending, root, None, g)?;
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
        // An error deep in a rule names the operation the user called, and a nested graph records
        // it as such.
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
                cuts.push(Cut {
                    op,
                    location,
                    mask: edge.from.node.mask,
                    reason: Reason::NoGradient(i),
                });
                continue;
            };
            arrive(&mut pending, edge.from.clone(), edge.view.as_deref(), g)?;
        }
    }
    Ok(kept)
}

/// Adds `g` to what is pending for the value: its own gradient, or that of its view through `view`.
/// Sums are new tensors, or change one that has no other owner, so no two values ever share a
/// gradient that could change.
fn arrive(
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
            "a rule gave a gradient {} {} for a value {} {}",
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
