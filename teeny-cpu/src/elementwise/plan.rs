//! The plan of a kernel: where each node's value is kept, and which nodes run together.
//!
//! The naive form gives every node a buffer as large as the result. The steps from there:
//!
//! 1. Nodes are evaluated tile by tile, so that a value is one *slot* of a tile.
//! 2. Register allocation over the slots: a slot is free again once the last reader has run.
//! 3. An output is computed in its own memory, if its dtype is stored as it is computed.
//! 4. Neighbouring nodes with loops over vectors of one float type form a *group*, whose values are kept in
//!    *blocks* of 512 elements (`blocks`).
//! 5. Nodes that are part of a larger loop are *inlined* and have no value: nodes of a pattern
//!    (`patterns`), and a comparison that only one `where` reads.

use super::patterns::{self, Match};
use crate::kernel_cache::{Cache, cached};
use crate::loops::Loop;
use crate::machine::instructions;
use std::cell::Cell;
use std::sync::Arc;
use teeny_core::DType;
use teeny_core::kernel::{Comparison, Id, Kernel, OpCode, OpNode};

/// Where a node's value is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Location {
    /// A slot: scratch memory for a tile.
    Slot(u16),
    /// A block: only nodes of the same group read it.
    Block(u16),
    /// The output's own memory.
    Output(u8),
    /// Not at all: the loop of another node computes it.
    Inlined,
}

/// The locations of a kernel's nodes.
#[derive(Default)]
pub(crate) struct LocationPlan {
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
    /// How many of them are a `where` of this condition, of the type that it compares.
    choices: Vec<u32>,
    matches: Vec<Match>,
    /// Nodes that are computed by the loop of another node.
    inlined: Vec<bool>,
    /// The group of each node; 0 for nodes that belong to none.
    pub(super) groups: Vec<u32>,
}

thread_local! {
    /// The plans of earlier kernels: with outputs in memory, and only evaluated.
    static WRITTEN: Cache<LocationPlan, 64> = const { [const { Cell::new(None) }; 64] };
    static EVALUATED: Cache<LocationPlan, 64> = const { [const { Cell::new(None) }; 64] };
}

impl LocationPlan {
    /// Calls `f` with the plan of `kernel`; `to_memory` if outputs are written; otherwise the
    /// first output is only evaluated.
    pub(crate) fn with<R>(kernel: &Arc<Kernel>, to_memory: bool, f: impl FnOnce(&Self) -> R) -> R {
        let plans = if to_memory { &WRITTEN } else { &EVALUATED };
        cached(plans, kernel, || LocationPlan::of(kernel, to_memory), f)
    }

    fn of(kernel: &Kernel, to_memory: bool) -> LocationPlan {
        let nodes = kernel.nodes();
        let mut plan = LocationPlan {
            to_memory,
            last_reader: vec![0; nodes.len()],
            readers: patterns::count_readers(kernel),
            choices: vec![0; nodes.len()],
            inlined: vec![false; nodes.len()],
            ..LocationPlan::default()
        };
        for node in nodes.iter().filter(|node| node.op == OpCode::Where) {
            let [condition, a, b] = node.src;
            let compared = nodes[condition as usize].src[0] as usize;
            let like = nodes[compared].dtype.compute() == node.dtype.compute();
            if like && a != condition && b != condition {
                plan.choices[condition as usize] += 1;
            }
        }
        for (id, node) in nodes.iter().enumerate() {
            for &source in node.sources() {
                plan.last_reader[source as usize] = id as u32;
            }
        }
        for &output in kernel.outputs() {
            plan.last_reader[output as usize] = u32::MAX;
        }
        patterns::find(nodes, &plan.readers, &mut plan.matches, &mut plan.inlined);
        for &Match { root, input, .. } in &plan.matches {
            plan.last_reader[input as usize] =
                plan.last_reader[input as usize].max(u32::from(root));
        }
        for (id, node) in nodes.iter().enumerate() {
            if let Some((_, comparison)) = plan.inlined_comparison(nodes, node) {
                plan.inlined[node.src[0] as usize] = true;
                for &source in comparison.sources() {
                    plan.last_reader[source as usize] =
                        plan.last_reader[source as usize].max(id as u32);
                }
            }
        }
        plan.group(nodes);
        for (id, node) in nodes.iter().enumerate() {
            let out = kernel.outputs().iter().position(|&o| o as usize == id);
            let mut allocate = || {
                plan.free.pop().unwrap_or_else(|| {
                    plan.slots += 1;
                    plan.slots as u16 - 1
                })
            };
            let same_group = plan
                .groups
                .get(plan.last_reader[id] as usize)
                .is_some_and(|&group| group > 0 && group == plan.groups[id]);
            let location = match out {
                _ if plan.inlined[id] => Location::Inlined,
                // A 16-bit output that a node reads has to stay unrounded for it.
                Some(i)
                    if to_memory
                        && node.op.arity() > 0
                        && (!node.dtype.is_half()
                            || plan.groups[id] > 0 && plan.readers[id] == 1) =>
                {
                    Location::Output(i as u8)
                }
                None if same_group => Location::Block(allocate()),
                Some(_) | None => Location::Slot(allocate()),
            };
            plan.locations.push(location);
            // Only now that the node has a location: no loop writes over its operands.
            let compared = plan
                .inlined_comparison(nodes, node)
                .map_or(&[][..], |(_, condition)| condition.sources());
            let matched = plan.pattern(id).map(|found| found.input);
            for &source in node.sources().iter().chain(compared).chain(&matched) {
                let at = source as usize;
                // Elements of 16 bits lie closer together than what a later node of the group would
                // write over them, whose blocks then overtake those that are still to be read.
                let is_overtaken = plan.groups[id] > 0 && nodes[at].dtype.is_half();
                if let (true, Location::Slot(slot) | Location::Block(slot)) =
                    (plan.last_reader[at] == id as u32, plan.locations[at])
                {
                    if !(is_overtaken && nodes[at].op.arity() == 0) {
                        plan.free.push(slot);
                    }
                    plan.last_reader[at] = u32::MAX;
                }
            }
        }
        plan
    }

    /// Numbers the groups: neighbours that have a loop over vectors of one type. Every other node has
    /// number 0. It ends a group, unless it is a number or inlined.
    fn group(&mut self, nodes: &[OpNode]) {
        let (mut group, mut dtype) = (1, DType::F32);
        for (id, node) in nodes.iter().enumerate() {
            let number = match node.op {
                _ if self.inlined[id] => 0,
                OpCode::Param(_) | OpCode::Const(_) => 0,
                _ if self.body(nodes, id).is_some() => {
                    if node.dtype.compute() != dtype {
                        (group, dtype) = (group + 1, node.dtype.compute());
                    }
                    group
                }
                _ => {
                    group += 1;
                    0
                }
            };
            self.groups.push(number);
        }
    }

    /// The loop of node `id` over vectors, if it has one.
    pub(super) fn body(&self, nodes: &[OpNode], id: usize) -> Option<Loop> {
        let node = &nodes[id];
        if let Some(found) = self.pattern(id) {
            return Some(found.pattern);
        }
        if let Some((comparison, _)) = self.inlined_comparison(nodes, node) {
            return Some(Loop::select_by(comparison));
        }
        match node.op {
            _ if !node.dtype.is_float() => None,
            OpCode::Cast => self.cast(nodes, node),
            op => Loop::of_op(op),
        }
    }

    /// The loop of a cast between types that are computed in f32.
    fn cast(&self, nodes: &[OpNode], node: &OpNode) -> Option<Loop> {
        let source = &nodes[node.src[0] as usize];
        if source.dtype.compute() != DType::F32 || node.dtype.compute() != DType::F32 {
            return None;
        }
        let is_rounded = matches!(source.op, OpCode::Input(_) | OpCode::Cast);
        let round = |dtype: DType| match dtype {
            DType::BF16 => Loop::RoundToBf16,
            DType::F16 => Loop::RoundToF16,
            _ => Loop::Copy,
        };
        match (source.dtype.is_half() && !is_rounded, node.dtype) {
            (false, to) => Some(round(to)),
            (true, DType::F32) => Some(round(source.dtype)),
            (true, to) if to == source.dtype => Some(round(to)),
            (true, _) => None,
        }
    }

    /// Whether no node needs memory for a whole tile. The output of a plan without outputs in
    /// memory may need it even if it is a leaf: a number is repeated there.
    pub(super) fn is_blocks_only(&self, nodes: &[OpNode]) -> bool {
        self.to_memory
            && nodes.iter().zip(&self.locations).zip(&self.groups).all(
                |((node, location), &group)| match location {
                    _ if node.op.arity() == 0 => node.dtype.is_float(),
                    Location::Slot(_) => false,
                    Location::Block(_) | Location::Inlined => true,
                    Location::Output(_) => group > 0,
                },
            )
    }

    /// Whether all nodes are operations of f32 or f64 that take as long as moving their operands.
    pub(super) fn is_cheap(&self, nodes: &[OpNode]) -> bool {
        nodes.iter().enumerate().all(|(id, node)| {
            let in_loop = node.op.arity() == 0 || self.inlined[id];
            node.dtype == node.dtype.compute()
                && (in_loop || self.body(nodes, id).is_some_and(instructions::is_cheap))
        })
    }

    /// Whether all these nodes are computed in the memory of outputs.
    pub(super) fn computes_in_outputs(&self, outputs: &[Id]) -> bool {
        outputs.iter().all(|&id| matches!(self.locations[id as usize], Location::Output(_)))
    }

    /// The pattern whose value node `id` is.
    pub(super) fn pattern(&self, id: usize) -> Option<Match> {
        self.matches.iter().copied().find(|found| found.root as usize == id)
    }

    /// The comparison of floats that only `node`, a `where` of the same type, reads, and others like
    /// it: one loop computes both. Comparing again takes less time than storing bools.
    fn inlined_comparison<'k>(
        &self,
        nodes: &'k [OpNode],
        node: &OpNode,
    ) -> Option<(Comparison, &'k OpNode)> {
        if node.op != OpCode::Where || !node.dtype.is_float() {
            return None;
        }
        let condition = &nodes[node.src[0] as usize];
        let OpCode::Compare(comparison) = condition.op else { return None };
        let compared = nodes[condition.src[0] as usize].dtype.compute();
        let by_choices = self.choices[node.src[0] as usize] == self.readers[node.src[0] as usize];
        (by_choices && compared == node.dtype.compute()).then_some((comparison, condition))
    }
}
