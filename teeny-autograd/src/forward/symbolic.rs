//! The tangent of a kernel is a kernel: forward mode over the nodes of a scalar program, by the
//! same table of slopes as reverse mode.
//!
//! ```text
//! y = f(x_1, .., x_n)        t_y = Σ_i ∂f/∂x_i t_i        one kernel for y and t_y: f(x) is computed once
//! ```
//!
//! A kernel reads and writes a limited number of tensors, and `f` may use it up. Then values and
//! tangents are computed apart, and if the operands and their tangents do not fit together, the
//! slopes are stored and multiplied.

use crate::composite::Application;
use crate::derivative::{Slope, Step, slopes};
use crate::symbolic::{Quotient, add, kind, replay};
use std::sync::Arc;
use teeny_core::{Builder, Expr, Kernel, OpCode, Result};

/// A tensor that a tangent kernel can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// An operand.
    Value(usize),
    /// The tangent of an operand.
    Tangent(usize),
}

/// One kernel and what it reads.
#[derive(Debug)]
pub(crate) struct Part {
    pub kernel: Arc<Kernel>,
    pub reads: Vec<Read>,
}

/// Where the tangent of one output comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// It is zero: no operand that moves reaches the output.
    None,
    /// The tangent of this operand, unchanged.
    Pass(usize),
    /// A kernel of its own.
    Part(Part),
    /// `Σ slope_i t_i`, a kernel per slope.
    Slopes(Vec<(usize, Part)>),
}

/// How the tangents of a kernel's outputs are computed when some of its operands have tangents.
#[derive(Debug)]
pub(crate) struct Tangents {
    /// The outputs, and behind them the tangents of those whose source is a part: in one pass, if
    /// one kernel can hold all.
    pub together: Option<Part>,
    /// One per output.
    pub sources: Vec<Source>,
}

/// The tangents of `kernel` where the operands in `moving` (as bits) have tangents.
pub(crate) fn tangents(kernel: &Kernel, moving: u8) -> Result<Tangents> {
    let builder = Builder::new();
    let sweep = Sweep::new(&builder, kernel);
    let moves = |i: &usize| moving >> i & 1 == 1;
    let mut reads: Vec<Read> = (0..kernel.inputs().len()).map(Read::Value).collect();
    let mut seeds = vec![None; kernel.inputs().len()];
    for i in (0..kernel.inputs().len()).filter(moves) {
        seeds[i] = Some(builder.input(kernel.inputs()[i]));
        reads.push(Read::Tangent(i));
    }
    let part = |outputs: &[Expr<'_>]| -> Result<Part> {
        let (kernel, used) = builder.finish_pruned(outputs)?;
        Ok(Part { kernel: Arc::new(kernel), reads: used.into_iter().map(|i| reads[i]).collect() })
    };
    let mut all: Vec<Expr<'_>> =
        kernel.outputs().iter().map(|&o| sweep.values[o as usize]).collect();
    let mut fits = true;
    let source = |o: usize, tangent: Option<Expr<'_>>| -> Result<(Source, bool)> {
        let Some(tangent) = tangent.filter(|t| !t.is_constant(0.0)) else {
            return Ok((Source::None, false));
        };
        Ok(match part(&[tangent]) {
            Ok(alone) => match alone.kernel.passes_through(0).map(|j| alone.reads[j]) {
                Some(Read::Tangent(i)) => (Source::Pass(i), false),
                Some(Read::Value(_)) | None => (Source::Part(alone), true),
            },
            Err(_) => (
                Source::Slopes(slopes_apart(kernel, o, (0..kernel.inputs().len()).filter(moves))?),
                true,
            ),
        })
    };
    let carried = sweep.tangents(&seeds);
    let mut sources = Vec::new();
    for (o, &id) in kernel.outputs().iter().enumerate() {
        let tangent = carried[id as usize];
        let (source, computed) = source(o, tangent)?;
        fits &= !matches!(source, Source::Slopes(_));
        all.extend(tangent.filter(|_| computed));
        sources.push(source);
    }
    let together = if fits && all.len() > kernel.outputs().len() { part(&all).ok() } else { None };
    Ok(Tangents { together, sources })
}

/// The slope of output `o` along each of the operands that it depends on: it reads no more than the
/// operands, which always fit.
fn slopes_apart(
    kernel: &Kernel,
    o: usize,
    moving: impl Iterator<Item = usize>,
) -> Result<Vec<(usize, Part)>> {
    let mut all = Vec::new();
    for i in moving {
        let builder = Builder::new();
        let sweep = Sweep::new(&builder, kernel);
        let mut seeds = vec![None; kernel.inputs().len()];
        seeds[i] = Some(builder.constant(1.0, kernel.inputs()[i]));
        let slope = sweep.tangents(&seeds)[kernel.outputs()[o] as usize];
        if let Some(slope) = slope.filter(|s| !s.is_constant(0.0)) {
            let (kernel, used) = builder.finish_pruned(&[slope])?;
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
        let inputs: Vec<Expr<'b>> = kernel.inputs().iter().map(|&t| builder.input(t)).collect();
        let params: Vec<Expr<'b>> = kernel.params().iter().map(|&t| builder.param(t)).collect();
        Sweep { kernel, values: replay(builder, kernel, &inputs, &params) }
    }

    /// The tangent of every node from those of the operands: `None` where it is zero.
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
        if node.op == OpCode::Cast {
            return of(0).map(|t| t.cast(node.dtype));
        }
        if let Some(application) = Application::at(nodes, id) {
            return before[application.x]
                .map(|t| t * application.slope(self.values[application.x]));
        }
        if node.op == OpCode::Where && (of(1).is_some() || of(2).is_some()) {
            let [a, b] = [1, 2].map(|i| of(i).unwrap_or_else(|| y.like(0)));
            return Some(self.values[node.src[0] as usize].select(a, b));
        }
        let mut sum = None;
        if let Some(Quotient { top, bottom, z }) = Quotient::at(nodes, id) {
            let s = if top.is_some() { self.values[bottom].recip() } else { y };
            if let Some(t) = before[z] {
                let slope = t * s * (1.0 - s);
                add(&mut sum, -(if let Some(a) = top { slope * self.values[a] } else { slope }));
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
            // What reaches operand i from a gradient g is g times a slope: from a tangent of
            // operand i, what reaches the result.
            let step = Step { src: [0, 1, 2].map(|i| self.values[at(i)]), kind, y, g: t };
            match slopes(node.op, &step).into_iter().nth(i) {
                Some(Slope::Is(part)) => add(&mut sum, part),
                Some(Slope::Flat | Slope::Stop) | None => {}
            }
        }
        sum
    }
}
