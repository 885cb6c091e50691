//! Describes the nodes of a list and the items of its plan: names, shapes, bytes, FLOPs, lines.

use super::list::{Node, NodeContext, Operand};
use super::plan::Item;
use super::value::{LazyStorage, Value};
use crate::context::OpContext;
use crate::device::DeviceRef;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::op::{Cost, Recorded, RuntimeArgs, TensorSpec};
use crate::picture::{scalar_text, source_line};
use crate::scalar::Scalar;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::sync::Arc;

/// The most characters of a program in one line, and the most lines of the user.
const MAX_PROGRAM: usize = 100;
const MAX_LINES: usize = 4;

/// A list while it is looked at.
#[derive(Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) contexts: &'a [NodeContext],
    pub(super) slots: &'a [Arc<Value>],
    pub(super) params: &'a [Scalar],
    /// The device below.
    pub(super) device: &'a DeviceRef,
}

/// An operation without its elements.
pub(super) struct Facts {
    /// The operation, or the program of a kernel.
    pub(super) program: String,
    pub(super) inputs: Vec<TensorSpec>,
    pub(super) outputs: Vec<TensorSpec>,
    pub(super) cost: Cost,
}

impl<'a> Listed<'a> {
    /// Describes node `id`.
    ///
    /// # Errors
    /// Only if the list is malformed.
    pub(super) fn node(&self, id: u32) -> Result<Facts> {
        let Node { op, operands, params, destination, .. } = &self.nodes[id as usize];
        let params = &self.params[params.start as usize..params.end as usize];
        self.facts(id, op, operands, params, *destination)
    }

    /// Describes an item of a plan for this list.
    ///
    /// # Errors
    /// As [`Listed::node`].
    pub(super) fn item(&self, item: &Item) -> Result<Facts> {
        let root = item.nodes.last().copied().unwrap_or(0);
        let Some(call) = &item.kernel else { return self.node(root) };
        let params: Vec<Scalar> =
            call.params.iter().map(|&place| self.params[place as usize]).collect();
        self.facts(root, &call.op, &call.operands, &params, None)
    }

    fn facts(
        &self,
        id: u32,
        op: &Recorded,
        operands: &[Operand],
        params: &[Scalar],
        destination: Option<u32>,
    ) -> Result<Facts> {
        // The shapes come from views of tensors without elements.
        let tensors = operands
            .iter()
            .map(|Operand { slot, layout, dtype }| {
                Tensor::from_parts(self.stand_in(*slot), *layout, *dtype, self.device.clone())
            })
            .collect::<Result<Vec<_>>>()?;
        let refs: Vec<&Tensor> = tensors.iter().collect();
        let args = RuntimeArgs { params, key: self.contexts[id as usize].key };
        let request = op.op(&refs, args, destination.map(|slot| self.stand_in(slot)));
        Ok(Facts {
            program: program(op, params, request.name()),
            inputs: tensors.iter().map(|x| (*x.shape(), x.dtype())).collect(),
            outputs: request.outputs()?.iter().copied().collect(),
            cost: request.cost()?,
        })
    }

    fn stand_in(&self, slot: u32) -> StorageRef {
        let (len, dtype) = self.slots[slot as usize].elements();
        Arc::new(LazyStorage::pending(len, dtype))
    }

    pub(super) fn context(&self, id: u32) -> Option<OpContext> {
        self.contexts[id as usize].context
    }

    /// The user's lines of these nodes, each once: `train.rs:40, train.rs:41`.
    pub(super) fn lines(&self, nodes: &[u32]) -> String {
        let mut lines: Vec<String> = Vec::new();
        for line in nodes.iter().filter_map(|&id| source_line(self.context(id))) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let more = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        let text = lines.join(", ");
        if more > 0 { format!("{text} and {more} more") } else { text }
    }

    /// Which elements of a leaf exist: its shape, if a view that reads all of them shows it.
    pub(super) fn leaf(&self, slot: u32) -> (Option<Layout>, usize, DType) {
        let (len, dtype) = self.slots[slot as usize].elements();
        let operands = self.nodes.iter().flat_map(|node| &node.operands);
        let whole = operands.filter(|x| x.slot == slot).find_map(|x| row_major(&x.layout, len));
        (whole, len, dtype)
    }
}

/// The row-major layout of `len` elements whose axes `layout` has in some order.
fn row_major(layout: &Layout, len: usize) -> Option<Layout> {
    let mut order: Vec<usize> = (0..layout.ndim()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(layout.strides()[axis]));
    let layout = layout.permute(&order);
    let whole = layout.is_contiguous() && layout.offset() == 0 && layout.numel() == len;
    whole.then_some(layout)
}

/// The operation `name`, in one line: a kernel as an expression.
fn program(op: &Recorded, params: &[Scalar], name: &str) -> String {
    match op {
        Recorded::Elementwise { kernel, .. } => clipped(kernel, params),
        Recorded::ReduceKernel { kernel, op, axes, .. } => {
            format!("{} over {axes:?} of {}", op.name(), clipped(kernel, params))
        }
        Recorded::ElementwiseMany { kernel, shapes } => {
            format!("{} times {}", shapes.len(), clipped(kernel, &[]))
        }
        Recorded::MatmulKernel { kernel } => format!("matmul, then {}", clipped(kernel, params)),
        Recorded::ConvKernel { kernel, .. } => format!("conv, then {}", clipped(kernel, params)),
        Recorded::Reduce { axes, .. } => format!("{name} over {axes:?}"),
        _ => name.to_string(),
    }
}

/// The expression of a kernel, or its beginning and the number of operations.
fn clipped(kernel: &Kernel, params: &[Scalar]) -> String {
    let text = kernel.expression_by(&scalar_text, params);
    if text.chars().count() <= MAX_PROGRAM {
        return text;
    }
    let operations = kernel.nodes().iter().filter(|node| node.op.arity() > 0).count();
    let begin: String = text.chars().take(MAX_PROGRAM - 20).collect();
    format!("{begin}… ({operations} operations)")
}
