//! The two loops of float kernels, `y = f(x)` and `y = f(a, b)`, over slices of f32 or f64.
//!
//! The naive form is `for i in 0..n { y[i] = f(a[i], b[i]) }`. Here two vectors are computed per
//! iteration, the tail is masked, and stores may bypass the caches. `f` is a type, so that it is
//! inlined. Next: `vecmath`, `elementwise`.

#[cfg(test)]
use super::Level;
use super::{F32s, F64s, Lanes, Work};
use std::marker::PhantomData;

/// A function of one lane, of either float type.
pub(crate) trait Unary {
    /// True if the function is so long that loops name it once: each use is compiled again.
    const LONG: bool = false;
    /// The function of f32.
    fn eval<V: F32s>(x: V) -> V;
    /// The function of f64.
    fn eval64<D: F64s>(x: D) -> D;
}

/// Declares functions of one lane that have one formula for both float types.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident |$x:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn eval<V: F32s>($x: V) -> V { $body }
            #[inline(always)]
            fn eval64<V: F64s>($x: V) -> V { $body }
        }
    )*};
}
pub(crate) use unary;

/// A function of two lanes, of either float type.
pub(crate) trait Binary {
    /// As [`Unary::LONG`].
    const LONG: bool = false;
    /// The function of f32.
    fn eval<V: F32s>(a: V, b: V) -> V;
    /// The function of f64.
    fn eval64<D: F64s>(a: D, b: D) -> D;
}

/// A function of four lanes, of either float type: `if u op v { a } else { b }`, or a function of
/// two operands and two constants.
pub(crate) trait Quaternary {
    /// The function of f32.
    fn eval<V: F32s>(u: V, v: V, a: V, b: V) -> V;
    /// The function of f64.
    fn eval64<D: F64s>(u: D, v: D, a: D, b: D) -> D;
}

/// A float type with vectors that functions are computed on.
pub(crate) trait Real: Copy + Default + PartialEq + std::fmt::Debug + 'static {
    /// Its vector at the level whose vector of f32 is `V`.
    type Vector<V: F32s>: Lanes<Self>;
    /// A number from the first bytes of eight.
    fn from_bytes(bytes: [u8; 8]) -> Self;
    /// The bytes, then zeros.
    fn to_bytes(self) -> [u8; 8];
    /// A vector from one of f32: its lower half, if this type has fewer lanes.
    fn from_f32s<V: F32s>(x: V) -> Self::Vector<V>;
    /// The reverse of `from_f32s`, rounded.
    fn to_f32s<V: F32s>(x: Self::Vector<V>) -> V;
    /// `F` of a vector.
    fn unary<F: Unary, V: F32s>(x: Self::Vector<V>) -> Self::Vector<V>;
    /// `F` of two vectors.
    fn binary<F: Binary, V: F32s>(a: Self::Vector<V>, b: Self::Vector<V>) -> Self::Vector<V>;
    /// `F` of four vectors.
    fn quaternary<F: Quaternary, V: F32s>(x: [Self::Vector<V>; 4]) -> Self::Vector<V>;
    /// The largest of all lanes, none of which is NaN.
    fn largest<V: F32s>(x: Self::Vector<V>) -> Self;
    /// The first `n <= LANES` lanes; the others are 0.
    fn part<V: F32s>(x: Self::Vector<V>, n: usize) -> Self::Vector<V>;
}

macro_rules! real {
    ($($T:ty, $bytes:literal, $eval:ident, |$V:ident| $vector:ty,
        |$x:ident| $from:expr, $to:expr, $largest:expr, |$n:ident| $part:expr;)*) => {$(
        impl Real for $T {
            type Vector<$V: F32s> = $vector;
            #[inline(always)]
            fn from_bytes(bytes: [u8; 8]) -> Self {
                let mut own = [0; $bytes];
                own.copy_from_slice(&bytes[..$bytes]);
                <$T>::from_ne_bytes(own)
            }
            #[inline(always)]
            fn to_bytes(self) -> [u8; 8] {
                let mut bytes = [0; 8];
                bytes[..$bytes].copy_from_slice(&self.to_ne_bytes());
                bytes
            }
            #[inline(always)]
            fn from_f32s<$V: F32s>($x: $V) -> $vector {
                $from
            }
            #[inline(always)]
            fn to_f32s<$V: F32s>($x: $vector) -> $V {
                $to
            }
            #[cfg_attr(not(unoptimized), inline(always))]
            fn unary<F: Unary, $V: F32s>(x: $vector) -> $vector {
                F::$eval(x)
            }
            #[cfg_attr(not(unoptimized), inline(always))]
            fn binary<F: Binary, $V: F32s>(a: $vector, b: $vector) -> $vector {
                F::$eval(a, b)
            }
            #[cfg_attr(not(unoptimized), inline(always))]
            fn quaternary<F: Quaternary, $V: F32s>([u, v, a, b]: [$vector; 4]) -> $vector {
                F::$eval(u, v, a, b)
            }
            #[inline(always)]
            fn largest<$V: F32s>($x: $vector) -> $T {
                $largest
            }
            #[inline(always)]
            fn part<$V: F32s>($x: $vector, $n: usize) -> $vector {
                $part
            }
        }
    )*};
}

real! {
    f32, 4, eval, |V| V, |x| x, x, V::largest(x), |n| V::part(x, n);
    f64, 8, eval64, |V| V::F64s, |x| x.widen().0, V::narrow(x, x), {
        let mut lanes = [f64::NEG_INFINITY; WIDEST];
        // SAFETY: the array has the lanes of the widest vector.
        unsafe { x.store(lanes.as_mut_ptr()) };
        for width in [4, 2, 1] {
            for i in 0..width {
                lanes[i] = if lanes[i + width] > lanes[i] { lanes[i + width] } else { lanes[i] };
            }
        }
        lanes[0]
    }, |n| {
        let mut lanes = [0.0; WIDEST];
        // SAFETY: the array has the lanes of the widest vector.
        unsafe {
            x.store_part(lanes.as_mut_ptr(), n);
            V::F64s::load(lanes.as_ptr())
        }
    };
}

/// An operand of a loop: as many values as the output, or one for all of them.
#[derive(Clone, Copy)]
pub(crate) enum Operand<T = f32> {
    /// One value per output.
    Slice(*const T),
    /// The same value for each output.
    Splat(T),
}

// SAFETY: only reads, from storages that are borrowed for as long as it lives.
unsafe impl<T> Sync for Operand<T> {}

/// The widest vector of f32.
const WIDEST: usize = 16;

/// One value for each lane of the widest vector of f32, aligned to a cache line.
#[repr(align(64))]
pub(crate) struct SplatLanes<T>([T; WIDEST]);

impl<T: Real> SplatLanes<T> {
    /// All lanes zero, before a value is written.
    #[inline(always)]
    pub(crate) fn empty() -> SplatLanes<T> {
        SplatLanes([T::default(); WIDEST])
    }
}

impl<T: Real> Operand<T> {
    /// The address that a loop reads, and the step for each element: one value is repeated in
    /// `lanes`, with a step of 0.
    #[inline(always)]
    pub(crate) fn place(self, lanes: &mut SplatLanes<T>) -> (*const T, usize) {
        match self {
            Operand::Slice(p) => (p, 1),
            Operand::Splat(x) => {
                lanes.0 = [x; WIDEST];
                (lanes.0.as_ptr(), 0)
            }
        }
    }
}

/// `y[i] = f(x[i])` for `n` values, as a loop of any level.
pub(crate) struct Map1<F, T = f32> {
    x: *const T,
    y: *mut T,
    n: usize,
    stream: bool,
    f: PhantomData<F>,
}

impl<F, T> Map1<F, T> {
    /// The loop.
    ///
    /// # Safety
    /// As [`map1`], until it has run.
    #[inline(always)]
    pub(crate) unsafe fn new(x: *const T, y: *mut T, n: usize, stream: bool) -> Map1<F, T> {
        Map1 { x, y, n, stream, f: PhantomData }
    }
}

impl<F: Unary, T: Real> Work for Map1<F, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Map1 { x, y, n, .. } = self;
        let (stream, ahead) = streamed::<V, T>(y, n, self.stream);
        let (lanes, native) = (T::Vector::<V>::LANES, V::NATIVE);
        let mut i = 0;
        // SAFETY: `new` was promised n readable values at x and n writable ones at y, equal or
        // apart; every access below is inside them. Streamed stores start at a 64-byte boundary and
        // advance by whole vectors.
        unsafe {
            if F::LONG {
                for end in [ahead, n] {
                    let streams = stream && end == n;
                    // Two at once, so that one computes while the other waits.
                    while native && !streams && size_of::<T>() == 4 && i + 2 * lanes <= end {
                        let a = T::unary::<F, V>(T::Vector::<V>::load(x.add(i)));
                        let b = T::unary::<F, V>(T::Vector::<V>::load(x.add(i + lanes)));
                        a.store(y.add(i));
                        b.store(y.add(i + lanes));
                        i += 2 * lanes;
                    }
                    while i < end {
                        let count = lanes.min(end - i);
                        let v = if count == lanes {
                            T::Vector::<V>::load(x.add(i))
                        } else {
                            T::Vector::<V>::load_part(x.add(i), count)
                        };
                        let v = T::unary::<F, V>(v);
                        match (count == lanes, streams) {
                            (true, true) => v.stream(y.add(i)),
                            (true, false) => v.store(y.add(i)),
                            (false, _) => v.store_part(y.add(i), count),
                        }
                        i += count;
                    }
                }
                return;
            }
            // First the elements before the first cache line that is streamed, then the rest. Each
            // place that names `F` compiles it once more.
            for end in [ahead, n] {
                while stream && end == n && i + lanes <= n {
                    T::unary::<F, V>(T::Vector::<V>::load(x.add(i))).stream(y.add(i));
                    i += lanes;
                }
                while native && i + 2 * lanes <= end {
                    let a = T::unary::<F, V>(T::Vector::<V>::load(x.add(i)));
                    let b = T::unary::<F, V>(T::Vector::<V>::load(x.add(i + lanes)));
                    a.store(y.add(i));
                    b.store(y.add(i + lanes));
                    i += 2 * lanes;
                }
                while !native && i + lanes <= end {
                    T::unary::<F, V>(T::Vector::<V>::load(x.add(i))).store(y.add(i));
                    i += lanes;
                }
                while i < end {
                    let count = lanes.min(end - i);
                    T::unary::<F, V>(T::Vector::<V>::load_part(x.add(i), count))
                        .store_part(y.add(i), count);
                    i += count;
                }
            }
        }
    }
}

/// Whether `n` values at `y` are stored past the caches, and how many are before the first cache
/// line that is.
#[inline(always)]
fn streamed<V: F32s, T>(y: *mut T, n: usize, wished: bool) -> (bool, usize) {
    let stream = V::NATIVE && wished && n >= 2 * WIDEST;
    (stream, if stream { ((64 - y as usize % 64) % 64 / size_of::<T>()).min(n) } else { 0 })
}

/// `y[i] = f(x[i])` for `n` values.
///
/// # Safety
/// `x` is readable and `y` writable for `n` values; the ranges are the same or do not overlap.
#[cfg(test)]
pub(crate) unsafe fn map1<F: Unary, T: Real>(
    level: Level,
    x: *const T,
    y: *mut T,
    n: usize,
    stream: bool,
) {
    // SAFETY: by contract.
    level.run(unsafe { Map1::<F, T>::new(x, y, n, stream) });
}

/// `y[i] = f(a[i], b[i])` for `n` values, as a loop of any level.
pub(crate) struct Map2<F, T = f32> {
    a: Operand<T>,
    b: Operand<T>,
    y: *mut T,
    n: usize,
    stream: bool,
    f: PhantomData<F>,
}

impl<F, T> Map2<F, T> {
    /// The loop.
    ///
    /// # Safety
    /// Until it has run, slices are readable and `y` is writable for `n` values, and `y` is the
    /// same range as a slice or does not overlap it.
    #[inline(always)]
    pub(crate) unsafe fn new(
        a: Operand<T>,
        b: Operand<T>,
        y: *mut T,
        n: usize,
        stream: bool,
    ) -> Map2<F, T> {
        Map2 { a, b, y, n, stream, f: PhantomData }
    }
}

impl<F: Binary, T: Real> Work for Map2<F, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Map2 { a, b, y, n, .. } = self;
        let (stream, ahead) = streamed::<V, T>(y, n, self.stream);
        let (lanes, native) = (T::Vector::<V>::LANES, V::NATIVE);
        let mut i = 0;
        // SAFETY: as in `Map1`; a repeated value is one widest vector.
        unsafe {
            // Macros, as closures need not be inlined.
            macro_rules! load {
                ($p:expr) => {
                    T::Vector::<V>::load($p)
                };
            }
            if F::LONG {
                let (mut a_lanes, mut b_lanes) = (SplatLanes::empty(), SplatLanes::empty());
                let ((a, a_step), (b, b_step)) = (a.place(&mut a_lanes), b.place(&mut b_lanes));
                while i < n {
                    let end = if i < ahead { ahead } else { n };
                    let count = lanes.min(end - i);
                    let (p, q) = (a.add(i * a_step), b.add(i * b_step));
                    let (u, v) = if count == lanes {
                        (load!(p), load!(q))
                    } else {
                        (T::Vector::<V>::load_part(p, count), T::Vector::<V>::load_part(q, count))
                    };
                    let v = T::binary::<F, V>(u, v);
                    match (count == lanes, stream && i >= ahead) {
                        (true, true) => v.stream(y.add(i)),
                        (true, false) => v.store(y.add(i)),
                        (false, _) => v.store_part(y.add(i), count),
                    }
                    i += count;
                }
                return;
            }
            // The most frequent operands of a block, without multiplications of the index.
            match (a, b) {
                (Operand::Slice(a), Operand::Slice(b)) if native && !stream => {
                    while i + 2 * lanes <= n {
                        let p = T::binary::<F, V>(load!(a.add(i)), load!(b.add(i)));
                        let q = T::binary::<F, V>(load!(a.add(i + lanes)), load!(b.add(i + lanes)));
                        p.store(y.add(i));
                        q.store(y.add(i + lanes));
                        i += 2 * lanes;
                    }
                }
                (Operand::Slice(a), Operand::Splat(b)) if native && !stream => {
                    let b = T::Vector::<V>::splat(b);
                    while i + 2 * lanes <= n {
                        let p = T::binary::<F, V>(load!(a.add(i)), b);
                        let q = T::binary::<F, V>(load!(a.add(i + lanes)), b);
                        p.store(y.add(i));
                        q.store(y.add(i + lanes));
                        i += 2 * lanes;
                    }
                }
                _ => {}
            }
            if i == n {
                return;
            }
            // One loop for all kinds of operands: a repeated value is a vector in L1 whose pointer
            // does not move.
            let (mut a_lanes, mut b_lanes) = (SplatLanes::empty(), SplatLanes::empty());
            let ((a, a_step), (b, b_step)) = (a.place(&mut a_lanes), b.place(&mut b_lanes));
            macro_rules! at {
                ($i:expr) => {
                    T::binary::<F, V>(load!(a.add($i * a_step)), load!(b.add($i * b_step)))
                };
            }
            for end in [ahead, n] {
                while stream && end == n && i + lanes <= n {
                    at!(i).stream(y.add(i));
                    i += lanes;
                }
                while native && i + 2 * lanes <= end {
                    let (p, q) = (at!(i), at!(i + lanes));
                    p.store(y.add(i));
                    q.store(y.add(i + lanes));
                    i += 2 * lanes;
                }
                while !native && i + lanes <= end {
                    at!(i).store(y.add(i));
                    i += lanes;
                }
                while i < end {
                    let count = lanes.min(end - i);
                    T::binary::<F, V>(
                        T::Vector::<V>::load_part(a.add(i * a_step), count),
                        T::Vector::<V>::load_part(b.add(i * b_step), count),
                    )
                    .store_part(y.add(i), count);
                    i += count;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sub;
    impl Binary for Sub {
        #[inline(always)]
        fn eval<V: F32s>(a: V, b: V) -> V {
            a.sub(b)
        }
        #[inline(always)]
        fn eval64<D: F64s>(a: D, b: D) -> D {
            a.sub(b)
        }
    }
    struct Floor;
    impl Unary for Floor {
        #[inline(always)]
        fn eval<V: F32s>(x: V) -> V {
            x.floor()
        }
        #[inline(always)]
        fn eval64<D: F64s>(x: D) -> D {
            x.floor()
        }
    }

    #[test]
    fn every_size_and_offset_at_every_level() {
        every_size::<f32>(|x| x as f32, |x| x);
        every_size::<f64>(|x| x, |x| x as f32);
    }

    fn every_size<T: Real + std::ops::Sub<Output = T>>(make: fn(f64) -> T, low: fn(T) -> f32) {
        let x: Vec<T> = (0..300).map(|i| make(f64::from(i) * 1.25 - 99.5)).collect();
        for level in Level::available() {
            for n in (0..=70).chain([127, 128, 129, 255, 256, 257]) {
                for offset in 0..16 {
                    for stream in [false, true] {
                        let mut y = [make(7.0); 300];
                        let (px, py) = (x[offset..].as_ptr(), y[16 - offset..].as_mut_ptr());
                        // SAFETY: both have 300 values, n + 16 are used.
                        unsafe { map1::<Floor, T>(level, px, py, n, stream) };
                        assert!(
                            (0..n).all(|i| low(y[16 - offset + i]) == low(x[offset + i]).floor())
                        );
                        assert_eq!(y[16 - offset + n], make(7.0), "wrote past the end");
                        let mut check =
                            |a: Operand<T>, b: Operand<T>, want: &dyn Fn(usize) -> T| {
                                let py = y[16 - offset..].as_mut_ptr();
                                // SAFETY: as above.
                                level.run(unsafe { Map2::<Sub, T>::new(a, b, py, n, stream) });
                                assert!(
                                    (0..n).all(|i| y[16 - offset + i] == want(i)),
                                    "{level:?} {n} {offset} {stream}"
                                );
                                assert_eq!(y[16 - offset + n], make(7.0), "wrote past the end");
                            };
                        check(Operand::Slice(px), Operand::Slice(x.as_ptr()), &|i| {
                            x[offset + i] - x[i]
                        });
                        check(Operand::Slice(px), Operand::Splat(make(3.0)), &|i| {
                            x[offset + i] - make(3.0)
                        });
                        check(Operand::Splat(make(3.0)), Operand::Slice(px), &|i| {
                            make(3.0) - x[offset + i]
                        });
                        check(Operand::Splat(make(3.0)), Operand::Splat(make(1.0)), &|_| make(2.0));
                    }
                }
            }
        }
    }
}
