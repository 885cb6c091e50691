//! One matrix in f64 by the `faer` crate: row-major values in, row-major values out.

use crate::op::{LinalgOp, Triangle};
use faer::prelude::*;
use faer::{MatRef, Side};

/// A row-major matrix on the host.
pub(super) struct Matrix<'a> {
    pub rows: usize,
    pub columns: usize,
    pub values: &'a [f64],
}

/// Why a matrix has no result.
pub(super) enum Failure {
    /// The pivot of this row is 0.
    Singular { row: usize },
    /// The leading minor of this order is not positive.
    NotPositive { order: usize },
    /// It contains NaN or an infinity.
    NotFinite,
    /// The iteration did not converge.
    NotConverged,
}

/// The results of `op` for one matrix, or a matrix and its right-hand side.
pub(super) fn compute(op: LinalgOp, matrices: &[Matrix<'_>]) -> Result<Vec<Vec<f64>>, Failure> {
    let view = |m: &Matrix<'_>| -> Mat<f64> {
        MatRef::from_row_major_slice(m.values, m.rows, m.columns).to_owned()
    };
    let (a, b) = (view(&matrices[0]), matrices.get(1).map(view));
    let b = b.unwrap_or_else(Mat::new);
    Ok(match op {
        LinalgOp::Solve => vec![rows(regular(&a)?.solve(&b).as_ref())],
        LinalgOp::SolveTriangular(triangle) => vec![rows(triangular(&a, triangle, b)?.as_ref())],
        LinalgOp::Det => {
            let (sign, pivots) = pivots(&a);
            vec![vec![pivots.iter().product::<f64>() * sign]]
        }
        LinalgOp::SlogDet => {
            let (sign, pivots) = pivots(&a);
            let signum = |u: f64| if u == 0.0 { 0.0 } else { u.signum() };
            let sign = pivots.iter().fold(sign, |sign, &u| sign * signum(u));
            vec![vec![sign], vec![pivots.iter().map(|u| u.abs().ln()).sum()]]
        }
        LinalgOp::Cholesky => match a.llt(Side::Lower) {
            Ok(llt) => vec![rows(llt.L())],
            Err(faer::linalg::solvers::LltError::NonPositivePivot { index }) => {
                return Err(Failure::NotPositive { order: index + 1 });
            }
        },
        LinalgOp::Qr { complete: false } => {
            let qr = a.qr();
            vec![rows(qr.compute_thin_Q().as_ref()), rows(qr.thin_R())]
        }
        LinalgOp::Qr { complete: true } => {
            let qr = a.qr();
            let mut r = rows(qr.R());
            r.resize(a.nrows() * a.ncols(), 0.0); // (k, n) to (m, n)
            vec![rows(qr.compute_Q().as_ref()), r]
        }
        LinalgOp::Eigh => {
            let eigen =
                finite(&a)?.self_adjoint_eigen(Side::Lower).map_err(|_| Failure::NotConverged)?;
            vec![eigen.S().column_vector().iter().copied().collect(), rows(eigen.U())]
        }
        LinalgOp::Eig => {
            let eigen = finite(&a)?.eigen().map_err(|_| Failure::NotConverged)?;
            let (values, vectors) = (eigen.S().column_vector(), eigen.U());
            let lengths: Vec<f64> = (0..a.ncols()).map(|j| vectors.col(j).norm_l2()).collect();
            let part = |of: fn(c64) -> f64| {
                rows(
                    Mat::from_fn(a.nrows(), a.ncols(), |i, j| of(vectors[(i, j)]) / lengths[j])
                        .as_ref(),
                )
            };
            vec![
                values.iter().map(|z| z.re).collect(),
                values.iter().map(|z| z.im).collect(),
                part(|z| z.re),
                part(|z| z.im),
            ]
        }
        LinalgOp::Svd { full } => {
            let a = finite(&a)?;
            let svd =
                if full { a.svd() } else { a.thin_svd() }.map_err(|_| Failure::NotConverged)?;
            vec![
                rows(svd.U()),
                svd.S().column_vector().iter().copied().collect(),
                rows(svd.V().transpose()),
            ]
        }
        LinalgOp::Pinv { rtol } => {
            let svd = finite(&a)?.thin_svd().map_err(|_| Failure::NotConverged)?;
            let s = svd.S().column_vector();
            let bound = rtol * s.iter().fold(0.0, |most: f64, &s| most.max(s));
            let scaled = Mat::from_fn(a.ncols(), s.nrows(), |i, j| {
                if s[j] > bound { svd.V()[(i, j)] / s[j] } else { 0.0 }
            });
            vec![rows((scaled * svd.U().transpose()).as_ref())]
        }
    })
}

/// The elements in row-major order.
fn rows(m: MatRef<'_, f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

fn diagonal(m: MatRef<'_, f64>) -> impl Iterator<Item = f64> + '_ {
    (0..m.nrows().min(m.ncols())).map(move |i| m[(i, i)])
}

/// The sign and the pivots of elimination, whose product is the determinant. Elimination stops at a
/// pivot of 0 of a finite matrix: the determinant is 0.
fn pivots(a: &Mat<f64>) -> (f64, Vec<f64>) {
    let lu = a.partial_piv_lu();
    let mut pivots: Vec<f64> = diagonal(lu.U()).collect();
    if finite(a).is_ok() && pivots.contains(&0.0) {
        pivots = vec![0.0];
    }
    (parity(lu.P().arrays().0), pivots)
}

/// 1 for an even permutation, -1 for an odd one: every cycle of even length changes the sign.
fn parity(permutation: &[usize]) -> f64 {
    let mut seen = vec![false; permutation.len()];
    let mut sign = 1.0;
    for start in 0..permutation.len() {
        let (mut at, mut length) = (start, 0);
        while !seen[at] {
            seen[at] = true;
            at = permutation[at];
            length += 1;
        }
        if length > 0 && length % 2 == 0 {
            sign = -sign;
        }
    }
    sign
}

/// The LU factors of a matrix that is not singular.
///
/// A pivot counts as 0 if it is within rounding error of 0: n eps times the largest element of its
/// row or its column, whichever is smaller, so that scaling a row or a column changes nothing.
fn regular(a: &Mat<f64>) -> Result<faer::linalg::solvers::PartialPivLu<f64>, Failure> {
    let lu = a.partial_piv_lu();
    let order = lu.P().arrays().0;
    let unit = a.nrows() as f64 * f64::EPSILON;
    for (k, pivot) in diagonal(lu.U()).enumerate() {
        let row = a.row(order[k]).iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        let column = a.col(k).iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        if pivot.abs() <= unit * row.min(column) {
            return Err(Failure::Singular { row: order[k] });
        }
    }
    Ok(lu)
}

fn triangular(a: &Mat<f64>, triangle: Triangle, mut b: Mat<f64>) -> Result<Mat<f64>, Failure> {
    match triangle {
        Triangle::Lower | Triangle::Upper => {
            if let Some(row) = diagonal(a.as_ref()).position(|x| x == 0.0) {
                return Err(Failure::Singular { row });
            }
        }
        Triangle::UnitLower | Triangle::UnitUpper => {}
    }
    match triangle {
        Triangle::Lower => a.solve_lower_triangular_in_place(&mut b),
        Triangle::Upper => a.solve_upper_triangular_in_place(&mut b),
        Triangle::UnitLower => a.solve_unit_lower_triangular_in_place(&mut b),
        Triangle::UnitUpper => a.solve_unit_upper_triangular_in_place(&mut b),
    }
    Ok(b)
}

/// `a`, if it is finite: iterations over NaN do not converge.
fn finite(a: &Mat<f64>) -> Result<&Mat<f64>, Failure> {
    let all = a.col_iter().all(|column| column.iter().all(|x| x.is_finite()));
    if all { Ok(a) } else { Err(Failure::NotFinite) }
}
