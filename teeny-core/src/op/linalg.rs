//! The variants of [`Op::Linalg`](crate::Op::Linalg): solvers and decompositions of matrices, with
//! the shapes of their results and their cost. [`crate::linalg`] computes them on the host.

use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Which elements of a triangular matrix are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// The diagonal and below.
    Lower,
    /// The diagonal and above.
    Upper,
    /// Below the diagonal; the diagonal is taken as ones.
    UnitLower,
    /// Above the diagonal; the diagonal is taken as ones.
    UnitUpper,
}

impl Triangle {
    /// The triangle of the transposed matrix.
    pub const fn transposed(self) -> Triangle {
        match self {
            Triangle::Lower => Triangle::Upper,
            Triangle::Upper => Triangle::Lower,
            Triangle::UnitLower => Triangle::UnitUpper,
            Triangle::UnitUpper => Triangle::UnitLower,
        }
    }
}

/// The operation on matrices `a` (.., m, n), and on `b` where there are two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinalgOp {
    /// `x` (.., n, k) with `a x = b`, for a square `a` and `b` (.., n, k).
    Solve,
    /// The same for a triangular `a`.
    SolveTriangular(Triangle),
    /// The determinant (..) of a square matrix; 1 for a matrix of no rows.
    Det,
    /// The determinant's sign (-1, 0 or 1) and the logarithm of its absolute value, each (..).
    SlogDet,
    /// `l`, lower triangular with a positive diagonal, with `a = l lᵀ`; only the lower triangle of
    /// `a` is read.
    Cholesky,
    /// `q` and `r` with `a = q r`: (.., m, k) and (.., k, n) with k = min(m, n), or m if
    /// `complete`.
    Qr {
        /// All m columns of q.
        complete: bool,
    },
    /// The eigenvalues (.., n), ascending, and eigenvectors (.., n, n), as orthonormal columns, of
    /// a symmetric matrix; only the lower triangle is read.
    Eigh,
    /// The eigenvalues (.., n) of a square matrix, real and imaginary parts, and the eigenvectors
    /// (.., n, n), again both parts, as columns of length 1.
    Eig,
    /// `u` (.., m, k), the singular values (.., k), descending, and `vᵀ` (.., k, n), k = min(m, n);
    /// all columns of u and rows of vᵀ if `full`.
    Svd {
        /// u (.., m, m) and vᵀ (.., n, n).
        full: bool,
    },
    /// The Moore-Penrose inverse (.., n, m); singular values up to `rtol` times the largest count
    /// as 0.
    Pinv {
        /// The relative tolerance.
        rtol: f64,
    },
}

impl LinalgOp {
    /// The operation's name.
    pub const fn name(self) -> &'static str {
        match self {
            LinalgOp::Solve => "solve",
            LinalgOp::SolveTriangular(_) => "solve_triangular",
            LinalgOp::Det => "det",
            LinalgOp::SlogDet => "slogdet",
            LinalgOp::Cholesky => "cholesky",
            LinalgOp::Qr { .. } => "qr",
            LinalgOp::Eigh => "eigh",
            LinalgOp::Eig => "eig",
            LinalgOp::Svd { .. } => "svd",
            LinalgOp::Pinv { .. } => "pinv",
        }
    }

    /// Shape and type of each result for operands that core has checked.
    ///
    /// # Errors
    /// If a result has too many elements.
    pub fn results(self, inputs: &[&Tensor]) -> Result<Vec<(Shape, DType)>> {
        let a = inputs[0];
        let (lead, [m, n]) = matrix_parts(a);
        let k = m.min(n);
        let shape = |last: &[usize]| Ok((Shape::new(&[lead, last].concat())?, a.dtype()));
        let sizes: Vec<Vec<usize>> = match self {
            LinalgOp::Solve | LinalgOp::SolveTriangular(_) => {
                vec![matrix_parts(inputs[1]).1.to_vec()]
            }
            LinalgOp::Det => vec![vec![]],
            LinalgOp::SlogDet => vec![vec![], vec![]],
            LinalgOp::Cholesky => vec![vec![n, n]],
            LinalgOp::Qr { complete } => {
                let k = if complete { m } else { k };
                vec![vec![m, k], vec![k, n]]
            }
            LinalgOp::Eigh => vec![vec![n], vec![n, n]],
            LinalgOp::Eig => vec![vec![n], vec![n], vec![n, n], vec![n, n]],
            LinalgOp::Svd { full } => {
                let (rows, columns) = if full { (m, n) } else { (k, k) };
                vec![vec![m, rows], vec![k], vec![columns, n]]
            }
            LinalgOp::Pinv { .. } => vec![vec![n, m]],
        };
        sizes.iter().map(|s| shape(s)).collect()
    }

    /// Floating-point operations, by the leading terms of Golub & Van Loan, Matrix Computations,
    /// 4th edition.
    pub(crate) fn flops(self, inputs: &[&Tensor]) -> u64 {
        let (lead, [m, n]) = matrix_parts(inputs[0]);
        let (batch, m, n) = (lead.iter().product::<usize>() as u64, m as u64, n as u64);
        let (long, short) = (m.max(n), m.min(n));
        let columns = inputs.get(1).map_or(0, |b| matrix_parts(b).1[1] as u64);
        batch
            * match self {
                LinalgOp::Solve => 2 * n * n * n / 3 + 2 * n * n * columns,
                LinalgOp::SolveTriangular(_) => n * n * columns,
                LinalgOp::Det | LinalgOp::SlogDet => 2 * n * n * n / 3,
                LinalgOp::Cholesky => n * n * n / 3,
                LinalgOp::Qr { .. } => 4 * long * short * short,
                LinalgOp::Eigh => 9 * n * n * n,
                LinalgOp::Eig => 25 * n * n * n,
                LinalgOp::Svd { .. } | LinalgOp::Pinv { .. } => {
                    6 * long * short * short + 20 * short * short * short
                }
            }
    }
}

/// The leading axes of matrices, and the last two.
pub(crate) fn matrix_parts(x: &Tensor) -> (&[usize], [usize; 2]) {
    let (lead, last) = x.shape().split_at(x.ndim() - 2);
    (lead, [last[0], last[1]])
}
