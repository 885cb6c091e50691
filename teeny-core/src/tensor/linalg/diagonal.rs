//! Diagonals and triangles of matrices. A diagonal itself is a view: `Tensor::diagonal`, in
//! `view/slice`.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::messages::two_axes;
use crate::op::Op;
use crate::shape::index_end;
use crate::tensor::{Tensor, map};

impl Tensor {
    /// A vector as diagonal `diagonal` of a matrix that is 0 elsewhere; of a matrix, its diagonal
    /// `diagonal` as a vector (a view).
    ///
    /// # Errors
    /// If self is neither.
    ///
    /// Equivalent: `torch.diag`.
    #[track_caller]
    pub fn diag(&self, diagonal: isize) -> Result<Tensor> {
        let _op = enter("diag").on([("x", Some(self))]);
        match self.ndim() {
            1 => self.diag_embed(diagonal),
            2 => self.diagonal(diagonal, 0, 1),
            _ => Err(Error::shape(format!("expected a vector or a matrix, got {}", self.shape()))
                .help(match self.ndim() {
                    0 => "x.reshape(1)? is a vector",
                    _ => {
                        "x.diagonal(diagonal, a, b)? takes two of several axes, \
                         x.diag_embed(diagonal)? the last"
                    }
                })),
        }
    }

    /// The last axis as diagonal `diagonal` of square matrices: (.., n) → (.., n + |diagonal|, n +
    /// |diagonal|). Equivalent: `torch.diag_embed`.
    ///
    /// # Errors
    /// If self is a scalar.
    #[track_caller]
    pub fn diag_embed(&self, diagonal: isize) -> Result<Tensor> {
        let _op = enter("diag_embed").on([("x", Some(self))]);
        let side = self.shape()[self.shape().axis(-1)?] + diagonal.unsigned_abs();
        let shape = self.shape().resized(self.ndim() - 1, side)?.with_axis(self.ndim(), side)?;
        Tensor::zeros(shape, self.dtype(), self)?
            .assign_view(|x| x.diagonal(diagonal, -2, -1), self)
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
            return Err(Error::shape(format!("expected at least two axes, got {}", self.shape()))
                .help(two_axes(self.shape())));
        }
        self.diagonal(0, -2, -1)?.sum(-1)
    }

    /// The elements on and below diagonal `diagonal` of the last two axes, zeros above. Equivalent:
    /// `torch.tril`.
    ///
    /// # Errors
    /// If there are fewer than two axes.
    #[track_caller]
    pub fn tril(&self, diagonal: i32) -> Result<Tensor> {
        let _op = enter("tril").on([("x", Some(self))]);
        self.tri(diagonal, false)
    }

    /// The elements on and above diagonal `diagonal` of the last two axes, zeros below. Equivalent:
    /// `torch.triu`.
    ///
    /// # Errors
    /// If there are fewer than two axes.
    #[track_caller]
    pub fn triu(&self, diagonal: i32) -> Result<Tensor> {
        let _op = enter("triu").on([("x", Some(self))]);
        self.tri(diagonal, true)
    }

    fn tri(&self, diagonal: i32, upper: bool) -> Result<Tensor> {
        Op::Tri { x: self, diagonal, upper }.tensor(self.device())
    }
}

/// The definition of [`Op::Tri`].
pub(crate) fn triangle(x: &Tensor, diagonal: i32, upper: bool) -> Result<Tensor> {
    let (rows, columns) = (x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]);
    // (rows, 1)
    let row = Tensor::arange(0i32, index_end(rows)?, 1, x)?.unsqueeze(1)?;
    let column = Tensor::arange(0i32, index_end(columns)?, 1, x)?; // (columns)
    let dtype = x.dtype();
    map([x, &row, &column], |[x, r, c]| {
        // Neither is negative, so that their difference does not overflow as a sum with `diagonal`
        // would.
        let right = c - r;
        let kept = if upper { right.ge(diagonal) } else { right.le(diagonal) };
        kept.where_cond(x, x.like(0)).cast(dtype)
    })
}
