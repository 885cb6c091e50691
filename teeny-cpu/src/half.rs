//! 16-bit floats to f32 and back, by vectors of a level.
//!
//! The naive form is `y[i] = f32::from(x[i])`. A bf16 is the upper half of an f32, so converting it
//! is a shift, and rounding to it an addition. The exponent of an f16 is moved, by an addition of
//! f32 where it is subnormal (Giesen 2012, "half to float done quick"). There is no branch, so that
//! the compiler vectorises all of it. Levels with native vectors convert these; loops that compute
//! with 16-bit floats [`load`] and [`store`] them. Knows no operation.

use crate::simd::{F32s, Half, Level, Work, for_pairs};
use crate::typed::{slice, slice_mut};
use std::marker::PhantomData;
use teeny_core::{DType, bf16, f16};

/// Converts `n` stored floats of 16 bits to f32.
///
/// # Safety
/// `x` has `n` values of `half`, `y` takes as many f32; they do not overlap.
pub(crate) unsafe fn to_f32(level: Level, half: DType, x: *const u8, y: *mut u8, n: usize) {
    let (x, y) = (x.cast(), y.cast());
    if half == DType::BF16 {
        level.run(Widen::<bf16>(x, y, n, PhantomData));
    } else {
        level.run(Widen::<f16>(x, y, n, PhantomData));
    }
}

/// Rounds `n` f32 to stored floats of 16 bits, to the nearest, ties to even.
///
/// # Safety
/// `x` has `n` f32, `y` takes as many values of `half`; they do not overlap.
pub(crate) unsafe fn from_f32(level: Level, half: DType, x: *const u8, y: *mut u8, n: usize) {
    let (x, y) = (x.cast(), y.cast());
    if half == DType::BF16 {
        level.run(Narrow::<bf16>(x, y, n, PhantomData));
    } else {
        level.run(Narrow::<f16>(x, y, n, PhantomData));
    }
}

/// [`widen`] compiled for a level; its maker promises the memory.
struct Widen<H>(*const u16, *mut f32, usize, PhantomData<H>);

impl<H: Half> Work for Widen<H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        // SAFETY: the maker's promise.
        unsafe { widen::<V, H>(self.0, self.1, self.2) }
    }
}

/// [`narrow`] compiled for a level; its maker promises the memory.
struct Narrow<H>(*const f32, *mut u16, usize, PhantomData<H>);

impl<H: Half> Work for Narrow<H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        // SAFETY: the maker's promise.
        unsafe { narrow::<V, H>(self.0, self.1, self.2) }
    }
}

/// `to[i] = from[i]`
///
/// # Safety
/// Both have n elements, are aligned for them and do not overlap.
#[inline(always)]
pub(crate) unsafe fn widen<V: F32s, H: Half>(from: *const u16, to: *mut f32, n: usize) {
    let mut i = 0;
    // SAFETY: by contract.
    unsafe {
        if !V::NATIVE {
            let (to, from) = (slice_mut(to.cast(), n), slice(from.cast(), n));
            return for_pairs(to, from, |y, x| *y = widened::<H>(x));
        }
        while i + V::LANES <= n {
            V::load_half::<H>(from.add(i)).store(to.add(i));
            i += V::LANES;
        }
        if i < n {
            load::<V, H>(from.add(i), n - i).store_part(to.add(i), n - i);
        }
    }
}

/// `to[i] = from[i]`, rounded.
///
/// # Safety
/// As [`widen`].
#[inline(always)]
pub(crate) unsafe fn narrow<V: F32s, H: Half>(from: *const f32, to: *mut u16, n: usize) {
    let mut i = 0;
    // SAFETY: by contract.
    unsafe {
        if !V::NATIVE {
            let (to, from) = (slice_mut(to.cast(), n), slice(from.cast(), n));
            return for_pairs(to, from, |y, x| *y = rounded::<H>(x));
        }
        while i + V::LANES <= n {
            V::load(from.add(i)).store_half::<H>(to.add(i));
            i += V::LANES;
        }
        if i < n {
            store::<V, H>(V::load_part(from.add(i), n - i), to.add(i), n - i);
        }
    }
}

/// The first `n <= LANES` elements at `p`; the other lanes are 0.
///
/// # Safety
/// They are readable.
#[inline(always)]
pub(crate) unsafe fn load<V: F32s, H: Half>(p: *const u16, n: usize) -> V {
    // SAFETY: by contract; a part goes through an array of the widest vector.
    unsafe {
        if n == V::LANES {
            return V::load_half::<H>(p);
        }
        let mut part = [0u16; 16];
        copy_part(p, part.as_mut_ptr(), n);
        V::load_half::<H>(part.as_ptr())
    }
}

/// Rounds the first `n <= LANES` lanes and writes them at `p`.
///
/// # Safety
/// `n` elements are writable.
#[inline(always)]
pub(crate) unsafe fn store<V: F32s, H: Half>(x: V, p: *mut u16, n: usize) {
    // SAFETY: as above.
    unsafe {
        if n == V::LANES {
            return x.store_half::<H>(p);
        }
        let mut part = [0u16; 16];
        x.store_half::<H>(part.as_mut_ptr());
        copy_part(part.as_ptr(), p, n);
    }
}

/// Copies `n < 16` elements by two moves, which may overlap.
///
/// # Safety
/// They are readable and writable, and do not overlap.
#[inline(never)]
unsafe fn copy_part(from: *const u16, to: *mut u16, n: usize) {
    macro_rules! by {
        ($size:literal) => {{
            let last = n - $size;
            // Not an array of both: its functions may not be inlined.
            let a = from.cast::<[u16; $size]>().read();
            let b = from.add(last).cast::<[u16; $size]>().read();
            to.cast::<[u16; $size]>().write(a);
            to.add(last).cast::<[u16; $size]>().write(b);
        }};
    }
    // SAFETY: by contract.
    unsafe {
        match n {
            8.. => by!(8),
            4.. => by!(4),
            2.. => by!(2),
            1 => to.write(*from),
            _ => {}
        }
    }
}

/// The least normal f16 as f32: its exponent is the least.
const LEAST_NORMAL: u32 = 113 << 23;

/// The bits of a 16-bit float as f32.
#[inline(always)]
fn widened<H: Half>(x: u16) -> u32 {
    if H::IS_BF16 {
        return u32::from(x) << 16;
    }
    let (sign, rest) = (u32::from(x & 0x8000) << 16, u32::from(x & 0x7fff) << 13);
    let normal = rest + (112 << 23);
    // 2^-14 plus the fraction, less 2^-14: the exponent follows.
    let subnormal = f32::from_bits(rest + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL);
    let finite = if rest < 1 << 23 { subnormal.to_bits() } else { normal };
    let nan = if rest > 31 << 23 { 1 << 22 } else { 0 };
    sign | if rest >= 31 << 23 { rest | 0xff << 23 | nan } else { finite }
}

/// The bits of an f32 as 16-bit float.
#[inline(always)]
fn rounded<H: Half>(x: u32) -> u16 {
    /// 1/2: the last place of its sum with a subnormal f16 is that of the f16.
    const HALF: u32 = 126 << 23;
    if H::IS_BF16 {
        let nearest = x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16;
        let is_nan = x & 0x7fff_ffff > 0x7f80_0000;
        return if is_nan { (x >> 16) | 0x40 } else { nearest } as u16;
    }
    let (sign, rest) = (x >> 16 & 0x8000, x & 0x7fff_ffff);
    let odd = rest >> 13 & 1;
    let normal = rest.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let subnormal = (f32::from_bits(rest) + f32::from_bits(HALF)).to_bits();
    let finite = if rest < LEAST_NORMAL { subnormal.wrapping_sub(HALF) } else { normal };
    let nan = 0x7e00 | (rest >> 13 & 0x3ff);
    let huge = if rest > 255 << 23 { nan } else { 0x7c00 };
    (sign | if rest >= 143 << 23 { huge } else { finite }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

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
