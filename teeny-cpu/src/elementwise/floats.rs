//! Loops of float nodes over a tile: over vectors where there is a vector function, otherwise
//! element by element.
//!
//! The naive form is `y[i] = f(x[i])`. The functions are in `float`; `blocks` runs them.

use crate::loops::float::{Add, Mul, Sub};
use crate::loops::{FloatLoop, Loop, float_function, int, unexpected};
use crate::machine::groups;
use crate::machine::step::{Format, Place, Step};
use crate::simd::Level;
use crate::simd::loops::{Map2, Operand, Real};
use crate::typed::{slice, slice_mut};
use teeny_core::kernel::{Arithmetic, OpCode};

/// A node of one operand that has no loop over vectors.
///
/// # Safety
/// `x` is readable and `y` writable for `n` values, of f64 if `wide`, otherwise of f32; they do not
/// overlap.
pub(crate) unsafe fn by_calls(op: OpCode, wide: bool, x: *const u8, y: *mut u8, n: usize) {
    let OpCode::Float(f) = op else { unexpected(op, "floats") };
    let FloatLoop::Calls(f) = float_function(f) else { unexpected(op, "calls") };
    // SAFETY: by contract.
    unsafe {
        if wide {
            int::each(slice::<f64>(x, n), slice_mut(y, n), f);
        } else {
            int::each(slice::<f32>(x, n), slice_mut(y, n), |x| f(f64::from(x)) as f32);
        }
    }
}

/// A node of f32 of one or two operands.
///
/// # Safety
/// Slices are readable and `y` writable for `n` values; `y` is the same range as a slice or does
/// not overlap it. An operation of one operand has no number.
#[inline(always)]
pub(crate) unsafe fn run_f32(
    level: Level,
    op: OpCode,
    [a, b]: [Operand; 2],
    y: *mut f32,
    n: usize,
) {
    // SAFETY: passed on.
    unsafe {
        match op {
            // The most frequent operations of small tensors: in the function of all loops, the
            // instructions before the loop take longer than sixteen elements.
            OpCode::Arithmetic(Arithmetic::Add) => level.run(Map2::<Add>::new(a, b, y, n, false)),
            OpCode::Arithmetic(Arithmetic::Sub) => level.run(Map2::<Sub>::new(a, b, y, n, false)),
            OpCode::Arithmetic(Arithmetic::Mul) => level.run(Map2::<Mul>::new(a, b, y, n, false)),
            op => by_vectors(level, op, [a, b], y, n),
        }
    }
}

/// A node that has a loop over vectors, or a function of one operand.
///
/// # Safety
/// As [`run_f32`].
unsafe fn by_vectors(level: Level, op: OpCode, operands: [Operand; 2], y: *mut f32, n: usize) {
    let Some(body) = Loop::of_op(op) else {
        let Operand::Slice(x) = operands[0] else { unexpected(op, "a number") };
        // SAFETY: passed on.
        return unsafe { by_calls(op, false, x.cast(), y.cast(), n) };
    };
    let mut from = [Place::Splat([0; 8]); 4];
    for (place, operand) in from.iter_mut().zip(operands) {
        *place = match operand {
            Operand::Slice(p) => Place::Rows(p.cast_mut().cast(), 0, Format::Own),
            Operand::Splat(x) => Place::Splat(x.to_bytes()),
        };
    }
    let to = Place::Rows(y.cast(), 0, Format::Own);
    let step = Step { body, wide: false, from, to, stream: false }.simplified();
    // SAFETY: passed on.
    unsafe { groups::run(level, &[step], 1, n, false) }
}
