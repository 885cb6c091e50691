//! The matrix product: `d lhs = g rhsᵀ`, `d rhs = lhsᵀ g`.
//!
//! Core has already made both operands batches of matrices. An operand that was broadcast over
//! batch axes would get a whole batch of gradients only to have it summed; instead those axes are
//! folded into the axis the product sums over, so that a weight met by (B, T, C) costs one product
//! of (C, B T) @ (B T, V) and no temporary of B weights.

use crate::duals::Duals;
use crate::record::{Operands, Rule};
use teeny_core::{Layout, Result, Tensor};

/// The rule of `lhs @ rhs`.
pub(crate) fn matmul(operands: &Operands<'_>, lhs: &Tensor, rhs: &Tensor) -> Result<Rule> {
    let n = lhs.ndim();
    let (lhs_axes, rhs_axes) = (repeated(lhs), repeated(rhs));
    let (lhs_transposed, rhs_transposed) = (is_transposed(lhs), is_transposed(rhs));
    // The edges hold one matrix per distinct matrix of an operand.
    let edges =
        vec![operands.edge(0, &once(lhs, &lhs_axes)), operands.edge(1, &once(rhs, &rhs_axes))];
    let (a, b) = (operands.need(1).then(|| lhs.clone()), operands.need(0).then(|| rhs.clone()));
    let rule = Rule::new(operands, move |g| {
        // Folded into the columns of g and of rhs, or the rows of g and of lhs: the axes these
        // products sum over.
        let d_lhs = b
            .as_ref()
            .map(|b| {
                let (g, b) = (fold(g, &lhs_axes, n - 1)?, fold(b, &lhs_axes, n - 1)?);
                product(g, b.t()?, lhs_transposed)
            })
            .transpose()?;
        let d_rhs = a
            .as_ref()
            .map(|a| {
                let (a, g) = (fold(a, &rhs_axes, n - 2)?, fold(g, &rhs_axes, n - 2)?);
                product(a.t()?, g, rhs_transposed)
            })
            .transpose()?;
        Ok([d_lhs, d_rhs])
    });
    Ok(Rule { edges, ..rule })
}

/// True if the elements of a column are closer in memory than the elements of a row.
fn is_transposed(x: &Tensor) -> bool {
    let (rows, columns) =
        (x.strides()[x.ndim() - 2].unsigned_abs(), x.strides()[x.ndim() - 1].unsigned_abs());
    rows < columns
}

/// `lhs @ rhs`, computed as `(rhsᵀ @ lhsᵀ)ᵀ` if `transposed`. The gradient of a transposed operand
/// (`weight.t()`) then has the operand's strides, so that an update of the weight reads both
/// sequentially.
fn product(lhs: Tensor, rhs: Tensor, transposed: bool) -> Result<Tensor> {
    if transposed { rhs.t()?.matmul(&lhs.t()?)?.t() } else { lhs.matmul(&rhs) }
}

/// The batch axes over which an operand repeats.
fn repeated(x: &Tensor) -> Vec<usize> {
    (0..x.ndim() - 2).filter(|&axis| x.shape()[axis] > 1 && x.strides()[axis] == 0).collect()
}

/// The layout of `x` with its repeated axes reduced to size 1.
fn once(x: &Tensor, axes: &[usize]) -> Layout {
    axes.iter().fold(*x.layout(), |layout, &axis| layout.slice(axis, 0, 1, 1))
}

/// `x` with the batch axes `axes` moved into axis `to` (rows or columns), where size 1 stays
/// behind.
fn fold(x: &Tensor, axes: &[usize], to: usize) -> Result<Tensor> {
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let n = x.ndim();
    let mut order: Vec<usize> = (0..n - 2).filter(|a| !axes.contains(a)).collect();
    if to == n - 1 {
        order.push(n - 2);
    }
    order.extend(axes);
    order.push(to);
    if to == n - 2 {
        order.push(n - 1);
    }
    let mut sizes = x.shape().to_vec();
    for &axis in axes {
        sizes[to] *= sizes[axis];
        sizes[axis] = 1;
    }
    x.permute(order)?.reshape(sizes)
}

/// The product rule.
pub(crate) fn matmul_tangent(
    operands: &Duals,
    lhs: &Tensor,
    rhs: &Tensor,
) -> Result<Option<Tensor>> {
    operands.product_rule(|t| t.matmul(rhs), |t| lhs.matmul(t))
}
