//! Building kernels: typed expressions with operators, promotion and hash-consing.
//!
//! [`Expr`] is a handle to a node of a [`Builder`]; its methods are the elementwise vocabulary of
//! the library. Composite functions (`gelu`, `sigmoid`, …) are defined here, once, for tensors,
//! user kernels and derivative rules.

use super::errors::{
    mixed, not_accepted, too_many_inputs, too_many_nodes, too_many_params, wrong_outputs,
};
use super::hash::NodeHash;
use super::rows::extent;
use super::simplify::{Simplified, simplify};
use super::{Extent, Id, Kernel, MAX_INPUTS, MAX_OUTPUTS, OpCode, OpNode};
use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use std::cell::RefCell;
use std::collections::HashMap;

/// Collects the nodes of a program. Equal nodes are stored once. The first error is kept and
/// returned by [`Builder::finish`].
#[derive(Default)]
pub struct Builder {
    state: RefCell<BuilderState>,
}

#[derive(Default)]
struct BuilderState {
    inputs: Vec<DType>,
    /// For each input: true if it has one value per row.
    row_inputs: Vec<bool>,
    params: Vec<DType>,
    nodes: Vec<OpNode>,
    /// The extent of each node: one value per row or per element.
    extents: Vec<Extent>,
    /// Whether an operation of rows, or a per-row input, was written.
    of_rows: bool,
    /// The nodes, once there are more than [`MAX_SCANNED`].
    known: HashMap<OpNode, Id, NodeHash>,
    error: Option<Error>,
}

/// Nodes that are compared one by one in less time than one is looked up.
const MAX_SCANNED: usize = 32;

impl BuilderState {
    /// The node that equals `node`.
    fn find(&mut self, node: &OpNode) -> Option<Id> {
        if self.nodes.len() <= MAX_SCANNED {
            let same = |n: &OpNode| n.src == node.src && n.dtype == node.dtype && n.op == node.op;
            return self.nodes.iter().position(same).map(|id| id as Id);
        }
        for id in self.known.len()..self.nodes.len() {
            self.known.insert(self.nodes[id], id as Id);
        }
        self.known.get(node).copied()
    }
}

impl Builder {
    /// An empty program.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// The next input tensor, of type `dtype`.
    pub fn input(&self, dtype: DType) -> Expr<'_> {
        self.input_of(dtype, Extent::Element)
    }

    /// The next input tensor of a row program, which has an element for each position of a row, or
    /// one for all of them.
    pub fn input_of(&self, dtype: DType, extent: Extent) -> Expr<'_> {
        let i = {
            let mut state = self.state.borrow_mut();
            state.inputs.push(dtype);
            state.row_inputs.push(extent == Extent::Row);
            state.of_rows |= extent == Extent::Row;
            state.inputs.len() - 1
        };
        if i > u8::MAX as usize {
            self.fail(too_many_inputs());
        }
        self.add(OpCode::Input(i as u8), [0; 3], dtype)
    }

    /// The next run-time parameter, of type `dtype`.
    pub fn param(&self, dtype: DType) -> Expr<'_> {
        let i = {
            let mut state = self.state.borrow_mut();
            state.params.push(dtype);
            state.params.len() - 1
        };
        if i > u8::MAX as usize {
            self.fail(too_many_params());
        }
        self.add(OpCode::Param(i as u8), [0; 3], dtype)
    }

    /// A constant as `dtype` computes it.
    pub fn constant(&self, value: impl Into<Scalar>, dtype: DType) -> Expr<'_> {
        self.add(OpCode::Const(value.into().cast(dtype.compute())), [0; 3], dtype)
    }

    /// The program of `kernel` with its inputs and parameters replaced by expressions:
    /// substitution, the base of fusion and of derivatives.
    pub fn embed<'b>(
        &'b self,
        kernel: &Kernel,
        inputs: &[Expr<'b>],
        params: &[Expr<'b>],
    ) -> Vec<Expr<'b>> {
        let mut map: Vec<Expr<'b>> = Vec::with_capacity(kernel.nodes.len());
        let fits = |given: &[Expr<'b>], wanted: &[DType]| {
            given.len() == wanted.len() && given.iter().all(|e| self.owns(*e))
        };
        if !fits(inputs, &kernel.inputs) || !fits(params, &kernel.params) {
            self.fail(
                Error::value(format!(
                    "an embedded kernel takes {} inputs and {} parameters of the builder it \
                     is embedded in, not {} and {}",
                    kernel.inputs.len(),
                    kernel.params.len(),
                    inputs.len(),
                    params.len()
                ))
                .help("pass one expression of this builder per input and per parameter"),
            );
            return kernel
                .outputs
                .iter()
                .map(|&o| self.constant(0, kernel.nodes[o as usize].dtype))
                .collect();
        }
        for node in &kernel.nodes {
            let expr = match node.op {
                OpCode::Input(i) => inputs[i as usize],
                OpCode::Param(i) => params[i as usize],
                op => {
                    let mut src = [0; 3];
                    for (to, &from) in src.iter_mut().zip(node.sources()) {
                        *to = map[from as usize].id;
                    }
                    self.add(op, src, node.dtype)
                }
            };
            map.push(expr);
        }
        kernel.outputs.iter().map(|&o| map[o as usize]).collect()
    }

    /// The finished program: only nodes that an output needs, the inputs first, in order.
    ///
    /// # Errors
    /// The first mistake made while building: an operation on a type it does not accept, too many
    /// inputs, outputs or nodes.
    #[track_caller]
    pub fn finish(&self, outputs: &[Expr<'_>]) -> Result<Kernel> {
        let _op = enter("Builder::finish");
        self.require_own(outputs)?;
        let inputs = (0..self.state.borrow().inputs.len()).collect();
        self.assemble(outputs, &self.own_extents(outputs), inputs)
    }

    /// [`Builder::finish_pruned`] with the extent of each output said: a value of a row may be
    /// written at every position of it.
    ///
    /// # Errors
    /// As [`Builder::finish_pruned`].
    #[track_caller]
    pub fn finish_rows(
        &self,
        outputs: &[Expr<'_>],
        extents: &[Extent],
    ) -> Result<(Kernel, Vec<usize>)> {
        let _op = enter("Builder::finish_rows");
        self.require_own(outputs)?;
        if outputs.len() != extents.len() {
            return Err(Error::value(format!(
                "{} outputs and {} extents",
                outputs.len(),
                extents.len()
            ))
            .help("pass one extent per output"));
        }
        let read = self.inputs_of(outputs);
        Ok((self.assemble(outputs, extents, read.clone())?, read))
    }

    /// [`Builder::finish`] without the inputs that no output needs: the program, and the former
    /// number of each of its inputs.
    ///
    /// A derivative rule may refer to every operand, result and gradient; the kernel reads only
    /// those it needs.
    ///
    /// # Errors
    /// As [`Builder::finish`]; only inputs that are read count against the limit.
    #[track_caller]
    pub fn finish_pruned(&self, outputs: &[Expr<'_>]) -> Result<(Kernel, Vec<usize>)> {
        let _op = enter("Builder::finish_pruned");
        self.require_own(outputs)?;
        let read = self.inputs_of(outputs);
        Ok((self.assemble(outputs, &self.own_extents(outputs), read.clone())?, read))
    }

    /// The inputs that the outputs need, in order.
    fn inputs_of(&self, outputs: &[Expr<'_>]) -> Vec<usize> {
        let nodes = self.needed(outputs);
        let state = self.state.borrow();
        let input = |op| if let OpCode::Input(i) = op { Some(i as usize) } else { None };
        let needed = state.nodes.iter().zip(&nodes).filter(|(_, needed)| **needed);
        let mut read: Vec<usize> = needed.filter_map(|(node, _)| input(node.op)).collect();
        read.sort_unstable();
        read
    }

    /// The extent of each output as it is written, which is one value a row only in a row program.
    fn own_extents(&self, outputs: &[Expr<'_>]) -> Vec<Extent> {
        let of_rows = self.is_of_rows();
        outputs.iter().map(|o| if of_rows { o.extent } else { Extent::Element }).collect()
    }

    /// Whether an operation of rows, or an input of one value a row, was written, even if the
    /// program does not need it.
    pub(crate) fn is_of_rows(&self) -> bool {
        self.state.borrow().of_rows
    }

    /// Which nodes the outputs need.
    fn needed(&self, outputs: &[Expr<'_>]) -> Vec<bool> {
        let state = self.state.borrow();
        let mut needed = vec![false; state.nodes.len()];
        for output in outputs {
            needed[output.id as usize] = true;
        }
        for (id, node) in state.nodes.iter().enumerate().rev() {
            if needed[id] {
                node.sources().iter().for_each(|&source| needed[source as usize] = true);
            }
        }
        needed
    }

    /// The program of `outputs` with the inputs numbered `inputs`, in this order; every input that
    /// is needed is among them.
    fn assemble(
        &self,
        outputs: &[Expr<'_>],
        extents: &[Extent],
        inputs: Vec<usize>,
    ) -> Result<Kernel> {
        let needed = self.needed(outputs);
        let state = self.state.borrow();
        if let Some(error) = &state.error {
            return Err(error.clone().placed());
        }
        if inputs.len() > MAX_INPUTS {
            return Err(too_many_inputs());
        }
        if outputs.is_empty() || outputs.len() > MAX_OUTPUTS {
            return Err(wrong_outputs(outputs.len()));
        }
        let mut renumbered = vec![0 as Id; state.nodes.len()];
        let mut nodes = Vec::new();
        let all = || state.nodes.iter().enumerate().filter(|(id, _)| needed[*id]);
        let is_input = |node: &OpNode| matches!(node.op, OpCode::Input(_));
        // Inputs first: an engine that loads one between two operations cannot keep the values of
        // both in registers.
        let inputs_first =
            all().filter(|(_, n)| is_input(n)).chain(all().filter(|(_, n)| !is_input(n)));
        for (id, node) in inputs_first {
            let mut node = *node;
            for i in 0..node.op.arity() {
                node.src[i] = renumbered[node.src[i] as usize];
            }
            if let OpCode::Input(i) = node.op {
                let place = inputs.iter().position(|&kept| kept == i as usize);
                node.op = OpCode::Input(
                    place.ok_or_else(|| Error::internal("a needed input was pruned"))? as u8,
                );
            }
            renumbered[id] = nodes.len() as Id;
            nodes.push(node);
        }
        let bits = |rows: &mut dyn Iterator<Item = bool>, first: usize| {
            rows.enumerate().fold(0, |bits, (i, is_row)| bits | u16::from(is_row) << (first + i))
        };
        let row_values = bits(&mut inputs.iter().map(|&i| state.row_inputs[i]), 0)
            | bits(&mut extents.iter().map(|&extent| extent == Extent::Row), MAX_INPUTS);
        if extents.iter().zip(outputs).any(|(&extent, output)| {
            extent == Extent::Row && state.extents[output.id as usize] == Extent::Element
        }) {
            return Err(Error::value("a per-row output differs along the row")
                .help("reduce it: x.sum(), x.max(), x.at(position)"));
        }
        let outputs = outputs.iter().map(|o| renumbered[o.id as usize]).collect();
        Ok(Kernel::new(
            inputs.iter().map(|&i| state.inputs[i]).collect(),
            state.params.clone(),
            nodes,
            outputs,
            row_values,
        ))
    }

    pub(super) fn add(&self, op: OpCode, src: [Id; 3], dtype: DType) -> Expr<'_> {
        let mut state = self.state.borrow_mut();
        state.of_rows |= op.is_of_rows();
        let id = match simplify(&state.nodes, OpNode { op, src, dtype }) {
            Simplified::Same(id) => id,
            Simplified::Node(node) => match state.find(&node) {
                Some(id) => id,
                None => {
                    let id = state.nodes.len();
                    if id >= Id::MAX as usize {
                        state.error.get_or_insert_with(too_many_nodes);
                        return Expr { builder: self, id: 0, extent: Extent::Row };
                    }
                    let extent = extent(&node, &state.row_inputs, &state.extents);
                    state.extents.push(extent);
                    state.nodes.push(node);
                    id as Id
                }
            },
        };
        Expr { builder: self, id, extent: state.extents[id as usize] }
    }

    /// The node numbered `id`.
    pub(super) fn node(&self, id: Id) -> OpNode {
        self.state.borrow().nodes[id as usize]
    }

    /// The extent of the node numbered `id`.
    pub(super) fn extent(&self, id: Id) -> Extent {
        self.state.borrow().extents[id as usize]
    }

    pub(super) fn fail(&self, error: Error) {
        self.state.borrow_mut().error.get_or_insert(error);
    }

    /// True if `expr` is a value of this program.
    #[inline]
    pub(super) fn owns(&self, expr: Expr<'_>) -> bool {
        std::ptr::eq(self, expr.builder)
    }

    /// An error unless all are values of this program.
    fn require_own(&self, exprs: &[Expr<'_>]) -> Result<()> {
        match exprs.iter().position(|e| !self.owns(*e)) {
            Some(i) => Err(mixed().note(format!("output {i} belongs to another builder"))),
            None => Ok(()),
        }
    }
}

impl Kernel {
    /// The kernel that `body` describes, for inputs and run-time parameters of the given types.
    ///
    /// # Errors
    /// If an operation does not accept its operands' types.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, Kernel};
    /// // Plain gradient descent with the learning rate as a parameter.
    /// let sgd =
    ///     Kernel::build([DType::F32; 2], [DType::F32], |[w, g], [lr]| [w - g * lr]).unwrap();
    /// assert_eq!(sgd.inputs().len(), 2);
    /// ```
    #[track_caller]
    pub fn build<const I: usize, const P: usize, const O: usize>(
        inputs: [DType; I],
        params: [DType; P],
        body: impl for<'b> FnOnce([Expr<'b>; I], [Expr<'b>; P]) -> [Expr<'b>; O],
    ) -> Result<Kernel> {
        let _op = enter("Kernel::build");
        let builder = Builder::new();
        let outputs = body(inputs.map(|t| builder.input(t)), params.map(|t| builder.param(t)));
        builder.finish(&outputs)
    }
}

/// A value of a program under construction. `Copy`; operators and methods add nodes.
///
/// Operands of different types are promoted as tensors are; a Rust number takes the type that the
/// other operand promotes to.
#[derive(Clone, Copy)]
pub struct Expr<'b> {
    pub(super) builder: &'b Builder,
    pub(super) id: Id,
    /// The extent of the value as it is written; a simpler node may compute it from one value a
    /// row.
    extent: Extent,
}

/// The second operand of an [`Expr`] method: another expression or a Rust number.
pub trait ExprOperand<'b> {
    /// The operand as an expression, given its partner.
    fn expr(self, partner: Expr<'b>) -> Expr<'b>;
}
impl<'b> ExprOperand<'b> for Expr<'b> {
    fn expr(self, _: Expr<'b>) -> Expr<'b> {
        self
    }
}
impl<'b, T: Into<Scalar>> ExprOperand<'b> for T {
    fn expr(self, partner: Expr<'b>) -> Expr<'b> {
        let value = self.into();
        partner.builder.constant(value, partner.dtype().promote_scalar(value.kind()))
    }
}

impl<'b> Expr<'b> {
    /// The builder this value belongs to.
    pub fn builder(self) -> &'b Builder {
        self.builder
    }

    /// The type of the value.
    pub fn dtype(self) -> DType {
        self.builder.state.borrow().nodes[self.id as usize].dtype
    }

    /// Whether the value differs along the row of a row program.
    pub fn extent(self) -> Extent {
        self.extent
    }

    /// The value of an operation on these operands: it differs along the row if one of them does.
    fn of(mut self, operands: &[Expr<'b>]) -> Expr<'b> {
        if operands.iter().any(|x| x.extent == Extent::Element) {
            self.extent = Extent::Element;
        }
        self
    }

    /// The node of the value.
    pub(super) fn node(self) -> OpNode {
        self.builder.node(self.id)
    }

    /// True if the value is the constant `value`.
    pub fn is_constant(self, value: f64) -> bool {
        matches!(self.builder.state.borrow().nodes[self.id as usize].op, OpCode::Const(k) if k.is(value))
    }

    /// True if the value is a constant or a run-time parameter, not computed from tensors.
    pub(super) fn is_number(self) -> bool {
        let op = self.builder.state.borrow().nodes[self.id as usize].op;
        matches!(op, OpCode::Const(_) | OpCode::Param(_))
    }

    /// The value as `dtype`. See [`Scalar::cast`].
    pub fn cast(self, dtype: DType) -> Expr<'b> {
        if self.dtype() == dtype {
            return self;
        }
        self.builder.add(OpCode::Cast, [self.id, 0, 0], dtype).of(&[self])
    }

    /// A constant of the same type.
    pub fn like(self, value: impl Into<Scalar>) -> Expr<'b> {
        self.builder.constant(value, self.dtype())
    }

    /// `op` applied to this value; the value must have a type `op` accepts.
    pub fn unary(self, op: impl Into<OpCode>) -> Expr<'b> {
        let op = op.into();
        let dtype = self.dtype();
        if !op.accepts(dtype) {
            self.builder.fail(not_accepted(op, dtype));
            return self;
        }
        let result = if op.is_predicate() { DType::Bool } else { dtype };
        self.builder.add(op, [self.id, 0, 0], result).of(&[self])
    }

    /// `op` applied to this value and `rhs` after promotion; the promoted type must be one `op`
    /// accepts.
    pub fn binary(self, op: impl Into<OpCode>, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let op = op.into();
        let rhs = rhs.expr(self);
        if !self.builder.owns(rhs) {
            self.builder.fail(mixed());
            return self;
        }
        let dtype = self.dtype().promote(rhs.dtype());
        if !op.accepts(dtype) {
            self.builder.fail(not_accepted(op, dtype));
            return self;
        }
        let (lhs, rhs) = (self.cast(dtype), rhs.cast(dtype));
        let result = if op.is_predicate() { DType::Bool } else { dtype };
        self.builder.add(op, [lhs.id, rhs.id, 0], result).of(&[lhs, rhs])
    }

    /// `a` where this value is true, `b` elsewhere; `a` and `b` are promoted to one type. A value
    /// that is not a bool is compared with 0.
    pub fn where_cond(self, a: Expr<'b>, b: impl ExprOperand<'b>) -> Expr<'b> {
        let b = b.expr(a);
        if !self.builder.owns(a) || !self.builder.owns(b) {
            self.builder.fail(mixed());
            return self;
        }
        let dtype = a.dtype().promote(b.dtype());
        let (condition, a, b) = (self.truth(), a.cast(dtype), b.cast(dtype));
        self.builder.add(OpCode::Where, [condition.id, a.id, b.id], dtype).of(&[condition, a, b])
    }

    /// True where the value is not zero.
    pub fn truth(self) -> Expr<'b> {
        self.cast(DType::Bool)
    }
}
