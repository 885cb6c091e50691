//! Groups of operations: the algebraic laws that rewriting may use.
//!
//! A law holds in bits: for every value of the dtype both sides have the same bits, where NaN is
//! one value. Float addition and multiplication are therefore not associative, and the larger of
//! two floats is not commutative (of `-0` and `0` it is the second). No function here has a wildcard
//! arm, so the compiler asks for the laws of a new operation.
//!
//! Arity is [`OpCode::arity`].

use super::OpNode;
use super::eval::eval;
use super::op_code::{Arithmetic, Bitwise, Comparison, OpCode, SignFunction};
use crate::dtype::DType;
use crate::scalar::Scalar;

impl OpCode {
    /// True if `a op b = b op a` for operands of type `dtype`. [`OpCode::is_commutative`] are those
    /// for which this holds for every type.
    pub const fn is_commutative_for(self, dtype: DType) -> bool {
        use Arithmetic::*;
        use Bitwise::*;
        match self {
            OpCode::Arithmetic(Add | Mul) => self.accepts(dtype),
            OpCode::Arithmetic(Max | Min) => dtype.is_int(),
            OpCode::Arithmetic(Sub | Div | Pow | Rem | FloorDiv) => false,
            OpCode::Compare(Comparison::Eq | Comparison::Ne) => true,
            OpCode::Compare(Comparison::Lt | Comparison::Le) => false,
            OpCode::Bitwise(And | Or | Xor) => self.accepts(dtype),
            OpCode::Bitwise(Shl | Shr) => false,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => false,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => false,
            OpCode::Cast | OpCode::Not | OpCode::IsNan | OpCode::Where => false,
            OpCode::Float(_) | OpCode::Round(_) | OpCode::Sign(_) => false,
        }
    }

    /// True if `(a op b) op c = a op (b op c)` for operands of type `dtype`. A comparison has the
    /// type of its operands only for bools.
    pub const fn is_associative(self, dtype: DType) -> bool {
        use Arithmetic::*;
        use Bitwise::*;
        match self {
            OpCode::Arithmetic(Add | Mul) => dtype.is_int(),
            // Of several equal largest floats both sides are the last one.
            OpCode::Arithmetic(Max | Min) => self.accepts(dtype),
            OpCode::Arithmetic(Sub | Div | Pow | Rem | FloorDiv) => false,
            OpCode::Compare(Comparison::Eq | Comparison::Ne) => matches!(dtype, DType::Bool),
            OpCode::Compare(Comparison::Lt | Comparison::Le) => false,
            OpCode::Bitwise(And | Or | Xor) => self.accepts(dtype),
            OpCode::Bitwise(Shl | Shr) => false,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => false,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => false,
            OpCode::Cast | OpCode::Not | OpCode::IsNan | OpCode::Where => false,
            OpCode::Float(_) | OpCode::Round(_) | OpCode::Sign(_) => false,
        }
    }

    /// True if `f(f(x)) = f(x)` for an operation of one operand of type `dtype`, or `x op x = x`
    /// for one of two, or `if c { x } else { x } = x`.
    pub const fn is_idempotent(self, dtype: DType) -> bool {
        use Arithmetic::*;
        use Bitwise::*;
        match self {
            OpCode::Round(_) => dtype.is_float(),
            OpCode::Sign(SignFunction::Abs | SignFunction::Sign) => self.accepts(dtype),
            OpCode::Sign(SignFunction::Neg) => false,
            // Of equal types.
            OpCode::Cast => true,
            OpCode::Where => true,
            OpCode::Arithmetic(Max | Min) => self.accepts(dtype),
            OpCode::Arithmetic(Add | Sub | Mul | Div | Pow | Rem | FloorDiv) => false,
            OpCode::Bitwise(And | Or) => self.accepts(dtype),
            OpCode::Bitwise(Xor | Shl | Shr) => false,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => false,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => false,
            OpCode::Float(_) | OpCode::Not | OpCode::IsNan | OpCode::Compare(_) => false,
        }
    }

    /// True if the operation compares two values.
    pub const fn is_comparison(self) -> bool {
        match self {
            OpCode::Compare(_) => true,
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => false,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => false,
            OpCode::Cast | OpCode::Not | OpCode::IsNan | OpCode::Where => false,
            OpCode::Float(_) | OpCode::Round(_) | OpCode::Sign(_) => false,
            OpCode::Arithmetic(_) | OpCode::Bitwise(_) => false,
        }
    }

    /// True if the result may have other bits than `0` (`false` of a bool) where all operands, of
    /// type `dtype`, are 0: elements that pad a tensor with zeros are not zeros behind it.
    pub fn is_unsafe_pad(self, dtype: DType) -> bool {
        match self {
            OpCode::Input(_) => false,
            OpCode::Param(_) => true,
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => true,
            // As all bits are compared, -0 of a negation is not 0.
            OpCode::Const(_)
            | OpCode::Cast
            | OpCode::Float(_)
            | OpCode::Round(_)
            | OpCode::Sign(_)
            | OpCode::Not
            | OpCode::IsNan
            | OpCode::Arithmetic(_)
            | OpCode::Compare(_)
            | OpCode::Bitwise(_)
            | OpCode::Where => {
                let zero = |dtype: DType| Scalar::Int(0).cast(dtype.compute());
                let result = if self.is_predicate() { DType::Bool } else { dtype };
                let node = OpNode { op: self, src: [0; 3], dtype: result };
                eval(&node, dtype, [zero(dtype); 3]) != zero(result)
            }
        }
    }
}
