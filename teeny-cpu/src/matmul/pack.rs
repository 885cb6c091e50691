//! Copies of blocks of a strided matrix to row-major buffers with a row stride: panels.
//!
//! The naive form is `panel[i * width + j] = from[i][j]`. Contiguous rows are copied as they are; a
//! transposed operand is transposed by blocks in registers, so that both sides are touched by whole
//! cache lines where a type has such blocks. One whose rows and columns both have gaps is copied
//! element by element.

use super::matrix::Matrix;
use crate::simd::Level;
use crate::transpose::transpose;

/// Writes the first `rows` rows and `columns` columns of `from` to rows of `width` elements. The
/// elements of a row from `columns` on are not written, and no caller reads them.
///
/// # Safety
/// The elements of `from` are readable, the panel is writable for `rows * width` elements, and the
/// two do not overlap. `columns <= width`.
pub(super) unsafe fn pack_rows<T: Copy>(
    level: Level,
    from: Matrix<T>,
    [rows, columns]: [usize; 2],
    panel: *mut T,
    width: usize,
) {
    // SAFETY: by contract.
    unsafe {
        if from.col_stride == 1 {
            for i in 0..rows {
                std::ptr::copy_nonoverlapping(from.at(i, 0).ptr, panel.add(i * width), columns);
            }
        } else if from.row_stride == 1 {
            let size = (rows, columns);
            transpose(level, from.ptr, from.col_stride, panel, width as isize, size, false);
        } else {
            for i in 0..rows {
                for j in 0..columns {
                    *panel.add(i * width + j) = *from.at(i, j).ptr;
                }
            }
        }
    }
}
