//! The requirements of matrix products, solvers and decompositions: matrices in the last two axes,
//! equal leading axes.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::messages::{NOT_SQUARE, two_axes};
use crate::op::{LinalgOp, TensorSpec};
use crate::tensor::Tensor;

/// [`Op::Matmul`](crate::Op::Matmul).
///
/// # Errors
/// If the shapes are not (.., m, k) and (.., k, n) with equal leading axes, or the types differ or
/// are bool.
#[inline(always)]
pub fn matmul(lhs: &Tensor, rhs: &Tensor) -> Result<TensorSpec> {
    let (a, b) = (lhs.shape(), rhs.shape());
    let rows = a.ndim().wrapping_sub(2);
    if a.ndim() < 2 || a.ndim() != b.ndim() || a[..rows] != b[..rows] || a[rows + 1] != b[rows] {
        return Err(Error::shape(format!(
            "cannot multiply {a} @ {b}: (.., m, k) @ (.., k, n) with equal leading axes are needed"
        ))
        .help("lhs.matmul(&rhs)? broadcasts leading axes"));
    }
    if lhs.dtype() != rhs.dtype() || lhs.dtype() == DType::Bool {
        return Err(Error::dtype(format!(
            "cannot multiply {} by {}: one type is needed, not bool",
            lhs.dtype(),
            rhs.dtype()
        ))
        .help("lhs.matmul(&rhs)? promotes types; bools are cast to DType::F32"));
    }
    Ok((a.resized(rows + 1, b[rows + 1])?, lhs.dtype()))
}

/// [`Op::Linalg`](crate::Op::Linalg).
///
/// # Errors
/// If the operands are not as many matrices as `op` takes, of f32 or f64, square where `op` needs
/// that.
pub fn linalg(op: LinalgOp, inputs: &[&Tensor]) -> Result<Vec<TensorSpec>> {
    let (count, square) = match op {
        LinalgOp::Solve | LinalgOp::SolveTriangular(_) => (2, true),
        LinalgOp::Det | LinalgOp::SlogDet | LinalgOp::Cholesky | LinalgOp::Eigh | LinalgOp::Eig => {
            (1, true)
        }
        LinalgOp::Qr { .. } | LinalgOp::Svd { .. } | LinalgOp::Pinv { .. } => (1, false),
    };
    if inputs.len() != count {
        return Err(Error::value(format!(
            "{} takes {count} matrices, not {}",
            op.name(),
            inputs.len()
        ))
        .help(
            "solve and solve_triangular take a matrix and a right-hand side, all others one matrix",
        ));
    }
    let a = inputs[0];
    let rows = a.ndim().wrapping_sub(2);
    if a.ndim() < 2 || square && a.shape()[rows] != a.shape()[rows + 1] {
        return Err(Error::shape(format!(
            "{0} expected {2}, got {1}",
            op.name(),
            a.shape(),
            if square { "square matrices" } else { "matrices" }
        ))
        .help(if a.ndim() < 2 { two_axes(a.shape()) } else { NOT_SQUARE }));
    }
    for x in inputs {
        if !matches!(x.dtype(), DType::F32 | DType::F64) || x.dtype() != a.dtype() {
            return Err(Error::dtype(format!(
                "{} expected f32 or f64, got {}",
                op.name(),
                x.dtype()
            ))
            .help("x.cast(DType::F64)? converts"));
        }
    }
    if let Some(b) = inputs.get(1)
        && (b.ndim() != a.ndim() || b.shape()[..=rows] != a.shape()[..=rows])
    {
        return Err(Error::shape(format!(
            "{} expected (.., n, n) and (.., n, k), got {} and {}",
            op.name(),
            a.shape(),
            b.shape()
        ))
        .help("a.solve(&b)? takes vectors and broadcasts leading axes"));
    }
    op.results(inputs)
}
