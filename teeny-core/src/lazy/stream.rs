//! The list of recorded operations that have not run yet.

use super::value::{LazyStorage, Value};
use crate::context::OpContext;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::op::Recorded;
use crate::storage::downcast;
use crate::tensor::Tensor;
use std::sync::Arc;

/// A view of a value.
pub(super) struct Operand {
    pub(super) value: Arc<Value>,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
}

impl Operand {
    /// The view that `x`, a tensor of [`super::Lazy`], is.
    ///
    /// # Errors
    /// If it is a tensor of another device.
    pub(super) fn of(x: &Tensor) -> Result<Operand> {
        let value = downcast::<LazyStorage>(x.storage())?.value().clone();
        Ok(Operand { value, layout: *x.layout(), dtype: x.dtype() })
    }
}

/// A recorded operation.
pub(super) struct Node {
    pub(super) op: Recorded,
    pub(super) name: &'static str,
    pub(super) operands: Vec<Operand>,
    /// The destination of a copy, which the operation may write in place if nothing else refers to
    /// it by then.
    pub(super) destination: Option<Arc<Value>>,
    pub(super) outputs: Vec<Arc<Value>>,
    /// The user's operation and line.
    pub(super) context: Option<OpContext>,
}

/// Nodes in recorded order: each reads values that are ready, or outputs of those before it.
#[derive(Default)]
pub(super) struct Stream {
    nodes: Vec<Node>,
    /// Bytes of all outputs.
    bytes: usize,
    /// Whether the next node belongs to another list: see [`crate::Device::flush`].
    pub(super) ends: bool,
}

impl Stream {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a node whose outputs take so many bytes.
    pub(super) fn push(&mut self, node: Node, bytes: usize) {
        self.nodes.push(node);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Takes the nodes whose results somebody needs, and how many others there were. No operation
    /// can be recorded meanwhile: what is not needed now never will be.
    pub(super) fn take(&mut self) -> (Vec<Node>, usize) {
        let mut nodes = std::mem::take(self).nodes;
        let all = nodes.len();
        // Readers before what they read.
        nodes.reverse();
        nodes.retain(|node| {
            let is_needed = node.outputs.iter().any(|value| value.is_needed());
            if is_needed {
                let operands = node.operands.iter().map(|operand| &operand.value);
                operands.chain(&node.destination).for_each(|value| value.mark_read());
            }
            is_needed
        });
        nodes.reverse();
        let dead = all - nodes.len();
        (nodes, dead)
    }
}
