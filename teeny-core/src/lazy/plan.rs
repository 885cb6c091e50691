//! Plans: what runs for a list, and when each value is let go of.

use super::fuse::{Group, fuse};
use super::graph::Graph;
use super::list::{Node, Operand};
use super::program::{Fused, fused};
use super::value::{Slot, Value};
use crate::kernel::Kernel;
use crate::op::Recorded;
use std::sync::Arc;

/// What runs for all lists of the same nodes whose results are held alike.
pub(super) struct Plan {
    nodes: Vec<Node>,
    /// Of each slot: whether it is an output that a tensor held.
    held: Vec<bool>,
    /// Of each slot: whether it is an output that no tensor held.
    temporary: Vec<bool>,
    pub(super) items: Vec<Item>,
    /// Nodes whose results nobody needs.
    pub(super) dropped: usize,
}

/// One operation for the device below.
#[derive(Clone, PartialEq)]
pub(super) struct Item {
    /// The nodes that it computes, in recorded order. Its place is that of the last one.
    pub(super) nodes: Vec<u32>,
    /// The operation; None for one node as it was recorded.
    pub(super) kernel: Option<Call>,
    /// The slots that nothing reads after it.
    pub(super) last: Vec<u32>,
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

impl Plan {
    /// The plan of `nodes`; [`crate::LazyOptions::reassociate`]; `intern` returns the one copy that is kept of a kernel.
    pub(super) fn new(
        nodes: Vec<Node>,
        held: Vec<bool>,
        reassociate: bool,
        intern: &mut dyn FnMut(Kernel) -> Arc<Kernel>,
    ) -> Plan {
        let graph = Graph::new(&nodes, &held, reassociate);
        let mut items = Vec::new();
        for group in fuse(&graph) {
            let mut members: Vec<u32> = group.members.iter().map(|member| member.node).collect();
            members.reverse();
            match call(&graph, &group, intern) {
                None if members.len() > 1 => {
                    // Without a kernel its nodes run one by one.
                    let alone =
                        |&id: &u32| Item { nodes: vec![id], kernel: None, last: Vec::new() };
                    items.extend(members.iter().map(alone));
                }
                kernel => items.push(Item { nodes: members, kernel, last: Vec::new() }),
            }
        }
        lifetimes(&nodes, held.len(), &mut items);
        let dropped = (0..nodes.len() as u32).filter(|&id| !graph.is_live(id)).count();
        let mut temporary = vec![false; held.len()];
        for slot in nodes.iter().flat_map(|node| node.outputs.clone()) {
            temporary[slot as usize] = !held[slot as usize];
        }
        Plan { nodes, held, temporary, items, dropped }
    }

    /// What a run of the plan begins with: leaves, and results that tensors hold.
    pub(super) fn slots(&self, values: Vec<Arc<Value>>) -> Vec<Slot> {
        let of = |(value, is_temporary): (Arc<Value>, &bool)| match is_temporary {
            true => Slot::Empty,
            false => Slot::Value(value),
        };
        values.into_iter().zip(&self.temporary).map(of).collect()
    }

    /// Whether it is the plan of these nodes.
    pub(super) fn serves(&self, nodes: &[Node], held: &[bool]) -> bool {
        self.held == held && self.nodes == nodes
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
            Recorded::Matmul => Recorded::MatmulKernel { kernel },
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
