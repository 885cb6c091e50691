//! Linear systems: solutions, inverses, determinants.
//!
//! Matrices are the last two axes, in f32 or f64; leading axes are a batch and broadcast. On a
//! device without a kernel for it the work is done on the host, see [`crate::linalg`], which waits
//! for the device.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::messages::BROADCAST;
use crate::op::{LinalgOp, Triangle};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::one_device::pair;

impl Tensor {
    /// `x` with `self x = b`: self (.., n, n), b (.., n, k) or a vector (n) → as b.
    ///
    /// As in PyTorch, `b` is also a batch of vectors (.., n) if it has the shape of self without
    /// the last axis.
    ///
    /// # Errors
    /// If a matrix is singular to rounding: a pivot is at most n eps times the elements of its row
    /// and column. If the shapes do not fit, or the type is not f32 or f64.
    ///
    /// Gradients: `g_b = a⁻ᵀ g`, `g_a = -g_b xᵀ` (Giles 2008). Equivalent: `torch.linalg.solve`.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "linalg")] {
    /// use teeny_core::{Reference, Tensor};
    /// let device = Reference::new();
    /// let a = [[4.0f64, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 4.0]];
    /// let a = Tensor::new(a, &device).unwrap(); // (3, 3)
    /// let b = Tensor::new([1.0f64, 2.0, 3.0], &device).unwrap(); // (3)
    /// let x = a.solve(&b).unwrap().to_vec::<f64>().unwrap();
    /// assert!((x[0] - 13.0 / 28.0).abs() < 1e-15);
    /// # }
    /// ```
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn solve(&self, b: &Tensor) -> Result<Tensor> {
        let _op = enter("solve").on([("x", Some(self)), ("b", Some(b))]);
        self.system(LinalgOp::Solve, b)
    }

    /// [`Tensor::solve`] for a triangular matrix; the other triangle is not read.
    ///
    /// # Errors
    /// If the diagonal has a 0 where it counts; otherwise as [`Tensor::solve`].
    ///
    /// Equivalent: `torch.linalg.solve_triangular(a, b, upper, unitriangular)`.
    ///
    /// Needs the feature `linalg`.
    #[doc(alias = "triangular_solve")]
    #[track_caller]
    pub fn solve_triangular(&self, b: &Tensor, triangle: Triangle) -> Result<Tensor> {
        let _op = enter("solve_triangular").on([("x", Some(self)), ("b", Some(b))]);
        self.system(LinalgOp::SolveTriangular(triangle), b)
    }

    /// The inverse: (.., n, n) → the same. To solve a system, [`Tensor::solve`] is faster and more
    /// accurate.
    ///
    /// # Errors
    /// As [`Tensor::solve`].
    ///
    /// Equivalent: `torch.linalg.inv`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn inv(&self) -> Result<Tensor> {
        let _op = enter("inv").on([("x", Some(self))]);
        let n = self.square_size()?;
        self.linalg(
            LinalgOp::Solve,
            &[&Tensor::eye(n, self.dtype(), self)?.expand_to(self.shape())?],
        )
        .map(|[x]| x)
    }

    /// The determinant: (.., n, n) → (..).
    ///
    /// # Errors
    /// If the matrices are not square, or the type is not f32 or f64.
    ///
    /// Gradient: the matrix of cofactors, `det(a) a⁻ᵀ`; for a singular matrix from its singular
    /// value decomposition. Equivalent: `torch.linalg.det`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn det(&self) -> Result<Tensor> {
        let _op = enter("det").on([("x", Some(self))]);
        self.square_size()?;
        self.linalg(LinalgOp::Det, &[]).map(|[det]| det)
    }

    /// The sign (-1, 0 or 1) of the determinant and the logarithm of its absolute value (-inf for a
    /// singular matrix), where the determinant itself would overflow: (.., n, n) → (..) each.
    ///
    /// # Errors
    /// As [`Tensor::det`]; the gradient of a singular matrix is an error of the backward pass.
    ///
    /// Equivalent: `torch.linalg.slogdet`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        let _op = enter("slogdet").on([("x", Some(self))]);
        self.square_size()?;
        self.linalg(LinalgOp::SlogDet, &[]).map(<(_, _)>::from)
    }

    /// The Moore-Penrose inverse: (.., m, n) → (.., n, m). Singular values up to `rtol` times the
    /// largest count as 0; `None` is max(m, n) eps.
    ///
    /// # Errors
    /// If there is NaN or an infinity in a matrix, or the type is not f32 or f64.
    ///
    /// Gradient: Golub & Pereyra 1973, valid where the rank stays the same. Equivalent:
    /// `torch.linalg.pinv`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn pinv(&self, rtol: Option<f64>) -> Result<Tensor> {
        let _op = enter("pinv").on([("x", Some(self))]);
        let rtol = self.rtol(rtol)?;
        self.linalg(LinalgOp::Pinv { rtol }, &[]).map(|[y]| y)
    }

    /// The `x` of least `‖self x - b‖`, and of least norm among these: self (.., m, n), b (.., m,
    /// k) or a vector (m) → (.., n, k) or (n).
    ///
    /// By QR where a matrix has full rank, by [`Tensor::pinv`] of it otherwise.
    ///
    /// # Errors
    /// If the shapes do not fit, or the type is not f32 or f64.
    ///
    /// Equivalent: `torch.linalg.lstsq(a, b).solution`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn lstsq(&self, b: &Tensor) -> Result<Tensor> {
        let _op = enter("lstsq").on([("x", Some(self)), ("b", Some(b))]);
        let (a, b, vector) = self.sides(b)?;
        let [m, n] = a.matrix_size()?;
        let tall = m >= n;
        // a = q r; the least-norm solution of fewer equations than unknowns comes from the factors
        // of the transpose
        let (q, r) = if tall { a.qr()? } else { a.transpose(-2, -1)?.qr()? };
        let full = full_rank(&r)?; // (.., 1, 1)
        let x = if !full.reshape(-1)?.all(0)?.item::<bool>()? {
            // both for all matrices, with a regular one in place of those for the other way
            let one = Tensor::eye(m.max(n), a.dtype(), &a)?.slice(0, ..m)?.slice(1, ..n)?;
            let by_qr = full.where_cond(&a, &one)?.lstsq(&b)?;
            full.where_cond(&by_qr, &full.where_cond(&one, &a)?.pinv(None)?.matmul(&b)?)?
        } else if tall {
            r.solve_triangular(&q.transpose(-2, -1)?.matmul(&b)?, Triangle::Upper)?
        } else {
            q.matmul(&r.transpose(-2, -1)?.solve_triangular(&b, Triangle::Lower)?)?
        };
        if vector { x.squeeze(-1) } else { Ok(x) }
    }

    /// `op` of self and a right-hand side, which may be a vector.
    fn system(&self, op: LinalgOp, b: &Tensor) -> Result<Tensor> {
        self.square_size()?;
        let (a, b, vector) = self.sides(b)?;
        let [x] = a.linalg(op, &[&b])?;
        if vector { x.squeeze(-1) } else { Ok(x) }
    }

    /// Both sides of a system in one type, b as a matrix with as many rows, leading axes broadcast;
    /// true if b was a vector.
    fn sides(&self, b: &Tensor) -> Result<(Tensor, Tensor, bool)> {
        let [m, _] = self.matrix_size()?;
        let vector = b.ndim() == 1
            || (b.ndim() + 1 == self.ndim() && b.shape()[..] == self.shape()[..self.ndim() - 1]);
        if b.ndim() == 0 {
            return Err(Error::shape(format!(
                "the right-hand side of {} is a scalar",
                self.shape()
            ))
            .help("b.reshape(n) makes it a vector"));
        }
        let dtype = self.dtype().promote(b.dtype());
        let (a, b) = pair(self, b)?;
        let (a, b) = (a.cast(dtype)?, b.cast(dtype)?);
        let b = if vector { b.unsqueeze(-1)? } else { b };
        let (rows, columns) = (b.shape()[b.ndim() - 2], b.shape()[b.ndim() - 1]);
        if rows != m {
            let what = format!(
                "the matrix {} has {m} rows, the right-hand side {} has {rows}",
                a.shape(),
                b.shape()
            );
            return Err(Error::shape(what).help(
                "a vector has one axis, several right-hand sides are columns: (n) or (n, k)",
            ));
        }
        let lead = |t: &Tensor| Shape::from_checked(&t.shape()[..t.ndim() - 2]);
        let Some(batch) = lead(&a).broadcast(&lead(&b)) else {
            return Err(Error::shape(format!(
                "the leading axes of {} and {} do not broadcast",
                a.shape(),
                b.shape()
            ))
            .help(BROADCAST));
        };
        let full = |last: [usize; 2]| Shape::new(&[&batch[..], &last[..]].concat());
        let a_size = a.matrix_size()?;
        Ok((a.expand_to(&full(a_size)?)?, b.expand_to(&full([rows, columns])?)?, vector))
    }
}

/// True for each `r` with no diagonal element that is 0 within rounding of the largest: (.., 1, 1).
fn full_rank(r: &Tensor) -> Result<Tensor> {
    let diagonal = r.diagonal(0, -2, -1)?.abs()?.unsqueeze(-2)?; // (.., 1, k)
    if diagonal.numel() == 0 {
        return diagonal.ge(0.0)?.all(-1)?.unsqueeze(-1);
    }
    let bound = diagonal.max_keepdim(-1)?.mul(r.rtol(None)?)?; // (.., 1, 1)
    diagonal.gt(&bound)?.all(-1)?.unsqueeze(-1)
}
