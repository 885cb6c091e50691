//! Transposes of matrices.
//!
//! The naive form, `to[r * to_stride + c] = from[c * from_stride + r]`, touches one side by single
//! elements of different cache lines. Blocks of 16 x 16 (or 8 x 8) elements of 32 bits go through
//! registers instead, so that both sides are touched by whole cache lines. Elements of other sizes,
//! and those at the portable level of x86 and aarch64, go through registers of 16 bytes, in blocks
//! that stay in L1. A few source rows are interleaved element by element: a block would be mostly
//! empty.
//!
//! ```text
//!   from: `columns` rows of contiguous elements        to: `rows` rows of contiguous elements
//! ```

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod blocks;
#[cfg(target_feature = "simd128")]
mod wasm;

use crate::simd::Level;

/// Rows and columns of a block that goes element by element: both sides within L1.
const BLOCK: usize = 32;
/// Columns up to which source rows are interleaved without blocks.
pub(crate) const NARROW: usize = 4;

/// Writes `to[r * to_stride + c] = from[c * from_stride + r]` for `r < rows`, `c < columns`. With
/// `stream`, whole cache lines bypass the caches where they can.
///
/// # Safety
/// All these elements of `from` are readable and of `to` writable; the two do not overlap.
pub(crate) unsafe fn transpose<T: Copy>(
    level: Level,
    from: *const T,
    from_stride: isize,
    to: *mut T,
    to_stride: isize,
    (rows, columns): (usize, usize),
    stream: bool,
) {
    // SAFETY: by contract; a level above portable is one that the machine has. Bits of 32 are moved
    // as such.
    unsafe {
        match columns {
            2 => return interleave::<T, 2>(from, from_stride, to, to_stride, rows),
            3 => return interleave::<T, 3>(from, from_stride, to, to_stride, rows),
            NARROW => return interleave::<T, NARROW>(from, from_stride, to, to_stride, rows),
            _ => {}
        }
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 {
            let (from, to) = (from.cast::<f32>(), to.cast::<f32>());
            match level {
                Level::Avx512 => {
                    registers::blocks16(from, from_stride, to, to_stride, (rows, columns), stream)
                }
                Level::Avx2 => {
                    registers::blocks8(from, from_stride, to, to_stride, (rows, columns))
                }
                Level::Portable => {
                    blocks::blocks(from, from_stride, to, to_stride, (rows, columns))
                }
            }
            return;
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        {
            let _ = (level, stream);
            blocks::blocks(from, from_stride, to, to_stride, (rows, columns))
        }
        #[cfg(target_feature = "simd128")]
        if size_of::<T>() == 4 {
            wasm::blocks(from.cast(), from_stride, to.cast(), to_stride, (rows, columns));
            return;
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let _ = (level, stream);
            by_element(from, from_stride, to, to_stride, rows, columns);
        }
    }
}

/// `N` columns.
///
/// # Safety
/// As `transpose`.
unsafe fn interleave<T: Copy, const N: usize>(
    from: *const T,
    from_stride: isize,
    to: *mut T,
    to_stride: isize,
    rows: usize,
) {
    // SAFETY: by contract of `transpose`.
    let copy = |r: usize, to: *mut T| unsafe {
        for c in 0..N {
            *to.add(c) = *from.offset(c as isize * from_stride).add(r);
        }
    };
    if to_stride == N as isize {
        // Without gaps the compiler writes whole vectors.
        (0..rows).for_each(|r| copy(r, to.wrapping_add(r * N)));
    } else {
        (0..rows).for_each(|r| copy(r, to.wrapping_offset(r as isize * to_stride)));
    }
}

/// Element by element.
unsafe fn by_element<T: Copy>(
    from: *const T,
    from_stride: isize,
    to: *mut T,
    to_stride: isize,
    rows: usize,
    columns: usize,
) {
    for c0 in (0..columns).step_by(BLOCK) {
        let c1 = (c0 + BLOCK).min(columns) as isize;
        for r0 in (0..rows).step_by(BLOCK) {
            let r1 = (r0 + BLOCK).min(rows) as isize;
            for r in r0 as isize..r1 {
                for c in c0 as isize..c1 {
                    // SAFETY: by contract of `transpose`.
                    unsafe { *to.offset(r * to_stride + c) = *from.offset(c * from_stride + r) };
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod registers {
    //! Blocks in registers: the rows of a block are read along the source, interleaved in pairs of
    //! growing width, and written along the destination.

    use super::blocks::beside_and_below;
    use crate::simd::prefetch;
    use std::arch::x86_64::*;

    /// Source rows up to which the next block's elements are needed before the processor's own
    /// prefetching has reached them.
    const MAX_PREFETCHED_COLUMNS: usize = 256;

    /// Blocks of 16 x 16; those at the edges read and write only the elements that exist.
    ///
    /// # Safety
    /// As `transpose`; the processor has AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn blocks16(
        from: *const f32,
        from_stride: isize,
        to: *mut f32,
        to_stride: isize,
        (rows, columns): (usize, usize),
        stream: bool,
    ) {
        let prefetches = stream && columns <= MAX_PREFETCHED_COLUMNS;
        let stream = stream && (to as usize).is_multiple_of(64) && to_stride % 16 == 0;
        // The last blocks begin earlier, so that they are whole: masked stores take three times as
        // long as moving some elements twice.
        let start = |i: usize, n: usize| if i + 16 > n && n >= 16 && !stream { n - 16 } else { i };
        for c in (0..columns).step_by(16) {
            let c = start(c, columns);
            for r in (0..rows).step_by(16) {
                let r = start(r, rows);
                let (height, width) = ((rows - r).min(16), (columns - c).min(16));
                // SAFETY: blocks are inside rows and columns, and masked elements are not touched.
                unsafe {
                    let (from, to) = (
                        from.offset(c as isize * from_stride + r as isize),
                        to.offset(r as isize * to_stride + c as isize),
                    );
                    if height == 16 && width == 16 {
                        if prefetches {
                            // The elements of the next block of rows.
                            for i in 0..16 {
                                prefetch(from.wrapping_offset(i * from_stride + rows as isize));
                            }
                        }
                        let mut v = [_mm512_setzero_ps(); 16];
                        for (i, v) in v.iter_mut().enumerate() {
                            *v = _mm512_loadu_ps(from.offset(i as isize * from_stride));
                        }
                        // Loops by number keep the rows in registers, which iterators do not.
                        let v = transposed16(v);
                        let mut i = 0;
                        if stream {
                            while i < 16 {
                                _mm512_stream_ps(to.offset(i as isize * to_stride), v[i]);
                                i += 1;
                            }
                        } else {
                            while i < 16 {
                                _mm512_storeu_ps(to.offset(i as isize * to_stride), v[i]);
                                i += 1;
                            }
                        }
                    } else {
                        let first = |n: usize| ((1u32 << n) - 1) as u16;
                        // Rows beyond the last are read as the last one: a load from an unmapped
                        // page takes a microsecond even if no lane is read.
                        let mut v = [_mm512_setzero_ps(); 16];
                        for (i, v) in v.iter_mut().enumerate() {
                            *v = _mm512_maskz_loadu_ps(
                                first(height),
                                from.offset(i.min(width - 1) as isize * from_stride),
                            );
                        }
                        let v = transposed16(v);
                        let mut i = 0;
                        while i < 16 {
                            let to = to.wrapping_offset(i as isize * to_stride);
                            if i < height {
                                _mm512_mask_storeu_ps(to, first(width), v[i]);
                            }
                            i += 1;
                        }
                    }
                }
            }
        }
    }

    /// Row `i` of the result is element `i` of each row.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn transposed16(v: [__m512; 16]) -> [__m512; 16] {
        // Within quarters of a register, four rows at a time: pairs of 32 bits, then pairs of 64.
        let mut fours = [_mm512_setzero_ps(); 16];
        for i in (0..16).step_by(4) {
            let (a, b) = (
                _mm512_castps_pd(_mm512_unpacklo_ps(v[i], v[i + 1])),
                _mm512_castps_pd(_mm512_unpacklo_ps(v[i + 2], v[i + 3])),
            );
            let (c, d) = (
                _mm512_castps_pd(_mm512_unpackhi_ps(v[i], v[i + 1])),
                _mm512_castps_pd(_mm512_unpackhi_ps(v[i + 2], v[i + 3])),
            );
            fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
            fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
            fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
        }
        // Now the quarters themselves: quarter q of fours[4 k + i] holds elements 4 q + i of rows
        // 4 k .. 4 k + 4.
        let mut out = [_mm512_setzero_ps(); 16];
        for i in 0..4 {
            let (a, b, c, d) = (fours[i], fours[4 + i], fours[8 + i], fours[12 + i]);
            let (even_low, odd_low) =
                (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            let (even_high, odd_high) =
                (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
            out[i] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
            out[4 + i] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
            out[8 + i] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
            out[12 + i] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
        }
        out
    }

    /// Blocks of 8 x 8, and the elements beside and below them one by one.
    ///
    /// # Safety
    /// As `transpose`; the processor has AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn blocks8(
        from: *const f32,
        from_stride: isize,
        to: *mut f32,
        to_stride: isize,
        (rows, columns): (usize, usize),
    ) {
        let (whole_rows, whole_columns) = (rows / 8 * 8, columns / 8 * 8);
        for c in (0..whole_columns as isize).step_by(8) {
            for r in (0..whole_rows as isize).step_by(8) {
                // SAFETY: blocks are inside rows and columns.
                unsafe {
                    let (from, to) =
                        (from.offset(c * from_stride + r), to.offset(r * to_stride + c));
                    let mut v = [_mm256_setzero_ps(); 8];
                    for (i, v) in v.iter_mut().enumerate() {
                        *v = _mm256_loadu_ps(from.offset(i as isize * from_stride));
                    }
                    let v = transposed8(v);
                    let mut i = 0;
                    while i < 8 {
                        _mm256_storeu_ps(to.offset(i as isize * to_stride), v[i]);
                        i += 1;
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

    /// Row `i` of the result is element `i` of each row.
    #[target_feature(enable = "avx")]
    #[inline]
    fn transposed8(v: [__m256; 8]) -> [__m256; 8] {
        let mut fours = [_mm256_setzero_ps(); 8];
        for i in [0, 4] {
            let (a, b) = (
                _mm256_castps_pd(_mm256_unpacklo_ps(v[i], v[i + 1])),
                _mm256_castps_pd(_mm256_unpacklo_ps(v[i + 2], v[i + 3])),
            );
            let (c, d) = (
                _mm256_castps_pd(_mm256_unpackhi_ps(v[i], v[i + 1])),
                _mm256_castps_pd(_mm256_unpackhi_ps(v[i + 2], v[i + 3])),
            );
            fours[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            fours[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
            fours[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
            fours[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));
        }
        let mut out = [_mm256_setzero_ps(); 8];
        for i in 0..4 {
            out[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[4 + i]);
            out[4 + i] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[4 + i]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + PartialEq + std::fmt::Debug>(make: impl Fn(usize) -> T) {
        for level in Level::available() {
            for (rows, columns) in
                [(1usize, 1usize), (3, 40), (40, 3), (8, 8), (16, 16), (17, 33), (64, 48), (65, 31)]
                    .into_iter()
                    .chain([(1, 2), (70, 2), (14, 3), (33, 4)])
            {
                for stream in [false, true] {
                    let gap = if stream { 16 } else { 1 };
                    let (from_stride, to_stride) = (rows + 5, columns.next_multiple_of(gap));
                    let from: Vec<T> = (0..columns * from_stride).map(&make).collect();
                    let mut to: Vec<T> = vec![make(9999); rows * to_stride];
                    // SAFETY: the vectors hold all rows and columns.
                    unsafe {
                        transpose(
                            level,
                            from.as_ptr(),
                            from_stride as isize,
                            to.as_mut_ptr(),
                            to_stride as isize,
                            (rows, columns),
                            stream,
                        )
                    };
                    for (i, &value) in to.iter().enumerate() {
                        let (r, c) = (i / to_stride, i % to_stride);
                        let expected =
                            if c < columns { make(c * from_stride + r) } else { make(9999) };
                        assert_eq!(value, expected, "{level:?} ({rows}, {columns}) at ({r}, {c})");
                    }
                }
            }
        }
    }

    #[test]
    fn every_element_is_moved_and_no_other_is_written() {
        check(|i| i as u32);
        check(|i| i as u64);
        check(|i| i as u16);
    }
}
