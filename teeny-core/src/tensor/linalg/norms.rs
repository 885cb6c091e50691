//! Norms of vectors and matrices, and distances of all pairs. Distances sum powers in one pass
//! (`map_sum`); the spectral and nuclear norms take singular values.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::build::Expr;
use crate::shape::IntoAxes;
use crate::tensor::{Tensor, map, map_sum};

/// The norms of matrices.
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

/// `|x|^p`. The square of 2 is exact, as its root is, where a general power is not.
fn power(x: Expr<'_>, p: f64) -> Expr<'_> {
    if p == 2.0 { x.square() } else { x.abs().norm_power(p) }
}

impl Tensor {
    /// `(Σ |x|^p)^(1/p)` along `axes`; the largest absolute value for p = inf, the smallest for
    /// -inf, the number of elements that are not 0 for p = 0.
    ///
    /// Powers are computed of numbers that are scaled by a power of two where they would leave the
    /// range of their type, and 16-bit floats in f32. Accuracy on `Cpu`, of f32 and p = 2: within
    /// 3e-6 of the norm.
    ///
    /// The gradient of a vector of zeros is 0, and of other vectors at their zeros for every p, as
    /// in PyTorch. Equivalent: `torch.linalg.vector_norm`.
    ///
    /// # Errors
    /// If the type is not a float, an axis does not exist, or p is infinite and self is empty.
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
        let wide = self.dtype().compute();
        let scale = self.scale_of(p, &axes)?;
        let sum = map_sum([self, &scale], &axes[..], |[x, s]| power(x.cast(wide) * s, p))?;
        let scale = scale.reshape(*sum.shape())?;
        map([&sum, &scale], |[sum, s]| (sum.norm_power(1.0 / p) / s).cast(self.dtype()))
    }

    /// A power of two for each norm along `axes`, kept with size 1: 1 where the sum of powers `p`
    /// of the elements stays in the range of the compute dtype or `p` is negative, otherwise about
    /// the reciprocal of the largest element. Has no gradient.
    pub(crate) fn scale_of(&self, p: f64, axes: &[usize]) -> Result<Tensor> {
        let wide = self.dtype().compute();
        if p < 0.0 || self.numel() == 0 {
            return Tensor::ones(self.shape().reduced(axes, true), wide, self);
        }
        let (low, high) = (self.min_keepdim(axes)?, self.max_keepdim(axes)?);
        // Exponents of two: of scales, and of powers that need none.
        let (limit, safe) = if wide == DType::F64 { (1000.0, 400.0) } else { (120.0, 50.0) };
        map([&low, &high], |[low, high]| {
            let exponent = low.abs().maximum(high.abs()).cast(wide).log2().floor();
            let scale = (-exponent.clamp(-limit, limit)).exp2();
            (exponent.abs() * p).le(safe).where_cond(scale.like(1), scale)
        })
    }

    /// The norm of matrices: (.., m, n) → (..). Equivalent: `torch.linalg.matrix_norm`.
    ///
    /// # Errors
    /// If self has fewer than two axes; for norms that need singular values, as [`Tensor::svd`].
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

    /// The distances of all pairs of rows: self (.., n, d) and `rhs` (.., m, d) → (.., n, m),
    /// `(Σ |x - y|^p)^(1/p)`; leading axes broadcast.
    ///
    /// `p = inf` gives the largest difference, `p = 0` counts the differences that are not 0. The
    /// gradient of a distance 0 is 0. The (n, m, d) differences are never stored in the forward
    /// pass, except for `p = inf`.
    ///
    /// # Errors
    /// If an operand has fewer than two axes or not floats, the sizes of the rows differ, or `p` is
    /// negative or NaN.
    ///
    /// Equivalent: `torch.cdist`.
    #[track_caller]
    pub fn cdist(&self, rhs: &Tensor, p: f64) -> Result<Tensor> {
        let _op = enter("cdist").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        self.require_float()?;
        rhs.require_float()?;
        if self.ndim() < 2 || rhs.ndim() < 2 || self.size(-1)? != rhs.size(-1)? {
            return Err(Error::shape(format!(
                "{} and {} are not (.., n, d) and (.., m, d)",
                self.shape(),
                rhs.shape()
            ))
            .help(
                "the last sizes must be equal, and vectors need a second axis: x.unsqueeze(0)?",
            ));
        }
        let dtype = self.dtype().promote(rhs.dtype());
        let wide = dtype.compute();
        // (.., n, 1, d), (.., 1, m, d)
        let (x, y) = (self.cast(wide)?.unsqueeze(-2)?, rhs.cast(wide)?.unsqueeze(-3)?);
        let distance = match p {
            0.0 => map_sum([&x, &y], -1, |[x, y]| x.ne(y).cast(wide))?,
            1.0 => map_sum([&x, &y], -1, |[x, y]| (x - y).abs())?,
            2.0 => {
                map([&map_sum([&x, &y], -1, |[x, y]| (x - y).square())?], |[s]| s.norm_power(0.5))?
            }
            f64::INFINITY if x.shape()[x.ndim() - 1] == 0 => {
                map_sum([&x, &y], -1, |[x, y]| (x - y).abs())?
            }
            f64::INFINITY => map([&x, &y], |[x, y]| (x - y).abs())?.max(-1)?,
            p if p > 0.0 => {
                let sum = map_sum([&x, &y], -1, |[x, y]| (x - y).abs().norm_power(p))?;
                map([&sum], |[s]| s.norm_power(1.0 / p))?
            }
            p => {
                return Err(Error::value(format!("p = {p} does not define a norm"))
                    .help("p is 0, positive or f64::INFINITY; 2.0 gives Euclidean distances"));
            }
        };
        distance.cast(dtype)
    }
}
