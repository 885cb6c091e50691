//! The rules of the ops other than elementwise kernels, one file per subject: the gradient and the
//! tangent of each op, which `table` puts side by side.
//!
//! [`execute`] runs an op on the inner device and records it with its [`Rule`]: a closure over
//! *inner* tensors that uses public `Tensor` operations. It runs on any device, and where the inner
//! device is itself an autograd device, the backward pass is recorded and can be differentiated
//! again.
//!
//! No gradient passes through `argmax`, `argmin`, `any`, `all`, the positions of `sort` and
//! `max_pool`, comparisons and casts to integers. Their results have a detach point, for the error
//! about a missing gradient.

pub(crate) mod assign;
pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod linalg;
pub(crate) mod matmul;
pub(crate) mod pool;
pub(crate) mod quant;
pub(crate) mod reduce;
pub(crate) mod scan;
mod table;

use crate::duals::Duals;
use crate::record::{Operands, Recorder, Rule};
use table::{GradientInputs, Reply, Request, TangentInputs, rules};
use teeny_core::{Error, Op, Outputs, Result, Shape, Tensor};

/// Runs `op` on the inner device and records it. `None` leaves the op to its definition, whose
/// primitives are recorded one by one.
pub(crate) fn execute(recorder: &Recorder, op: &mut Op<'_>) -> Result<Option<Outputs>> {
    // The destination of a copy is taken, not borrowed.
    if let Op::CopyInto { ref mut dst, view, src } = *op {
        let dst = dst.take().ok_or_else(|| Error::internal("the destination was taken"))?;
        return assign::copy_into(recorder, dst, view, src).map(|storage| Some(storage.into()));
    }
    let (name, outer) = (op.name(), op.operands());
    let operands = Operands::of(&outer)?;
    if let (true, Op::AttentionGrad { inputs, g, needs, .. }) = (operands.recording, &*op) {
        op.outputs()?; // checks the operands
        return attention::recorded_grad(inputs, g, *needs).map(Some);
    }
    if !keeps_whole(op, &operands)? {
        return Ok(None);
    }
    let inner = operands.inner()?;
    let values = op.with_operands(&inner).tensor_list(recorder.inner())?;
    if !operands.recording {
        return operands.untracked(values).map(Some);
    }
    let rule = gradient(recorder, &op.with_operands(&inner), &operands, &values)?;
    drop(inner);
    match rule {
        Some(rule) => operands.record(name, values, rule).map(Some),
        None => operands.stopped().untracked(values).map(Some),
    }
}

/// The rule of `op`, an op on inner tensors; `None` if no gradient passes through it.
fn gradient(
    recorder: &Recorder,
    op: &Op<'_>,
    operands: &Operands<'_>,
    outputs: &[Tensor],
) -> Result<Option<Rule>> {
    match rules(op, Request::Gradient(GradientInputs { recorder, operands, outputs }))? {
        Reply::Gradient(rule) => Ok(rule),
        _ => Err(no_rule(op)),
    }
}

/// True if the op runs on the inner device as one op, which then needs a rule. Otherwise it is
/// recorded as the primitives of its definition.
fn keeps_whole(op: &Op<'_>, operands: &Operands<'_>) -> Result<bool> {
    let as_definition = match op {
        _ if !operands.recording => return Ok(true),
        // The rules of products and extrema read the elements that are reduced.
        Op::ReduceKernel { kernel, op, .. } => !reduce::sums_floats(kernel, *op),
        // The (.., T, S) matrix of scores is the gradient of the mask anyway.
        Op::Attention { inputs } => inputs.mask.is_some() && operands.need(3),
        Op::Linalg { op, inputs } => linalg::require_rule(*op, inputs).map(|()| false)?,
        _ => false,
    };
    Ok(!as_definition && matches!(rules(op, Request::HasGradient)?, Reply::Exists))
}

/// True if `op`, of which an operand has a tangent, has a rule for it.
pub(crate) fn has_tangent(op: &Op<'_>) -> Result<bool> {
    Ok(matches!(rules(op, Request::HasTangent)?, Reply::Exists))
}

/// The tangent of each of `outputs`, the outputs of `op`, an op on the values of `operands`. Ties
/// are treated as the gradients treat them, so that both modes agree everywhere.
pub(crate) fn tangents(
    op: &Op<'_>,
    operands: &Duals,
    outputs: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let Reply::Tangent(first) = rules(op, Request::Tangent(TangentInputs { operands, outputs }))?
    else {
        return Err(no_rule(op));
    };
    let mut all = vec![None; outputs.len()];
    all[0] = first;
    Ok(all)
}

#[cold]
fn no_rule(op: &Op<'_>) -> Error {
    Error::internal(format!("{} has no derivative rule", op.name()))
}

/// `g`, reduced over `axes` of `shape`, repeated to `shape` again: a view.
pub(crate) fn broadcast_back(g: &Tensor, shape: &Shape, axes: &[usize]) -> Result<Tensor> {
    axes.iter().try_fold(g.clone(), |g, &axis| g.unsqueeze(axis as isize))?.expand(shape)
}
