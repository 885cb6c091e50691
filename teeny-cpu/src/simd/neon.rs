//! Four f32 or two f64: NEON, which every aarch64 has.

use super::{F32s, F64s, Half, Work};
use std::arch::{aarch64::*, asm};

/// 4 lanes.
#[derive(Clone, Copy)]
pub struct V(float32x4_t);

/// 2 lanes of f64.
#[derive(Clone, Copy)]
pub struct D(float64x2_t);

/// `a * b + c`
#[inline(always)]
unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    // SAFETY: every aarch64 has NEON.
    unsafe { vfmaq_f32(c, a, b) }
}

/// `a * b + c`
#[inline(always)]
unsafe fn fma_f64(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
    // SAFETY: every aarch64 has NEON.
    unsafe { vfmaq_f64(c, a, b) }
}

/// `n` values at `p`, then zeros.
#[inline(always)]
unsafe fn read(p: *const f32, n: usize) -> float32x4_t {
    // SAFETY: the caller promises n readable values; pairs are read at the alignment of one.
    unsafe {
        let zero = vdupq_n_f32(0.0);
        match n {
            0 => zero,
            1 => vld1q_lane_f32::<0>(p, zero),
            2 => vcombine_f32(vld1_f32(p), vdup_n_f32(0.0)),
            3 => vld1q_lane_f32::<2>(p.add(2), vcombine_f32(vld1_f32(p), vdup_n_f32(0.0))),
            _ => vld1q_f32(p),
        }
    }
}

/// The first `n` lanes to `p`.
#[inline(always)]
unsafe fn write(p: *mut f32, n: usize, v: float32x4_t) {
    // SAFETY: the caller promises n writable values.
    unsafe {
        match n {
            0 => {}
            1 => vst1q_lane_f32::<0>(p, v),
            2 => vst1_f32(p, vget_low_f32(v)),
            3 => {
                vst1_f32(p, vget_low_f32(v));
                vst1q_lane_f32::<2>(p.add(2), v);
            }
            _ => vst1q_f32(p, v),
        }
    }
}

/// Four f16 as f32. The intrinsic needs a type that is newer than our oldest compiler.
#[inline(always)]
pub(crate) fn widen_f16(x: uint16x4_t) -> float32x4_t {
    let y;
    // SAFETY: every aarch64 has the instruction, which changes its register only.
    unsafe {
        asm!("fcvtl {y:v}.4s, {x:v}.4h", x = in(vreg) x, y = lateout(vreg) y,
            options(pure, nomem, nostack, preserves_flags));
    }
    y
}

/// Four f32 rounded to f16, ties to even.
#[inline(always)]
fn narrow_f16(x: float32x4_t) -> uint16x4_t {
    let y;
    // SAFETY: as above.
    unsafe {
        asm!("fcvtn {y:v}.4h, {x:v}.4s", x = in(vreg) x, y = lateout(vreg) y,
            options(pure, nomem, nostack, preserves_flags));
    }
    y
}

register!(V of 4 f32: vdupq_n_f32, vld1q_f32, vst1q_f32, vst1q_f32, vaddq_f32, vmulq_f32, fma,
|p, n| read(p, n), |p, n, v| write(p, n, v),
|t| vaddv_f32(vadd_f32(vget_low_f32(t), vget_high_f32(t))),
|lo, hi| vuzp1q_f32(lo, hi), true);
register!(D of 2 f64: vdupq_n_f64, vld1q_f64, vst1q_f64, vst1q_f64, vaddq_f64, vmulq_f64, fma_f64,
|p, n| match n {
    0 => vdupq_n_f64(0.0),
    1 => vld1q_lane_f64::<0>(p, vdupq_n_f64(0.0)),
    _ => vld1q_f64(p),
},
|p, n, v| match n { 0 => {}, 1 => vst1q_lane_f64::<0>(p, v), _ => vst1q_f64(p, v) },
|t| vaddvq_f64(t),
|lo, hi| vuzp1q_f64(lo, hi), true);

/// Adds the halves of two vectors: the sums of `x`, then the sums of `y`.
#[inline(always)]
unsafe fn halves(x: V, y: V) -> float32x4_t {
    // SAFETY: every aarch64 has NEON.
    unsafe {
        let (x, y) = (vreinterpretq_f64_f32(x.0), vreinterpretq_f64_f32(y.0));
        let [low, high] = [vtrn1q_f64(x, y), vtrn2q_f64(x, y)].map(|x| vreinterpretq_f32_f64(x));
        vaddq_f32(low, high)
    }
}

impl V {
    #[inline(always)]
    fn sums([a, b, c, d]: [V; 4]) -> [f32; 4] {
        let mut out = [0.0; 4];
        op!(vst1q_f32(out.as_mut_ptr(), vpaddq_f32(halves(a, b), halves(c, d))));
        out
    }
}

impl D {
    #[inline(always)]
    fn sums([a, b, c, d]: [D; 4]) -> [f64; 4] {
        let mut out = [0.0; 4];
        op!({
            vst1q_f64(out.as_mut_ptr(), vpaddq_f64(a.0, b.0));
            vst1q_f64(out.as_mut_ptr().add(2), vpaddq_f64(c.0, d.0));
        });
        out
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
        static PLACE: [u32; 4] = [0, 1, 2, 3];
        V(op!({
            let inside = vcltq_u32(vld1q_u32(PLACE.as_ptr()), vdupq_n_u32(n as u32));
            vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(self.0), inside))
        }))
    }
    #[inline(always)]
    fn widen(self) -> (D, D) {
        op!((D(vcvt_f64_f32(vget_low_f32(self.0))), D(vcvt_high_f64_f32(self.0))))
    }
    #[inline(always)]
    fn narrow(low: D, high: D) -> Self {
        V(op!(vcvt_high_f32_f64(vcvt_f32_f64(low.0), high.0)))
    }
    #[inline(always)]
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        let x = op!(vld1_u16(p));
        if H::IS_BF16 {
            return V(op!(vreinterpretq_f32_u32(vshll_n_u16::<16>(x))));
        }
        V(widen_f16(x))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        let y = if H::IS_BF16 {
            op!({
                let x = vreinterpretq_u32_f32(self.0);
                let odd = vandq_u32(vshrq_n_u32::<16>(x), vdupq_n_u32(1));
                let up = vaddq_u32(vaddq_u32(x, vdupq_n_u32(0x7fff)), odd);
                let quiet = vorrq_u32(x, vdupq_n_u32(0x40_0000));
                vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(self.0, self.0), up, quiet))
            })
        } else {
            narrow_f16(self.0)
        };
        op!(vst1_u16(p, y))
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let upper = |x: V| V(op!(vextq_f32::<2>(x.0, x.0)));
        let two = upper(self).max(self);
        op!(vgetq_lane_f32::<0>(V(vdupq_laneq_f32::<1>(two.0)).max(two).0))
    }

    #[inline(always)]
    fn lookup(table: &[f32; 16], index: int32x4_t) -> Self {
        V(op!({
            let table = vld1q_u8_x4(table.as_ptr().cast());
            // The places of the four bytes of each number.
            let place = vandq_s32(index, vdupq_n_s32(15));
            let bytes = vmlaq_s32(vdupq_n_s32(0x0302_0100), place, vdupq_n_s32(0x0404_0404));
            vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_s32(bytes)))
        }))
    }

    functions! { V, int32x4_t, uint32x4_t, i32:
        lanes {
            sub(a, o) vsubq_f32(a, o);
            div(a, o) vdivq_f32(a, o);
            // The instructions for these take NaN from either operand, or from neither.
            min(a, o) vbslq_f32(vcltq_f32(a, o), a, o);
            max(a, o) vbslq_f32(vcgtq_f32(a, o), a, o);
            sqrt(a) vsqrtq_f32(a);
            round(a) vrndnq_f32(a);
            floor(a) vrndmq_f32(a);
        }
        tests {
            lt(a, o) vcltq_f32(a, o);
            eq(a, o) vceqq_f32(a, o);
        }
        select(m, a, b) vbslq_f32(m, a, b);
        any(m) vmaxvq_u32(m) != 0;
        bits(x) vreinterpretq_s32_f32(x);
        from_bits(i) vreinterpretq_f32_s32(i);
        i_splat(x) vdupq_n_s32(x);
        integers {
            i_add(a, b) vaddq_s32(a, b);
            i_sub(a, b) vsubq_s32(a, b);
            i_and(a, b) vandq_s32(a, b);
            i_xor(a, b) veorq_s32(a, b);
        }
        shifts by N {
            i_shl(a) vshlq_s32(a, vdupq_n_s32(N as i32));
            i_sra(a) vshlq_s32(a, vdupq_n_s32(-(N as i32)));
        }
    }
    conversions! { V, int32x4_t:
        to_i32(x) vcvtq_s32_f32(x);
        from_i32(i) vcvtq_f32_s32(i);
    }
}

impl F64s for D {
    functions! { D, int64x2_t, uint64x2_t, i64:
        lanes {
            sub(a, o) vsubq_f64(a, o);
            div(a, o) vdivq_f64(a, o);
            min(a, o) vbslq_f64(vcltq_f64(a, o), a, o);
            max(a, o) vbslq_f64(vcgtq_f64(a, o), a, o);
            sqrt(a) vsqrtq_f64(a);
            round(a) vrndnq_f64(a);
            floor(a) vrndmq_f64(a);
        }
        tests {
            lt(a, o) vcltq_f64(a, o);
            eq(a, o) vceqq_f64(a, o);
        }
        select(m, a, b) vbslq_f64(m, a, b);
        any(m) vmaxvq_u32(vreinterpretq_u32_u64(m)) != 0;
        bits(x) vreinterpretq_s64_f64(x);
        from_bits(i) vreinterpretq_f64_s64(i);
        i_splat(x) vdupq_n_s64(x);
        integers {
            i_add(a, b) vaddq_s64(a, b);
            i_sub(a, b) vsubq_s64(a, b);
            i_and(a, b) vandq_s64(a, b);
            i_xor(a, b) veorq_s64(a, b);
        }
        shifts by N {
            i_shl(a) vshlq_s64(a, vdupq_n_s64(i64::from(N)));
            i_shr(a) vreinterpretq_s64_u64(vshlq_u64(
                vreinterpretq_u64_s64(a),
                vdupq_n_s64(-i64::from(N)),
            ));
        }
    }
}
