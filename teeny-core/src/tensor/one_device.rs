//! Operands on one device. Tensors of a wrapped device are lifted to the outermost wrapper among
//! them; unrelated devices are an error.

use super::Tensor;
use crate::device::{DeviceRef, common, same};
use crate::error::{Error, Result};
use std::borrow::Cow;

/// The tensors on one device: unchanged if their devices agree, otherwise lifted to the outermost
/// wrapper among them.
pub(super) fn on_one_device<'t>(
    tensors: &[&'t Tensor],
) -> Result<(DeviceRef, Vec<Cow<'t, Tensor>>)> {
    let mut device = tensors[0].device.clone();
    for tensor in &tensors[1..] {
        device = common(&device, &tensor.device)?;
    }
    let lifted = tensors.iter().map(|t| lift(t, &device)).collect::<Result<Vec<_>>>()?;
    Ok((device, lifted))
}

/// `tensor` as seen by `device`, which is its device or wraps it.
pub(super) fn lift<'t>(tensor: &'t Tensor, device: &DeviceRef) -> Result<Cow<'t, Tensor>> {
    if same(&tensor.device, device) {
        return Ok(Cow::Borrowed(tensor));
    }
    let inner =
        device.inner().ok_or_else(|| Error::internal("lifting to a device that wraps nothing"))?;
    let below = lift(tensor, inner)?;
    let storage = device.wrap(&below)?;
    Ok(Cow::Owned(Tensor {
        storage,
        layout: tensor.layout,
        dtype: tensor.dtype,
        device: device.clone(),
    }))
}

/// Two tensors on one device, for operations that take two.
pub(super) fn pair<'t>(
    lhs: &'t Tensor,
    rhs: &'t Tensor,
) -> Result<(Cow<'t, Tensor>, Cow<'t, Tensor>)> {
    if same(&lhs.device, &rhs.device) {
        return Ok((Cow::Borrowed(lhs), Cow::Borrowed(rhs)));
    }
    let device = common(&lhs.device, &rhs.device)?;
    Ok((lift(lhs, &device)?, lift(rhs, &device)?))
}
