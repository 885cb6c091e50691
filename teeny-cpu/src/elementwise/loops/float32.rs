//! Loops of f32 nodes: over vectors where there is a vector function, otherwise through f64, element
//! by element.
//!
//! The naive form is `y[i] = f(x[i])`. The functions are in `float`; `simd::loops` runs them over
//! vectors.

use super::float::{Add, Mul, Sub};
use super::{Loop, float_function, function_of_two, unexpected};
use crate::elementwise::blocks::{self, Place, Step};
use crate::simd::Level;
use crate::simd::loops::{Map2, Operand};
use crate::vecmath;
use teeny_core::kernel::{Arithmetic, FloatFunction, OpCode};

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
