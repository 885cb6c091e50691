//! Sums, products and extrema along axes, and kernels that are reduced in the same pass.

use super::spread;
use crate::device::Autograd;
use crate::elementwise::{Inner, needs};
use crate::node::Backward;
use crate::record::{Operands, cut, edges, record};
use crate::storage::{Tracked, unwrap};
use std::sync::Arc;
use teeny_core::{Device, Error, Kernel, ReduceOp, Result, Scalar, Shape, StorageRef, Tensor, map};

pub(crate) fn reduce(
    device: &Autograd,
    op: ReduceOp,
    x: &Tensor,
    axes: &[usize],
) -> Result<StorageRef> {
    let inner = unwrap(x)?;
    let shape = x.shape().reduced(axes, false);
    let y = device.value(
        device.inner_device().reduce(op, &inner, axes)?,
        shape,
        op.output(x.dtype()),
    )?;
    let (axes, full) = (axes.to_vec(), *x.shape());
    match op {
        ReduceOp::ArgMax | ReduceOp::ArgMin | ReduceOp::Any | ReduceOp::All => cut(&[x], y),
        ReduceOp::Sum => record([x], y, |_| move |g: &Tensor| Ok([Some(spread(g, &full, &axes)?)])),
        ReduceOp::Prod => record([x], y, |_| {
            move |g: &Tensor| Ok([Some(prod_grad(&inner, &spread(g, &full, &axes)?, &axes)?)])
        }),
        ReduceOp::Max | ReduceOp::Min => {
            let saved = y.clone();
            record([x], y, |_| {
                move |g: &Tensor| {
                    let best = inner.eq(&spread(&saved, &full, &axes)?)?;
                    let count = best.cast(g.dtype())?.sum_keepdim(&axes)?;
                    let g = spread(g, &full, &axes)?;
                    // As torch.amax: ties share evenly. Where the extremum is NaN nothing equals
                    // it, and all get 0 / 0.
                    Ok([Some(map([&best, &g, &count], |[b, g, c]| b.select(g, g.like(0)) / c)?)])
                }
            })
        }
    }
}

/// `g` times the product of all other elements along `axes`: products of what comes before and
/// after, so zeros need no special case, and the result can be differentiated again.
pub(crate) fn prod_grad(x: &Tensor, g: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let kept: Vec<usize> = (0..x.ndim()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let rows = x.permute(&order)?; // (kept.., axes..)
    let moved = *rows.shape();
    let mut flat = moved[..kept.len()].to_vec();
    flat.push(moved[kept.len()..].iter().product());
    let rows = rows.reshape(flat)?; // (kept.., n)
    let others = before(&rows)?.mul(&before(&rows.flip(-1)?)?.flip(-1)?)?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    others.reshape(moved)?.permute(back)?.mul(g)
}

/// The product of all elements before each along the last axis; 1 for the first.
fn before(x: &Tensor) -> Result<Tensor> {
    let n = x.size(-1)?;
    if n == 0 {
        return Ok(x.clone());
    }
    x.ones_like()?.slice_assign(-1, 1.., &x.slice(-1, ..n - 1)?.cumprod(-1)?)
}

pub(crate) fn reduce_kernel(
    device: &Autograd,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    let operands = Operands::of(inputs)?;
    let dtype = op.output(kernel.output_dtype(0));
    if operands.recording && op != ReduceOp::Sum && dtype.is_float() {
        // The rules of products and extrema read the mapped elements, so these are stored after
        // all.
        let mapped = device.elementwise(kernel, inputs, params, shape)?.into_iter().next();
        let storage = mapped.ok_or_else(|| Error::internal("a kernel gave no output"))?;
        let mapped = Tensor::from_result(
            storage,
            *shape,
            kernel.output_dtype(0),
            inputs[0].device().clone(),
        )?;
        return reduce(device, op, &mapped, axes);
    }
    let inner = Inner::of(inputs)?;
    let views = inner.list()?;
    let storage = device.inner_device().reduce_kernel(kernel, &views, params, shape, op, axes)?;
    let y = device.value(storage, shape.reduced(axes, false), dtype)?;
    if !operands.recording {
        return Ok(Tracked::storage(y, None, operands.cuts));
    }
    let derivative = device.derivative(kernel, needs(inputs)?, false)?;
    if derivative.reach[0] == 0 {
        return Ok(operands.cut(y));
    }
    let saved = derivative.save(&views, &[])?;
    let (params, axes, shape) = (params.to_vec(), axes.to_vec(), *shape);
    let backward: Backward = Box::new(move |g| {
        let g = g[0].as_ref().map(|g| spread(g, &shape, &axes)).transpose()?;
        derivative.run(&saved, &params, &[g], &shape)
    });
    Ok(operands.store(y, edges(inputs)?, backward))
}
