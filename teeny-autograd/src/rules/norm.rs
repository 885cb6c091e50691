//! Normalisation: one pass forward, one pass backward for the input; nothing is saved but the input
//! itself.
//!
//! The gradient of the weight is `sum(g h)` and that of the bias `sum(g)` over all rows, with `h`
//! the normalised values.

use super::tensor;
use crate::device::Autograd;
use crate::record::{Operands, record, when};
use crate::storage::{Tracked, unwrap};
use teeny_core::{Norm, Result, StorageRef, Tensor, definition};

/// The sum over all axes but the last.
fn rows(x: &Tensor) -> Result<Tensor> {
    let lead: Vec<usize> = (0..x.ndim() - 1).collect();
    if lead.is_empty() { Ok(x.clone()) } else { x.sum(lead) }
}

pub(crate) fn norm(
    device: &Autograd,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<StorageRef> {
    let (a, w, b) = (unwrap(x)?, weight.map(unwrap).transpose()?, bias.map(unwrap).transpose()?);
    let y = device.value(
        device.inner_device().norm(norm, &a, w.as_ref(), b.as_ref(), eps)?,
        *x.shape(),
        x.dtype(),
    )?;
    // The normalised values are computed again where the weight's gradient needs them: a pass over
    // memory is cheaper than keeping them.
    let plain = move |a: &Tensor| -> Result<Tensor> {
        tensor(a.device().norm(norm, a, None, None, eps)?, *a.shape(), a)
    };
    let input = move |a: &Tensor, w: Option<&Tensor>, g: &Tensor| -> Result<Tensor> {
        tensor(a.device().norm_grad(norm, a, w, g, eps)?, *a.shape(), a)
    };
    match (weight, bias) {
        (Some(weight), Some(bias)) => record([x, weight, bias], y, |[need_x, need_w, need_b]| {
            move |g: &Tensor| {
                let d_x = when(need_x, || input(&a, w.as_ref(), g))?;
                let d_w = when(need_w, || rows(&g.mul(&plain(&a)?)?))?;
                Ok([d_x, d_w, when(need_b, || rows(g))?])
            }
        }),
        (Some(weight), None) => record([x, weight], y, |[need_x, need_w]| {
            move |g: &Tensor| {
                Ok([
                    when(need_x, || input(&a, w.as_ref(), g))?,
                    when(need_w, || rows(&g.mul(&plain(&a)?)?))?,
                ])
            }
        }),
        (None, _) => record([x], y, |_| move |g: &Tensor| Ok([Some(input(&a, None, g)?)])),
    }
}

/// The backward pass itself, when it is recorded: its definition in primitives, whose rules are
/// known.
pub(crate) fn norm_grad(
    device: &Autograd,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    g: &Tensor,
    eps: f64,
) -> Result<StorageRef> {
    let inputs: Vec<&Tensor> = [Some(x), weight, Some(g)].into_iter().flatten().collect();
    let operands = Operands::of(&inputs)?;
    if operands.recording {
        return definition::norm_grad(norm, x, weight, g, eps);
    }
    let (a, w) = (unwrap(x)?, weight.map(unwrap).transpose()?);
    let storage = device.inner_device().norm_grad(norm, &a, w.as_ref(), &unwrap(g)?, eps)?;
    Ok(Tracked::storage(device.value(storage, *x.shape(), x.dtype())?, None, operands.cuts))
}
