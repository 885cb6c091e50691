//! Copies of parts of a right operand whose rows are contiguous: panels.
//!
//! The naive form is `panel[p * width + j] = rhs[p][j]`. Contiguous rows are copied as they are; a
//! transposed rhs is transposed by blocks in registers, so that both sides are touched by whole
//! cache lines.

use super::matrix::Matrix;
use crate::simd::Level;
use crate::transpose::transpose;

/// Writes `depth` rows and `columns` columns of `rhs` to rows of `width` elements.
///
/// # Safety
/// They are readable, the panel is writable for `depth` rows, and the two do not overlap. Rows or
/// columns of `rhs` are contiguous, and `columns <= width`.
pub(super) unsafe fn pack_rhs<T: Copy>(
    level: Level,
    rhs: Matrix<T>,
    [depth, columns]: [usize; 2],
    panel: *mut T,
    width: usize,
) {
    // SAFETY: by contract.
    unsafe {
        if rhs.col_stride == 1 {
            for i in 0..depth {
                std::ptr::copy_nonoverlapping(rhs.at(i, 0).ptr, panel.add(i * width), columns);
            }
        } else {
            let size = (depth, columns);
            transpose(level, rhs.ptr, rhs.col_stride, panel, width as isize, size, false);
        }
    }
}
