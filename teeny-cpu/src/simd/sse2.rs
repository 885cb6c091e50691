//! Four f32 or two f64: SSE2, which every x86-64 has.

use super::{F32s, F64s, Half, Lanes, Work};
use std::arch::x86_64::*;

/// 4 lanes.
#[derive(Clone, Copy)]
pub struct V(__m128);

/// 2 lanes of f64.
#[derive(Clone, Copy)]
pub struct D(__m128d);

/// The mask of the first `n` lanes.
#[inline(always)]
fn first(n: usize) -> __m128 {
    static ONES_THEN_ZEROS: [i32; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];
    // SAFETY: n is at most 4, so the four values are inside.
    unsafe { _mm_loadu_ps(ONES_THEN_ZEROS.as_ptr().add(4 - n.min(4)).cast()) }
}

/// `n` values at `p`, then zeros.
#[inline(always)]
unsafe fn read(p: *const f32, n: usize) -> __m128 {
    let mut lanes = [0.0f32; 4];
    // SAFETY: the caller promises n readable values.
    unsafe {
        let mut i = 0;
        while i < n {
            lanes[i] = *p.add(i);
            i += 1;
        }
        _mm_loadu_ps(lanes.as_ptr())
    }
}

/// The first `n` lanes to `p`.
#[inline(always)]
unsafe fn write(p: *mut f32, n: usize, v: __m128) {
    let mut lanes = [0.0f32; 4];
    // SAFETY: the caller promises n writable values.
    unsafe {
        _mm_storeu_ps(lanes.as_mut_ptr(), v);
        let mut i = 0;
        while i < n {
            *p.add(i) = lanes[i];
            i += 1;
        }
    }
}

/// `a * b + c`, the product exact in f64: without an FMA instruction `f32::mul_add` is a slow call.
#[inline(always)]
unsafe fn fma(a: __m128, b: __m128, c: __m128) -> __m128 {
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        let low = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c));
        let [a, b, c] = [_mm_movehl_ps(a, a), _mm_movehl_ps(b, b), _mm_movehl_ps(c, c)];
        let high = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), _mm_cvtps_pd(c));
        _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high))
    }
}

/// `a * b + c`, rounded twice.
#[inline(always)]
unsafe fn fma_pd(a: __m128d, b: __m128d, c: __m128d) -> __m128d {
    // SAFETY: every x86-64 has SSE2.
    unsafe { _mm_add_pd(_mm_mul_pd(a, b), c) }
}

register!(V of 4 f32: _mm_set1_ps, _mm_loadu_ps, _mm_storeu_ps, _mm_stream_ps, _mm_add_ps, _mm_mul_ps, fma,
|p, n| read(p, n), |p, n, v| write(p, n, v),
|t| {
    let two = _mm_add_ps(t, _mm_movehl_ps(t, t));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
},
|lo, hi| _mm_shuffle_ps::<0x88>(lo, hi), false);
register!(D of 2 f64: _mm_set1_pd, _mm_loadu_pd, _mm_storeu_pd, _mm_stream_pd, _mm_add_pd, _mm_mul_pd, fma_pd,
|p, n| match n { 0 => _mm_setzero_pd(), 1 => _mm_load_sd(p), _ => _mm_loadu_pd(p) },
|p, n, v| match n { 0 => {}, 1 => _mm_store_sd(p, v), _ => _mm_storeu_pd(p, v) },
|t| _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t))),
|lo, hi| _mm_unpacklo_pd(lo, hi), false);

impl V {
    #[inline(always)]
    fn sums([a, b, c, d]: [V; 4]) -> [f32; 4] {
        [a.total(), b.total(), c.total(), d.total()]
    }
}

impl D {
    #[inline(always)]
    fn sums([a, b, c, d]: [D; 4]) -> [f64; 4] {
        [a.total(), b.total(), c.total(), d.total()]
    }
}

impl F32s for V {
    type F64s = D;

    #[inline(never)]
    fn call<W: Work>(work: W) -> W::Out {
        work.run::<V>()
    }
    #[inline(always)]
    fn part(self, n: usize) -> Self {
        V(op!(_mm_and_ps(self.0, first(n))))
    }
    #[inline(always)]
    fn widen(self) -> (D, D) {
        op!((D(_mm_cvtps_pd(self.0)), D(_mm_cvtps_pd(_mm_movehl_ps(self.0, self.0)))))
    }
    #[inline(always)]
    fn narrow(low: D, high: D) -> Self {
        V(op!(_mm_movelh_ps(_mm_cvtpd_ps(low.0), _mm_cvtpd_ps(high.0))))
    }
    #[inline(always)]
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        V(op!({
            let (x, zero) = (_mm_loadl_epi64(p.cast()), _mm_setzero_si128());
            if H::IS_BF16 {
                _mm_castsi128_ps(_mm_unpacklo_epi16(zero, x))
            } else {
                // As `wasm`: exponent and fraction at the places of f32 are a number 2^112 times
                // too small, subnormal ones included.
                let x = _mm_unpacklo_epi16(x, zero);
                let size = _mm_and_si128(x, _mm_set1_epi32(0x7fff));
                let above = |bits| _mm_cmpgt_epi32(size, _mm_set1_epi32(bits));
                let small = _mm_castsi128_ps(_mm_slli_epi32::<13>(size));
                let scaled = _mm_mul_ps(small, _mm_set1_ps(f32::from_bits(0x7780_0000)));
                let quiet = _mm_and_si128(above(0x7c00), _mm_set1_epi32(0x40_0000));
                let all_ones = _mm_and_si128(above(0x7bff), _mm_set1_epi32(0x7f80_0000));
                let all_ones = _mm_or_si128(all_ones, quiet);
                let sign = _mm_slli_epi32::<16>(_mm_and_si128(x, _mm_set1_epi32(0x8000)));
                _mm_or_ps(scaled, _mm_castsi128_ps(_mm_or_si128(all_ones, sign)))
            }
        }))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        op!({
            let select = |m, a, b| _mm_or_si128(_mm_and_si128(m, a), _mm_andnot_si128(m, b));
            let x = _mm_castps_si128(self.0);
            let y = if H::IS_BF16 {
                let odd = _mm_and_si128(_mm_srli_epi32::<16>(x), _mm_set1_epi32(1));
                let up = _mm_add_epi32(_mm_add_epi32(x, _mm_set1_epi32(0x7fff)), odd);
                let nan = _mm_castps_si128(_mm_cmpunord_ps(self.0, self.0));
                select(nan, _mm_or_si128(x, _mm_set1_epi32(0x40_0000)), up)
            } else {
                // As `wasm`; from 65520 on the nearest f16 is infinity.
                let size = _mm_and_si128(x, _mm_set1_epi32(0x7fff_ffff));
                let places = _mm_srli_epi32::<13>(size);
                let odd = _mm_and_si128(places, _mm_set1_epi32(1));
                let up = _mm_add_epi32(odd, _mm_set1_epi32(0xfff - (112 << 23)));
                let normal = _mm_srli_epi32::<13>(_mm_add_epi32(size, up));
                let half = _mm_set1_ps(0.5);
                let small = _mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(size), half));
                let small = _mm_sub_epi32(small, _mm_castps_si128(half));
                let above = |bits| _mm_cmpgt_epi32(size, _mm_set1_epi32(bits));
                let y = select(above((113 << 23) - 1), normal, small);
                let y = select(above(0x477f_efff), _mm_set1_epi32(0x7c00), y);
                let quiet = _mm_and_si128(places, _mm_set1_epi32(0x3ff));
                let quiet = _mm_or_si128(quiet, _mm_set1_epi32(0x7e00));
                let y = select(above(0x7f80_0000), quiet, y);
                let sign = _mm_and_si128(x, _mm_set1_epi32(i32::MIN));
                _mm_or_si128(_mm_slli_epi32::<16>(y), sign)
            };
            let y = _mm_srai_epi32::<16>(y);
            _mm_storel_epi64(p.cast(), _mm_packs_epi32(y, y))
        })
    }

    functions! { V, __m128i, __m128, i32:
        lanes {
            sub(a, o) _mm_sub_ps(a, o);
            div(a, o) _mm_div_ps(a, o);
            min(a, o) _mm_min_ps(a, o);
            max(a, o) _mm_max_ps(a, o);
            sqrt(a) _mm_sqrt_ps(a);
            // Adding 2^23 rounds to the nearest even in the last place; larger values are whole
            // already, and NaN stays as it is.
            round(a) {
                let (big, sign) = (_mm_set1_ps(8_388_608.0), _mm_set1_ps(-0.0));
                let size = _mm_andnot_ps(sign, a);
                let whole = _mm_or_ps(_mm_sub_ps(_mm_add_ps(size, big), big), _mm_and_ps(sign, a));
                let small = _mm_cmplt_ps(size, big);
                _mm_or_ps(_mm_and_ps(small, whole), _mm_andnot_ps(small, a))
            };
            floor(a) {
                let whole = V(a).round().0;
                _mm_sub_ps(whole, _mm_and_ps(_mm_cmpgt_ps(whole, a), _mm_set1_ps(1.0)))
            };
        }
        tests {
            lt(a, o) _mm_cmplt_ps(a, o);
            eq(a, o) _mm_cmpeq_ps(a, o);
        }
        select(m, a, b) _mm_or_ps(_mm_and_ps(m, a), _mm_andnot_ps(m, b));
        any(m) _mm_movemask_ps(m) != 0;
        bits(x) _mm_castps_si128(x);
        from_bits(i) _mm_castsi128_ps(i);
        i_splat(x) _mm_set1_epi32(x);
        integers {
            i_add(a, b) _mm_add_epi32(a, b);
            i_sub(a, b) _mm_sub_epi32(a, b);
            i_and(a, b) _mm_and_si128(a, b);
            i_xor(a, b) _mm_xor_si128(a, b);
        }
        shifts by N {
            i_shl(a) _mm_sll_epi32(a, _mm_cvtsi32_si128(N as i32));
            i_sra(a) _mm_sra_epi32(a, _mm_cvtsi32_si128(N as i32));
        }
    }
    conversions! { V, __m128i:
        to_i32(x) _mm_cvtps_epi32(x);
        from_i32(i) _mm_cvtepi32_ps(i);
    }
}

impl F64s for D {
    functions! { D, __m128i, __m128d, i64:
        lanes {
            sub(a, o) _mm_sub_pd(a, o);
            div(a, o) _mm_div_pd(a, o);
            min(a, o) _mm_min_pd(a, o);
            max(a, o) _mm_max_pd(a, o);
            sqrt(a) _mm_sqrt_pd(a);
            // As for f32: adding 2^52 rounds in the last place.
            round(a) {
                let (big, sign) = (_mm_set1_pd(4_503_599_627_370_496.0), _mm_set1_pd(-0.0));
                let size = _mm_andnot_pd(sign, a);
                let whole = _mm_or_pd(_mm_sub_pd(_mm_add_pd(size, big), big), _mm_and_pd(sign, a));
                let small = _mm_cmplt_pd(size, big);
                _mm_or_pd(_mm_and_pd(small, whole), _mm_andnot_pd(small, a))
            };
            floor(a) {
                let whole = D(a).round().0;
                _mm_sub_pd(whole, _mm_and_pd(_mm_cmpgt_pd(whole, a), _mm_set1_pd(1.0)))
            };
        }
        tests {
            lt(a, o) _mm_cmplt_pd(a, o);
            eq(a, o) _mm_cmpeq_pd(a, o);
        }
        select(m, a, b) _mm_or_pd(_mm_and_pd(m, a), _mm_andnot_pd(m, b));
        any(m) _mm_movemask_pd(m) != 0;
        bits(x) _mm_castpd_si128(x);
        from_bits(i) _mm_castsi128_pd(i);
        i_splat(x) _mm_set1_epi64x(x);
        integers {
            i_add(a, b) _mm_add_epi64(a, b);
            i_sub(a, b) _mm_sub_epi64(a, b);
            i_and(a, b) _mm_and_si128(a, b);
            i_xor(a, b) _mm_xor_si128(a, b);
        }
        shifts by N {
            i_shl(a) _mm_sll_epi64(a, _mm_cvtsi32_si128(N as i32));
            i_shr(a) _mm_srl_epi64(a, _mm_cvtsi32_si128(N as i32));
        }
    }
}
