//! Functions of matrices made of products and solvers: powers, the exponential, chains.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::op::Triangle;
use crate::scalar::Scalar;
use crate::shape::index_end;
use crate::tensor::{Tensor, references};

impl Tensor {
    /// The `n`-th power of square matrices (.., m, m), of the inverse for negative n.
    ///
    /// # Errors
    /// If the matrices are not square; for negative n as [`Tensor::inv`].
    ///
    /// Equivalent: `torch.linalg.matrix_power`.
    #[track_caller]
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        let _op = enter("matrix_power").on([("x", Some(self))]);
        let m = self.square_size()?;
        let mut square = if n < 0 { self.inv()? } else { self.clone() };
        let (mut rest, mut power) = (n.unsigned_abs(), None::<Tensor>);
        while rest > 0 {
            if rest % 2 == 1 {
                power = Some(match power {
                    Some(power) => power.matmul(&square)?,
                    None => square.clone(),
                });
            }
            rest /= 2;
            if rest > 0 {
                square = square.matmul(&square)?;
            }
        }
        match power {
            Some(power) => Ok(power),
            None => Tensor::eye(m, self.dtype(), self)?.expand(self.shape())?.contiguous(),
        }
    }

    /// The exponential `Σ x^k / k!` of square matrices (.., m, m): 18 terms of the series of the
    /// matrix divided by a power of two, squared as often. Each matrix of a batch has its own
    /// power. Waits for the device.
    ///
    /// # Errors
    /// If the matrices are not square or not of floats.
    ///
    /// Equivalent: `torch.matrix_exp`.
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn matrix_exp(&self) -> Result<Tensor> {
        let _op = enter("matrix_exp").on([("x", Some(self))]);
        self.require_float()?;
        let m = self.square_size()?;
        let eye = Tensor::eye(m, self.dtype(), self)?.expand(self.shape())?.contiguous()?;
        if self.numel() == 0 {
            return Ok(eye);
        }
        // A part of the norm, which cannot overflow. One that is not finite gives NaN by the series
        // alone.
        let spare = (m as f64).log2().ceil() as i32 + 1;
        let parts = self.abs()?.mul(0.5f64.powi(spare))?.sum(-1)?.max(-1)?.to_scalars()?;
        let exponents = parts.iter().map(|part| part.to_f64().log2().ceil());
        let halvings: Vec<i32> =
            exponents.map(|n| if n.is_finite() { (n as i32 + spare).max(0) } else { 0 }).collect();
        let each = self.shape().with_size(self.ndim() - 2, 1).with_size(self.ndim() - 1, 1);
        // In two factors: one may be too small for the type.
        let power = |from| {
            let powers = halvings.iter().map(|&n| Scalar::Float(0.5f64.powi((n + from) / 2)));
            Tensor::from_scalars(&powers.collect::<Vec<_>>(), each, self.dtype(), self)
        };
        let x = self.mul(&power(0)?)?.mul(&power(1)?)?;
        // Horner's scheme: 1 + x (1 + x/2 (1 + x/3 (..)))
        let mut sum = eye.clone();
        for k in (1..=18).rev() {
            sum = x.matmul(&sum)?.mul(1.0 / f64::from(k))?.add(&eye)?;
        }
        let least = halvings.iter().copied().min().unwrap_or(0);
        let most = halvings.iter().copied().max().unwrap_or(0);
        let halvings = Tensor::from_vec(halvings, each, self)?; // (.., 1, 1)
        for _ in 0..least {
            sum = sum.matmul(&sum)?;
        }
        for step in least..most {
            // A matrix that is done is kept: its square might overflow, in the gradient too.
            let open = halvings.gt(step)?;
            let root = open.where_cond(&sum, &eye)?;
            sum = open.where_cond(&root.matmul(&root)?, &sum)?;
        }
        Ok(sum)
    }

    /// The solution x of `a x = self` for the matrix a with the Cholesky factor `l`: `a = l lᵀ` for
    /// a lower triangle, `a = lᵀ l` for an upper one. Shapes: self (.., n, k), l (.., n, n).
    ///
    /// # Errors
    /// As [`Tensor::solve_triangular`].
    ///
    /// Equivalent: `torch.cholesky_solve(self, l)`, with `upper=True` for [`Triangle::Upper`].
    ///
    /// Needs the feature `linalg`.
    #[track_caller]
    pub fn cholesky_solve(&self, l: &Tensor, triangle: Triangle) -> Result<Tensor> {
        let _op = enter("cholesky_solve").on([("x", Some(self)), ("l", Some(l))]);
        let (l, lower) = match triangle {
            Triangle::Lower | Triangle::UnitLower => (l.clone(), triangle),
            Triangle::Upper | Triangle::UnitUpper => (l.transpose(-2, -1)?, triangle.transposed()),
        };
        let y = l.solve_triangular(self, lower)?;
        l.transpose(-2, -1)?.solve_triangular(&y, lower.transposed())
    }

    /// The product of a chain of matrices, in the order of multiplication that costs least; the
    /// first and the last may be vectors.
    ///
    /// # Errors
    /// If `matrices` is empty, or the shapes of two neighbours do not fit.
    ///
    /// Equivalent: `torch.linalg.multi_dot`.
    #[track_caller]
    pub fn multi_dot<T: AsRef<Tensor>>(matrices: &[T]) -> Result<Tensor> {
        multi_dot(&references(matrices))
    }

    /// The powers of a vector's elements as rows: (.., m) → (.., m, n) with exponents from 0 to n -
    /// 1.
    ///
    /// # Errors
    /// If self is a scalar.
    ///
    /// Equivalent: `torch.linalg.vander(x, N=n)`, `numpy.vander(x, n, increasing=True)`.
    #[track_caller]
    pub fn vander(&self, n: usize) -> Result<Tensor> {
        let _op = enter("vander").on([("x", Some(self))]);
        let exponents = Tensor::arange(0i32, index_end(n)?, 1, self)?.cast(self.dtype())?;
        self.unsqueeze(self.shape().axis(-1)? as isize + 1)?.pow(&exponents)
    }
}

#[track_caller]
fn multi_dot(matrices: &[&Tensor]) -> Result<Tensor> {
    let _op = enter("multi_dot").on_all("matrices", matrices);
    let n = matrices.len();
    let Some(first) = matrices.first() else { return Err(crate::messages::no_tensors()) };
    if n == 1 {
        return Ok((*first).clone());
    }
    let fits = |i: usize, x: &Tensor| x.ndim() == 2 || x.ndim() == 1 && (i == 0 || i + 1 == n);
    if let Some((i, x)) = matrices.iter().enumerate().find(|(i, x)| !fits(*i, x)) {
        return Err(Error::shape(format!("factor {i} of a chain is {}", x.shape()))
            .help("factors are matrices; the first and the last may be vectors"));
    }
    // rows[i] is the number of rows of factor i, and of columns of the one before.
    let mut rows: Vec<f64> = matrices
        .iter()
        .enumerate()
        .map(|(i, x)| if i == 0 && x.ndim() == 1 { 1.0 } else { x.shape()[0] as f64 })
        .collect();
    rows.push(if matrices[n - 1].ndim() == 1 { 1.0 } else { matrices[n - 1].shape()[1] as f64 });
    // cost[i][j] of factors i to j, and the last factor of the left part.
    let mut best = vec![vec![(0.0, 0); n]; n];
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            best[i][j] = (i..j)
                .map(|k| {
                    let product = rows[i] * rows[k + 1] * rows[j + 1];
                    (best[i][k].0 + best[k + 1][j].0 + product, k)
                })
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .unwrap_or((0.0, i));
        }
    }
    chain(matrices, &best, 0, n - 1)
}

/// The product of factors `i` to `j`.
fn chain(matrices: &[&Tensor], best: &[Vec<(f64, usize)>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(matrices[i].clone());
    }
    let k = best[i][j].1;
    chain(matrices, best, i, k)?.matmul(&chain(matrices, best, k + 1, j)?)
}
