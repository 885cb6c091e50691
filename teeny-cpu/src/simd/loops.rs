//! The two loops that every f32 kernel is made of: `y = f(x)` and `y = f(a, b)`, over slices, with whole vectors, a masked
//! tail and optional non-temporal stores. Which `f` is a type, so that it inlines. Next: `vecmath`, `elementwise`.

use super::{F32s, Level, Work};
use std::marker::PhantomData;

/// A function of one lane.
pub(crate) trait Unary {
    /// The function.
    fn eval<V: F32s>(x: V) -> V;
}

/// A function of two lanes.
pub(crate) trait Binary {
    /// The function.
    fn eval<V: F32s>(a: V, b: V) -> V;
}

/// An operand of a loop: as many values as the output, or one for all of them.
#[derive(Clone, Copy)]
pub(crate) enum Operand {
    /// One value per output.
    Slice(*const f32),
    /// The same value for each output.
    Splat(f32),
}

/// The widest vector.
const WIDEST: usize = 16;

struct Map1<F> {
    x: *const f32,
    y: *mut f32,
    n: usize,
    stream: bool,
    f: PhantomData<F>,
}

impl<F: Unary> Work for Map1<F> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Map1 { x, y, n, .. } = self;
        // SAFETY: `map1` promises n readable values at x and n writable ones at y, equal or apart; every access below is
        // inside them. Streamed stores start at a 64-byte boundary and advance by whole vectors.
        unsafe {
            let mut i = 0;
            let part = |i: usize, count: usize| F::eval(V::load_part(x.add(i), count)).store_part(y.add(i), count);
            if self.stream && n >= 2 * WIDEST {
                let ahead = y.align_offset(64).min(n);
                while i < ahead {
                    let count = (V::LANES - 1).min(ahead - i);
                    part(i, count);
                    i += count;
                }
                while i + V::LANES <= n {
                    F::eval(V::load(x.add(i))).stream(y.add(i));
                    i += V::LANES;
                }
            }
            while i + 2 * V::LANES <= n {
                let a = F::eval(V::load(x.add(i)));
                let b = F::eval(V::load(x.add(i + V::LANES)));
                a.store(y.add(i));
                b.store(y.add(i + V::LANES));
                i += 2 * V::LANES;
            }
            if i + V::LANES <= n {
                F::eval(V::load(x.add(i))).store(y.add(i));
                i += V::LANES;
            }
            if i < n {
                part(i, n - i);
            }
        }
    }
}

/// `y[i] = f(x[i])` for `n` values.
///
/// # Safety
/// `x` is readable and `y` writable for `n` values; the ranges are the same or do not overlap.
#[inline]
pub(crate) unsafe fn map1<F: Unary>(level: Level, x: *const f32, y: *mut f32, n: usize, stream: bool) {
    level.run(Map1::<F> { x, y, n, stream, f: PhantomData });
}

struct Map2<F> {
    a: Operand,
    b: Operand,
    y: *mut f32,
    n: usize,
    stream: bool,
    f: PhantomData<F>,
}

impl<F: Binary> Map2<F> {
    /// The loop with the kind of each operand fixed: a constant `true` reads the slice.
    ///
    /// # Safety
    /// As `map2`; `a` and `b` are readable for `n` values where `A`, `B` are true, for one vector where not.
    #[inline(always)]
    unsafe fn go<V: F32s, const A: bool, const B: bool>(&self, a: *const f32, b: *const f32) {
        let (y, n) = (self.y, self.n);
        // SAFETY: as in `Map1`.
        unsafe {
            let (va, vb) = (V::load(if A { SPARE.as_ptr() } else { a }), V::load(if B { SPARE.as_ptr() } else { b }));
            let get = |i: usize| F::eval(if A { V::load(a.add(i)) } else { va }, if B { V::load(b.add(i)) } else { vb });
            let part = |i: usize, count: usize| {
                let a = if A { V::load_part(a.add(i), count) } else { va };
                let b = if B { V::load_part(b.add(i), count) } else { vb };
                F::eval(a, b).store_part(y.add(i), count);
            };
            let mut i = 0;
            if self.stream && n >= 2 * WIDEST {
                let ahead = y.align_offset(64).min(n);
                while i < ahead {
                    let count = (V::LANES - 1).min(ahead - i);
                    part(i, count);
                    i += count;
                }
                while i + V::LANES <= n {
                    get(i).stream(y.add(i));
                    i += V::LANES;
                }
            }
            while i + 2 * V::LANES <= n {
                let (p, q) = (get(i), get(i + V::LANES));
                p.store(y.add(i));
                q.store(y.add(i + V::LANES));
                i += 2 * V::LANES;
            }
            if i + V::LANES <= n {
                get(i).store(y.add(i));
                i += V::LANES;
            }
            if i < n {
                part(i, n - i);
            }
        }
    }
}

static SPARE: [f32; WIDEST] = [0.0; WIDEST];

impl<F: Binary> Work for Map2<F> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let splat = |x: f32| [x; WIDEST];
        // SAFETY: `map2` promises the slices; a splat is one widest vector.
        unsafe {
            match (self.a, self.b) {
                (Operand::Slice(a), Operand::Slice(b)) => self.go::<V, true, true>(a, b),
                (Operand::Slice(a), Operand::Splat(b)) => self.go::<V, true, false>(a, splat(b).as_ptr()),
                (Operand::Splat(a), Operand::Slice(b)) => self.go::<V, false, true>(splat(a).as_ptr(), b),
                (Operand::Splat(a), Operand::Splat(b)) => {
                    self.go::<V, false, false>(splat(a).as_ptr(), splat(b).as_ptr());
                }
            }
        }
    }
}

/// `y[i] = f(a[i], b[i])` for `n` values.
///
/// # Safety
/// Slices are readable and `y` writable for `n` values; `y` is the same range as a slice or does not overlap it.
#[inline]
pub(crate) unsafe fn map2<F: Binary>(level: Level, a: Operand, b: Operand, y: *mut f32, n: usize, stream: bool) {
    level.run(Map2::<F> { a, b, y, n, stream, f: PhantomData });
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
    }
    struct Floor;
    impl Unary for Floor {
        #[inline(always)]
        fn eval<V: F32s>(x: V) -> V {
            x.floor()
        }
    }

    #[test]
    fn every_size_and_offset_at_every_level() {
        let x: Vec<f32> = (0..300).map(|i| i as f32 * 1.25 - 99.5).collect();
        for level in Level::available() {
            for n in (0..=70).chain([127, 128, 129, 255, 256, 257]) {
                for offset in 0..16 {
                    for stream in [false, true] {
                        let mut y = vec![7.0f32; 300];
                        let (px, py) = (x[offset..].as_ptr(), y[16 - offset..].as_mut_ptr());
                        // SAFETY: both have 300 values, n + 16 are used.
                        unsafe { map1::<Floor>(level, px, py, n, stream) };
                        assert!((0..n).all(|i| y[16 - offset + i] == x[offset + i].floor()));
                        assert_eq!(y[16 - offset + n], 7.0, "wrote past the end");
                        let mut check = |a: Operand, b: Operand, want: &dyn Fn(usize) -> f32| {
                            let py = y[16 - offset..].as_mut_ptr();
                            // SAFETY: as above.
                            unsafe { map2::<Sub>(level, a, b, py, n, stream) };
                            assert!((0..n).all(|i| y[16 - offset + i] == want(i)), "{level:?} {n} {offset} {stream}");
                            assert_eq!(y[16 - offset + n], 7.0, "wrote past the end");
                        };
                        check(Operand::Slice(px), Operand::Slice(x.as_ptr()), &|i| x[offset + i] - x[i]);
                        check(Operand::Slice(px), Operand::Splat(3.0), &|i| x[offset + i] - 3.0);
                        check(Operand::Splat(3.0), Operand::Slice(px), &|i| 3.0 - x[offset + i]);
                        check(Operand::Splat(3.0), Operand::Splat(1.0), &|_| 2.0);
                    }
                }
            }
        }
    }
}
