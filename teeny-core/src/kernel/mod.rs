//! Scalar programs: the one description of elementwise work that every device, every derivative and
//! every fusion shares.
//!
//! A [`Kernel`] is a small typed program in static single assignment form, run at every index of
//! the output. A single `add` is a program of one operation, AdamW's update one of a dozen
//! operations and three outputs. Devices read `nodes` in order: a node's sources always come before
//! it.
//!
//! ```text
//! (x + b).gelu()     %0 = input 0      %2 = add %0 %1        …      outputs %9
//!                    %1 = input 1      %3 = mul %2 const 0.7071
//! ```
//!
//! [`build`] makes kernels (hash-consing, types, promotion), [`simplify`](self) shrinks them while
//! they are built, [`eval`] says what each operation means, [`table`] keeps the kernels of single
//! operations.

pub mod build;
pub mod eval;
// methods beside the operators: `a.div(b)` inside `map`, as on tensors
#[allow(clippy::should_implement_trait)]
pub mod functions;
mod simplify;
pub mod table;

use crate::dtype::DType;
use crate::scalar::Scalar;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most tensors a kernel reads.
pub const MAX_INPUTS: usize = 8;
/// The most tensors a kernel writes.
pub const MAX_OUTPUTS: usize = 4;

/// The number of a node in a kernel.
pub type Id = u16;

/// What a node of a scalar program does. A closed vocabulary: no `match` on it has a wildcard arm,
/// so the compiler lists what a new one needs.
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

    /// `-x`; integers wrap.
    Neg,
    /// `|x|`; the smallest integer wraps to itself.
    Abs,
    /// -1, 0 or 1; NaN stays NaN.
    Sign,
    /// `1 / x`, floats only.
    Recip,
    /// Square root, NaN below zero.
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// e to the x.
    Exp,
    /// 2 to the x.
    Exp2,
    /// `exp(x) - 1` without cancellation near 0.
    Expm1,
    /// Natural logarithm.
    Log,
    /// Logarithm to base 2.
    Log2,
    /// `log(1 + x)` without cancellation near 0.
    Log1p,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Tangent of radians.
    Tan,
    /// Arc tangent in radians.
    Atan,
    /// Hyperbolic tangent.
    Tanh,
    /// The error function `2/sqrt(pi) * integral of exp(-t^2) from 0 to x`.
    Erf,
    /// Largest integer not above x.
    Floor,
    /// Smallest integer not below x.
    Ceil,
    /// Nearest integer, ties to even.
    Round,
    /// Toward zero.
    Trunc,
    /// Logical not of a bool, bitwise not of an integer.
    Not,
    /// True where a float is NaN; devices test bits, not `x != x`.
    IsNan,

    /// `a + b`; integers wrap, here and below.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b` of floats.
    Div,
    /// `a` to the power `b`; an integer to a negative power is the truncated true quotient.
    Pow,
    /// The larger; NaN if either is NaN. Zeros are equal whatever their sign, and of equal operands
    /// the result is the second: `max(-0, 0)` is `0`, `max(0, -0)` is `-0`.
    Max,
    /// The smaller; NaN if either is NaN. Of equal operands the second, as for `Max`.
    Min,
    /// The remainder with the sign of `b`, as Python's `%`; an integer modulo 0 is 0.
    Rem,
    /// `floor(a / b)`; an integer divided by 0 is 0.
    FloorDiv,
    /// `a < b`, false for NaN.
    CmpLt,
    /// `a <= b`, false for NaN.
    CmpLe,
    /// `a == b`, false for NaN.
    CmpEq,
    /// `a != b`, true for NaN.
    CmpNe,
    /// Logical and of bools, bitwise and of integers.
    And,
    /// Logical or of bools, bitwise or of integers.
    Or,
    /// Exclusive or.
    Xor,
    /// `a << b`; 0 if b is negative or not below the width.
    Shl,
    /// `a >> b`, keeping the sign; all sign bits if b is negative or not below the width.
    Shr,

    /// `b` where the bool `a` is true, else `c`.
    Where,
}

use OpCode::*;

impl OpCode {
    /// The operations of one operand, `Cast` left out.
    pub const UNARY: [OpCode; 24] = [
        Neg, Abs, Sign, Recip, Sqrt, Rsqrt, Exp, Exp2, Expm1, Log, Log2, Log1p, Sin, Cos, Tan,
        Atan, Tanh, Erf, Floor, Ceil, Round, Trunc, Not, IsNan,
    ];
    /// The operations of two operands.
    pub const BINARY: [OpCode; 18] = [
        Add, Sub, Mul, Div, Pow, Max, Min, Rem, FloorDiv, CmpLt, CmpLe, CmpEq, CmpNe, And, Or, Xor,
        Shl, Shr,
    ];

    /// The number of operands: 0 for leaves.
    pub const fn arity(self) -> usize {
        match self {
            Input(_) | Param(_) | Const(_) => 0,
            Cast | Neg | Abs | Sign | Recip | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2
            | Log1p | Sin | Cos | Tan | Atan | Tanh | Erf | Floor | Ceil | Round | Trunc | Not
            | IsNan => 1,
            Add | Sub | Mul | Div | Pow | Max | Min | Rem | FloorDiv | CmpLt | CmpLe | CmpEq
            | CmpNe | And | Or | Xor | Shl | Shr => 2,
            Where => 3,
        }
    }

    /// True if exchanging the operands changes no bit of the result.
    pub const fn is_commutative(self) -> bool {
        matches!(self, Add | Mul | CmpEq | CmpNe | And | Or | Xor)
    }

    /// True if the result is a bool whatever the operands.
    pub const fn is_predicate(self) -> bool {
        matches!(self, CmpLt | CmpLe | CmpEq | CmpNe | IsNan)
    }

    /// The operation's name, e.g. `cmp_lt`.
    pub fn name(self) -> &'static str {
        match self {
            Input(_) => "input",
            Param(_) => "param",
            Const(_) => "const",
            Cast => "cast",
            Neg => "neg",
            Abs => "abs",
            Sign => "sign",
            Recip => "recip",
            Sqrt => "sqrt",
            Rsqrt => "rsqrt",
            Exp => "exp",
            Exp2 => "exp2",
            Expm1 => "expm1",
            Log => "log",
            Log2 => "log2",
            Log1p => "log1p",
            Sin => "sin",
            Cos => "cos",
            Tan => "tan",
            Atan => "atan",
            Tanh => "tanh",
            Erf => "erf",
            Floor => "floor",
            Ceil => "ceil",
            Round => "round",
            Trunc => "trunc",
            Not => "not",
            IsNan => "is_nan",
            Add => "add",
            Sub => "sub",
            Mul => "mul",
            Div => "div",
            Pow => "pow",
            Max => "max",
            Min => "min",
            Rem => "rem",
            FloorDiv => "floor_div",
            CmpLt => "cmp_lt",
            CmpLe => "cmp_le",
            CmpEq => "cmp_eq",
            CmpNe => "cmp_ne",
            And => "and",
            Or => "or",
            Xor => "xor",
            Shl => "shl",
            Shr => "shr",
            Where => "where",
        }
    }

    /// True if operands of type `dtype` are accepted (for `Where`: as the two values).
    pub const fn accepts(self, dtype: DType) -> bool {
        match self {
            Input(_) | Param(_) | Const(_) | Cast | CmpLt | CmpLe | CmpEq | CmpNe | Where => true,
            Neg | Abs | Sign | Add | Sub | Mul | Pow | Max | Min | Rem | FloorDiv => {
                !matches!(dtype, DType::Bool)
            }
            Recip | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log1p | Sin | Cos | Tan
            | Atan | Tanh | Erf | Floor | Ceil | Round | Trunc | IsNan | Div => dtype.is_float(),
            Not | And | Or | Xor => !dtype.is_float(),
            Shl | Shr => dtype.is_int(),
        }
    }
}

/// One step of a program: an operation, the nodes it reads and the type it yields.
///
/// Only the first `op.arity()` sources mean anything; the rest are 0. Apart from `Cast` (any source
/// type) and `Where` (whose first source is a bool) all sources of a node have one type, which is
/// also the node's unless the operation is a predicate. Nodes of type `F16` and `BF16` are computed
/// in f32 and not rounded before they are written to an output or pass a `Cast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpNode {
    /// The operation.
    pub op: OpCode,
    /// The nodes it reads.
    pub src: [Id; 3],
    /// The type of the result.
    pub dtype: DType,
}

impl OpNode {
    /// The sources that are read.
    #[inline]
    pub fn sources(&self) -> &[Id] {
        &self.src[..self.op.arity()]
    }
}

/// A scalar program with its inputs, run-time parameters and outputs. Immutable; compared by
/// content, hashed once.
#[derive(Clone)]
pub struct Kernel {
    inputs: Vec<DType>,
    params: Vec<DType>,
    nodes: Vec<OpNode>,
    outputs: Vec<Id>,
    hash: u64,
}

impl Kernel {
    pub(crate) fn new(
        inputs: Vec<DType>,
        params: Vec<DType>,
        nodes: Vec<OpNode>,
        outputs: Vec<Id>,
    ) -> Kernel {
        let mut hasher = DefaultHasher::new();
        (&inputs, &params, &nodes, &outputs).hash(&mut hasher);
        Kernel { hash: hasher.finish(), inputs, params, nodes, outputs }
    }

    /// The types of the tensors read.
    #[inline]
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// The types of the numbers given at each launch.
    #[inline]
    pub fn params(&self) -> &[DType] {
        &self.params
    }

    /// The program, sources before users. Every node is needed by an output.
    #[inline]
    pub fn nodes(&self) -> &[OpNode] {
        &self.nodes
    }

    /// The nodes that are written to memory.
    #[inline]
    pub fn outputs(&self) -> &[Id] {
        &self.outputs
    }

    /// The type of output `i`.
    #[inline]
    pub fn output_dtype(&self, i: usize) -> DType {
        self.nodes[self.outputs[i] as usize].dtype
    }

    /// The only operation of a program that computes a single thing from leaves: what a device runs
    /// as a direct loop.
    #[inline]
    pub fn single(&self) -> Option<&OpNode> {
        let last = self.nodes.last()?;
        let leaves = &self.nodes[..self.nodes.len() - 1];
        let only = self.outputs.len() == 1
            && self.outputs[0] as usize == leaves.len()
            && last.op.arity() > 0
            && leaves.iter().all(|n| n.op.arity() == 0);
        only.then_some(last)
    }

    /// True if the program reads input `i`.
    pub fn reads(&self, i: usize) -> bool {
        self.nodes.iter().any(|n| n.op == Input(i as u8))
    }

    /// If output `i` is input `j` unchanged: `j`. Such an output needs no work.
    pub fn passes_through(&self, i: usize) -> Option<usize> {
        match self.nodes[self.outputs[i] as usize].op {
            Input(j) => Some(j as usize),
            _ => None,
        }
    }

    /// A number that equal programs share; for caches that then compare whole kernels.
    #[inline]
    pub fn content_hash(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        self.hash == other.hash
            && self.nodes == other.nodes
            && self.outputs == other.outputs
            && self.inputs == other.inputs
            && self.params == other.params
    }
}
impl Eq for Kernel {}
impl Hash for Kernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// One node a line: `%3: f32 = mul %2 %1`.
impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, node) in self.nodes.iter().enumerate() {
            write!(f, "%{id}: {} = {}", node.dtype, node.op.name())?;
            match node.op {
                Input(i) | Param(i) => write!(f, " {i}")?,
                Const(value) => write!(f, " {value}")?,
                _ => {}
            }
            for source in node.sources() {
                write!(f, " %{source}")?;
            }
            writeln!(f)?;
        }
        let outputs = self.outputs.iter().map(|o| format!("%{o}")).collect::<Vec<_>>().join(" ");
        write!(f, "outputs {outputs}")
    }
}
