//! Properties of a row program alone: its inputs, and the purpose of each level.

use crate::codegen::expressions::quad_expression;
use crate::codegen::types;
use teeny_core::kernel::{Extent, Fold};
use teeny_core::{DType, Kernel, OpCode, OpNode};

/// Bytes of workgroup memory that every device has.
const WORKGROUP_BYTES: usize = 16 << 10;

/// The nodes that are the length of the row, and the types they are computed in.
pub(crate) fn lengths_of(program: &Kernel) -> impl Iterator<Item = (usize, DType)> + '_ {
    let is_length = |(_, node): &(usize, &OpNode)| node.op == OpCode::Length;
    let nodes = program.nodes().iter().enumerate();
    nodes.filter(is_length).map(|(id, node)| (id, node.dtype.compute()))
}

/// The inputs and outputs of a program.
pub(crate) struct Reads {
    /// The inputs, ascending.
    pub inputs: Vec<usize>,
    /// The type of the positions at which it reads inputs, if it does.
    pub position: Option<DType>,
    /// The input that holds those positions, if one does.
    pub position_input: Option<usize>,
    pub has_element_outputs: bool,
}

impl Reads {
    pub fn of(program: &Kernel) -> Reads {
        let nodes = program.nodes();
        let at = nodes.iter().find(|node| node.op == OpCode::At);
        let position = at.map(|node| &nodes[node.src[1] as usize]);
        let input =
            |node: &OpNode| if let OpCode::Input(i) = node.op { Some(i.into()) } else { None };
        let position_input = position.and_then(|node| match node.op {
            OpCode::Where => node.src[1..].iter().find_map(|&id| input(&nodes[id as usize])),
            _ => input(node),
        });
        let inputs = (0..program.inputs().len()).filter(|&i| program.reads(i)).collect();
        let is_element = |o| program.output_extent(o) == Extent::Element;
        let has_element_outputs = (0..program.outputs().len()).any(is_element);
        let position = position.map(|node| node.dtype);
        Reads { inputs, position, position_input, has_element_outputs }
    }
}

/// Whether a workgroup can hold the parts of all folds of `program`, and its positions are of one
/// type in WGSL.
pub(crate) fn is_supported(program: &Kernel, threads: usize) -> bool {
    let nodes = program.nodes();
    let mut positions = nodes.iter().filter(|node| node.op == OpCode::At);
    let position = |node: &OpNode| types::value(nodes[node.src[1] as usize].dtype);
    let same = match positions.next() {
        Some(first) => positions.all(|node| position(node) == position(first)),
        None => true,
    };
    let fold_bytes: usize = nodes
        .iter()
        .filter(|node| matches!(node.op, OpCode::Fold(_)))
        .map(|node| types::accumulation(node.dtype).size().next_multiple_of(8))
        .sum();
    same && fold_bytes * threads <= WORKGROUP_BYTES
}

/// Whether subgroup operations exist for all folds of `program`.
pub(crate) fn folds_by_subgroups(program: &Kernel) -> bool {
    let fits = |node: &OpNode| {
        !matches!(node.op, OpCode::Fold(_)) || types::accumulation(node.dtype).size() == 4
    };
    program.nodes().iter().all(fits)
}

/// Whether all elements of `program` are computed in f32 by operations that vectors have.
pub(super) fn has_quads(program: &Kernel, extents: &[Extent]) -> bool {
    let nodes = program.nodes();
    let is_f32 = |id: usize| types::value(nodes[id].dtype) == "f32";
    let fits = |id: usize| {
        let node = &nodes[id];
        let sources = || node.sources().iter().all(|&source| is_f32(usize::from(source)));
        let [a, b] = [node.src[0], node.src[1]].map(|source| format!("v{source}"));
        match node.op {
            OpCode::Fold(fold) => !matches!(fold, Fold::Any | Fold::All) && is_f32(id),
            _ if extents[id] == Extent::Row => true,
            OpCode::Input(_) => is_f32(id),
            op => is_f32(id) && sources() && quad_expression(op, &a, &b).is_some(),
        }
    };
    let is_element = |o: &usize| program.output_extent(*o) == Extent::Element;
    (0..nodes.len()).all(fits)
        && (0..program.outputs().len())
            .filter(is_element)
            .all(|o| is_f32(program.outputs()[o].into()))
}

/// The operations of single elements.
pub(crate) fn element_operations(program: &Kernel) -> usize {
    let is_operation =
        |(node, extent): &(&OpNode, &Extent)| **extent == Extent::Element && node.op.arity() > 0;
    program.nodes().iter().zip(&program.extents()).filter(is_operation).count()
}

/// The number of levels whose elements are visited, which have a fold or an output.
pub(crate) fn visits(program: &Kernel) -> u32 {
    let levels = program.levels();
    let folded = (0..levels.len())
        .filter(|&id| matches!(program.nodes()[id].op, OpCode::Fold(_)))
        .map(|id| levels[id] - 1);
    let stored = (0..program.outputs().len())
        .filter(|&o| program.output_extent(o) == Extent::Element)
        .map(|o| levels[program.outputs()[o] as usize]);
    folded.chain(stored).fold(0u64, |found, level| found | 1 << level.min(63)).count_ones()
}

/// The folds of the elements of level `level`.
pub(super) fn folds(program: &Kernel, levels: &[usize], level: usize) -> Vec<usize> {
    (0..levels.len())
        .filter(|&id| matches!(program.nodes()[id].op, OpCode::Fold(_)) && levels[id] == level + 1)
        .collect()
}

/// The element outputs of level `level`.
pub(super) fn stored(program: &Kernel, levels: &[usize], level: usize) -> Vec<usize> {
    (0..program.outputs().len())
        .filter(|&o| {
            let id = program.outputs()[o] as usize;
            program.output_extent(o) == Extent::Element && levels[id] == level
        })
        .collect()
}

/// The nodes that the elements of level `level` are computed for, ascending.
pub(super) fn targets(program: &Kernel, levels: &[usize], level: usize) -> Vec<usize> {
    let folded = folds(program, levels, level).into_iter().map(|id| program.nodes()[id].src[0]);
    let written = stored(program, levels, level).into_iter().map(|o| program.outputs()[o]);
    let mut all: Vec<usize> = folded.chain(written).map(usize::from).collect();
    all.sort_unstable();
    all.dedup();
    all
}
