//! Solving and factoring (feature `linalg`): what is unique is compared, what is not is multiplied
//! back together.

use super::{Arrangement, Case, Domain, Input, Sink, near};
use teeny_core::{DType, Result, Tensor, Triangle};

type Results = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Each of `x` (2, 4, 4), well conditioned, and `b` (2, 4, 3).
const OPS: [(&str, Results, f64); 19] = [
    ("solve", |x| Ok(vec![x[0].solve(&x[1])?]), 1.0),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[1], Triangle::Lower)?]), 1.0),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[1], Triangle::Upper)?]), 1.0),
    ("solve_triangular", |x| unit_solve(x, Triangle::UnitUpper), 16.0),
    ("solve_triangular", |x| unit_solve(x, Triangle::UnitLower), 16.0),
    ("inv", |x| Ok(vec![x[0].inv()?]), 1.0),
    ("det", |x| Ok(vec![x[0].det()?]), 1.0),
    ("slogdet", |x| x[0].slogdet().map(|(sign, log)| vec![sign, log]), 1.0),
    ("slogdet", |x| x[0].flip(1)?.slogdet().map(|(s, l)| vec![s, l]), 1.0),
    ("cholesky", |x| Ok(vec![gram(x)?.cholesky()?]), 16.0),
    (
        "qr",
        |x| x[1].qr().and_then(|(q, r)| Ok(vec![q.matmul(&r)?, q.transpose(-2, -1)?.matmul(&q)?])),
        16.0,
    ),
    (
        "qr",
        |x| {
            x[1].qr_complete()
                .and_then(|(q, r)| Ok(vec![q.matmul(&r)?, q.transpose(-2, -1)?.matmul(&q)?]))
        },
        16.0,
    ),
    (
        "eigh",
        |x| {
            let (values, v) = gram(x)?.eigh()?;
            let back = v.mul(&values.unsqueeze(-2)?)?.matmul(&v.transpose(-2, -1)?)?;
            Ok(vec![values, back, v.transpose(-2, -1)?.matmul(&v)?])
        },
        256.0,
    ),
    // Eigenvalues have no order: the traces of the matrix and of its square.
    (
        "eig",
        |x| {
            let (re, im) = x[0].eigvals()?;
            let square = re.square()?.sub(&im.square()?)?;
            Ok(vec![re.sum(-1)?, im.sum(-1)?, square.sum(-1)?])
        },
        1024.0,
    ),
    ("svd", |x| x[1].svd().map(|(_, values, _)| vec![values]), 16.0),
    ("svd", |x| product(x[1].svd()?), 16.0),
    (
        "svd",
        |x| {
            let (u, values, vt) = x[1].svd_full()?;
            let squares = [u.transpose(-2, -1)?.matmul(&u)?, vt.matmul(&vt.transpose(-2, -1)?)?];
            let mut all = product((u.slice(-1, ..3)?, values, vt))?;
            all.extend(squares);
            Ok(all)
        },
        16.0,
    ),
    ("pinv", |x| Ok(vec![x[1].pinv(None)?]), 0.25),
    ("pinv", |x| Ok(vec![x[1].pinv(Some(0.95))?]), 0.25),
];

/// A matrix of its singular value decomposition.
fn product((u, values, vt): (Tensor, Tensor, Tensor)) -> Result<Vec<Tensor>> {
    Ok(vec![u.mul(&values.unsqueeze(-2)?)?.matmul(&vt)?])
}

/// A solution of moderate size: the other elements are small, and the diagonal is not read.
fn unit_solve(x: &[Tensor], triangle: Triangle) -> Result<Vec<Tensor>> {
    Ok(vec![x[0].div(16)?.solve_triangular(&x[1], triangle)?])
}

/// A symmetric positive definite matrix of the first input.
fn gram(x: &[Tensor]) -> Result<Tensor> {
    x[0].matmul(&x[0].transpose(-2, -1)?)
}

pub fn each(sink: Sink<'_>) {
    for dtype in [DType::F32, DType::F64] {
        for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
            // Repeated rows or columns would be singular before the diagonal is added, and `Small`
            // numbers plus 16 on the diagonal never are.
            for (op, f, floor) in OPS {
                let other = Arrangement::ALL[(i + 2) % 7];
                let inputs = vec![
                    Input::new((2, 4, 4), dtype, arrangement, Domain::Small, 80),
                    Input::new((2, 4, 3), dtype, other, Domain::Small, 81),
                ];
                let body = move |_: &_, x: &[Tensor]| {
                    let shift = Tensor::eye(4, dtype, &x[0])?.mul(16.0)?;
                    let tall = Tensor::eye(4, dtype, &x[1])?.slice(1, ..3)?.mul(16.0)?;
                    f(&[x[0].add(&shift)?, x[1].add(&tall)?])
                };
                let detail = format!("{other:?} right side");
                // The host computes in f64: what differs is how a device rounds the operands' sums.
                let tolerance = near(64.0, floor);
                let body = Box::new(body);
                sink(Case { op, dtype, inputs, tolerance, detail, body });
            }
        }
    }
}
