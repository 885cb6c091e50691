//! Conversions between compute dtypes, and between the 16-bit floats and f32. The naive form is
//! `y[i] = x[i] as T`, vectorised by the compiler; the rules follow `Scalar::cast`.

use super::int::{Rows, by_row, by_row_512};
use crate::half;
use crate::simd::Level;
use crate::typed::{with_bits, with_compute, with_int, with_long, with_type, with_wrapping};
use std::mem::MaybeUninit;
use teeny_core::DType;

/// Converts `n` values from the compute dtype of `from` to the compute dtype of `to`, with the
/// rounding that a stored value of either dtype has.
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
        return unsafe { plain(level, from, to, Rows::one(x, y, n)) };
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
                half::from_f32(level, from, x, bits, count);
                half::to_f32(level, from, bits, wide, count);
                if to.is_half() {
                    half::from_f32(level, to, wide, bits, count);
                    half::to_f32(level, to, bits, y, count);
                } else {
                    plain(level, DType::F32, to, Rows::one(wide, y, count));
                }
            } else {
                odd(level, from, Rows::one(x, wide, count));
                half::from_f32(level, to, wide, bits, count);
                half::to_f32(level, to, bits, y, count);
            }
        }
        at += count;
    }
}

/// `x` as f32, such that a second rounding, to a 16-bit type, equals a single rounding: an inexact
/// value is truncated and its last bit set ("round to odd", Boldo and Melquiond 2008).
#[inline(always)]
fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let (bits, back) = (nearest.to_bits(), f64::from(nearest));
    let bits = if back.abs() > x.abs() { bits - 1 } else { bits };
    f32::from_bits(if back == x { bits } else { bits | 1 })
}

/// As [`to_odd`], of integers alone. Beyond 2^24 the 16-bit types have multiples of 2^17 only, so
/// that only a sticky bit of the last 8 bits matters: one bit, and f32 has the integer.
#[inline(always)]
fn int_to_odd(x: i32) -> f32 {
    let rest = (x & 0xff) + 0xff;
    let odd = x & !0xff | rest >> 1 & 0x80;
    let is_exact = x.wrapping_add(1 << 24) as u32 <= 1 << 25;
    (if is_exact { x } else { odd }) as f32
}

/// An integer of 64 bits as f64, before it is rounded to f32 or 16 bits. Beyond 2^53 the last 12
/// bits matter only as a sticky bit, and f64 has the integer.
trait Long: Copy {
    fn exact_or_odd(self) -> f64;
}

macro_rules! long {
    ($($T:ty, $is_exact:expr;)*) => {$(
        impl Long for $T {
            #[inline(always)]
            fn exact_or_odd(self) -> f64 {
                let odd = self & !0xfff | ((self & 0xfff) + 0xfff) >> 1 & 0x800;
                let is_exact: fn($T) -> bool = $is_exact;
                (if is_exact(self) { self } else { odd }) as f64
            }
        }
    )*};
}

long! {
    i64, |x| x.wrapping_add(1 << 53) as u64 <= 1 << 54;
    u64, |x| x <= 1 << 53;
}

/// [`to_odd`] of an integer of 64 bits.
#[inline(always)]
fn long_to_odd<S: Long>(x: S) -> f32 {
    to_odd(x.exact_or_odd())
}

/// The bits of the nearest bf16.
#[inline(always)]
fn int_to_bf16(x: i32) -> u16 {
    let bits = int_to_odd(x).to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// `x as f32`, through f64, for which there are vectors.
#[inline(always)]
fn long_to_f32<S: Long>(x: S) -> f32 {
    x.exact_or_odd() as f32
}

/// Whether `x` is not zero.
#[inline(always)]
fn to_bool<S: Default + PartialEq>(x: S) -> u8 {
    u8::from(x != S::default())
}

/// `self as T`, as functions that are always inlined. A closure may be compiled once, for the
/// baseline, and be called for each number.
trait As<T>: Copy {
    fn cast(self) -> T;
}

macro_rules! conversions {
    ($($T:ty)*: $S:tt) => {
        $(conversions!(@ $T: $S);)*
    };
    (@ $T:ty: [$($S:ty)*]) => {$(
        impl As<$T> for $S {
            #[inline(always)]
            fn cast(self) -> $T {
                self as $T
            }
        }
    )*};
}

conversions! { u8 u16 u32 u64: [i8 i16 i32 i64 u8 u16 u32 u64] }
conversions! { f32 f64: [i8 i16 i32 i64 u8 u16 u32 u64 f32 f64] }

/// [`to_odd`] of rows of values.
///
/// # Safety
/// By contract of [`Rows`], for values of `from` and f32.
unsafe fn odd(level: Level, from: DType, rows: Rows) {
    // SAFETY: by contract.
    unsafe {
        match from {
            DType::F64 => by_row_512(level, rows, to_odd),
            DType::I32 => by_row_512(level, rows, int_to_odd),
            DType::U32 => by_row(level, rows, |x: u32| to_odd(f64::from(x))),
            DType::I64 | DType::U64 => {
                with_long!(from, S => by_row_512(level, rows, long_to_odd::<S>))
            }
            // Exact.
            _ => plain(level, from, DType::F32, rows),
        }
    }
}

/// As [`cast`] of rows of values as they are stored: 16-bit floats take 16 bits. Not for casts
/// between types that are computed in f32.
///
/// # Safety
/// By contract of [`Rows`], for elements of `from` and `to`.
pub(crate) unsafe fn stored(level: Level, from: DType, to: DType, rows: Rows) {
    if !from.is_half() && !to.is_half() {
        // SAFETY: by contract.
        return unsafe { plain(level, from, to, rows) };
    }
    if (from, to) == (DType::I32, DType::BF16) {
        // SAFETY: by contract.
        return unsafe { by_row_512(level, rows, int_to_bf16) };
    }
    let mut wide = MaybeUninit::<Wide>::uninit();
    let wide = wide.as_mut_ptr().cast::<u8>();
    let Rows { x, y, n, rows, stride } = rows;
    // As many short rows as make a piece, or parts of a long row.
    let group = (PIECE / n.max(1)).max(1);
    for row in (0..rows).step_by(group) {
        let group = group.min(rows - row);
        for at in (0..n).step_by(PIECE) {
            let len = PIECE.min(n - at);
            let first = |row: usize| {
                x.wrapping_offset((row as isize * stride + at as isize) * from.size() as isize)
            };
            let y = y.wrapping_add((row * n + at) * to.size());
            // SAFETY: by contract; the array has a piece.
            unsafe {
                if from.is_half() {
                    for i in 0..group {
                        let to = wide.wrapping_add(4 * i * len);
                        half::to_f32(level, from, first(row + i), to, len);
                    }
                    plain(level, DType::F32, to, Rows::one(wide, y, group * len));
                } else {
                    odd(level, from, Rows { x: first(row), y: wide, n: len, rows: group, stride });
                    half::from_f32(level, to, wide, y, group * len);
                }
            }
        }
    }
}

/// A float type that is converted to integers.
trait ToInt: Copy {
    /// The number as an integer, rounded towards zero; saturated; 0 for NaN.
    fn saturated<T: FromFloat<Self>>(self) -> T;
}

/// An integer type, as `F` is converted to it.
trait FromFloat<F>: Copy {
    const MIN_INPUT: F;
    /// The largest number of `F` that fits.
    const MAX_INPUT: F;
    const ZERO: Self;
    const MAX: Self;
    /// # Safety
    /// `MIN_INPUT <= x <= MAX_INPUT`.
    unsafe fn from_inside(x: F) -> Self;
}

macro_rules! to_int {
    ($F:ty, $bits:literal: $($T:ty)*) => {
        impl ToInt for $F {
            #[inline(always)]
            fn saturated<T: FromFloat<Self>>(self) -> T {
                // Comparisons and choices alone, for which there are vectors: `as` is made of
                // instructions for one number where a type has none for vectors.
                let inside = if self > T::MIN_INPUT { self } else { T::MIN_INPUT };
                let inside = if inside < T::MAX_INPUT { inside } else { T::MAX_INPUT };
                // SAFETY: NaN has become the least number.
                let y = unsafe { T::from_inside(inside) };
                let y = if self > T::MAX_INPUT { T::MAX } else { y };
                if self == self { y } else { T::ZERO }
            }
        }
        $(impl FromFloat<$F> for $T {
            const MIN_INPUT: $F = <$T>::MIN as $F;
            const MAX_INPUT: $F = {
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
unsafe fn plain(level: Level, from: DType, to: DType, rows: Rows) {
    // Only AVX-512 converts vectors of 64-bit integers, has masks for what saturates, and narrows a
    // vector by one instruction.
    // SAFETY: by contract of `stored`.
    unsafe {
        match (to, from) {
            (DType::Bool, _) => {
                with_wrapping!(from, S => by_row_512(level, rows, to_bool::<S>))
            }
            (DType::F16 | DType::BF16 | DType::F32, DType::U64 | DType::I64) => {
                with_long!(from, S => by_row_512(level, rows, long_to_f32::<S>))
            }
            (DType::F16 | DType::BF16 | DType::F32, _) => {
                with_compute!(from, S => by_row(level, rows, <S as As<f32>>::cast))
            }
            (DType::F64, DType::U64 | DType::I64) => {
                with_long!(from, S => by_row_512(level, rows, <S as As<f64>>::cast))
            }
            (DType::F64, _) => {
                with_compute!(from, S => by_row(level, rows, <S as As<f64>>::cast))
            }
            // Integers keep their low bits, signed or not; floats saturate at the limits.
            (_, DType::F16 | DType::BF16 | DType::F32) => {
                with_int!(to, T => by_row_512(level, rows, f32::saturated::<T>))
            }
            (_, DType::F64) => {
                with_int!(to, T => by_row_512(level, rows, f64::saturated::<T>))
            }
            _ if to.size() < from.size() && from.size() >= 4 => {
                with_type!(from, S => with_type!(to, T => by_row_512(level, rows, <S as As<T>>::cast);
                    U8 | I8 => u8, U16 | I16 => u16, U32 | I32 => u32; _ => unreachable!("a smaller integer"));
                    U32 | I32 => u32, U64 | I64 => u64; _ => unreachable!("an integer of 32 or 64 bits"))
            }
            _ => {
                with_int!(from, S => with_bits!(to, T => by_row(level, rows, <S as As<T>>::cast)))
            }
        }
    }
}

/// Elements that are rounded at a time.
const PIECE: usize = 512;

/// Memory for a piece, whose vectors are whole cache lines. Read only where it has been written.
#[repr(align(64))]
struct Wide(#[allow(dead_code)] [f32; PIECE]);

#[cfg(test)]
mod tests {
    use super::{int_to_bf16, int_to_odd, long_to_f32, long_to_odd, to_odd};
    use teeny_core::{bf16, f16};

    #[test]
    fn long_integers_are_rounded_once() {
        let mut drawn = 1u64;
        for i in 0..40_000 {
            drawn = drawn
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Random magnitudes, many of them next to a rounding tie.
            let number = (drawn as i64) >> (i % 63);
            let middle = 1i64.wrapping_shl(i as u32 % 64);
            let far = middle.wrapping_mul(1 << (i / 64 % 30)).wrapping_add(middle);
            for x in [number, far, far.wrapping_add(1), far.wrapping_sub(1), i64::MIN, i64::MAX] {
                assert_eq!(long_to_f32(x), x as f32, "{x}");
                assert_eq!(long_to_f32(x as u64), x as u64 as f32, "{x}");
                // rounding to odd replaces the inexact i128 -> f64.
                let (odd, nearest) = (long_to_odd(x), x as f64);
                let exact = nearest as i128 == i128::from(x);
                if exact {
                    assert_eq!(odd, to_odd(nearest), "{x}");
                }
                let between = if nearest as i128 > i128::from(x) {
                    nearest.next_down()
                } else {
                    nearest.next_up()
                };
                // The integer is between two f64: a bf16 that is nearest to both is nearest to it.
                let [a, b] = [nearest, between].map(|x| bf16::from_f32(to_odd(x)));
                if a == b {
                    assert_eq!(bf16::from_f32(odd), a, "{x}");
                }
            }
        }
        let x = (1i64 << 62) + (1 << 38) + 1;
        assert_eq!(long_to_f32(x), 4_611_686_568_183_201_792.0);
        assert_eq!(
            bf16::from_f32(long_to_odd((1i64 << 62) + (1 << 54) + 1)).to_f32(),
            4.647_715e18
        );
    }

    #[test]
    fn integers_are_rounded_once() {
        let mut x = 1u32;
        let drawn = (0..20_000).map(|i| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Random magnitudes, many of them next to a rounding tie.
            let number = (x as i32) >> (i % 31);
            if i % 3 == 0 { number & !0xffff | (x & 1) as i32 } else { number }
        });
        let limits = (0..32).flat_map(|bit| {
            let power = 1i32.wrapping_shl(bit);
            [-1, 0, 1].map(|by: i32| power.wrapping_add(by))
        });
        for x in drawn.chain(limits) {
            for x in [x, x.wrapping_neg()] {
                let (one, other) = (int_to_odd(x), to_odd(f64::from(x)));
                assert_eq!(bf16::from_f32(one).to_bits(), bf16::from_f32(other).to_bits(), "{x}");
                assert_eq!(int_to_bf16(x), bf16::from_f32(other).to_bits(), "{x}");
                assert_eq!(f16::from_f32(one).to_bits(), f16::from_f32(other).to_bits(), "{x}");
            }
        }
    }
}
