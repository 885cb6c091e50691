//! Pairs of bf16 in the lanes of a vector of f32: AVX-512 BF16.
//!
//! `vdpbf16ps` adds the two products of a pair to a lane of f32: twice the products of an FMA. The
//! products are exact in f32 and the sums are rounded to nearest, but subnormal numbers count as
//! zeros, operands and results. Callers check that none occur (`matmul::half`).

use super::{Lanes, PairWork};
use std::arch::x86_64::*;

/// Runs `work` with vectors of pairs.
///
/// # Safety
/// The processor must have the features named here.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
pub(super) unsafe fn enter<W: PairWork>(work: W) {
    work.run::<V>();
}

/// 16 lanes of f32 or of pairs of bf16. Named only by `enter`, so its existence proves the
/// features.
#[derive(Clone, Copy)]
pub struct V(__m512);

impl V {
    #[inline(always)]
    fn bits(self) -> __m512bh {
        // SAFETY: both are 64 bytes of any value.
        unsafe { std::mem::transmute(self.0) }
    }
    #[inline(always)]
    fn sums(x: [V; 4]) -> [f32; 4] {
        super::avx512::sums([x[0].0, x[1].0, x[2].0, x[3].0])
    }
}

/// `c` plus the products of pairs.
#[inline(always)]
unsafe fn dot(a: V, b: V, c: __m512) -> __m512 {
    // SAFETY: as of any vector here.
    unsafe { _mm512_dpbf16_ps(c, a.bits(), b.bits()) }
}

/// The mask of the first `n` lanes, `n` up to 16.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as u16
}

/// The smaller of the magnitudes but zero of `least` and of `x`, as bits of bf16 less one.
#[inline(always)]
unsafe fn smaller(least: __m512i, x: __m512i) -> __m512i {
    op!({
        let magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
        _mm512_min_epu16(least, _mm512_add_epi16(magnitude, _mm512_set1_epi16(-1)))
    })
}

/// The smallest of 32 numbers.
#[inline(always)]
unsafe fn smallest_lane(x: __m512i) -> u16 {
    let mut lanes = [0u16; 32];
    op!(_mm512_storeu_si512(lanes.as_mut_ptr().cast(), x));
    lanes.into_iter().fold(u16::MAX, u16::min)
}

/// The smallest magnitude but zero of `lines` lines of `len` numbers, as bits of bf16 less one;
/// `u16::MAX` if all are zeros.
///
/// # Safety
/// The processor must have the features named here; the lines are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn smallest(x: *const u16, stride: isize, [lines, len]: [usize; 2]) -> u16 {
    let mut least = _mm512_set1_epi16(-1);
    for i in 0..lines {
        let line = x.wrapping_offset(i as isize * stride);
        let mut j = 0;
        // SAFETY: by contract; masked lanes are not read.
        unsafe {
            while j + 32 <= len {
                least = smaller(least, _mm512_loadu_si512(line.add(j).cast()));
                j += 32;
            }
            if j < len {
                let part = (1u32 << (len - j)) - 1;
                least = smaller(least, _mm512_maskz_loadu_epi16(part, line.add(j).cast()));
            }
        }
    }
    // SAFETY: by contract.
    unsafe { smallest_lane(least) }
}

/// Writes `depth` lines of `len` numbers, two by two, as lines of `step` pairs, the last with zeros
/// if their number is odd. Returns what [`smallest`] does.
///
/// # Safety
/// As [`smallest`], and lines of pairs are writable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn interleave(
    x: *const u16,
    stride: isize,
    [depth, len]: [usize; 2],
    to: *mut u32,
    step: usize,
) -> u16 {
    let mut least = _mm512_set1_epi16(-1);
    for p in (0..depth).step_by(2) {
        let low = x.wrapping_offset(p as isize * stride);
        let high = low.wrapping_offset(stride);
        let to = to.wrapping_add(p / 2 * step);
        let mut j = 0;
        while j < len {
            let part = if len - j < 16 { first(len - j) } else { u16::MAX };
            // SAFETY: by contract; masked lanes are not touched.
            unsafe {
                let a = _mm256_maskz_loadu_epi16(part, low.wrapping_add(j).cast());
                let exists = if p + 1 < depth { part } else { 0 };
                let b = _mm256_maskz_loadu_epi16(exists, high.wrapping_add(j).cast());
                let upper = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(b));
                let pairs = _mm512_or_si512(upper, _mm512_cvtepu16_epi32(a));
                least = smaller(least, pairs);
                _mm512_mask_storeu_epi32(to.wrapping_add(j).cast(), part, pairs);
            }
            j += 16;
        }
    }
    // SAFETY: by contract.
    unsafe { smallest_lane(least) }
}

impl Lanes<f32> for V {
    const LANES: usize = 16;
    const NATIVE: bool = true;
    #[inline(always)]
    fn splat(x: f32) -> Self {
        V(op!(_mm512_set1_ps(x)))
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        V(op!(_mm512_loadu_ps(p)))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        op!(_mm512_storeu_ps(p, self.0))
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        V(op!(_mm512_maskz_loadu_ps(first(n), p)))
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        op!(_mm512_mask_storeu_ps(p, first(n), self.0))
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        V(op!(_mm512_add_ps(self.0, o.0)))
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        V(op!(_mm512_mul_ps(self.0, o.0)))
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        V(op!(dot(self, a, b.0)))
    }
    #[inline(always)]
    fn total(self) -> f32 {
        let zero = V(op!(_mm512_setzero_ps()));
        V::sums([self, zero, zero, zero])[0]
    }
    #[inline(always)]
    fn totals(x: [Self; 4]) -> [f32; 4] {
        V::sums(x)
    }
    #[inline(always)]
    fn even(self, next: Self) -> Self {
        let order =
            op!(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
        V(op!(_mm512_permutex2var_ps(self.0, order, next.0)))
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        op!(_mm512_stream_ps(p, self.0))
    }
}
