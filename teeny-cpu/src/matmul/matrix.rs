//! Raw strided matrices.

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

    /// A column-major matrix of `rows` rows from `ptr` on.
    pub(crate) fn by_column(ptr: *const T, rows: usize) -> Matrix<T> {
        Matrix { ptr, row_stride: 1, col_stride: rows as isize }
    }

    /// The submatrix that begins at row i, column j.
    #[inline(always)]
    pub(crate) fn at(self, i: usize, j: usize) -> Matrix<T> {
        let offset = i as isize * self.row_stride + j as isize * self.col_stride;
        Matrix { ptr: self.ptr.wrapping_offset(offset), ..self }
    }

    /// The transpose.
    #[inline(always)]
    pub(crate) fn t(self) -> Matrix<T> {
        Matrix { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}
