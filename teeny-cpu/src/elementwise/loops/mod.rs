//! The loops of nodes, by dtype: f32 in vectors, f64, integers and bools, conversions.

pub(crate) mod cast;
pub(super) mod float;
pub(crate) mod float32;
pub(super) mod float64;
pub(crate) mod int;
mod int_type;
pub(super) mod select;

use teeny_core::kernel::eval::{erf, floor_div, remainder};
use teeny_core::kernel::{Arithmetic, Comparison, FloatFunction, OpCode, Rounding, SignFunction};

/// A loop over vectors of f32: an operation, a choice between the third and the fourth operand by a
/// comparison of the first two, or a function that a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loop {
    Neg,
    Abs,
    Sign,
    Recip,
    Sqrt,
    Rsqrt,
    Exp,
    Exp2,
    Log,
    Tanh,
    Erf,
    Floor,
    Ceil,
    Round,
    Trunc,
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    SelectLt,
    SelectLe,
    SelectEq,
    SelectNe,
    Gelu,
    GeluTanh,
    Sigmoid,
    Silu,
}

impl Loop {
    /// The loop of an operation, if there is one over vectors of f32.
    #[inline]
    pub(crate) fn of_op(op: OpCode) -> Option<Loop> {
        match op {
            OpCode::Float(f) => float_function(f).vectors,
            OpCode::Round(rounding) => Some(match rounding {
                Rounding::Floor => Loop::Floor,
                Rounding::Ceil => Loop::Ceil,
                Rounding::Round => Loop::Round,
                Rounding::Trunc => Loop::Trunc,
            }),
            OpCode::Sign(f) => Some(match f {
                SignFunction::Neg => Loop::Neg,
                SignFunction::Abs => Loop::Abs,
                SignFunction::Sign => Loop::Sign,
            }),
            OpCode::Arithmetic(op) => match op {
                Arithmetic::Add => Some(Loop::Add),
                Arithmetic::Sub => Some(Loop::Sub),
                Arithmetic::Mul => Some(Loop::Mul),
                Arithmetic::Div => Some(Loop::Div),
                Arithmetic::Max => Some(Loop::Max),
                Arithmetic::Min => Some(Loop::Min),
                Arithmetic::Pow | Arithmetic::Rem | Arithmetic::FloorDiv => None,
            },
            OpCode::Compare(_) | OpCode::Bitwise(_) | OpCode::Not | OpCode::IsNan => None,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => None,
            OpCode::Cast | OpCode::Where => None,
        }
    }

    /// The loop of a `where` whose condition is this comparison.
    pub(crate) fn select_by(comparison: Comparison) -> Loop {
        match comparison {
            Comparison::Lt => Loop::SelectLt,
            Comparison::Le => Loop::SelectLe,
            Comparison::Eq => Loop::SelectEq,
            Comparison::Ne => Loop::SelectNe,
        }
    }

    /// The number of operands.
    pub(crate) fn operands(self) -> usize {
        match self {
            Loop::Add | Loop::Sub | Loop::Mul | Loop::Div | Loop::Max | Loop::Min => 2,
            Loop::SelectLt | Loop::SelectLe | Loop::SelectEq | Loop::SelectNe => 4,
            Loop::Neg
            | Loop::Abs
            | Loop::Sign
            | Loop::Recip
            | Loop::Sqrt
            | Loop::Rsqrt
            | Loop::Exp
            | Loop::Exp2
            | Loop::Log
            | Loop::Tanh
            | Loop::Erf => 1,
            Loop::Floor
            | Loop::Ceil
            | Loop::Round
            | Loop::Trunc
            | Loop::Gelu
            | Loop::GeluTanh
            | Loop::Sigmoid
            | Loop::Silu => 1,
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
#[inline]
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
#[inline]
pub(super) fn function_of_two(op: Arithmetic) -> Option<fn(f64, f64) -> f64> {
    match op {
        Arithmetic::Pow => Some(f64::powf),
        Arithmetic::Rem => Some(remainder),
        Arithmetic::FloorDiv => Some(floor_div),
        Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul => None,
        Arithmetic::Div | Arithmetic::Max | Arithmetic::Min => None,
    }
}

/// The panic for a kernel that core's builder should have refused.
pub(crate) fn unexpected(op: impl Into<OpCode>, what: &str) -> ! {
    unreachable!("the kernel builder let {} of {what} through", op.into().name())
}
