//! Linear algebra: products, systems of equations, decompositions, norms.
//!
//! Matrices are the last two axes. This file has the checks that the operations of
//! [`crate::linalg`] share, and runs them.

mod products;

mod einsum;

mod diagonal;

mod norms;

mod solve;

mod decompositions;

mod pca;

mod matrix_functions;

mod vectors;

pub(crate) use diagonal::triangle;
pub use norms::MatrixNorm;
pub use pca::Pca;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::messages::{NOT_SQUARE, two_axes};
use crate::op::{LinalgOp, Op};
use crate::tensor::Tensor;

impl Tensor {
    /// The sizes of the last two axes.
    fn matrix_size(&self) -> Result<[usize; 2]> {
        match self.shape()[..] {
            [.., m, n] => Ok([m, n]),
            _ => Err(Error::shape(format!(
                "needs matrices, which have two axes or more, not {}",
                self.shape()
            ))
            .help(two_axes(self.shape()))),
        }
    }

    /// The number of rows of square matrices.
    fn square_size(&self) -> Result<usize> {
        match self.matrix_size()? {
            [m, n] if m == n => Ok(n),
            [m, n] => Err(Error::shape(format!(
                "expected square matrices, got {}: {m} rows, {n} columns",
                self.shape()
            ))
            .help(NOT_SQUARE)),
        }
    }

    /// The relative tolerance, max(m, n) eps unless one is given.
    fn rtol(&self, rtol: Option<f64>) -> Result<f64> {
        let [m, n] = self.matrix_size()?;
        let eps = if self.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        match rtol {
            Some(rtol) if rtol.is_nan() || rtol < 0.0 => {
                Err(Error::value(format!("expected rtol >= 0, got {rtol}"))
                    .help("None takes max(m, n) eps; 0.0 counts only zeros as 0"))
            }
            given => Ok(given.unwrap_or(m.max(n) as f64 * eps)),
        }
    }

    /// The results of `op` for self and further operands, which have been brought to one type and
    /// the same leading axes.
    fn linalg<const N: usize>(&self, op: LinalgOp, more: &[&Tensor]) -> Result<[Tensor; N]> {
        self.matrix_size()?;
        match self.dtype() {
            DType::F32 | DType::F64 => {}
            DType::F16 | DType::BF16 => {
                return Err(Error::dtype(format!(
                    "cannot factor matrices of {}: its precision is too low",
                    self.dtype()
                ))
                .help("x.cast(DType::F32)? converts"));
            }
            other => {
                return Err(Error::dtype(format!("needs f32 or f64, not {other}"))
                    .help("x.cast(DType::F64)? converts"));
            }
        }
        let mut inputs = vec![self];
        inputs.extend(more);
        Op::Linalg { op, inputs: &inputs }.tensors(self.device())
    }
}
