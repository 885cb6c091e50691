//! Blocks of 16-bit floats in the layouts of the microkernel: f32, or pairs of bf16.
//!
//! ```text
//!   widen      rows to rows of f32
//!   interleave rows p and p + 1 to a row of pairs: a right operand, k down
//!   pair_rows  rows to rows of pairs of neighbours: a left operand, or a transposed right one
//! ```
//! [`Smallest`] says whether pairs may be multiplied as such.

use super::with_half;
use crate::matmul::dots::load_half_part;
use crate::matmul::matrix::Matrix;
use crate::simd::{F32s, Half, Level, Work};
use std::marker::PhantomData;
use teeny_core::{DType, bf16, f16};

/// The smallest magnitude of a block but zero, as bits of bf16, less one; `u16::MAX` if all are
/// zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smallest(u16);

impl Smallest {
    /// Of `lines` lines of `len` elements of bf16.
    ///
    /// # Safety
    /// [`Level::has_pairs`]; the elements are readable.
    pub(super) unsafe fn of(level: Level, x: Matrix<u16>, [lines, len]: [usize; 2]) -> Smallest {
        // SAFETY: by contract.
        unsafe {
            if x.col_stride == 1 {
                return Smallest(level.bf16_lines(x.ptr, x.row_stride, [lines, len], None));
            }
            if x.row_stride == 1 {
                return Smallest(level.bf16_lines(x.ptr, x.col_stride, [len, lines], None));
            }
            let mut least = u16::MAX;
            for i in 0..lines {
                for j in 0..len {
                    least = least.min((*x.at(i, j).ptr & 0x7fff).wrapping_sub(1));
                }
            }
            Smallest(least)
        }
    }

    /// Whether no product of a number of this block and one of the other, nor a sum of such
    /// products, can be subnormal: all are multiples of a number that is not, the product of the
    /// last places of the smallest.
    pub(super) fn is_safe_with(self, other: Smallest) -> bool {
        let exponent = |x: Smallest| (u32::from(x.0) + 1) >> 7;
        let (a, b) = (exponent(self), exponent(other));
        // 2^(a - 127) 2^(b - 127) 2^-14 >= 2^-126
        a > 0 && b > 0 && a + b >= 142
    }
}

/// Converts `rows` rows of `x` to rows of `step` f32.
///
/// # Safety
/// They are readable and writable, and do not overlap.
pub(crate) unsafe fn widen(
    level: Level,
    dtype: DType,
    x: Matrix<u16>,
    [rows, columns]: [usize; 2],
    to: *mut f32,
    step: usize,
) {
    with_half!(dtype, H => {
        level.run(Widen::<H> { x, rows, columns, to, step, half: PhantomData });
    });
}

struct Widen<H> {
    x: Matrix<u16>,
    rows: usize,
    columns: usize,
    to: *mut f32,
    step: usize,
    half: PhantomData<H>,
}

impl<H: Half> Work for Widen<H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let n = self.columns;
        for i in 0..self.rows {
            let row = self.x.at(i, 0);
            let to = self.to.wrapping_add(i * self.step);
            // SAFETY: by contract of `widen`.
            unsafe {
                let mut j = 0;
                while j < n {
                    let count = V::LANES.min(n - j);
                    if row.col_stride == 1 && count == V::LANES {
                        V::load_half::<H>(row.ptr.add(j)).store(to.add(j));
                    } else if row.col_stride == 1 {
                        load_half_part::<H, V>(row.ptr.add(j), count).store_part(to.add(j), count);
                    } else {
                        let mut lanes = [0u16; 16];
                        for (c, lane) in lanes[..count].iter_mut().enumerate() {
                            *lane = *row.at(0, j + c).ptr;
                        }
                        V::load_half::<H>(lanes.as_ptr()).store_part(to.add(j), count);
                    }
                    j += count;
                }
            }
        }
    }
}

/// Writes `depth` rows of `x`, two by two, as rows of `step` pairs: element (p, j) and the one
/// below it, zero beyond the last row.
///
/// # Safety
/// [`Level::has_pairs`]; rows of `x` are contiguous and readable, and rows of pairs are writable.
pub(super) unsafe fn interleave(
    level: Level,
    x: Matrix<u16>,
    size: [usize; 2],
    to: *mut u32,
    step: usize,
) -> Smallest {
    // SAFETY: by contract.
    Smallest(unsafe { level.bf16_lines(x.ptr, x.row_stride, size, Some((to, step))) })
}

/// Writes rows of `x` as rows of `step` pairs, the last filled up with a zero.
///
/// # Safety
/// They are readable, and rows of pairs are writable.
pub(super) unsafe fn pair_rows(
    x: Matrix<u16>,
    [rows, columns]: [usize; 2],
    to: *mut u32,
    step: usize,
) {
    for i in 0..rows {
        let row = x.at(i, 0);
        let to = to.wrapping_add(i * step).cast::<u16>();
        // SAFETY: by contract.
        unsafe {
            if row.col_stride == 1 {
                std::ptr::copy_nonoverlapping(row.ptr, to, columns);
            } else {
                for j in 0..columns {
                    *to.add(j) = *row.at(0, j).ptr;
                }
            }
            if columns % 2 == 1 {
                *to.add(columns) = 0;
            }
        }
    }
}
