//! 16-bit floats to f32 and back, by vectors of a level.
//!
//! The naive form is `y[i] = f32::from(x[i])`. A bf16 is the upper half of an f32, so converting it
//! is a shift, and rounding to it an addition. The exponent of an f16 is moved, by an addition of
//! f32 where it is subnormal (Giesen 2012, "half to float done quick"). It is branch-free, so that
//! the compiler vectorises all of it. Levels with native vectors convert these; loops that compute
//! with 16-bit floats [`load`] and [`store`] them. Independent of operations.

use crate::simd::{F32s, Half, Level, Work};
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
                assert_eq!(wide.to_bits(), wanted.to_bits(), "{stored:x}"); // NaN is quiet
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
