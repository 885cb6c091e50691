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
use teeny_core::kernel::OpCode;

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

/// A unary node of integers or bools over a tile.
///
/// # Safety
/// `x` and `y` have `n` values of type `dtype` and do not overlap.
pub(crate) unsafe fn unary(op: OpCode, dtype: DType, x: *const u8, y: *mut u8, n: usize) {
    use OpCode::*;
    // SAFETY: by contract.
    unsafe {
        match op {
            Not if dtype == DType::Bool => each(slice::<u8>(x, n), slice_mut(y, n), |x| x ^ 1),
            Not => with_bits!(dtype, T => each(slice::<T>(x, n), slice_mut(y, n), Int::not)),
            Neg => with_bits!(dtype, T => each(slice::<T>(x, n), slice_mut(y, n), Int::neg)),
            Abs => with_int!(dtype, T => each(slice::<T>(x, n), slice_mut(y, n), Int::abs)),
            Sign => with_int!(dtype, T => each(slice::<T>(x, n), slice_mut(y, n), Int::sign)),
            Recip | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan
            | Atan | Tanh | Erf | Floor | Ceil | Round | Trunc | IsNan => {
                unexpected(op, "integers")
            }
            Input(_) | Param(_) | Const(_) | Cast | Add | Sub | Mul | Div | Pow | Max | Min
            | Rem | FloorDiv | CmpLt | CmpLe | CmpEq | CmpNe | And | Or | Xor | Shl | Shr
            | Where => unexpected(op, "one operand"),
        }
    }
}

/// A binary node of integers or bools over a tile, not a comparison.
///
/// # Safety
/// `a`, `b` and `y` have `n` values of type `dtype`; `y` overlaps neither.
pub(crate) unsafe fn binary(
    level: Level,
    op: OpCode,
    dtype: DType,
    a: *const u8,
    b: *const u8,
    y: *mut u8,
    n: usize,
) {
    use OpCode::*;
    // SAFETY: by contract.
    unsafe {
        match op {
            Add | Sub | Mul | And | Or | Xor | Shl => {
                with_bits!(dtype, T => level.run(Wrapping::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
            Max | Min => {
                with_int!(dtype, T => level.run(Extreme::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
            Pow => {
                with_int!(dtype, T => pairs(slice::<T>(a, n), slice(b, n), slice_mut(y, n), Int::pow))
            }
            Rem => {
                with_int!(dtype, T => pairs(slice::<T>(a, n), slice(b, n), slice_mut(y, n), Int::rem))
            }
            FloorDiv => {
                with_int!(dtype, T => pairs(slice::<T>(a, n), slice(b, n), slice_mut(y, n), Int::floor_div))
            }
            Shr => {
                with_int!(dtype, T => pairs(slice::<T>(a, n), slice(b, n), slice_mut(y, n), Int::shr))
            }
            CmpLt | CmpLe | CmpEq | CmpNe => unexpected(op, "arithmetic"),
            Div => unexpected(op, "integers"),
            Input(_) | Param(_) | Const(_) | Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt
            | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan | Atan | Tanh | Erf
            | Floor | Ceil | Round | Trunc | Not | IsNan | Where => unexpected(op, "two operands"),
        }
    }
}

/// A comparison over a tile, of any type; `y` has bools.
///
/// # Safety
/// As [`binary`].
pub(crate) unsafe fn compare(
    level: Level,
    op: OpCode,
    dtype: DType,
    a: *const u8,
    b: *const u8,
    y: *mut u8,
    n: usize,
) {
    use OpCode::*;
    // SAFETY: by contract.
    unsafe {
        match op {
            CmpLt | CmpLe => {
                with_compute!(dtype, T => level.run(Order::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
            CmpEq | CmpNe => {
                with_wrapping!(dtype, T => level.run(Equality::<T> { op, a: slice(a, n), b: slice(b, n), y: slice_mut(y, n) }))
            }
            Input(_) | Param(_) | Const(_) | Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt
            | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan | Atan | Tanh | Erf
            | Floor | Ceil | Round | Trunc | Not | IsNan | Add | Sub | Mul | Div | Pow | Max
            | Min | Rem | FloorDiv | And | Or | Xor | Shl | Shr | Where => {
                unexpected(op, "a comparison")
            }
        }
    }
}

/// Makes a loop over two slices, compiled for each level except AVX-512, with one body for each of
/// its few operations.
macro_rules! pair_loops {
    ($($(#[$doc:meta])* $name:ident<T: $bound:path> -> $y:ty { $($op:ident => $f:expr),* })*) => {$(
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
                    $(OpCode::$op => pairs(self.a, self.b, self.y, $f),)*
                    op => unexpected(op, stringify!($name)),
                }
            }
        }
    )*};
}

pair_loops! {
    /// Arithmetic with the same bits for signed and unsigned integers.
    Wrapping<T: Int> -> T { Add => T::add, Sub => T::sub, Mul => T::mul, And => T::and, Or => T::or, Xor => T::xor, Shl => T::shl }
    /// The larger or the smaller one.
    Extreme<T: Int> -> T { Max => T::max, Min => T::min }
    /// Which one is less.
    Order<T: PartialOrd> -> u8 { CmpLt => |a, b| u8::from(a < b), CmpLe => |a, b| u8::from(a <= b) }
    /// Whether both are the same.
    Equality<T: PartialEq> -> u8 { CmpEq => |a, b| u8::from(a == b), CmpNe => |a, b| u8::from(a != b) }
}
