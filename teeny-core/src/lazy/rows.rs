//! Row programs that a program writes out: reductions along the same axes and the operations on
//! their results, as one request.
//!
//! From the last node to the first: a node is the root of a group if its value is computed, at each
//! element or once a row, from reductions of rows. Taken into the group is what only the group reads.
//! The sums of a row program may be added in another order, so this is done only where
//! [`crate::LazyOptions::reassociate`] allows it.
//!
//! ```text
//! max ─► sub exp ─► sum ─► div      rows: e / sum(e) where e = exp(x - max(x)): softmax
//! ```

use super::graph::{Graph, Program};
use super::list::{Node, Operand};
use super::program::{Params, rounded};
use crate::kernel::build::{Builder, Expr};
use crate::kernel::{Extent, Fold};
use crate::layout::Layout;
use crate::op::{Recorded, ReduceOp};
use crate::shape::Shape;
use std::collections::HashSet;
use std::sync::Arc;

/// The most nodes of a group, and how far before its root they begin.
const MAX_NODES: usize = 64;
const MAX_DISTANCE: u32 = 256;
/// Rows are worth a pass each if there are this many, or if one fits into a cache.
const MANY_ROWS: usize = 32;
const SHORT_ROW: usize = 1 << 14;

/// Nodes that run as one row program, in the place of the last one.
pub(super) struct RowGroup {
    /// In recorded order.
    pub(super) nodes: Vec<u32>,
    pub(super) op: Recorded,
    pub(super) operands: Vec<Operand>,
    /// The numbers of the program, by their places in the list.
    pub(super) params: Vec<u32>,
}

/// The groups of a list; no node is in two of them.
pub(super) fn row_groups(graph: &Graph<'_>) -> Vec<RowGroup> {
    let mut groups: Vec<RowGroup> = Vec::new();
    let mut taken = vec![false; graph.nodes.len()];
    for id in (0..graph.nodes.len() as u32).rev() {
        if graph.is_live(id)
            && !taken[id as usize]
            && let Some(group) = group(graph, id)
        {
            group.nodes.iter().for_each(|&node| taken[node as usize] = true);
            groups.push(group);
        }
    }
    groups
}

/// The reduction that a node is, if it is a fold: how, and along which axes.
fn fold(node: &Node) -> Option<(Fold, &[usize])> {
    let (Recorded::Reduce { op, axes } | Recorded::ReduceKernel { op, axes, .. }) = &node.op else {
        return None;
    };
    let fold = match op {
        ReduceOp::Sum => Fold::Sum,
        ReduceOp::Prod => Fold::Prod,
        ReduceOp::Max => Fold::Max,
        ReduceOp::Min => Fold::Min,
        ReduceOp::Any => Fold::Any,
        ReduceOp::All => Fold::All,
        ReduceOp::ArgMax | ReduceOp::ArgMin => return None,
    };
    Some((fold, axes))
}

/// The group of which `root` is the last node.
fn group(graph: &Graph<'_>, root: u32) -> Option<RowGroup> {
    let program = graph.program(root)?;
    if program.kernel.outputs().len() != 1 || program.shape.numel() == 0 {
        return None;
    }
    let rows = Rows::of(graph, root, &program)?;
    let mut stored = HashSet::new();
    loop {
        let builder = Builder::new();
        let mut values = Values::new(graph, &rows, root, &stored, &builder);
        let output = values.root(&program)?;
        // A value that nodes outside the group read too is stored, and the group reads it.
        let inside = |id: u32| id == root || values.nodes.contains(&id);
        let others = |&id: &u32| graph.readers(id).iter().any(|reader| !inside(reader.0));
        let others: Vec<u32> = values.nodes.iter().copied().filter(others).collect();
        if others.is_empty() {
            return values.finish(output, program.reduces);
        }
        stored.extend(others);
    }
}

/// The rows of a group.
struct Rows {
    shape: Shape,
    axes: Box<[usize]>,
    /// The results of a reduction, repeated along the axes.
    repeated: Layout,
}

impl Rows {
    /// The rows of the first reduction that `root` depends on, if the values of `root` are elements
    /// or one a row.
    fn of(graph: &Graph<'_>, root: u32, program: &Program<'_>) -> Option<Rows> {
        let of = |id: u32| {
            let (shape, (_, axes)) = (graph.program(id)?.shape, fold(graph.node(id))?);
            let repeated = Layout::contiguous(shape.reduced(axes, true)).expand(&shape)?;
            Some(Rows { shape, axes: axes.into(), repeated })
        };
        let rows = if program.reduces { of(root) } else { nearest(graph, root).and_then(of) }?;
        let length: usize = rows.axes.iter().map(|&axis| rows.shape[axis]).product();
        let is_one_range = rows.axes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let pays = rows.shape.numel() / length.max(1) >= MANY_ROWS || length <= SHORT_ROW;
        let fits = program.reduces || rows.extent_of(&program.shape).is_some();
        (pays && fits && is_one_range).then_some(rows)
    }

    /// Whether values of this shape are elements of rows, or one a row.
    fn extent_of(&self, shape: &Shape) -> Option<Extent> {
        let is_row = |keep| *shape == self.shape.reduced(&self.axes, keep);
        match () {
            () if *shape == self.shape => Some(Extent::Element),
            () if is_row(true) || is_row(false) => Some(Extent::Row),
            () => None,
        }
    }

    /// The view of row-major values of this extent, at each element.
    fn view(&self, extent: Extent) -> Layout {
        match extent {
            Extent::Element => Layout::contiguous(self.shape),
            Extent::Row => self.repeated,
        }
    }

    /// Whether a view of the rows' shape is the same at each position of a row.
    fn is_row(&self, view: &Layout) -> bool {
        self.axes.iter().all(|&axis| view.strides()[axis] == 0 || self.shape[axis] == 1)
    }
}

/// The last reduction on the ways to node `id` that begins in a kernel.
fn nearest(graph: &Graph<'_>, id: u32) -> Option<u32> {
    let mut ways = vec![id];
    let mut next = 0;
    while let Some(&at) = ways.get(next) {
        next += 1;
        for operand in &graph.node(at).operands {
            let Some((maker, _)) = graph.maker(operand.slot) else { continue };
            if id - maker > MAX_DISTANCE || graph.program(maker).is_none() {
                continue;
            }
            if fold(graph.node(maker)).is_some() {
                return Some(maker);
            }
            if ways.len() < MAX_NODES && !ways.contains(&maker) {
                ways.push(maker);
            }
        }
    }
    None
}

/// The values of a group as a program.
struct Values<'g, 'a, 'b> {
    graph: &'g Graph<'a>,
    rows: &'g Rows,
    root: u32,
    /// Nodes that are read from memory.
    stored: &'g HashSet<u32>,
    builder: &'b Builder,
    /// The nodes that the program computes, without the root.
    nodes: Vec<u32>,
    /// Views of the rows' shape whose values are known.
    known: Vec<(Operand, Expr<'b>)>,
    inputs: Vec<Operand>,
    params: Params<'b>,
    folds: usize,
}

impl<'g, 'a, 'b> Values<'g, 'a, 'b> {
    fn new(
        graph: &'g Graph<'a>,
        rows: &'g Rows,
        root: u32,
        stored: &'g HashSet<u32>,
        builder: &'b Builder,
    ) -> Values<'g, 'a, 'b> {
        let (nodes, known) = (Vec::new(), Vec::new());
        let (inputs, params) = (Vec::new(), Params::default());
        Values { graph, rows, root, stored, builder, nodes, known, inputs, params, folds: 0 }
    }

    /// The value of the root.
    fn root(&mut self, program: &Program<'_>) -> Option<Expr<'b>> {
        let extent = match program.reduces {
            true => Extent::Element,
            false => self.rows.extent_of(&program.shape)?,
        };
        let view = self.rows.view(extent);
        let views = self.views(self.root, &view)?;
        let expr = self.outputs(self.root, program, views)[0];
        if !program.reduces {
            return Some(expr);
        }
        let (fold, _) = fold(self.graph.node(self.root))?;
        self.folds += 1;
        Some(rounded(expr).fold(fold))
    }

    /// The value of a view of the rows' shape.
    fn read(&mut self, x: Operand) -> Expr<'b> {
        if let Some((_, expr)) = self.known.iter().find(|(known, _)| *known == x) {
            return *expr;
        }
        let expr = match self.computed(&x) {
            Some(expr) => rounded(expr),
            None => {
                let is_row = self.rows.is_row(&x.layout);
                self.inputs.push(x.clone());
                let extent = if is_row { Extent::Row } else { Extent::Element };
                self.builder.input_of(x.dtype, extent)
            }
        };
        self.known.push((x, expr));
        expr
    }

    /// The value of a view as the program computes it; None if it reads the view from memory.
    fn computed(&mut self, x: &Operand) -> Option<Expr<'b>> {
        let (id, output) = self.graph.maker(x.slot)?;
        let node = self.graph.node(id);
        let is_held = node.outputs.clone().any(|slot| self.graph.held[slot as usize]);
        let written = |x: &Operand| self.graph.is_written_between(x.slot, id, self.root);
        if is_held
            || self.stored.contains(&id)
            || self.root - id > MAX_DISTANCE
            || self.nodes.len() == MAX_NODES
            || node.operands.iter().any(written)
        {
            return None;
        }
        let program = self.graph.program(id)?;
        let reduction = match fold(node) {
            _ if !program.reduces => None,
            Some((fold, axes)) => {
                let same = *axes == *self.rows.axes && program.shape == self.rows.shape;
                Some(fold).filter(|_| same && is_equal(&x.layout, &self.rows.repeated))
            }
            None => None,
        };
        let view = match (program.reduces, reduction) {
            (false, _) => x.layout,
            (true, Some(_)) => Layout::contiguous(program.shape),
            (true, None) => return None,
        };
        let views = self.views(id, &view)?;
        if !self.nodes.contains(&id) {
            self.nodes.push(id);
        }
        let value = self.outputs(id, &program, views)[output as usize];
        let Some(fold) = reduction else { return Some(value) };
        self.folds += 1;
        Some(rounded(value).fold(fold))
    }

    /// The operands of node `id` where its results are read through a view of the rows' shape.
    fn views(&self, id: u32, view: &Layout) -> Option<Vec<Operand>> {
        let through = |Operand { slot, layout, dtype }: &Operand| {
            Some(Operand { slot: *slot, layout: view.through(layout)?, dtype: *dtype })
        };
        self.graph.node(id).operands.iter().map(through).collect()
    }

    /// The outputs of the program of node `id` on these operands.
    fn outputs(&mut self, id: u32, program: &Program<'_>, views: Vec<Operand>) -> Vec<Expr<'b>> {
        let node = self.graph.node(id);
        let operands: Vec<Expr<'b>> = views.into_iter().map(|x| self.read(x)).collect();
        let params = self.params.of(node, program.kernel, self.builder);
        self.builder.embed(program.kernel, &operands, &params)
    }

    /// The group, if it is worth one: a program reads more than once what it reduces, or reduces
    /// more than once.
    fn finish(mut self, output: Expr<'b>, reduces: bool) -> Option<RowGroup> {
        let is_row = output.extent() == Extent::Row;
        if self.folds < 1 + usize::from(is_row) {
            return None;
        }
        let root = self.graph.node(self.root);
        let extent = match reduces {
            true => Extent::Row,
            false => self.rows.extent_of(&self.graph.program(self.root)?.shape)?,
        };
        let (program, read) = self.builder.finish_rows(&[output], &[extent]).ok()?;
        let Rows { shape, axes, .. } = self.rows;
        let one = shape.reduced(axes, true);
        let operand = |i: usize| {
            let Operand { slot, layout, dtype } = self.inputs[i].clone();
            let is_row = self.rows.is_row(&layout);
            let layout = match is_row {
                true => Layout::strided(one, layout.strides(), layout.offset(), usize::MAX).ok()?,
                false => layout,
            };
            Some(Operand { slot, layout, dtype })
        };
        let operands: Vec<Operand> = read.into_iter().map(operand).collect::<Option<_>>()?;
        if operands.is_empty() || root.destination.is_some() {
            return None;
        }
        self.nodes.push(self.root);
        self.nodes.sort_unstable();
        let program = match program.row_function() {
            Some(function) => {
                function.program(program.inputs(), program.params().len()).ok()?.clone()
            }
            None => Arc::new(program),
        };
        let op = Recorded::Rows { program, shape: *shape, axes: axes.clone() };
        let params = self.params.places();
        Some(RowGroup { nodes: self.nodes, op, operands, params })
    }
}

/// Whether two views of one shape read the same elements.
fn is_equal(one: &Layout, other: &Layout) -> bool {
    let strides = one.strides().iter().zip(other.strides()).zip(one.shape().iter());
    one.shape() == other.shape()
        && one.offset() == other.offset()
        && strides.filter(|(_, size)| **size > 1).all(|((one, other), _)| one == other)
}
