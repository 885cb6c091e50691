//! The loops of nodes, by dtype: floats in vectors, integers and bools, conversions.

pub(crate) mod cast;
pub(crate) mod float;
pub(crate) mod int;
mod int_type;
pub(crate) mod select;

use teeny_core::kernel::{Arithmetic, Comparison, FloatFunction, OpCode, Rounding, SignFunction};

/// Passes all loops over vectors of floats to a macro, each by the name of its function's type:
/// operations that take as long as moving their operands, of one and of two, other functions of one
/// and of two, and choices between the third and the fourth operand by a comparison of the first two.
macro_rules! each_loop {
    ($then:ident) => {
        $then! {
            cheap: Neg Abs Sign Recip Sqrt Rsqrt Floor Ceil Round Trunc Square Cube;
            cheap_pairs: Add Sub Mul Div Max Min;
            functions: Exp Exp2 Expm1 Log Log2 Log10 Log1p Sin Cos Tan Atan Tanh Erf PowHalf
                PowMinusHalf RecipSquare Copy RoundToBf16 RoundToF16 Gelu GeluGrad GeluTanh
                GeluTanhGrad Sigmoid Silu SiluGrad;
            pairs: Pow Rem FloorDiv;
            choices: SelectLt SelectLe SelectEq SelectNe;
        }
    };
}
pub(crate) use each_loop;

macro_rules! declare {
    (cheap: $($cheap:ident)*; cheap_pairs: $($cheap_pair:ident)*; functions: $($function:ident)*;
     pairs: $($pair:ident)*; choices: $($choice:ident)*;) => {
        /// A loop over vectors of floats: an operation, a choice by a comparison, or a function that
        /// a pattern stands for.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) enum Loop {
            $($cheap,)* $($cheap_pair,)* $($function,)* $($pair,)* $($choice,)*
        }

        impl Loop {
            /// The number of operands.
            pub(crate) fn operands(self) -> usize {
                match self {
                    $(Loop::$cheap)|* | $(Loop::$function)|* => 1,
                    $(Loop::$cheap_pair)|* | $(Loop::$pair)|* => 2,
                    $(Loop::$choice)|* => 4,
                }
            }
        }
    };
}
each_loop!(declare);

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
        Log10 => Loop::Log10,
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
