//! Loops of f32 nodes: in vectors where there is a vector function, otherwise through f64, element
//! by element.
//!
//! The naive form is `y[i] = f(x[i])`. `simd::loops` runs it over vectors; here is the `f` of each
//! node.

use super::{Loop, unexpected};
use crate::elementwise::blocks::{self, Place, Step};
use crate::simd::loops::{Binary, Map2, Operand, Unary};
use crate::simd::{F32s, Level};
use crate::vecmath;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use teeny_core::kernel::eval::{erf, floor_div, remainder};
use teeny_core::kernel::{Arithmetic, FloatFunction, OpCode};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(in crate::elementwise) struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn eval<V: F32s>($x: V) -> V { $body }
        }
    )*};
}

unary! {
    Neg |x| x.xor_sign(V::splat(-0.0));
    Abs |x| x.abs();
    Sign |x| {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        V::select(zero.lt(x), one, V::select(x.lt(zero), V::splat(-1.0), x))
    };
    Recip |x| V::splat(1.0).div(x);
    Sqrt |x| x.sqrt();
    Rsqrt |x| V::splat(1.0).div(x.sqrt());
    Floor |x| x.floor();
    Ceil |x| V::xor_sign(x.xor_sign(V::splat(-0.0)).floor(), V::splat(-0.0));
    Round |x| x.round();
    Trunc |x| {
        let minus = V::splat(-0.0);
        V::select(x.lt(V::splat(0.0)), x.xor_sign(minus).floor().xor_sign(minus), x.floor())
    };
}

// The operations of core's definitions in their order, so that no bit of a result depends on
// whether a kernel's pattern was found.
unary! {
    /// `x / 2 (erf(x / √2) + 1)`
    Gelu |x| x.mul(V::splat(0.5)).mul(vecmath::erf(x.mul(V::splat(FRAC_1_SQRT_2 as f32))).add(V::splat(1.0)));
    /// `x / 2 (tanh(√(2/π) (x + 0.044715 x³)) + 1)`
    GeluTanh |x| {
        let inner = x.add(x.mul(x).mul(x).mul(V::splat(0.044715))).mul(V::splat((FRAC_2_SQRT_PI * FRAC_1_SQRT_2) as f32));
        x.mul(V::splat(0.5)).mul(vecmath::tanh(inner).add(V::splat(1.0)))
    };
    /// `1 / (exp(-x) + 1)`
    Sigmoid |x| V::splat(1.0).div(vecmath::exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
    /// `x / (exp(-x) + 1)`
    Silu |x| x.div(vecmath::exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
}

macro_rules! binary {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(in crate::elementwise) struct $name;
        impl Binary for $name {
            #[inline(always)]
            fn eval<V: F32s>($a: V, $b: V) -> V { $body }
        }
    )*};
}

binary! {
    Add |a, b| a.add(b);
    Sub |a, b| a.sub(b);
    Mul |a, b| a.mul(b);
    Div |a, b| a.div(b);
    // The vector's max returns the second operand if either is NaN; a NaN in the first has to be
    // put back.
    Max |a, b| V::select(a.eq(a), a.max(b), a);
    Min |a, b| V::select(a.eq(a), a.min(b), a);
}

/// A unary node of f32.
///
/// # Safety
/// `x` is readable and `y` writable for `n` values; the ranges are the same or do not overlap.
pub(crate) unsafe fn unary_f32(
    level: Level,
    op: OpCode,
    x: *const f32,
    y: *mut f32,
    n: usize,
    stream: bool,
) {
    // SAFETY: passed on.
    unsafe {
        match (op, Loop::of_op(op)) {
            (OpCode::Float(FloatFunction::Sin), _) => {
                vecmath::map_trig(level, false, x, y, n, stream)
            }
            (OpCode::Float(FloatFunction::Cos), _) => {
                vecmath::map_trig(level, true, x, y, n, stream)
            }
            (OpCode::Float(f), None) => by_f64(x, y, n, float_function(f).f64),
            _ => by_vectors(level, op, &[Operand::Slice(x)], y, n, stream),
        }
    }
}

/// How a function of floats is computed.
pub(crate) struct FloatLoops {
    /// Of f32: the loop over vectors, if there is one; otherwise the function of f64, rounded.
    pub vectors: Option<Loop>,
    /// Of f64: one call for each element.
    pub f64: fn(f64) -> f64,
}

/// The loops of a function: a new function of std needs one line, a vector function one more in
/// `vecmath`.
pub(crate) fn float_function(f: FloatFunction) -> FloatLoops {
    use FloatFunction::*;
    let (vectors, f64): (Option<Loop>, fn(f64) -> f64) = match f {
        Recip => (Some(Loop::Recip), |x| 1.0 / x),
        Sqrt => (Some(Loop::Sqrt), f64::sqrt),
        Rsqrt => (Some(Loop::Rsqrt), |x| 1.0 / x.sqrt()),
        Cbrt => (None, f64::cbrt),
        Exp => (Some(Loop::Exp), f64::exp),
        Exp2 => (Some(Loop::Exp2), f64::exp2),
        Expm1 => (None, f64::exp_m1),
        Log => (Some(Loop::Log), f64::ln),
        Log2 => (None, f64::log2),
        Log1p => (None, f64::ln_1p),
        Sin => (None, f64::sin),
        Cos => (None, f64::cos),
        Tan => (None, f64::tan),
        Atan => (None, f64::atan),
        Tanh => (Some(Loop::Tanh), f64::tanh),
        Erf => (Some(Loop::Erf), erf),
    };
    FloatLoops { vectors, f64 }
}

/// The function of f64 of two operands of an operation without a loop over vectors.
pub(super) fn function_of_two(op: Arithmetic) -> Option<fn(f64, f64) -> f64> {
    match op {
        Arithmetic::Pow => Some(f64::powf),
        Arithmetic::Rem => Some(remainder),
        Arithmetic::FloorDiv => Some(floor_div),
        Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul => None,
        Arithmetic::Div | Arithmetic::Max | Arithmetic::Min => None,
    }
}

/// A node that has a loop over vectors of this number of operands, four at most.
///
/// # Safety
/// As `binary_f32`; an operation of one operand has no splat.
unsafe fn by_vectors(
    level: Level,
    op: OpCode,
    operands: &[Operand],
    y: *mut f32,
    n: usize,
    stream: bool,
) {
    let Some(body) = Loop::of_op(op).filter(|body| body.operands() == operands.len()) else {
        unexpected(op, "vectors of f32")
    };
    let mut from = [Place::Splat(0.0); 4];
    for (place, &operand) in from.iter_mut().zip(operands) {
        *place = match operand {
            Operand::Slice(p) => Place::Rows(p.cast_mut(), 0),
            Operand::Splat(x) => Place::Splat(x),
        };
    }
    // SAFETY: passed on.
    unsafe {
        blocks::run(level, &[Step { body, from, to: Place::Rows(y, 0), stream }], 1, n, false)
    }
}

/// `y = f(x)` in f64, rounded to f32.
///
/// # Safety
/// As `unary_f32`.
unsafe fn by_f64(x: *const f32, y: *mut f32, n: usize, f: fn(f64) -> f64) {
    for i in 0..n {
        // SAFETY: i < n.
        unsafe { *y.add(i) = f(f64::from(*x.add(i))) as f32 }
    }
}

/// Arithmetic of f32.
///
/// # Safety
/// Slices are readable and `y` writable for `n` values; `y` is the same range as a slice or does
/// not overlap it.
pub(crate) unsafe fn binary_f32(
    level: Level,
    op: Arithmetic,
    a: Operand,
    b: Operand,
    y: *mut f32,
    n: usize,
    stream: bool,
) {
    // SAFETY: passed on.
    unsafe {
        let get = |o: Operand, i: usize| match o {
            Operand::Slice(p) => f64::from(*p.add(i)),
            Operand::Splat(v) => f64::from(v),
        };
        match (op, function_of_two(op)) {
            // The most frequent operations of small tensors: in the function of all loops, the
            // instructions before the loop take longer than sixteen elements.
            (Arithmetic::Add, _) => level.run(Map2::<Add>::new(a, b, y, n, stream)),
            (Arithmetic::Sub, _) => level.run(Map2::<Sub>::new(a, b, y, n, stream)),
            (Arithmetic::Mul, _) => level.run(Map2::<Mul>::new(a, b, y, n, stream)),
            (_, Some(f)) => (0..n).for_each(|i| *y.add(i) = f(get(a, i), get(b, i)) as f32),
            (_, None) => by_vectors(level, op.into(), &[a, b], y, n, stream),
        }
    }
}
