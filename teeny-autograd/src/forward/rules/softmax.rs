//! Softmax, its logarithm and cross-entropy.

use crate::forward::operands::Operands;
use teeny_core::{Op, Result, Tensor};

/// The Jacobian `diag(y) - y yᵀ` of each row is symmetric: the gradient op applies it to the
/// tangent.
pub(super) fn softmax(operands: &Operands, axis: usize, y: &Tensor) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| Op::SoftmaxGrad { y, g: t, axis }.tensor(y.device()))
}

/// `t - Σ softmax(x) t`.
pub(super) fn log_softmax(operands: &Operands, axis: usize, y: &Tensor) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| t.sub(&y.exp()?.mul(t)?.sum_keepdim(axis)?))
}

/// `Σ (softmax(x) - one_hot(targets)) t` of each row.
pub(super) fn cross_entropy(
    operands: &Operands,
    x: &Tensor,
    targets: &Tensor,
    ignore_index: Option<i64>,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| {
        let ones = Tensor::ones(targets.shape(), x.dtype(), x)?; // (n)
        let op = Op::CrossEntropyGrad { x, targets, ignore_index, g: &ones };
        op.tensor(x.device())?.mul(t)?.sum(1) // of (n, classes)
    })
}
