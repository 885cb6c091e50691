//! One tile of a product as data: its sizes, operands and factors.
//!
//! Runs no kernel. `gemm` splits products into tiles and computes them.

use super::matrix::Matrix;
use super::microkernel::Product;
use super::select::{Problem, Strides, panel_columns};
use crate::float::Float;

/// One tile: `c (m, n) = beta c + alpha lhs (m, k) @ rhs (k, n)`; with `beta` zero, `c` is not
/// read.
#[derive(Clone, Copy)]
pub(crate) struct Tile<T> {
    pub mnk: [usize; 3],
    pub lhs: Matrix<T>,
    pub rhs: Matrix<T>,
    /// Written to, although a matrix is a read-only view in itself.
    pub c: Matrix<T>,
    pub beta: T,
    pub alpha: T,
    /// Elements of the whole right operand, of which this tile reads some columns.
    pub rhs_numel: usize,
}

impl<T: Float> Tile<T> {
    /// The sizes and strides that select the kernel.
    pub(super) fn problem(&self) -> Problem {
        let [m, n, k] = self.mnk;
        Problem {
            m,
            n,
            k: if self.alpha == T::ZERO { 0 } else { k },
            lhs: Strides::of(self.lhs),
            rhs: Strides::of(self.rhs),
            c: Strides::of(self.c),
            element: size_of::<T>(),
            rhs_numel: self.rhs_numel,
            beta_is_zero: self.beta == T::ZERO,
        }
    }

    /// `c = beta c`.
    ///
    /// # Safety
    /// As `run`.
    pub(super) unsafe fn scale(&self) {
        let [m, n, _] = self.mnk;
        for i in 0..m {
            for j in 0..n {
                let to = self.c.at(i, j).ptr.cast_mut();
                // SAFETY: an element of `c`.
                unsafe { *to = if self.beta == T::ZERO { T::ZERO } else { *to * self.beta } };
            }
        }
    }

    /// The product of rows `from..from + depth` of the right operand, which are packed in `panel`,
    /// and of the columns of a panel from `j` on.
    ///
    /// # Safety
    /// `from` and `j` are inside the tile.
    pub(super) unsafe fn of_panel(
        &self,
        j: usize,
        [from, depth]: [usize; 2],
        panel: *const T,
    ) -> Product<T> {
        let ([m, n, _], width) = (self.mnk, panel_columns(size_of::<T>()));
        Product {
            mnk: [m, width.min(n - j), depth],
            a: self.lhs.at(0, from),
            b: panel,
            b_row_stride: width as isize,
            // SAFETY: by contract.
            c: unsafe { self.c.ptr.cast_mut().add(j) },
            c_row_stride: self.c.row_stride,
            beta: if from == 0 { self.beta } else { T::ONE },
            alpha: self.alpha,
        }
    }

    /// `cᵀ = beta cᵀ + alpha rhsᵀ @ lhsᵀ`: the same elements.
    pub(super) fn transposed(self) -> Tile<T> {
        let [m, n, k] = self.mnk;
        let (lhs, rhs, c) = (self.rhs.t(), self.lhs.t(), self.c.t());
        Tile { mnk: [n, m, k], lhs, rhs, c, ..self }
    }
}
