//! Raw strided matrices and the float types that they hold.

use crate::simd::{F32s, Lanes};

/// A matrix in memory: the first element and the strides, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub ptr: *const T,
    /// From an element to the one below it.
    pub row_stride: isize,
    /// From an element to its right neighbour.
    pub col_stride: isize,
}

// SAFETY: a matrix is only read through, from storages that are borrowed for as long as it is used.
unsafe impl<T> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Matrix<T> {}

impl<T> Matrix<T> {
    /// A row-major matrix of `columns` columns in a slice.
    pub(crate) fn row_major(data: &[T], columns: usize) -> Matrix<T> {
        Matrix { ptr: data.as_ptr(), row_stride: columns as isize, col_stride: 1 }
    }

    /// The submatrix that begins at row i, column j.
    pub(crate) fn at(self, i: usize, j: usize) -> Matrix<T> {
        let offset = i as isize * self.row_stride + j as isize * self.col_stride;
        Matrix { ptr: self.ptr.wrapping_offset(offset), ..self }
    }

    /// The transpose.
    pub(crate) fn t(self) -> Matrix<T> {
        Matrix { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

/// A float type that can be multiplied. Public only because `blas::BlasFloat` builds on it; this
/// module is private.
pub trait Float:
    Copy
    + Default
    + PartialEq
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::AddAssign
    + Send
    + Sync
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// The vector of this type at the level whose vector of f32 is `V`.
    type Vector<V: F32s>: Lanes<Self>;
    /// The nearest number.
    fn from_f64(x: f64) -> Self;
}

impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    type Vector<V: F32s> = V;
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl Float for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    type Vector<V: F32s> = V::F64s;
    fn from_f64(x: f64) -> f64 {
        x
    }
}
