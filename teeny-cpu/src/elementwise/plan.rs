//! The plan of a kernel: where each node's value is kept, and which nodes run together.
//!
//! The naive form gives every node a buffer as large as the result. The steps from there:
//!
//! 1. Nodes are evaluated tile by tile, so that a value is one *slot* of a tile.
//! 2. Register allocation over the slots: a slot is free again once the last reader has run.
//! 3. An output is computed in its own memory, if its dtype is stored as it is computed.
//! 4. Neighbouring nodes with loops over vectors of f32 form a *group*, whose values are kept in
//!    *blocks* of 512 elements (`blocks`).
//! 5. Nodes that are part of a larger loop are *inlined* and have no value: nodes of a pattern
//!    (`patterns`), and a comparison that only one `where` reads.

use super::loops::Loop;
use super::patterns::{self, Match};
use std::cell::Cell;
use teeny_core::DType;
use teeny_core::kernel::{Comparison, Id, Kernel, OpCode, OpNode};

/// Where a node's value is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Location {
    /// A slot: scratch memory for a tile.
    Slot(u16),
    /// A block of f32: only nodes of the same group read it.
    Block(u16),
    /// The output's own memory.
    Output(u8),
    /// Not at all: the loop of another node computes it.
    Inlined,
}

/// The locations of a kernel's nodes.
#[derive(Default)]
pub(crate) struct Plan {
    pub(super) locations: Vec<Location>,
    /// How many slots and blocks there are.
    pub(super) slots: usize,
    /// The last node that reads each node; `u32::MAX` for an output.
    last_reader: Vec<u32>,
    /// Slots whose last reader has run.
    free: Vec<u16>,
    /// Whether outputs are written to memory; otherwise the first one's value is only evaluated.
    pub(super) to_memory: bool,
    /// How many nodes and outputs read each node.
    readers: Vec<u32>,
    matches: Vec<Match>,
    /// Nodes that are computed by the loop of another node.
    inlined: Vec<bool>,
    /// The group of each node; 0 for nodes that belong to none.
    pub(super) groups: Vec<u32>,
}

thread_local! {
static PLAN: Cell<Option<Box<Plan>>> = const { Cell::new(None) };}

impl Plan {
    /// Calls `f` with the plan of `kernel`; `to_memory` if outputs are written; otherwise the
    /// first output is only evaluated.
    pub(crate) fn with<R>(kernel: &Kernel, to_memory: bool, f: impl FnOnce(&Plan) -> R) -> R {
        let mut plan = PLAN.take().unwrap_or_default();
        plan.make(kernel, to_memory);
        let result = f(&plan);
        PLAN.set(Some(plan));
        result
    }

    fn make(&mut self, kernel: &Kernel, to_memory: bool) {
        let nodes = kernel.nodes();
        self.locations.clear();
        self.free.clear();
        self.last_reader.clear();
        self.last_reader.resize(nodes.len(), 0);
        self.slots = 0;
        self.to_memory = to_memory;
        patterns::count_readers(kernel, &mut self.readers);
        for (id, node) in nodes.iter().enumerate() {
            for &source in node.sources() {
                self.last_reader[source as usize] = id as u32;
            }
        }
        for &output in kernel.outputs() {
            self.last_reader[output as usize] = u32::MAX;
        }
        self.inlined.clear();
        self.inlined.resize(nodes.len(), false);
        self.matches.clear();
        patterns::find(nodes, &self.readers, &mut self.matches, &mut self.inlined);
        for &Match { root, input, .. } in &self.matches {
            self.last_reader[input as usize] =
                self.last_reader[input as usize].max(u32::from(root));
        }
        for (id, node) in nodes.iter().enumerate() {
            if let Some((_, comparison)) = self.inlined_comparison(nodes, node) {
                self.inlined[node.src[0] as usize] = true;
                for &source in comparison.sources() {
                    self.last_reader[source as usize] =
                        self.last_reader[source as usize].max(id as u32);
                }
            }
        }
        self.group(nodes);
        for (id, node) in nodes.iter().enumerate() {
            let out = kernel.outputs().iter().position(|&o| o as usize == id);
            let mut allocate = || {
                self.free.pop().unwrap_or_else(|| {
                    self.slots += 1;
                    self.slots as u16 - 1
                })
            };
            let same_group = self
                .groups
                .get(self.last_reader[id] as usize)
                .is_some_and(|&group| group > 0 && group == self.groups[id]);
            let location = match out {
                _ if self.inlined[id] => Location::Inlined,
                Some(i) if to_memory && node.op.arity() > 0 && !node.dtype.is_half() => {
                    Location::Output(i as u8)
                }
                None if same_group => Location::Block(allocate()),
                Some(_) | None => Location::Slot(allocate()),
            };
            self.locations.push(location);
            // Only now that the node has a location: no loop writes over its operands.
            let compared = self
                .inlined_comparison(nodes, node)
                .map_or(&[][..], |(_, condition)| condition.sources());
            let matched = self.pattern(id).map(|found| found.input);
            for &source in node.sources().iter().chain(compared).chain(&matched) {
                if let (true, Location::Slot(slot) | Location::Block(slot)) = (
                    self.last_reader[source as usize] == id as u32,
                    self.locations[source as usize],
                ) {
                    self.free.push(slot);
                    self.last_reader[source as usize] = u32::MAX;
                }
            }
        }
    }

    /// Numbers the groups: neighbours that have a loop over vectors of f32. Every other node has
    /// number 0. It ends a group, unless it is a number or inlined.
    fn group(&mut self, nodes: &[OpNode]) {
        let mut group = 1;
        self.groups.clear();
        for (id, node) in nodes.iter().enumerate() {
            let number = match node.op {
                _ if self.inlined[id] => 0,
                OpCode::Param(_) | OpCode::Const(_) => 0,
                _ if self.body(nodes, id).is_some() => group,
                _ => {
                    group += 1;
                    0
                }
            };
            self.groups.push(number);
        }
    }

    /// The loop of node `id` over vectors of f32, if it has one.
    pub(super) fn body(&self, nodes: &[OpNode], id: usize) -> Option<Loop> {
        let node = &nodes[id];
        if let Some(found) = self.pattern(id) {
            return Some(found.pattern);
        }
        if let Some((comparison, _)) = self.inlined_comparison(nodes, node) {
            return Some(Loop::select_by(comparison));
        }
        if node.dtype.compute() == DType::F32 { Loop::of_op(node.op) } else { None }
    }

    /// Whether no node needs memory for a whole tile. The output of a plan without outputs in
    /// memory may need it even if it is a leaf: a number is repeated there.
    pub(super) fn is_blocks_only(&self, nodes: &[OpNode]) -> bool {
        self.to_memory
            && nodes.iter().zip(&self.locations).zip(&self.groups).all(
                |((node, location), &group)| match location {
                    _ if node.op.arity() == 0 => node.dtype == DType::F32,
                    Location::Slot(_) => false,
                    Location::Block(_) | Location::Inlined => true,
                    Location::Output(_) => group > 0,
                },
            )
    }

    /// Whether all these nodes are computed in the memory of outputs.
    pub(super) fn computes_in_outputs(&self, outputs: &[Id]) -> bool {
        outputs.iter().all(|&id| matches!(self.locations[id as usize], Location::Output(_)))
    }

    /// The pattern whose value node `id` is.
    pub(super) fn pattern(&self, id: usize) -> Option<Match> {
        self.matches.iter().copied().find(|found| found.root as usize == id)
    }

    /// The comparison of f32 that only `node`, a `where` of f32, reads: one loop computes both.
    fn inlined_comparison<'k>(
        &self,
        nodes: &'k [OpNode],
        node: &OpNode,
    ) -> Option<(Comparison, &'k OpNode)> {
        if node.op != OpCode::Where || node.dtype != DType::F32 {
            return None;
        }
        let condition = &nodes[node.src[0] as usize];
        let OpCode::Compare(comparison) = condition.op else { return None };
        let read_once = self.readers[node.src[0] as usize] == 1;
        (read_once && nodes[condition.src[0] as usize].dtype == DType::F32)
            .then_some((comparison, condition))
    }
}
