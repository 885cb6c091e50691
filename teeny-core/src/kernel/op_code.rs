//! [`OpCode`]: the operation of a node of a scalar program.
//!
//! Operations come in classes, each an enum made from the table in `ops`. A `match` is complete
//! within the classes it serves and has no wildcard arm there, so the compiler lists what a new
//! operation needs.

use super::ops::ops;
use super::rows::Fold;
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The operation of a node of a scalar program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// The element of an input tensor at the output's index.
    Input(u8),
    /// A number given at each launch: a new value needs no new kernel.
    Param(u8),
    /// A number that is part of the program.
    Const(Scalar),
    /// The source as the node's type; see [`Scalar::cast`].
    Cast,
    /// A smooth function of a float.
    Float(FloatFunction),
    /// Rounding of a float to an integer.
    Round(Rounding),
    /// A function of the sign of a number.
    Sign(SignFunction),
    /// Logical not of a bool, bitwise not of an integer.
    Not,
    /// True where a float is NaN; devices test bits, not `x != x`.
    IsNan,
    /// Arithmetic of two numbers.
    Arithmetic(Arithmetic),
    /// A comparison of two values.
    Compare(Comparison),
    /// An operation on the bits of two values.
    Bitwise(Bitwise),
    /// `b` where the bool `a` is true, else `c`.
    Where,
    /// A reduction of the source along the row: one value a row. This and the following three are
    /// operations of row programs, see [`super::rows`].
    Fold(Fold),
    /// The element of an input, the first source, at the position that the second source has: one
    /// value a row. A position outside `0..length` is an error.
    At,
    /// The position along the row, from 0.
    Index,
    /// The number of positions of a row.
    Length,
}

macro_rules! op_codes {
    (
        unary { $($(#[$doc1:meta])* $variant1:ident($class1:ident) { $($ops1:tt)* })* }
        binary { $($(#[$doc2:meta])* $variant2:ident($class2:ident) { $($ops2:tt)* })* }
    ) => {
        $(class! { $(#[$doc1])* $variant1($class1) { $($ops1)* } })*
        $(class! { $(#[$doc2])* $variant2($class2) { $($ops2)* } })*

        impl OpCode {
            /// The operations of one operand, without `Cast`.
            pub const UNARY: [OpCode; 2 $(+ $class1::ALL.len())*] =
                concat(&[&[OpCode::Not, OpCode::IsNan], $(&$class1::OPS),*]);
            /// The operations of two operands.
            pub const BINARY: [OpCode; 0 $(+ $class2::ALL.len())*] = concat(&[$(&$class2::OPS),*]);

            /// The number of operands: 0 for leaves.
            #[inline]
            pub const fn arity(self) -> usize {
                match self {
                    OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => 0,
                    OpCode::Index | OpCode::Length => 0,
                    OpCode::Cast | OpCode::Not | OpCode::IsNan | OpCode::Fold(_) => 1,
                    $(OpCode::$variant1(_))|* => 1,
                    OpCode::At $(| OpCode::$variant2(_))* => 2,
                    OpCode::Where => 3,
                }
            }

            /// The operation's name, which is also its method on tensors: `exp`, `add`, `lt`.
            pub const fn name(self) -> &'static str {
                match self {
                    OpCode::Input(_) => "input",
                    OpCode::Param(_) => "param",
                    OpCode::Const(_) => "const",
                    OpCode::Cast => "cast",
                    OpCode::Not => "not",
                    OpCode::IsNan => "is_nan",
                    OpCode::Where => "where",
                    OpCode::Fold(fold) => fold.name(),
                    OpCode::At => "at",
                    OpCode::Index => "index",
                    OpCode::Length => "length",
                    $(OpCode::$variant1(op) => op.name(),)*
                    $(OpCode::$variant2(op) => op.name(),)*
                }
            }
        }
    };
}

macro_rules! class {
    ($(#[$doc:meta])* $variant:ident($class:ident) {
        $($(#[$op_doc:meta])* $op:ident $name:ident;)*
    }) => {
        crate::options::named! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $class { $($(#[$op_doc])* $op = stringify!($name),)* }
        }

        impl $class {
            const OPS: [OpCode; $class::ALL.len()] = [$(OpCode::$variant($class::$op)),*];
        }

        impl From<$class> for OpCode {
            fn from(op: $class) -> OpCode {
                OpCode::$variant(op)
            }
        }
    };
}

/// The lists one after the other.
const fn concat<const N: usize>(lists: &[&[OpCode]]) -> [OpCode; N] {
    let mut all = [OpCode::Cast; N];
    let (mut list, mut n) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[n] = lists[list][i];
            (i, n) = (i + 1, n + 1);
        }
        list += 1;
    }
    all
}

ops!(op_codes);

impl OpCode {
    /// True if exchanging the operands changes no bit of the result, for any dtype; see also
    /// [`OpCode::is_commutative_for`].
    pub const fn is_commutative(self) -> bool {
        matches!(
            self,
            OpCode::Arithmetic(Arithmetic::Add | Arithmetic::Mul)
                | OpCode::Compare(Comparison::Eq | Comparison::Ne)
                | OpCode::Bitwise(Bitwise::And | Bitwise::Or | Bitwise::Xor)
        )
    }

    /// True for the operations of row programs, which know the row and not the element alone.
    pub const fn is_of_rows(self) -> bool {
        matches!(self, OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length)
    }

    /// True if the result is always a bool.
    pub const fn is_predicate(self) -> bool {
        matches!(self, OpCode::Compare(_) | OpCode::IsNan)
    }

    /// True if operands of type `dtype` are accepted (for `Where`: as the two values).
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => true,
            OpCode::Cast | OpCode::Compare(_) | OpCode::Where | OpCode::At => true,
            OpCode::Index => matches!(dtype, DType::I32),
            OpCode::Length => !matches!(dtype, DType::Bool),
            OpCode::Fold(Fold::Any | Fold::All) => matches!(dtype, DType::Bool),
            OpCode::Fold(_) => !matches!(dtype, DType::Bool),
            OpCode::Float(_) | OpCode::Round(_) | OpCode::IsNan => dtype.is_float(),
            OpCode::Arithmetic(Arithmetic::Div) => dtype.is_float(),
            OpCode::Sign(_) | OpCode::Arithmetic(_) => !matches!(dtype, DType::Bool),
            OpCode::Bitwise(Bitwise::Shl | Bitwise::Shr) => dtype.is_int(),
            OpCode::Not | OpCode::Bitwise(_) => !dtype.is_float(),
        }
    }
}
