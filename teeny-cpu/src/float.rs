//! The float types that are computed with, f32 and f64, and their vectors.
//!
//! Knows no operation: products, convolutions, norms and scratch memory are generic over it.

use crate::simd::{F32s, Lanes, Level, Work};

/// A float type that can be multiplied. Public only because `blas::BlasFloat` builds on it; this
/// module is private.
pub trait Float:
    Copy
    + Default
    + PartialEq
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::AddAssign
    + Send
    + Sync
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// The vector of this type at the level whose vector of f32 is `V`.
    type Vector<V: F32s>: Lanes<Self>;
    /// The nearest number.
    fn from_f64(x: f64) -> Self;
}

impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    type Vector<V: F32s> = V;
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl Float for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    type Vector<V: F32s> = V::F64s;
    fn from_f64(x: f64) -> f64 {
        x
    }
}

/// Lanes of a vector of `level`.
pub(crate) fn lanes<T: Float>(level: Level) -> usize {
    struct Count<T>(std::marker::PhantomData<T>);
    impl<T: Float> Work for Count<T> {
        type Out = usize;
        #[inline(always)]
        fn run<V: F32s>(self) -> usize {
            <T::Vector<V> as Lanes<T>>::LANES
        }
    }
    level.run(Count::<T>(std::marker::PhantomData))
}
