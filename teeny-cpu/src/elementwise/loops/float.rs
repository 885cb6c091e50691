//! The functions of vectors of f32.
//!
//! Knows no loop. `float32` and `float64` run these functions over tiles, `blocks` over groups of
//! nodes.

use crate::simd::F32s;
use crate::simd::loops::{Binary, Unary};
use crate::vecmath;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

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
