//! Terms: what values are computed from, without the kernels and views between.
//!
//! Each scalar operation and each reduction is a term of its operands, whichever kernels they were
//! recorded in, and equal terms are one.

use super::graph::Graph;
use super::list::Operand;
use crate::dtype::DType;
use crate::kernel::OpCode;
use crate::layout::Layout;
use crate::op::{Recorded, ReduceOp};
use crate::shape::Shape;

/// How many nodes deep terms are compared, and how many they are at most.
pub(super) const DEPTH: usize = 12;
pub(super) const TERMS: usize = 256;

/// What a term does.
#[derive(Clone, PartialEq)]
pub(super) enum TermOp {
    /// A view of a value.
    Read(Operand),
    /// A run-time number, by its place in the list.
    Param(u32),
    Cast(DType),
    Scalar(OpCode),
    /// A reduction over one axis, repeated along it.
    Reduce(ReduceOp, usize),
}

/// An operation on earlier terms.
#[derive(Clone, PartialEq)]
pub(super) struct Term {
    pub(super) op: TermOp,
    pub(super) sources: Vec<u32>,
}

/// The terms of some values of a graph.
pub(super) struct Terms<'g, 'a> {
    graph: &'g Graph<'a>,
    /// Sources before users.
    pub(super) terms: Vec<Term>,
    /// Views of values whose terms are known.
    pub(super) known: Vec<(Operand, u32)>,
}

impl<'g, 'a> Terms<'g, 'a> {
    pub(super) fn new(graph: &'g Graph<'a>) -> Terms<'g, 'a> {
        Terms { graph, terms: Vec::new(), known: Vec::new() }
    }

    /// The term of a view of a value.
    pub(super) fn read(&mut self, x: &Operand, depth: usize) -> u32 {
        if let Some((_, term)) = self.known.iter().find(|(known, _)| known == x) {
            return *term;
        }
        let made = self.made(x, depth);
        let term = made.unwrap_or_else(|| self.term(TermOp::Read(x.clone()), Vec::new()));
        self.known.push((x.clone(), term));
        term
    }

    /// The term of a value that a node computes, by its kernel; None if it has none.
    fn made(&mut self, x: &Operand, depth: usize) -> Option<u32> {
        if depth == 0 || self.terms.len() > TERMS {
            return None;
        }
        let (id, output) = self.graph.maker(x.slot)?;
        let (node, program) = (self.graph.node(id), self.graph.program(id)?);
        let reduced = match &node.op {
            Recorded::Reduce { op, axes } | Recorded::ReduceKernel { op, axes, .. } => {
                let [axis] = **axes else { return None };
                Some((*op, axis)).filter(|_| is_repeated(&x.layout, &program.shape, axis))
            }
            _ => None,
        };
        let view = match reduced {
            Some(_) => Layout::contiguous(program.shape),
            None if program.reduces => return None,
            None => x.layout,
        };
        let mut inputs = Vec::with_capacity(node.operands.len());
        for Operand { slot, layout, dtype } in &node.operands {
            let operand = Operand { slot: *slot, layout: view.through(layout)?, dtype: *dtype };
            inputs.push(self.read(&operand, depth - 1));
        }
        let mut values: Vec<u32> = Vec::with_capacity(program.kernel.nodes().len());
        for node_op in program.kernel.nodes() {
            let op = match node_op.op {
                OpCode::Input(i) => {
                    values.push(inputs[i as usize]);
                    continue;
                }
                OpCode::Param(i) => TermOp::Param(node.params.start + u32::from(i)),
                OpCode::Cast => TermOp::Cast(node_op.dtype),
                op => TermOp::Scalar(op),
            };
            let sources = node_op.sources().iter().map(|&source| values[source as usize]);
            let sources = sources.collect();
            values.push(self.term(op, sources));
        }
        let value = values[program.kernel.outputs()[output as usize] as usize];
        Some(match reduced {
            Some((op, axis)) => self.term(TermOp::Reduce(op, axis), vec![value]),
            None => value,
        })
    }

    /// The one term of this operation and these sources.
    fn term(&mut self, op: TermOp, sources: Vec<u32>) -> u32 {
        let term = Term { op, sources };
        let found = self.terms.iter().position(|other| *other == term);
        found.unwrap_or_else(|| {
            self.terms.push(term);
            self.terms.len() - 1
        }) as u32
    }
}

/// Whether `layout` repeats the results of a reduction along `axis` to the shape that was reduced.
fn is_repeated(layout: &Layout, shape: &Shape, axis: usize) -> bool {
    let result = Layout::contiguous(shape.reduced(&[axis], true));
    let Some(repeated) = result.expand(shape) else { return false };
    let strides = layout.strides().iter().zip(repeated.strides()).zip(shape.iter());
    layout.shape() == shape
        && layout.offset() == 0
        && strides.filter(|(_, size)| **size > 1).all(|((one, other), _)| one == other)
}
