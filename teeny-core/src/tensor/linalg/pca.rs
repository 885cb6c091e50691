//! Principal components: the directions in which rows vary most, by the singular vectors of the
//! centred rows.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The result of [`Tensor::pca`] for n samples of d features and k components.
#[derive(Clone, Debug)]
pub struct Pca {
    /// The mean of the samples: (d).
    pub mean: Tensor,
    /// Orthonormal directions as rows, by decreasing variance: (k, d). The largest element of each,
    /// by absolute value, is positive.
    pub components: Tensor,
    /// The singular values of the centred samples: (k).
    pub singular_values: Tensor,
    /// The variance of the samples along each direction, with n - 1 below: (k).
    pub variance: Tensor,
}

impl Pca {
    /// The coordinates of samples: (m, d) → (m, k).
    ///
    /// # Errors
    /// If the samples have another number of features.
    #[track_caller]
    pub fn transform(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("Pca::transform").on([("x", Some(x))]);
        x.sub(&self.mean)?.matmul(&self.components.transpose(0, 1)?)
    }

    /// The samples with these coordinates: (m, k) → (m, d).
    ///
    /// # Errors
    /// If there is another number of coordinates.
    #[track_caller]
    pub fn inverse(&self, y: &Tensor) -> Result<Tensor> {
        let _op = enter("Pca::inverse").on([("y", Some(y))]);
        y.matmul(&self.components)?.add(&self.mean)
    }
}

impl Tensor {
    /// The first `k` principal components of samples in rows: (n, d), k ≤ min(n, d).
    ///
    /// By the singular values of the centred samples, not of their covariance, which has half the
    /// digits. Signs are fixed, so two runs agree.
    ///
    /// # Errors
    /// If self is not a matrix of two samples or more, or has fewer than `k` components.
    ///
    /// Equivalent: `sklearn.decomposition.PCA(k, svd_solver="full")`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn pca(&self, k: usize) -> Result<Pca> {
        let _op = enter("pca").on([("x", Some(self))]);
        let &[n, d] = &self.shape()[..] else {
            return Err(Error::shape(format!(
                "needs samples in the rows of one matrix, not {}",
                self.shape()
            ))
            .help(match self.ndim() {
                0 | 1 => "x.reshape((n, d))? has n samples of d features",
                _ => "x.flatten(1, -1)? makes the features one axis",
            }));
        };
        if n < 2 || k > n.min(d) {
            return Err(Error::value(format!(
                "cannot find {k} components of {n} samples of {d} features"
            ))
            .help("pass at least two samples and ask for at most min(n, d) components"));
        }
        let mean = self.mean(0)?; // (d)
        let (_, s, vt) = self.sub(&mean)?.svd()?; // (min), (min, d)
        let (s, vt) = (s.slice(0, ..k)?, vt.slice(0, ..k)?);
        let largest = vt.gather(1, &vt.abs()?.argmax(1)?.unsqueeze(1)?)?; // (k, 1)
        let components = vt.mul(&largest.sign()?)?; // (k, d)
        let variance = s.square()?.div((n - 1) as f64)?; // (k)
        Ok(Pca { mean, components, singular_values: s, variance })
    }
}
