//! The elements of tensors as numbers, and the shapes of predictions with their targets.

use teeny_core::{DType, Error, Result, Tensor};

/// The elements of `x` in row-major order.
pub(super) fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.cast(DType::F64)?.reshape(-1)?.to_vec()
}

/// The targets of items with these scores.
pub(super) fn flags(scores: &Tensor, targets: &Tensor) -> Result<Vec<bool>> {
    require_same_shape("scores", scores, targets)?;
    let flag = |(i, target): (usize, f64)| match target {
        0.0 => Ok(false),
        1.0 => Ok(true),
        _ => Err(Error::value(format!("targets[{i}] is {target}, but must be 0 or 1"))),
    };
    numbers(targets)?.into_iter().enumerate().map(flag).collect()
}

/// An error unless there is a target for each element of `x`, called `name`.
pub(super) fn require_same_shape(name: &str, x: &Tensor, targets: &Tensor) -> Result<()> {
    if x.shape() == targets.shape() {
        return Ok(());
    }
    let text = format!("{name} are {}, targets {}", x.shape(), targets.shape());
    Err(Error::shape(text).help("one target for each element"))
}

/// An error unless logits are (N, C) and targets (N) of integers or booleans.
pub(super) fn require_fit(logits: &Tensor, targets: &Tensor) -> Result<()> {
    if targets.dtype().is_float() {
        let text = format!("targets are classes, so integers, not {}", targets.dtype());
        return Err(Error::dtype(text).help("targets.cast(DType::I64)? converts"));
    }
    if logits.ndim() == 2 && *targets.shape() == [logits.shape()[0]] {
        return Ok(());
    }
    Err(Error::shape(format!(
        "logits must be (N, C) and targets (N), not {} and {}",
        logits.shape(),
        targets.shape()
    )))
}
