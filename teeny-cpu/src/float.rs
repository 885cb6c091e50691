//! The float types that are computed with, f32 and f64, and their vectors.
//!
//! Independent of operations: products, convolutions, norms and scratch memory are generic over it.

use crate::simd::loops::Real;
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
    /// The same numbers, if they are f32: for algorithms that have only these.
    fn f32s(_: &[Self]) -> Option<&[f32]> {
        None
    }
}

impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    type Vector<V: F32s> = V;
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    fn f32s(x: &[f32]) -> Option<&[f32]> {
        Some(x)
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

/// A float type with functions of vectors: f32 or f64.
pub(crate) trait Number: Float + Real + PartialOrd {
    /// The same number.
    fn to_f64(self) -> f64;
}

impl Number for f32 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Number for f64 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
}

/// The vector of T at the level whose vector of f32 is V.
pub(crate) type Vector<T, V> = <T as Real>::Vector<V>;

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

/// Whether no element is infinite or NaN.
pub(crate) fn are_finite<T: Float>(level: Level, x: &[T]) -> bool {
    struct Products<'a, T>(&'a [T]);
    impl<T: Float> Work for Products<'_, T> {
        type Out = bool;
        #[inline(always)]
        fn run<V: F32s>(self) -> bool {
            // Zero times an infinity or NaN is NaN, and stays NaN.
            let zero = <T::Vector<V> as Lanes<T>>::splat(T::ZERO);
            let (mut sums, lanes) = ([zero; 4], <T::Vector<V> as Lanes<T>>::LANES);
            let (x, n) = (self.0.as_ptr(), self.0.len());
            let mut i = 0;
            // SAFETY: vectors are inside the slice.
            unsafe {
                while i + 4 * lanes <= n {
                    let mut k = 0;
                    while k < 4 {
                        let x = <T::Vector<V> as Lanes<T>>::load(x.add(i + k * lanes));
                        sums[k] = x.mul_add(zero, sums[k]);
                        k += 1;
                    }
                    i += 4 * lanes;
                }
                while i < n {
                    let count = if n - i < lanes { n - i } else { lanes };
                    let x = <T::Vector<V> as Lanes<T>>::load_part(x.add(i), count);
                    sums[0] = x.mul_add(zero, sums[0]);
                    i += lanes;
                }
            }
            sums[0].add(sums[1]).add(sums[2].add(sums[3])).total() == T::ZERO
        }
    }
    level.run(Products(x))
}

#[cfg(test)]
mod tests {
    use super::are_finite;
    use crate::simd::Level;

    #[test]
    fn one_number_that_is_not_finite_is_found_anywhere() {
        let level = Level::best();
        for n in [0, 1, 5, 64, 67, 200] {
            let mut x = vec![f32::MAX; n];
            assert!(are_finite(level, &x));
            for i in 0..n {
                for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    let before = std::mem::replace(&mut x[i], value);
                    assert!(!are_finite(level, &x), "{value} at {i} of {n}");
                    assert!(!are_finite(
                        level,
                        &x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()
                    ));
                    x[i] = before;
                }
            }
        }
    }
}
