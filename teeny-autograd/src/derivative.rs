//! The derivative of every [`OpCode`]: one table, one arm per operation.
//!
//! `SPECIAL_POINTS.md` lists where results differ from PyTorch's.
//!
//! A rule sees the operands `a`, `b`, the result `y` and the gradient `g` of the result, and
//! returns the gradient of each operand. At kinks the choices are PyTorch's:
//!
//! | at | gradient |
//! |---|---|
//! | `abs(0)`, `sign`, `floor`, `ceil`, `round`, `trunc`, `floor_div` | 0 |
//! | `maximum(a, b)`, `minimum(a, b)` with `a == b` | half to each |
//! | `max(x, c)`, `min(x, c)` with a constant `c == x` (`relu`, `relu6`, `hardtanh`) | 0; at NaN 1 |
//! | the same with a number given at each launch (`clamp`, `x.maximum(1.5)`) | 0; at NaN 0 |
//! | `pow(a, 0)` | 0 for the base |
//! | `pow(0, b)`, `b >= 0` | 0 for the exponent; for a negative base NaN |

use std::f64::consts;
use teeny_core::kernel::Fold;
use teeny_core::{Arithmetic, DType, Expr, FloatFunction, OpCode, SignFunction};

/// The gradient of each operand; `None` if the derivative by it is zero or does not exist.
pub(crate) type OperandGrads<'b> = [Option<Expr<'b>>; 3];

/// The kind of an operand, on which the sub-gradient at a tie depends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A value computed from tensors.
    Value,
    /// A constant of the program.
    Const,
    /// A number passed at each launch.
    Param,
}

/// One application of an operation.
pub(crate) struct AppliedOp<'b> {
    /// The operands; those beyond the arity repeat the first.
    pub src: [Expr<'b>; 3],
    pub kind: [Operand; 3],
    /// The result: read from memory where it was stored, recomputed where not.
    pub y: Expr<'b>,
    /// The gradient of the result.
    pub g: Expr<'b>,
}

fn one<'b>(g: Expr<'b>) -> OperandGrads<'b> {
    [Some(g), None, None]
}

fn two<'b>(a: Expr<'b>, b: Expr<'b>) -> OperandGrads<'b> {
    [Some(a), Some(b), None]
}

/// The gradients of the operands of `op`.
pub(crate) fn operand_grads<'b>(op: OpCode, step: &AppliedOp<'b>) -> OperandGrads<'b> {
    let AppliedOp { src: [a, b, _], y, g, .. } = *step;
    match op {
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => [None; 3],
        // Only casts between floats occur: integers and bools have no gradient.
        OpCode::Cast => one(g.cast(a.dtype())),
        OpCode::Float(f) => one(float_function(f, a, y, g)),
        OpCode::Round(_) | OpCode::Sign(SignFunction::Sign) => [None; 3],
        OpCode::Sign(SignFunction::Neg) => one(-g),
        OpCode::Sign(SignFunction::Abs) => one(g * a.sign()),
        OpCode::Arithmetic(op) => arithmetic(op, step),
        OpCode::Where => [None, Some(a.where_cond(g, g.like(0))), Some(a.where_cond(g.like(0), g))],
        OpCode::Compare(_) | OpCode::Bitwise(_) | OpCode::Not | OpCode::IsNan => [None; 3],
        OpCode::Fold(fold) => fold_grad(fold, a, y, g),
        OpCode::At => one(a.index().cast(DType::I64).eq(b.cast(DType::I64)).where_cond(g, 0.0)),
        OpCode::Index | OpCode::Length => [None; 3],
    }
}

/// The gradient of each element of a row `a` that was reduced to `y`.
fn fold_grad<'b>(fold: Fold, a: Expr<'b>, y: Expr<'b>, g: Expr<'b>) -> OperandGrads<'b> {
    match fold {
        Fold::Sum => one(g),
        // As torch.amax: ties share evenly. Where the extremum is NaN nothing equals it, and all
        // get 0 / 0.
        Fold::Max | Fold::Min => {
            let best = a.eq(y);
            let count = best.cast(g.dtype()).fold(Fold::Sum);
            one(best.where_cond(g, g.like(0)) / count)
        }
        // For products see `symbolic::require_derivable`.
        Fold::Prod | Fold::Any | Fold::All => [None; 3],
    }
}

/// The gradient of `a`, where `y = f(a)`.
fn float_function<'b>(f: FloatFunction, a: Expr<'b>, y: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    use FloatFunction::*;
    match f {
        Recip => -(g * y * y),
        Sqrt => g / (y * 2.0),
        Rsqrt => g * y * y * y * -0.5,
        Cbrt => g / (y * y * 3.0),
        Exp => g * y,
        Exp2 => g * y * consts::LN_2,
        Expm1 => g * (y + 1.0),
        Log => g / a,
        Log2 => g / (a * consts::LN_2),
        Log10 => g / (a * consts::LN_10),
        Log1p => g / (a + 1.0),
        Sin => g * a.cos(),
        Cos => -(g * a.sin()),
        Tan => g * (y * y + 1.0),
        Atan => g / (a * a + 1.0),
        Tanh => g * (1.0 - y * y),
        Erf => g * (-(a * a)).exp() * consts::FRAC_2_SQRT_PI,
    }
}

fn arithmetic<'b>(op: Arithmetic, step: &AppliedOp<'b>) -> OperandGrads<'b> {
    use Arithmetic::*;
    let AppliedOp { src: [a, b, _], y, g, .. } = *step;
    match op {
        Add => two(g, g),
        Sub => two(g, -g),
        Mul => two(g * b, g * a),
        Div => two(g / b, -(g * y / b)),
        Pow => two(pow_base(a, b, g), pow_exponent(a, b, y, g)),
        // Exchanging a and b turns the larger into the smaller.
        Max => extremum(step, |a, b| a.lt(b)),
        Min => extremum(step, |a, b| b.lt(a)),
        Rem => two(g, -(g * a.floor_div(b))),
        FloorDiv => [None; 3],
    }
}

/// `b a^(b - 1)`; 0 where b is 0. Neither this nor its derivative computes `0 * 0^-1` there. No
/// logarithm, so that the base may be negative.
fn pow_base<'b>(a: Expr<'b>, b: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    let flat = b.eq(0.0);
    flat.where_cond(g.like(0), g * (b * a.pow(flat.where_cond(b.like(1), b) - 1.0)))
}

/// `a^b log(a)`; 0 where a is 0 and b is not negative: the limit from the right.
fn pow_exponent<'b>(a: Expr<'b>, b: Expr<'b>, y: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    a.eq(0.0).and(b.ge(0.0)).where_cond(g.like(0), g * y * a.log())
}

/// The gradient goes to the winner; `loses(a, b)` is true where `a` is not the result. NaN operands
/// pass it on, as in PyTorch.
fn extremum<'b>(
    step: &AppliedOp<'b>,
    loses: impl Fn(Expr<'b>, Expr<'b>) -> Expr<'b>,
) -> OperandGrads<'b> {
    let AppliedOp { src: [a, b, _], kind, g, .. } = *step;
    let to = |own: Expr<'b>, other: Expr<'b>, kind: Operand| {
        let zero = g.like(0);
        match kind {
            Operand::Value => {
                own.eq(other).where_cond(g * 0.5, loses(own, other).where_cond(zero, g))
            }
            Operand::Const => own.eq(other).or(loses(own, other)).where_cond(zero, g),
            Operand::Param => loses(other, own).where_cond(g, zero),
        }
    };
    two(to(a, b, kind[1]), to(b, a, kind[0]))
}
