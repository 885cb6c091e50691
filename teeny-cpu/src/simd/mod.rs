//! Vectors of f32 and f64 at three instruction levels, and the one place where a level is chosen.
//! WebAssembly and aarch64 have one level each, chosen when they are compiled: simd128 and NEON.
//!
//! A loop is written once as a [`Work`] over any [`F32s`]; [`Level::run`] compiles it for AVX-512,
//! for AVX2 + FMA and for the baseline, and jumps to the one that the machine has. Plain loops
//! inside a `Work` are vectorised at the same level, so integers need no vector type. Loops of
//! integers are left out of AVX-512 ([`Work::FOR_AVX512`]), because each copy of a loop is compiled
//! in every user's build. Independent of tensors. Next: `vecmath` for the functions.

#[cfg(any(test, not(target_feature = "simd128")))]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_macros))]
#[macro_use]
mod register;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16_pairs;
pub(crate) mod loops;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(any(
    test,
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128"))
))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;
mod vector;
#[cfg(target_feature = "simd128")]
mod wasm;

use std::sync::OnceLock;
pub use vector::{F32s, F64s, Half, Lanes};

/// The vector of [`Level::Portable`].
#[cfg(target_arch = "aarch64")]
use neon::V as Baseline;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_feature = "simd128")))]
use portable::V as Baseline;
#[cfg(target_arch = "x86_64")]
use sse2::V as Baseline;
#[cfg(target_feature = "simd128")]
use wasm::V as Baseline;

/// The instruction set that kernels run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The baseline of the target: SSE2 on x86-64, NEON on aarch64, simd128 in WebAssembly if it is
    /// compiled with `-C target-feature=+simd128`, elsewhere arrays, as the compiler vectorises
    /// them.
    Portable,
    /// AVX2, FMA and F16C: eight f32 at once.
    Avx2,
    /// AVX-512 with F, BW, DQ and VL: sixteen f32 at once.
    Avx512,
}

impl Level {
    /// Every level up to [`Level::best`], lowest first.
    pub fn available() -> Vec<Level> {
        let all = [Level::Portable, Level::Avx2, Level::Avx512];
        all.into_iter().filter(|&level| level == level.supported()).collect()
    }

    /// The level in use unless a device was built with a lower one: the best one of this machine,
    /// or the one that `TEENY_CPU_LEVEL` names (`portable`, `avx2`, `avx512`), which may lower but
    /// never raise it. The process then runs as on a processor without the levels above, and
    /// without AVX-VNNI. Read once.
    pub fn best() -> Level {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let wish = match std::env::var("TEENY_CPU_LEVEL").as_deref() {
                Ok("portable") => Level::Portable,
                Ok("avx2") => Level::Avx2,
                _ => Level::Avx512,
            };
            wish.min(detect())
        })
    }

    /// Runs `work`, compiled for this level.
    #[inline]
    pub(crate) fn run<W: Work>(self, work: W) -> W::Out {
        match self {
            // SAFETY: a level above Portable is only ever made by `detect`, or is lowered from what
            // it returned.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if W::FOR_AVX512 => unsafe { avx512::enter(work) },
            // SAFETY: as above; AVX-512 is only detected together with AVX2 and FMA.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => unsafe { avx2::enter(work) },
            _ => work.run::<Baseline>(),
        }
    }

    /// Whether loops are written for this level's vectors ([`Lanes::NATIVE`]).
    #[inline]
    pub(crate) fn is_native(self) -> bool {
        self > Level::Portable || <Baseline as Lanes<f32>>::NATIVE
    }

    /// Runs `work` on vectors of pairs of bf16, if this level and the machine have instructions for
    /// them.
    #[inline]
    pub(crate) fn run_pairs<W: PairWork>(self, work: W) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.has_pairs() {
            // SAFETY: the machine has the features.
            unsafe { bf16_pairs::enter(work) };
            return true;
        }
        let _ = work;
        false
    }

    /// Whether [`Level::run_pairs`] runs anything.
    #[inline]
    pub(crate) fn has_pairs(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The smallest magnitude but zero of lines of bf16, as bits less one; `u16::MAX` if all are
    /// zeros. With `pairs`, a place and the length of its lines, pairs of numbers of two lines go
    /// there.
    ///
    /// # Safety
    /// [`Level::has_pairs`]; the lines are readable, and the lines of pairs writable.
    pub(crate) unsafe fn bf16_lines(
        self,
        x: *const u16,
        stride: isize,
        lines: [usize; 2],
        pairs: Option<(*mut u32, usize)>,
    ) -> u16 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: by contract.
        return unsafe {
            match pairs {
                None => bf16_pairs::smallest(x, stride, lines),
                Some((to, step)) => bf16_pairs::interleave(x, stride, lines, to, step),
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no pairs: {x:?} {stride} {lines:?} {pairs:?}")
    }

    /// `self`, or [`Level::best`] if that is lower.
    pub fn supported(self) -> Level {
        self.min(Level::best())
    }

    /// Whether `TEENY_CPU_LEVEL` hides a level of this machine.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_lowered() -> bool {
        Level::best() < detect()
    }
}

fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            return Level::Avx512;
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Portable
}

/// A loop that can be compiled for any vector. Implementations mark `run`, and every function that
/// it calls, `#[inline(always)]`: only code that is inlined into the level's entry function gets
/// the level's instructions.
pub trait Work {
    /// The type of the loop's result.
    type Out;
    /// Whether the loop is compiled for AVX-512 too. Most plain loops of integers and bools are
    /// not: with AVX2 they are as fast as the memory that they read.
    const FOR_AVX512: bool = true;
    /// The loop.
    fn run<V: F32s>(self) -> Self::Out;
}

/// As [`Work`], for vectors of f32 whose `fma` multiplies pairs of bf16: `x.fma(y, sum)` adds `x₀
/// y₀ + x₁ y₁` to each lane of `sum`, where each lane of `x` and `y` is a pair. `splat`, `load` and
/// `load_part` move pairs; all other operations act on f32.
pub(crate) trait PairWork {
    /// The loop.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    fn run<V: Lanes<f32>>(self);
}

/// Calls `f` with each element of `xs` and the element of `ys` at the same place, up to the shorter
/// length: `zip` for loops that are compiled per level. The optimiser may choose not to inline the
/// standard library's, which would leave a call with the baseline's instructions in the loop.
#[inline(always)]
pub(crate) fn for_pairs<X, Y: Copy>(xs: &mut [X], ys: &[Y], mut f: impl FnMut(&mut X, Y)) {
    let n = xs.len().min(ys.len());
    let (xs, ys) = (xs.as_mut_ptr(), ys.as_ptr());
    let mut i = 0;
    while i < n {
        // SAFETY: i is inside both.
        unsafe { f(&mut *xs.add(i), *ys.add(i)) };
        i += 1;
    }
}

/// Makes streamed stores of this thread visible to other threads before its next stores.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches the cache line at `p`, which will be used soon.
#[inline(always)]
pub(crate) fn prefetch(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE; a prefetch touches nothing, at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every aarch64 has the instruction; a prefetch touches nothing, at any address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{p}]", p = in(reg) p,
            options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = p;
}

/// The distance at which contiguous memory is prefetched: the processor's own prefetching stays
/// within a page and does not use all of the bandwidth.
const PREFETCH_DISTANCE: usize = 16 << 10;

/// Prefetches the memory 16 KiB after the cache lines of `data`, which is part of a longer run.
#[inline(always)]
pub(crate) fn prefetch_ahead<T>(data: &[T]) {
    for line in (0..size_of_val(data)).step_by(64) {
        prefetch(data.as_ptr().cast::<u8>().wrapping_add(PREFETCH_DISTANCE + line).cast());
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
