//! Loops of f64 nodes: plain loops, which the compiler vectorises, and functions of std.

use super::float::{function, function_of_two};
use super::int::{each, pairs};
use super::unexpected;
use crate::simd::{F32s, Level, Work};
use teeny_core::kernel::OpCode;

/// A unary node of f64. Only arithmetic is compiled for several levels: a function is called for
/// each element anyway.
pub(crate) fn unary_f64(level: Level, op: OpCode, x: &[f64], y: &mut [f64]) {
    match function(op) {
        Some(f) => each(x, y, f),
        None => level.run(Unary64 { op, x, y }),
    }
}

struct Unary64<'a> {
    op: OpCode,
    x: &'a [f64],
    y: &'a mut [f64],
}

impl Work for Unary64<'_> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        use OpCode as O;
        let Self { op, x, y } = self;
        match op {
            O::Neg => each(x, y, |x| -x),
            O::Abs => each(x, y, f64::abs),
            O::Sign => each(x, y, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
            O::Recip => each(x, y, |x| 1.0 / x),
            O::Sqrt => each(x, y, f64::sqrt),
            O::Rsqrt => each(x, y, |x| 1.0 / x.sqrt()),
            O::Floor => each(x, y, f64::floor),
            O::Ceil => each(x, y, f64::ceil),
            O::Round => each(x, y, f64::round_ties_even),
            O::Trunc => each(x, y, f64::trunc),
            op => unexpected(op, "arithmetic of f64"),
        }
    }
}

/// A binary node of f64 that is not a comparison.
pub(crate) fn binary_f64(level: Level, op: OpCode, a: &[f64], b: &[f64], y: &mut [f64]) {
    match function_of_two(op) {
        Some(f) => pairs(a, b, y, f),
        None => level.run(Binary64 { op, a, b, y }),
    }
}

struct Binary64<'a> {
    op: OpCode,
    a: &'a [f64],
    b: &'a [f64],
    y: &'a mut [f64],
}

impl Work for Binary64<'_> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        use OpCode as O;
        let Self { op, a, b, y } = self;
        match op {
            O::Add => pairs(a, b, y, |a, b| a + b),
            O::Sub => pairs(a, b, y, |a, b| a - b),
            O::Mul => pairs(a, b, y, |a, b| a * b),
            O::Div => pairs(a, b, y, |a, b| a / b),
            O::Max => pairs(a, b, y, |a, b| if a.is_nan() || a > b { a } else { b }),
            O::Min => pairs(a, b, y, |a, b| if a.is_nan() || a < b { a } else { b }),
            op => unexpected(op, "arithmetic of f64"),
        }
    }
}
