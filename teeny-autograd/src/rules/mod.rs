//! The backward rules of the ops other than elementwise kernels, one file per subject.
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
pub(crate) mod reduce;
pub(crate) mod scan;

use crate::record::{Operands, Recorder, Rule};
use teeny_core::{Error, Op, Outputs, Result, Shape, Tensor};

/// Runs `op` on the inner device and records it. `None` leaves the op to its definition, whose
/// primitives are recorded one by one.
pub(crate) fn execute(recorder: &Recorder, op: &mut Op<'_>) -> Result<Option<Outputs>> {
    // The destination of a copy is taken, not borrowed.
    if let Op::CopyInto { ref mut dst, view, src } = *op {
        let dst = dst.take().ok_or_else(|| Error::internal("there is no destination"))?;
        return assign::copy_into(recorder, dst, view, src).map(|storage| Some(storage.into()));
    }
    let (name, outer) = (op.name(), op.operands());
    let operands = Operands::of(&outer)?;
    if !keeps_whole(op, &operands)? {
        return Ok(None);
    }
    if let (true, Op::AttentionGrad { inputs, g, needs, .. }) = (operands.recording, &*op) {
        op.outputs()?; // checks the operands
        return attention::recorded_grad(inputs, g, *needs).map(Some);
    }
    let inner = operands.inner()?;
    if has_one_output(op) {
        let y = op.with_operands(&inner).tensor(recorder.inner())?;
        let rule = match operands.recording {
            true => rule(recorder, &op.with_operands(&inner), &operands, std::slice::from_ref(&y))?,
            false => None,
        };
        drop(inner);
        return Ok(Some(Outputs::one(match rule {
            Some(Rule { backward, edges, .. }) => operands.store(name, y, edges, backward),
            None => operands.detached(y),
        })));
    }
    let values = op.with_operands(&inner).tensor_list(recorder.inner())?;
    if !operands.recording {
        return Ok(Some(operands.untracked(values)));
    }
    let rule = rule(recorder, &op.with_operands(&inner), &operands, &values)?;
    drop(inner);
    Ok(Some(match rule {
        Some(rule) => operands.record(name, values, rule),
        None => operands.stopped().untracked(values),
    }))
}

/// True for the ops that always have one output.
fn has_one_output(op: &Op<'_>) -> bool {
    !matches!(
        op,
        Op::Sort { .. }
            | Op::CumMax { .. }
            | Op::TopK { .. }
            | Op::ElementwiseMany { .. }
            | Op::MatmulKernel { .. }
            | Op::ConvKernel { .. }
            | Op::MaxPool { .. }
            | Op::Attention { .. }
            | Op::AttentionGrad { .. }
            | Op::Linalg { .. }
    )
}

/// True if the op runs on the inner device as one op, which then needs a rule. Otherwise it is
/// recorded as the primitives of its definition.
fn keeps_whole(op: &Op<'_>, operands: &Operands<'_>) -> Result<bool> {
    Ok(match op {
        _ if !operands.recording => true,
        // The rules of products and extrema read the elements that are reduced.
        Op::ReduceKernel { kernel, op, .. } => reduce::sums_floats(kernel, *op),
        // The (.., T, S) matrix of scores is the gradient of the mask anyway.
        Op::Attention { inputs } => inputs.mask.is_none() || !operands.need(3),
        Op::Linalg { op, inputs } => linalg::require_rule(*op, inputs).map(|()| true)?,
        Op::Reduce { .. }
        | Op::Scan { .. }
        | Op::CumMax { .. }
        | Op::Matmul { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Contiguous { .. }
        | Op::Cat { .. }
        | Op::Pad { .. }
        | Op::Tri { .. }
        | Op::Conv { .. }
        | Op::ConvInputGrad { .. }
        | Op::ConvWeightGrad { .. }
        | Op::MaxPool { .. }
        | Op::MaxPoolGrad { .. }
        | Op::AvgPool { .. }
        | Op::AttentionGrad { .. } => true,
        // A fused op that is new to this crate.
        _ => false,
    })
}

/// The rule of `op`, an op on inner tensors with the outputs `values`; `None` if no gradient passes
/// through it.
fn rule(
    recorder: &Recorder,
    op: &Op<'_>,
    operands: &Operands<'_>,
    values: &[Tensor],
) -> Result<Option<Rule>> {
    Ok(Some(match *op {
        Op::Reduce { op, x, axes } => return Ok(reduce::reduce(operands, op, x, axes, &values[0])),
        Op::ReduceKernel { kernel, params, shape, axes, .. } => {
            return reduce::reduce_kernel(recorder, operands, kernel, params, shape, axes);
        }
        Op::Scan { op, x, axis } => scan::scan(operands, op, x, axis, &values[0]),
        Op::CumMax { axis, .. } => scan::cum_max(operands, axis, &values[1]),
        Op::Matmul { lhs, rhs } => matmul::matmul(operands, lhs, rhs)?,
        Op::Gather { x, axis, index } => index::gather(operands, x, axis, index),
        Op::Scatter { mode, x, axis, index, src } => {
            index::scatter(operands, mode, x, axis, index, src, &values[0])
        }
        Op::Sort { x, axis, .. } | Op::TopK { x, axis, .. } => {
            index::sort(operands, x.shape(), axis, &values[1])
        }
        Op::Contiguous { .. } => Rule::new(operands, |g| Ok([Some(g.clone())])),
        Op::Cat { tensors, axis } => join::cat(operands, tensors, axis),
        Op::Pad { x, widths, .. } => join::pad(operands, x, widths),
        Op::Tri { diagonal, upper, .. } => join::tri(operands, diagonal, upper),
        Op::Conv { x, weight, window } => conv::conv(operands, x, weight, window),
        Op::ConvInputGrad { g, weight, window, .. } => {
            conv::conv_input_grad(operands, g, weight, window)
        }
        Op::ConvWeightGrad { g, x, window, .. } => conv::conv_weight_grad(operands, g, x, window),
        Op::MaxPool { x, kernel_size, .. } => {
            pool::max_pool(operands, x, kernel_size.len(), &values[1])
        }
        Op::MaxPoolGrad { g, positions, spatial, .. } => {
            pool::max_pool_grad(operands, g, positions, spatial)
        }
        Op::AvgPool { x, kernel_size, window } => pool::avg_pool(operands, x, kernel_size, window),
        Op::Attention { ref inputs } => attention::attention(operands, inputs, values),
        Op::Linalg { op, inputs } => linalg::linalg(operands, op, inputs, values),
        _ => {
            return Err(Error::internal(format!("{} has no derivative rule", op.name())));
        }
    }))
}

/// `g`, reduced over `axes` of `shape`, repeated to `shape` again: a view.
pub(crate) fn broadcast_back(g: &Tensor, shape: &Shape, axes: &[usize]) -> Result<Tensor> {
    axes.iter().try_fold(g.clone(), |g, &axis| g.unsqueeze(axis as isize))?.expand(shape)
}
