//! Groups of nodes that run as one kernel.
//!
//! Nodes are visited from the last to the first. A node joins the groups of its readers if they can
//! compute its value where they read it; otherwise it starts a new group. All nodes of a group run
//! at the position of its last node, the root. The roots of other groups that it reads come before,
//! and its other inputs are held and have no other reader, so they are available.

use super::cost::{Candidate, weight};
use super::graph::{Graph, Program};
use super::list::Operand;
use crate::kernel::{Kernel, MAX_INPUTS, MAX_OUTPUTS};
use crate::layout::Layout;
use crate::shape::Shape;
use std::ops::Range;

/// The most operations of a program, and the most run-time parameters.
const MAX_OPERATIONS: usize = 1024;
const MAX_PARAMS: usize = 256;

/// Nodes that run as one kernel, or one that does not.
pub(super) struct Group {
    /// The shape at whose indices the kernel runs; None if the root has no kernel.
    pub(super) shape: Option<Shape>,
    /// Whether the root reduces.
    pub(super) reduces: bool,
    /// Whether the root must read its operand from memory: a sum whose last bits would be others.
    is_order_sensitive: bool,
    /// A matrix product or a convolution, at whose elements the kernel runs.
    pub(super) product: Option<u32>,
    /// Last node first.
    pub(super) members: Vec<Member>,
    /// Slots of members other than the root that are stored too.
    pub(super) extra: Vec<u32>,
    /// The inputs of the kernel.
    inputs: Vec<Operand>,
    /// The operations of the members' programs, and where their parameters are.
    size: usize,
    params: Vec<Range<u32>>,
}

/// A node of a group.
pub(super) struct Member {
    pub(super) node: u32,
    /// The views of its value, row-major, through which the group reads it.
    pub(super) views: Vec<Layout>,
}

impl Group {
    /// The node in whose place the group runs.
    pub(super) fn root(&self) -> u32 {
        self.members[0].node
    }

    /// The member that is `node`.
    pub(super) fn member(&self, node: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.node == node)
    }
}

/// The groups of all needed nodes, in the order of their roots. A node is in several groups if each
/// of them computes its value.
pub(super) fn fuse(graph: &Graph<'_>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // The groups of each node.
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    for id in (0..graph.nodes.len() as u32).rev().filter(|&id| graph.is_live(id)) {
        let program = graph.program(id);
        let taken = match &program {
            Some(program) => take(graph, &mut groups, &places, id, program),
            None => take_product(graph, &mut groups, &places, id),
        };
        places[id as usize] = taken.unwrap_or_else(|| {
            groups.push(alone(graph, id, program));
            vec![groups.len() - 1]
        });
    }
    groups.reverse();
    groups
}

/// The group of one node.
fn alone(graph: &Graph<'_>, id: u32, program: Option<Program<'_>>) -> Group {
    let views = program.iter().map(|program| Layout::contiguous(program.shape)).collect();
    Group {
        shape: program.as_ref().map(|program| program.shape),
        reduces: program.as_ref().is_some_and(|program| program.reduces),
        is_order_sensitive: graph.is_order_sensitive(id),
        product: None,
        members: vec![Member { node: id, views }],
        extra: Vec::new(),
        inputs: distinct(graph.node(id).operands.iter().cloned()),
        size: program.map_or(0, |program| operations(program.kernel)),
        params: vec![graph.node(id).params.clone()],
    }
}

/// The change of one group when it takes a node.
struct Change {
    group: usize,
    views: Vec<Layout>,
    inputs: Vec<Operand>,
}

/// Fuses node `id` into the groups of all its readers and returns their indices; None if it must be
/// stored.
fn take(
    graph: &Graph<'_>,
    groups: &mut [Group],
    places: &[Vec<usize>],
    id: u32,
    program: &Program<'_>,
) -> Option<Vec<usize>> {
    let readers = graph.readers(id);
    if program.reduces || readers.is_empty() {
        return None;
    }
    let node = graph.node(id);
    let held: Vec<u32> = node.outputs.clone().filter(|&slot| graph.held[slot as usize]).collect();
    // By group: the readers in it.
    let of_groups = readers
        .iter()
        .flat_map(|reader| places[reader.0 as usize].iter().map(move |&group| (group, *reader)));
    let mut targets: Vec<(usize, (u32, u32))> = of_groups.collect();
    targets.sort_by_key(|(group, _)| *group);
    let targets = || targets.chunk_by(|(one, _), (other, _)| one == other);
    if !held.is_empty() && targets().nth(1).is_some() {
        return None; // see below
    }
    let changes: Vec<Change> = targets()
        .map(|readers| change(graph, &groups[readers[0].0], id, readers, program))
        .collect::<Option<_>>()?;
    let targets = changes.iter().map(|change| change.group).collect();
    let elements = program.shape.numel();
    let reads: usize = changes
        .iter()
        .map(|change| change.views.iter().map(Layout::numel).fold(0, usize::saturating_add))
        .fold(0, usize::saturating_add);
    if !held.is_empty() {
        // One more output of the only group that reads it.
        let [change] = changes.as_slice() else { return None };
        let group = &groups[change.group];
        let whole = [Layout::contiguous(program.shape)];
        let outputs = graph.node(group.root()).outputs.len() + group.extra.len() + held.len();
        if group.reduces || change.views != whole || outputs > MAX_OUTPUTS {
            return None;
        }
    } else if reads > elements {
        let sizes =
            node.outputs.clone().zip(0..).map(|(_, i)| program.kernel.output_dtype(i).size());
        let bytes = |x: &Operand| distinct_elements(&x.layout).saturating_mul(x.dtype.size());
        let candidate = Candidate {
            weight: weight(program.kernel),
            elements,
            reads,
            size: sizes.sum(),
            input_bytes: node.operands.iter().map(bytes).fold(0, usize::saturating_add),
        };
        if !candidate.is_cheap() {
            return None;
        }
    }
    for Change { group, views, inputs } in changes {
        let group = &mut groups[group];
        group.size += operations(program.kernel) * views.len();
        if !group.params.contains(&node.params) {
            group.params.push(node.params.clone());
        }
        group.members.push(Member { node: id, views });
        group.extra.extend(&held);
        group.inputs = inputs;
    }
    Some(targets)
}

/// Fuses product `id` with its readers as an epilogue; None if it runs alone.
fn take_product(
    graph: &Graph<'_>,
    groups: &mut [Group],
    places: &[Vec<usize>],
    id: u32,
) -> Option<Vec<usize>> {
    let (shape, _) = graph.product(id)?;
    let (node, readers) = (graph.node(id), graph.readers(id));
    let &[number] = places[readers.first()?.0 as usize].as_slice() else { return None };
    let group = &mut groups[number];
    let whole = Layout::contiguous(shape);
    let is_inside = |&(reader, operand): &(u32, u32)| {
        let operand = graph.node(reader).operands.get(operand as usize);
        // In this group alone: another one would find no product.
        let is_only = places[reader as usize] == [number];
        group.member(reader).zip(operand).is_some_and(|(member, operand)| {
            is_only && member.views.iter().all(|view| view.through(&operand.layout) == Some(whole))
        })
    };
    if group.shape != Some(shape)
        || group.reduces
        || group.product.is_some()
        || !readers.iter().all(is_inside)
        || node.operands.iter().any(|x| graph.is_written_between(x.slot, id, group.root()))
    {
        return None;
    }
    let held = graph.held[node.outputs.start as usize];
    let outputs = graph.node(group.root()).outputs.len() + group.extra.len() + usize::from(held);
    if outputs > MAX_OUTPUTS {
        return None;
    }
    group.product = Some(id);
    group.members.push(Member { node: id, views: vec![whole] });
    group.extra.extend(held.then_some(node.outputs.start));
    Some(vec![number])
}

/// The change of `group` if it takes node `id`, which `readers` read; None if it cannot take it.
/// The number of the group is beside each reader.
fn change(
    graph: &Graph<'_>,
    group: &Group,
    id: u32,
    readers: &[(usize, (u32, u32))],
    program: &Program<'_>,
) -> Option<Change> {
    group.shape?;
    if group.is_order_sensitive {
        return None;
    }
    let node = graph.node(id);
    let mut views: Vec<Layout> = Vec::new();
    for &(_, (reader, operand)) in readers {
        if Some(reader) == group.product {
            return None; // a product reads its operands from memory
        }
        let member = group.member(reader)?;
        let operand = graph.node(reader).operands.get(operand as usize)?;
        for view in &member.views {
            let view = view.through(&operand.layout)?;
            if !views.contains(&view) {
                views.push(view);
            }
        }
    }
    let size = group.size + operations(program.kernel) * views.len();
    let others = group.params.iter().filter(|known| **known != node.params);
    let params = others.map(Range::len).sum::<usize>() + node.params.len();
    if size > MAX_OPERATIONS || params > MAX_PARAMS {
        return None;
    }
    let moved = |slot| graph.is_written_between(slot, id, group.root());
    if node.operands.iter().any(|operand| moved(operand.slot)) {
        return None;
    }
    let mut inputs: Vec<Operand> =
        group.inputs.iter().filter(|x| !node.outputs.contains(&x.slot)).cloned().collect();
    for view in &views {
        for Operand { slot, layout, dtype } in &node.operands {
            inputs.push(Operand { slot: *slot, layout: view.through(layout)?, dtype: *dtype });
        }
    }
    let inputs = distinct(inputs.into_iter());
    let fits = inputs.len() <= MAX_INPUTS && !(group.reduces && inputs.is_empty());
    fits.then_some(Change { group: readers.first()?.0, views, inputs })
}

/// The number of operations of a kernel; loads do not count.
fn operations(kernel: &Kernel) -> usize {
    kernel.nodes().iter().filter(|node| node.op.arity() > 0).count()
}

fn distinct(operands: impl Iterator<Item = Operand>) -> Vec<Operand> {
    let mut all: Vec<Operand> = Vec::new();
    for operand in operands {
        if !all.contains(&operand) {
            all.push(operand);
        }
    }
    all
}

/// The number of elements that a view reads, counting broadcast axes once.
fn distinct_elements(layout: &Layout) -> usize {
    let sizes = layout.shape().iter().zip(layout.strides());
    sizes.filter(|&(_, &stride)| stride != 0).map(|(&size, _)| size).product()
}
