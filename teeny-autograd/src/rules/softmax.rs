//! Softmax and its logarithm: one pass forward, one pass backward from the output alone.
//! Cross-entropy: its input is saved, and no other tensor of that size.

use crate::record::{Operands, Rule};
use teeny_core::{Op, Tensor};

/// The rule of the softmax `y` along `axis`.
pub(crate) fn softmax(operands: &Operands<'_>, axis: usize, y: &Tensor) -> Rule {
    let y = y.clone();
    Rule::new(operands, move |g| Ok([Some(Op::SoftmaxGrad { y: &y, g, axis }.tensor(y.device())?)]))
}

/// The rule of the log-softmax `y` along `axis`.
pub(crate) fn log_softmax(operands: &Operands<'_>, axis: usize, y: &Tensor) -> Rule {
    let y = y.clone();
    Rule::new(operands, move |g| {
        Ok([Some(Op::LogSoftmaxGrad { y: &y, g, axis }.tensor(y.device())?)])
    })
}

/// The rule of the cross-entropy of the logits `x`.
pub(crate) fn cross_entropy(
    operands: &Operands<'_>,
    x: &Tensor,
    targets: &Tensor,
    ignore_index: Option<i64>,
) -> Rule {
    let (x, targets) = (x.clone(), targets.clone());
    Rule::new(operands, move |g| {
        let op = Op::CrossEntropyGrad { x: &x, targets: &targets, ignore_index, g };
        Ok([Some(op.tensor(x.device())?), None])
    })
}
