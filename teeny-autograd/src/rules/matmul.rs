//! The matrix product: `d lhs = g rhsᵀ`, `d rhs = lhsᵀ g`.
//!
//! Core has already made both operands batches of matrices. An operand that was broadcast over
//! batch axes would get a whole batch of gradients only to have it summed; instead those axes are
//! folded into the axis the product sums over, so that a weight met by (B, T, C) costs one product
//! of (C, B T) @ (B T, V) and no temporary of B weights.

use crate::device::Autograd;
use crate::record::record;
use crate::storage::unwrap;
use teeny_core::{Result, StorageRef, Tensor};

pub(crate) fn matmul(device: &Autograd, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let (a, b) = (unwrap(lhs)?, unwrap(rhs)?);
    let n = a.ndim();
    let shape = a.shape().with_size(n - 1, b.shape()[n - 1]);
    let y = device.value(device.inner_device().matmul(&a, &b)?, shape, lhs.dtype())?;
    // The operands as one matrix per distinct matrix: what the edges remember.
    let (lhs_axes, rhs_axes) = (repeated(lhs), repeated(rhs));
    let (lhs, rhs) = (once(lhs, &lhs_axes)?, once(rhs, &rhs_axes)?);
    let (lhs_across, rhs_across) = (across(&lhs), across(&rhs));
    record([&lhs, &rhs], y, |[need_lhs, need_rhs]| {
        let (a, b) = (need_rhs.then_some(a), need_lhs.then_some(b));
        move |g: &Tensor| {
            // Folded into the columns of g and of rhs, or the rows of g and of lhs: the axes these
            // products sum over.
            let d_lhs = b
                .as_ref()
                .map(|b| {
                    product(fold(g, &lhs_axes, n - 1)?, fold(b, &lhs_axes, n - 1)?.t()?, lhs_across)
                })
                .transpose()?;
            let d_rhs = a
                .as_ref()
                .map(|a| {
                    product(fold(a, &rhs_axes, n - 2)?.t()?, fold(g, &rhs_axes, n - 2)?, rhs_across)
                })
                .transpose()?;
            Ok([d_lhs, d_rhs])
        }
    })
}

/// True if `x` was transposed on its way here: its rows lie closer together than its columns.
fn across(x: &Tensor) -> bool {
    let (rows, columns) =
        (x.strides()[x.ndim() - 2].unsigned_abs(), x.strides()[x.ndim() - 1].unsigned_abs());
    rows < columns
}

/// `lhs @ rhs`, computed as `(rhsᵀ @ lhsᵀ)ᵀ` if `across`. The gradient of a transposed operand
/// (`weight.t()`) then lies in memory as the operand does, and whoever updates the weight reads
/// both straight through.
fn product(lhs: Tensor, rhs: Tensor, across: bool) -> Result<Tensor> {
    if across { rhs.t()?.matmul(&lhs.t()?)?.t() } else { lhs.matmul(&rhs) }
}

/// The batch axes over which an operand repeats.
fn repeated(x: &Tensor) -> Vec<usize> {
    (0..x.ndim() - 2).filter(|&axis| x.shape()[axis] > 1 && x.strides()[axis] == 0).collect()
}

/// `x` with its repeated axes cut to one.
fn once(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    x.with_layout(axes.iter().fold(*x.layout(), |layout, &axis| layout.slice(axis, 0, 1, 1)))
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
