//! The backward pass: pending gradients by node id, the largest first. Without recursion, so deep
//! graphs do not overflow the stack.

use crate::adjoint::{Parts, add_adjoint, adjoint};
use crate::detach_points::{DetachPoint, DetachPoints, Reason};
use crate::node::{Handle, Node, NodeKind};
use crate::storage::try_tracked;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use teeny_core::{Error, Layout, Result, Tensor, context};

/// Gradients that are kept, by node and output.
pub(crate) type Kept = HashMap<(u64, u8), KeptGrad>;

/// A gradient and the node it belongs to. It is read as a row-major tensor, so that an optimizer
/// reads it as fast as the parameter, and assigning into it is legal: the gradient of a sum is a
/// view that repeats one element. Such a view is copied when it is first read.
#[derive(Clone)]
pub(crate) struct KeptGrad {
    pub node: Arc<Node>,
    view: Tensor,
    packed: OnceLock<Tensor>,
}

impl KeptGrad {
    /// `g` as it is.
    pub fn new(node: Arc<Node>, g: Tensor) -> KeptGrad {
        KeptGrad { node, view: g, packed: OnceLock::new() }
    }

    /// `g`, copied now unless it repeats elements, so that view and copy together take at most half
    /// as much again as the copy. A copy that is recorded is made now as well.
    fn of_leaf(node: Arc<Node>, g: Tensor) -> Result<KeptGrad> {
        let waits = 2 * g.storage().len() <= g.numel() && try_tracked(&g).is_none();
        Ok(KeptGrad::new(node, if waits { g } else { g.contiguous()? }))
    }

    /// The gradient, row-major.
    pub fn get(&self) -> Result<&Tensor> {
        if self.view.is_contiguous() {
            return Ok(&self.view);
        }
        if let Some(packed) = self.packed.get() {
            return Ok(packed);
        }
        let packed = self.view.contiguous()?;
        Ok(self.packed.get_or_init(|| packed))
    }

    /// The gradient as a view, which may repeat elements.
    pub fn view(&self) -> &Tensor {
        &self.view
    }

    /// As [`KeptGrad::get`].
    pub fn into_tensor(self) -> Result<Tensor> {
        self.get()?;
        Ok(self.packed.into_inner().unwrap_or(self.view))
    }
}

struct Pending {
    node: Arc<Node>,
    sums: Vec<Option<Sum>>,
}

/// The accumulated gradient of a value: as one tensor, or by parts.
enum Sum {
    Whole(Tensor),
    Parts(Parts),
}

impl Sum {
    fn whole(self) -> Result<Tensor> {
        match self {
            Sum::Whole(g) => Ok(g),
            Sum::Parts(parts) => parts.whole(),
        }
    }
}

/// Called with the id of a leaf and its gradient.
pub(crate) type Each<'a> = dyn FnMut(u64, &Tensor) -> Result<()> + 'a;

/// Propagates `g`, the gradient of `root`, to the leaves.
///
/// `root` is taken by value: where the caller held the last handle, each node is dropped, with what
/// it saved, as soon as its rule has run.
///
/// Operations whose backward function returned no gradient are added to `detach_points`.
pub(crate) fn run(root: Handle, g: Tensor, detach_points: &mut DetachPoints) -> Result<Kept> {
    run_until(root, g, &[], detach_points)
}

/// [`run`] that calls `each` with the gradient of a leaf as soon as it is complete.
pub(crate) fn run_each(
    root: Handle,
    g: Tensor,
    detach_points: &mut DetachPoints,
    each: &mut Each<'_>,
) -> Result<Kept> {
    let mut last_uses = last_uses(&root.node);
    let mut pass = Pass::new(&[], detach_points);
    pass.add(root, None, g)?;
    while let Some((id, pending)) = pass.pending.pop_last() {
        if let Some((leaf, g)) = pass.visit(pending)? {
            each(leaf, &g)?;
        }
        for leaf in last_uses.remove(&id).unwrap_or_default() {
            let Some(pending) = pass.pending.remove(&leaf) else { continue };
            if let Some((leaf, g)) = pass.visit(pending)? {
                each(leaf, &g)?;
            }
        }
    }
    Ok(pass.kept)
}

/// Maps each node to the leaves behind `root` whose gradients are complete after it. Nodes run by
/// decreasing id, so it is the node with the lowest id that uses the leaf.
fn last_uses(root: &Arc<Node>) -> HashMap<u64, Vec<u64>> {
    let (mut uses, mut seen) = (HashMap::new(), HashSet::new());
    let mut waiting = vec![root];
    while let Some(node) = waiting.pop() {
        for from in node.edges.iter().flatten().map(|edge| &edge.from.node) {
            if from.is_leaf() {
                let lowest = uses.entry(from.id).or_insert(node.id);
                *lowest = node.id.min(*lowest);
            } else if seen.insert(from.id) {
                waiting.push(from);
            }
        }
    }
    let mut leaves: HashMap<u64, Vec<u64>> = HashMap::new();
    for (leaf, node) in uses {
        leaves.entry(node).or_default().push(leaf);
    }
    leaves.values_mut().for_each(|leaves| leaves.sort_unstable());
    leaves
}

/// [`run`] that stops at the values in `stops` and keeps their gradients. Their hooks run in the
/// pass that continues from them.
pub(crate) fn run_until(
    root: Handle,
    g: Tensor,
    stops: &[Handle],
    detach_points: &mut DetachPoints,
) -> Result<Kept> {
    let mut pass = Pass::new(stops, detach_points);
    pass.add(root, None, g)?;
    while let Some((_, pending)) = pass.pending.pop_last() {
        pass.visit(pending)?;
    }
    Ok(pass.kept)
}

/// The state of a backward pass.
struct Pass<'a> {
    stops: &'a [Handle],
    detach_points: &'a mut DetachPoints,
    /// Gradients of nodes that were not visited yet, by id.
    pending: BTreeMap<u64, Pending>,
    kept: Kept,
}

impl<'a> Pass<'a> {
    fn new(stops: &'a [Handle], detach_points: &'a mut DetachPoints) -> Pass<'a> {
        Pass { stops, detach_points, pending: BTreeMap::new(), kept: Kept::new() }
    }

    fn add(&mut self, to: Handle, view: Option<&Layout>, g: Tensor) -> Result<()> {
        accumulate(&mut self.pending, to, view, g)
    }

    /// Passes the gradients of one node on to its inputs. The gradient of a leaf is kept, and the
    /// first one is returned with its id.
    fn visit(&mut self, Pending { node, sums }: Pending) -> Result<Option<(u64, Tensor)>> {
        let mut g = {
            let _op = node.context.map(context::resume);
            let whole = |sum: Option<Sum>| sum.map(Sum::whole).transpose();
            sums.into_iter().map(whole).collect::<Result<Vec<_>>>()?
        };
        for stop in self.stops.iter().filter(|stop| stop.node.id == node.id) {
            if let Some(g) = g[stop.output as usize].take() {
                self.kept.insert(stop.key(), KeptGrad::new(node.clone(), g));
            }
        }
        if g.iter().all(Option::is_none) {
            return Ok(None);
        }
        if let Some(first) = g[0].take() {
            g[0] = Some(node.hooks.apply(first)?);
        }
        if node.is_leaf() || node.retain.load(Ordering::Relaxed) {
            for (output, g) in g.iter().enumerate().filter_map(|(o, g)| Some((o, g.as_ref()?))) {
                let kept = KeptGrad::of_leaf(node.clone(), g.clone())?;
                self.kept.insert((node.id, output as u8), kept);
            }
        }
        let NodeKind::Op { backward, .. } = &node.kind else {
            return Ok(g.swap_remove(0).map(|g| (node.id, g)));
        };
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
                self.detach_points.push(DetachPoint {
                    op,
                    location,
                    mask: edge.from.node.mask,
                    reason: Reason::NoGradient(i),
                });
                continue;
            };
            self.add(edge.from.clone(), edge.view.as_deref(), g)?;
        }
        Ok(None)
    }
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
    let none = || (0..to.node.values.len()).map(|_| None).collect();
    let slot = pending
        .entry(to.node.id)
        .or_insert_with(|| Pending { sums: none(), node: to.node.clone() });
    let sum = &mut slot.sums[to.output as usize];
    let before = match (sum.take(), view) {
        (None, Some(view)) if g.dtype() == value.dtype => {
            if let Some(parts) = Parts::new(view, &value.shape, &g) {
                *sum = Some(Sum::Parts(parts));
                return Ok(());
            }
            None
        }
        (Some(Sum::Parts(mut parts)), Some(view)) => {
            if parts.push(view, &g) {
                *sum = Some(Sum::Parts(parts));
                return Ok(());
            }
            Some(parts.whole()?)
        }
        (before, _) => before.map(Sum::whole).transpose()?,
    };
    let g = match (before, view) {
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
    *sum = Some(Sum::Whole(g));
    Ok(())
}
