//! Loops of integer and bool nodes. A bool is a `u8` of 0 or 1 here; arithmetic wraps, as core's `kernel::eval` defines it.

use crate::simd::{F32s, Level, Work};
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

/// A unary node over a tile.
pub(crate) struct IntUnary<'a, T> {
    pub op: OpCode,
    pub x: &'a [T],
    pub y: &'a mut [T],
}

/// A binary node over a tile.
pub(crate) struct IntBinary<'a, T> {
    pub op: OpCode,
    pub a: &'a [T],
    pub b: &'a [T],
    pub y: &'a mut [T],
}

#[inline(always)]
pub(crate) fn each<T: Copy, U>(x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x);
    }
}

#[inline(always)]
pub(crate) fn pairs<T: Copy, U>(a: &[T], b: &[T], y: &mut [U], f: impl Fn(T, T) -> U) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(a, b);
    }
}

/// The panic of a program that core's builder should have refused.
pub(crate) fn unexpected(op: OpCode, what: &str) -> ! {
    unreachable!("the kernel builder let {} of {what} through", op.name())
}

impl<T: Int> Work for IntUnary<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        use OpCode::*;
        let Self { op, x, y } = self;
        match op {
            Neg => each(x, y, T::neg),
            Abs => each(x, y, T::abs),
            Sign => each(x, y, T::sign),
            Not => each(x, y, T::not),
            Recip | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan | Atan | Tanh | Erf | Floor | Ceil | Round | Trunc
            | IsNan => unexpected(op, "integers"),
            Input(_) | Param(_) | Const(_) | Cast | Add | Sub | Mul | Div | Pow | Max | Min | Rem | FloorDiv | CmpLt | CmpLe | CmpEq | CmpNe
            | And | Or | Xor | Shl | Shr | Where => unexpected(op, "one operand"),
        }
    }
}

impl<T: Int> Work for IntBinary<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        use OpCode::*;
        let Self { op, a, b, y } = self;
        match op {
            Add => pairs(a, b, y, T::add),
            Sub => pairs(a, b, y, T::sub),
            Mul => pairs(a, b, y, T::mul),
            Pow => pairs(a, b, y, T::pow),
            Max => pairs(a, b, y, T::max),
            Min => pairs(a, b, y, T::min),
            Rem => pairs(a, b, y, T::rem),
            FloorDiv => pairs(a, b, y, T::floor_div),
            And => pairs(a, b, y, T::and),
            Or => pairs(a, b, y, T::or),
            Xor => pairs(a, b, y, T::xor),
            Shl => pairs(a, b, y, T::shl),
            Shr => pairs(a, b, y, T::shr),
            CmpLt | CmpLe | CmpEq | CmpNe => unexpected(op, "arithmetic"),
            Div => unexpected(op, "integers"),
            Input(_) | Param(_) | Const(_) | Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos
            | Tan | Atan | Tanh | Erf | Floor | Ceil | Round | Trunc | Not | IsNan | Where => unexpected(op, "two operands"),
        }
    }
}

/// A comparison over a tile, of any type.
pub(crate) struct Compare<'a, T> {
    pub op: OpCode,
    pub a: &'a [T],
    pub b: &'a [T],
    pub y: &'a mut [u8],
}

impl<T: Copy + PartialOrd> Work for Compare<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        use OpCode::*;
        let Self { op, a, b, y } = self;
        match op {
            CmpLt => pairs(a, b, y, |a, b| u8::from(a < b)),
            CmpLe => pairs(a, b, y, |a, b| u8::from(a <= b)),
            CmpEq => pairs(a, b, y, |a, b| u8::from(a == b)),
            CmpNe => pairs(a, b, y, |a, b| u8::from(a != b)),
            Input(_) | Param(_) | Const(_) | Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos
            | Tan | Atan | Tanh | Erf | Floor | Ceil | Round | Trunc | Not | IsNan | Add | Sub | Mul | Div | Pow | Max | Min | Rem | FloorDiv
            | And | Or | Xor | Shl | Shr | Where => unexpected(op, "a comparison"),
        }
    }
}

/// `y[i] = if c[i] { a[i] } else { b[i] }`, moved as bits of one width.
pub(crate) struct Select<'a, T> {
    pub c: &'a [u8],
    pub a: &'a [T],
    pub b: &'a [T],
    pub y: &'a mut [T],
}

impl<T: Copy> Work for Select<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for (((y, &c), &a), &b) in self.y.iter_mut().zip(self.c).zip(self.a).zip(self.b) {
            *y = if c != 0 { a } else { b };
        }
    }
}

/// A bool node of one or two operands; `b` is ignored for `Not`.
pub(crate) fn bool_node(level: Level, op: OpCode, a: &[u8], b: &[u8], y: &mut [u8]) {
    match op {
        OpCode::Not => each(a, y, |a| a ^ 1),
        op => level.run(IntBinary { op, a, b, y }),
    }
}
