//! Running sums, products and extrema.

use crate::duals::Duals;
use crate::nesting::differentiated;
use crate::record::{Operands, Rule};
use teeny_core::{DType, Result, ScanOp, Tensor, map};

/// The rule of accumulating `x` along `axis` to `y`.
pub(crate) fn scan(
    operands: &Operands<'_>,
    op: ScanOp,
    x: &Tensor,
    axis: usize,
    y: &Tensor,
) -> Rule {
    match op {
        ScanOp::Sum => Rule::new(operands, move |g| Ok([Some(sum_from(g, axis)?)])),
        ScanOp::Prod => {
            let (x, y) = (x.clone(), y.clone());
            Rule::new(operands, move |g| {
                let again = differentiated(&x) || differentiated(g);
                Ok([Some(if again {
                    prod_grad_square(&x, g, axis)?
                } else {
                    prod_grad(&x, &y, g, axis)?
                })])
            })
        }
    }
}

/// The rule of running extrema, which are the elements at `positions`: a gradient goes back to
/// them, to the same element from several.
pub(crate) fn cum_max(operands: &Operands<'_>, axis: usize, positions: &Tensor) -> Rule {
    let index = positions.clone();
    Rule::new(operands, move |g| {
        let zeros = Tensor::zeros((), g.dtype(), g)?.expand(g.shape())?;
        Ok([Some(zeros.scatter_add(axis as isize, &index, g)?)])
    })
    .detaching(1, Some("the positions of a running extremum"))
}

/// The sum of each element and all after it.
fn sum_from(x: &Tensor, axis: usize) -> Result<Tensor> {
    x.flip(axis)?.cumsum(axis as isize)?.flip(axis)
}

/// The gradient of `y_k = x_0 .. x_k` in O(n).
///
/// Before the first zero (or everywhere without one) it is `Σ_(k>=i) g_k y_k / x_i`; at the first
/// zero the same with this zero taken as 1, and after it 0. No data is downloaded.
fn prod_grad(x: &Tensor, y: &Tensor, g: &Tensor, axis: usize) -> Result<Tensor> {
    let (filled, zeros, first) = first_zeros(x, axis)?;
    let y_filled = filled.cumprod(axis as isize)?;
    let until = sum_from(&g.mul(y)?, axis)?;
    let at = sum_from(&g.mul(&y_filled)?, axis)?;
    map([&until, &at, &filled, &zeros, &first], |[u, a, x, n, f]| {
        f.where_cond(a, n.eq(0).where_cond(u / x, u.like(0)))
    })
}

/// `x` with the first zero along `axis` taken as 1; how many zeros there are up to each element;
/// true at the first.
fn first_zeros(x: &Tensor, axis: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let zero = x.eq(0)?;
    let zeros = zero.cast(DType::I32)?.cumsum(axis as isize)?;
    let first = map([&zero, &zeros], |[z, n]| z.and(n.eq(1)))?;
    Ok((map([x, &first], |[x, f]| f.where_cond(x.like(1), x))?, zeros, first))
}

/// The same in O(n²), by the products without element `i` written out: this one can be
/// differentiated again where there are zeros.
fn prod_grad_square(x: &Tensor, g: &Tensor, axis: usize) -> Result<Tensor> {
    let (others, behind) = without_each(x, axis)?;
    let g = g.transpose(axis as isize, -1)?.unsqueeze(-2)?; // (.., 1, k)
    map([&others, &behind, &g], |[p, b, g]| b.where_cond(p * g, g.like(0)))?
        .sum(-1)?
        .transpose(axis as isize, -1)
}

/// The products `x_0 .. x_k` without `x_i`, (.., i, k) with the axis scanned moved to the end, and
/// where `k >= i`.
fn without_each(x: &Tensor, axis: usize) -> Result<(Tensor, Tensor)> {
    let last = x.transpose(axis as isize, -1)?; // (.., n)
    let n = last.size(-1)?;
    let rows = last.unsqueeze(-2)?; // (.., 1, j)
    let own = Tensor::eye(n, DType::Bool, x)?; // (i, j)
    // (.., i, k)
    let others = map([&rows, &own], |[x, own]| own.where_cond(x.like(1), x))?.cumprod(-1)?;
    let places = Tensor::arange(0i64, n as i64, 1, x)?;
    let behind = places.unsqueeze(1)?.le(&places)?; // (i, k)
    Ok((others, behind))
}

/// The tangent of accumulating `x` along `axis`.
pub(crate) fn scan_tangent(
    operands: &Duals,
    op: ScanOp,
    x: &Tensor,
    axis: usize,
) -> Result<Option<Tensor>> {
    let Some(t) = operands.tangent(0) else { return Ok(None) };
    Ok(Some(match op {
        ScanOp::Sum => t.cumsum(axis as isize)?,
        ScanOp::Prod if differentiated(x) || differentiated(t) => {
            prod_tangent_in_square(x, t, axis)?
        }
        ScanOp::Prod => prod_tangent(x, t, axis)?,
    }))
}

/// `Σ_(i<=k) t_i` times the product `x_0 .. x_k` without `x_i`, in O(n²): differentiable where
/// there are zeros.
fn prod_tangent_in_square(x: &Tensor, t: &Tensor, axis: usize) -> Result<Tensor> {
    let (others, until) = without_each(x, axis)?; // (.., i, k)
    let t = t.transpose(axis as isize, -1)?.unsqueeze(-1)?; // (.., i, 1)
    map([&others, &until, &t], |[p, u, t]| u.where_cond(p * t, t.like(0)))?
        .sum(-2)?
        .transpose(axis as isize, -1)
}

/// The same in O(n): `y_k Σ_(i<=k) t_i / x_i` before the first zero; from there on only the product
/// without this zero has a tangent.
fn prod_tangent(x: &Tensor, t: &Tensor, axis: usize) -> Result<Tensor> {
    let (filled, zeros, first) = first_zeros(x, axis)?;
    let axis = axis as isize;
    let product = filled.cumprod(axis)?;
    let relative =
        map([t, &filled, &first], |[t, x, f]| f.where_cond(t.like(0), t / x))?.cumsum(axis)?;
    let at = map([t, &first], |[t, f]| f.where_cond(t, t.like(0)))?.cumsum(axis)?;
    map([&product, &zeros, &relative, &at], |[p, n, r, a]| p * n.eq(0).where_cond(r, a))
}
