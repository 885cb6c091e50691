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
use teeny_core::DType;
use teeny_core::kernel::{Arithmetic, Bitwise, Comparison, OpCode, SignFunction};

/// `y[i] = f(x[i])`.
#[inline(always)]
pub(crate) fn each<T: Copy, U>(x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    for_pairs(y, x, |y, x| *y = f(x));
}

/// `y[i] = f(a[i], b[i])`.
#[inline(always)]
pub(crate) fn pairs<T: Copy, U>(a: &[T], b: &[T], y: &mut [U], f: impl Fn(T, T) -> U) {
    let n = y.len().min(a.len()).min(b.len());
    let (a, b, y) = (a.as_ptr(), b.as_ptr(), y.as_mut_ptr());
    let mut i = 0;
    while i < n {
        // SAFETY: i is inside all three.
        unsafe { *y.add(i) = f(*a.add(i), *b.add(i)) };
        i += 1;
    }
}

/// [`each`], compiled for each level except AVX-512.
pub(crate) fn by_each<T: Copy, U>(level: Level, x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    struct Each<'a, T, U, F>(&'a [T], &'a mut [U], F);
    impl<T: Copy, U, F: Fn(T) -> U> Work for Each<'_, T, U, F> {
        type Out = ();
        const FOR_AVX512: bool = false;
        #[inline(always)]
        fn run<V: F32s>(self) {
            each(self.0, self.1, self.2)
        }
    }
    level.run(Each(x, y, f))
}

/// [`pairs`], compiled for each level except AVX-512.
fn by_pairs<T: Copy>(level: Level, a: &[T], b: &[T], y: &mut [T], f: impl Fn(T, T) -> T) {
    struct Pairs<'a, T, F>(&'a [T], &'a [T], &'a mut [T], F);
    impl<T: Copy, F: Fn(T, T) -> T> Work for Pairs<'_, T, F> {
        type Out = ();
        const FOR_AVX512: bool = false;
        #[inline(always)]
        fn run<V: F32s>(self) {
            pairs(self.0, self.1, self.2, self.3)
        }
    }
    level.run(Pairs(a, b, y, f))
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

/// The operands and the result of a binary node over a tile.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub a: *const u8,
    pub b: *const u8,
    pub y: *mut u8,
    pub n: usize,
}

/// Arithmetic of integers over a tile.
///
/// # Safety
/// The operands and the result have `n` values of type `dtype`; the result overlaps no operand.
pub(crate) unsafe fn arithmetic(level: Level, op: Arithmetic, dtype: DType, tile: Tile) {
    use Arithmetic::*;
    let Tile { a, b, y, n } = tile;
    // SAFETY: by contract.
    unsafe {
        match op {
            Add | Sub | Mul => wrapping(level, op.into(), dtype, tile),
            Max | Min => {
                let op = op.into();
                with_int!(dtype, T => level.run(Extreme::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
            Pow => {
                with_int!(dtype, T => by_pairs(level, slice::<T>(a, n), slice(b, n), slice_mut(y, n), |a: T, b: T| Int::pow(a, b)))
            }
            Rem => {
                with_int!(dtype, T => by_pairs(level, slice::<T>(a, n), slice(b, n), slice_mut(y, n), |a: T, b: T| Int::rem(a, b)))
            }
            FloorDiv => {
                with_int!(dtype, T => by_pairs(level, slice::<T>(a, n), slice(b, n), slice_mut(y, n), |a: T, b: T| Int::floor_div(a, b)))
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
    let Tile { a, b, y, n } = tile;
    // SAFETY: by contract.
    unsafe {
        match op {
            Bitwise::And | Bitwise::Or | Bitwise::Xor | Bitwise::Shl => {
                wrapping(level, op.into(), dtype, tile)
            }
            Bitwise::Shr => {
                with_int!(dtype, T => by_pairs(level, slice::<T>(a, n), slice(b, n), slice_mut(y, n), |a: T, b: T| Int::shr(a, b)))
            }
        }
    }
}

/// An operation with the same bits for signed and unsigned integers.
///
/// # Safety
/// As [`arithmetic`].
unsafe fn wrapping(level: Level, op: OpCode, dtype: DType, tile: Tile) {
    let Tile { a, b, y, n } = tile;
    // SAFETY: by contract.
    unsafe {
        with_bits!(dtype, T => level.run(Wrapping::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
    }
}

/// A comparison over a tile, of any type; the result has bools.
///
/// # Safety
/// As [`arithmetic`].
pub(crate) unsafe fn compare(level: Level, op: Comparison, dtype: DType, tile: Tile) {
    let Tile { a, b, y, n } = tile;
    // SAFETY: by contract.
    unsafe {
        match op {
            Comparison::Lt | Comparison::Le => {
                let op = op.into();
                with_compute!(dtype, T => level.run(Order::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
            Comparison::Eq | Comparison::Ne => {
                let op = op.into();
                with_wrapping!(dtype, T => level.run(Equality::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
        }
    }
}

/// Makes a loop over two slices, compiled for each level except AVX-512, with one body for each of
/// its few operations.
macro_rules! pair_loops {
    ($($(#[$doc:meta])* $name:ident<T: $bound:path> -> $y:ty { $($class:ident($op:path) => $f:expr),* })*) => {$(
        $(#[$doc])*
        struct $name<'a, T> {
            op: OpCode,
            a: &'a [T],
            b: &'a [T],
            y: &'a mut [$y],
        }

        impl<T: Copy + $bound> Work for $name<'_, T> {
            type Out = ();
            const FOR_AVX512: bool = false;
            #[inline(always)]
            fn run<V: F32s>(self) {
                match self.op {
                    $(OpCode::$class($op) => pairs(self.a, self.b, self.y, $f),)*
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
