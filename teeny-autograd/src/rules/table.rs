//! The table of rules: for each op its gradient and its tangent, side by side.
//!
//! An op without a row runs as its definition, whose primitives have rules: so does a fused op that
//! is new to this crate. Kernels and row programs are differentiated by `symbolic`. Assignments have
//! their rules in `rules::assign` and `forward::assign`, the gradients of attention in
//! `attention::recorded_grad`.

use super::{attention, conv, index, join, linalg, matmul, pool, quant, reduce, scan};
use crate::duals::Duals;
use crate::record::{Operands, Recorder, Rule};
use teeny_core::{Op, Result, Tensor};

/// The inputs of a gradient rule; the op is on inner tensors.
pub(super) struct GradientInputs<'r> {
    pub recorder: &'r Recorder,
    pub operands: &'r Operands<'r>,
    /// The outputs of the op.
    pub outputs: &'r [Tensor],
}

/// The inputs of a tangent rule; the op is on the values of `operands`.
pub(super) struct TangentInputs<'r> {
    pub operands: &'r Duals,
    /// The outputs of the op.
    pub outputs: &'r [Tensor],
}

/// The rule of a gradient: `None` if no gradient passes through the op.
pub(super) trait IntoRule {
    fn into_rule(self) -> Result<Option<Rule>>;
}
impl IntoRule for Rule {
    fn into_rule(self) -> Result<Option<Rule>> {
        Ok(Some(self))
    }
}
impl IntoRule for Option<Rule> {
    fn into_rule(self) -> Result<Option<Rule>> {
        Ok(self)
    }
}
impl IntoRule for Result<Rule> {
    fn into_rule(self) -> Result<Option<Rule>> {
        self.map(Some)
    }
}
impl IntoRule for Result<Option<Rule>> {
    fn into_rule(self) -> Result<Option<Rule>> {
        self
    }
}

/// A request to the rules of an op.
pub(super) enum Request<'r> {
    /// Whether there is one for its gradient.
    HasGradient,
    /// That rule.
    Gradient(GradientInputs<'r>),
    /// Whether there is one for its tangent.
    HasTangent,
    /// The tangent of its first output; further outputs have none.
    Tangent(TangentInputs<'r>),
}

/// The reply of the rules.
pub(super) enum Reply {
    /// The op lacks this rule.
    None,
    /// The op has this rule.
    Exists,
    Gradient(Option<Rule>),
    Tangent(Option<Tensor>),
}

impl Request<'_> {
    /// The reply for an op with only a gradient rule.
    fn gradient<R: IntoRule>(
        self,
        gradient: impl FnOnce(GradientInputs<'_>) -> R,
    ) -> Result<Reply> {
        Ok(match self {
            Request::HasGradient => Reply::Exists,
            Request::Gradient(recording) => Reply::Gradient(gradient(recording).into_rule()?),
            Request::HasTangent | Request::Tangent(_) => Reply::None,
        })
    }

    /// The reply for an op with both rules.
    fn both<R: IntoRule>(
        self,
        gradient: impl FnOnce(GradientInputs<'_>) -> R,
        tangent: impl FnOnce(TangentInputs<'_>) -> Result<Option<Tensor>>,
    ) -> Result<Reply> {
        match self {
            Request::HasTangent => Ok(Reply::Exists),
            Request::Tangent(dual) => tangent(dual).map(Reply::Tangent),
            _ => self.gradient(gradient),
        }
    }
}

/// Returns the reply of the rules of `op`.
pub(super) fn rules(op: &Op<'_>, request: Request<'_>) -> Result<Reply> {
    match *op {
        Op::Reduce { op, x, axes } => request.both(
            |r| reduce::reduce(r.operands, op, x, axes, &r.outputs[0]),
            |d| reduce::reduce_tangent(d.operands, op, x, axes, &d.outputs[0]),
        ),
        // tangent: `forward::elementwise::sum_kernel`
        Op::ReduceKernel { kernel, params, shape, axes, .. } => request.gradient(|r| {
            reduce::reduce_kernel(r.recorder, r.operands, kernel, params, shape, axes)
        }),
        Op::Scan { op, x, axis } => request.both(
            |r| scan::scan(r.operands, op, x, axis, &r.outputs[0]),
            |d| scan::scan_tangent(d.operands, op, x, axis),
        ),
        Op::CumMax { axis, .. } => request.both(
            |r| scan::cum_max(r.operands, axis, &r.outputs[1]),
            |d| index::gather_tangent(d.operands, axis, &d.outputs[1]),
        ),
        Op::Matmul { lhs, rhs } => request.both(
            |r| matmul::matmul(r.operands, lhs, rhs),
            |d| matmul::matmul_tangent(d.operands, lhs, rhs),
        ),
        Op::Gather { x, axis, index } => request.both(
            |r| index::gather(r.operands, x, axis, index),
            |d| index::gather_tangent(d.operands, axis, index),
        ),
        Op::Scatter { mode, x, axis, index, src } => request.both(
            |r| index::scatter(r.operands, mode, x, axis, index, src, &r.outputs[0]),
            |d| index::scatter_tangent(d.operands, mode, x, axis, index, src, &d.outputs[0]),
        ),
        Op::Sort { x, axis, .. } | Op::TopK { x, axis, .. } => request.both(
            |r| index::sort(r.operands, x.shape(), axis, &r.outputs[1]),
            |d| index::gather_tangent(d.operands, axis, &d.outputs[1]),
        ),
        Op::Contiguous { .. } => request.both(
            |r| Rule::new(r.operands, |g| Ok([Some(g.clone())])),
            |d| Ok(d.operands.tangent(0).cloned()),
        ),
        Op::Cat { tensors, axis } => request.both(
            |r| join::cat(r.operands, tensors, axis),
            |d| join::cat_tangent(d.operands, tensors.len(), axis),
        ),
        Op::Pad { x, widths, .. } => request
            .both(|r| join::pad(r.operands, x, widths), |d| join::pad_tangent(d.operands, widths)),
        Op::Tri { diagonal, upper, .. } => request.both(
            |r| join::tri(r.operands, diagonal, upper),
            |d| join::tri_tangent(d.operands, diagonal, upper),
        ),
        Op::Conv { x, weight, window } => request.both(
            |r| conv::conv(r.operands, x, weight, window),
            |d| conv::conv_tangent(d.operands, x, weight, window),
        ),
        Op::ConvInputGrad { g, weight, window, x_shape } => request.both(
            |r| conv::conv_input_grad(r.operands, g, weight, window),
            |d| conv::conv_input_grad_tangent(d.operands, g, weight, window, x_shape),
        ),
        Op::ConvWeightGrad { g, x, window, weight_shape } => request.both(
            |r| conv::conv_weight_grad(r.operands, g, x, window),
            |d| conv::conv_weight_grad_tangent(d.operands, g, x, window, weight_shape),
        ),
        Op::MaxPool { x, kernel_size, .. } => request.both(
            |r| pool::max_pool(r.operands, x, kernel_size.len(), &r.outputs[1]),
            |d| pool::max_pool_tangent(d.operands, kernel_size.len(), &d.outputs[1]),
        ),
        Op::MaxPoolGrad { g, positions, x_shape, spatial } => request.both(
            |r| pool::max_pool_grad(r.operands, g, positions, spatial),
            |d| pool::max_pool_grad_tangent(d.operands, positions, x_shape, spatial),
        ),
        Op::AvgPool { x, kernel_size, window } => request.both(
            |r| pool::avg_pool(r.operands, x, kernel_size, window),
            |d| pool::avg_pool_tangent(d.operands, kernel_size, window),
        ),
        Op::QuantMatmul { x, blocks, parts, exact } => request.both(
            |r| quant::matmul(r.operands, x, blocks, parts),
            |d| quant::matmul_tangent(d.operands, blocks, parts, exact),
        ),
        // tangent: by the definition
        Op::Attention { ref inputs } => {
            request.gradient(|r| attention::attention(r.operands, inputs, r.outputs))
        }
        // tangent: `forward::linalg`
        Op::Linalg { op, inputs } => {
            request.gradient(|r| linalg::linalg(r.operands, op, inputs, r.outputs))
        }
        _ => Ok(Reply::None),
    }
}
