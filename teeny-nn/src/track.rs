//! What the rest of the crate asks of automatic differentiation, in one place.

use teeny_autograd::{Autograd, Grad};
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Result, Tensor};

/// `x` as a leaf that gradients are computed for and messages call `name`; `x` itself on a device
/// that only computes.
pub(crate) fn leaf(x: &Tensor, name: &str) -> Result<Tensor> {
    if x.dtype().is_float() && x.device().as_any().is::<Autograd>() {
        x.requires_grad_named(name)
    } else {
        Ok(x.clone())
    }
}

/// `x` without its history, on the device below autograd: nothing done with it is recorded.
pub(crate) fn below(x: &Tensor) -> Result<Tensor> {
    let _op = enter("untracked"); // nobody asked for this copy
    match x.device().inner() {
        Some(inner) if x.device().as_any().is::<Autograd>() => x.to(inner),
        _ => Ok(x.clone()),
    }
}

/// The device below autograd, where values have no history; `device` itself if it only computes.
pub(crate) fn device_below(device: &DeviceRef) -> &DeviceRef {
    device.inner().filter(|_| device.as_any().is::<Autograd>()).unwrap_or(device)
}
