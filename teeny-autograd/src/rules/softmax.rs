//! Softmax and its logarithm: one pass forward, one pass backward from the result alone.

use super::tensor;
use crate::device::Autograd;
use crate::record::{Operands, record};
use crate::storage::{Tracked, unwrap};
use teeny_core::{Result, StorageRef, Tensor, definition};

pub(crate) fn softmax(device: &Autograd, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let y = device.value(device.inner_device().softmax(&unwrap(x)?, axis)?, *x.shape(), x.dtype());
    let saved = y.clone();
    record([x], y, |_| move |g: &Tensor| Ok([Some(tensor(saved.device().softmax_grad(&saved, g, axis)?, *g.shape(), g))]))
}

pub(crate) fn log_softmax(device: &Autograd, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let y = device.value(device.inner_device().log_softmax(&unwrap(x)?, axis)?, *x.shape(), x.dtype());
    let saved = y.clone();
    record([x], y, |_| move |g: &Tensor| Ok([Some(tensor(saved.device().log_softmax_grad(&saved, g, axis)?, *g.shape(), g))]))
}

/// The backward pass itself, when it is recorded: its definition in primitives, whose rules are known.
pub(crate) fn softmax_grad(device: &Autograd, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
    let operands = Operands::of(&[y, g])?;
    if operands.recording {
        return definition::softmax_grad(y, g, axis);
    }
    let storage = device.inner_device().softmax_grad(&unwrap(y)?, &unwrap(g)?, axis)?;
    Ok(Tracked::storage(device.value(storage, *y.shape(), y.dtype()), None, operands.cuts))
}

pub(crate) fn log_softmax_grad(device: &Autograd, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
    let operands = Operands::of(&[y, g])?;
    if operands.recording {
        return definition::log_softmax_grad(y, g, axis);
    }
    let storage = device.inner_device().log_softmax_grad(&unwrap(y)?, &unwrap(g)?, axis)?;
    Ok(Tracked::storage(device.value(storage, *y.shape(), y.dtype()), None, operands.cuts))
}
