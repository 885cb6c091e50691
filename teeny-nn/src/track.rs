//! The crate's use of automatic differentiation: tracked leaves and detached values.

use teeny_autograd::{Autograd, Forward, Grad};
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Result, Tensor};

/// `x` as a leaf that requires a gradient and that messages call `name`; `x` itself on a device
/// without autograd.
pub(crate) fn leaf(x: &Tensor, name: &str) -> Result<Tensor> {
    if x.dtype().is_float() && x.device().downcast_ref::<Autograd>().is_some() {
        x.requires_grad_named(name)
    } else {
        Ok(x.clone())
    }
}

/// `x` detached from its graphs, on the device inside autograd, of reverse and forward mode and of any
/// number of levels: operations on it are not recorded.
pub(crate) fn detached(x: &Tensor) -> Result<Tensor> {
    let _op = enter("untracked"); // the user did not call this copy
    let mut x = x.clone();
    while let Some(inner) = x.device().inner().filter(|_| differentiates(x.device())) {
        x = x.to(inner)?;
    }
    Ok(x)
}

fn differentiates(device: &DeviceRef) -> bool {
    device.downcast_ref::<Autograd>().is_some() || device.downcast_ref::<Forward>().is_some()
}

/// The device inside autograd, whose values have no graph; `device` itself if it is not an autograd
/// device.
pub(crate) fn inner_device(device: &DeviceRef) -> &DeviceRef {
    device.inner().filter(|_| device.downcast_ref::<Autograd>().is_some()).unwrap_or(device)
}
