//! Tangents of softmax, normalisation, attention and their backward passes.

use super::Forward;
use super::rules::total;
use super::storage::{Dual, flat, tangent, value};
use crate::storage::own;
use teeny_core::{AttentionInputs, DType, Norm, Result, StorageRef, Tensor, definition};

/// True if any of the tensors has a tangent.
fn moving<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Result<bool> {
    tensors.into_iter().try_fold(false, |any, x| Ok(any || tangent(x)?.is_some()))
}

/// A row-major result of the inner device in the shape of `like`.
fn whole(storage: StorageRef, like: &Tensor) -> Result<Tensor> {
    Tensor::from_result(storage, *like.shape(), like.dtype(), like.device().clone())
}

/// The Jacobian `diag(y) - y yᵀ` of each row is symmetric, so the backward pass is the tangent's
/// map too.
pub(super) fn softmax(device: &Forward, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let inner = value(x)?;
    let y = whole(device.inner_device().softmax(&inner, axis)?, &inner)?;
    let tangent = tangent(x)?
        .map(|t| flat(device.inner_device().softmax_grad(&y, &t, axis)?, &t))
        .transpose()?;
    Dual::storage(y, tangent)
}

/// `t - Σ softmax(x) t`.
pub(super) fn log_softmax(device: &Forward, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let inner = value(x)?;
    let y = whole(device.inner_device().log_softmax(&inner, axis)?, &inner)?;
    let tangent = tangent(x)?.map(|t| t.sub(&y.exp()?.mul(&t)?.sum_keepdim(axis)?)).transpose()?;
    Dual::storage(y, tangent)
}

pub(super) fn softmax_grad(
    device: &Forward,
    y: &Tensor,
    g: &Tensor,
    axis: usize,
) -> Result<StorageRef> {
    if moving([y, g])? {
        return definition::softmax_grad(y, g, axis);
    }
    device.result(
        device.inner_device().softmax_grad(&value(y)?, &value(g)?, axis)?,
        y.dtype(),
        None,
    )
}

pub(super) fn log_softmax_grad(
    device: &Forward,
    y: &Tensor,
    g: &Tensor,
    axis: usize,
) -> Result<StorageRef> {
    if moving([y, g])? {
        return definition::log_softmax_grad(y, g, axis);
    }
    device.result(
        device.inner_device().log_softmax_grad(&value(y)?, &value(g)?, axis)?,
        y.dtype(),
        None,
    )
}

/// `Σ (softmax(x) - one_hot(targets)) t` of each row.
pub(super) fn cross_entropy(
    device: &Forward,
    x: &Tensor,
    targets: &Tensor,
    ignored: Option<i64>,
) -> Result<StorageRef> {
    let (inner, targets) = (value(x)?, value(targets)?);
    let losses = device.inner_device().cross_entropy(&inner, &targets, ignored)?;
    let along = tangent(x)?.map(|t| {
        let ones = Tensor::ones(targets.shape(), inner.dtype(), &inner)?; // (n)
        // (n, classes)
        let slopes = whole(
            device.inner_device().cross_entropy_grad(&inner, &targets, ignored, &ones)?,
            &inner,
        )?;
        slopes.mul(&t)?.sum(1)
    });
    device.result(losses, x.dtype(), along.transpose()?)
}

pub(super) fn cross_entropy_grad(
    device: &Forward,
    x: &Tensor,
    targets: &Tensor,
    ignored: Option<i64>,
    g: &Tensor,
) -> Result<StorageRef> {
    if moving([x, g])? {
        return definition::cross_entropy_grad(x, targets, ignored, g);
    }
    device.result(
        device.inner_device().cross_entropy_grad(
            &value(x)?,
            &value(targets)?,
            ignored,
            &value(g)?,
        )?,
        x.dtype(),
        None,
    )
}

/// The normalised values `h` have a symmetric Jacobian: `norm_grad` without a weight applies it.
/// Then `t_y = t_h w + h t_w + t_b`.
pub(super) fn norm(
    device: &Forward,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<StorageRef> {
    let (inner, w, b) = (value(x)?, weight.map(value).transpose()?, bias.map(value).transpose()?);
    let below = device.inner_device();
    let y = below.norm(norm, &inner, w.as_ref(), b.as_ref(), eps)?;
    let along_x = tangent(x)?.map(|t| -> Result<Tensor> {
        let t = whole(below.norm_grad(norm, &inner, None, &t, eps)?, &inner)?;
        w.as_ref().map_or_else(|| Ok(t.clone()), |w| t.mul(w))
    });
    let along_weight = weight
        .map(tangent)
        .transpose()?
        .flatten()
        .map(|t| whole(below.norm(norm, &inner, None, None, eps)?, &inner)?.mul(&t));
    let along_bias = bias.map(tangent).transpose()?.flatten().map(|t| t.expand(x.shape()));
    device.result(
        y,
        x.dtype(),
        total([along_x.transpose()?, along_weight.transpose()?, along_bias.transpose()?])?,
    )
}

pub(super) fn norm_grad(
    device: &Forward,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    g: &Tensor,
    eps: f64,
) -> Result<StorageRef> {
    if moving([Some(x), weight, Some(g)].into_iter().flatten())? {
        return definition::norm_grad(norm, x, weight, g, eps);
    }
    let w = weight.map(value).transpose()?;
    device.result(
        device.inner_device().norm_grad(norm, &value(x)?, w.as_ref(), &value(g)?, eps)?,
        x.dtype(),
        None,
    )
}

/// The inner tensors of the operands of attention: q, k, v and the mask.
struct Inner([Tensor; 3], Option<Tensor>);

impl Inner {
    fn of(inputs: &AttentionInputs<'_>) -> Result<Inner> {
        Ok(Inner(
            [value(inputs.q)?, value(inputs.k)?, value(inputs.v)?],
            inputs.mask.map(value).transpose()?,
        ))
    }

    fn inputs(&self, like: &AttentionInputs<'_>) -> AttentionInputs<'_> {
        let Inner([q, k, v], mask) = self;
        AttentionInputs { q, k, v, mask: mask.as_ref(), options: like.options }
    }
}

pub(super) fn attention(
    device: &Forward,
    inputs: &AttentionInputs<'_>,
) -> Result<(StorageRef, StorageRef)> {
    if moving([inputs.q, inputs.k, inputs.v].into_iter().chain(inputs.mask))? {
        return inputs.composed_storages();
    }
    let (y, lse) = device.inner_device().attention(&Inner::of(inputs)?.inputs(inputs))?;
    let wide: DType = inputs.q.dtype().compute();
    Ok((device.result(y, inputs.q.dtype(), None)?, device.result(lse, wide, None)?))
}

/// From q, k and v alone where a tangent has to pass: y and the logsumexp are functions of them.
pub(super) fn attention_grad(
    device: &Forward,
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    needs: [bool; 3],
) -> Result<[Option<StorageRef>; 3]> {
    if moving([inputs.q, inputs.k, inputs.v, g].into_iter().chain(inputs.mask))? {
        let [q, k, v] = inputs.composed_grad(None, g, needs)?;
        let storage = |x: Option<Tensor>| x.map(|x| Ok(own(x)?.storage().clone())).transpose();
        return Ok([storage(q)?, storage(k)?, storage(v)?]);
    }
    let storages = device.inner_device().attention_grad(
        &Inner::of(inputs)?.inputs(inputs),
        &value(y)?,
        &value(lse)?,
        &value(g)?,
        needs,
    )?;
    let [q, k, v] = storages.map(|s| s.map(|s| device.result(s, g.dtype(), None)).transpose());
    Ok([q?, k?, v?])
}
