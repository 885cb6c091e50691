//! Which kernel computes a tile of a product of 16-bit floats: a pure function of sizes and
//! strides.
//!
//! ```text
//!   k = 1 ─────────────────────────────────────────► Outer   one product for each element
//!   larger operand along k, few rows or columns ───► Dot     inner products
//!   few rows (columns), runs in rows of rhs (lhs) ─► Rows    the larger operand where it is
//!   otherwise ─────────────────────────────────────► Packed  panels
//! ```

use crate::matmul::matrix::Matrix;
use crate::matmul::select::max_dots;

/// The kernels. `swapped` ones compute the transposed product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfKernel {
    /// k is 1: each element is one product.
    Outer,
    /// Inner products.
    Dot { swapped: bool },
    /// Up to [`MAX_ROWS`] rows by a right operand with contiguous rows.
    Rows { swapped: bool },
    /// Panels.
    Packed,
}

/// Rows of a register tile that reads its right operand in place.
pub(super) const MAX_ROWS: usize = 4;
/// Elements along k from which adding up the lanes of an inner product pays.
const MIN_DOT: usize = 32;

/// The kernel for a tile `(m, k) @ (k, n)`.
pub(super) fn select_kernel<T>([m, n, k]: [usize; 3], a: Matrix<T>, b: Matrix<T>) -> HalfKernel {
    if k == 1 {
        return HalfKernel::Outer;
    }
    // A stride along an axis of one element may be anything.
    let run = |stride: isize, size: usize| stride == 1 || size == 1;
    let few = m.min(n);
    if few == 1 || few <= max_dots(k) && k >= MIN_DOT {
        let (along_a, along_b) = (run(a.col_stride, k), run(b.row_stride, k));
        if m <= n && along_b && (m == 1 || along_a) {
            return HalfKernel::Dot { swapped: false };
        }
        if n <= m && along_a && (n == 1 || along_b) {
            return HalfKernel::Dot { swapped: true };
        }
    }
    if m <= MAX_ROWS && m <= n && run(b.col_stride, n) {
        return HalfKernel::Rows { swapped: false };
    }
    if n <= MAX_ROWS && n <= m && run(a.row_stride, m) {
        return HalfKernel::Rows { swapped: true };
    }
    HalfKernel::Packed
}

#[cfg(test)]
mod tests {
    use super::HalfKernel::*;
    use super::*;

    fn matrix(row_stride: isize, col_stride: isize) -> Matrix<u16> {
        Matrix { ptr: std::ptr::null(), row_stride, col_stride }
    }

    #[test]
    fn every_kernel_is_selected_on_its_side_of_each_boundary() {
        let kernel = |[m, n, k]: [usize; 3], kinds: &str| {
            let a = if kinds.starts_with('n') { (k, 1) } else { (1, m) };
            let b = if kinds.ends_with('n') { (n, 1) } else { (1, k) };
            let matrix = |(row, col)| matrix(row as isize, col as isize);
            select_kernel([m, n, k], matrix(a), matrix(b))
        };
        let table = [
            ([1, 100, 50], "nt", Dot { swapped: false }),
            ([100, 1, 50], "nt", Dot { swapped: true }),
            ([1, 1, 50], "nn", Dot { swapped: false }),
            ([8, 100, 32], "nt", Dot { swapped: false }),
            ([8, 100, 31], "nt", Packed),
            ([9, 100, 32], "nt", Packed),
            ([16, 100, 384], "nt", Dot { swapped: false }),
            ([17, 100, 384], "nt", Packed),
            ([100, 16, 384], "nt", Dot { swapped: true }),
            ([1, 100, 50], "nn", Rows { swapped: false }),
            ([4, 100, 50], "nn", Rows { swapped: false }),
            ([5, 100, 50], "nn", Packed),
            ([100, 4, 50], "tt", Rows { swapped: true }),
            ([100, 5, 50], "tt", Packed),
            ([100, 4, 50], "nn", Packed),
            ([64, 64, 64], "nt", Packed),
            ([20, 30, 1], "nn", Outer),
            ([20, 30, 2], "nn", Packed),
        ];
        for (mnk, kinds, want) in table {
            assert_eq!(kernel(mnk, kinds), want, "{mnk:?} {kinds}");
        }
        let stepped = matrix(200, 2);
        assert_eq!(select_kernel([1, 1, 50], matrix(1, 1), stepped), Dot { swapped: true });
        assert_eq!(select_kernel([1, 100, 50], stepped, stepped), Packed);
    }
}
