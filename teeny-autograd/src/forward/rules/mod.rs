//! The tangents of the ops other than kernels, one file per subject, named as the files of the
//! backward rules are.
//!
//! A rule computes the tangent of an output from the operands and outputs of an op and the tangents
//! of the operands: tensors of the inner device. Ties are treated as the gradients treat them, so
//! that both modes agree everywhere.

pub(super) mod assign;
mod conv;
mod index;
mod join;
mod linalg;
mod matmul;
mod pool;
mod reduce;
mod scan;

use super::elementwise::has_tangents;
use super::operands::Operands;
use teeny_core::{Error, Op, ReduceOp, Result, Tensor};

/// True if `op`, of which an operand has a tangent, runs as the primitives of its definition, whose
/// rules are known.
pub(super) fn runs_as_definition(op: &Op<'_>, operands: &Operands) -> bool {
    match op {
        Op::Rows { program, .. } => !has_tangents(program, operands),
        // The rules of products and extrema read the elements that are reduced.
        Op::ReduceKernel { op, .. } => *op != ReduceOp::Sum,
        Op::Attention { .. } | Op::ElementwiseMany { .. } | Op::ElementwiseInPlace { .. } => true,
        Op::Elementwise { .. }
        | Op::Reduce { .. }
        | Op::Scan { .. }
        | Op::CumMax { .. }
        | Op::Matmul { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::CopyInto { .. }
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Random { .. }
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
        | Op::AttentionGrad { .. }
        | Op::Linalg { .. } => false,
        // A fused op that is new to this crate.
        _ => true,
    }
}

/// The tangent of each of `outputs`, the outputs of `op`, an op on the values of `operands`.
pub(super) fn tangents(
    op: &Op<'_>,
    operands: &Operands,
    outputs: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let y = &outputs[0];
    let tangent = match *op {
        Op::Reduce { op, x, axes } => reduce::reduce(operands, op, x, axes, y)?,
        Op::Scan { op, x, axis } => scan::scan(operands, op, x, axis)?,
        Op::Matmul { lhs, rhs } => matmul::matmul(operands, lhs, rhs)?,
        Op::Gather { axis, index, .. } => index::gather(operands, axis, index)?,
        Op::Scatter { mode, x, axis, index, src } => {
            index::scatter(operands, mode, x, axis, index, src, y)?
        }
        Op::Sort { axis, .. } | Op::CumMax { axis, .. } | Op::TopK { axis, .. } => {
            return Ok(vec![index::gather(operands, axis, &outputs[1])?, None]);
        }
        Op::Contiguous { .. } => operands.tangent(0).cloned(),
        Op::Cat { tensors, axis } => join::cat(operands, tensors.len(), axis)?,
        Op::Pad { widths, .. } => join::pad(operands, widths)?,
        Op::Tri { diagonal, upper, .. } => join::tri(operands, diagonal, upper)?,
        Op::Conv { x, weight, window } => conv::conv(operands, x, weight, window)?,
        Op::ConvInputGrad { g, weight, window, x_shape } => {
            conv::conv_input_grad(operands, g, weight, window, x_shape)?
        }
        Op::ConvWeightGrad { g, x, window, weight_shape } => {
            conv::conv_weight_grad(operands, g, x, window, weight_shape)?
        }
        Op::MaxPool { kernel_size, .. } => {
            return Ok(vec![pool::max_pool(operands, kernel_size.len(), &outputs[1])?, None]);
        }
        Op::MaxPoolGrad { positions, x_shape, spatial, .. } => {
            pool::max_pool_grad(operands, positions, x_shape, spatial)?
        }
        Op::AvgPool { kernel_size, window, .. } => pool::avg_pool(operands, kernel_size, window)?,
        Op::Linalg { op, .. } => return linalg::linalg(operands, op, outputs),
        // New values.
        Op::Random { .. } => None,
        // Kernels, ops that write to storage, and ops that run as their definition.
        Op::Elementwise { .. }
        | Op::ElementwiseInPlace { .. }
        | Op::ReduceKernel { .. }
        | Op::Rows { .. }
        | Op::CopyInto { .. }
        | Op::Attention { .. }
        | Op::AttentionGrad { .. }
        | _ => return Err(Error::internal(format!("{} has no tangent rule", op.name()))),
    };
    Ok(vec![tangent])
}
