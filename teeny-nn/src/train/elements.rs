//! The elements of tensors as numbers, and the shapes of predictions with their targets.

use crate::loss::index_axis;
use teeny_core::{DType, Error, Result, Tensor};

/// The help of an error of NaN.
pub(super) const NAN: &str = "a model that has diverged gives NaN; look at its losses";

/// The elements of `x` in row-major order.
pub(super) fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.cast(DType::F64)?.reshape(-1)?.to_vec()
}

/// The targets of items with these scores.
pub(super) fn flags(scores: &Tensor, targets: &Tensor) -> Result<Vec<bool>> {
    Ok(flags_except(None, scores, targets)?.into_iter().flatten().collect())
}

/// The targets of items with these scores; None where a target is `ignore_index`.
pub(super) fn flags_except(
    ignore_index: Option<i64>,
    scores: &Tensor,
    targets: &Tensor,
) -> Result<Vec<Option<bool>>> {
    require_same_shape("scores", scores, targets)?;
    let flag = |(i, target): (usize, f64)| match target {
        _ if ignore_index.is_some_and(|index| index as f64 == target) => Ok(None),
        0.0 => Ok(Some(false)),
        1.0 => Ok(Some(true)),
        _ => {
            let text = format!("targets[{i}] is {target}, but must be 0 or 1");
            Err(Error::value(text).help("targets.gt(0.5)? of probabilities"))
        }
    };
    numbers(targets)?.into_iter().enumerate().map(flag).collect()
}

/// Returns an error unless there is a target for each element of `x`, called `name`.
pub(super) fn require_same_shape(name: &str, x: &Tensor, targets: &Tensor) -> Result<()> {
    if x.shape() == targets.shape() {
        return Ok(());
    }
    let text = format!("{name} are {}, targets {}", x.shape(), targets.shape());
    Err(Error::shape(text).help("one target for each element"))
}

/// The axis of the classes of logits (N, C, d..) or (C), if targets are (N, d..) or () of integers
/// or booleans.
pub(super) fn class_axis(logits: &Tensor, targets: &Tensor) -> Result<usize> {
    if targets.dtype().is_float() {
        let text = format!("targets are classes, so integers, not {}", targets.dtype());
        return Err(Error::dtype(text).help("targets.cast(DType::I64)? converts"));
    }
    index_axis(logits, targets)
}
