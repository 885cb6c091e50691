//! A list as a graph: the producer and the readers of each value, and whether it is needed.

use super::list::{Node, Operand};
use crate::dtype::DType;
use crate::kernel::Kernel;
use crate::kernel::table::UnaryTable;
use crate::op::{Recorded, ReduceOp};
use crate::shape::Shape;
use std::sync::Arc;

/// The nodes of a list with the tables that all passes read.
pub(super) struct Graph<'a> {
    pub(super) nodes: &'a [Node],
    /// For each slot: true if a tensor can read it.
    pub(super) held: &'a [bool],
    reassociate: bool,
    /// For each slot: the node that produces it, and the output index.
    makers: Vec<Option<(u32, u32)>>,
    /// For each node: true if its results are needed.
    live: Vec<bool>,
    /// For each node: the live nodes that read it, each with the operand index. A destination
    /// counts as the last operand.
    readers: Vec<Vec<(u32, u32)>>,
    /// For each slot: the node that writes into it in place, if nothing reads it afterwards.
    writers: Vec<Option<u32>>,
}

impl<'a> Graph<'a> {
    /// The graph of `nodes`, whose slots are as many as `held`.
    pub(super) fn new(nodes: &'a [Node], held: &'a [bool], reassociate: bool) -> Graph<'a> {
        let mut makers = vec![None; held.len()];
        for (id, node) in nodes.iter().enumerate() {
            for (i, slot) in node.outputs.clone().enumerate() {
                makers[slot as usize] = Some((id as u32, i as u32));
            }
        }
        let mut needed = held.to_vec();
        let mut live = vec![false; nodes.len()];
        let mut readers = vec![Vec::new(); nodes.len()];
        let mut writers = vec![None; held.len()];
        // Readers before their operands.
        for (id, node) in nodes.iter().enumerate().rev() {
            live[id] = node.outputs.clone().any(|slot| needed[slot as usize]);
            if !live[id] {
                continue;
            }
            let slots = node.operands.iter().map(|operand| operand.slot).chain(node.destination);
            for (i, slot) in slots.enumerate() {
                needed[slot as usize] = true;
                if let Some((maker, _)) = makers[slot as usize] {
                    readers[maker as usize].push((id as u32, i as u32));
                }
            }
            if let Some(slot) = node.destination {
                writers[slot as usize] = Some(id as u32);
            }
        }
        Graph { nodes, held, reassociate, makers, live, readers, writers }
    }

    pub(super) fn node(&self, id: u32) -> &'a Node {
        &self.nodes[id as usize]
    }

    /// The node and the output that `slot` is; None for a leaf.
    pub(super) fn maker(&self, slot: u32) -> Option<(u32, u32)> {
        self.makers[slot as usize]
    }

    pub(super) fn is_live(&self, id: u32) -> bool {
        self.live[id as usize]
    }

    /// The needed nodes that read node `id`, each with the number of the operand.
    pub(super) fn readers(&self, id: u32) -> &[(u32, u32)] {
        &self.readers[id as usize]
    }

    /// Whether output `slot` is stored if its node is: a tensor holds it, or a node reads it.
    pub(super) fn is_needed(&self, slot: u32) -> bool {
        self.held[slot as usize]
            || self.maker(slot).is_some_and(|(maker, _)| {
                self.readers(maker).iter().any(|&(reader, i)| {
                    let node = self.node(reader);
                    let operand = node.operands.get(i as usize).map(|operand| operand.slot);
                    operand.or(node.destination) == Some(slot)
                })
            })
    }

    /// The node between `first` and `last` that overwrites `slot` if nothing reads it later.
    pub(super) fn is_written_between(&self, slot: u32, first: u32, last: u32) -> bool {
        self.writers[slot as usize].is_some_and(|writer| first < writer && writer < last)
    }

    /// Whether node `id` adds or multiplies floats in an order that may depend on the layout of its
    /// operands.
    pub(super) fn is_order_sensitive(&self, id: u32) -> bool {
        let node = self.node(id);
        let (op, dtype) = match &node.op {
            Recorded::Reduce { op, .. } => (*op, node.operands.first().map(|x| x.dtype)),
            Recorded::ReduceKernel { op, kernel, .. } => (*op, Some(kernel.output_dtype(0))),
            _ => return false,
        };
        let is_ordered = matches!(op, ReduceOp::Sum | ReduceOp::Prod);
        is_ordered && !self.reassociate && dtype.is_none_or(|dtype| dtype.is_float())
    }

    /// The scalar program that node `id` runs at every index of a shape, if it is such an
    /// operation: elementwise, a copy, or a reduction of one.
    pub(super) fn program(&self, id: u32) -> Option<Program<'a>> {
        let node = self.node(id);
        let x = || node.operands.first().map(|Operand { layout, dtype, .. }| (layout, *dtype));
        Some(match &node.op {
            Recorded::Elementwise { kernel, shape } => {
                Program { kernel, shape: *shape, reduces: false }
            }
            Recorded::ReduceKernel { kernel, shape, .. } => {
                Program { kernel, shape: *shape, reduces: true }
            }
            Recorded::Contiguous {} => {
                let (layout, dtype) = x()?;
                Program { kernel: identity(dtype)?, shape: *layout.shape(), reduces: false }
            }
            Recorded::Reduce { .. } => {
                let (layout, dtype) = x()?;
                Program { kernel: identity(dtype)?, shape: *layout.shape(), reduces: true }
            }
            _ => return None,
        })
    }
}

impl Graph<'_> {
    /// The shape and type of node `id`, if it is a product at whose elements a kernel can run.
    pub(super) fn product(&self, id: u32) -> Option<(Shape, DType)> {
        let node = self.node(id);
        let is_product = matches!(node.op, Recorded::Matmul {} | Recorded::Conv { .. });
        is_product.then_some((node.shape, node.operands.first()?.dtype))
    }
}

/// See [`Graph::program`].
pub(super) struct Program<'a> {
    pub(super) kernel: &'a Arc<Kernel>,
    pub(super) shape: Shape,
    /// Whether its result is reduced.
    pub(super) reduces: bool,
}

/// The kernel that copies.
fn identity(dtype: DType) -> Option<&'static Arc<Kernel>> {
    static TABLE: UnaryTable = UnaryTable::new();
    TABLE.get(dtype, |x| x).ok()
}
