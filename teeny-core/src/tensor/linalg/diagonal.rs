//! Diagonals, and products and distances of all pairs.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, map, map_sum};
use crate::validate::two_axes;

impl Tensor {
    /// A vector as diagonal `shift` of a matrix that is 0 elsewhere; of a matrix, its diagonal
    /// `shift` as a vector (a view).
    ///
    /// # Errors
    /// If self is neither.
    ///
    /// Equivalent: `torch.diag`.
    #[track_caller]
    pub fn diag(&self, shift: isize) -> Result<Tensor> {
        let _op = enter("diag").on([("x", Some(self))]);
        match self.ndim() {
            1 => self.diag_embed(shift),
            2 => self.diagonal(shift, 0, 1),
            _ => Err(Error::shape(format!("needs a vector or a matrix, not {}", self.shape())).help(match self.ndim() {
                0 => "x.reshape(1)? is a vector",
                _ => "x.diagonal(shift, a, b)? takes two of several axes, x.diag_embed(shift)? the last",
            })),
        }
    }

    /// The last axis as diagonal `shift` of square matrices: (.., n) → (.., n + |shift|, n +
    /// |shift|). Equivalent: `torch.diag_embed`.
    ///
    /// # Errors
    /// If self is a scalar.
    #[track_caller]
    pub fn diag_embed(&self, shift: isize) -> Result<Tensor> {
        let _op = enter("diag_embed").on([("x", Some(self))]);
        let side = self.shape()[self.shape().axis(-1)?] + shift.unsigned_abs();
        let shape = self.shape().resized(self.ndim() - 1, side)?.with_axis(self.ndim(), side)?;
        Tensor::zeros(shape, self.dtype(), self)?.assign_view(|x| x.diagonal(shift, -2, -1), self)
    }

    /// The sum of the diagonal of the last two axes; integers as `I64`. Equivalent: `torch.trace`,
    /// for batches too.
    ///
    /// # Errors
    /// If there are fewer than two axes.
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        let _op = enter("trace").on([("x", Some(self))]);
        if self.ndim() < 2 {
            return Err(Error::shape(format!("a trace needs two axes, not {}", self.shape()))
                .help(two_axes(self.shape())));
        }
        self.diagonal(0, -2, -1)?.sum(-1)
    }

    /// The Kronecker product: every element of self times all of `rhs`, sizes multiplied axis by
    /// axis; missing axes count as 1.
    ///
    /// # Errors
    /// If the larger of the two has more than 4 axes.
    ///
    /// Equivalent: `torch.kron`.
    #[track_caller]
    pub fn kron(&self, rhs: &Tensor) -> Result<Tensor> {
        let _op = enter("kron").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        let ndim = self.ndim().max(rhs.ndim());
        let sizes = |x: &Tensor| [vec![1; ndim - x.ndim()], x.shape().to_vec()].concat();
        let (a, b) = (sizes(self), sizes(rhs));
        let between = |sizes: &[usize], own: usize| {
            sizes.iter().flat_map(|&n| if own == 0 { [n, 1] } else { [1, n] }).collect::<Vec<_>>()
        };
        // (a0, b0, a1, b1, ..)
        let product = self.reshape(between(&a, 0))?.mul(&rhs.reshape(between(&b, 1))?)?;
        product.reshape(a.iter().zip(&b).map(|(m, n)| m * n).collect::<Vec<_>>())
    }

    /// The distances of all pairs of rows: self (.., n, d) and `rhs` (.., m, d) → (.., n, m),
    /// `(Σ |x - y|^p)^(1/p)`; leading axes broadcast.
    ///
    /// `p = inf` gives the largest difference, `p = 0` counts those that are not 0. The gradient of
    /// a distance 0 is 0. The (n, m, d) differences are never stored going forward, except for
    /// `p = inf`.
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
                return Err(Error::value(format!("p is {p}, which is no norm"))
                    .help("p is 0, positive or f64::INFINITY; 2.0 gives Euclidean distances"));
            }
        };
        distance.cast(dtype)
    }
}
