//! Vectors along an axis: unit vectors, angles between them, cross products; contractions of
//! several axes; covariance.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::messages::BROADCAST;
use crate::tensor::{Tensor, map};

impl Tensor {
    /// The vectors along `axis` divided by their norms: `x / max((Σ |x|^p)^(1/p), eps)`. PyTorch's
    /// defaults are p = 2, axis 1, eps = 1e-12.
    ///
    /// # Errors
    /// As [`Tensor::vector_norm`].
    ///
    /// Equivalent: `torch.nn.functional.normalize`.
    #[track_caller]
    pub fn normalize(&self, p: f64, axis: isize, eps: f64) -> Result<Tensor> {
        let _op = enter("normalize").on([("x", Some(self))]);
        let wide = self.cast(self.dtype().compute())?;
        wide.div(&wide.vector_norm_keepdim(p, axis)?.maximum(eps)?)?.cast(self.dtype())
    }

    /// The cosine of the angle between the vectors along `axis` of two tensors that broadcast:
    /// `Σ x y / (max(|x|, eps) max(|y|, eps))`. PyTorch's defaults are axis 1, eps = 1e-8.
    ///
    /// # Errors
    /// If the shapes do not broadcast or the types are not floats.
    ///
    /// Equivalent: `torch.nn.functional.cosine_similarity`.
    #[track_caller]
    pub fn cosine_similarity(&self, rhs: &Tensor, axis: isize, eps: f64) -> Result<Tensor> {
        let _op = enter("cosine_similarity").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        let dtype = self.dtype().promote(rhs.dtype());
        let (x, y) = both(&self.cast(dtype.compute())?, &rhs.cast(dtype.compute())?)?;
        x.normalize(2.0, axis, eps)?.mul(&y.normalize(2.0, axis, eps)?)?.sum(axis)?.cast(dtype)
    }

    /// The vector product of vectors of three elements along `axis`; other axes broadcast.
    ///
    /// # Errors
    /// If the shapes do not broadcast, or the axis has another size than 3.
    ///
    /// Equivalent: `torch.linalg.cross`.
    #[track_caller]
    pub fn cross(&self, rhs: &Tensor, axis: isize) -> Result<Tensor> {
        let _op = enter("cross").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        let (x, y) = both(self, rhs)?;
        if x.size(axis)? != 3 {
            return Err(Error::shape(format!("axis {axis} of {} has not 3 elements", x.shape()))
                .help("the cross product takes vectors of size 3"));
        }
        let turned = |x: &Tensor| Ok::<_, Error>((x.roll(axis, -1)?, x.roll(axis, -2)?));
        let ((a, b), (c, d)) = (turned(&x)?, turned(&y)?);
        map([&a, &b, &c, &d], |[a, b, c, d]| a * d - b * c)
    }

    /// The sum of products over the axes `axes` of self and `rhs_axes` of `rhs`, paired in their
    /// order; the other axes of self come first. `x.tensordot(&y, &[-2, -1], &[0, 1])` is PyTorch's
    /// `dims=2`.
    ///
    /// # Errors
    /// If the axes do not exist or their sizes differ.
    ///
    /// Equivalent: `torch.tensordot`.
    #[track_caller]
    pub fn tensordot(&self, rhs: &Tensor, axes: &[isize], rhs_axes: &[isize]) -> Result<Tensor> {
        let _op = enter("tensordot").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        let named = |x: &Tensor, axes: &[isize]| {
            axes.iter().map(|&a| x.shape().axis(a)).collect::<Result<Vec<_>>>()
        };
        let (a, b) = (named(self, axes)?, named(rhs, rhs_axes)?);
        let sizes = |x: &Tensor, axes: &[usize]| -> Vec<usize> {
            axes.iter().map(|&a| x.shape()[a]).collect()
        };
        let rest = |x: &Tensor, axes: &[usize]| -> Vec<usize> {
            (0..x.ndim()).filter(|a| !axes.contains(a)).collect()
        };
        if sizes(self, &a) != sizes(rhs, &b) {
            return Err(Error::shape(format!(
                "axes {axes:?} of {} and {rhs_axes:?} of {} differ in size",
                self.shape(),
                rhs.shape()
            ))
            .help("each axis of one list is summed with the axis at the same place in the other"));
        }
        let (left, right) = (rest(self, &a), rest(rhs, &b));
        let count = sizes(self, &a).iter().product::<usize>();
        let shape = [sizes(self, &left), sizes(rhs, &right)].concat();
        let rows = sizes(self, &left).iter().product::<usize>();
        let columns = sizes(rhs, &right).iter().product::<usize>();
        let x = self.permute([left, a].concat())?.reshape((rows, count))?;
        let y = rhs.permute([b, right].concat())?.reshape((count, columns))?;
        x.matmul(&y)?.reshape(shape)
    }

    /// The covariance of variables in rows: (m, n) → (m, m), of a vector (n) → (). Observations
    /// count `frequencies` times (integers) and with the `weights`, both (n); `correction` is 1 in
    /// PyTorch.
    ///
    /// # Errors
    /// If self has more than two axes or no floats, or the shapes do not fit.
    ///
    /// Equivalent: `torch.cov(x, correction=.., fweights=.., aweights=..)`.
    #[track_caller]
    pub fn cov(
        &self,
        correction: usize,
        frequencies: Option<&Tensor>,
        weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let _op = enter("cov").on([
            ("x", Some(self)),
            ("frequencies", frequencies),
            ("weights", weights),
        ]);
        self.require_float()?;
        let wide = self.cast(self.dtype().compute())?;
        let x = match self.ndim() {
            1 => wide.unsqueeze(0)?,
            2 => wide,
            _ => {
                return Err(Error::shape(format!(
                    "expected a matrix or a vector, got {}",
                    self.shape()
                ))
                .help("variables are rows, observations columns"));
            }
        };
        let mut w = Tensor::ones(x.size(1)?, x.dtype(), self)?; // (n)
        for factor in [frequencies, weights].into_iter().flatten() {
            w = w.mul(&factor.cast(x.dtype())?.expand(w.shape())?)?;
        }
        let total = w.sum_all()?;
        let lost = match weights {
            Some(weights) => w.mul(weights)?.sum_all()?.div(&total)?,
            None => total.ones_like()?,
        };
        let freedom = total.sub(&lost.mul(correction as f64)?)?.maximum(0.0)?;
        let mean = x.mul(&w)?.sum_keepdim(1)?.div(&total)?;
        let centred = x.sub(&mean)?; // (m, n)
        let c = centred.mul(&w)?.matmul(&centred.t()?)?.div(&freedom)?.cast(self.dtype())?;
        if self.ndim() == 1 { c.reshape(()) } else { Ok(c) }
    }

    /// The correlation of variables in rows: [`Tensor::cov`] divided by the deviations, within -1
    /// and 1.
    ///
    /// # Errors
    /// As [`Tensor::cov`].
    ///
    /// Equivalent: `torch.corrcoef`.
    #[track_caller]
    pub fn corrcoef(&self) -> Result<Tensor> {
        let _op = enter("corrcoef").on([("x", Some(self))]);
        let c = self.cast(self.dtype().compute())?.cov(1, None, None)?;
        if c.ndim() == 0 {
            return c.div(&c)?.cast(self.dtype());
        }
        let deviation = c.diagonal(0, 0, 1)?.sqrt()?; // (m)
        c.div(&deviation.unsqueeze(1)?)?.div(&deviation)?.clamp(-1.0, 1.0)?.cast(self.dtype())
    }
}

/// Both tensors expanded to the shape that they broadcast to.
fn both(x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
    let Some(shape) = x.shape().broadcast(y.shape()) else {
        return Err(Error::shape(format!("{} and {} do not broadcast", x.shape(), y.shape()))
            .help(BROADCAST));
    };
    Ok((x.expand_to(&shape)?, y.expand_to(&shape)?))
}
