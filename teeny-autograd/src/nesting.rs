//! Derivatives of derivatives: whether a tensor that a rule computes with is itself being
//! differentiated, in either mode, on its device or on one that this wraps.

use crate::dual::{Dual, try_dual};
use crate::storage::{Tracked, try_tracked};
use teeny_core::Tensor;

/// True if `x` is being differentiated, by its device or an inner one: then the computation on it
/// must itself be differentiable.
pub(crate) fn differentiated(x: &Tensor) -> bool {
    if let Some(Tracked { inner, handle, .. }) = try_tracked(x) {
        return handle.is_some() || differentiated(inner);
    }
    try_dual(x)
        .is_some_and(|Dual { value, tangent, .. }| tangent.is_some() || differentiated(value))
}
