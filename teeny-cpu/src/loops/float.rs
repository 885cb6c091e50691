//! The functions of vectors of f32 and f64.
//!
//! Independent of loops. `blocks` runs these functions over tiles and over groups of nodes.

use crate::simd::loops::{Binary, Unary, unary};
use crate::simd::{F32s, F64s, Half};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use teeny_core::{bf16, f16};

unary! {
    Neg |x| x.xor_sign(V::splat(-0.0));
    Abs |x| x.abs();
    Sign |x| {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        V::select(zero.lt(x), one, V::select(x.lt(zero), V::splat(-1.0), x))
    };
    Recip |x| V::splat(1.0).div(x);
    Sqrt |x| x.sqrt();
    Rsqrt |x| x.rsqrt();
    Floor |x| x.floor();
    Ceil |x| V::xor_sign(x.xor_sign(V::splat(-0.0)).floor(), V::splat(-0.0));
    Round |x| x.round();
    Trunc |x| {
        let minus = V::splat(-0.0);
        V::select(x.lt(V::splat(0.0)), x.xor_sign(minus).floor().xor_sign(minus), x.floor())
    };
}

unary! {
    /// The value itself: a cast that loses nothing.
    Copy |x| x;
}

/// Rounding to a 16-bit type.
pub(crate) struct RoundTo<H>(std::marker::PhantomData<H>);

pub(crate) type RoundToBf16 = RoundTo<bf16>;
pub(crate) type RoundToF16 = RoundTo<f16>;

impl<H: Half> Unary for RoundTo<H> {
    #[inline(always)]
    fn eval<V: F32s>(x: V) -> V {
        let mut bits = [0u16; 16];
        // SAFETY: no vector has more than sixteen lanes.
        unsafe {
            x.store_half::<H>(bits.as_mut_ptr());
            V::load_half::<H>(bits.as_ptr())
        }
    }
    #[inline(always)]
    fn eval64<D: F64s>(_: D) -> D {
        unreachable!("16-bit floats are computed in f32")
    }
}

macro_rules! composed {
    ($($(#[$doc:meta])* $name:ident |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Unary for $name {
            const LONG: bool = true;
            #[inline(always)]
            fn eval<V: F32s>($x: V) -> V {
                #[allow(unused)]
                use crate::vecmath::{erf, exp, tanh};
                $body
            }
            #[inline(always)]
            fn eval64<V: F64s>($x: V) -> V {
                #[allow(unused)]
                use crate::vecmath::double::{erf, exp, tanh};
                $body
            }
        }
    )*};
}

// The operations of core's definitions in their order, so that no bit of a result depends on
// whether a kernel's pattern was found.
composed! {
    /// `x / 2 (erf(x / √2) + 1)`
    Gelu |x| x.mul(V::splat(0.5)).mul(erf(x.mul(V::splat(FRAC_1_SQRT_2 as _))).add(V::splat(1.0)));
    /// `(erf(x / √2) + 1) / 2 + x exp(-x² / 2) / √(2π)`
    GeluGrad |x| {
        let share = erf(x.mul(V::splat(FRAC_1_SQRT_2 as _))).add(V::splat(1.0)).mul(V::splat(0.5));
        let density = V::splat((FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5) as _);
        share.add(x.mul(exp(x.mul(x).mul(V::splat(-0.5)))).mul(density))
    };
    /// `x / 2 (tanh(√(2/π) (x + 0.044715 x³)) + 1)`
    GeluTanh |x| {
        let inner = x.add(x.mul(x).mul(x).mul(V::splat(0.044715))).mul(V::splat((FRAC_2_SQRT_PI * FRAC_1_SQRT_2) as _));
        x.mul(V::splat(0.5)).mul(tanh(inner).add(V::splat(1.0)))
    };
    /// `(t + 1) / 2 + x / 2 (1 - t²) (3 · 0.044715 x² + 1) √(2/π)` with the tanh above for `t`
    GeluTanhGrad |x| {
        const SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
        let square = x.mul(x);
        let t = tanh(x.add(square.mul(x).mul(V::splat(0.044715))).mul(V::splat(SCALE as _)));
        let slope = square.mul(V::splat((3.0 * 0.044715 * SCALE) as _)).add(V::splat(SCALE as _));
        let flat = V::splat(1.0).sub(t.mul(t));
        let share = t.add(V::splat(1.0)).mul(V::splat(0.5));
        share.add(x.mul(V::splat(0.5)).mul(flat).mul(slope))
    };
    /// `1 / (exp(-x) + 1)`
    Sigmoid |x| V::splat(1.0).div(exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
    /// `x / (exp(-x) + 1)`
    Silu |x| x.div(exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
    /// `s (x (1 - s) + 1)` with the sigmoid for `s`
    SiluGrad |x| {
        let s = V::splat(1.0).div(exp(x.xor_sign(V::splat(-0.0))).add(V::splat(1.0)));
        s.mul(x.mul(V::splat(1.0).sub(s)).add(V::splat(1.0)))
    };
}

macro_rules! binary {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        pub(crate) struct $name;
        impl Binary for $name {
            #[inline(always)]
            fn eval<V: F32s>($a: V, $b: V) -> V { $body }
            #[inline(always)]
            fn eval64<V: F64s>($a: V, $b: V) -> V { $body }
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
