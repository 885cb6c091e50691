//! The graph: nodes, edges and values.
//!
//! A [`Node`] is one recorded operation (or a leaf). Its id is larger than its inputs' ids, so
//! decreasing ids are a topological order. Nodes point to their inputs only; the last tensor that
//! depends on a node keeps it alive.

use crate::detach_points::Mask;
use crate::hook_list::Hooks;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use teeny_core::context::OpContext;
use teeny_core::op::PerOutput;
use teeny_core::{DType, Layout, Result, Shape, Tensor};

/// Computes the gradients of an operation's inputs from the gradients of its outputs; `None` for an
/// input that needs none. Works on tensors of the inner device.
pub(crate) type Backward =
    Box<dyn Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync>;

/// The kind of a node.
pub(crate) enum NodeKind {
    /// Where gradients end and are kept.
    Leaf {
        /// The name it has in messages.
        name: Option<Arc<str>>,
    },
    /// A recorded operation.
    Op {
        /// The operation of the device, for pictures: the user's operation may consist of several.
        name: &'static str,
        backward: Backward,
    },
}

/// The shape and type of one output as it was produced: row-major, alone in its storage.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    pub shape: Shape,
    pub dtype: DType,
}

/// One output of a node, which a storage holds.
#[derive(Clone)]
pub(crate) struct Handle {
    pub node: Arc<Node>,
    pub output: u8,
}

impl Handle {
    pub fn value(&self) -> &Value {
        &self.node.values[self.output as usize]
    }

    /// The key of this value's gradient.
    pub fn key(&self) -> (u64, u8) {
        (self.node.id, self.output)
    }
}

/// An input of an operation: the value, and the view of it that the operation saw (`None`: the
/// value as it was produced).
pub(crate) struct Edge {
    pub from: Handle,
    pub view: Option<Box<Layout>>,
}

/// One vertex of the graph.
pub(crate) struct Node {
    pub id: u64,
    pub kind: NodeKind,
    pub context: Option<OpContext>,
    pub values: PerOutput<Value>,
    /// One per input; `None` for an input that needs no gradient.
    pub edges: Vec<Option<Edge>>,
    pub mask: Mask,
    /// Keep the gradient of this node although it is not a leaf.
    pub retain: AtomicBool,
    /// True once an operation has read a value of this node.
    used: AtomicBool,
    pub hooks: Hooks,
}

impl Value {
    /// The form of `x`.
    pub fn of(x: &Tensor) -> Value {
        Value { shape: *x.shape(), dtype: x.dtype() }
    }
}

/// Ids rise through the whole process, so that nodes of several devices can be compared too.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Node {
    pub fn leaf(value: Value, context: Option<OpContext>, name: Option<Arc<str>>) -> Node {
        static LEAVES: AtomicU64 = AtomicU64::new(0);
        let mask = 1 << (LEAVES.fetch_add(1, Ordering::Relaxed) % Mask::BITS as u64);
        Node::new(NodeKind::Leaf { name }, PerOutput::one(value), Vec::new(), mask, context)
    }

    pub fn op(
        name: &'static str,
        backward: Backward,
        values: PerOutput<Value>,
        edges: Vec<Option<Edge>>,
        mask: Mask,
        context: Option<OpContext>,
    ) -> Node {
        Node::new(NodeKind::Op { name, backward }, values, edges, mask, context)
    }

    fn new(
        kind: NodeKind,
        values: PerOutput<Value>,
        edges: Vec<Option<Edge>>,
        mask: Mask,
        context: Option<OpContext>,
    ) -> Node {
        Node {
            id: next_id(),
            kind,
            context,
            values,
            edges,
            mask,
            retain: AtomicBool::new(false),
            used: AtomicBool::new(false),
            hooks: Hooks::default(),
        }
    }

    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, NodeKind::Leaf { .. })
    }

    /// Records that an operation reads a value of this node.
    pub fn mark_used(&self) {
        // threads share parameters: skip the write of an equal value
        if !self.is_used() {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether [`Node::mark_used`] was called.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// The name of a leaf, if it has one.
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Leaf { name } => name.as_deref(),
            NodeKind::Op { .. } => None,
        }
    }

    /// How messages call this node: `` `fc1.weight` ``, or its operation and line.
    pub fn describe(&self) -> String {
        let place = self
            .context
            .map(|c| format!(" at {}:{}", c.location.file(), c.location.line()))
            .unwrap_or_default();
        match &self.kind {
            NodeKind::Leaf { name: Some(name) } => format!("`{name}`"),
            NodeKind::Leaf { name: None } => {
                format!("the leaf {} made{place}", self.values[0].shape)
            }
            NodeKind::Op { .. } => format!(
                "the {} {}{place}",
                self.context.map_or("result", |c| c.op),
                self.values[0].shape
            ),
        }
    }
}

/// Dropping the last handle of a long chain must not recurse into it: a million nodes would
/// overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut orphans = std::mem::take(&mut self.edges);
        while let Some(edge) = orphans.pop() {
            // `into_inner` decides the race between two threads that drop their last handles at
            // once: exactly one gets the node.
            if let Some(mut node) = edge.and_then(|e| Arc::into_inner(e.from.node)) {
                orphans.append(&mut node.edges);
            }
        }
    }
}
