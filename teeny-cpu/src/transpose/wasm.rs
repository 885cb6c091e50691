//! Blocks of 4 x 4 elements of 32 bits in registers of simd128.

use super::{BLOCK, by_element};
use std::arch::wasm32::*;

/// Rows and columns of a block in registers.
const N: usize = 4;

/// As [`super::transpose`]. Columns that follow one another fill the same cache lines of the result.
///
/// # Safety
/// As [`super::transpose`].
pub(super) unsafe fn blocks(
    from: *const u32,
    from_stride: isize,
    to: *mut u32,
    to_stride: isize,
    (rows, columns): (usize, usize),
) {
    let (whole_rows, whole_columns) = (rows / N * N, columns / N * N);
    // SAFETY: by contract; the blocks are within the whole rows and columns, and the elements beyond
    // them are two rectangles.
    unsafe {
        for c0 in (0..whole_columns).step_by(BLOCK) {
            for r in (0..whole_rows).step_by(N) {
                for c in (c0..whole_columns.min(c0 + BLOCK)).step_by(N) {
                    block(
                        from.offset(c as isize * from_stride).add(r),
                        from_stride,
                        to.offset(r as isize * to_stride).add(c),
                        to_stride,
                    );
                }
            }
        }
        let (from_right, to_right) =
            (from.offset(whole_columns as isize * from_stride), to.add(whole_columns));
        let rest = columns - whole_columns;
        by_element(from_right, from_stride, to_right, to_stride, whole_rows, rest);
        let (from_below, to_below) =
            (from.add(whole_rows), to.offset(whole_rows as isize * to_stride));
        by_element(from_below, from_stride, to_below, to_stride, rows - whole_rows, columns);
    }
}

/// One block.
///
/// # Safety
/// Its elements are readable and writable.
#[inline(always)]
unsafe fn block(from: *const u32, from_stride: isize, to: *mut u32, to_stride: isize) {
    // SAFETY: by contract; any alignment will do.
    unsafe {
        let row = |i: isize| v128_load(from.offset(i * from_stride).cast());
        let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
        let (ab, cd) = (i32x4_shuffle::<0, 4, 1, 5>(a, b), i32x4_shuffle::<0, 4, 1, 5>(c, d));
        let put = |i: isize, x: v128| v128_store(to.offset(i * to_stride).cast(), x);
        put(0, i64x2_shuffle::<0, 2>(ab, cd));
        put(1, i64x2_shuffle::<1, 3>(ab, cd));
        let (ab, cd) = (i32x4_shuffle::<2, 6, 3, 7>(a, b), i32x4_shuffle::<2, 6, 3, 7>(c, d));
        put(2, i64x2_shuffle::<0, 2>(ab, cd));
        put(3, i64x2_shuffle::<1, 3>(ab, cd));
    }
}
