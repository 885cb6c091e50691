//! Running sums and products.

use crate::forward::operands::Operands;
use crate::nesting::differentiated;
use crate::rules::scan::{first_zeros, without_each};
use teeny_core::{Result, ScanOp, Tensor, map};

pub(super) fn scan(
    operands: &Operands,
    op: ScanOp,
    x: &Tensor,
    axis: usize,
) -> Result<Option<Tensor>> {
    let Some(t) = operands.tangent(0) else { return Ok(None) };
    Ok(Some(match op {
        ScanOp::Sum => t.cumsum(axis as isize)?,
        ScanOp::Prod if differentiated(x) || differentiated(t) => prod_in_square(x, t, axis)?,
        ScanOp::Prod => prod(x, t, axis)?,
    }))
}

/// `Σ_(i<=k) t_i` times the product `x_0 .. x_k` without `x_i`, in O(n²): differentiable where
/// there are zeros.
fn prod_in_square(x: &Tensor, t: &Tensor, axis: usize) -> Result<Tensor> {
    let (others, until) = without_each(x, axis)?; // (.., i, k)
    let t = t.transpose(axis as isize, -1)?.unsqueeze(-1)?; // (.., i, 1)
    map([&others, &until, &t], |[p, u, t]| u.where_cond(p * t, t.like(0)))?
        .sum(-2)?
        .transpose(axis as isize, -1)
}

/// The same in O(n): `y_k Σ_(i<=k) t_i / x_i` before the first zero; from there on only the product
/// without this zero has a tangent.
fn prod(x: &Tensor, t: &Tensor, axis: usize) -> Result<Tensor> {
    let (filled, zeros, first) = first_zeros(x, axis)?;
    let axis = axis as isize;
    let product = filled.cumprod(axis)?;
    let relative =
        map([t, &filled, &first], |[t, x, f]| f.where_cond(t.like(0), t / x))?.cumsum(axis)?;
    let at = map([t, &first], |[t, f]| f.where_cond(t, t.like(0)))?.cumsum(axis)?;
    map([&product, &zeros, &relative, &at], |[p, n, r, a]| p * n.eq(0).where_cond(r, a))
}
