//! The derivative of a kernel is a kernel: reverse mode over the nodes of a scalar program.
//!
//! The derivative may read the operands, the results `y` and their gradients `g`; dead code
//! elimination leaves those it needs, and only these are saved. A gradient that is `g` itself costs
//! nothing; the others are computed in as few kernels as the limits on inputs and outputs allow.
//!
//! The derivative of a row program is a row program. Two rules are added: a value of the row that is
//! read at each element gets the sum of the gradients there; what was summed gets the gradient of
//! the sum at each element.

use crate::composite::{Application, Quotient};
use crate::derivative::{AppliedOp, Operand, operand_grads};
use std::sync::Arc;
use teeny_core::kernel::{Extent, Fold, Id, MAX_OUTPUTS};
use teeny_core::{
    Arithmetic, Builder, DType, Error, Expr, Kernel, OpCode, OpNode, Result, SignFunction,
};

/// A tensor that a backward kernel can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// An operand of the forward kernel.
    Input(usize),
    /// A result of the forward kernel.
    Output(usize),
    /// The gradient of a result.
    Grad(usize),
}

/// One kernel of the backward pass.
#[derive(Debug)]
pub(crate) struct Part {
    pub kernel: Arc<Kernel>,
    pub reads: Vec<Slot>,
}

/// Where the gradient of one operand comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// No path leads to this operand, or its gradient is not needed.
    None,
    /// Zero everywhere.
    Zero,
    /// The gradient of this output, unchanged.
    Pass(usize),
    /// Output `.1` of part `.0`.
    Part(usize, usize),
    /// `Σ g[o] * part`: partial derivatives computed in separate kernels, because together with the
    /// gradients they would read too many tensors.
    Factors(Vec<(usize, usize)>),
}

/// The derivative of a kernel for some of its operands.
#[derive(Debug)]
pub(crate) struct Derivative {
    pub parts: Vec<Part>,
    /// One per operand.
    pub grads: Vec<Source>,
    /// The dtypes of the operands and their gradients.
    pub dtypes: Vec<DType>,
    /// The extent of each operand and its gradient: per row or per element.
    pub extents: Vec<Extent>,
    /// For each output the operands (as bits) whose gradient it feeds.
    pub reach: Vec<u8>,
    /// The operands and results that some part reads.
    pub saved: Vec<Slot>,
}

/// The derivative of `kernel` for the operands in `needs` (as bits). `stored`: the kernel's results
/// are kept in memory and may be read.
///
/// # Errors
/// If the gradients of a row program need more tensors than a kernel reads, or it has the product
/// of a row: then use the derivative of its definition.
pub(crate) fn derive(kernel: &Kernel, needs: u8, stored: bool) -> Result<Derivative> {
    let reach = reach(kernel, needs);
    require_derivable(kernel, &reach)?;
    let outputs: Vec<u8> = kernel.outputs().iter().map(|&o| reach[o as usize]).collect();
    let builder = Builder::new();
    let sweep = Sweep::new(&builder, kernel, &reach, stored);
    let grads = sweep.gradients(&sweep.g);
    let mut out = Derivative {
        parts: Vec::new(),
        grads: Vec::new(),
        dtypes: kernel.inputs().to_vec(),
        reach: outputs,
        extents: (0..kernel.inputs().len()).map(|i| kernel.input_extent(i)).collect(),
        saved: Vec::new(),
    };
    let mut waiting: Vec<(usize, Expr<'_>)> = Vec::new();
    for (i, grad) in grads.into_iter().enumerate() {
        let reached = out.reach.iter().any(|bits| bits >> i & 1 == 1);
        let source = match grad {
            _ if !reached => Source::None,
            None => Source::Zero,
            Some(expr) if expr.is_constant(0.0) => Source::Zero,
            Some(expr) => match finish(&builder, kernel, &[(i, expr)]) {
                Ok((alone, reads)) => {
                    match alone.passes_through(0).map(|j| sweep.slots[reads[j]]) {
                        Some(Slot::Grad(o)) if passes(kernel, o, i) => Source::Pass(o),
                        Some(Slot::Grad(_) | Slot::Input(_) | Slot::Output(_)) | None => {
                            waiting.push((i, expr));
                            Source::Zero
                        }
                    }
                }
                Err(error) if !kernel.is_pointwise() => return Err(error),
                Err(_) => out.factors(kernel, &reach, i)?,
            },
        };
        out.grads.push(source);
    }
    out.share(&builder, kernel, &sweep.slots, &waiting)?;
    out.saved = read(&out.parts);
    Ok(out)
}

/// The operands and results that the parts read, each once.
pub(crate) fn read(parts: &[Part]) -> Vec<Slot> {
    let all = parts.iter().flat_map(|p| &p.reads).copied();
    all.filter(|s| !matches!(s, Slot::Grad(_))).fold(Vec::new(), |mut all, slot| {
        if !all.contains(&slot) {
            all.push(slot);
        }
        all
    })
}

/// The program of the gradients of these operands of `kernel`, which have the operands' extents.
fn finish(
    builder: &Builder,
    kernel: &Kernel,
    grads: &[(usize, Expr<'_>)],
) -> Result<(Kernel, Vec<usize>)> {
    let exprs: Vec<Expr<'_>> = grads.iter().map(|(_, expr)| *expr).collect();
    if kernel.is_pointwise() {
        return builder.finish_pruned(&exprs);
    }
    let extents: Vec<Extent> = grads.iter().map(|(i, _)| kernel.input_extent(*i)).collect();
    builder.finish_rows(&exprs, &extents)
}

/// Whether the gradient of output `o` has the shape of operand `i`.
fn passes(kernel: &Kernel, o: usize, i: usize) -> bool {
    kernel.output_extent(o) == kernel.input_extent(i)
}

/// An error if the gradient of a product along a row is needed: it takes scans.
pub(crate) fn require_derivable(kernel: &Kernel, reach: &[u8]) -> Result<()> {
    let is_product =
        |(node, &reach): (&OpNode, &u8)| node.op == OpCode::Fold(Fold::Prod) && reach != 0;
    match kernel.nodes().iter().zip(reach).any(is_product) {
        true => Err(Error::internal("the product of a row has no derivative as a row program")),
        false => Ok(()),
    }
}

impl Derivative {
    /// Puts the waiting gradients into kernels, as many into one as it can hold.
    fn share(
        &mut self,
        builder: &Builder,
        kernel: &Kernel,
        slots: &[Slot],
        waiting: &[(usize, Expr<'_>)],
    ) -> Result<()> {
        let mut rest = waiting;
        while !rest.is_empty() {
            let mut count = rest.len().min(MAX_OUTPUTS);
            let (part, reads) = loop {
                match finish(builder, kernel, &rest[..count]) {
                    Ok(done) => break done,
                    Err(error) if count == 1 => return Err(error),
                    Err(_) => count = count.div_ceil(2).min(count - 1),
                }
            };
            for (place, (i, _)) in rest[..count].iter().enumerate() {
                self.grads[*i] = Source::Part(self.parts.len(), place);
            }
            self.parts.push(Part {
                kernel: Arc::new(part),
                reads: reads.into_iter().map(|r| slots[r]).collect(),
            });
            rest = &rest[count..];
        }
        Ok(())
    }

    /// The gradient of operand `i` as a sum of products: the partial derivative of each output
    /// reads no more than the operands, which always fit.
    fn factors(&mut self, kernel: &Kernel, reach: &[u8], i: usize) -> Result<Source> {
        let mut factors = Vec::new();
        for o in (0..kernel.outputs().len()).filter(|&o| self.reach[o] >> i & 1 == 1) {
            let builder = Builder::new();
            let sweep = Sweep::new(&builder, kernel, reach, false);
            let seeds: Vec<Expr<'_>> =
                sweep.g.iter().enumerate().map(|(p, g)| g.like((p == o) as i32)).collect();
            let partial = sweep.gradients(&seeds)[i]
                .unwrap_or_else(|| builder.constant(0, kernel.inputs()[i]));
            let (part, reads) = builder.finish_pruned(&[partial])?;
            factors.push((o, self.parts.len()));
            self.parts.push(Part {
                kernel: Arc::new(part),
                reads: reads.into_iter().map(|r| sweep.slots[r]).collect(),
            });
        }
        Ok(Source::Factors(factors))
    }
}

/// For each node the needed operands (as bits) that it depends on through floats.
pub(crate) fn reach(kernel: &Kernel, needs: u8) -> Vec<u8> {
    let mut reach: Vec<u8> = Vec::with_capacity(kernel.nodes().len());
    for node in kernel.nodes() {
        // A condition selects; it has no derivative.
        let sources = if node.op == OpCode::Where { &node.src[1..3] } else { node.sources() };
        let through = sources.iter().fold(0, |bits, &s| bits | reach[s as usize]);
        let own = if let OpCode::Input(i) = node.op { needs & 1 << i } else { 0 };
        reach.push(if node.dtype.is_float() { through | own } else { 0 });
    }
    reach
}

/// The inputs of `kernel` as inputs of a program about it.
pub(crate) fn inputs<'b>(builder: &'b Builder, kernel: &Kernel) -> Vec<Expr<'b>> {
    let input = |(i, &t): (usize, &DType)| builder.input_of(t, kernel.input_extent(i));
    kernel.inputs().iter().enumerate().map(input).collect()
}

/// The value of every node, with the program's inputs and parameters replaced by expressions.
pub(crate) fn replay<'b>(
    builder: &'b Builder,
    kernel: &Kernel,
    inputs: &[Expr<'b>],
    params: &[Expr<'b>],
) -> Vec<Expr<'b>> {
    let mut values: Vec<Expr<'b>> = Vec::with_capacity(kernel.nodes().len());
    for node in kernel.nodes() {
        let src = |i: usize| values[node.src[i] as usize];
        let value = match node.op {
            OpCode::Input(i) => inputs[i as usize],
            OpCode::Param(i) => params[i as usize],
            OpCode::Const(value) => builder.constant(value, node.dtype),
            OpCode::Cast => src(0).cast(node.dtype),
            OpCode::Where => src(0).where_cond(src(1), src(2)),
            OpCode::Fold(fold) => src(0).fold(fold),
            OpCode::At => src(0).at(src(1)),
            OpCode::Index => builder.index(),
            OpCode::Length => builder.length(node.dtype),
            op if op.arity() == 1 => src(0).unary(op),
            op => src(0).binary(op, src(1)),
        };
        values.push(value);
    }
    values
}

/// One backward sweep over a program.
struct Sweep<'b, 'k> {
    nodes: &'k [OpNode],
    outputs: &'k [Id],
    inputs: usize,
    reach: &'k [u8],
    /// Whether a node differs along the row.
    extents: Vec<Extent>,
    /// Whether there are rows.
    of_rows: bool,
    /// The value of every node.
    values: Vec<Expr<'b>>,
    /// The value of every node as rules read it: from memory if it is a stored result.
    results: Vec<Expr<'b>>,
    /// The gradients of the outputs.
    g: Vec<Expr<'b>>,
    /// The meaning of each input of the builder.
    slots: Vec<Slot>,
}

impl<'b, 'k> Sweep<'b, 'k> {
    fn new(
        builder: &'b Builder,
        kernel: &'k Kernel,
        reach: &'k [u8],
        stored: bool,
    ) -> Sweep<'b, 'k> {
        let inputs = inputs(builder, kernel);
        let params: Vec<Expr<'b>> = kernel.params().iter().map(|&t| builder.param(t)).collect();
        let extents = kernel.extents();
        let mut slots: Vec<Slot> = (0..inputs.len()).map(Slot::Input).collect();
        let values = replay(builder, kernel, &inputs, &params);
        let mut results = values.clone();
        let mut g = Vec::new();
        for (o, &id) in kernel.outputs().iter().enumerate() {
            let node = &kernel.nodes()[id as usize];
            let extent = kernel.output_extent(o);
            if stored
                && node.op.arity() > 0
                && (kernel.is_pointwise() || extent == extents[id as usize])
            {
                results[id as usize] = builder.input_of(node.dtype, extent);
                slots.push(Slot::Output(o));
            }
            // An integer output has no gradient; a placeholder keeps the numbering and is never
            // read.
            let dtype = if node.dtype.is_float() { node.dtype } else { DType::F32 };
            g.push(builder.input_of(dtype, extent));
            slots.push(Slot::Grad(o));
        }
        Sweep {
            nodes: kernel.nodes(),
            outputs: kernel.outputs(),
            inputs: inputs.len(),
            reach,
            extents,
            of_rows: !kernel.is_pointwise(),
            values,
            results,
            g,
            slots,
        }
    }

    /// The gradients of the operands from the output gradients `g`: `None` where every path has a
    /// zero derivative.
    fn gradients(&self, g: &[Expr<'b>]) -> Vec<Option<Expr<'b>>> {
        let mut adjoint: Vec<Option<Masked<'b>>> = vec![None; self.nodes.len()];
        for (o, &id) in self.outputs.iter().enumerate() {
            if self.reach[id as usize] != 0 {
                self.receive(g[o].extent(), id as usize, g[o].into(), &mut adjoint);
            }
        }
        let mut grads = vec![None; self.inputs];
        for id in (0..self.nodes.len()).rev() {
            let Some(masked) = adjoint[id] else { continue };
            let node = &self.nodes[id];
            if let OpCode::Input(i) = node.op {
                grads[i as usize] = Some(self.whole(masked));
                continue;
            }
            let application = Application::at(self.nodes, id);
            if node.op == OpCode::Where && application.is_none() {
                self.choice(id, masked, &mut adjoint);
                continue;
            }
            let Masked { g, mask } = match application.is_none() && self.keeps_mask(node) {
                true => masked,
                false => self.whole(masked).into(),
            };
            if let Some(application) = application {
                if self.reach[application.x] != 0 {
                    let g = g * application.derivative(self.values[application.x]);
                    self.hand(id, application.x, g.into(), &mut adjoint);
                }
                continue;
            }
            if self.logistic(id, g, &mut adjoint) {
                continue;
            }
            let at = |i: usize| {
                if i < node.op.arity() { node.src[i] as usize } else { node.src[0] as usize }
            };
            let src = [0, 1, 2].map(|i| self.values[at(i)]);
            let step = AppliedOp {
                src,
                kind: [0, 1, 2].map(|i| kind(self.nodes[at(i)].op)),
                y: self.results[id],
                g,
            };
            for (i, g) in operand_grads(node.op, &step).into_iter().enumerate() {
                if let Some(g) = g.filter(|_| i < node.op.arity() && self.reach[at(i)] != 0) {
                    self.hand(id, at(i), Masked { g, mask }, &mut adjoint);
                }
            }
        }
        grads
    }

    /// Hands the gradient of a choice to both sides, masked by the condition.
    fn choice(&self, id: usize, masked: Masked<'b>, adjoint: &mut Adjoints<'b>) {
        let [condition, a, b] = self.nodes[id].src;
        let (g, only) = match masked.mask {
            Some((same, side)) if same == condition => (masked.g, Some(side)),
            _ => (self.whole(masked), None),
        };
        for (side, x) in [(true, a as usize), (false, b as usize)] {
            if only != Some(!side) && self.reach[x] != 0 {
                let masked = Masked { g, mask: Some((condition, side)) };
                self.hand(id, x, masked, adjoint);
            }
        }
    }

    /// Adds the gradient that node `from` hands to its source `to`.
    fn hand(&self, from: usize, to: usize, masked: Masked<'b>, adjoint: &mut Adjoints<'b>) {
        let is_reduction = matches!(self.nodes[from].op, OpCode::Fold(_) | OpCode::At);
        let at = if is_reduction { Extent::Element } else { self.extents[from] };
        self.receive(at, to, masked, adjoint);
    }

    /// Adds the gradient of a use of node `to` with the extent `at`. A value of the row that is
    /// used at each element gets the sum of the gradients there.
    fn receive(&self, at: Extent, to: usize, masked: Masked<'b>, adjoint: &mut Adjoints<'b>) {
        let is_repeated = self.of_rows && (at, self.extents[to]) == (Extent::Element, Extent::Row);
        let masked = if is_repeated { self.whole(masked).fold(Fold::Sum).into() } else { masked };
        self.add(&mut adjoint[to], masked);
    }

    /// True if the gradient of an operand of `node` is 0 wherever the result's gradient is 0, for
    /// all values: then a mask may be applied later. Otherwise it is applied before, since 0 times
    /// an infinity is NaN.
    fn keeps_mask(&self, node: &OpNode) -> bool {
        let is_number = |&id: &Id| kind(self.nodes[id as usize].op) != Operand::Value;
        match node.op {
            OpCode::Sign(SignFunction::Neg) | OpCode::Cast => true,
            OpCode::Arithmetic(Arithmetic::Add | Arithmetic::Sub) => true,
            OpCode::Arithmetic(Arithmetic::Mul) => node.sources().iter().any(is_number),
            _ => false,
        }
    }

    /// The gradient with its zeros.
    fn whole(&self, Masked { g, mask }: Masked<'b>) -> Expr<'b> {
        let Some((condition, side)) = mask else { return g };
        let (a, b) = if side { (g, g.like(0)) } else { (g.like(0), g) };
        self.values[condition as usize].where_cond(a, b)
    }

    /// Adds a gradient. The gradients of both sides of a choice become one choice.
    fn add(&self, sum: &mut Option<Masked<'b>>, term: Masked<'b>) {
        let Some(before) = *sum else {
            *sum = Some(term);
            return;
        };
        *sum = Some(match (before.mask, term.mask) {
            (Some(one), Some(other)) if one == other => {
                Masked { g: before.g + term.g, mask: before.mask }
            }
            (Some((condition, side)), Some((other, _))) if condition == other => {
                let (a, b) = if side { (before.g, term.g) } else { (term.g, before.g) };
                self.values[condition as usize].where_cond(a, b).into()
            }
            _ => (self.whole(before) + self.whole(term)).into(),
        });
    }

    /// Differentiates a [`Quotient`] in one step; true if node `id` is one.
    fn logistic(&self, id: usize, g: Expr<'b>, adjoint: &mut Adjoints<'b>) -> bool {
        let Some(Quotient { top, bottom, z }) = Quotient::at(self.nodes, id) else { return false };
        let s = if top.is_some() { self.values[bottom].recip() } else { self.results[id] };
        if self.reach[z] != 0 {
            let partial = g * s * (1.0 - s);
            let to_z = -(if let Some(a) = top { partial * self.values[a] } else { partial });
            self.hand(id, z, to_z.into(), adjoint);
        }
        if let Some(a) = top.filter(|&a| self.reach[a] != 0) {
            self.hand(id, a, (g * s).into(), adjoint);
        }
        true
    }
}

/// The gradient of each node, as far as it is known.
type Adjoints<'b> = [Option<Masked<'b>>];

/// A gradient that is zero except where a condition, the value of a node, is true, or false.
#[derive(Clone, Copy)]
struct Masked<'b> {
    g: Expr<'b>,
    /// The condition and the side on which the gradient is `g`; None: everywhere.
    mask: Option<(Id, bool)>,
}

impl<'b> From<Expr<'b>> for Masked<'b> {
    fn from(g: Expr<'b>) -> Masked<'b> {
        Masked { g, mask: None }
    }
}

/// The kind of an operand's node.
pub(crate) fn kind(op: OpCode) -> Operand {
    let constant = if matches!(op, OpCode::Const(_)) { Operand::Const } else { Operand::Value };
    if matches!(op, OpCode::Param(_)) { Operand::Param } else { constant }
}

pub(crate) fn add<'b>(sum: &mut Option<Expr<'b>>, g: Expr<'b>) {
    *sum = Some(match *sum {
        Some(before) => before + g,
        None => g,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of the only kernel of the derivative of `f` by its first operand.
    fn operations(f: impl for<'b> Fn([Expr<'b>; 2]) -> Expr<'b>) -> Vec<OpCode> {
        let kernel = Kernel::build([DType::F32; 2], [], |inputs, []| [f(inputs)]).unwrap();
        let derivative = derive(&kernel, 1, true).unwrap();
        let [part] = &derivative.parts[..] else { panic!("{derivative:?}") };
        part.kernel.nodes().iter().map(|node| node.op).filter(|op| op.arity() > 0).collect()
    }

    #[test]
    fn a_choice_is_differentiated_by_one_choice() {
        let chosen = |ops: &[OpCode]| ops.iter().filter(|&&op| op == OpCode::Where).count();
        let leaky = operations(|[x, y]| x.leaky_relu(0.1) + y);
        assert_eq!((leaky.len(), chosen(&leaky)), (3, 1), "{leaky:?}");
        let both = operations(|[x, y]| x.gt(0.0).where_cond(x * 2.0 + y, y - x));
        assert_eq!((both.len(), chosen(&both)), (4, 1), "{both:?}");
        let clamped = operations(|[x, y]| x.hardtanh() + y);
        assert_eq!((clamped.len(), chosen(&clamped)), (4, 2), "{clamped:?}");
        // A slope that may be infinite at the other side is not multiplied by the gradient there.
        let root = operations(|[x, y]| x.gt(0.0).where_cond(x.sqrt(), y));
        assert_eq!(chosen(&root), 1, "{root:?}");
        assert!(matches!(root.last(), Some(OpCode::Arithmetic(_))), "{root:?}");
    }
}
