//! 16-bit floats to f32 and back, by vectors of a level.
//!
//! The naive form is `y[i] = f32::from(x[i])`. A bf16 is the upper half of an f32, so converting it
//! is a shift, and rounding to it an addition. The exponent of an f16 is moved, by an addition of
//! f32 where it is subnormal (Giesen 2012, "half to float done quick"). There is no branch, so that
//! the compiler vectorises all of it. Levels with instructions for f16 convert whole vectors by them. Knows no operation: rows are converted piece by piece while
//! they are in L1.

use crate::simd::{F32s, Level, Work, for_pairs};
use crate::typed::{slice, slice_mut};
use teeny_core::{DType, f16};

/// Converts `n` stored floats of 16 bits to f32.
///
/// # Safety
/// `x` has `n` values of `half`, `y` takes as many f32; they do not overlap.
pub(crate) unsafe fn to_f32(level: Level, half: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: by contract.
    unsafe {
        if half == DType::BF16 {
            level.run(Widen(slice(x, n), slice_mut(y, n)));
        } else {
            level.run(WidenF16(slice(x, n), slice_mut(y, n)));
        }
    }
}

/// Rounds `n` f32 to stored floats of 16 bits, to the nearest, ties to even.
///
/// # Safety
/// `x` has `n` f32, `y` takes as many values of `half`; they do not overlap.
pub(crate) unsafe fn from_f32(level: Level, half: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: by contract.
    unsafe {
        if half == DType::BF16 {
            level.run(Round(slice(x, n), slice_mut(y, n)));
        } else {
            level.run(RoundF16(slice(x, n), slice_mut(y, n)));
        }
    }
}

struct Widen<'a>(&'a [u16], &'a mut [u32]);

impl Work for Widen<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for_pairs(self.1, self.0, |y, x| *y = u32::from(x) << 16);
    }
}

struct Round<'a>(&'a [u32], &'a mut [u16]);

impl Work for Round<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for_pairs(self.1, self.0, |y, x| {
            let nearest = x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16;
            let is_nan = x & 0x7fff_ffff > 0x7f80_0000;
            *y = if is_nan { (x >> 16) | 0x40 } else { nearest } as u16;
        });
    }
}

/// The least normal f16 as f32: its exponent is the least.
const LEAST_NORMAL: u32 = 113 << 23;

struct WidenF16<'a>(&'a [u16], &'a mut [u32]);

impl Work for WidenF16<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let whole =
            if V::NATIVE { self.0.len().min(self.1.len()) / V::LANES * V::LANES } else { 0 };
        for i in (0..whole).step_by(V::LANES) {
            // SAFETY: whole vectors inside both.
            unsafe {
                V::load_half::<f16>(self.0.as_ptr().add(i)).store(self.1.as_mut_ptr().add(i).cast())
            };
        }
        for_pairs(&mut self.1[whole..], &self.0[whole..], |y, x| {
            let (sign, rest) = (u32::from(x & 0x8000) << 16, u32::from(x & 0x7fff) << 13);
            let normal = rest + (112 << 23);
            // 2^-14 plus the fraction, less 2^-14: the exponent follows.
            let subnormal = f32::from_bits(rest + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL);
            let finite = if rest < 1 << 23 { subnormal.to_bits() } else { normal };
            *y = sign | if rest >= 31 << 23 { rest | 0xff << 23 } else { finite };
        });
    }
}

struct RoundF16<'a>(&'a [u32], &'a mut [u16]);

impl Work for RoundF16<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        /// 1/2: the last place of its sum with a subnormal f16 is that of the f16.
        const HALF: u32 = 126 << 23;
        let whole =
            if V::NATIVE { self.0.len().min(self.1.len()) / V::LANES * V::LANES } else { 0 };
        for i in (0..whole).step_by(V::LANES) {
            // SAFETY: whole vectors inside both.
            unsafe {
                V::load(self.0.as_ptr().add(i).cast()).store_half::<f16>(self.1.as_mut_ptr().add(i))
            };
        }
        for_pairs(&mut self.1[whole..], &self.0[whole..], |y, x| {
            let (sign, rest) = (x >> 16 & 0x8000, x & 0x7fff_ffff);
            let odd = rest >> 13 & 1;
            let normal = rest.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
            let subnormal = (f32::from_bits(rest) + f32::from_bits(HALF)).to_bits();
            let finite = if rest < LEAST_NORMAL { subnormal.wrapping_sub(HALF) } else { normal };
            let nan = 0x7e00 | (rest >> 13 & 0x3ff);
            let huge = if rest > 255 << 23 { nan } else { 0x7c00 };
            *y = (sign | if rest >= 143 << 23 { huge } else { finite }) as u16;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::bf16;

    #[test]
    fn every_f16_and_its_neighbours_are_converted_as_by_the_half_crate() {
        let stored: Vec<u16> = (0..=u16::MAX).collect();
        // All f16, and f32 just beside them, in the middle of two, and of any exponent.
        let mut near: Vec<f32> = stored.iter().map(|&x| f16::from_bits(x).to_f32()).collect();
        for offset in [1, 0xfff, 0x1000, 0x1001, 0x1fff] {
            near.extend_from_within(..stored.len());
            for x in near.iter_mut().rev().take(stored.len()) {
                *x = f32::from_bits(x.to_bits().wrapping_add(offset));
            }
        }
        near.extend((0..1u32 << 20).map(|i| f32::from_bits(i << 12 | i & 0xfff)));
        for level in Level::available() {
            let mut wide = vec![0f32; stored.len()];
            let mut rounded = vec![0u16; near.len()];
            // SAFETY: both have all values.
            unsafe {
                let (x, y) = (stored.as_ptr().cast(), wide.as_mut_ptr().cast());
                to_f32(level, DType::F16, x, y, stored.len());
                let (x, y) = (near.as_ptr().cast(), rounded.as_mut_ptr().cast());
                from_f32(level, DType::F16, x, y, near.len());
            }
            for (&stored, wide) in stored.iter().zip(&wide) {
                let wanted = f16::from_bits(stored).to_f32();
                assert!(wide.to_bits() == wanted.to_bits() || wide.is_nan() && wanted.is_nan());
            }
            for (&near, &rounded) in near.iter().zip(&rounded) {
                let wanted = f16::from_f32(near);
                let both_nan = wanted.is_nan() && f16::from_bits(rounded).is_nan();
                assert!(rounded == wanted.to_bits() || both_nan, "{near:e} {rounded:x}");
            }
        }
    }

    #[test]
    fn every_bf16_and_its_neighbours_are_converted_as_by_the_half_crate() {
        for level in Level::available() {
            let stored: Vec<u16> = (0..=u16::MAX).collect();
            let mut wide = vec![0f32; stored.len()];
            let (x, y) = (stored.as_ptr().cast(), wide.as_mut_ptr().cast());
            // SAFETY: both have all values.
            unsafe { to_f32(level, DType::BF16, x, y, stored.len()) };
            for (&stored, wide) in stored.iter().zip(&wide) {
                let wanted = bf16::from_bits(stored).to_f32();
                assert!(wide.to_bits() == wanted.to_bits() || wide.is_nan() && wanted.is_nan());
            }
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let near: Vec<f32> =
                    stored.iter().map(|&x| f32::from_bits(u32::from(x) << 16 | low)).collect();
                let mut rounded = vec![0u16; near.len()];
                let (x, y) = (near.as_ptr().cast(), rounded.as_mut_ptr().cast());
                // SAFETY: both have all values.
                unsafe { from_f32(level, DType::BF16, x, y, near.len()) };
                for (&near, &rounded) in near.iter().zip(&rounded) {
                    assert_eq!(rounded, bf16::from_f32(near).to_bits(), "{near:e}");
                }
            }
        }
    }
}
