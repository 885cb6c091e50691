//! Turning a matrix over: 16 x 16 (or 8 x 8) blocks of 32-bit elements go through registers, so
//! that both sides are touched by whole cache lines. Other sizes go element by element, in blocks
//! that stay in L1.
//!
//! ```text
//!   from: columns runs of elements, from_step apart        to: rows runs of elements, to_step apart
//!         to[r * to_step + c] = from[c * from_step + r]
//! ```

use crate::simd::Level;

/// Rows and columns of a block that goes element by element: both sides within L1.
const BLOCK: usize = 32;

/// Writes `to[r * to_step + c] = from[c * from_step + r]` for `r < rows`, `c < columns`. With
/// `stream`, whole lines bypass the caches where they can.
///
/// # Safety
/// All these elements of `from` are readable and those of `to` writable; the two do not overlap.
pub(crate) unsafe fn turn<T: Copy>(
    level: Level,
    from: *const T,
    from_step: isize,
    to: *mut T,
    to_step: isize,
    (rows, columns): (usize, usize),
    stream: bool,
) {
    // SAFETY: by contract; a level above portable is one that the machine has. Bits of 32 are moved
    // as such.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 {
            let (from, to) = (from.cast::<f32>(), to.cast::<f32>());
            match level {
                Level::Avx512 => {
                    lines::blocks16(from, from_step, to, to_step, (rows, columns), stream)
                }
                Level::Avx2 => lines::blocks8(from, from_step, to, to_step, (rows, columns)),
                Level::Portable => each(from, from_step, to, to_step, rows, columns),
            }
            return;
        }
        let _ = (level, stream);
        each(from, from_step, to, to_step, rows, columns);
    }
}

/// Element by element.
unsafe fn each<T: Copy>(
    from: *const T,
    from_step: isize,
    to: *mut T,
    to_step: isize,
    rows: usize,
    columns: usize,
) {
    for c0 in (0..columns).step_by(BLOCK) {
        let c1 = (c0 + BLOCK).min(columns) as isize;
        for r0 in (0..rows).step_by(BLOCK) {
            let r1 = (r0 + BLOCK).min(rows) as isize;
            for r in r0 as isize..r1 {
                for c in c0 as isize..c1 {
                    // SAFETY: by contract of `turn`.
                    unsafe { *to.offset(r * to_step + c) = *from.offset(c * from_step + r) };
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod lines {
    //! The blocks in registers. A block's lines are read along the source, interleaved in pairs of
    //! growing width, and written along the destination.

    use crate::simd::prefetch;
    use std::arch::x86_64::*;

    /// Runs of a large source that are so few that the rows below are needed before the processor
    /// asks for them by itself.
    const FEW: usize = 256;

    /// Blocks of 16 x 16; those at the edges read and write what there is of them.
    ///
    /// # Safety
    /// As `turn`; the processor has AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn blocks16(
        from: *const f32,
        from_step: isize,
        to: *mut f32,
        to_step: isize,
        (rows, columns): (usize, usize),
        stream: bool,
    ) {
        let ahead = stream && columns <= FEW;
        let stream = stream && (to as usize).is_multiple_of(64) && to_step % 16 == 0;
        for c in (0..columns).step_by(16) {
            for r in (0..rows).step_by(16) {
                let (high, wide) = ((rows - r).min(16), (columns - c).min(16));
                // SAFETY: blocks lie inside rows and columns, and masked elements are not touched.
                unsafe {
                    let (from, to) = (
                        from.offset(c as isize * from_step + r as isize),
                        to.offset(r as isize * to_step + c as isize),
                    );
                    if high == 16 && wide == 16 {
                        if ahead {
                            // the same runs' elements below the last row, which are next to be
                            // turned over
                            for i in 0..16 {
                                prefetch(from.wrapping_offset(i * from_step + rows as isize));
                            }
                        }
                        let mut v = [_mm512_setzero_ps(); 16];
                        for (i, v) in v.iter_mut().enumerate() {
                            *v = _mm512_loadu_ps(from.offset(i as isize * from_step));
                        }
                        for (i, v) in turned16(v).into_iter().enumerate() {
                            let line = to.offset(i as isize * to_step);
                            if stream {
                                _mm512_stream_ps(line, v)
                            } else {
                                _mm512_storeu_ps(line, v)
                            }
                        }
                    } else {
                        let first = |n: usize| ((1u32 << n) - 1) as u16;
                        // Lines that are not there are read as the last one: where nothing is
                        // mapped, even a load without lanes takes a microsecond.
                        let mut v = [_mm512_setzero_ps(); 16];
                        for (i, v) in v.iter_mut().enumerate() {
                            *v = _mm512_maskz_loadu_ps(
                                first(high),
                                from.offset(i.min(wide - 1) as isize * from_step),
                            );
                        }
                        for (i, v) in turned16(v).into_iter().enumerate().take(high) {
                            _mm512_mask_storeu_ps(to.offset(i as isize * to_step), first(wide), v);
                        }
                    }
                }
            }
        }
    }

    /// Line `i` of the result is element `i` of each line.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn turned16(v: [__m512; 16]) -> [__m512; 16] {
        // Within quarters of a register, four lines at a time: pairs of 32 bits, then pairs of 64.
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
        // Now the quarters themselves: quarter q of fours[4 k + i] holds elements 4 q + i of lines
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

    /// Blocks of 8 x 8, and what is left beside and below them element by element.
    ///
    /// # Safety
    /// As `turn`; the processor has AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn blocks8(
        from: *const f32,
        from_step: isize,
        to: *mut f32,
        to_step: isize,
        (rows, columns): (usize, usize),
    ) {
        let (whole_rows, whole_columns) = (rows / 8 * 8, columns / 8 * 8);
        for c in (0..whole_columns as isize).step_by(8) {
            for r in (0..whole_rows as isize).step_by(8) {
                // SAFETY: blocks lie inside rows and columns.
                unsafe {
                    let (from, to) = (from.offset(c * from_step + r), to.offset(r * to_step + c));
                    let mut v = [_mm256_setzero_ps(); 8];
                    for (i, v) in v.iter_mut().enumerate() {
                        *v = _mm256_loadu_ps(from.offset(i as isize * from_step));
                    }
                    for (i, v) in turned8(v).into_iter().enumerate() {
                        _mm256_storeu_ps(to.offset(i as isize * to_step), v);
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe {
            let (below, beside) = (to.offset(whole_rows as isize * to_step), to.add(whole_columns));
            super::each(
                from.add(whole_rows),
                from_step,
                below,
                to_step,
                rows - whole_rows,
                columns,
            );
            super::each(
                from.offset(whole_columns as isize * from_step),
                from_step,
                beside,
                to_step,
                whole_rows,
                columns - whole_columns,
            );
        }
    }

    /// Line `i` of the result is element `i` of each line.
    #[target_feature(enable = "avx")]
    #[inline]
    fn turned8(v: [__m256; 8]) -> [__m256; 8] {
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
            {
                for stream in [false, true] {
                    let (from_step, to_step) = (rows + 5, columns.next_multiple_of(16));
                    let from: Vec<T> = (0..columns * from_step).map(&make).collect();
                    let mut to: Vec<T> = vec![make(9999); rows * to_step];
                    // SAFETY: the vectors hold all rows and columns.
                    unsafe {
                        turn(
                            level,
                            from.as_ptr(),
                            from_step as isize,
                            to.as_mut_ptr(),
                            to_step as isize,
                            (rows, columns),
                            stream,
                        )
                    };
                    for (i, &value) in to.iter().enumerate() {
                        let (r, c) = (i / to_step, i % to_step);
                        let expected =
                            if c < columns { make(c * from_step + r) } else { make(9999) };
                        assert_eq!(value, expected, "{level:?} ({rows}, {columns}) at ({r}, {c})");
                    }
                }
            }
        }
    }

    #[test]
    fn every_element_arrives_and_nothing_else_is_written() {
        check(|i| i as u32);
        check(|i| i as u64);
        check(|i| i as u16);
    }
}
