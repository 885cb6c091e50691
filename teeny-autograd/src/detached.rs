//! Values without their graphs, for code that computes beside a model: optimizers, metrics,
//! sampling.

use crate::{Autograd, Forward};
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Result, Tensor};

/// `x` detached from its graphs, on the device inside autograd, of reverse and forward mode and of
/// any number of levels: operations on it are not recorded.
///
/// # Errors
/// If the device fails.
pub fn detached(x: &Tensor) -> Result<Tensor> {
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

/// Returns the device inside autograd, whose values have no graph, or `device` itself if it is not
/// an autograd device.
pub fn inner_device(device: &DeviceRef) -> &DeviceRef {
    device.inner().filter(|_| device.downcast_ref::<Autograd>().is_some()).unwrap_or(device)
}
