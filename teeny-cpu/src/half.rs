//! 16-bit floats to f32 and back, by vectors of a level.
//!
//! The naive form is `y[i] = f32::from(x[i])`. A bf16 is the upper half of an f32, so converting it
//! is a shift, and rounding to it an addition; the compiler vectorises both. f16 goes through the
//! `half` crate, which has the processor's instructions. Knows no operation: rows are converted
//! piece by piece while they are in L1.

use crate::elementwise::loops::cast;
use crate::simd::{F32s, Level, Work, for_pairs};
use crate::typed::{slice, slice_mut};
use teeny_core::DType;

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
            cast::to_f32(half, x, y, n);
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
            cast::from_f32(half, x, y, n);
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

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::bf16;

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
