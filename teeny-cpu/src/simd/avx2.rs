//! Eight f32 or four f64: AVX2 with FMA and F16C.

use super::{F32s, F64s, Half, Work};
use std::arch::x86_64::*;

/// Runs `work` with this level's vector and instructions.
///
/// # Safety
/// The processor must have the features named here.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn enter<W: Work>(work: W) -> W::Out {
    work.run::<V>()
}

/// 8 lanes. Named only by `enter`, so its existence proves the features.
#[derive(Clone, Copy)]
pub struct V(__m256);

/// 4 lanes of f64, by the same proof.
#[derive(Clone, Copy)]
pub struct D(__m256d);

/// The mask of the first `n` lanes of f32, by the sign bits. A lane of f64 counts as two.
#[inline(always)]
fn first(n: usize) -> __m256i {
    static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: n is at most 8, so the eight values are inside.
    unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(8 - n.min(8)).cast()) }
}

register!(V of 8 f32: _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_stream_ps, _mm256_add_ps, _mm256_mul_ps, _mm256_fmadd_ps,
|p, n| _mm256_maskload_ps(p, first(n)), |p, n, v| _mm256_maskstore_ps(p, first(n), v),
|t| {
    let four = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps::<1>(t));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
},
|lo, hi| {
    let pairs = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(lo, hi));
    _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(pairs))
}, true);
register!(D of 4 f64: _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_stream_pd, _mm256_add_pd, _mm256_mul_pd, _mm256_fmadd_pd,
|p, n| _mm256_maskload_pd(p, first(2 * n)), |p, n, v| _mm256_maskstore_pd(p, first(2 * n), v),
|t| {
    let two = _mm_add_pd(_mm256_castpd256_pd128(t), _mm256_extractf128_pd::<1>(t));
    _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
},
|lo, hi| _mm256_permute4x64_pd::<0xd8>(_mm256_unpacklo_pd(lo, hi)), true);

impl V {
    #[inline(always)]
    fn sums([a, b, c, d]: [V; 4]) -> [f32; 4] {
        op!({
            let x = _mm256_hadd_ps(_mm256_hadd_ps(a.0, b.0), _mm256_hadd_ps(c.0, d.0));
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), x);
            out
        })
    }
}

impl D {
    #[inline(always)]
    fn sums([a, b, c, d]: [D; 4]) -> [f64; 4] {
        op!({
            let (ab, cd) = (_mm256_hadd_pd(a.0, b.0), _mm256_hadd_pd(c.0, d.0));
            let x = _mm256_add_pd(
                _mm256_permute2f128_pd::<0x20>(ab, cd),
                _mm256_permute2f128_pd::<0x31>(ab, cd),
            );
            let mut out = [0.0; 4];
            _mm256_storeu_pd(out.as_mut_ptr(), x);
            out
        })
    }
}

impl F32s for V {
    type F64s = D;

    #[inline(always)]
    fn widen(self) -> (D, D) {
        op!((
            D(_mm256_cvtps_pd(_mm256_castps256_ps128(self.0))),
            D(_mm256_cvtps_pd(_mm256_extractf128_ps::<1>(self.0)))
        ))
    }
    #[inline(always)]
    fn narrow(low: D, high: D) -> Self {
        V(op!(_mm256_set_m128(_mm256_cvtpd_ps(high.0), _mm256_cvtpd_ps(low.0))))
    }
    #[inline(always)]
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        V(op!({
            let x = _mm_loadu_si128(p.cast());
            if H::IS_BF16 {
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x)))
            } else {
                _mm256_cvtph_ps(x)
            }
        }))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        op!({
            let y = if H::IS_BF16 {
                let x = _mm256_castps_si256(self.0);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(x), _mm256_set1_epi32(1));
                let up = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7fff)), odd);
                let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
                let quiet = _mm256_or_si256(x, _mm256_set1_epi32(0x40_0000));
                let y = _mm256_srai_epi32::<16>(_mm256_blendv_epi8(up, quiet, nan));
                // The halves of both are packed side by side: the first and the third quarter.
                _mm256_permute4x64_epi64::<0b1000>(_mm256_packs_epi32(y, y))
            } else {
                _mm256_castsi128_si256(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0))
            };
            _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(y))
        })
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        op!({
            let four =
                _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn call<W: Work>(work: W) -> W::Out {
        // SAFETY: the vector's existence proves the features.
        unsafe { enter(work) }
    }
    #[inline(always)]
    fn part(self, n: usize) -> Self {
        V(op!(_mm256_and_ps(self.0, _mm256_castsi256_ps(first(n)))))
    }

    #[inline(always)]
    fn lookup(table: &[f32; 16], index: __m256i) -> Self {
        V(op!({
            let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr()), index);
            let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr().add(8)), index);
            // The fourth bit as a sign.
            let is_high = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
            _mm256_blendv_ps(low, high, is_high)
        }))
    }

    functions! { V, __m256i, __m256, i32:
        lanes {
            sub(a, o) _mm256_sub_ps(a, o);
            div(a, o) _mm256_div_ps(a, o);
            min(a, o) _mm256_min_ps(a, o);
            max(a, o) _mm256_max_ps(a, o);
            sqrt(a) _mm256_sqrt_ps(a);
            round(a) _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
            floor(a) _mm256_floor_ps(a);
        }
        tests {
            lt(a, o) _mm256_cmp_ps::<_CMP_LT_OQ>(a, o);
            eq(a, o) _mm256_cmp_ps::<_CMP_EQ_OQ>(a, o);
        }
        select(m, a, b) _mm256_blendv_ps(b, a, m);
        any(m) _mm256_movemask_ps(m) != 0;
        bits(x) _mm256_castps_si256(x);
        from_bits(i) _mm256_castsi256_ps(i);
        i_splat(x) _mm256_set1_epi32(x);
        integers {
            i_add(a, b) _mm256_add_epi32(a, b);
            i_sub(a, b) _mm256_sub_epi32(a, b);
            i_and(a, b) _mm256_and_si256(a, b);
            i_xor(a, b) _mm256_xor_si256(a, b);
        }
        shifts by N {
            i_shl(a) _mm256_sll_epi32(a, _mm_cvtsi32_si128(N as i32));
            i_sra(a) _mm256_sra_epi32(a, _mm_cvtsi32_si128(N as i32));
        }
    }
    conversions! { V, __m256i:
        to_i32(x) _mm256_cvtps_epi32(x);
        from_i32(i) _mm256_cvtepi32_ps(i);
    }
}

impl F64s for D {
    functions! { D, __m256i, __m256d, i64:
        lanes {
            sub(a, o) _mm256_sub_pd(a, o);
            div(a, o) _mm256_div_pd(a, o);
            min(a, o) _mm256_min_pd(a, o);
            max(a, o) _mm256_max_pd(a, o);
            sqrt(a) _mm256_sqrt_pd(a);
            round(a) _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
            floor(a) _mm256_floor_pd(a);
        }
        tests {
            lt(a, o) _mm256_cmp_pd::<_CMP_LT_OQ>(a, o);
            eq(a, o) _mm256_cmp_pd::<_CMP_EQ_OQ>(a, o);
        }
        select(m, a, b) _mm256_blendv_pd(b, a, m);
        any(m) _mm256_movemask_pd(m) != 0;
        bits(x) _mm256_castpd_si256(x);
        from_bits(i) _mm256_castsi256_pd(i);
        i_splat(x) _mm256_set1_epi64x(x);
        integers {
            i_add(a, b) _mm256_add_epi64(a, b);
            i_sub(a, b) _mm256_sub_epi64(a, b);
            i_and(a, b) _mm256_and_si256(a, b);
            i_xor(a, b) _mm256_xor_si256(a, b);
        }
        shifts by N {
            i_shl(a) _mm256_sll_epi64(a, _mm_cvtsi32_si128(N as i32));
            i_shr(a) _mm256_srl_epi64(a, _mm_cvtsi32_si128(N as i32));
        }
    }
}
