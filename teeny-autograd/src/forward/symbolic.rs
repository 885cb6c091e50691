//! The tangent of a kernel is a kernel: forward mode over the nodes of a scalar program, by the
//! same table of derivatives as reverse mode.
//!
//! ```text
//! y = f(x_1, .., x_n)        t_y = Σ_i ∂f/∂x_i t_i        one kernel for both: f(x) runs once
//! ```
//!
//! A kernel reads and writes a limited number of tensors, and `f` may reach the limit. Then values
//! and tangents are computed by separate kernels, and if one kernel cannot read the operands and
//! their tangents, the partial derivatives are stored and multiplied.

use crate::composite::{Application, Quotient};
use crate::derivative::{AppliedOp, operand_grads};
use crate::symbolic::{add, inputs, kind, reach, replay, require_derivable};
use std::sync::Arc;
use teeny_core::kernel::{Extent, Fold, Id};
use teeny_core::{Builder, Expr, Kernel, OpCode, Result};

/// A tensor that a tangent kernel can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// An operand.
    Value(usize),
    /// The tangent of an operand.
    Tangent(usize),
}

/// One kernel and its inputs.
#[derive(Debug)]
pub(crate) struct Part {
    pub kernel: Arc<Kernel>,
    pub reads: Vec<Read>,
}

/// Where the tangent of one output comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// It is zero: the output does not depend on an operand with a tangent.
    None,
    /// The tangent of this operand, unchanged.
    Pass(usize),
    /// A kernel.
    Part(Part),
    /// `Σ ∂y/∂x_i t_i`, a kernel per partial derivative.
    Partials(Vec<(usize, Part)>),
}

/// How the tangents of a kernel's outputs are computed when some of its operands have tangents.
#[derive(Debug)]
pub(crate) struct Tangents {
    /// The outputs, and after them the tangents of those whose source is a part: one kernel, if it
    /// can hold all.
    pub together: Option<Part>,
    /// One per output.
    pub sources: Vec<Source>,
}

/// The tangents of `kernel` where the operands in `bits` have tangents.
///
/// # Errors
/// If the tangents of a row program need more tensors than a kernel reads, or it has the product of
/// a row: then use the tangents of its definition.
pub(crate) fn tangents(kernel: &Kernel, bits: u8) -> Result<Tangents> {
    require_derivable(kernel, &reach(kernel, bits))?;
    let builder = Builder::new();
    let sweep = Sweep::new(&builder, kernel);
    let has_tangent = |i: &usize| bits >> i & 1 == 1;
    let mut reads: Vec<Read> = (0..kernel.inputs().len()).map(Read::Value).collect();
    let mut seeds = vec![None; kernel.inputs().len()];
    for i in (0..kernel.inputs().len()).filter(has_tangent) {
        seeds[i] = Some(builder.input_of(kernel.inputs()[i], kernel.input_extent(i)));
        reads.push(Read::Tangent(i));
    }
    // Each output of `kernel` or its tangent, in the output's extent.
    let part = |outputs: &[(usize, Expr<'_>)]| -> Result<Part> {
        let exprs: Vec<Expr<'_>> = outputs.iter().map(|(_, expr)| *expr).collect();
        let extents: Vec<Extent> = outputs.iter().map(|(o, _)| kernel.output_extent(*o)).collect();
        let (kernel, used) = match kernel.is_pointwise() {
            true => builder.finish_pruned(&exprs)?,
            false => builder.finish_rows(&exprs, &extents)?,
        };
        Ok(Part { kernel: Arc::new(kernel), reads: used.into_iter().map(|i| reads[i]).collect() })
    };
    let value = |(o, &id): (usize, &Id)| (o, sweep.values[id as usize]);
    let mut all: Vec<(usize, Expr<'_>)> = kernel.outputs().iter().enumerate().map(value).collect();
    let mut fits = true;
    let source = |o: usize, tangent: Option<Expr<'_>>| -> Result<(Source, bool)> {
        let Some(tangent) = tangent.filter(|t| !t.is_constant(0.0)) else {
            return Ok((Source::None, false));
        };
        let passes = |i: usize| kernel.input_extent(i) == kernel.output_extent(o);
        Ok(match part(&[(o, tangent)]) {
            Ok(alone) => match alone.kernel.passes_through(0).map(|j| alone.reads[j]) {
                Some(Read::Tangent(i)) if passes(i) => (Source::Pass(i), false),
                Some(Read::Tangent(_) | Read::Value(_)) | None => (Source::Part(alone), true),
            },
            Err(error) if !kernel.is_pointwise() => return Err(error),
            Err(_) => (
                Source::Partials(partials(
                    kernel,
                    o,
                    (0..kernel.inputs().len()).filter(has_tangent),
                )?),
                true,
            ),
        })
    };
    let node_tangents = sweep.tangents(&seeds);
    let mut sources = Vec::new();
    for (o, &id) in kernel.outputs().iter().enumerate() {
        let tangent = node_tangents[id as usize];
        let (source, computed) = source(o, tangent)?;
        fits &= !matches!(source, Source::Partials(_));
        all.extend(tangent.filter(|_| computed).map(|tangent| (o, tangent)));
        sources.push(source);
    }
    let together = if fits && all.len() > kernel.outputs().len() { part(&all).ok() } else { None };
    Ok(Tangents { together, sources })
}

/// The partial derivative of output `o` for each of the `inputs` that it depends on: a kernel reads
/// no more than the operands, which always fit.
fn partials(
    kernel: &Kernel,
    o: usize,
    inputs: impl Iterator<Item = usize>,
) -> Result<Vec<(usize, Part)>> {
    let mut all = Vec::new();
    for i in inputs {
        let builder = Builder::new();
        let sweep = Sweep::new(&builder, kernel);
        let mut seeds = vec![None; kernel.inputs().len()];
        seeds[i] = Some(builder.constant(1.0, kernel.inputs()[i]));
        let partial = sweep.tangents(&seeds)[kernel.outputs()[o] as usize];
        if let Some(partial) = partial.filter(|p| !p.is_constant(0.0)) {
            let (kernel, used) = builder.finish_pruned(&[partial])?;
            all.push((
                i,
                Part {
                    kernel: Arc::new(kernel),
                    reads: used.into_iter().map(Read::Value).collect(),
                },
            ));
        }
    }
    Ok(all)
}

/// One forward sweep over a program.
struct Sweep<'b, 'k> {
    kernel: &'k Kernel,
    /// The value of every node.
    values: Vec<Expr<'b>>,
}

impl<'b, 'k> Sweep<'b, 'k> {
    fn new(builder: &'b Builder, kernel: &'k Kernel) -> Sweep<'b, 'k> {
        let inputs = inputs(builder, kernel);
        let params: Vec<Expr<'b>> = kernel.params().iter().map(|&t| builder.param(t)).collect();
        Sweep { kernel, values: replay(builder, kernel, &inputs, &params) }
    }

    /// The tangent of every node from the tangents `seeds` of the operands: `None` where it is
    /// zero.
    fn tangents(&self, seeds: &[Option<Expr<'b>>]) -> Vec<Option<Expr<'b>>> {
        let mut all: Vec<Option<Expr<'b>>> = Vec::with_capacity(self.kernel.nodes().len());
        for id in 0..self.kernel.nodes().len() {
            let tangent = self.tangent(id, seeds, &all);
            all.push(tangent);
        }
        all
    }

    fn tangent(
        &self,
        id: usize,
        seeds: &[Option<Expr<'b>>],
        before: &[Option<Expr<'b>>],
    ) -> Option<Expr<'b>> {
        let nodes = self.kernel.nodes();
        let node = &nodes[id];
        if let OpCode::Input(i) = node.op {
            return seeds[i as usize];
        }
        if !node.dtype.is_float() {
            return None;
        }
        let of = |i: usize| before[node.src[i] as usize];
        let y = self.values[id];
        match node.op {
            OpCode::Fold(Fold::Max | Fold::Min) => return of(0).map(|t| self.extremum(id, t)),
            OpCode::Fold(fold) => return of(0).map(|t| t.fold(fold)),
            OpCode::At => return of(0).map(|t| t.at(self.values[node.src[1] as usize])),
            _ => {}
        }
        if node.op == OpCode::Cast {
            return of(0).map(|t| t.cast(node.dtype));
        }
        if let Some(application) = Application::at(nodes, id) {
            return before[application.x]
                .map(|t| t * application.derivative(self.values[application.x]));
        }
        if node.op == OpCode::Where && (of(1).is_some() || of(2).is_some()) {
            let [a, b] = [1, 2].map(|i| of(i).unwrap_or_else(|| y.like(0)));
            return Some(self.values[node.src[0] as usize].where_cond(a, b));
        }
        let mut sum = None;
        if let Some(Quotient { top, bottom, z }) = Quotient::at(nodes, id) {
            let s = if top.is_some() { self.values[bottom].recip() } else { y };
            if let Some(t) = before[z] {
                let partial = t * s * (1.0 - s);
                add(
                    &mut sum,
                    -(if let Some(a) = top { partial * self.values[a] } else { partial }),
                );
            }
            if let Some(t) = top.and_then(|a| before[a]) {
                add(&mut sum, t * s);
            }
            return sum;
        }
        let at = |i: usize| {
            if i < node.op.arity() { node.src[i] as usize } else { node.src[0] as usize }
        };
        for i in 0..node.op.arity() {
            let Some(t) = of(i) else { continue };
            let kind = [0, 1, 2].map(|i| kind(nodes[at(i)].op));
            // The gradient of operand i is g times the partial derivative: with the tangent of
            // operand i for g, it is the tangent of the result.
            let step = AppliedOp { src: [0, 1, 2].map(|i| self.values[at(i)]), kind, y, g: t };
            if let Some(part) = operand_grads(node.op, &step)[i] {
                add(&mut sum, part);
            }
        }
        sum
    }
    /// The tangent of the extremum of a row whose values have the tangent `t`: among equals its
    /// mean, as the gradient is shared.
    fn extremum(&self, id: usize, t: Expr<'b>) -> Expr<'b> {
        let x = self.values[self.kernel.nodes()[id].src[0] as usize];
        let best = x.eq(self.values[id]);
        let count = best.cast(t.dtype()).fold(Fold::Sum);
        best.where_cond(t, t.like(0)).fold(Fold::Sum) / count
    }
}
