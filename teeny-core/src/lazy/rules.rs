//! Rules between recorded operations, applied when a plan is made.
//!
//! One pass from the first node to the last. A rule either changes the operation of a node, or
//! finds that its result is another value: then later nodes read that value, and if a tensor holds
//! the result, both get one storage. The list itself stays as it was recorded, because plans are
//! found by it: the rules work on a copy with the same nodes and slots, in which a node that is not
//! needed any more has no readers.
//!
//! All rules except `rows` keep every bit.

use super::graph::Graph;
use super::list::{Node, Operand, hash};
use super::rows::{RowGroup, row_groups};
use crate::kernel::table::UnaryTable;
use crate::layout::Layout;
use crate::op::{Recorded, ReduceOp};
use std::collections::HashMap;

/// How many nodes longer than its readers need a result may be kept for an equal node that follows.
/// Without a limit a step would keep values that it recomputes to save memory, as with checkpoints.
const MAX_DISTANCE: u32 = 32;

/// The nodes of a list after all rules.
pub(super) struct Rewritten {
    pub(super) nodes: Vec<Node>,
    /// For each slot: true if the node stores it for a tensor.
    pub(super) held: Vec<bool>,
    /// Pairs of slots: the first is stored, and the second shares its storage.
    pub(super) shares: Vec<(u32, u32)>,
    /// Row programs that are written out. The last node of each has the operation of all.
    pub(super) rows: Vec<RowGroup>,
    /// The number of recorded nodes whose results are not needed.
    pub(super) dropped: usize,
}

/// Applies all rules to the nodes of a list. `len` gives the elements of a result.
pub(super) fn rewrite(
    nodes: &[Node],
    held: &[bool],
    len: &dyn Fn(u32) -> usize,
    reassociate: bool,
) -> Rewritten {
    let graph = Graph::new(nodes, held, reassociate);
    let mut state = RewriteState::new(&graph);
    let mut out = nodes.to_vec();
    // Nodes by the hash of their computation.
    let mut known: HashMap<u64, Vec<u32>> = HashMap::new();
    for id in (0..nodes.len() as u32).filter(|&id| graph.is_live(id)) {
        let node = &mut out[id as usize];
        node.operands.iter_mut().for_each(|x| x.slot = state.same[x.slot as usize]);
        reduce_of_one(node);
        cat_of_slices(node);
        let result = node.outputs.start;
        if let Some(original) = copied(node, len)
            && state.can_be(result, original)
        {
            state.merge(result, original);
            continue;
        }
        if node.destination.is_some() || matches!(node.op, Recorded::Random { .. }) {
            continue;
        }
        let node = &out[id as usize];
        let key = hash(u64::from(node.params.start), &node.op, &node.operands);
        let equal = known.entry(key).or_default();
        let found = equal.iter_mut().find(|other| is_equal(&out[**other as usize], node));
        let Some(found) = found else {
            equal.push(id);
            continue;
        };
        let outputs = || node.outputs.clone().zip(out[*found as usize].outputs.clone());
        let is_near =
            |(_, old): (u32, u32)| id <= state.until[old as usize].saturating_add(MAX_DISTANCE);
        if outputs().all(|(new, old)| state.can_be(new, old)) && outputs().any(is_near) {
            outputs().for_each(|(new, old)| state.merge(new, old));
        } else {
            *found = id;
        }
    }
    let RewriteState { stored, shares, .. } = state;
    let rows = match reassociate {
        true => row_groups(&Graph::new(&out, &stored, true)),
        false => Vec::new(),
    };
    for RowGroup { nodes, op, operands, .. } in &rows {
        let Some(&root) = nodes.last() else { continue };
        let node = &mut out[root as usize];
        (node.op, node.operands, node.params) = (op.clone(), operands.clone(), 0..0);
    }
    let dropped = (0..nodes.len() as u32).filter(|&id| !graph.is_live(id)).count();
    Rewritten { nodes: out, held: stored, shares, rows, dropped }
}

/// The values that are known to be equal.
struct RewriteState<'g, 'a> {
    graph: &'g Graph<'a>,
    /// For each slot: the slot that is read instead.
    same: Vec<u32>,
    /// For each slot: the last node that reads it.
    until: Vec<u32>,
    /// For each slot: true if it is the destination of a copy. Such values are not shared, so that
    /// the copy can write in place.
    written: Vec<bool>,
    stored: Vec<bool>,
    shares: Vec<(u32, u32)>,
}

impl<'g, 'a> RewriteState<'g, 'a> {
    fn new(graph: &'g Graph<'a>) -> RewriteState<'g, 'a> {
        let slots = graph.held.len();
        let (mut until, mut written) = (vec![0; slots], vec![false; slots]);
        for (id, node) in graph.nodes.iter().enumerate().filter(|(i, _)| graph.is_live(*i as u32)) {
            node.operands.iter().for_each(|x| until[x.slot as usize] = id as u32);
            node.destination.iter().for_each(|&slot| written[slot as usize] = true);
        }
        let all = until.iter_mut().zip(graph.held);
        all.filter(|(_, held)| **held).for_each(|(until, _)| *until = u32::MAX);
        let same = (0..slots as u32).collect();
        let stored = graph.held.to_vec();
        RewriteState { graph, same, until, written, stored, shares: Vec::new() }
    }

    /// True if `old` may replace `new`. A tensor gets a storage that the list makes, never a
    /// leaf's, because the plan does not fix its length.
    fn can_be(&self, new: u32, old: u32) -> bool {
        let shares = !self.graph.held[new as usize] || self.graph.maker(old).is_some();
        shares && !self.written[new as usize] && !self.written[old as usize]
    }

    /// From now on `old` is read where `new` would be.
    fn merge(&mut self, new: u32, old: u32) {
        self.same[new as usize] = old;
        self.until[old as usize] = self.until[old as usize].max(self.until[new as usize]);
        if self.graph.held[new as usize] {
            self.stored[new as usize] = false;
            self.stored[old as usize] = true;
            self.shares.push((old, new));
        }
    }
}

/// Nodes that compute the same are one: `f(x)` and `f(x)`. Random draws differ each time, and a
/// copy writes into its destination.
fn is_equal(a: &Node, b: &Node) -> bool {
    a.op == b.op && a.operands == b.operands && a.params == b.params
}

/// A row-major copy of a row-major whole value is that value: its slot, if `node` is such a copy.
fn copied(node: &Node, len: &dyn Fn(u32) -> usize) -> Option<u32> {
    let (Recorded::Contiguous {}, [Operand { slot, layout, .. }]) = (&node.op, &*node.operands)
    else {
        return None;
    };
    let is_whole = layout.is_contiguous() && layout.offset() == 0 && layout.numel() == len(*slot);
    (is_whole && layout.numel() > 0).then_some(*slot)
}

/// The sum of one number is the number, as are its product, its largest and its smallest. So a
/// reduction over axes of size 1 copies its operand, except that zeros lose their sign: `0 + x` in
/// sums of floats, and zero is unsigned in the largest and the smallest.
fn reduce_of_one(node: &mut Node) {
    static UNSIGNED_ZERO: UnaryTable = UnaryTable::new();
    let has_one = |shape: &[usize], axes: &[usize]| {
        axes.iter().all(|&axis| shape[axis] == 1) && !shape.contains(&0)
    };
    let keeps_sign = |op: ReduceOp, is_float: bool| match op {
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min => !is_float,
        ReduceOp::Prod | ReduceOp::Any | ReduceOp::All => true,
        ReduceOp::ArgMax | ReduceOp::ArgMin => false,
    };
    let (op, x) = (&node.op, node.operands.first());
    let changed = match (op, x) {
        (Recorded::Reduce { op, .. }, _) if op.is_arg() => return,
        (Recorded::Reduce { op, axes }, Some(x)) if has_one(x.layout.shape(), axes) => {
            if keeps_sign(*op, x.dtype.is_float()) {
                Recorded::Contiguous {}
            } else {
                let Ok(kernel) = UNSIGNED_ZERO.get(x.dtype, |x| x + x.like(0.0)) else { return };
                Recorded::Elementwise { kernel: kernel.clone(), shape: *x.layout.shape() }
            }
        }
        (Recorded::ReduceKernel { op, kernel, shape, axes }, _)
            if has_one(shape, axes) && keeps_sign(*op, kernel.output_dtype(0).is_float()) =>
        {
            Recorded::Elementwise { kernel: kernel.clone(), shape: *shape }
        }
        _ => return,
    };
    node.op = changed;
}

/// Slices of one value, joined in the order in which they follow each other, are one slice:
/// `cat(x[a..b], x[b..c]) = x[a..c]`.
fn cat_of_slices(node: &mut Node) {
    let Recorded::Cat { axis } = node.op else { return };
    let [first, rest @ ..] = &*node.operands else { return };
    let size = |x: &Operand| x.layout.shape()[axis];
    if node.operands.iter().any(|x| x.layout.numel() == 0) {
        return;
    }
    // The stride along the axis; of slices of one element it is the distance of the slices.
    let long = node.operands.iter().find(|x| size(x) > 1);
    let stride = match (long, rest.first()) {
        (Some(x), _) => x.layout.strides()[axis],
        (None, Some(x)) => x.layout.offset() as isize - first.layout.offset() as isize,
        (None, None) => 0,
    };
    let mut offset = first.layout.offset() as isize;
    let mut count = 0;
    for x in &node.operands {
        let others = x.layout.strides().iter().zip(first.layout.strides()).enumerate();
        let is_along = others
            .filter(|(i, _)| *i != axis && x.layout.shape()[*i] > 1)
            .all(|(_, (one, other))| one == other);
        let follows = x.layout.offset() as isize == offset
            && (size(x) == 1 || x.layout.strides()[axis] == stride);
        if !is_along || !follows || (x.slot, x.dtype) != (first.slot, first.dtype) {
            return;
        }
        offset += size(x) as isize * stride;
        count += size(x);
    }
    let Ok(shape) = first.layout.shape().resized(axis, count) else { return };
    let mut strides = first.layout.strides().to_vec();
    strides[axis] = stride;
    // Each element is one of a slice, which is inside the storage.
    let offset = first.layout.offset();
    let Ok(layout) = Layout::strided(shape, &strides, offset, usize::MAX) else { return };
    let (slot, dtype) = (first.slot, first.dtype);
    (node.op, node.operands) = (Recorded::Contiguous {}, vec![Operand { slot, layout, dtype }]);
}
