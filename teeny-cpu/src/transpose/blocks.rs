//! Blocks of elements of any size in registers of 16 bytes (SSE2 or NEON).

use super::by_element;
#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
type Register = __m128i;
#[cfg(target_arch = "aarch64")]
type Register = uint8x16_t;

/// Interleaves the elements of the lower halves of two registers, and of the upper halves.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn interleave<T>(a: Register, b: Register) -> (Register, Register) {
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        match size_of::<T>() {
            1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
            2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
            4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
            _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
        }
    }
}

/// Interleaves the elements of the lower halves of two registers, and of the upper halves.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn interleave<T>(a: Register, b: Register) -> (Register, Register) {
    macro_rules! zip {
        ($to:ident, $low:ident, $high:ident, $back:ident) => {{
            let (a, b) = ($to(a), $to(b));
            ($back($low(a, b)), $back($high(a, b)))
        }};
    }
    // SAFETY: every aarch64 has NEON.
    unsafe {
        match size_of::<T>() {
            1 => (vzip1q_u8(a, b), vzip2q_u8(a, b)),
            2 => zip!(vreinterpretq_u16_u8, vzip1q_u16, vzip2q_u16, vreinterpretq_u8_u16),
            4 => zip!(vreinterpretq_u32_u8, vzip1q_u32, vzip2q_u32, vreinterpretq_u8_u32),
            _ => zip!(vreinterpretq_u64_u8, vzip1q_u64, vzip2q_u64, vreinterpretq_u8_u64),
        }
    }
}

/// Blocks of `16 / size` rows and columns, in larger blocks that stay in L1, and the elements
/// beside and below them one by one.
///
/// # Safety
/// As `transpose`.
pub(super) unsafe fn blocks<T: Copy>(
    from: *const T,
    from_stride: isize,
    to: *mut T,
    to_stride: isize,
    (rows, columns): (usize, usize),
) {
    let n = 16 / size_of::<T>();
    // A cache line of each row and column.
    let line = 64 / size_of::<T>();
    let (whole_rows, whole_columns) = (rows / n * n, columns / n * n);
    for c0 in (0..whole_columns).step_by(line) {
        for r0 in (0..whole_rows).step_by(line) {
            for r in (r0..(r0 + line).min(whole_rows)).step_by(n) {
                for c in (c0..(c0 + line).min(whole_columns)).step_by(n) {
                    // SAFETY: blocks are inside rows and columns.
                    unsafe {
                        block(
                            from.offset(c as isize * from_stride + r as isize),
                            from_stride,
                            to.offset(r as isize * to_stride + c as isize),
                            to_stride,
                        );
                    }
                }
            }
        }
    }
    // SAFETY: as above.
    unsafe {
        beside_and_below(
            (from, from_stride),
            (to, to_stride),
            (rows, columns),
            (whole_rows, whole_columns),
        );
    }
}

/// One block. Interleaving the first half of the rows with the second, element by element, and
/// doing so again with the results, as often as the number of rows can be halved, transposes
/// them: each round moves one bit of an element's column number into its row number.
#[inline]
unsafe fn block<T: Copy>(from: *const T, from_stride: isize, to: *mut T, to_stride: isize) {
    let n = 16 / size_of::<T>();
    // SAFETY: the caller promises a block of elements; every processor of these has the registers.
    unsafe {
        let mut v = [std::mem::zeroed::<Register>(); 16];
        for (i, v) in v[..n].iter_mut().enumerate() {
            *v = from.offset(i as isize * from_stride).cast::<Register>().read_unaligned();
        }
        for _ in 0..n.ilog2() {
            let mut next = v;
            for i in 0..n / 2 {
                (next[2 * i], next[2 * i + 1]) = interleave::<T>(v[i], v[i + n / 2]);
            }
            v = next;
        }
        for (i, v) in v[..n].iter().enumerate() {
            to.offset(i as isize * to_stride).cast::<Register>().write_unaligned(*v);
        }
    }
}

/// The elements of the rows and columns after the first `whole` ones.
///
/// # Safety
/// As `transpose`.
pub(super) unsafe fn beside_and_below<T: Copy>(
    (from, from_stride): (*const T, isize),
    (to, to_stride): (*mut T, isize),
    (rows, columns): (usize, usize),
    (whole_rows, whole_columns): (usize, usize),
) {
    // SAFETY: by contract.
    unsafe {
        by_element(
            from.add(whole_rows),
            from_stride,
            to.offset(whole_rows as isize * to_stride),
            to_stride,
            rows - whole_rows,
            columns,
        );
        by_element(
            from.offset(whole_columns as isize * from_stride),
            from_stride,
            to.add(whole_columns),
            to_stride,
            whole_rows,
            columns - whole_columns,
        );
    }
}
