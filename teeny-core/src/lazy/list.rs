//! The list of recorded operations that have not run yet.
//!
//! Values are numbered in the order in which the list meets them: each value it only reads (a leaf)
//! and each output of a node has a slot. So two lists of the same work are equal node by node, for
//! any data: plans are found by it.

use super::value::{LazyStorage, Value, value};
use crate::context::OpContext;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::op::{Outputs, Recorded, RuntimeArgs, TensorSpecs};
use crate::random::{self, Key, Source};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::hash::{Hash, Hasher};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

/// A view of the value in a slot.
#[derive(Clone, PartialEq)]
pub(super) struct Operand {
    pub(super) slot: u32,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
}

/// An operation that is about to be recorded.
pub(super) struct Request<'a> {
    pub(super) op: Recorded,
    pub(super) args: RuntimeArgs<'a>,
    pub(super) operands: &'a [&'a Tensor],
    pub(super) destination: Option<Arc<Value>>,
    pub(super) outputs: &'a TensorSpecs,
    pub(super) name: &'static str,
    pub(super) context: Option<OpContext>,
}

/// A recorded operation without its parameters and its line.
#[derive(Clone, PartialEq)]
pub(super) struct Node {
    pub(super) op: Recorded,
    pub(super) operands: Vec<Operand>,
    /// The range of its kernel's parameters in the list. It is the previous node's range if the
    /// parameters are equal.
    pub(super) params: Range<u32>,
    /// The destination of a copy, which the operation may write in place if nothing else refers to
    /// it by then.
    pub(super) destination: Option<u32>,
    /// The slots of its outputs.
    pub(super) outputs: Range<u32>,
    /// The shape of the first one.
    pub(super) shape: Shape,
}

/// The context of a node, which differs between lists of equal nodes.
#[derive(Clone, Copy)]
pub(super) struct NodeContext {
    pub(super) name: &'static str,
    /// The user's operation and line.
    pub(super) context: Option<OpContext>,
    /// The key of a random draw.
    pub(super) key: Option<Key>,
    /// Where it comes from.
    pub(super) source: Option<Source>,
}

/// Nodes in recorded order: each reads leaves, or outputs of earlier nodes.
pub(super) struct List {
    pub(super) nodes: Vec<Node>,
    pub(super) contexts: Vec<NodeContext>,
    /// The values, by slot.
    pub(super) slots: Vec<Arc<Value>>,
    /// The numbers of all kernels.
    pub(super) params: Vec<Scalar>,
    /// The slots that a captured function uploaded.
    pub(super) uploads: Vec<u32>,
    /// A hash of the nodes.
    pub(super) hash: u64,
    /// The number of this list on its device, from 1.
    number: u64,
    /// Bytes of all outputs.
    bytes: usize,
    /// Whether the next node belongs to another list: see [`crate::Device::flush`].
    pub(super) ends: bool,
}

impl Default for List {
    fn default() -> List {
        List::numbered(1)
    }
}

impl List {
    /// An empty list with a number that no other list of its device has.
    pub(super) fn numbered(number: u64) -> List {
        List {
            nodes: Vec::new(),
            contexts: Vec::new(),
            slots: Vec::new(),
            params: Vec::new(),
            uploads: Vec::new(),
            hash: 0,
            number,
            bytes: 0,
            ends: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a node; its outputs, which have no elements until the list runs.
    ///
    /// # Errors
    /// If an operand is a tensor of another device.
    pub(super) fn push(&mut self, request: Request<'_>) -> Result<Outputs> {
        let Request { op, args, operands, destination, outputs, name, context } = request;
        let mut views = Vec::with_capacity(operands.len());
        for x in operands {
            let slot = self.slot(value(x)?);
            views.push(Operand { slot, layout: *x.layout(), dtype: x.dtype() });
        }
        let destination = destination.map(|value| self.slot(&value));
        let params = self.params(&op, args.params);
        let first = self.slots.len() as u32;
        let mut storages = Outputs::new();
        for &(shape, dtype) in outputs.iter() {
            let storage = LazyStorage::pending(shape.numel(), dtype);
            let value = storage.value();
            self.bytes = self.bytes.saturating_add(value.bytes());
            value.set_slot(self.number, self.slots.len() as u32);
            self.slots.push(value.clone());
            storages.push(Arc::new(storage) as StorageRef);
        }
        let range = first..self.slots.len() as u32;
        let shape = outputs.first().map_or(Shape::SCALAR, |(shape, _)| *shape);
        self.hash = hash(self.hash, &op, &views);
        self.nodes.push(Node { op, operands: views, params, destination, outputs: range, shape });
        let source = args.key.map(random::source);
        self.contexts.push(NodeContext { name, context, key: args.key, source });
        Ok(storages)
    }

    /// The slot of a value that is read; a new one if it is a leaf that the list meets first here.
    pub(super) fn slot(&mut self, value: &Arc<Value>) -> u32 {
        if let Some(slot) = value.slot(self.number) {
            return slot;
        }
        let slot = self.slots.len() as u32;
        value.set_slot(self.number, slot);
        self.slots.push(value.clone());
        slot
    }

    /// Where `params` are.
    fn params(&mut self, op: &Recorded, params: &[Scalar]) -> Range<u32> {
        if params.is_empty() {
            return 0..0;
        }
        // One kernel again and again, as in a chain of `x + 1` or in the updates of an optimizer:
        // the number is one number, so that the fused kernel has one parameter.
        if let Some(Node { op: last, params: range, .. }) = self.nodes.last()
            && let (Some(last), Some(kernel)) = (last.kernel(), op.kernel())
            && Arc::ptr_eq(last, kernel)
            && self.params[range.start as usize..range.end as usize] == *params
        {
            return range.clone();
        }
        let start = self.params.len() as u32;
        self.params.extend_from_slice(params);
        start..self.params.len() as u32
    }

    /// For each slot: true if it is an output that a tensor holds.
    pub(super) fn held(&self) -> Vec<bool> {
        let mut held = vec![false; self.slots.len()];
        for slot in self.nodes.iter().flat_map(|node| node.outputs.clone()) {
            held[slot as usize] = self.slots[slot as usize].is_held();
        }
        held
    }

    /// Takes the whole list; the next list reuses the memory of `spare`, which is empty.
    pub(super) fn take(&mut self, spare: List) -> List {
        let next = List { number: self.number + 1, ..spare };
        mem::replace(self, next)
    }

    /// An empty list in the memory of this one.
    pub(super) fn cleared(self) -> List {
        let List { mut nodes, mut contexts, mut slots, mut params, .. } = self;
        nodes.clear();
        contexts.clear();
        slots.clear();
        params.clear();
        List { nodes, contexts, slots, params, ..List::default() }
    }
}

/// The hash of a list and one node more. It need not tell apart all nodes: lists that are found by
/// it are compared.
pub(super) fn hash(before: u64, op: &Recorded, operands: &[Operand]) -> u64 {
    let mut hash = Mixer(before);
    mem::discriminant(op).hash(&mut hash);
    if let Some(kernel) = op.kernel() {
        hash.write_u64(kernel.content_hash());
    }
    for Operand { slot, layout, .. } in operands {
        hash.write_u64(u64::from(*slot) << 32 ^ layout.offset() as u64);
        for (&size, &stride) in layout.shape().iter().zip(layout.strides()) {
            hash.write_u64((size as u64) << 32 ^ stride as u64);
        }
    }
    hash.0
}

/// A multiplicative hash of words.
pub(super) struct Mixer(pub(super) u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
