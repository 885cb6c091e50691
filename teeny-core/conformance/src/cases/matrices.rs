//! Solving and factoring (feature `linalg`): what is unique is compared, what is not is multiplied
//! back together.

use super::{Arrangement, Case, Domain, Input, Sink, near};
use teeny_core::{DType, Result, Tensor, Triangle};

type Results = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Each of `x` (2, 4, 4), well conditioned, and `b` (2, 4, 3).
const OPS: [(&str, Results); 11] = [
    ("solve", |x| Ok(vec![x[0].solve(&x[1])?])),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[1], Triangle::Lower)?])),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[1], Triangle::UnitUpper)?])),
    ("inv", |x| Ok(vec![x[0].inv()?])),
    ("det", |x| Ok(vec![x[0].det()?])),
    ("slogdet", |x| x[0].slogdet().map(|(sign, log)| vec![sign, log])),
    ("cholesky", |x| Ok(vec![gram(x)?.cholesky()?])),
    ("qr", |x| {
        x[1].qr().and_then(|(q, r)| Ok(vec![q.matmul(&r)?, q.transpose(-2, -1)?.matmul(&q)?]))
    }),
    ("eigh", |x| gram(x)?.eigh().map(|(values, _)| vec![values])),
    ("svd", |x| x[1].svd().map(|(_, values, _)| vec![values])),
    ("pinv", |x| Ok(vec![x[1].pinv(None)?])),
];

/// A symmetric positive definite matrix of the first input.
fn gram(x: &[Tensor]) -> Result<Tensor> {
    x[0].matmul(&x[0].transpose(-2, -1)?)
}

pub fn each(sink: Sink<'_>) {
    for dtype in [DType::F32, DType::F64] {
        for (i, arrangement) in Arrangement::ALL.into_iter().enumerate() {
            // Repeated rows or columns would be singular before the diagonal is added, and `Small`
            // numbers plus 16 on the diagonal never are.
            for (op, f) in OPS {
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
                let tolerance = near(64.0, 64.0);
                let body = Box::new(body);
                sink(Case { op, dtype, inputs, tolerance, detail, body });
            }
        }
    }
}
