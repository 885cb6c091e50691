//! Softmax and its logarithm: one pass forward, one pass backward from the result alone.
//! Cross-entropy: from the input, nothing as large is kept.

use super::tensor;
use crate::device::Autograd;
use crate::record::{Operands, record};
use crate::storage::{Tracked, unwrap};
use teeny_core::{Result, StorageRef, Tensor, definition};

pub(crate) fn softmax(device: &Autograd, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let y =
        device.value(device.inner_device().softmax(&unwrap(x)?, axis)?, *x.shape(), x.dtype())?;
    let saved = y.clone();
    record([x], y, |_| {
        move |g: &Tensor| {
            Ok([Some(tensor(saved.device().softmax_grad(&saved, g, axis)?, *g.shape(), g)?)])
        }
    })
}

pub(crate) fn log_softmax(device: &Autograd, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let y = device.value(
        device.inner_device().log_softmax(&unwrap(x)?, axis)?,
        *x.shape(),
        x.dtype(),
    )?;
    let saved = y.clone();
    record([x], y, |_| {
        move |g: &Tensor| {
            Ok([Some(tensor(saved.device().log_softmax_grad(&saved, g, axis)?, *g.shape(), g)?)])
        }
    })
}

/// The backward pass itself, when it is recorded: its definition in primitives, whose rules are
/// known.
pub(crate) fn softmax_grad(
    device: &Autograd,
    y: &Tensor,
    g: &Tensor,
    axis: usize,
) -> Result<StorageRef> {
    let operands = Operands::of(&[y, g])?;
    if operands.recording {
        return definition::softmax_grad(y, g, axis);
    }
    let storage = device.inner_device().softmax_grad(&unwrap(y)?, &unwrap(g)?, axis)?;
    Ok(Tracked::storage(device.value(storage, *y.shape(), y.dtype())?, None, operands.cuts))
}

pub(crate) fn log_softmax_grad(
    device: &Autograd,
    y: &Tensor,
    g: &Tensor,
    axis: usize,
) -> Result<StorageRef> {
    let operands = Operands::of(&[y, g])?;
    if operands.recording {
        return definition::log_softmax_grad(y, g, axis);
    }
    let storage = device.inner_device().log_softmax_grad(&unwrap(y)?, &unwrap(g)?, axis)?;
    Ok(Tracked::storage(device.value(storage, *y.shape(), y.dtype())?, None, operands.cuts))
}

pub(crate) fn cross_entropy(
    device: &Autograd,
    x: &Tensor,
    targets: &Tensor,
    ignored: Option<i64>,
) -> Result<StorageRef> {
    let (a, targets) = (unwrap(x)?, unwrap(targets)?);
    let y = device.value(
        device.inner_device().cross_entropy(&a, &targets, ignored)?,
        *targets.shape(),
        x.dtype(),
    )?;
    record([x], y, |_| {
        move |g: &Tensor| {
            Ok([Some(tensor(
                a.device().cross_entropy_grad(&a, &targets, ignored, g)?,
                *a.shape(),
                g,
            )?)])
        }
    })
}

pub(crate) fn cross_entropy_grad(
    device: &Autograd,
    x: &Tensor,
    targets: &Tensor,
    ignored: Option<i64>,
    g: &Tensor,
) -> Result<StorageRef> {
    let operands = Operands::of(&[x, g])?;
    if operands.recording {
        return definition::cross_entropy_grad(x, targets, ignored, g);
    }
    let storage = device.inner_device().cross_entropy_grad(
        &unwrap(x)?,
        &unwrap(targets)?,
        ignored,
        &unwrap(g)?,
    )?;
    Ok(Tracked::storage(device.value(storage, *x.shape(), x.dtype())?, None, operands.cuts))
}
