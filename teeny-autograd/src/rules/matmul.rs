//! The matrix product: `d lhs = g rhsᵀ`, `d rhs = lhsᵀ g`.
//!
//! Core has already made both operands batches of matrices. An operand that was broadcast over batch axes would get a whole batch of gradients only to
//! have it summed; instead those axes are folded into the axis the product sums over, so that a weight met by (B, T, C) costs one product of
//! (C, B T) @ (B T, V) and no temporary of B weights.

use crate::device::Autograd;
use crate::record::record;
use crate::storage::unwrap;
use teeny_core::{Result, StorageRef, Tensor};

pub(crate) fn matmul(device: &Autograd, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let (a, b) = (unwrap(lhs)?, unwrap(rhs)?);
    let n = a.ndim();
    let shape = a.shape().with_size(n - 1, b.shape()[n - 1]);
    let y = device.value(device.inner_device().matmul(&a, &b)?, shape, lhs.dtype());
    // The operands as one matrix per distinct matrix: what the edges remember.
    let (lhs_axes, rhs_axes) = (repeated(lhs), repeated(rhs));
    let (lhs, rhs) = (once(lhs, &lhs_axes), once(rhs, &rhs_axes));
    let (flip_lhs, flip_rhs) = (is_transposed(&lhs), is_transposed(&rhs));
    record([&lhs, &rhs], y, |[need_lhs, need_rhs]| {
        let (a, b) = (need_rhs.then_some(a), need_lhs.then_some(b));
        move |g: &Tensor| {
            // Folded into the columns of g and of rhs, or the rows of g and of lhs: the axes these products sum over.
            let d_lhs = |b: &Tensor| product(fold(g, &lhs_axes, n - 1)?, fold(b, &lhs_axes, n - 1)?.t()?, flip_lhs);
            let d_rhs = |a: &Tensor| product(fold(a, &rhs_axes, n - 2)?.t()?, fold(g, &rhs_axes, n - 2)?, flip_rhs);
            let (d_lhs, d_rhs) = (b.as_ref().map(d_lhs).transpose()?, a.as_ref().map(d_rhs).transpose()?);
            Ok([d_lhs, d_rhs])
        }
    })
}

/// True if the rows, not the columns, of the matrices are neighbours in memory: a transposed weight.
fn is_transposed(x: &Tensor) -> bool {
    let n = x.ndim();
    x.strides()[n - 2] == 1 && x.strides()[n - 1] != 1
}

/// `lhs @ rhs`, computed as `(rhsᵀ @ lhsᵀ)ᵀ` if `flip`: so that the gradient of a transposed weight is row-major once it is turned back.
fn product(lhs: Tensor, rhs: Tensor, flip: bool) -> Result<Tensor> {
    if flip { rhs.t()?.matmul(&lhs.t()?)?.t() } else { lhs.matmul(&rhs) }
}

/// The batch axes over which an operand repeats.
fn repeated(x: &Tensor) -> Vec<usize> {
    (0..x.ndim() - 2).filter(|&axis| x.shape()[axis] > 1 && x.strides()[axis] == 0).collect()
}

/// `x` with its repeated axes cut to one.
fn once(x: &Tensor, axes: &[usize]) -> Tensor {
    x.with_layout(axes.iter().fold(*x.layout(), |layout, &axis| layout.slice(axis, 0, 1, 1)))
}

/// `x` with the batch axes `axes` moved into axis `to` (rows or columns), where size 1 stays behind.
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
