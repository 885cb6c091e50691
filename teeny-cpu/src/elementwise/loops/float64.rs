//! Loops of f64 nodes: plain loops, which the compiler vectorises, and functions of std.

use super::int::{each, pairs};
use super::{float_function, function_of_two, unexpected};
use crate::simd::{F32s, Level, Work};
use teeny_core::kernel::{Arithmetic, FloatFunction, OpCode, Rounding, SignFunction};

/// A unary node of f64. Only arithmetic is compiled for several levels: a function is called for
/// each element anyway.
pub(crate) fn unary_f64(level: Level, op: OpCode, x: &[f64], y: &mut [f64]) {
    use FloatFunction::{Recip, Rsqrt, Sqrt};
    match op {
        OpCode::Float(Recip | Sqrt | Rsqrt) => level.run(Unary64 { op, x, y }),
        OpCode::Float(f) => each(x, y, float_function(f).f64),
        op => level.run(Unary64 { op, x, y }),
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
        let Self { op, x, y } = self;
        match op {
            OpCode::Float(FloatFunction::Recip) => each(x, y, |x| 1.0 / x),
            OpCode::Float(FloatFunction::Sqrt) => each(x, y, f64::sqrt),
            OpCode::Float(FloatFunction::Rsqrt) => each(x, y, |x| 1.0 / x.sqrt()),
            OpCode::Round(Rounding::Floor) => each(x, y, f64::floor),
            OpCode::Round(Rounding::Ceil) => each(x, y, f64::ceil),
            OpCode::Round(Rounding::Round) => each(x, y, f64::round_ties_even),
            OpCode::Round(Rounding::Trunc) => each(x, y, f64::trunc),
            OpCode::Sign(SignFunction::Neg) => each(x, y, |x| -x),
            OpCode::Sign(SignFunction::Abs) => each(x, y, f64::abs),
            OpCode::Sign(SignFunction::Sign) => {
                each(x, y, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() })
            }
            op => unexpected(op, "one f64"),
        }
    }
}

/// Arithmetic of f64.
pub(crate) fn binary_f64(level: Level, op: Arithmetic, a: &[f64], b: &[f64], y: &mut [f64]) {
    match function_of_two(op) {
        Some(f) => pairs(a, b, y, f),
        None => level.run(Binary64 { op, a, b, y }),
    }
}

struct Binary64<'a> {
    op: Arithmetic,
    a: &'a [f64],
    b: &'a [f64],
    y: &'a mut [f64],
}

impl Work for Binary64<'_> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        use Arithmetic::*;
        let Self { op, a, b, y } = self;
        match op {
            Add => pairs(a, b, y, |a, b| a + b),
            Sub => pairs(a, b, y, |a, b| a - b),
            Mul => pairs(a, b, y, |a, b| a * b),
            Div => pairs(a, b, y, |a, b| a / b),
            Max => pairs(a, b, y, |a, b| if a.is_nan() || a > b { a } else { b }),
            Min => pairs(a, b, y, |a, b| if a.is_nan() || a < b { a } else { b }),
            Pow | Rem | FloorDiv => unexpected(op, "the loops over pairs"),
        }
    }
}
