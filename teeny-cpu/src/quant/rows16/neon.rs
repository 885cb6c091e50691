//! [`Rows`] on aarch64: four vectors of NEON.
//!
//! Four bytes are multiplied and added to a lane by one instruction, `sdot`, if the processor has
//! it (ARM's since 2018, all of Apple's for computers), else by four.

use super::{RowWork, Rows};
use crate::simd::neon::widen_f16;
use std::arch::{aarch64::*, asm};

/// Runs `work` with `sdot`.
///
/// # Safety
/// The processor must have dotprod.
#[inline(never)]
#[target_feature(enable = "dotprod")]
pub(super) unsafe fn enter_dotprod(work: impl RowWork) {
    work.run::<Lanes<true>>()
}

/// An instruction of NEON.
macro_rules! op {
    ($instruction:expr) => {
        // SAFETY: every aarch64 has NEON; pointers are as their function demands.
        unsafe { $instruction }
    };
}

/// Sixteen lanes. `DOTPROD`: with `sdot`. That type is named only by `enter_dotprod`, so its
/// existence proves the feature.
#[derive(Clone, Copy)]
pub(super) struct Lanes<const DOTPROD: bool>([int32x4_t; 4]);

/// An array of four parts, written out: only what is inlined has the level's instructions, and
/// nothing promises that a closure is.
macro_rules! parts {
    (|$i:ident| $part:expr) => {{
        let mut all = [{
            let $i = 0;
            $part
        }; 4];
        for $i in 1..4 {
            all[$i] = $part;
        }
        all
    }};
}

/// `sum` with the products of the four bytes of each lane added.
#[inline(always)]
fn dot<const DOTPROD: bool>(mut sum: int32x4_t, x: int32x4_t, a: int8x16_t) -> int32x4_t {
    // SAFETY: every aarch64 has NEON, and DOTPROD proves the feature.
    unsafe {
        let x = vreinterpretq_s8_s32(x);
        if DOTPROD {
            // Rust has no stable intrinsic. The directive is for this instruction alone.
            asm!(".arch_extension dotprod", "sdot {sum:v}.4s, {x:v}.16b, {a:v}.16b",
                sum = inlateout(vreg) sum, x = in(vreg) x, a = in(vreg) a,
                options(pure, nomem, nostack, preserves_flags));
            return sum;
        }
        // Two products fit in 16 bits: at most one factor of each is -128.
        let low = vmull_s8(vget_low_s8(x), vget_low_s8(a));
        vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(x, a)))
    }
}

impl<const DOTPROD: bool> Rows for Lanes<DOTPROD> {
    type Floats = [float32x4_t; 4];
    const SHIFT: i32 = 0;
    const PAIRS: bool = false;

    #[inline(never)]
    fn call(work: impl RowWork) {
        // SAFETY: DOTPROD proves the feature.
        if DOTPROD { unsafe { enter_dotprod(work) } } else { work.run::<Self>() }
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self {
        Lanes(parts!(|i| op!(vreinterpretq_s32_u8(vld1q_u8(p.add(16 * i))))))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        for i in 0..4 {
            op!(vst1q_u8(p.add(16 * i), vreinterpretq_u8_s32(self.0[i])));
        }
    }
    #[inline(always)]
    fn splat(x: i32) -> Self {
        Lanes([op!(vdupq_n_s32(x)); 4])
    }
    #[inline(always)]
    fn shr(self, n: u32) -> Self {
        let n = op!(vdupq_n_s32(-(n as i32)));
        Lanes(parts!(|i| op!(vreinterpretq_s32_u32(vshlq_u32(
            vreinterpretq_u32_s32(self.0[i]),
            n
        )))))
    }
    #[inline(always)]
    fn shl(self, n: u32) -> Self {
        let n = op!(vdupq_n_s32(n as i32));
        Lanes(parts!(|i| op!(vshlq_s32(self.0[i], n))))
    }
    #[inline(always)]
    fn sar(self, n: u32) -> Self {
        let n = op!(vdupq_n_s32(-(n as i32)));
        Lanes(parts!(|i| op!(vshlq_s32(self.0[i], n))))
    }
    #[inline(always)]
    fn and(self, o: Self) -> Self {
        Lanes(parts!(|i| op!(vandq_s32(self.0[i], o.0[i]))))
    }
    #[inline(always)]
    fn or(self, o: Self) -> Self {
        Lanes(parts!(|i| op!(vorrq_s32(self.0[i], o.0[i]))))
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        Lanes(parts!(|i| op!(vmulq_s32(self.0[i], o.0[i]))))
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        Lanes(parts!(|i| op!(vaddq_s32(self.0[i], o.0[i]))))
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16]) -> Self {
        let table = op!(vld1q_s8(table.as_ptr()));
        Lanes(parts!(|i| op!(vreinterpretq_s32_s8(vqtbl1q_s8(
            table,
            vreinterpretq_u8_s32(self.0[i])
        )))))
    }
    #[inline(always)]
    fn signed(self) -> Self {
        self
    }
    #[inline(always)]
    fn dot(self, x: Self, a: i32) -> Self {
        // of 0 to 127, a byte is the same with a sign
        self.dot_signed(x, a)
    }
    #[inline(always)]
    fn dot_signed(self, x: Self, a: i32) -> Self {
        let a = op!(vreinterpretq_s8_s32(vdupq_n_s32(a)));
        Lanes(parts!(|i| dot::<DOTPROD>(self.0[i], x.0[i], a)))
    }
    #[inline(always)]
    fn floats(self) -> Self::Floats {
        parts!(|i| op!(vcvtq_f32_s32(self.0[i])))
    }
    #[inline(always)]
    unsafe fn halves(p: *const u8) -> Self::Floats {
        parts!(|i| widen_f16(op!(vreinterpret_u16_u8(vld1_u8(p.add(8 * i))))))
    }
    #[inline(always)]
    unsafe fn load_floats(p: *const f32) -> Self::Floats {
        parts!(|i| op!(vld1q_f32(p.add(4 * i))))
    }
    #[inline(always)]
    unsafe fn store_floats(x: Self::Floats, p: *mut f32) {
        for i in 0..4 {
            op!(vst1q_f32(p.add(4 * i), x[i]));
        }
    }
    #[inline(always)]
    fn splat_float(x: f32) -> Self::Floats {
        [op!(vdupq_n_f32(x)); 4]
    }
    #[inline(always)]
    fn mul_floats(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        parts!(|i| op!(vmulq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn add_floats(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        parts!(|i| op!(vaddq_f32(a[i], b[i])))
    }
}
