//! Solving and factoring (feature `linalg`): unique results are compared, others are multiplied
//! back together.

use super::{Arrangement, Case, Domain, Input, Sink, near};
use teeny_core::{DType, Result, Tensor, Triangle};

type Results = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Each of matrices (n, 4, 4), well conditioned: `x[0]`, the symmetric `x[2]`, which is positive
/// definite, `x[3]`, which is not, and `x[4]`, minus the first; and `x[1]` (n, 4, 3).
const OPS: [(&str, Results, f64); 22] = [
    ("solve", |x| Ok(vec![x[0].solve(&x[1])?]), 1.0),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[1], Triangle::Lower)?]), 1.0),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[1], Triangle::Upper)?]), 1.0),
    ("solve_triangular", |x| Ok(vec![x[0].solve_triangular(&x[2], Triangle::Lower)?]), 16.0),
    ("solve_triangular", |x| unit_solve(x, Triangle::UnitUpper), 16.0),
    ("solve_triangular", |x| unit_solve(x, Triangle::UnitLower), 16.0),
    ("inv", |x| Ok(vec![x[0].inv()?]), 1.0),
    ("det", |x| Ok(vec![x[0].det()?]), 1.0),
    ("det", |x| Ok(vec![of_both_signs(x)?.det()?]), 1.0),
    ("slogdet", |x| x[0].slogdet().map(|(sign, log)| vec![sign, log]), 1.0),
    ("slogdet", |x| of_both_signs(x)?.slogdet().map(|(s, l)| vec![s, l]), 1.0),
    ("cholesky", |x| Ok(vec![x[2].cholesky()?]), 16.0),
    ("cholesky", |x| Ok(vec![finite_diagonal(&x[2])?.cholesky()?]), 16.0),
    (
        "qr",
        |x| {
            let (q, r) = x[1].qr()?;
            Ok(vec![q.matmul(&r)?, q.transpose(-2, -1)?.matmul(&q)?, r.abs()?])
        },
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
            let (values, v) = x[3].eigh()?;
            let back = v.mul(&values.unsqueeze(-2)?)?.matmul(&v.transpose(-2, -1)?)?;
            Ok(vec![values, back, v.transpose(-2, -1)?.matmul(&v)?])
        },
        256.0,
    ),
    // Eigenvalues have no order: the traces of the matrix and of its square.
    (
        "eig",
        |x| {
            let (re, im) = x[4].eigvals()?;
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

/// A diagonal of 1000, which no NaN beside it makes less than positive definite at once.
fn finite_diagonal(x: &Tensor) -> Result<Tensor> {
    Tensor::eye(4, DType::Bool, x)?.where_cond(1000, x)
}

/// Small determinants of both signs: the rows of every second matrix are rolled.
fn of_both_signs(x: &[Tensor]) -> Result<Tensor> {
    let small = x[0].div(64)?;
    let rolled = small.roll(1, 1)?;
    let odd = Tensor::arange(0, small.shape()[0] as i64, 1, &small)?.rem(2)?.ne(0)?;
    odd.unsqueeze(1)?.unsqueeze(2)?.where_cond(&rolled, &small)
}

/// `x` in a view, as the sums and products that make matrices are packed.
fn seen(x: &Tensor, how: usize) -> Result<Tensor> {
    let n = x.shape()[2];
    match how % 3 {
        0 => Ok(x.clone()),
        1 => x.flip(-1)?.flip(0)?.copy()?.flip(0)?.flip(-1),
        _ => Tensor::cat(&[&x.mul(0.5)?, x], -1)?.slice(-1, n as i64..),
    }
}

/// The matrices that the operations get, of draws of their shapes.
fn made(x: &[Tensor], how: usize) -> Result<Vec<Tensor>> {
    let dtype = x[0].dtype();
    let shift = Tensor::eye(4, dtype, &x[0])?.mul(16.0)?;
    let tall = Tensor::eye(4, dtype, &x[1])?.slice(1, ..3)?.mul(16.0)?;
    let square = x[0].add(&shift)?;
    let gram = square.matmul(&square.transpose(-2, -1)?)?;
    let symmetric = x[0].add(&x[0].transpose(-2, -1)?)?;
    let negative = square.neg()?;
    let all = [square, x[1].add(&tall)?, gram, symmetric, negative];
    all.iter().enumerate().map(|(i, x)| seen(x, how + i)).collect()
}

pub fn each(sink: Sink<'_>) {
    let mut add = |dtype, inputs: Vec<Input>, how, detail: &str| {
        let is_wrong = detail.ends_with("NaN");
        for (op, f, floor) in OPS {
            let body = move |_: &_, x: &[Tensor]| {
                let all = f(&made(x, how)?)?;
                // A recording device has the error of a matrix when its results are read.
                let read = |y: &Tensor| if is_wrong { y.to_bytes().map(drop) } else { Ok(()) };
                all.iter().try_for_each(read)?;
                Ok(all)
            };
            // The host computes in f64: what differs is how a device rounds the operands' sums.
            let (tolerance, body) = (near(64.0, floor), Box::new(body));
            let (inputs, detail) = (inputs.clone(), detail.to_string());
            sink(Case { op, dtype, inputs, tolerance, detail, body });
        }
    };
    for dtype in [DType::F32, DType::F64] {
        let drawn = |n, i: usize| {
            let (arrangement, other) = (Arrangement::ALL[i], Arrangement::ALL[(i + 2) % 7]);
            vec![
                Input::new((n, 4, 4), dtype, arrangement, Domain::Small, 80),
                Input::new((n, 4, 3), dtype, other, Domain::Small, 81),
            ]
        };
        for i in 0..7 {
            // Repeated rows or columns would be singular before the diagonal is added, and `Small`
            // numbers plus 16 on the diagonal never are.
            add(dtype, drawn(2, i), i, &format!("{:?} right side", Arrangement::ALL[(i + 2) % 7]));
        }
        for which in 0..2 {
            let mut inputs = drawn(2, 0);
            inputs[which] = inputs[which].with_last(1, f64::NAN);
            add(dtype, inputs, 0, &format!("operand {which} ends in NaN"));
        }
    }
    add(
        DType::F32,
        vec![
            Input::new((1030, 4, 4), DType::F32, Arrangement::Packed, Domain::Small, 80),
            Input::new((1030, 4, 3), DType::F32, Arrangement::Packed, Domain::Small, 81),
        ],
        0,
        "many matrices",
    );
}
