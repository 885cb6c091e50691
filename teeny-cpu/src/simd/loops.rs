//! The two loops of f32 kernels, `y = f(x)` and `y = f(a, b)`, over slices.
//!
//! The naive form is `for i in 0..n { y[i] = f(a[i], b[i]) }`. Here two vectors are computed per
//! iteration, the tail is masked, and stores may bypass the caches. `f` is a type, so that it is
//! inlined. Next: `vecmath`, `elementwise`.

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

// SAFETY: only reads, from storages that are borrowed for as long as it lives.
unsafe impl Sync for Operand {}

/// The widest vector.
const WIDEST: usize = 16;

/// One value for each lane of the widest vector, aligned to a cache line.
#[repr(align(64))]
pub(crate) struct Spread([f32; WIDEST]);

impl Spread {
    /// All lanes zero, before a value is written.
    pub(crate) const EMPTY: Spread = Spread([0.0; WIDEST]);
}

impl Operand {
    /// The address that a loop reads, and the step for each element: one value is repeated in
    /// `lanes`, with a step of 0.
    #[inline(always)]
    pub(crate) fn place(self, lanes: &mut Spread) -> (*const f32, usize) {
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
pub(crate) struct Map1<F> {
    x: *const f32,
    y: *mut f32,
    n: usize,
    stream: bool,
    f: PhantomData<F>,
}

impl<F> Map1<F> {
    /// The loop.
    ///
    /// # Safety
    /// As [`map1`], until it has run.
    #[inline(always)]
    pub(crate) unsafe fn new(x: *const f32, y: *mut f32, n: usize, stream: bool) -> Map1<F> {
        Map1 { x, y, n, stream, f: PhantomData }
    }
}

impl<F: Unary> Work for Map1<F> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Map1 { x, y, n, .. } = self;
        let (stream, ahead) = streamed::<V>(y, n, self.stream);
        let mut i = 0;
        // SAFETY: `new` was promised n readable values at x and n writable ones at y, equal or
        // apart; every access below is inside them. Streamed stores start at a 64-byte boundary and
        // advance by whole vectors.
        unsafe {
            // First the elements before the first cache line that is streamed, then the rest. Each
            // place that names `F` compiles it once more.
            for end in [ahead, n] {
                while stream && end == n && i + V::LANES <= n {
                    F::eval(V::load(x.add(i))).stream(y.add(i));
                    i += V::LANES;
                }
                while V::NATIVE && i + 2 * V::LANES <= end {
                    let a = F::eval(V::load(x.add(i)));
                    let b = F::eval(V::load(x.add(i + V::LANES)));
                    a.store(y.add(i));
                    b.store(y.add(i + V::LANES));
                    i += 2 * V::LANES;
                }
                while !V::NATIVE && i + V::LANES <= end {
                    F::eval(V::load(x.add(i))).store(y.add(i));
                    i += V::LANES;
                }
                while i < end {
                    let count = V::LANES.min(end - i);
                    F::eval(V::load_part(x.add(i), count)).store_part(y.add(i), count);
                    i += count;
                }
            }
        }
    }
}

/// Whether `n` values at `y` are stored past the caches, and how many are before the first cache
/// line that is.
#[inline(always)]
fn streamed<V: F32s>(y: *mut f32, n: usize, wished: bool) -> (bool, usize) {
    let stream = V::NATIVE && wished && n >= 2 * WIDEST;
    (stream, if stream { ((64 - y as usize % 64) % 64 / size_of::<f32>()).min(n) } else { 0 })
}

/// `y[i] = f(x[i])` for `n` values.
///
/// # Safety
/// `x` is readable and `y` writable for `n` values; the ranges are the same or do not overlap.
#[inline]
pub(crate) unsafe fn map1<F: Unary>(
    level: Level,
    x: *const f32,
    y: *mut f32,
    n: usize,
    stream: bool,
) {
    // SAFETY: by contract.
    level.run(unsafe { Map1::<F>::new(x, y, n, stream) });
}

/// `y[i] = f(a[i], b[i])` for `n` values, as a loop of any level.
pub(crate) struct Map2<F> {
    a: Operand,
    b: Operand,
    y: *mut f32,
    n: usize,
    stream: bool,
    f: PhantomData<F>,
}

impl<F> Map2<F> {
    /// The loop.
    ///
    /// # Safety
    /// Until it has run, slices are readable and `y` is writable for `n` values, and `y` is the
    /// same range as a slice or does not overlap it.
    #[inline(always)]
    pub(crate) unsafe fn new(
        a: Operand,
        b: Operand,
        y: *mut f32,
        n: usize,
        stream: bool,
    ) -> Map2<F> {
        Map2 { a, b, y, n, stream, f: PhantomData }
    }
}

impl<F: Binary> Work for Map2<F> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Map2 { a, b, y, n, .. } = self;
        let (stream, ahead) = streamed::<V>(y, n, self.stream);
        let mut i = 0;
        // SAFETY: as in `Map1`; a repeated value is one widest vector.
        unsafe {
            // The most frequent operands of a block, without multiplications of the index.
            match (a, b) {
                (Operand::Slice(a), Operand::Slice(b)) if V::NATIVE && !stream => {
                    while i + 2 * V::LANES <= n {
                        let p = F::eval(V::load(a.add(i)), V::load(b.add(i)));
                        let q = F::eval(V::load(a.add(i + V::LANES)), V::load(b.add(i + V::LANES)));
                        p.store(y.add(i));
                        q.store(y.add(i + V::LANES));
                        i += 2 * V::LANES;
                    }
                }
                (Operand::Slice(a), Operand::Splat(b)) if V::NATIVE && !stream => {
                    let b = V::splat(b);
                    while i + 2 * V::LANES <= n {
                        let (p, q) = (
                            F::eval(V::load(a.add(i)), b),
                            F::eval(V::load(a.add(i + V::LANES)), b),
                        );
                        p.store(y.add(i));
                        q.store(y.add(i + V::LANES));
                        i += 2 * V::LANES;
                    }
                }
                _ => {}
            }
            if i == n {
                return;
            }
            // One loop for all kinds of operands: a repeated value is a vector in L1 whose pointer
            // does not move.
            let (mut a_lanes, mut b_lanes) = (Spread::EMPTY, Spread::EMPTY);
            let ((a, a_step), (b, b_step)) = (a.place(&mut a_lanes), b.place(&mut b_lanes));
            for end in [ahead, n] {
                while stream && end == n && i + V::LANES <= n {
                    F::eval(V::load(a.add(i * a_step)), V::load(b.add(i * b_step)))
                        .stream(y.add(i));
                    i += V::LANES;
                }
                while V::NATIVE && i + 2 * V::LANES <= end {
                    let j = i + V::LANES;
                    let p = F::eval(V::load(a.add(i * a_step)), V::load(b.add(i * b_step)));
                    let q = F::eval(V::load(a.add(j * a_step)), V::load(b.add(j * b_step)));
                    p.store(y.add(i));
                    q.store(y.add(j));
                    i += 2 * V::LANES;
                }
                while !V::NATIVE && i + V::LANES <= end {
                    F::eval(V::load(a.add(i * a_step)), V::load(b.add(i * b_step))).store(y.add(i));
                    i += V::LANES;
                }
                while i < end {
                    let count = V::LANES.min(end - i);
                    F::eval(
                        V::load_part(a.add(i * a_step), count),
                        V::load_part(b.add(i * b_step), count),
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
                            level.run(unsafe { Map2::<Sub>::new(a, b, py, n, stream) });
                            assert!(
                                (0..n).all(|i| y[16 - offset + i] == want(i)),
                                "{level:?} {n} {offset} {stream}"
                            );
                            assert_eq!(y[16 - offset + n], 7.0, "wrote past the end");
                        };
                        check(Operand::Slice(px), Operand::Slice(x.as_ptr()), &|i| {
                            x[offset + i] - x[i]
                        });
                        check(Operand::Slice(px), Operand::Splat(3.0), &|i| x[offset + i] - 3.0);
                        check(Operand::Splat(3.0), Operand::Slice(px), &|i| 3.0 - x[offset + i]);
                        check(Operand::Splat(3.0), Operand::Splat(1.0), &|_| 2.0);
                    }
                }
            }
        }
    }
}
