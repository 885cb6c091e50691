//! The last step of a row of attention: the accumulator times a factor, in the type of the result.

use crate::float::Float;
use crate::simd::{F32s, Half, Lanes, Work};
use std::marker::PhantomData;

/// `to[c] = factor acc[c]`.
pub(super) struct Finish<'a, T, E> {
    pub acc: &'a [T],
    pub factor: T,
    /// As many values are writable.
    pub to: *mut E,
}

impl<T: Float> Work for Finish<'_, T, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let (n, mut i, factor) =
            (self.acc.len(), 0, <T::Vector<V> as Lanes<T>>::splat(self.factor));
        // SAFETY: by contract of the constructor.
        unsafe {
            while i < n {
                let part = T::Vector::<V>::LANES.min(n - i);
                let x = T::Vector::<V>::load_part(self.acc.as_ptr().add(i), part);
                x.mul(factor).store_part(self.to.add(i), part);
                i += part;
            }
        }
    }
}

/// [`Finish`] that rounds to a 16-bit type.
pub(super) struct FinishHalf<'a, H>(pub Finish<'a, f32, u16>, pub PhantomData<H>);

impl<H: Half> Work for FinishHalf<'_, H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Finish { acc, factor, to } = self.0;
        let (n, mut i, factor) = (acc.len(), 0, V::splat(factor));
        // SAFETY: as above.
        unsafe {
            while i + V::LANES <= n {
                V::load(acc.as_ptr().add(i)).mul(factor).store_half::<H>(to.add(i));
                i += V::LANES;
            }
            if i < n {
                let mut last = [0u16; 16];
                let x = V::load_part(acc.as_ptr().add(i), n - i).mul(factor);
                x.store_half::<H>(last.as_mut_ptr());
                std::ptr::copy_nonoverlapping(last.as_ptr(), to.add(i), n - i);
            }
        }
    }
}
