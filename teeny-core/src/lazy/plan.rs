//! Plans: the kernels that run for a list, and when each value is freed.

use super::fuse::{Group, fuse};
use super::graph::Graph;
use super::list::{Node, Operand};
use super::program::{Fused, fused};
use super::rows::RowGroup;
use super::rules::{Rewritten, rewrite};
use super::value::{Slot, Value};
use crate::kernel::Kernel;
use crate::op::Recorded;
use std::collections::HashMap;
use std::sync::Arc;

/// The items that run for all lists with the same nodes and the same held results.
pub(super) struct ExecutionPlan {
    /// The nodes that it is found by.
    recorded: Vec<Node>,
    /// The nodes that run: as many, rewritten.
    pub(super) nodes: Vec<Node>,
    /// For each slot: true if it is an output that a tensor held.
    held: Vec<bool>,
    /// For each slot: true if it is an output that no tensor held.
    temporary: Vec<bool>,
    pub(super) items: Vec<Item>,
    /// The number of nodes whose results are not needed.
    pub(super) dropped: usize,
    /// The most bytes of results that are alive at once.
    pub(super) peak: usize,
    /// The number of this plan on its device, from 1; 0 until it is cached.
    pub(super) number: u64,
}

/// One operation for the device below.
#[derive(Clone, PartialEq)]
pub(super) struct Item {
    /// The nodes that it computes, in recorded order. It runs at the position of the last one.
    pub(super) nodes: Vec<u32>,
    /// The operation; None for one node as it was recorded.
    pub(super) kernel: Option<Call>,
    /// Pairs of slots: the second shares the storage computed for the first.
    pub(super) shares: Vec<(u32, u32)>,
    /// The slots that nothing reads after it.
    pub(super) last: Vec<u32>,
}

impl Item {
    fn new(nodes: Vec<u32>, kernel: Option<Call>) -> Item {
        Item { nodes, kernel, shares: Vec::new(), last: Vec::new() }
    }
}

/// An operation that no node recorded.
#[derive(Clone, PartialEq)]
pub(super) struct Call {
    pub(super) op: Recorded,
    pub(super) operands: Vec<Operand>,
    /// The numbers of its kernel, by their places in the list.
    pub(super) params: Vec<u32>,
    pub(super) outputs: Vec<u32>,
}

impl ExecutionPlan {
    /// The plan of the nodes `recorded`, with these values in their slots; `intern` returns the one
    /// copy that is kept of a kernel.
    pub(super) fn new(
        recorded: Vec<Node>,
        values: &[Arc<Value>],
        held: Vec<bool>,
        reassociate: bool,
        intern: &mut dyn FnMut(Kernel) -> Arc<Kernel>,
    ) -> ExecutionPlan {
        let len = |slot: u32| values[slot as usize].len();
        let Rewritten { nodes, held: stored, shares, rows, dropped } =
            rewrite(&recorded, &held, &len, reassociate);
        let row_group = |id: u32| rows.iter().find(|group| group.nodes.last() == Some(&id));
        let graph = Graph::new(&nodes, &stored, reassociate);
        let mut items = Vec::new();
        for group in fuse(&graph) {
            let mut members: Vec<u32> = group.members.iter().map(|member| member.node).collect();
            members.reverse();
            if let Some(RowGroup { nodes: members, op, operands, params }) = row_group(group.root())
            {
                let outputs = nodes[group.root() as usize].outputs.clone().collect();
                let (op, operands, params) = (op.clone(), operands.clone(), params.clone());
                let call = Call { op, operands, params, outputs };
                items.push(Item::new(members.clone(), Some(call)));
                continue;
            }
            match call(&graph, &group, intern) {
                // Without a kernel its nodes run one by one.
                None => items.extend(members.iter().map(|&id| Item::new(vec![id], None))),
                kernel => items.push(Item::new(members, kernel)),
            }
        }
        // Maps each shared slot to the item that writes it.
        let mut stored_by = HashMap::new();
        if !shares.is_empty() {
            let outputs = |(i, item): (usize, &Item)| {
                item.outputs(&nodes).into_iter().map(move |slot| (slot, i))
            };
            stored_by = items.iter().enumerate().rev().flat_map(outputs).collect();
        }
        for (from, to) in shares {
            if let Some(&item) = stored_by.get(&from) {
                items[item].shares.push((from, to));
            }
        }
        lifetimes(&nodes, held.len(), &mut items);
        let mut temporary = vec![false; held.len()];
        for slot in nodes.iter().flat_map(|node| node.outputs.clone()) {
            temporary[slot as usize] = !held[slot as usize];
        }
        let peak = peak(&items, &nodes, &temporary, values);
        ExecutionPlan { recorded, nodes, held, temporary, items, dropped, peak, number: 0 }
    }

    /// The initial slots of a run: leaves, and results that tensors hold.
    pub(super) fn slots(&self, values: impl Iterator<Item = Arc<Value>>) -> Vec<Slot> {
        let of = |(value, is_temporary): (Arc<Value>, &bool)| match is_temporary {
            true => Slot::Empty,
            false => Slot::Value(value),
        };
        values.zip(&self.temporary).map(of).collect()
    }

    /// Whether `slot` is an output that a tensor held.
    pub(super) fn is_held(&self, slot: u32) -> bool {
        self.held[slot as usize]
    }

    /// Whether it is the plan of these nodes.
    pub(super) fn serves(&self, nodes: &[Node], held: &[bool]) -> bool {
        self.held == held && self.recorded == nodes
    }
}

impl Item {
    /// The slots that it stores.
    pub(super) fn outputs(&self, nodes: &[Node]) -> Vec<u32> {
        match &self.kernel {
            Some(call) => call.outputs.clone(),
            None => self.nodes.iter().flat_map(|&id| nodes[id as usize].outputs.clone()).collect(),
        }
    }

    /// Whether `slot` is a result of one of its nodes.
    fn computes(&self, slot: u32, nodes: &[Node]) -> bool {
        self.nodes.iter().any(|&id| nodes[id as usize].outputs.contains(&slot))
    }
}

/// The operation of a group; None if it runs as it was recorded, or has no kernel.
fn call(
    graph: &Graph<'_>,
    group: &Group,
    intern: &mut dyn FnMut(Kernel) -> Arc<Kernel>,
) -> Option<Call> {
    let Fused { kernel, operands, params, outputs } = fused(graph, group).ok()??;
    let (root, shape) = (graph.node(group.root()), group.shape?);
    if let Some(id) = group.product {
        // Its first input is the product: the operands of that come before the others.
        let product = graph.node(id);
        let (first, others) = operands.split_first()?;
        if first.slot != product.outputs.start {
            return None;
        }
        let kernel = intern(kernel);
        let op = match &product.op {
            Recorded::Matmul {} => Recorded::MatmulKernel { kernel },
            Recorded::Conv { window } => Recorded::ConvKernel { window: window.clone(), kernel },
            _ => return None,
        };
        let operands = product.operands.iter().chain(others).cloned().collect();
        return Some(Call { op, operands, params, outputs });
    }
    let op = match &root.op {
        Recorded::ReduceKernel { op, axes, .. } | Recorded::Reduce { op, axes } => {
            if kernel.inputs().is_empty() {
                return None;
            }
            let (op, axes) = (*op, axes.clone());
            if kernel.passes_through(0).is_some() && kernel.nodes().len() == 1 {
                Recorded::Reduce { op, axes }
            } else {
                Recorded::ReduceKernel { kernel: intern(kernel), shape, op, axes }
            }
        }
        _ => Recorded::Elementwise { kernel: intern(kernel), shape },
    };
    Some(Call { op, operands, params, outputs })
}

/// Fills in the slots that each item reads last. A result that nothing reads ends with its item.
fn lifetimes(nodes: &[Node], slots: usize, items: &mut [Item]) {
    let mut ends = vec![false; slots];
    for item in items.iter_mut().rev() {
        let of = |&id: &u32| {
            let Node { operands, destination, outputs, .. } = &nodes[id as usize];
            operands.iter().map(|x| x.slot).chain(*destination).chain(outputs.clone())
        };
        for slot in item.nodes.iter().flat_map(of) {
            if !std::mem::replace(&mut ends[slot as usize], true) {
                item.last.push(slot);
            }
        }
    }
}

/// The peak bytes of live results while `items` run. The results of one item live together. Leaves
/// are live before the run, and held results after it.
fn peak(items: &[Item], nodes: &[Node], temporary: &[bool], values: &[Arc<Value>]) -> usize {
    let bytes = |slot: u32| values[slot as usize].bytes();
    let (mut live, mut most) = (0usize, 0);
    for item in items {
        let made = item.outputs(nodes);
        live += made.iter().map(|&slot| bytes(slot)).sum::<usize>();
        most = most.max(live);
        for &slot in item.last.iter().filter(|&&slot| temporary[slot as usize]) {
            // Intermediate values of a fused operation are never stored.
            let is_stored = made.contains(&slot) || !item.computes(slot, nodes);
            live -= if is_stored { bytes(slot) } else { 0 };
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::lazy::Lazy;
    use crate::reference::Reference;
    use crate::tensor::Tensor;

    /// A linear congruential generator.
    struct Dice(u64);
    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) % n as u64) as usize
        }
    }

    /// Some operation on square matrices.
    fn step(dice: &mut Dice, all: &[Tensor]) -> Tensor {
        let x = all[dice.below(all.len())].clone();
        let y = &all[dice.below(all.len())];
        match dice.below(12) {
            0 => x.matmul(y),
            1 => x.sum(1).and_then(|s| s.unsqueeze(1)?.add(y)),
            2 => x.max(0).and_then(|s| s.mul(y)),
            3 => x.t().and_then(|t| t.contiguous()),
            4 => x.slice_assign(0, 1..2, &y.slice(0, 0..1).unwrap()),
            5 => x.cumsum(1),
            6 => x.flip(0).and_then(|f| f.exp()),
            7 => x.add(2.0),
            8 => x.mul(y),
            9 => x.t().and_then(|t| t.sub(y)),
            10 => x.abs().and_then(|a| a.sqrt()),
            _ => x.gt(y).and_then(|c| c.where_cond(&x, y)),
        }
        .unwrap()
    }

    /// Items compute what they read before they read it, nothing is read after its end, all that is
    /// held is computed, and each needed node is in an item.
    #[test]
    fn random_plans_are_valid_orders() {
        let mut dice = Dice(3);
        for case in 0..10_000 {
            let lazy = Lazy::new(Reference::new());
            let leaves: Vec<Tensor> =
                (0..2).map(|_| Tensor::ones((3, 3), DType::F32, &lazy).unwrap()).collect();
            lazy.begin_capture().unwrap();
            let mut all = leaves;
            for _ in 0..1 + dice.below(20) {
                let new = step(&mut dice, &all);
                all.push(new);
                if dice.below(2) == 0 {
                    let i = dice.below(all.len());
                    drop(all.swap_remove(i));
                }
                if all.is_empty() {
                    all.push(Tensor::ones((3, 3), DType::F32, &lazy).unwrap());
                }
            }
            let list = lazy.end_capture();
            let held = list.held();
            let mut intern = |kernel: Kernel| Arc::new(kernel);
            let reassociate = case % 2 == 0;
            let nodes = list.nodes.clone();
            let plan =
                ExecutionPlan::new(nodes, &list.slots, held.clone(), reassociate, &mut intern);
            check(&plan, &held, case);
        }
    }

    fn check(plan: &ExecutionPlan, held: &[bool], case: usize) {
        let nodes = &plan.nodes;
        let mut is_result = vec![false; held.len()];
        for slot in nodes.iter().flat_map(|node| node.outputs.clone()) {
            is_result[slot as usize] = true;
        }
        // For each slot: true if it is available. Leaves are.
        let mut is_there: Vec<bool> = is_result.iter().map(|result| !result).collect();
        let mut computed = vec![false; held.len()];
        for item in &plan.items {
            let (operands, destination) = match &item.kernel {
                Some(call) => (&call.operands, None),
                None => {
                    let node = &nodes[item.nodes[0] as usize];
                    (&node.operands, node.destination)
                }
            };
            for slot in operands.iter().map(|x| x.slot).chain(destination) {
                assert!(is_there[slot as usize], "case {case}: slot {slot} is read too early");
            }
            for slot in item.outputs(nodes) {
                is_there[slot as usize] = true;
                computed[slot as usize] = true;
            }
            for &(from, to) in &item.shares {
                assert!(is_there[from as usize], "case {case}: slot {from} is not there to share");
                (is_there[to as usize], computed[to as usize]) = (true, true);
            }
            for &slot in &item.last {
                is_there[slot as usize] = false;
            }
        }
        for (slot, held) in held.iter().enumerate() {
            assert!(!held || computed[slot], "case {case}: held slot {slot} is not computed");
        }
    }
}
