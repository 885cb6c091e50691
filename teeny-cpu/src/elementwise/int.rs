//! Loops of integer and bool nodes. A bool is a `u8` of 0 or 1 here; arithmetic wraps, as core's
//! `kernel::eval` defines it.
//!
//! What has the same bits for signed and unsigned integers is compiled for the unsigned ones alone,
//! and what no machine does by vectors for one level alone.

use super::cast::{slice, slice_mut, with_bits, with_compute, with_int, with_wrapping};
use crate::simd::{F32s, Level, Work, for_pairs};
use teeny_core::DType;
use teeny_core::kernel::OpCode;

/// An integer type with core's arithmetic.
pub(crate) trait Int: Copy + Ord + Send + Sync + 'static {
    /// One operand: `Neg`, `Abs`, `Sign`.
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn not(self) -> Self;
    /// Two operands, wrapping.
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// A negative exponent gives the truncated quotient.
    fn pow(self, o: Self) -> Self;
    /// The sign of the divisor; 0 for a zero divisor.
    fn rem(self, o: Self) -> Self;
    /// Towards minus infinity; 0 for a zero divisor.
    fn floor_div(self, o: Self) -> Self;
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    /// 0 for shifts out of range.
    fn shl(self, o: Self) -> Self;
    /// All sign bits for shifts out of range.
    fn shr(self, o: Self) -> Self;
}

macro_rules! int {
    ($($t:ty, $signed:literal, $abs:expr, $sign:expr, $rem:expr, $div:expr;)*) => {$(
        impl Int for $t {
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> Self { ($abs)(self) }
            #[inline(always)]
            fn sign(self) -> Self { ($sign)(self) }
            #[inline(always)]
            fn not(self) -> Self { !self }
            #[inline(always)]
            fn add(self, o: Self) -> Self { self.wrapping_add(o) }
            #[inline(always)]
            fn sub(self, o: Self) -> Self { self.wrapping_sub(o) }
            #[inline(always)]
            fn mul(self, o: Self) -> Self { self.wrapping_mul(o) }
            #[inline(always)]
            fn pow(self, o: Self) -> Self {
                if $signed && o < 0 {
                    // 1 / a^|b| truncated: only 1 and -1 leave something.
                    let minus_one = (0 as $t).wrapping_sub(1);
                    return if self == 1 || (self == minus_one && o & 1 == 0) { 1 } else if self == minus_one { self } else { 0 };
                }
                let (mut base, mut exponent, mut power) = (self, o, 1 as $t);
                while exponent > 0 {
                    if exponent & 1 == 1 {
                        power = power.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                power
            }
            #[inline(always)]
            fn rem(self, o: Self) -> Self { if o == 0 { 0 } else { ($rem)(self, o) } }
            #[inline(always)]
            fn floor_div(self, o: Self) -> Self { if o == 0 { 0 } else { ($div)(self, o) } }
            #[inline(always)]
            fn and(self, o: Self) -> Self { self & o }
            #[inline(always)]
            fn or(self, o: Self) -> Self { self | o }
            #[inline(always)]
            fn xor(self, o: Self) -> Self { self ^ o }
            #[inline(always)]
            fn shl(self, o: Self) -> Self {
                if (0..<$t>::BITS as i128).contains(&(o as i128)) { self << o } else { 0 }
            }
            #[inline(always)]
            fn shr(self, o: Self) -> Self {
                if (0..<$t>::BITS as i128).contains(&(o as i128)) { self >> o } else if $signed && self < 0 { !0 } else { 0 }
            }
        }
    )*};
}

macro_rules! ints {
    (signed $($s:ty)*; unsigned $($u:ty)*) => {
        int! {
            $($s, true, <$s>::wrapping_abs, <$s>::signum,
                |a: $s, b: $s| { let r = a.wrapping_rem(b); if r != 0 && (r < 0) != (b < 0) { r + b } else { r } },
                |a: $s, b: $s| {
                    let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
                    if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
                };)*
            $($u, false, |a: $u| a, |a: $u| (a != 0) as $u, |a: $u, b: $u| a % b, |a: $u, b: $u| a / b;)*
        }
    };
}

#[allow(unused_comparisons, clippy::manual_range_contains)]
mod impls {
    use super::Int;
    ints! { signed i8 i16 i32 i64; unsigned u8 u16 u32 u64 }
}

#[inline(always)]
pub(crate) fn each<T: Copy, U>(x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    for_pairs(y, x, |y, x| *y = f(x));
}

#[inline(always)]
pub(crate) fn pairs<T: Copy, U>(a: &[T], b: &[T], y: &mut [U], f: impl Fn(T, T) -> U) {
    let n = y.len().min(a.len()).min(b.len());
    let (a, b, y) = (a.as_ptr(), b.as_ptr(), y.as_mut_ptr());
    let mut i = 0;
    while i < n {
        // SAFETY: i lies in all three.
        unsafe { *y.add(i) = f(*a.add(i), *b.add(i)) };
        i += 1;
    }
}

/// The panic of a program that core's builder should have refused.
pub(crate) fn unexpected(op: OpCode, what: &str) -> ! {
    unreachable!("the kernel builder let {} of {what} through", op.name())
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

/// `y[i] = if c[i] { a[i] } else { b[i] }` for values of `size` bytes, moved as bits.
///
/// # Safety
/// As [`binary`]; `c` has n bools.
pub(crate) unsafe fn select(
    level: Level,
    size: usize,
    c: *const u8,
    a: *const u8,
    b: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: by contract.
    unsafe {
        let c = slice(c, n);
        match size {
            1 => level.run(Select { c, a: slice::<u8>(a, n), b: slice(b, n), y: slice_mut(y, n) }),
            2 => level.run(Select { c, a: slice::<u16>(a, n), b: slice(b, n), y: slice_mut(y, n) }),
            4 => level.run(Select { c, a: slice::<u32>(a, n), b: slice(b, n), y: slice_mut(y, n) }),
            _ => level.run(Select { c, a: slice::<u64>(a, n), b: slice(b, n), y: slice_mut(y, n) }),
        }
    }
}

/// Makes a loop over two slices, compiled for each level but the widest, with one body for each of
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
            const WIDE: bool = false;
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
    /// Which one comes first.
    Order<T: PartialOrd> -> u8 { CmpLt => |a, b| u8::from(a < b), CmpLe => |a, b| u8::from(a <= b) }
    /// Whether both are the same.
    Equality<T: PartialEq> -> u8 { CmpEq => |a, b| u8::from(a == b), CmpNe => |a, b| u8::from(a != b) }
}

/// See [`select`].
struct Select<'a, T> {
    c: &'a [u8],
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [T],
}

impl<T: Copy> Work for Select<'_, T> {
    type Out = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Select { c, a, b, y } = self;
        let n = y.len();
        let (c, a, b) = (&c[..n], &a[..n], &b[..n]);
        for i in 0..n {
            y[i] = if c[i] != 0 { a[i] } else { b[i] };
        }
    }
}
