//! The functions of softmax and its relatives, of vectors of f32 and f64, as types.
//!
//! Types and not closures: a closure may not be inlined, and outside the level's entry function
//! every intrinsic would be a call. Knows no loop: `softmax` runs them along rows, `softmax_columns`
//! across.

use crate::simd::loops::Quaternary;
use crate::simd::{F32s, F64s};

/// A function of x, of g or a first constant, and of two constants.
pub(super) trait Term: Quaternary {
    /// Whether it reads g, which has an element beside each of x.
    const READS_G: bool;
}

macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident($reads_g:literal)
        |$x:ident, $g:ident, $a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;
        impl Term for $name {
            const READS_G: bool = $reads_g;
        }
        impl Quaternary for $name {
            #[inline(always)]
            fn eval<V: F32s>($x: V, $g: V, $a: V, $b: V) -> V {
                #[allow(unused)]
                use crate::vecmath::exp;
                $body
            }
            #[inline(always)]
            fn eval64<V: F64s>($x: V, $g: V, $a: V, $b: V) -> V {
                #[allow(unused)]
                use crate::vecmath::double::exp;
                $body
            }
        }
    )*};
}

terms! {
    /// `exp(x - max)`
    ExpSubMax(false) |x, _c, max, _b| exp(x.sub(max));
    /// `x / sum`
    DivSum(false) |x, _c, sum, _b| x.div(sum);
    /// `x / sum`, rounded as a division, by the inverse of the sum and a correction by the
    /// remainder (Markstein 1990): a third of a division's time.
    DivSumByInverse(false) |x, _c, sum, inverse| if V::FUSED {
        let y = x.mul(inverse);
        y.xor_sign(V::splat(-0.0)).fma(sum, x).fma(inverse, y)
    } else {
        x.div(sum)
    };
    /// `x - max - log(sum)`, the logarithm as the sum of two numbers: rounded to one, it would shift
    /// a whole row by up to half a unit in its last place.
    SubMaxLog(false) |x, rest, max, log| x.sub(max).sub(rest).sub(log);
    /// `x g`
    MulGrad(true) |x, g, _a, _b| x.mul(g);
    /// `x (g - sum)`
    MulSubSum(true) |x, g, sum, _b| x.mul(g.sub(sum));
    /// `g`
    Grad(true) |_x, g, _a, _b| g;
    /// `g - exp(x) sum`
    SubExpMul(true) |x, g, sum, _b| g.sub(exp(x).mul(sum));
    /// The larger, or `a` if x is NaN.
    Max(false) |x, _c, a, _b| x.max(a);
}
