//! Convolution and its two gradients. All three are bilinear and are each other's gradients, so a
//! convolution can be differentiated any number of times:
//!
//! ```text
//! <conv(x, w), g>  =  <x, input_grad(g, w)>  =  <w, weight_grad(g, x)>
//! ```

use crate::device::Autograd;
use crate::record::{record, when};
use crate::storage::unwrap;
use teeny_core::{Result, Shape, StorageRef, Tensor, Window, validate};

pub(crate) fn conv(
    device: &Autograd,
    x: &Tensor,
    weight: &Tensor,
    window: &Window,
) -> Result<StorageRef> {
    let (a, w) = (unwrap(x)?, unwrap(weight)?);
    let (shape, dtype) = validate::conv(x, weight, window)?;
    let y = device.value(device.inner_device().conv(&a, &w, window)?, shape, dtype)?;
    let window = window.clone();
    record([x, weight], y, |[need_x, need_w]| {
        let (x_shape, w_shape) = (*x.shape(), *weight.shape());
        let (a, w) = (need_w.then_some(a), need_x.then_some(w));
        move |g: &Tensor| {
            let d_x =
                w.as_ref().map(|w| g.conv_transpose(w, &window, &x_shape[2..])).transpose()?;
            let d_w = a.as_ref().map(|a| g.conv_weight_grad(a, &window, &w_shape)).transpose()?;
            Ok([d_x, d_w])
        }
    })
}

pub(crate) fn conv_input_grad(
    device: &Autograd,
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<StorageRef> {
    let (a, w) = (unwrap(g)?, unwrap(weight)?);
    let y = device.value(
        device.inner_device().conv_input_grad(&a, &w, window, x_shape)?,
        *x_shape,
        g.dtype(),
    )?;
    let window = window.clone();
    record([g, weight], y, |[need_g, need_w]| {
        let w_shape = *weight.shape();
        move |upper: &Tensor| {
            let d_g = when(need_g, || upper.conv(&w, &window))?;
            let d_w = when(need_w, || a.conv_weight_grad(upper, &window, &w_shape))?;
            Ok([d_g, d_w])
        }
    })
}

pub(crate) fn conv_weight_grad(
    device: &Autograd,
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<StorageRef> {
    let (a, b) = (unwrap(g)?, unwrap(x)?);
    let y = device.value(
        device.inner_device().conv_weight_grad(&a, &b, window, weight_shape)?,
        *weight_shape,
        g.dtype(),
    )?;
    let window = window.clone();
    record([g, x], y, |[need_g, need_x]| {
        let x_shape = *x.shape();
        move |upper: &Tensor| {
            let d_g = when(need_g, || b.conv(upper, &window))?;
            let d_x = when(need_x, || a.conv_transpose(upper, &window, &x_shape[2..]))?;
            Ok([d_g, d_x])
        }
    })
}
