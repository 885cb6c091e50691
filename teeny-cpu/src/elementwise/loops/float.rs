//! The functions of float nodes: of vectors of f32 where there is one, otherwise of f64.
//!
//! Knows no loop. `float32` and `float64` run these functions over tiles, `blocks` over groups of
//! nodes.

use crate::simd::F32s;
use crate::simd::loops::{Binary, Unary};
use crate::vecmath;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use teeny_core::kernel::OpCode;
use teeny_core::kernel::eval::{erf, floor_div, remainder};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(in crate::elementwise) struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn eval<V: F32s>($x: V) -> V { $body }
        }
    )*};
}

unary! {
    Neg |x| x.xor_sign(V::splat(-0.0));
    Abs |x| x.abs();
    Sign |x| {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        V::select(zero.lt(x), one, V::select(x.lt(zero), V::splat(-1.0), x))
    };
    Recip |x| V::splat(1.0).div(x);
    Sqrt |x| x.sqrt();
    Rsqrt |x| V::splat(1.0).div(x.sqrt());
    Floor |x| x.floor();
    Ceil |x| V::xor_sign(x.xor_sign(V::splat(-0.0)).floor(), V::splat(-0.0));
    Round |x| x.round();
    Trunc |x| {
        let minus = V::splat(-0.0);
        V::select(x.lt(V::splat(0.0)), x.xor_sign(minus).floor().xor_sign(minus), x.floor())
    };
}

// The operations of core's definitions in their order, so that no bit of a result depends on
// whether a kernel's pattern was found.
unary! {
    /// `x / 2 (erf(x / √2) + 1)`
    Gelu |x| x.mul(V::splat(0.5)).mul(vecmath::erf(x.mul(V::splat(FRAC_1_SQRT_2 as f32))).add(V::splat(1.0)));
    /// `x / 2 (tanh(√(2/π) (x + 0.044715 x³)) + 1)`
    GeluTanh |x| {
        let inner = x.add(x.mul(x).mul(x).mul(V::splat(0.044715))).mul(V::splat((FRAC_2_SQRT_PI * FRAC_1_SQRT_2) as f32));
        x.mul(V::splat(0.5)).mul(vecmath::tanh(inner).add(V::splat(1.0)))
    };
    /// `1 / (exp(-x) + 1)`
    Sigmoid |x| V::splat(1.0).div(vecmath::exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
    /// `x / (exp(-x) + 1)`
    Silu |x| x.div(vecmath::exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
}

macro_rules! binary {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(in crate::elementwise) struct $name;
        impl Binary for $name {
            #[inline(always)]
            fn eval<V: F32s>($a: V, $b: V) -> V { $body }
        }
    )*};
}

binary! {
    Add |a, b| a.add(b);
    Sub |a, b| a.sub(b);
    Mul |a, b| a.mul(b);
    Div |a, b| a.div(b);
    // The vector's max returns the second operand if either is NaN; a NaN in the first has to be
    // put back.
    Max |a, b| V::select(a.eq(a), a.max(b), a);
    Min |a, b| V::select(a.eq(a), a.min(b), a);
}

/// The function of f64 of a unary node, for nodes of f64 and for those of f32 without a loop over
/// vectors.
#[inline]
pub(super) fn function(op: OpCode) -> Option<fn(f64) -> f64> {
    use OpCode as O;
    Some(match op {
        O::Exp => f64::exp,
        O::Exp2 => f64::exp2,
        O::Expm1 => f64::exp_m1,
        O::Log => f64::ln,
        O::Log2 => f64::log2,
        O::Log1p => f64::ln_1p,
        O::Sin => f64::sin,
        O::Cos => f64::cos,
        O::Tan => f64::tan,
        O::Atan => f64::atan,
        O::Tanh => f64::tanh,
        O::Erf => erf,
        O::Neg
        | O::Abs
        | O::Sign
        | O::Recip
        | O::Sqrt
        | O::Rsqrt
        | O::Floor
        | O::Ceil
        | O::Round
        | O::Trunc
        | O::Not
        | O::IsNan => return None,
        O::Add | O::Sub | O::Mul | O::Div | O::Pow | O::Max | O::Min | O::Rem | O::FloorDiv => {
            return None;
        }
        O::CmpLt | O::CmpLe | O::CmpEq | O::CmpNe | O::And | O::Or | O::Xor | O::Shl | O::Shr => {
            return None;
        }
        O::Input(_) | O::Param(_) | O::Const(_) | O::Cast | O::Where => return None,
    })
}

/// [`function`] of two operands.
#[inline]
pub(super) fn function_of_two(op: OpCode) -> Option<fn(f64, f64) -> f64> {
    use OpCode as O;
    Some(match op {
        O::Pow => f64::powf,
        O::Rem => remainder,
        O::FloorDiv => floor_div,
        O::Add | O::Sub | O::Mul | O::Div | O::Max | O::Min => return None,
        O::CmpLt | O::CmpLe | O::CmpEq | O::CmpNe | O::And | O::Or | O::Xor | O::Shl | O::Shr => {
            return None;
        }
        O::Neg
        | O::Abs
        | O::Sign
        | O::Recip
        | O::Sqrt
        | O::Rsqrt
        | O::Floor
        | O::Ceil
        | O::Round
        | O::Trunc
        | O::Not
        | O::IsNan => return None,
        O::Exp
        | O::Exp2
        | O::Expm1
        | O::Log
        | O::Log2
        | O::Log1p
        | O::Sin
        | O::Cos
        | O::Tan
        | O::Atan
        | O::Tanh
        | O::Erf => return None,
        O::Input(_) | O::Param(_) | O::Const(_) | O::Cast | O::Where => return None,
    })
}
