//! Conversions between compute dtypes, and between the 16-bit floats and f32. The naive form is
//! `y[i] = x[i] as T`, vectorised by the compiler; the rules are those of `Scalar::cast`.

use super::int::{by_each, by_each_512};
use crate::elementwise::half_pairs::convert::Convert;
use crate::simd::Level;
use crate::typed::{slice, slice_mut, with_bits, with_compute, with_int, with_long, with_wrapping};
use teeny_core::DType;

/// Converts `n` values from the compute dtype of `from` to that of `to`, with the rounding that a
/// stored value of either dtype has.
///
/// # Safety
/// `x` and `y` have `n` values and do not overlap.
pub(crate) unsafe fn cast(
    level: Level,
    from: DType,
    to: DType,
    x: *const u8,
    y: *mut u8,
    n: usize,
) {
    if !from.is_half() && !to.is_half() || from == to {
        // SAFETY: by contract.
        return unsafe { plain(level, from, to, x, y, n) };
    }
    let (mut wide, mut bits) = ([0.0f32; PIECE], [0u16; PIECE]);
    let mut at = 0;
    while at < n {
        let count = PIECE.min(n - at);
        let (wide, bits) = (wide.as_mut_ptr().cast::<u8>(), bits.as_mut_ptr().cast::<u8>());
        // SAFETY: by contract; the arrays have a piece.
        unsafe {
            let x = x.add(at * from.compute().size());
            let y = y.add(at * to.compute().size());
            if from.is_half() {
                // The value is an f32 that may not have been rounded yet.
                by_level(level, from, x, bits, count, false);
                by_level(level, from, bits, wide, count, true);
                if to.is_half() {
                    by_level(level, to, wide, bits, count, false);
                    by_level(level, to, bits, y, count, true);
                } else {
                    plain(level, DType::F32, to, wide, y, count);
                }
            } else {
                odd(level, from, x, wide, count);
                by_level(level, to, wide, bits, count, false);
                by_level(level, to, bits, y, count, true);
            }
        }
        at += count;
    }
}

/// Converts to f32 so that a second rounding, to a 16-bit type, gives what one rounding would:
/// inexact values are truncated and their last bit set ("round to odd", Boldo and Melquiond 2008).
unsafe fn odd(level: Level, from: DType, x: *const u8, y: *mut u8, n: usize) {
    let to_odd = |x: f64| {
        let nearest = x as f32;
        let (bits, back) = (nearest.to_bits(), f64::from(nearest));
        let bits = if back.abs() > x.abs() { bits - 1 } else { bits };
        f32::from_bits(if back == x { bits } else { bits | 1 })
    };
    // SAFETY: by contract of `cast`.
    unsafe {
        match from {
            DType::F64 => by_each(level, slice::<f64>(x, n), slice_mut(y, n), to_odd),
            DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
                with_int!(from, S => by_each(level, slice::<S>(x, n), slice_mut(y, n), |x| to_odd(x as f64)))
            }
            // Exact.
            _ => plain(level, from, DType::F32, x, y, n),
        }
    }
}

/// As [`cast`] of values as they are stored: 16-bit floats take 16 bits. Not for casts between types
/// that are computed in f32.
///
/// # Safety
/// `x` has `n` elements of `from`, `y` takes as many of `to`, and they do not overlap.
pub(crate) unsafe fn stored(
    level: Level,
    from: DType,
    to: DType,
    x: *const u8,
    y: *mut u8,
    n: usize,
) {
    if !from.is_half() && !to.is_half() {
        // SAFETY: by contract.
        return unsafe { plain(level, from, to, x, y, n) };
    }
    let mut wide = [0.0f32; PIECE];
    let wide = wide.as_mut_ptr().cast::<u8>();
    let mut at = 0;
    while at < n {
        let count = PIECE.min(n - at);
        // SAFETY: by contract; the array has a piece.
        unsafe {
            let (x, y) = (x.add(at * from.size()), y.add(at * to.size()));
            if from.is_half() {
                by_level(level, from, x, wide, count, true);
                plain(level, DType::F32, to, wide, y, count);
            } else {
                odd(level, from, x, wide, count);
                by_level(level, to, wide, y, count, false);
            }
        }
        at += count;
    }
}

/// A float type that is converted to integers.
trait ToInt: Copy {
    /// The number as an integer, rounded towards zero; saturated; 0 for NaN.
    fn saturated<T: FromFloat<Self>>(self) -> T;
}

/// An integer type, as `F` is converted to it.
trait FromFloat<F>: Copy {
    const LEAST: F;
    /// The largest number of `F` that fits.
    const MOST: F;
    const ZERO: Self;
    const MAX: Self;
    /// # Safety
    /// `LEAST <= x <= MOST`.
    unsafe fn from_inside(x: F) -> Self;
}

macro_rules! to_int {
    ($F:ty, $bits:literal: $($T:ty)*) => {
        impl ToInt for $F {
            #[inline(always)]
            fn saturated<T: FromFloat<Self>>(self) -> T {
                // Comparisons and choices alone, for which there are vectors: `as` is made of
                // instructions for one number where a type has none for vectors.
                let inside = if self > T::LEAST { self } else { T::LEAST };
                let inside = if inside < T::MOST { inside } else { T::MOST };
                // SAFETY: NaN has become the least number.
                let y = unsafe { T::from_inside(inside) };
                let y = if self > T::MOST { T::MAX } else { y };
                if self == self { y } else { T::ZERO }
            }
        }
        $(impl FromFloat<$F> for $T {
            const LEAST: $F = <$T>::MIN as $F;
            const MOST: $F = {
                let most = <$T>::MAX as $F;
                // Rounded up to a power of two if the float has fewer bits.
                if (<$T>::MAX.count_ones()) > $bits { most.next_down() } else { most }
            };
            const ZERO: $T = 0;
            const MAX: $T = <$T>::MAX;
            #[inline(always)]
            unsafe fn from_inside(x: $F) -> $T {
                // SAFETY: by contract.
                unsafe { x.to_int_unchecked::<$T>() }
            }
        })*
    };
}

to_int! { f32, 24: i8 i16 i32 i64 u8 u16 u32 u64 }
to_int! { f64, 53: i8 i16 i32 i64 u8 u16 u32 u64 }

#[allow(clippy::unnecessary_cast)]
unsafe fn plain(level: Level, from: DType, to: DType, x: *const u8, y: *mut u8, n: usize) {
    // Only AVX-512 converts vectors of 64-bit integers, and has masks for what saturates.
    // SAFETY: by contract of `cast`.
    unsafe {
        match (to, from) {
            (DType::Bool, _) => {
                with_wrapping!(from, S => by_each(level, slice::<S>(x, n), slice_mut(y, n), |x| u8::from(x != 0 as S)))
            }
            // Through f64, as core defines it; only 64-bit integers are rounded there.
            (DType::F16 | DType::BF16 | DType::F32, DType::U64 | DType::I64) => {
                with_long!(from, S => by_each_512(level, slice::<S>(x, n), slice_mut(y, n), |x| x as f64 as f32))
            }
            (DType::F16 | DType::BF16 | DType::F32, _) => {
                with_compute!(from, S => by_each(level, slice::<S>(x, n), slice_mut(y, n), |x| x as f32))
            }
            (DType::F64, DType::U64 | DType::I64) => {
                with_long!(from, S => by_each_512(level, slice::<S>(x, n), slice_mut(y, n), |x| x as f64))
            }
            (DType::F64, _) => {
                with_compute!(from, S => by_each(level, slice::<S>(x, n), slice_mut(y, n), |x| x as f64))
            }
            // Integers keep their low bits, signed or not; floats saturate at the limits.
            (_, DType::F16 | DType::BF16 | DType::F32) => {
                with_int!(to, T => by_each_512(level, slice::<f32>(x, n), slice_mut(y, n), |x| x.saturated::<T>()))
            }
            (_, DType::F64) => {
                with_int!(to, T => by_each_512(level, slice::<f64>(x, n), slice_mut(y, n), |x| x.saturated::<T>()))
            }
            _ => {
                with_int!(from, S => with_bits!(to, T => by_each(level, slice::<S>(x, n), slice_mut(y, n), |x| x as T)))
            }
        }
    }
}

/// Elements that are rounded at a time.
const PIECE: usize = 512;

/// Converts to f32 if `widen`, otherwise from f32.
///
/// # Safety
/// As `cast`.
unsafe fn by_level(level: Level, half: DType, x: *const u8, y: *mut u8, n: usize, widen: bool) {
    level.run(Convert { x, y, n, bf16: half == DType::BF16, widen })
}

/// Converts `n` stored 16-bit floats to f32. All levels have the same bits.
///
/// # Safety
/// As `cast`.
pub(crate) unsafe fn to_f32(half: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { by_level(Level::best(), half, x, y, n, true) }
}

/// Rounds `n` f32 to stored 16-bit floats. All levels have the same bits.
///
/// # Safety
/// As `cast`.
pub(crate) unsafe fn from_f32(half: DType, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: passed on.
    unsafe { by_level(Level::best(), half, x, y, n, false) }
}
