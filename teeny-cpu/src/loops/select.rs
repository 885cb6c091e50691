//! Loops of `where`: a choice by a bool, or by a comparison that is made in the same loop.
//!
//! The naive form is `y[i] = if c[i] { a[i] } else { b[i] }`. Values of any dtype are moved as
//! bits. A comparison of f32 that only the `where` reads is computed in the same loop, so that no
//! bools are stored.

use crate::simd::loops::{Operand, Quaternary, Real, SplatLanes};
use crate::simd::{F32s, F64s, Lanes, Level, Work};
use crate::typed::{slice, slice_mut, with_unsigned};

/// `y[i] = if c[i] { a[i] } else { b[i] }` for values of `size` bytes, moved as bits.
///
/// # Safety
/// `a`, `b` and `y` have n values and `c` has n bools; `y` overlaps none of them.
pub(crate) unsafe fn select(
    level: Level,
    size: usize,
    [c, a, b]: [*const u8; 3],
    y: *mut u8,
    n: usize,
) {
    // SAFETY: by contract.
    unsafe {
        let c = slice(c, n);
        with_unsigned!(size, T => {
            level.run(Select { c, a: slice::<T>(a, n), b: slice(b, n), y: slice_mut(y, n) });
        });
    }
}

/// See [`select`].
struct Select<'a, T> {
    c: &'a [u8],
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [T],
}

impl<T: Copy> Work for Select<'_, T> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Select { c, a, b, y } = self;
        let n = y.len();
        let (c, a, b) = (&c[..n], &a[..n], &b[..n]);
        for i in 0..n {
            y[i] = if c[i] != 0 { a[i] } else { b[i] };
        }
    }
}

/// `y[i] = if u[i] op v[i] { a[i] } else { b[i] }` of floats, where `C` is the comparison.
#[inline(always)]
pub(crate) fn select_by<V: F32s, T: Real, C: Quaternary>(
    from: [Operand<T>; 4],
    y: *mut T,
    n: usize,
) {
    let [u, v, a, b] = from;
    let (mut u_lanes, mut v_lanes, mut a_lanes, mut b_lanes) =
        (SplatLanes::empty(), SplatLanes::empty(), SplatLanes::empty(), SplatLanes::empty());
    let (u, v) = (u.place(&mut u_lanes), v.place(&mut v_lanes));
    let (a, b) = (a.place(&mut a_lanes), b.place(&mut b_lanes));
    let lanes = T::Vector::<V>::LANES;
    // SAFETY: the caller promises n elements of slices and of `y`; a number is repeated in one
    // widest vector, which is read without moving.
    unsafe {
        let mut i = 0;
        macro_rules! all {
            ($p:expr) => {
                T::Vector::<V>::load($p.0.add(i * $p.1))
            };
        }
        macro_rules! part {
            ($p:expr, $n:expr) => {
                T::Vector::<V>::load_part($p.0.add(i * $p.1), $n)
            };
        }
        while i + lanes <= n {
            T::quaternary::<C, V>([all!(u), all!(v), all!(a), all!(b)]).store(y.add(i));
            i += lanes;
        }
        if i < n {
            let n = n - i;
            T::quaternary::<C, V>([part!(u, n), part!(v, n), part!(a, n), part!(b, n)])
                .store_part(y.add(i), n);
        }
    }
}

macro_rules! conditions {
    ($($name:ident |$u:ident, $v:ident, $a:ident, $b:ident| $value:expr;)*) => {$(
        pub(crate) struct $name;
        impl Quaternary for $name {
            #[inline(always)]
            fn eval<V: F32s>($u: V, $v: V, $a: V, $b: V) -> V { $value }
            #[inline(always)]
            fn eval64<V: F64s>($u: V, $v: V, $a: V, $b: V) -> V { $value }
        }
    )*};
}

conditions! {
    SelectLt |u, v, a, b| V::select(u.lt(v), a, b);
    SelectLe |u, v, a, b| V::select(u.lt(v), a, V::select(u.eq(v), a, b));
    SelectEq |u, v, a, b| V::select(u.eq(v), a, b);
    SelectNe |u, v, a, b| V::select(u.eq(v), b, a);
}
