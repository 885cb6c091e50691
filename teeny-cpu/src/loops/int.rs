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
use std::mem::MaybeUninit;
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
    let Tile { a, b, y, n, rows, stride, by_number } = tile;
    for row in 0..rows {
        let a = a.cast::<T>().wrapping_offset(row as isize * stride[0]);
        let b = b.cast::<T>().wrapping_offset(row as isize * stride[1]);
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

/// The operand and the result of a unary node over rows: `n` elements in each, the distance from a
/// row of the operand to its next in elements. The rows of the result follow one another.
///
/// Its maker promises that the operand is readable and the result writable there, aligned, and that
/// they do not overlap.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub x: *const u8,
    pub y: *mut u8,
    pub n: usize,
    pub rows: usize,
    pub stride: isize,
}

impl Rows {
    /// One row.
    pub(crate) fn one(x: *const u8, y: *mut u8, n: usize) -> Rows {
        Rows { x, y, n, rows: 1, stride: 0 }
    }
}

/// `y[i] = f(x[i])` in each row, compiled for each level except AVX-512. `f` is a function that is
/// always inlined, no closure; no reference to it, either, is passed on: a call by reference is not
/// inlined.
///
/// # Safety
/// By contract of [`Rows`], for values of `T` and results of `U`.
pub(super) unsafe fn by_row<T: Copy, U: Copy>(level: Level, rows: Rows, f: impl Fn(T) -> U + Copy) {
    level.run(EachRow::<T, U, _, false>(rows, f, PhantomData))
}

/// As [`by_row`], compiled for each level.
///
/// # Safety
/// As [`by_row`].
pub(super) unsafe fn by_row_512<T: Copy, U: Copy>(
    level: Level,
    rows: Rows,
    f: impl Fn(T) -> U + Copy,
) {
    level.run(EachRow::<T, U, _, true>(rows, f, PhantomData))
}

/// Elements of a row from which the rest after whole vectors costs nothing.
const LONG_ROW: usize = 256;

/// See [`by_row`].
struct EachRow<T, U, F, const AVX512: bool>(Rows, F, PhantomData<(T, U)>);

impl<T: Copy, U: Copy, F: Fn(T) -> U + Copy, const AVX512: bool> Work for EachRow<T, U, F, AVX512> {
    type Out = ();
    const FOR_AVX512: bool = AVX512;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let EachRow(Rows { x, y, n, rows, stride }, f, _) = self;
        let is_byte = size_of::<T>() == 1 && size_of::<U>() == 1;
        for row in 0..rows {
            let x = x.cast::<T>().wrapping_offset(row as isize * stride);
            let y = y.cast::<U>().wrapping_add(row * n);
            // SAFETY: by contract of the rows, which the maker was promised for these types.
            unsafe {
                // AVX-512 narrows a vector by one instruction: long rows need no pieces.
                let is_plain = V::LANES == 16 && n >= LONG_ROW;
                match n {
                    64.. if is_byte && !is_plain => pieces::<64, T, U>(x, y, n, f),
                    32.. if !is_byte && !is_plain => pieces::<32, T, U>(x, y, n, f),
                    _ => each(slice::<T>(x.cast(), n), slice_mut::<U>(y.cast(), n), f),
                }
            }
        }
    }
}

/// `y[i] = f(x[i])` by pieces of `P <= n` elements, the last of which may overlap the one before:
/// no loop over numbers for the rest, and the compiler sees all of a piece when it narrows vectors.
///
/// # Safety
/// `x` is readable and `y` writable for `n` values; they do not overlap.
#[inline(always)]
unsafe fn pieces<const P: usize, T: Copy, U: Copy>(
    x: *const T,
    y: *mut U,
    n: usize,
    f: impl Fn(T) -> U,
) {
    let mut at = 0;
    while at < n {
        let here = at.min(n - P);
        let mut results = [const { MaybeUninit::<U>::uninit() }; P];
        // SAFETY: a piece is inside the `n` values.
        unsafe {
            let values = x.add(here).cast::<[T; P]>().read();
            let mut i = 0;
            while i < P {
                results[i].write(f(values[i]));
                i += 1;
            }
            y.add(here).cast::<[MaybeUninit<U>; P]>().write(results);
        }
        at += P;
    }
}

/// [`pairs`], compiled for each level; for AVX-512 only if the constant says so.
///
/// # Safety
/// As [`pairs`].
unsafe fn by_pairs<T: Copy, const AVX512: bool>(level: Level, tile: Tile, f: impl Fn(T, T) -> T) {
    struct Pairs<T, F, const AVX512: bool>(Tile, F, PhantomData<T>);
    impl<T: Copy, F: Fn(T, T) -> T, const AVX512: bool> Work for Pairs<T, F, AVX512> {
        type Out = ();
        const FOR_AVX512: bool = AVX512;
        #[inline(always)]
        fn run<V: F32s>(self) {
            // SAFETY: by contract of `by_pairs`.
            unsafe { pairs::<T, T>(self.0, self.1) }
        }
    }
    level.run(Pairs::<T, _, AVX512>(tile, f, PhantomData))
}

#[inline(always)]
fn not_bool(x: u8) -> u8 {
    x ^ 1
}

/// A unary node of integers or bools over rows.
///
/// # Safety
/// By contract of [`Rows`], for values of type `dtype`.
pub(crate) unsafe fn unary(level: Level, op: OpCode, dtype: DType, rows: Rows) {
    // SAFETY: by contract.
    unsafe {
        match op {
            OpCode::Not if dtype == DType::Bool => by_row(level, rows, not_bool),
            OpCode::Not => with_bits!(dtype, T => by_row(level, rows, <T as Int>::not)),
            OpCode::Sign(SignFunction::Neg) => {
                with_bits!(dtype, T => by_row(level, rows, <T as Int>::neg))
            }
            OpCode::Sign(SignFunction::Abs) => {
                with_int!(dtype, T => by_row(level, rows, <T as Int>::abs))
            }
            OpCode::Sign(SignFunction::Sign) => {
                with_int!(dtype, T => by_row(level, rows, <T as Int>::sign))
            }
            op => unexpected(op, "one integer"),
        }
    }
}

/// The operands and the result of a binary node over rows: `n` elements in each, the distances from
/// a row of an operand to its next, in elements. The rows of the result follow one another. With
/// `by_number`, each row of `b` is one number, at any alignment.
///
/// Its maker promises that operands are readable and the result writable there, aligned, and that
/// the result overlaps no operand.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub a: *const u8,
    pub b: *const u8,
    pub y: *mut u8,
    pub n: usize,
    pub rows: usize,
    pub stride: [isize; 2],
    pub by_number: bool,
}

impl Tile {
    /// A tile of one row.
    pub(crate) fn row(a: *const u8, b: *const u8, y: *mut u8, n: usize) -> Tile {
        Tile { a, b, y, n, rows: 1, stride: [0; 2], by_number: false }
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
                with_int!(dtype, T => by_pairs::<T, false>(level, tile, Int::pow))
            }
            Rem => {
                with_int!(dtype, T => by_pairs::<T, false>(level, tile, Int::rem))
            }
            FloorDiv => {
                with_int!(dtype, T => by_pairs::<T, false>(level, tile, Int::floor_div))
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
            // Only AVX-512 shifts 16 bits by different distances, and 64 bits with their sign.
            Bitwise::Shr => {
                with_int!(dtype, T => by_pairs::<T, true>(level, tile, Int::shr))
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

/// Makes a loop over the rows of a tile, compiled for AVX-512 only if it narrows vectors, with one
/// body for each of its few operations.
macro_rules! pair_loops {
    ($($(#[$doc:meta])* $name:ident<T: $bound:path> -> $y:ty { $($class:ident($op:path) => $f:expr),* })*) => {$(
        $(#[$doc])*
        struct $name<T>(OpCode, Tile, PhantomData<T>);

        impl<T: Copy + $bound> Work for $name<T> {
            type Out = ();
            // Results that are smaller than the operands: as for conversions.
            const FOR_AVX512: bool = size_of::<$y>() < size_of::<T>() && size_of::<T>() >= 4;
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
