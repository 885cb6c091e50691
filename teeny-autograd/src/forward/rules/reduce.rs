//! Sums, products and extrema along axes.

use crate::forward::operands::Operands;
use crate::rules::broadcast_back;
use crate::rules::reduce::prod_grad;
use teeny_core::{ReduceOp, Result, Tensor, map};

/// The tangent of `y`, the reduction of `x` over `axes`.
pub(super) fn reduce(
    operands: &Operands,
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
