//! Softmax and its logarithm: one pass forward, one pass backward from the result alone.

use super::tensor;
use crate::device::Autograd;
use crate::record::{Operands, record};
use crate::storage::{Tracked, unwrap};
use teeny_core::{Layout, Result, StorageRef, Tensor, map};

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

/// The backward pass itself, when it is recorded: written in primitives, whose rules are known.
pub(crate) fn softmax_grad(device: &Autograd, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
    let operands = Operands::of(&[y, g])?;
    if operands.recording {
        let inner = y.mul(g)?.sum_keepdim(axis)?;
        return whole(map([y, g, &inner], |[y, g, s]| y * (g - s))?);
    }
    let storage = device.inner_device().softmax_grad(&unwrap(y)?, &unwrap(g)?, axis)?;
    Ok(Tracked::storage(device.value(storage, *y.shape(), y.dtype()), None, operands.cuts))
}

pub(crate) fn log_softmax_grad(device: &Autograd, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
    let operands = Operands::of(&[y, g])?;
    if operands.recording {
        let sum = g.sum_keepdim(axis)?;
        return whole(map([y, g, &sum], |[y, g, s]| g - y.exp() * s)?);
    }
    let storage = device.inner_device().log_softmax_grad(&unwrap(y)?, &unwrap(g)?, axis)?;
    Ok(Tracked::storage(device.value(storage, *y.shape(), y.dtype()), None, operands.cuts))
}

/// The storage of a result that is row-major already, as results of kernels are.
fn whole(x: Tensor) -> Result<StorageRef> {
    debug_assert_eq!(*x.layout(), Layout::contiguous(*x.shape()));
    Ok(x.storage().clone())
}
