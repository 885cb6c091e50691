//! The derivative of every [`OpCode`]: one table, one arm per operation.
//!
//! `SPECIAL_POINTS.md` lists where results differ from PyTorch's.
//!
//! A rule sees the operands `a`, `b`, the result `y` and the gradient `g` of the result, and says
//! what reaches each operand. At kinks the choices are PyTorch's:
//!
//! | at | gradient |
//! |---|---|
//! | `abs(0)`, `sign`, `floor`, `ceil`, `round`, `trunc`, `floor_div` | 0 |
//! | `maximum(a, b)`, `minimum(a, b)` with `a == b` | half to each |
//! | `max(x, c)`, `min(x, c)` with a constant `c == x` (`relu`, `relu6`, `hardtanh`) | 0; at NaN 1 |
//! | the same with a number given at each launch (`clamp`, `x.maximum(1.5)`) | 0; at NaN 0 |
//! | `pow(a, 0)` | 0 for the base |
//! | `pow(0, b)`, `b >= 0` | 0 for the exponent; for a negative base NaN, as there is no real slope |

use std::f64::consts;
use teeny_core::{Expr, OpCode};

/// What reaches one operand.
pub(crate) enum Slope<'b> {
    /// Nothing: the operation does not depend on it differentiably.
    Stop,
    /// A gradient of zero: the function is flat wherever it has a slope.
    Flat,
    /// This much.
    Is(Expr<'b>),
}

/// What an operand is, where the sub-gradient at a tie depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A value computed from tensors.
    Value,
    /// A constant of the program.
    Const,
    /// A number given at each launch.
    Param,
}

/// One application of an operation.
pub(crate) struct Step<'b> {
    /// The operands; those beyond the arity repeat the first.
    pub src: [Expr<'b>; 3],
    pub kind: [Operand; 3],
    /// The result: read from memory where it was stored, recomputed where not.
    pub y: Expr<'b>,
    /// The gradient of the result.
    pub g: Expr<'b>,
}

use Slope::{Flat, Is, Stop};

fn one<'b>(g: Expr<'b>) -> [Slope<'b>; 3] {
    [Is(g), Stop, Stop]
}

fn two<'b>(a: Expr<'b>, b: Expr<'b>) -> [Slope<'b>; 3] {
    [Is(a), Is(b), Stop]
}

/// What reaches the operands of `op`.
pub(crate) fn slopes<'b>(op: OpCode, step: &Step<'b>) -> [Slope<'b>; 3] {
    let Step { src: [a, b, _], y, g, .. } = *step;
    match op {
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => [Stop, Stop, Stop],
        // Only casts between floats are asked: integers and bools have no gradient.
        OpCode::Cast => one(g.cast(a.dtype())),

        OpCode::Neg => one(-g),
        OpCode::Abs => one(g * a.sign()),
        OpCode::Sign | OpCode::Floor | OpCode::Ceil | OpCode::Round | OpCode::Trunc => {
            [Flat, Stop, Stop]
        }
        OpCode::Recip => one(-(g * y * y)),
        OpCode::Sqrt => one(g / (y * 2.0)),
        OpCode::Rsqrt => one(g * y * y * y * -0.5),
        OpCode::Exp => one(g * y),
        OpCode::Exp2 => one(g * y * consts::LN_2),
        OpCode::Expm1 => one(g * (y + 1.0)),
        OpCode::Log => one(g / a),
        OpCode::Log2 => one(g / (a * consts::LN_2)),
        OpCode::Log1p => one(g / (a + 1.0)),
        OpCode::Sin => one(g * a.cos()),
        OpCode::Cos => one(-(g * a.sin())),
        OpCode::Tan => one(g * (y * y + 1.0)),
        OpCode::Atan => one(g / (a * a + 1.0)),
        OpCode::Tanh => one(g * (1.0 - y * y)),
        OpCode::Erf => one(g * (-(a * a)).exp() * consts::FRAC_2_SQRT_PI),

        OpCode::Add => two(g, g),
        OpCode::Sub => two(g, -g),
        OpCode::Mul => two(g * b, g * a),
        OpCode::Div => two(g / b, -(g * y / b)),
        OpCode::Pow => two(pow_base(a, b, g), pow_exponent(a, b, y, g)),
        // a and b exchanged turn the larger into the smaller.
        OpCode::Max => extremum(step, |a, b| a.lt(b)),
        OpCode::Min => extremum(step, |a, b| b.lt(a)),
        OpCode::Rem => two(g, -(g * a.floor_div(b))),
        OpCode::FloorDiv => [Flat, Flat, Stop],
        OpCode::Where => [Stop, Is(a.select(g, g.like(0))), Is(a.select(g.like(0), g))],

        OpCode::CmpLt | OpCode::CmpLe | OpCode::CmpEq | OpCode::CmpNe | OpCode::IsNan => {
            [Stop, Stop, Stop]
        }
        OpCode::Not | OpCode::And | OpCode::Or | OpCode::Xor | OpCode::Shl | OpCode::Shr => {
            [Stop, Stop, Stop]
        }
    }
}

/// `b a^(b - 1)`; 0 where b is 0. Neither this nor its own derivative asks for `0 * 0^-1` there. No
/// logarithm, so that the base may be negative.
fn pow_base<'b>(a: Expr<'b>, b: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    let flat = b.eq(0.0);
    flat.select(g.like(0), g * (b * a.pow(flat.select(b.like(1), b) - 1.0)))
}

/// `a^b log(a)`; 0 where a is 0 and b is not negative: the limit from the right.
fn pow_exponent<'b>(a: Expr<'b>, b: Expr<'b>, y: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    a.eq(0.0).and(b.ge(0.0)).select(g.like(0), g * y * a.log())
}

/// The gradient goes to the winner; `loses(a, b)` is true where `a` is not the result. NaN operands
/// pass it on, as in PyTorch.
fn extremum<'b>(step: &Step<'b>, loses: impl Fn(Expr<'b>, Expr<'b>) -> Expr<'b>) -> [Slope<'b>; 3] {
    let Step { src: [a, b, _], kind, g, .. } = *step;
    let to = |own: Expr<'b>, other: Expr<'b>, kind: Operand| {
        let zero = g.like(0);
        match kind {
            Operand::Value => own.eq(other).select(g * 0.5, loses(own, other).select(zero, g)),
            Operand::Const => own.eq(other).or(loses(own, other)).select(zero, g),
            Operand::Param => loses(other, own).select(g, zero),
        }
    };
    two(to(a, b, kind[1]), to(b, a, kind[0]))
}
