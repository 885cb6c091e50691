//! Patterns: definitions of fused operations, found where a program writes them out.
//!
//! A pattern is the recording of a definition. It and the list are compared by their `terms`.
//!
//! ```text
//! softmax   div(e, sum(e))   where e = exp(sub(x, max(x)))        x is any term, the axis any axis
//! ```

use super::graph::Graph;
use super::list::{Node, Operand};
use super::terms::{DEPTH, TERMS, Term, TermOp, Terms};
use crate::dtype::DType;
use crate::kernel::RowFunction;
use crate::layout::Layout;
use crate::op::Recorded;
use crate::shape::Shape;

/// A definition of one operand and one axis.
pub(super) struct Pattern {
    terms: Vec<Term>,
    root: u32,
    /// The row program that it defines.
    function: RowFunction,
}

impl Pattern {
    /// The pattern of a definition that was recorded as `nodes`, the last of which has a result of
    /// this shape and type.
    pub(super) fn new(nodes: &[Node], shape: Shape, function: RowFunction) -> Option<Pattern> {
        let last = nodes.last()?;
        let mut held = vec![false; last.outputs.end as usize];
        held[last.outputs.start as usize] = true;
        let graph = Graph::new(nodes, &held, true);
        let result = result(last, shape, DType::F32);
        let mut terms = Terms::new(&graph);
        let root = terms.read(&result, DEPTH);
        Some(Pattern { terms: terms.terms, root, function })
    }

    /// The operation and the operand that the result of node `id` is, if it is this pattern and
    /// nothing else reads the values between.
    pub(super) fn find(&self, graph: &Graph<'_>, id: u32) -> Option<(Recorded, Operand)> {
        let program = graph.program(id).filter(|program| !program.reduces)?;
        let program_shape = program.shape;
        let dtype = program.kernel.output_dtype(0);
        if !matches!(dtype, DType::F32 | DType::F64) || program.kernel.outputs().len() > 1 {
            return None;
        }
        let mut terms = Terms::new(graph);
        let root = terms.read(&result(graph.node(id), program.shape, dtype), DEPTH);
        let mut bound = Bound { terms: vec![None; self.terms.len()], axis: None };
        if !self.matches(&terms.terms, self.root, root, &mut bound) {
            return None;
        }
        let is_x = |term: &Term| matches!(term.op, TermOp::Read(_));
        let x = bound.terms[self.terms.iter().position(is_x)?]?;
        let whole = |(operand, term): &&(Operand, u32)| {
            *term == x && operand.dtype == dtype && *operand.layout.shape() == program.shape
        };
        let (x, _) = terms.known.iter().find(whole)?;
        if !is_alone(graph, id, x.slot) {
            return None;
        }
        let axes = [bound.axis?].into();
        let program = self.function.program(&[dtype], 0).ok()?.clone();
        Some((Recorded::Rows { program, shape: program_shape, axes }, x.clone()))
    }

    /// Whether term `at` is what `pattern` describes. Operands of commutative operations are tried
    /// both ways.
    fn matches(&self, terms: &[Term], pattern: u32, at: u32, bound: &mut Bound) -> bool {
        if let Some(term) = bound.terms[pattern as usize] {
            return term == at;
        }
        let (p, t) = (&self.terms[pattern as usize], &terms[at as usize]);
        let mut sources = t.sources.clone();
        let commutes = match (&p.op, &t.op) {
            (TermOp::Read(_), _) => {
                bound.terms[pattern as usize] = Some(at);
                return true;
            }
            (TermOp::Reduce(one, _), TermOp::Reduce(other, axis)) => {
                if one != other || *bound.axis.get_or_insert(*axis) != *axis {
                    return false;
                }
                false
            }
            (TermOp::Scalar(one), TermOp::Scalar(other)) if one == other => one.is_commutative(),
            _ => return false,
        };
        for _ in 0..1 + usize::from(commutes) {
            let mut trial = bound.clone();
            let mut pairs = p.sources.iter().zip(&sources);
            if pairs.all(|(&p, &t)| self.matches(terms, p, t, &mut trial)) {
                *bound = trial;
                bound.terms[pattern as usize] = Some(at);
                return true;
            }
            sources.reverse();
        }
        false
    }
}

/// Of each term of a pattern, the term of a list that it matches, and the axis.
#[derive(Clone)]
struct Bound {
    terms: Vec<Option<u32>>,
    axis: Option<usize>,
}

/// The whole result of a node.
fn result(node: &Node, shape: Shape, dtype: DType) -> Operand {
    Operand { slot: node.outputs.start, layout: Layout::contiguous(shape), dtype }
}

/// Whether only nodes on the way from `x` to node `root` read the values there, and no tensor does.
fn is_alone(graph: &Graph<'_>, root: u32, x: u32) -> bool {
    let mut inner = vec![root];
    let mut next = 0;
    while let Some(&id) = inner.get(next) {
        next += 1;
        for slot in graph.node(id).operands.iter().map(|operand| operand.slot) {
            let Some((maker, _)) = graph.maker(slot).filter(|_| slot != x) else { continue };
            if !inner.contains(&maker) {
                inner.push(maker);
            }
            if inner.len() > TERMS {
                return false;
            }
        }
    }
    inner[1..].iter().all(|&id| {
        let mut outputs = graph.node(id).outputs.clone();
        !outputs.any(|slot| graph.held[slot as usize])
            && graph.readers(id).iter().all(|(reader, _)| inner.contains(reader))
    })
}
