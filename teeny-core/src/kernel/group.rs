//! Groups of operations: the algebraic laws that rewriting may use.
//!
//! A law holds in bits: for every value of the dtype both sides have the same bits, where NaN is
//! one value. Float addition and multiplication are therefore not associative, and the larger of
//! two floats is not commutative (of `-0` and `0` it is the second). The matches over operations
//! have no wildcard arm, so the compiler asks for the laws of a new operation.
//!
//! Arity is [`OpCode::arity`].

use super::OpNode;
use super::eval::eval;
use super::op_code::{Arithmetic, Bitwise, Comparison, OpCode, SignFunction};
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The operand types for which a law holds.
#[derive(Clone, Copy)]
enum Types {
    Never,
    Bools,
    Ints,
    Floats,
    /// All that the operation accepts.
    Accepted,
    Any,
}

impl OpCode {
    /// The types for which the operation is commutative, associative and idempotent.
    const fn laws(self) -> [Types; 3] {
        use Arithmetic::*;
        use Bitwise::*;
        use Types::*;
        match self {
            OpCode::Arithmetic(Add | Mul) => [Accepted, Ints, Never],
            // Both sides return the last of several equal largest floats.
            OpCode::Arithmetic(Max | Min) => [Ints, Accepted, Accepted],
            OpCode::Arithmetic(Sub | Div | Pow | Rem | FloorDiv) => [Never; 3],
            // A comparison has the type of its operands only for bools.
            OpCode::Compare(Comparison::Eq | Comparison::Ne) => [Any, Bools, Never],
            OpCode::Compare(Comparison::Lt | Comparison::Le) => [Never; 3],
            OpCode::Bitwise(And | Or) => [Accepted; 3],
            OpCode::Bitwise(Xor) => [Accepted, Accepted, Never],
            OpCode::Bitwise(Shl | Shr) => [Never; 3],
            OpCode::Round(_) => [Never, Never, Floats],
            OpCode::Sign(SignFunction::Abs | SignFunction::Sign) => [Never, Never, Accepted],
            // A cast to the type of its operand.
            OpCode::Cast | OpCode::Where => [Never, Never, Any],
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => [Never; 3],
            OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => [Never; 3],
            OpCode::Sign(SignFunction::Neg) | OpCode::Float(_) => [Never; 3],
            OpCode::Not | OpCode::IsNan => [Never; 3],
        }
    }

    const fn has_law(self, law: usize, dtype: DType) -> bool {
        match self.laws()[law] {
            Types::Never => false,
            Types::Bools => matches!(dtype, DType::Bool),
            Types::Ints => dtype.is_int(),
            Types::Floats => dtype.is_float(),
            Types::Accepted => self.accepts(dtype),
            Types::Any => true,
        }
    }

    /// True if `a op b = b op a` for operands of type `dtype`. [`OpCode::is_commutative`] are those
    /// for which this holds for every type.
    pub const fn is_commutative_for(self, dtype: DType) -> bool {
        self.has_law(0, dtype)
    }

    /// True if `(a op b) op c = a op (b op c)` for operands of type `dtype`.
    pub const fn is_associative(self, dtype: DType) -> bool {
        self.has_law(1, dtype)
    }

    /// True if `f(f(x)) = f(x)` for an operation of one operand of type `dtype`, or `x op x = x`
    /// for one of two, or `if c { x } else { x } = x`.
    pub const fn is_idempotent(self, dtype: DType) -> bool {
        self.has_law(2, dtype)
    }

    /// True if the operation compares two values.
    pub const fn is_comparison(self) -> bool {
        matches!(self, OpCode::Compare(_))
    }

    /// True if the result may have other bits than `0` (`false` of a bool) where all operands, of
    /// type `dtype`, are 0: elements that pad a tensor with zeros are not zeros after it.
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
