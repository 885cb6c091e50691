//! Norms of vectors and matrices.

use crate::context::enter;
use crate::error::Result;
use crate::shape::IntoAxes;
use crate::tensor::{Tensor, map};

/// How large a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixNorm {
    /// The root of the sum of squares.
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The largest singular value: the 2-norm.
    Spectral,
    /// The largest sum of absolute values of a column: the 1-norm.
    Columns,
    /// The largest sum of absolute values of a row: the inf-norm.
    Rows,
}

impl Tensor {
    /// `(Σ |x|^p)^(1/p)` along `axes`; the largest absolute value for p = inf, the smallest for
    /// -inf, the number of elements that are not 0 for p = 0.
    ///
    /// Accuracy on `Cpu`, of f32 and p = 2: within 3e-6 of the norm, while the squares stay in the
    /// range of f32 (numbers between 1e-19 and 1e19).
    ///
    /// The gradient of a vector of zeros is 0, and of other vectors at their zeros for every p, as
    /// in PyTorch. Equivalent: `torch.linalg.vector_norm`.
    ///
    /// # Errors
    /// If the type is not a float, an axis does not exist, or p is infinite and nothing is there to
    /// choose from.
    #[track_caller]
    pub fn vector_norm(&self, p: f64, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("vector_norm").on([("x", Some(self))]);
        self.require_float()?;
        let axes = axes.axes(self.shape())?;
        if p == f64::INFINITY {
            return self.abs()?.max(axes);
        }
        if p == f64::NEG_INFINITY {
            return self.abs()?.min(axes);
        }
        if p == 0.0 {
            return self.ne(0)?.cast(self.dtype())?.sum(axes);
        }
        if p == 1.0 {
            return self.abs()?.sum(axes);
        }
        // The root of a sum of squares: sqrt is exact where a general power is not.
        let sum = match p {
            2.0 => self.square()?.sum(axes)?,
            p => map([self], |[x]| x.abs().norm_power(p))?.sum(axes)?,
        };
        map([&sum], |[s]| s.norm_power(1.0 / p))
    }

    /// The norm of matrices: (.., m, n) → (..). Equivalent: `torch.linalg.matrix_norm`.
    ///
    /// # Errors
    /// If self has fewer than two axes; of those that need singular values as [`Tensor::svd`].
    #[track_caller]
    pub fn matrix_norm(&self, norm: MatrixNorm) -> Result<Tensor> {
        let _op = enter("matrix_norm").on([("x", Some(self))]);
        self.matrix_size()?;
        match norm {
            MatrixNorm::Frobenius => self.vector_norm(2.0, [-2, -1]),
            MatrixNorm::Nuclear => self.svdvals()?.sum(-1),
            MatrixNorm::Spectral => self.svdvals()?.max(-1),
            MatrixNorm::Columns => self.abs()?.sum(-2)?.max(-1),
            MatrixNorm::Rows => self.abs()?.sum(-1)?.max(-1),
        }
    }

    /// The largest singular value over the smallest: by how much solving a system may enlarge a
    /// relative error. (.., m, n) → (..), inf if singular.
    ///
    /// Equivalent: `torch.linalg.cond`.
    #[track_caller]
    pub fn cond(&self) -> Result<Tensor> {
        let _op = enter("cond").on([("x", Some(self))]);
        let s = self.svdvals()?; // (.., k)
        s.max(-1)?.div(&s.min(-1)?)
    }
}
