//! The loops of nodes, by dtype: f32 in vectors, f64, integers and bools, conversions.

pub(crate) mod cast;
pub(super) mod float;
pub(crate) mod float32;
pub(super) mod float64;
pub(crate) mod int;
mod int_type;
pub(super) mod select;

use teeny_core::kernel::OpCode;

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
    pub(crate) fn of_op(op: OpCode) -> Option<Loop> {
        use OpCode as O;
        Some(match op {
            O::Neg => Loop::Neg,
            O::Abs => Loop::Abs,
            O::Sign => Loop::Sign,
            O::Recip => Loop::Recip,
            O::Sqrt => Loop::Sqrt,
            O::Rsqrt => Loop::Rsqrt,
            O::Exp => Loop::Exp,
            O::Exp2 => Loop::Exp2,
            O::Log => Loop::Log,
            O::Tanh => Loop::Tanh,
            O::Erf => Loop::Erf,
            O::Floor => Loop::Floor,
            O::Ceil => Loop::Ceil,
            O::Round => Loop::Round,
            O::Trunc => Loop::Trunc,
            O::Add => Loop::Add,
            O::Sub => Loop::Sub,
            O::Mul => Loop::Mul,
            O::Div => Loop::Div,
            O::Max => Loop::Max,
            O::Min => Loop::Min,
            O::Input(_) | O::Param(_) | O::Const(_) | O::Cast | O::Where => return None,
            O::Expm1
            | O::Log2
            | O::Log1p
            | O::Sin
            | O::Cos
            | O::Tan
            | O::Atan
            | O::Pow
            | O::Rem
            | O::FloorDiv => return None,
            O::CmpLt
            | O::CmpLe
            | O::CmpEq
            | O::CmpNe
            | O::IsNan
            | O::Not
            | O::And
            | O::Or
            | O::Xor
            | O::Shl
            | O::Shr => return None,
        })
    }

    /// The loop of a `where` whose condition is this comparison.
    pub(crate) fn select_by(comparison: OpCode) -> Option<Loop> {
        use OpCode as O;
        Some(match comparison {
            O::CmpLt => Loop::SelectLt,
            O::CmpLe => Loop::SelectLe,
            O::CmpEq => Loop::SelectEq,
            O::CmpNe => Loop::SelectNe,
            O::Input(_)
            | O::Param(_)
            | O::Const(_)
            | O::Cast
            | O::Where
            | O::IsNan
            | O::Not
            | O::And
            | O::Or
            | O::Xor
            | O::Shl
            | O::Shr => {
                return None;
            }
            O::Neg
            | O::Abs
            | O::Sign
            | O::Recip
            | O::Sqrt
            | O::Rsqrt
            | O::Exp
            | O::Exp2
            | O::Expm1
            | O::Log
            | O::Log2
            | O::Log1p => return None,
            O::Sin
            | O::Cos
            | O::Tan
            | O::Atan
            | O::Tanh
            | O::Erf
            | O::Floor
            | O::Ceil
            | O::Round
            | O::Trunc => return None,
            O::Add | O::Sub | O::Mul | O::Div | O::Pow | O::Max | O::Min | O::Rem | O::FloorDiv => {
                return None;
            }
        })
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

/// The panic for a kernel that core's builder should have refused.
pub(crate) fn unexpected(op: OpCode, what: &str) -> ! {
    unreachable!("the kernel builder let {} of {what} through", op.name())
}
