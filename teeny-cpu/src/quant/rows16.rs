//! [`Rows`]: sixteen lanes of 32 bits, one for each row of a group, at each instruction level.
//!
//! Products of bytes are summed exactly, and float products and sums are rounded separately (no
//! fused multiply-add): a loop over these lanes returns the same bits at every level.

#[cfg(any(test, not(target_arch = "aarch64")))]
pub(super) mod arrays;
#[cfg(target_arch = "aarch64")]
mod neon;

use crate::Level;

/// The lanes of [`Instructions::Baseline`].
#[cfg(not(target_arch = "aarch64"))]
use arrays::Arrays as Baseline;
#[cfg(target_arch = "aarch64")]
type Baseline = neon::Lanes<false>;

/// Sixteen lanes, as integers of 32 bits or as four bytes each. Methods are safe to call because a
/// type is only named by the entry function of its level.
pub(super) trait Rows: Copy {
    /// Sixteen f32.
    type Floats: Copy;
    /// How [`Rows::signed`] shifts bytes with a sign: 128 if it makes them unsigned, else 0.
    const SHIFT: i32;
    /// Whether there are registers for the products with two groups of rows.
    const PAIRS: bool;

    /// Runs `work` with these lanes. The compiler makes a separate function of it, for the reason
    /// of [`crate::simd::F32s::call`].
    fn call(work: impl RowWork);
    /// Reads 64 bytes.
    ///
    /// # Safety
    /// They must be readable.
    unsafe fn load(p: *const u8) -> Self;
    /// Writes 64 bytes.
    ///
    /// # Safety
    /// They must be writable.
    unsafe fn store(self, p: *mut u8);
    /// All lanes `x`.
    fn splat(x: i32) -> Self;
    /// Each lane shifted right, filled with zeros; `n` below 32.
    fn shr(self, n: u32) -> Self;
    /// Each lane shifted to the left; `n` below 32.
    fn shl(self, n: u32) -> Self;
    /// Each lane shifted right, filled with the sign; `n` below 32.
    fn sar(self, n: u32) -> Self;
    /// The bits that both have.
    fn and(self, o: Self) -> Self;
    /// The bits that either has.
    fn or(self, o: Self) -> Self;
    /// Products of lanes, wrapping.
    fn mul(self, o: Self) -> Self;
    /// Sums of lanes, wrapping.
    fn add(self, o: Self) -> Self;
    /// `table[byte]` for each byte, which is below 16.
    fn look_up(self, table: &[i8; 16]) -> Self;
    /// Bytes with a sign as [`Rows::dot_signed`] takes them.
    fn signed(self) -> Self;
    /// Adds to each lane the products of its four bytes of `x`, of 0 to 127, with the signed bytes
    /// of `a`.
    fn dot(self, x: Self, a: i32) -> Self;
    /// [`Rows::dot`] for results of [`Rows::signed`]; no byte of `a` is -128.
    fn dot_signed(self, x: Self, a: i32) -> Self;
    /// The lanes as floats.
    fn floats(self) -> Self::Floats;

    /// Sixteen 16-bit floats.
    ///
    /// # Safety
    /// 32 bytes must be readable.
    unsafe fn halves(p: *const u8) -> Self::Floats;
    /// Reads 16 floats.
    ///
    /// # Safety
    /// They must be readable.
    unsafe fn load_floats(p: *const f32) -> Self::Floats;
    /// Writes 16 floats.
    ///
    /// # Safety
    /// They must be writable.
    unsafe fn store_floats(x: Self::Floats, p: *mut f32);
    /// All lanes `x`.
    fn splat_float(x: f32) -> Self::Floats;
    /// Products of lanes.
    fn mul_floats(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Sums of lanes.
    fn add_floats(a: Self::Floats, b: Self::Floats) -> Self::Floats;
}

/// Work on rows that can be compiled for each level; see [`crate::simd::Work`].
pub(super) trait RowWork {
    /// The work.
    fn run<R: Rows>(self);
}

/// The instructions that lanes are made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Dotprod,
    Baseline,
}

impl Instructions {
    /// All, the best first.
    pub(super) const ALL: &[Instructions] = &[
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512Vnni,
        #[cfg(target_arch = "x86_64")]
        Instructions::AvxVnni,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2,
        #[cfg(target_arch = "aarch64")]
        Instructions::Dotprod,
        Instructions::Baseline,
    ];

    /// Whether a level, which is only ever made by detection, and the machine have them.
    pub(super) fn are_at(self, level: Level) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Vnni => {
                level == Level::Avx512 && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::AvxVnni => {
                level >= Level::Avx2 && !Level::is_lowered() && is_x86_feature_detected!("avxvnni")
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => level >= Level::Avx2,
            #[cfg(target_arch = "aarch64")]
            Instructions::Dotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
            Instructions::Baseline => level >= Level::Portable,
        }
    }

    /// Runs `work` with lanes of these.
    ///
    /// # Safety
    /// The machine must have them.
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        allow(unused_unsafe, reason = "the baseline alone is safe")
    )]
    pub(super) unsafe fn run(self, work: impl RowWork) {
        // SAFETY: by contract.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx512Vnni => avx512_vnni::enter(work),
                #[cfg(target_arch = "x86_64")]
                Instructions::AvxVnni => avx_vnni::enter(work),
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx2 => avx2::enter(work),
                #[cfg(target_arch = "aarch64")]
                Instructions::Dotprod => neon::enter_dotprod(work),
                Instructions::Baseline => work.run::<Baseline>(),
            }
        }
    }
}

/// Runs `work` with the best lanes that this level and the machine have.
pub(super) fn run(level: Level, work: impl RowWork) {
    let best = Instructions::ALL.iter().find(|all| all.are_at(level));
    // SAFETY: they were detected.
    unsafe { best.unwrap_or(&Instructions::Baseline).run(work) }
}

/// An instruction of a level.
#[cfg(target_arch = "x86_64")]
macro_rules! op {
    ($instruction:expr) => {
        // SAFETY: the existence of the type proves the features; pointers are as their function
        // demands.
        unsafe { $instruction }
    };
}

/// An array whose element `i` is the expression. A loop and no closure: only what is inlined has
/// the level's instructions, and nothing promises that a closure is.
#[cfg(target_arch = "x86_64")]
macro_rules! parts {
    ($parts:literal, |$i:ident| $element:expr) => {{
        let $i = 0usize;
        let mut all = [$element; $parts];
        for $i in 0..$parts {
            all[$i] = $element;
        }
        all
    }};
}

/// A level of x86-64: the features of its entry function, its two types of sixteen lanes as parts,
/// and instructions of each part.
#[cfg(target_arch = "x86_64")]
macro_rules! level {
    (
        $features:literal, $parts:literal of $int:ty, $float:ty, $half:ty, shift $shift:literal,
        load $load:ident, store $store:ident, splat $splat:ident,
        shifts $srl:ident $sll:ident $sra:ident,
        and $and:ident, or $or:ident, mul $mul:ident, add $add:ident,
        look_up |$bytes:ident, $table:ident| $look_up:expr,
        signed |$signed:ident| $to_signed:expr,
        dot |$sum:ident, $x:ident, $a:ident| $dot:expr,
        dot_signed |$sum2:ident, $x2:ident, $a2:ident| $dot_signed:expr,
        floats $floats:ident, halves $load_half:ident $halves:ident,
        float $loadf:ident $storef:ident $splatf:ident $mulf:ident $addf:ident
    ) => {
        use super::{RowWork, Rows};
        use std::arch::x86_64::*;

        /// Runs `work` with this level's lanes.
        ///
        /// # Safety
        /// The processor must have the features named here.
        #[inline(never)]
        #[target_feature(enable = $features)]
        pub(super) unsafe fn enter(work: impl RowWork) {
            work.run::<Lanes>()
        }

        /// Sixteen lanes. Named only by `enter`, so its existence proves the features.
        #[derive(Clone, Copy)]
        pub(super) struct Lanes([$int; $parts]);

        /// Sixteen floats, by the same proof.
        #[derive(Clone, Copy)]
        pub(super) struct Floats([$float; $parts]);

        const STEP: usize = 16 / $parts;

        impl Rows for Lanes {
            type Floats = Floats;
            const SHIFT: i32 = $shift;
            const PAIRS: bool = $parts == 1;

            #[inline(always)]
            fn call(work: impl RowWork) {
                op!(enter(work))
            }
            #[inline(always)]
            unsafe fn load(p: *const u8) -> Lanes {
                Lanes(parts!($parts, |i| op!($load(p.add(4 * STEP * i).cast()))))
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut u8) {
                for i in 0..$parts {
                    op!($store(p.add(4 * STEP * i).cast(), self.0[i]));
                }
            }
            #[inline(always)]
            fn splat(x: i32) -> Lanes {
                Lanes([op!($splat(x)); $parts])
            }
            #[inline(always)]
            fn shr(self, n: u32) -> Lanes {
                let n = op!(_mm_cvtsi32_si128(n as i32));
                Lanes(parts!($parts, |i| op!($srl(self.0[i], n))))
            }
            #[inline(always)]
            fn shl(self, n: u32) -> Lanes {
                let n = op!(_mm_cvtsi32_si128(n as i32));
                Lanes(parts!($parts, |i| op!($sll(self.0[i], n))))
            }
            #[inline(always)]
            fn sar(self, n: u32) -> Lanes {
                let n = op!(_mm_cvtsi32_si128(n as i32));
                Lanes(parts!($parts, |i| op!($sra(self.0[i], n))))
            }
            #[inline(always)]
            fn and(self, o: Lanes) -> Lanes {
                Lanes(parts!($parts, |i| op!($and(self.0[i], o.0[i]))))
            }
            #[inline(always)]
            fn or(self, o: Lanes) -> Lanes {
                Lanes(parts!($parts, |i| op!($or(self.0[i], o.0[i]))))
            }
            #[inline(always)]
            fn mul(self, o: Lanes) -> Lanes {
                Lanes(parts!($parts, |i| op!($mul(self.0[i], o.0[i]))))
            }
            #[inline(always)]
            fn add(self, o: Lanes) -> Lanes {
                Lanes(parts!($parts, |i| op!($add(self.0[i], o.0[i]))))
            }
            #[inline(always)]
            fn look_up(self, table: &[i8; 16]) -> Lanes {
                let $table = op!(_mm_loadu_si128(table.as_ptr().cast()));
                Lanes(parts!($parts, |i| {
                    let $bytes = self.0[i];
                    op!($look_up)
                }))
            }
            #[inline(always)]
            fn signed(self) -> Lanes {
                Lanes(parts!($parts, |i| {
                    let $signed = self.0[i];
                    op!($to_signed)
                }))
            }
            #[inline(always)]
            fn dot(self, x: Lanes, a: i32) -> Lanes {
                let $a = op!($splat(a));
                let mut sums = self;
                for i in 0..$parts {
                    let ($sum, $x) = (self.0[i], x.0[i]);
                    sums.0[i] = op!($dot);
                }
                sums
            }
            #[inline(always)]
            fn dot_signed(self, x: Lanes, a: i32) -> Lanes {
                let $a2 = op!($splat(a));
                let mut sums = self;
                for i in 0..$parts {
                    let ($sum2, $x2) = (self.0[i], x.0[i]);
                    sums.0[i] = op!($dot_signed);
                }
                sums
            }
            #[inline(always)]
            fn floats(self) -> Floats {
                Floats(parts!($parts, |i| op!($floats(self.0[i]))))
            }
            #[inline(always)]
            unsafe fn halves(p: *const u8) -> Floats {
                Floats(parts!($parts, |i| {
                    op!($halves($load_half(p.add(2 * STEP * i).cast::<$half>())))
                }))
            }
            #[inline(always)]
            unsafe fn load_floats(p: *const f32) -> Floats {
                Floats(parts!($parts, |i| op!($loadf(p.add(STEP * i)))))
            }
            #[inline(always)]
            unsafe fn store_floats(x: Floats, p: *mut f32) {
                for i in 0..$parts {
                    op!($storef(p.add(STEP * i), x.0[i]));
                }
            }
            #[inline(always)]
            fn splat_float(x: f32) -> Floats {
                Floats([op!($splatf(x)); $parts])
            }
            #[inline(always)]
            fn mul_floats(a: Floats, b: Floats) -> Floats {
                Floats(parts!($parts, |i| op!($mulf(a.0[i], b.0[i]))))
            }
            #[inline(always)]
            fn add_floats(a: Floats, b: Floats) -> Floats {
                Floats(parts!($parts, |i| op!($addf(a.0[i], b.0[i]))))
            }
        }
    };
}

/// One vector, and instructions that multiply four bytes and add the products to a lane.
#[cfg(target_arch = "x86_64")]
mod avx512_vnni {
    level! {
        "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c",
        1 of __m512i, __m512, __m256i, shift 128,
        load _mm512_loadu_si512, store _mm512_storeu_si512, splat _mm512_set1_epi32,
        shifts _mm512_srl_epi32 _mm512_sll_epi32 _mm512_sra_epi32,
        and _mm512_and_si512, or _mm512_or_si512, mul _mm512_mullo_epi32, add _mm512_add_epi32,
        look_up |x, table| _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), x),
        signed |x| _mm512_xor_si512(x, _mm512_set1_epi8(-128)),
        dot |sum, x, a| _mm512_dpbusd_epi32(sum, x, a),
        dot_signed |sum, x, a| _mm512_dpbusd_epi32(sum, x, a),
        floats _mm512_cvtepi32_ps, halves _mm256_loadu_si256 _mm512_cvtph_ps,
        float _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_mul_ps _mm512_add_ps
    }
}

/// Two vectors of AVX2, which differ in how bytes are multiplied.
#[cfg(target_arch = "x86_64")]
macro_rules! level_of_two {
    ($features:literal, shift $shift:literal, $($bytes:tt)*) => {
        level! {
            $features, 2 of __m256i, __m256, __m128i, shift $shift,
            load _mm256_loadu_si256, store _mm256_storeu_si256, splat _mm256_set1_epi32,
            shifts _mm256_srl_epi32 _mm256_sll_epi32 _mm256_sra_epi32,
            and _mm256_and_si256, or _mm256_or_si256, mul _mm256_mullo_epi32, add _mm256_add_epi32,
            look_up |x, table| _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), x),
            $($bytes)*
            floats _mm256_cvtepi32_ps, halves _mm_loadu_si128 _mm256_cvtph_ps,
            float _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_mul_ps _mm256_add_ps
        }
    };
}

/// Instructions as above: client processors of Intel since 2021, of AMD since Zen 5.
#[cfg(target_arch = "x86_64")]
mod avx_vnni {
    level_of_two! {
        "avxvnni,avx2,fma,f16c", shift 128,
        signed |x| _mm256_xor_si256(x, _mm256_set1_epi8(-128)),
        dot |sum, x, a| _mm256_dpbusd_avx_epi32(sum, x, a),
        dot_signed |sum, x, a| _mm256_dpbusd_avx_epi32(sum, x, a),
    }
}

/// Products of bytes are summed in pairs of 16 bits, which do not overflow: the first factor is at
/// most 127, as an absolute value at most 128 with 127.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    level_of_two! {
        "avx2,fma,f16c", shift 0, signed |x| _mm256_or_si256(x, x), // as they are
        dot |sum, x, a| {
            let pairs = _mm256_maddubs_epi16(x, a);
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        },
        dot_signed |sum, x, a| {
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(a, x));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        },
    }
}
