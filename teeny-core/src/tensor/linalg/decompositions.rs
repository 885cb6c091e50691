//! Decompositions of matrices: Cholesky, QR, eigenvalues, SVD. Matrices are the last two axes, in
//! f32 or f64, with any number of leading axes; the host's routines are in [`crate::linalg`].

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::LinalgOp;
use crate::tensor::Tensor;

impl Tensor {
    /// `l`, lower triangular with a positive diagonal, with `self = l lᵀ`: (.., n, n) → the same.
    /// Only the lower triangle of self is read.
    ///
    /// # Errors
    /// If a matrix is not positive definite; the error has its index in the batch.
    ///
    /// Gradient: Murray 2016, arXiv:1602.07527, made symmetric. Equivalent:
    /// `torch.linalg.cholesky`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn cholesky(&self) -> Result<Tensor> {
        let _op = enter("cholesky").on([("x", Some(self))]);
        self.square_size()?;
        self.linalg(LinalgOp::Cholesky, &[]).map(|[l]| l)
    }

    /// `q` with orthonormal columns and `r`, upper triangular, with `self = q r`: (.., m, n) → (..,
    /// m, k), (.., k, n), k = min(m, n).
    ///
    /// The diagonal of r may have any signs. Gradient: Walter & Lehmann 2010, arXiv:1001.1654; the
    /// first k columns must be independent, otherwise the backward pass reports a singular r.
    /// Equivalent: `torch.linalg.qr(x, "reduced")`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn qr(&self) -> Result<(Tensor, Tensor)> {
        let _op = enter("qr").on([("x", Some(self))]);
        self.linalg(LinalgOp::Qr { complete: false }, &[]).map(<(_, _)>::from)
    }

    /// [`Tensor::qr`] with all columns: (.., m, n) → (.., m, m), (.., m, n). Has no gradient if m >
    /// n. Equivalent: `torch.linalg.qr(x, "complete")`.
    ///
    /// Needs the feature `linalg`.
    #[doc(alias = "qr")]
    #[track_caller]
    pub fn qr_complete(&self) -> Result<(Tensor, Tensor)> {
        let _op = enter("qr_complete").on([("x", Some(self))]);
        self.linalg(LinalgOp::Qr { complete: true }, &[]).map(<(_, _)>::from)
    }

    /// The eigenvalues, ascending, and eigenvectors, as orthonormal columns, of symmetric matrices:
    /// (.., n, n) → (.., n), (.., n, n).
    ///
    /// Only the lower triangle is read. The sign of an eigenvector is arbitrary, and so is the
    /// basis of a repeated eigenvalue.
    ///
    /// # Errors
    /// If there is NaN or an infinity in a matrix.
    ///
    /// Gradient (Giles 2008): the gradient of the vectors divides by differences of eigenvalues,
    /// and is infinite where two are equal; the gradient of the values is defined everywhere. A
    /// function that depends on the signs of the vectors has no derivative. Equivalent:
    /// `torch.linalg.eigh`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn eigh(&self) -> Result<(Tensor, Tensor)> {
        let _op = enter("eigh").on([("x", Some(self))]);
        self.square_size()?;
        self.linalg(LinalgOp::Eigh, &[]).map(<(_, _)>::from)
    }

    /// The eigenvalues of symmetric matrices, ascending: (.., n, n) → (.., n). Equivalent:
    /// `torch.linalg.eigvalsh`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn eigvalsh(&self) -> Result<Tensor> {
        let _op = enter("eigvalsh").on([("x", Some(self))]);
        Ok(self.eigh()?.0)
    }

    /// The eigenvalues and eigenvectors, columns of length 1, of matrices whose eigenvalues are all
    /// real, in no order: (.., n, n) → (.., n), (.., n, n).
    ///
    /// # Errors
    /// If an eigenvalue is not real, because complex tensors are not supported; [`Tensor::eigvals`]
    /// returns both parts of the values. If self is tracked by autograd: not differentiable here,
    /// unlike [`Tensor::eigh`].
    ///
    /// Equivalent: `torch.linalg.eig`, for real eigenvalues.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn eig(&self) -> Result<(Tensor, Tensor)> {
        let _op = enter("eig").on([("x", Some(self))]);
        self.square_size()?;
        let [values, imaginary, vectors, _] = self.linalg(LinalgOp::Eig, &[])?;
        if imaginary.ne(0)?.reshape(-1)?.any(0)?.item::<bool>()? {
            return Err(Error::unsupported(
                "some eigenvalues are not real, and complex tensors are not supported",
            )
            .help("x.eigvals()? gives both parts"));
        }
        Ok((values, vectors))
    }

    /// The real and the imaginary parts of the eigenvalues, in no particular order, except that
    /// conjugates are side by side: (.., n, n) → (.., n) each.
    ///
    /// # Errors
    /// If self is tracked by autograd, or has NaN or an infinity.
    ///
    /// Equivalent: `torch.linalg.eigvals`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn eigvals(&self) -> Result<(Tensor, Tensor)> {
        let _op = enter("eigvals").on([("x", Some(self))]);
        self.square_size()?;
        let [re, im, _, _] = self.linalg(LinalgOp::Eig, &[])?;
        Ok((re, im))
    }

    /// `u`, the singular values `s`, descending, and `vᵀ` with `self = u diag(s) vᵀ`: (.., m, n) →
    /// (.., m, k), (.., k), (.., k, n), k = min(m, n).
    ///
    /// # Errors
    /// If there is NaN or an infinity in a matrix.
    ///
    /// Gradient (Townsend 2016): the gradient of u and v divides by differences of squared singular
    /// values, and by the values themselves if m ≠ n; the gradient of s is defined everywhere. A
    /// function that depends on the signs of u and v has no derivative. Equivalent:
    /// `torch.linalg.svd(x, full_matrices=False)`.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "linalg")] {
    /// use teeny_core::{Reference, Tensor};
    /// let x = [[3.0f64, 0.0], [0.0, -2.0], [0.0, 0.0]];
    /// let x = Tensor::new(x, &Reference::new()).unwrap(); // (3, 2)
    /// let (u, s, vt) = x.svd().unwrap(); // (3, 2), (2), (2, 2)
    /// assert_eq!(s.to_vec::<f64>().unwrap(), [3.0, 2.0]);
    /// # }
    /// ```
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn svd(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("svd").on([("x", Some(self))]);
        self.linalg(LinalgOp::Svd { full: false }, &[]).map(<(_, _, _)>::from)
    }

    /// [`Tensor::svd`] with square u (.., m, m) and vᵀ (.., n, n). Has no gradient unless m = n.
    /// Equivalent: `torch.linalg.svd`.
    ///
    /// Needs the feature `linalg`.
    #[doc(alias = "svd")]
    #[track_caller]
    pub fn svd_full(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("svd_full").on([("x", Some(self))]);
        self.linalg(LinalgOp::Svd { full: true }, &[]).map(<(_, _, _)>::from)
    }

    /// The singular values, descending: (.., m, n) → (.., min(m, n)). Equivalent:
    /// `torch.linalg.svdvals`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn svdvals(&self) -> Result<Tensor> {
        let _op = enter("svdvals").on([("x", Some(self))]);
        Ok(self.svd()?.1)
    }

    /// The number of singular values larger than `rtol` times the largest: (.., m, n) → (..) of
    /// `I64`. `None` is max(m, n) eps.
    ///
    /// Equivalent: `torch.linalg.matrix_rank`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn matrix_rank(&self, rtol: Option<f64>) -> Result<Tensor> {
        let _op = enter("matrix_rank").on([("x", Some(self))]);
        let rtol = self.rtol(rtol)?;
        let s = self.svdvals()?; // (.., k)
        if s.shape()[s.ndim() - 1] == 0 {
            return s.cast(DType::I64)?.sum(-1);
        }
        s.gt(&s.slice(-1, ..1)?.mul(rtol)?)?.cast(DType::I64)?.sum(-1)
    }
}
