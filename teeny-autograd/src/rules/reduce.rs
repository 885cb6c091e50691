//! Sums, products and extrema along axes, and kernels that are reduced in the same pass.

use super::broadcast_back;
use crate::duals::Duals;
use crate::elementwise::Over;
use crate::record::{Operands, Recorder, Rule};
use std::sync::Arc;
use teeny_core::{Kernel, ReduceOp, Result, Scalar, Shape, Tensor, map};

/// The rule of reducing `axes` of `x` to `y`; none for positions and bools.
pub(crate) fn reduce(
    operands: &Operands<'_>,
    op: ReduceOp,
    x: &Tensor,
    axes: &[usize],
    y: &Tensor,
) -> Option<Rule> {
    let (axes, full) = (axes.to_vec(), *x.shape());
    Some(match op {
        ReduceOp::ArgMax | ReduceOp::ArgMin | ReduceOp::Any | ReduceOp::All => return None,
        ReduceOp::Sum => Rule::new(operands, move |g| Ok([Some(broadcast_back(g, &full, &axes)?)])),
        ReduceOp::Prod => {
            let x = x.clone();
            Rule::new(operands, move |g| {
                Ok([Some(prod_grad(&x, &broadcast_back(g, &full, &axes)?, &axes)?)])
            })
        }
        ReduceOp::Max | ReduceOp::Min => {
            let (x, y) = (x.clone(), y.clone());
            Rule::new(operands, move |g| {
                let best = x.eq(&broadcast_back(&y, &full, &axes)?)?;
                let count = best.cast(g.dtype())?.sum_keepdim(&axes)?;
                let g = broadcast_back(g, &full, &axes)?;
                // As torch.amax: ties share evenly. Where the extremum is NaN nothing equals it,
                // and all get 0 / 0.
                Ok([Some(map([&best, &g, &count], |[b, g, c]| b.where_cond(g, g.like(0)) / c)?)])
            })
        }
    })
}

/// Inner size from which the scan runs in place: copies that reverse the axis then move rows of at
/// least a cache line.
const LONG_ROW: usize = 16;

/// `g` times the product of all other elements along `axes`: products of the elements before and
/// after, so zeros need no special case, and the result can be differentiated again.
fn prod_grad(x: &Tensor, g: &Tensor, axes: &[usize]) -> Result<Tensor> {
    if let &[axis] = axes {
        let inner: usize = x.shape()[axis + 1..].iter().product();
        if inner == 1 || inner >= LONG_ROW {
            return prod_grad_along(x, g, axis);
        }
    }
    let kept: Vec<usize> = (0..x.ndim()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let moved = *x.permute(&order)?.shape(); // (kept.., axes..)
    let mut flat = moved[..kept.len()].to_vec();
    flat.push(moved[kept.len()..].iter().product());
    let rows = |x: &Tensor| x.permute(&order)?.reshape(flat.clone()); // (kept.., n)
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    prod_grad_along(&rows(x)?, &rows(g)?, kept.len())?.reshape(moved)?.permute(back)
}

/// [`prod_grad`] along one axis.
fn prod_grad_along(x: &Tensor, g: &Tensor, axis: usize) -> Result<Tensor> {
    let after = before(&x.flip(axis)?, axis)?.flip(axis)?;
    map([&before(x, axis)?, &after, g], |[before, after, g]| before * after * g)
}

/// The product of all elements before each along an axis; 1 for the first.
fn before(x: &Tensor, axis: usize) -> Result<Tensor> {
    if x.shape()[axis] == 0 {
        return Ok(x.clone());
    }
    let mut widths = vec![(0, 0); x.ndim() - axis];
    widths[0] = (1, -1);
    x.pad(&widths, 1)?.cumprod(axis as isize)
}

/// True if reducing the kernel adds floats up: then its gradient is the kernel's, repeated.
pub(crate) fn sums_floats(kernel: &Kernel, op: ReduceOp) -> bool {
    op == ReduceOp::Sum || !op.output(kernel.output_dtype(0)).is_float()
}

/// The rule of a sum of a kernel's results over `axes` of `shape`.
pub(crate) fn reduce_kernel(
    recorder: &Recorder,
    operands: &Operands<'_>,
    kernel: &Arc<Kernel>,
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
) -> Result<Option<Rule>> {
    let derivative = recorder.derivative(kernel, operands.needs(), false)?;
    if derivative.reach[0] == 0 {
        return Ok(None);
    }
    let saved = derivative.save(&operands.inner()?, &[])?;
    let (params, axes) = (params.to_vec(), axes.to_vec());
    let over = Over { shape: *shape, axes: Box::default() };
    Ok(Some(Rule {
        backward: Box::new(move |g| {
            let g = g[0].as_ref().map(|g| broadcast_back(g, &over.shape, &axes)).transpose()?;
            derivative.run(&saved, &params, &[g], &over)
        }),
        edges: operands.edges(),
        detached: None,
    }))
}

/// The tangent of `y`, the reduction of `x` over `axes`.
pub(crate) fn reduce_tangent(
    operands: &Duals,
    op: ReduceOp,
    x: &Tensor,
    axes: &[usize],
    y: &Tensor,
) -> Result<Option<Tensor>> {
    let Some(t) = operands.tangent(0) else { return Ok(None) };
    Ok(match op {
        ReduceOp::ArgMax | ReduceOp::ArgMin | ReduceOp::Any | ReduceOp::All => None,
        ReduceOp::Sum => Some(t.sum(axes)?),
        ReduceOp::Prod => Some(prod_grad(x, t, axes)?.sum(axes)?),
        ReduceOp::Max | ReduceOp::Min => {
            // The mean of the tangents of equal extrema.
            let chosen = x.eq(&broadcast_back(y, x.shape(), axes)?)?;
            let sum = map([&chosen, t], |[c, t]| c.where_cond(t, t.like(0)))?.sum(axes)?;
            Some(sum.div(&chosen.cast(t.dtype())?.sum(axes)?)?)
        }
    })
}
