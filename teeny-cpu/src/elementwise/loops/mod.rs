//! The loops of nodes, by dtype: floats in vectors, integers and bools, conversions.

pub(crate) mod cast;
pub(crate) mod float;
pub(crate) mod floats;
pub(crate) mod int;
mod int_type;
pub(super) mod select;

use teeny_core::kernel::{Arithmetic, Comparison, FloatFunction, OpCode, Rounding, SignFunction};

/// A loop over vectors of floats: an operation, a choice between the third and the fourth operand by a
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
    Expm1,
    Log,
    Log2,
    Log1p,
    Sin,
    Cos,
    Tan,
    Atan,
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
    Pow,
    Rem,
    FloorDiv,
    Square,
    Cube,
    PowHalf,
    PowMinusHalf,
    RecipSquare,
    /// A cast that loses nothing.
    Copy,
    RoundToBf16,
    RoundToF16,
    SelectLt,
    SelectLe,
    SelectEq,
    SelectNe,
    Gelu,
    GeluGrad,
    GeluTanh,
    GeluTanhGrad,
    Sigmoid,
    Silu,
    SiluGrad,
}

impl Loop {
    /// The loop of an operation, if there is one over vectors of f32.
    #[inline]
    pub(crate) fn of_op(op: OpCode) -> Option<Loop> {
        match op {
            OpCode::Float(f) => match float_function(f) {
                FloatLoop::Vectors(body) => Some(body),
                FloatLoop::Calls(_) => None,
            },
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
                Arithmetic::Pow => Some(Loop::Pow),
                Arithmetic::Rem => Some(Loop::Rem),
                Arithmetic::FloorDiv => Some(Loop::FloorDiv),
            },
            OpCode::Compare(_) | OpCode::Bitwise(_) | OpCode::Not | OpCode::IsNan => None,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => None,
            OpCode::Cast | OpCode::Where => None,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => None,
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

    /// The loop of a power with this exponent, of one operand, if it is a frequent one.
    pub(crate) fn of_power(exponent: f64) -> Option<Loop> {
        let loops = [
            (1.0, Loop::Copy),
            (2.0, Loop::Square),
            (3.0, Loop::Cube),
            (0.5, Loop::PowHalf),
            (-0.5, Loop::PowMinusHalf),
            (-1.0, Loop::Recip),
            (-2.0, Loop::RecipSquare),
        ];
        loops.into_iter().find(|&(number, _)| number == exponent).map(|(_, body)| body)
    }

    /// The number of operands.
    pub(crate) fn operands(self) -> usize {
        match self {
            Loop::Add | Loop::Sub | Loop::Mul | Loop::Div | Loop::Max | Loop::Min => 2,
            Loop::Pow | Loop::Rem | Loop::FloorDiv => 2,
            Loop::SelectLt | Loop::SelectLe | Loop::SelectEq | Loop::SelectNe => 4,
            Loop::Neg
            | Loop::Abs
            | Loop::Sign
            | Loop::Recip
            | Loop::Sqrt
            | Loop::Rsqrt
            | Loop::Exp
            | Loop::Exp2
            | Loop::Expm1
            | Loop::Log
            | Loop::Log2
            | Loop::Log1p
            | Loop::Sin
            | Loop::Cos
            | Loop::Tan
            | Loop::Atan
            | Loop::Tanh
            | Loop::Erf => 1,
            Loop::Square
            | Loop::Cube
            | Loop::PowHalf
            | Loop::PowMinusHalf
            | Loop::RecipSquare
            | Loop::Copy
            | Loop::RoundToBf16
            | Loop::RoundToF16 => 1,
            Loop::Floor
            | Loop::Ceil
            | Loop::Round
            | Loop::Trunc
            | Loop::Gelu
            | Loop::GeluGrad
            | Loop::GeluTanh
            | Loop::GeluTanhGrad
            | Loop::Sigmoid
            | Loop::Silu
            | Loop::SiluGrad => 1,
        }
    }
}

/// How a function of floats is computed.
pub(crate) enum FloatLoop {
    /// By a loop over vectors.
    Vectors(Loop),
    /// By one call for each element, of f32 too.
    Calls(fn(f64) -> f64),
}

/// The loop of a function: a new function of std needs one line, a vector function one more in
/// `vecmath`.
#[inline]
pub(crate) fn float_function(f: FloatFunction) -> FloatLoop {
    use FloatFunction::*;
    FloatLoop::Vectors(match f {
        Recip => Loop::Recip,
        Sqrt => Loop::Sqrt,
        Rsqrt => Loop::Rsqrt,
        Cbrt => return FloatLoop::Calls(f64::cbrt),
        Exp => Loop::Exp,
        Exp2 => Loop::Exp2,
        Expm1 => Loop::Expm1,
        Log => Loop::Log,
        Log2 => Loop::Log2,
        Log1p => Loop::Log1p,
        Sin => Loop::Sin,
        Cos => Loop::Cos,
        Tan => Loop::Tan,
        Atan => Loop::Atan,
        Tanh => Loop::Tanh,
        Erf => Loop::Erf,
    })
}

/// The panic for a kernel that core's builder should have refused.
pub(crate) fn unexpected(op: impl Into<OpCode>, what: &str) -> ! {
    unreachable!("the kernel builder let {} of {what} through", op.into().name())
}
