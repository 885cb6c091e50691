//! Loops of integer and bool nodes. A bool is a `u8` of 0 or 1 here; arithmetic wraps, as core's
//! `kernel::eval` defines it.
//!
//! The naive form is `y[i] = f(a[i], b[i])`, which the compiler vectorises. Operations with the
//! same bits for signed and unsigned integers are compiled for the unsigned types alone, and
//! operations without vector instructions for one level alone.

pub(crate) use super::int_type::Int;
use super::unexpected;
use crate::simd::{F32s, Level, Work, for_pairs};
use crate::typed::{slice, slice_mut, with_bits, with_compute, with_int, with_wrapping};
use std::marker::PhantomData;
use teeny_core::DType;
use teeny_core::kernel::{Arithmetic, Bitwise, Comparison, OpCode, SignFunction};

/// `y[i] = f(x[i])`.
#[inline(always)]
pub(crate) fn each<T: Copy, U>(x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    for_pairs(y, x, |y, x| *y = f(x));
}

/// `y[i] = f(a[i], b[i])` in each row of a tile.
///
/// # Safety
/// By contract of [`Tile`], for values of `T` and results of `U`.
#[inline(always)]
unsafe fn pairs<T: Copy, U>(tile: Tile, f: impl Fn(T, T) -> U) {
    let Tile { a, b, y, n, rows, pitch, by_number } = tile;
    for row in 0..rows {
        let a = a.cast::<T>().wrapping_offset(row as isize * pitch[0]);
        let b = b.cast::<T>().wrapping_offset(row as isize * pitch[1]);
        let y = y.cast::<U>().wrapping_add(row * n);
        let mut i = 0;
        // SAFETY: i is inside all three; a number is one element.
        unsafe {
            if by_number {
                let b = b.read_unaligned();
                while i < n {
                    *y.add(i) = f(*a.add(i), b);
                    i += 1;
                }
            }
            while i < n {
                *y.add(i) = f(*a.add(i), *b.add(i));
                i += 1;
            }
        }
    }
}

/// [`each`], compiled for each level except AVX-512.
pub(crate) fn by_each<T: Copy, U>(level: Level, x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    level.run(Each::<T, U, _, false>(x, y, f))
}

/// [`each`], compiled for each level.
pub(super) fn by_each_512<T: Copy, U>(level: Level, x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    level.run(Each::<T, U, _, true>(x, y, f))
}

/// See [`by_each`].
struct Each<'a, T, U, F, const AVX512: bool>(&'a [T], &'a mut [U], F);

impl<T: Copy, U, F: Fn(T) -> U, const AVX512: bool> Work for Each<'_, T, U, F, AVX512> {
    type Out = ();
    const FOR_AVX512: bool = AVX512;
    #[inline(always)]
    fn run<V: F32s>(self) {
        each(self.0, self.1, self.2)
    }
}

/// [`pairs`], compiled for each level except AVX-512.
///
/// # Safety
/// As [`pairs`].
unsafe fn by_pairs<T: Copy>(level: Level, tile: Tile, f: impl Fn(T, T) -> T) {
    struct Pairs<T, F>(Tile, F, PhantomData<T>);
    impl<T: Copy, F: Fn(T, T) -> T> Work for Pairs<T, F> {
        type Out = ();
        const FOR_AVX512: bool = false;
        #[inline(always)]
        fn run<V: F32s>(self) {
            // SAFETY: by contract of `by_pairs`.
            unsafe { pairs::<T, T>(self.0, self.1) }
        }
    }
    level.run(Pairs(tile, f, PhantomData))
}

/// A unary node of integers or bools over a tile.
///
/// # Safety
/// `x` and `y` have `n` values of type `dtype` and do not overlap.
pub(crate) unsafe fn unary(
    level: Level,
    op: OpCode,
    dtype: DType,
    x: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: by contract.
    unsafe {
        match op {
            OpCode::Not if dtype == DType::Bool => {
                by_each(level, slice::<u8>(x, n), slice_mut(y, n), |x| x ^ 1)
            }
            OpCode::Not => {
                with_bits!(dtype, T => by_each(level, slice::<T>(x, n), slice_mut(y, n), |x: T| Int::not(x)))
            }
            OpCode::Sign(SignFunction::Neg) => {
                with_bits!(dtype, T => by_each(level, slice::<T>(x, n), slice_mut(y, n), |x: T| Int::neg(x)))
            }
            OpCode::Sign(SignFunction::Abs) => {
                with_int!(dtype, T => by_each(level, slice::<T>(x, n), slice_mut(y, n), |x: T| Int::abs(x)))
            }
            OpCode::Sign(SignFunction::Sign) => {
                with_int!(dtype, T => by_each(level, slice::<T>(x, n), slice_mut(y, n), |x: T| Int::sign(x)))
            }
            op => unexpected(op, "one integer"),
        }
    }
}

/// The operands and the result of a binary node over rows: `n` elements in each, the distances from
/// a row of an operand to its next, in elements. The rows of the result follow one another. With
/// `by_number`, each row of `b` is one number, at any alignment.
///
/// Its maker promises that operands are readable and the result writable there, aligned, and that the
/// result overlaps no operand.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub a: *const u8,
    pub b: *const u8,
    pub y: *mut u8,
    pub n: usize,
    pub rows: usize,
    pub pitch: [isize; 2],
    pub by_number: bool,
}

impl Tile {
    /// A tile of one row.
    pub(crate) fn row(a: *const u8, b: *const u8, y: *mut u8, n: usize) -> Tile {
        Tile { a, b, y, n, rows: 1, pitch: [0; 2], by_number: false }
    }
}

/// Arithmetic of integers over a tile.
///
/// # Safety
/// By contract of [`Tile`], for values of type `dtype`.
pub(crate) unsafe fn arithmetic(level: Level, op: Arithmetic, dtype: DType, tile: Tile) {
    use Arithmetic::*;
    // SAFETY: by contract.
    unsafe {
        match op {
            Add | Sub | Mul => wrapping(level, op.into(), dtype, tile),
            Max | Min => {
                let op = op.into();
                with_int!(dtype, T => level.run(Extreme::<T>(op, tile, PhantomData)))
            }
            Pow => {
                with_int!(dtype, T => by_pairs::<T>(level, tile, Int::pow))
            }
            Rem => {
                with_int!(dtype, T => by_pairs::<T>(level, tile, Int::rem))
            }
            FloorDiv => {
                with_int!(dtype, T => by_pairs::<T>(level, tile, Int::floor_div))
            }
            Div => unexpected(op, "integers"),
        }
    }
}

/// An operation on the bits of integers or bools over a tile.
///
/// # Safety
/// As [`arithmetic`].
pub(crate) unsafe fn bitwise(level: Level, op: Bitwise, dtype: DType, tile: Tile) {
    // SAFETY: by contract.
    unsafe {
        match op {
            Bitwise::And | Bitwise::Or | Bitwise::Xor | Bitwise::Shl => {
                wrapping(level, op.into(), dtype, tile)
            }
            Bitwise::Shr => {
                with_int!(dtype, T => by_pairs::<T>(level, tile, Int::shr))
            }
        }
    }
}

/// An operation with the same bits for signed and unsigned integers.
///
/// # Safety
/// As [`arithmetic`].
unsafe fn wrapping(level: Level, op: OpCode, dtype: DType, tile: Tile) {
    with_bits!(dtype, T => level.run(Wrapping::<T>(op, tile, PhantomData)))
}

/// A comparison over a tile, of any type; the result has bools.
///
/// # Safety
/// As [`arithmetic`].
pub(crate) unsafe fn compare(level: Level, op: Comparison, dtype: DType, tile: Tile) {
    match op {
        Comparison::Lt | Comparison::Le => {
            with_compute!(dtype, T => level.run(Order::<T>(op.into(), tile, PhantomData)))
        }
        Comparison::Eq | Comparison::Ne => {
            with_wrapping!(dtype, T => level.run(Equality::<T>(op.into(), tile, PhantomData)))
        }
    }
}

/// Makes a loop over the rows of a tile, compiled for each level except AVX-512, with one body for each of
/// its few operations.
macro_rules! pair_loops {
    ($($(#[$doc:meta])* $name:ident<T: $bound:path> -> $y:ty { $($class:ident($op:path) => $f:expr),* })*) => {$(
        $(#[$doc])*
        struct $name<T>(OpCode, Tile, PhantomData<T>);

        impl<T: Copy + $bound> Work for $name<T> {
            type Out = ();
            const FOR_AVX512: bool = false;
            #[inline(always)]
            fn run<V: F32s>(self) {
                match self.0 {
                    // SAFETY: by contract of the tile, which its maker has made for this type.
                    $(OpCode::$class($op) => unsafe { pairs::<T, $y>(self.1, $f) },)*
                    op => unexpected(op, stringify!($name)),
                }
            }
        }
    )*};
}

pair_loops! {
    /// Operations with the same bits for signed and unsigned integers.
    Wrapping<T: Int> -> T {
        Arithmetic(Arithmetic::Add) => T::add, Arithmetic(Arithmetic::Sub) => T::sub,
        Arithmetic(Arithmetic::Mul) => T::mul, Bitwise(Bitwise::And) => T::and,
        Bitwise(Bitwise::Or) => T::or, Bitwise(Bitwise::Xor) => T::xor, Bitwise(Bitwise::Shl) => T::shl
    }
    /// The larger or the smaller one.
    Extreme<T: Int> -> T {
        Arithmetic(Arithmetic::Max) => T::max, Arithmetic(Arithmetic::Min) => T::min
    }
    /// Which one is less.
    Order<T: PartialOrd> -> u8 {
        Compare(Comparison::Lt) => |a, b| u8::from(a < b),
        Compare(Comparison::Le) => |a, b| u8::from(a <= b)
    }
    /// Whether both are equal.
    Equality<T: PartialEq> -> u8 {
        Compare(Comparison::Eq) => |a, b| u8::from(a == b),
        Compare(Comparison::Ne) => |a, b| u8::from(a != b)
    }
}
