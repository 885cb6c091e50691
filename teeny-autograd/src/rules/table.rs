//! The table of rules: for each op its gradient and its tangent, side by side.
//!
//! An op without a row runs as its definition, whose primitives have rules: so does a fused op that
//! is new to this crate. Kernels and row programs are differentiated by `symbolic`; assignments,
//! the gradients of attention and, in forward mode, solvers are handled where they are executed.

use super::{attention, conv, index, join, linalg, matmul, pool, reduce, scan};
use crate::duals::Duals;
use crate::record::{Operands, Recorder, Rule};
use teeny_core::{Op, Result, Tensor};

/// What the rule of a gradient reads: the op is one on inner tensors.
pub(super) struct Recording<'r> {
    pub recorder: &'r Recorder,
    pub operands: &'r Operands<'r>,
    /// The outputs of the op.
    pub outputs: &'r [Tensor],
}

/// What the rule of a tangent reads: the op is one on the values of `operands`.
pub(super) struct Dual<'r> {
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

/// Which of an op's rules is used.
pub(super) trait Use: Sized {
    type Result;
    /// The op has a rule for its gradient alone.
    fn gradient<R: IntoRule>(
        self,
        gradient: impl FnOnce(Recording<'_>) -> R,
    ) -> Result<Option<Self::Result>>;
    /// The op has a rule for its gradient, and one for the tangent of its first output. Further
    /// outputs have none.
    fn both<R: IntoRule>(
        self,
        gradient: impl FnOnce(Recording<'_>) -> R,
        tangent: impl FnOnce(Dual<'_>) -> Result<Option<Tensor>>,
    ) -> Result<Option<Self::Result>>;
}

/// Whether the op has a rule for its gradient.
pub(super) struct HasGradient;

impl Use for HasGradient {
    type Result = ();
    fn gradient<R: IntoRule>(self, _: impl FnOnce(Recording<'_>) -> R) -> Result<Option<()>> {
        Ok(Some(()))
    }
    fn both<R: IntoRule>(
        self,
        _: impl FnOnce(Recording<'_>) -> R,
        _: impl FnOnce(Dual<'_>) -> Result<Option<Tensor>>,
    ) -> Result<Option<()>> {
        Ok(Some(()))
    }
}

impl Use for Recording<'_> {
    type Result = Option<Rule>;
    fn gradient<R: IntoRule>(
        self,
        gradient: impl FnOnce(Recording<'_>) -> R,
    ) -> Result<Option<Option<Rule>>> {
        gradient(self).into_rule().map(Some)
    }
    fn both<R: IntoRule>(
        self,
        gradient: impl FnOnce(Recording<'_>) -> R,
        _: impl FnOnce(Dual<'_>) -> Result<Option<Tensor>>,
    ) -> Result<Option<Option<Rule>>> {
        gradient(self).into_rule().map(Some)
    }
}

/// Whether the op has a rule for its tangent.
pub(super) struct HasTangent;

impl Use for HasTangent {
    type Result = ();
    fn gradient<R: IntoRule>(self, _: impl FnOnce(Recording<'_>) -> R) -> Result<Option<()>> {
        Ok(None)
    }
    fn both<R: IntoRule>(
        self,
        _: impl FnOnce(Recording<'_>) -> R,
        _: impl FnOnce(Dual<'_>) -> Result<Option<Tensor>>,
    ) -> Result<Option<()>> {
        Ok(Some(()))
    }
}

impl Use for Dual<'_> {
    type Result = Option<Tensor>;
    fn gradient<R: IntoRule>(
        self,
        _: impl FnOnce(Recording<'_>) -> R,
    ) -> Result<Option<Option<Tensor>>> {
        Ok(None)
    }
    fn both<R: IntoRule>(
        self,
        _: impl FnOnce(Recording<'_>) -> R,
        tangent: impl FnOnce(Dual<'_>) -> Result<Option<Tensor>>,
    ) -> Result<Option<Option<Tensor>>> {
        tangent(self).map(Some)
    }
}

/// Uses a rule of `op`: `None` if there is none.
pub(super) fn rules<U: Use>(op: &Op<'_>, which: U) -> Result<Option<U::Result>> {
    match *op {
        Op::Reduce { op, x, axes } => which.both(
            |r| reduce::reduce(r.operands, op, x, axes, &r.outputs[0]),
            |d| reduce::reduce_tangent(d.operands, op, x, axes, &d.outputs[0]),
        ),
        Op::ReduceKernel { kernel, params, shape, axes, .. } => which.gradient(|r| {
            reduce::reduce_kernel(r.recorder, r.operands, kernel, params, shape, axes)
        }),
        Op::Scan { op, x, axis } => which.both(
            |r| scan::scan(r.operands, op, x, axis, &r.outputs[0]),
            |d| scan::scan_tangent(d.operands, op, x, axis),
        ),
        Op::CumMax { axis, .. } => which.both(
            |r| scan::cum_max(r.operands, axis, &r.outputs[1]),
            |d| index::gather_tangent(d.operands, axis, &d.outputs[1]),
        ),
        Op::Matmul { lhs, rhs } => which.both(
            |r| matmul::matmul(r.operands, lhs, rhs),
            |d| matmul::matmul_tangent(d.operands, lhs, rhs),
        ),
        Op::Gather { x, axis, index } => which.both(
            |r| index::gather(r.operands, x, axis, index),
            |d| index::gather_tangent(d.operands, axis, index),
        ),
        Op::Scatter { mode, x, axis, index, src } => which.both(
            |r| index::scatter(r.operands, mode, x, axis, index, src, &r.outputs[0]),
            |d| index::scatter_tangent(d.operands, mode, x, axis, index, src, &d.outputs[0]),
        ),
        Op::Sort { x, axis, .. } | Op::TopK { x, axis, .. } => which.both(
            |r| index::sort(r.operands, x.shape(), axis, &r.outputs[1]),
            |d| index::gather_tangent(d.operands, axis, &d.outputs[1]),
        ),
        Op::Contiguous { .. } => which.both(
            |r| Rule::new(r.operands, |g| Ok([Some(g.clone())])),
            |d| Ok(d.operands.tangent(0).cloned()),
        ),
        Op::Cat { tensors, axis } => which.both(
            |r| join::cat(r.operands, tensors, axis),
            |d| join::cat_tangent(d.operands, tensors.len(), axis),
        ),
        Op::Pad { x, widths, .. } => which
            .both(|r| join::pad(r.operands, x, widths), |d| join::pad_tangent(d.operands, widths)),
        Op::Tri { diagonal, upper, .. } => which.both(
            |r| join::tri(r.operands, diagonal, upper),
            |d| join::tri_tangent(d.operands, diagonal, upper),
        ),
        Op::Conv { x, weight, window } => which.both(
            |r| conv::conv(r.operands, x, weight, window),
            |d| conv::conv_tangent(d.operands, x, weight, window),
        ),
        Op::ConvInputGrad { g, weight, window, x_shape } => which.both(
            |r| conv::conv_input_grad(r.operands, g, weight, window),
            |d| conv::conv_input_grad_tangent(d.operands, g, weight, window, x_shape),
        ),
        Op::ConvWeightGrad { g, x, window, weight_shape } => which.both(
            |r| conv::conv_weight_grad(r.operands, g, x, window),
            |d| conv::conv_weight_grad_tangent(d.operands, g, x, window, weight_shape),
        ),
        Op::MaxPool { x, kernel_size, .. } => which.both(
            |r| pool::max_pool(r.operands, x, kernel_size.len(), &r.outputs[1]),
            |d| pool::max_pool_tangent(d.operands, kernel_size.len(), &d.outputs[1]),
        ),
        Op::MaxPoolGrad { g, positions, x_shape, spatial } => which.both(
            |r| pool::max_pool_grad(r.operands, g, positions, spatial),
            |d| pool::max_pool_grad_tangent(d.operands, positions, x_shape, spatial),
        ),
        Op::AvgPool { x, kernel_size, window } => which.both(
            |r| pool::avg_pool(r.operands, x, kernel_size, window),
            |d| pool::avg_pool_tangent(d.operands, kernel_size, window),
        ),
        Op::Attention { ref inputs } => {
            which.gradient(|r| attention::attention(r.operands, inputs, r.outputs))
        }
        Op::Linalg { op, inputs } => {
            which.gradient(|r| linalg::linalg(r.operands, op, inputs, r.outputs))
        }
        _ => Ok(None),
    }
}
