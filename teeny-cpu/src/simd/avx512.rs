//! Sixteen f32 or eight f64: AVX-512 with F, BW, DQ and VL.

use super::{F32s, F64s, Half, Work};
use std::arch::x86_64::*;

/// Runs `work` with this level's vector and instructions.
///
/// # Safety
/// The processor must have the features named here.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn enter<W: Work>(work: W) -> W::Out {
    work.run::<V>()
}

/// 16 lanes. Named only by `enter`, so its existence proves the features.
#[derive(Clone, Copy)]
pub struct V(__m512);

/// 8 lanes of f64, by the same proof.
#[derive(Clone, Copy)]
pub struct D(__m512d);

/// The mask of the first `n` lanes, `n` up to 16.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as u16
}

register!(V of 16 f32: _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_stream_ps, _mm512_add_ps, _mm512_mul_ps, _mm512_fmadd_ps,
|p, n| _mm512_maskz_loadu_ps(first(n), p), |p, n, v| _mm512_mask_storeu_ps(p, first(n), v),
|t| {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(t), _mm512_extractf32x8_ps::<1>(t));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
},
|lo, hi| {
    let lanes = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    _mm512_permutex2var_ps(lo, lanes, hi)
}, true);
register!(D of 8 f64: _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_stream_pd, _mm512_add_pd, _mm512_mul_pd, _mm512_fmadd_pd,
|p, n| _mm512_maskz_loadu_pd(first(n) as u8, p), |p, n, v| _mm512_mask_storeu_pd(p, first(n) as u8, v),
|t| {
    let four = _mm256_add_pd(_mm512_castpd512_pd256(t), _mm512_extractf64x4_pd::<1>(t));
    let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
    _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
},
|lo, hi| _mm512_permutex2var_pd(lo, _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), hi), true);

/// The classes of `vfpclass`: both zeros and both infinities.
const ZERO_OR_INFINITE: i32 = 0x1e;

/// The sums of all lanes of each of four vectors.
#[inline(always)]
pub(super) fn sums([a, b, c, d]: [__m512; 4]) -> [f32; 4] {
    op!({
        // Quarters of a and b, then of all four, then the lanes of each quarter.
        let (low, high) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
        let ab = _mm512_add_ps(low, high);
        let (low, high) = (_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
        let cd = _mm512_add_ps(low, high);
        let x = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0x88>(ab, cd),
            _mm512_shuffle_f32x4::<0xdd>(ab, cd),
        );
        let x = _mm512_add_ps(x, _mm512_permute_ps::<0b01_00_11_10>(x));
        let x = _mm512_add_ps(x, _mm512_permute_ps::<0b10_11_00_01>(x));
        let order = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
        let x = _mm512_castps512_ps128(_mm512_permutexvar_ps(order, x));
        let mut out = [0.0; 4];
        _mm_storeu_ps(out.as_mut_ptr(), x);
        out
    })
}

impl V {
    #[inline(always)]
    fn sums(x: [V; 4]) -> [f32; 4] {
        sums([x[0].0, x[1].0, x[2].0, x[3].0])
    }
}

impl D {
    #[inline(always)]
    fn sums([a, b, c, d]: [D; 4]) -> [f64; 4] {
        op!({
            let (low, high) =
                (_mm512_shuffle_f64x2::<0x44>(a.0, b.0), _mm512_shuffle_f64x2::<0xee>(a.0, b.0));
            let ab = _mm512_add_pd(low, high);
            let (low, high) =
                (_mm512_shuffle_f64x2::<0x44>(c.0, d.0), _mm512_shuffle_f64x2::<0xee>(c.0, d.0));
            let cd = _mm512_add_pd(low, high);
            let x = _mm512_add_pd(
                _mm512_shuffle_f64x2::<0x88>(ab, cd),
                _mm512_shuffle_f64x2::<0xdd>(ab, cd),
            );
            let x = _mm512_add_pd(x, _mm512_permute_pd::<0x55>(x));
            let x = _mm512_permutexvar_pd(_mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6), x);
            let mut out = [0.0; 4];
            _mm256_storeu_pd(out.as_mut_ptr(), _mm512_castpd512_pd256(x));
            out
        })
    }
}

impl F32s for V {
    type F64s = D;

    #[inline(always)]
    fn call<W: Work>(work: W) -> W::Out {
        // SAFETY: the vector's existence proves the features.
        unsafe { enter(work) }
    }
    #[inline(always)]
    fn part(self, n: usize) -> Self {
        V(op!(_mm512_maskz_mov_ps(first(n), self.0)))
    }
    #[inline(always)]
    fn widen(self) -> (D, D) {
        op!((
            D(_mm512_cvtps_pd(_mm512_castps512_ps256(self.0))),
            D(_mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(self.0)))
        ))
    }
    #[inline(always)]
    fn narrow(low: D, high: D) -> Self {
        V(op!(_mm512_insertf32x8::<1>(
            _mm512_castps256_ps512(_mm512_cvtpd_ps(low.0)),
            _mm512_cvtpd_ps(high.0)
        )))
    }
    #[inline(always)]
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        V(op!({
            let x = _mm256_loadu_si256(p.cast());
            if H::IS_BF16 {
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x)))
            } else {
                _mm512_cvtph_ps(x)
            }
        }))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        op!({
            let y = if H::IS_BF16 {
                let x = _mm512_castps_si512(self.0);
                let upper = _mm512_srli_epi32::<16>(x);
                let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
                let up = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
                let quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
                let y = _mm512_mask_blend_epi32(nan, _mm512_srli_epi32::<16>(up), quiet);
                _mm512_cvtepi32_epi16(y)
            } else {
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)
            };
            _mm256_storeu_si256(p.cast(), y)
        })
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        op!(_mm512_reduce_max_ps(self.0))
    }

    #[inline(always)]
    fn rsqrt(self) -> Self {
        V(op!({
            // An estimate of 14 bits and one step of third order, `1 - x y²` with what x y loses by
            // rounding. Zeros and infinities keep their estimate, as their product with it is NaN.
            let (x, y, one) = (self.0, _mm512_rsqrt14_ps(self.0), _mm512_set1_ps(1.0));
            let xy = _mm512_mul_ps(x, y);
            let lost = _mm512_fmsub_ps(x, y, xy);
            let rest = _mm512_fnmadd_ps(lost, y, _mm512_fnmadd_ps(xy, y, one));
            let half = _mm512_fmadd_ps(rest, _mm512_set1_ps(0.375), _mm512_set1_ps(0.5));
            let by = _mm512_mul_ps(y, rest);
            _mm512_mask3_fmadd_ps(by, half, y, !_mm512_fpclass_ps_mask::<ZERO_OR_INFINITE>(x))
        }))
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        V(op!(_mm512_scalef_ps(self.0, n.0)))
    }
    #[inline(always)]
    fn lookup(table: &[f32; 16], index: __m512i) -> Self {
        V(op!(_mm512_permutexvar_ps(index, _mm512_loadu_ps(table.as_ptr()))))
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        op!({
            let m = _mm512_getmant_ps::<_MM_MANT_NORM_P75_1P5, _MM_MANT_SIGN_NAN>(self.0);
            (V(_mm512_sub_ps(_mm512_getexp_ps(self.0), _mm512_getexp_ps(m))), V(m))
        })
    }

    functions! { V, __m512i, __mmask16, i32:
        lanes {
            sub(a, o) _mm512_sub_ps(a, o);
            div(a, o) _mm512_div_ps(a, o);
            min(a, o) _mm512_min_ps(a, o);
            max(a, o) _mm512_max_ps(a, o);
            sqrt(a) _mm512_sqrt_ps(a);
            round(a) _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
            floor(a) _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
        }
        tests {
            lt(a, o) _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, o);
            eq(a, o) _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, o);
        }
        select(m, a, b) _mm512_mask_blend_ps(m, b, a);
        any(m) m != 0;
        bits(x) _mm512_castps_si512(x);
        from_bits(i) _mm512_castsi512_ps(i);
        i_splat(x) _mm512_set1_epi32(x);
        integers {
            i_add(a, b) _mm512_add_epi32(a, b);
            i_sub(a, b) _mm512_sub_epi32(a, b);
            i_and(a, b) _mm512_and_si512(a, b);
            i_xor(a, b) _mm512_xor_si512(a, b);
        }
        shifts by N {
            i_shl(a) _mm512_sll_epi32(a, _mm_cvtsi32_si128(N as i32));
            i_sra(a) _mm512_sra_epi32(a, _mm_cvtsi32_si128(N as i32));
        }
    }
    conversions! { V, __m512i:
        to_i32(x) _mm512_cvtps_epi32(x);
        from_i32(i) _mm512_cvtepi32_ps(i);
    }
}

impl F64s for D {
    const TABLES: bool = true;

    #[inline(always)]
    fn rsqrt(self) -> Self {
        D(op!({
            // As for f32, in two steps: from 42 bits the second is of second order.
            let (x, y, one) = (self.0, _mm512_rsqrt14_pd(self.0), _mm512_set1_pd(1.0));
            let usual = !_mm512_fpclass_pd_mask::<ZERO_OR_INFINITE>(x);
            let half = _mm512_set1_pd(0.5);
            let rest = _mm512_fnmadd_pd(_mm512_mul_pd(x, y), y, one);
            let more = _mm512_fmadd_pd(rest, _mm512_set1_pd(0.375), half);
            let y = _mm512_mask3_fmadd_pd(_mm512_mul_pd(y, rest), more, y, usual);
            let xy = _mm512_mul_pd(x, y);
            let lost = _mm512_fmsub_pd(x, y, xy);
            let rest = _mm512_fnmadd_pd(lost, y, _mm512_fnmadd_pd(xy, y, one));
            _mm512_mask3_fmadd_pd(_mm512_mul_pd(y, half), rest, y, usual)
        }))
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        D(op!(_mm512_scalef_pd(self.0, n.0)))
    }
    #[inline(always)]
    fn lookup(table: &[f64; 16], index: __m512i) -> Self {
        D(op!({
            let p = table.as_ptr();
            _mm512_permutex2var_pd(_mm512_loadu_pd(p), index, _mm512_loadu_pd(p.add(8)))
        }))
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        op!({
            let m = _mm512_getmant_pd::<_MM_MANT_NORM_P75_1P5, _MM_MANT_SIGN_NAN>(self.0);
            (D(_mm512_sub_pd(_mm512_getexp_pd(self.0), _mm512_getexp_pd(m))), D(m))
        })
    }

    functions! { D, __m512i, __mmask8, i64:
        lanes {
            sub(a, o) _mm512_sub_pd(a, o);
            div(a, o) _mm512_div_pd(a, o);
            min(a, o) _mm512_min_pd(a, o);
            max(a, o) _mm512_max_pd(a, o);
            sqrt(a) _mm512_sqrt_pd(a);
            round(a) _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
            floor(a) _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
        }
        tests {
            lt(a, o) _mm512_cmp_pd_mask::<_CMP_LT_OQ>(a, o);
            eq(a, o) _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(a, o);
        }
        select(m, a, b) _mm512_mask_blend_pd(m, b, a);
        any(m) m != 0;
        bits(x) _mm512_castpd_si512(x);
        from_bits(i) _mm512_castsi512_pd(i);
        i_splat(x) _mm512_set1_epi64(x);
        integers {
            i_add(a, b) _mm512_add_epi64(a, b);
            i_sub(a, b) _mm512_sub_epi64(a, b);
            i_and(a, b) _mm512_and_si512(a, b);
            i_xor(a, b) _mm512_xor_si512(a, b);
        }
        shifts by N {
            i_shl(a) _mm512_sll_epi64(a, _mm_cvtsi32_si128(N as i32));
            i_shr(a) _mm512_srl_epi64(a, _mm_cvtsi32_si128(N as i32));
        }
    }
}
