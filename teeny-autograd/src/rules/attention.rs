//! Attention: the device's own backward pass where it can be used, primitives where more is asked
//! for.
//!
//! ```text
//! q, k or v tracked     one fused pass each way; saved: q, k, v, y and a logsumexp per query
//! the mask tracked      the composed form, whose primitives record themselves: the (T, S) matrix of scores is the mask's gradient anyway
//! the gradient tracked  the composed gradient, from q, k and v alone: y and the logsumexp are functions of them
//! ```

use super::tensor;
use crate::cuts::Cut;
use crate::device::Autograd;
use crate::record::{Operands, here, record};
use crate::storage::{Tracked, own, unwrap};
use teeny_core::{AttentionInputs, Result, StorageRef, Tensor};

/// True if a gradient has to pass through any of the tensors.
fn recording<'t>(tensors: impl IntoIterator<Item = &'t Tensor>) -> Result<bool> {
    Ok(Operands::of(&tensors.into_iter().collect::<Vec<_>>())?.recording)
}

/// The inner tensors of the operands.
struct Inner {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}

impl Inner {
    fn of(inputs: &AttentionInputs<'_>) -> Result<Inner> {
        let mask = inputs.mask.map(unwrap).transpose()?;
        Ok(Inner { q: unwrap(inputs.q)?, k: unwrap(inputs.k)?, v: unwrap(inputs.v)?, mask })
    }

    fn inputs(&self, like: &AttentionInputs<'_>) -> AttentionInputs<'_> {
        AttentionInputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            mask: self.mask.as_ref(),
            options: like.options,
        }
    }
}

pub(crate) fn attention(
    device: &Autograd,
    inputs: &AttentionInputs<'_>,
) -> Result<(StorageRef, StorageRef)> {
    let &AttentionInputs { q, k, v, mask, options } = inputs;
    if recording(mask)? {
        let (y, lse) = inputs.composed()?;
        return Ok((own(y)?.storage().clone(), own(lse)?.storage().clone()));
    }
    let inner = Inner::of(inputs)?;
    let (y, lse) = device.inner_device().attention(&inner.inputs(inputs))?;
    let n = q.ndim();
    let y = device.value(y, q.shape().with_size(n - 1, v.shape()[n - 1]), q.dtype())?;
    let lse = tensor_of_rows(device, lse, q)?;
    let mut operands = Operands::of(&[q, k, v])?;
    if operands.recording {
        operands.cuts.push(Cut { op: "the logsumexp of attention", ..here(operands.mask) });
    }
    let saved = (y.clone(), lse.clone());
    let y = record([q, k, v], y, |needs| {
        move |g: &Tensor| {
            let Inner { q, k, v, mask } = &inner;
            let inputs = AttentionInputs { q, k, v, mask: mask.as_ref(), options };
            let [d_q, d_k, d_v] =
                q.device().attention_grad(&inputs, &saved.0, &saved.1, g, needs)?;
            let whole = |storage: Option<StorageRef>, x: &Tensor| {
                storage.map(|s| tensor(s, *x.shape(), x)).transpose()
            };
            Ok([whole(d_q, q)?, whole(d_k, k)?, whole(d_v, v)?])
        }
    })?;
    Ok((y, Tracked::storage(lse, None, operands.cuts)))
}

/// A number per query, (.., T), of the inner device, in the type that `q` is computed in.
fn tensor_of_rows(device: &Autograd, storage: StorageRef, q: &Tensor) -> Result<Tensor> {
    let shape = teeny_core::Shape::new(&q.shape()[..q.ndim() - 1])?;
    device.value(storage, shape, q.dtype().compute())
}

pub(crate) fn attention_grad(
    device: &Autograd,
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    needs: [bool; 3],
) -> Result<[Option<StorageRef>; 3]> {
    let operands = [inputs.q, inputs.k, inputs.v, g];
    if recording(operands.into_iter().chain(inputs.mask))? {
        let [q, k, v] = inputs.composed_grad(None, g, needs)?;
        let whole = |x: Option<Tensor>| x.map(|x| Ok(own(x)?.storage().clone())).transpose();
        return Ok([whole(q)?, whole(k)?, whole(v)?]);
    }
    let inner = Inner::of(inputs)?;
    let storages = device.inner_device().attention_grad(
        &inner.inputs(inputs),
        &unwrap(y)?,
        &unwrap(lse)?,
        &unwrap(g)?,
        needs,
    )?;
    let plain = |storage: Option<StorageRef>, x: &Tensor| -> Result<Option<StorageRef>> {
        let cuts = Operands::of(&operands)?.cuts;
        storage
            .map(|s| Ok(Tracked::storage(device.value(s, *x.shape(), x.dtype())?, None, cuts)))
            .transpose()
    };
    let [q, k, v] = storages;
    Ok([plain(q, inputs.q)?, plain(k, inputs.k)?, plain(v, inputs.v)?])
}
