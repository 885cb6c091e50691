//! Pooling whose lanes are planes: maxima with their positions, and sums.
//!
//! Spans of a small plane are shorter than a vector. Here as many planes as a vector has lanes form
//! a *group*, which is transposed to cells, one vector for each element of a plane. A window is the
//! product of ranges of its axes, so it is reduced axis by axis, from the last to the first: a
//! window of 5 x 5 takes 10 steps instead of 25.
//!
//! ```text
//!   planes ──transpose──► cells ──along rows──► ──along columns──► results ──transpose──► planes
//! ```
//! Of equal elements the first is kept along each axis, and so the first of the window. Where a
//! group has no NaN, none is looked for. Planes that a cache does not hold are cut into bands along
//! their first axis. Next: `plan`.

use super::plan::{BUFFERS, Band, Groups, Sizes};
use crate::Cpu;
use crate::cost::Cost;
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::simd::{F32s, F64s, Lanes, Work};
use crate::storage::Shared;
use crate::threads::try_for_each_range;
use crate::transpose::transpose;
use teeny_core::Result;

/// A float type whose vectors are compared and have positions in their lanes.
pub(super) trait Pooled: Float {
    /// The position in the bits of each lane.
    fn position<V: F32s>(at: i32) -> Self::Vector<V>;
    /// The positions of lanes as they are stored by [`Pooled::position`].
    fn to_position(self) -> i32;
    /// The `[value, position]` of `new` if its value is larger, else of `old`; with `NAN`, of the
    /// first NaN.
    fn larger<V: F32s, const NAN: bool>(
        old: [Self::Vector<V>; 2],
        new: [Self::Vector<V>; 2],
    ) -> [Self::Vector<V>; 2];
    /// `old` where `x` is a number, otherwise `x`.
    fn note_nan<V: F32s>(old: Self::Vector<V>, x: Self::Vector<V>) -> Self::Vector<V>;
    /// Whether a lane is NaN.
    fn has_nan<V: F32s>(x: Self::Vector<V>) -> bool;
    /// `x / divisor`
    fn divided<V: F32s>(x: Self::Vector<V>, divisor: Self) -> Self::Vector<V>;
}

macro_rules! pooled {
    ($T:ty, $V:ident: $Vector:ty, $Trait:ident, $Int:ty) => {
        impl Pooled for $T {
            #[inline(always)]
            fn position<$V: F32s>(at: i32) -> $Vector {
                <$Vector as $Trait>::from_bits(<$Vector as $Trait>::i_splat(<$Int>::from(at)))
            }
            #[inline(always)]
            fn to_position(self) -> i32 {
                self.to_bits() as i32
            }
            #[inline(always)]
            fn larger<$V: F32s, const NAN: bool>(
                old: [$Vector; 2],
                new: [$Vector; 2],
            ) -> [$Vector; 2] {
                let pick = |m: <$Vector as $Trait>::M,
                            [a, a_at]: [$Vector; 2],
                            [b, b_at]: [$Vector; 2]| {
                    [
                        <$Vector as $Trait>::select(m, a, b),
                        <$Vector as $Trait>::select(m, a_at, b_at),
                    ]
                };
                let best = pick($Trait::lt(old[0], new[0]), new, old);
                if !NAN {
                    return best;
                }
                // A NaN is taken where the old value is a number.
                let nan = pick($Trait::eq(old[0], old[0]), new, old);
                pick($Trait::eq(new[0], new[0]), best, nan)
            }
            #[inline(always)]
            fn note_nan<$V: F32s>(old: $Vector, x: $Vector) -> $Vector {
                $Trait::select($Trait::eq(x, x), old, x)
            }
            #[inline(always)]
            fn has_nan<$V: F32s>(x: $Vector) -> bool {
                let zero = <$Vector>::splat(0.0);
                let one = <$Vector>::splat(1.0);
                <$Vector as $Trait>::any($Trait::lt(
                    zero,
                    $Trait::select($Trait::eq(x, x), zero, one),
                ))
            }
            #[inline(always)]
            fn divided<$V: F32s>(x: $Vector, divisor: $T) -> $Vector {
                $Trait::div(x, <$Vector>::splat(divisor))
            }
        }
    };
}

pooled!(f32, V: V, F32s, i32);
pooled!(f64, V: V::F64s, F64s, i64);

impl Groups {
    /// Calls `f` with the first plane and the planes of each group, a band and the buffers, the
    /// first of which has the cells of the band.
    fn each<T: Pooled>(
        &self,
        cpu: &Cpu,
        input: &[T],
        f: impl Fn([usize; 2], Band, [&mut [T]; BUFFERS]) + Sync,
    ) -> Result<()> {
        let (Sizes { planes, cells, pixels, steps, lanes, .. }, plane) = (self.sizes, self.plane);
        assert_eq!(input.len(), planes * plane);
        let (bands, tasks) = (self.bands.len(), self.bands.len() * planes.div_ceil(lanes));
        let moved = lanes * (cells + 2 * pixels) / bands;
        let cost = Cost::bytes(moved * size_of::<T>());
        let cost = cost.arithmetic(2 * lanes * steps / bands + 2 * moved);
        try_for_each_range(tasks, cost.range(tasks), |range| {
            let sizes = self.buffers.map(|vectors| vectors * lanes);
            with_scratch(cpu, sizes, |mut buffers: [&mut [T]; BUFFERS]| {
                for task in range {
                    let (first, band) = (task / bands * lanes, self.bands[task % bands]);
                    let count = lanes.min(planes - first);
                    let from = &input[first * plane + band.first * self.row..];
                    let (size, stride) = ((band.rows() * self.row, count), plane as isize);
                    let (from, to) = (from.as_ptr(), buffers[0].as_mut_ptr());
                    // SAFETY: these rows of these planes, and a cell for each of their elements.
                    unsafe { transpose(cpu.level, from, stride, to, lanes as isize, size, false) };
                    f([first, count], band, buffers.each_mut().map(|buffer| &mut **buffer));
                }
            })
        })
    }

    /// Maxima and positions of all planes; `nothing` is the result of a window of padding.
    ///
    /// # Safety
    /// `values` and `positions` have a place for each window of all planes.
    pub(super) unsafe fn maxima<T: Pooled>(
        &self,
        cpu: &Cpu,
        input: &[T],
        nothing: T,
        values: Shared<T>,
        positions: Shared<i32>,
    ) -> Result<()> {
        self.each(cpu, input, |[first, count], band, mut buffers| {
            let pointers = buffers.each_mut().map(|buffer| buffer.as_mut_ptr());
            cpu.level.run(Maxima { groups: self, band, nothing, buffers: pointers });
            let [a, b, a_at, b_at] = buffers;
            let (best, at) = if self.passes.len() % 2 == 1 { (b, b_at) } else { (a, a_at) };
            let here = first * self.sizes.pixels + band.top * self.pixels_of_row;
            let (values, positions) =
                (values.get().wrapping_add(here), positions.get().wrapping_add(here));
            let results = (band.bottom - band.top) * self.pixels_of_row;
            // SAFETY: the results of these planes, which this call alone writes; positions of f32
            // are i32 already.
            unsafe {
                self.give(cpu, best, [count, results], values);
                if size_of::<T>() == size_of::<i32>() {
                    self.give(cpu, at, [count, results], positions.cast::<T>());
                    return;
                }
                for (pixel, at) in at.chunks_exact(self.sizes.lanes).take(results).enumerate() {
                    for (plane, at) in at[..count].iter().enumerate() {
                        *positions.add(plane * self.sizes.pixels + pixel) = at.to_position();
                    }
                }
            }
        })
    }

    /// Means of all planes, of sums that are divided by `divisor`.
    ///
    /// # Safety
    /// `values` has a place for each window of all planes.
    pub(super) unsafe fn means<T: Pooled>(
        &self,
        cpu: &Cpu,
        input: &[T],
        divisor: T,
        values: Shared<T>,
    ) -> Result<()> {
        self.each(cpu, input, |[first, count], band, [a, b, ..]| {
            let buffers = [a.as_mut_ptr(), b.as_mut_ptr()];
            cpu.level.run(Means { groups: self, band, divisor, buffers });
            let means = if self.passes.len() % 2 == 1 { b } else { a };
            let here = first * self.sizes.pixels + band.top * self.pixels_of_row;
            let results = (band.bottom - band.top) * self.pixels_of_row;
            // SAFETY: as above.
            unsafe { self.give(cpu, means, [count, results], values.get().wrapping_add(here)) };
        })
    }

    /// Transposes the results of a band of `count` planes to where the first of them goes.
    ///
    /// # Safety
    /// These are writable.
    unsafe fn give<T: Pooled>(
        &self,
        cpu: &Cpu,
        from: &[T],
        [count, results]: [usize; 2],
        to: *mut T,
    ) {
        let (lanes, pixels) = (self.sizes.lanes, self.sizes.pixels);
        assert!(from.len() >= (results - 1) * lanes + count);
        // SAFETY: by contract; the buffer has a vector for each result.
        unsafe {
            if pixels == 1 {
                std::ptr::copy_nonoverlapping(from.as_ptr(), to, count);
                return;
            }
            let (from, stride) = (from.as_ptr(), pixels as isize);
            transpose(cpu.level, from, lanes as isize, to, stride, (count, results), false);
        }
    }
}

/// All passes over a band of a group for its maxima.
struct Maxima<'a, T> {
    groups: &'a Groups,
    band: Band,
    nothing: T,
    /// Cells, their results, and the positions of both.
    buffers: [*mut T; BUFFERS],
}

impl<T: Pooled> Work for Maxima<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Groups { passes, row, .. } = self.groups;
        let [mut x, mut y, mut at, mut to] = self.buffers;
        let lanes = T::Vector::<V>::LANES;
        // SAFETY: buffers have a vector for each element of a band and for each result of a pass.
        unsafe {
            let mut nan = T::Vector::<V>::splat(T::ZERO);
            for i in 0..self.band.rows() * row {
                nan = T::note_nan::<V>(nan, T::Vector::<V>::load(x.add(i * lanes)));
            }
            let has_nan = T::has_nan::<V>(nan);
            for i in 0..passes.len() {
                match (has_nan, i == 0) {
                    (false, true) => self.pass::<V, false, true>(i, [x, at], [y, to]),
                    (false, false) => self.pass::<V, false, false>(i, [x, at], [y, to]),
                    (true, true) => self.pass::<V, true, true>(i, [x, at], [y, to]),
                    (true, false) => self.pass::<V, true, false>(i, [x, at], [y, to]),
                }
                ([x, y], [at, to]) = ([y, x], [to, at]);
            }
        }
    }
}

impl<T: Pooled> Maxima<'_, T> {
    /// One pass. The first one takes the positions from the cells.
    #[inline(always)]
    unsafe fn pass<V: F32s, const NAN: bool, const FIRST: bool>(
        &self,
        number: usize,
        [x, at]: [*mut T; 2],
        [mut y, mut to]: [*mut T; 2],
    ) {
        let (lanes, pass) = (T::Vector::<V>::LANES, &self.groups.passes[number]);
        let (outer, start, windows) = self.groups.windows(number, &self.band);
        let base = self.band.first * self.groups.row;
        // SAFETY: by contract of `run`: ranges are inside the axis.
        let get = |i: usize| unsafe {
            let position = match FIRST {
                true => T::position::<V>((base + i) as i32),
                false => T::Vector::<V>::load(at.add(i * lanes)),
            };
            [T::Vector::<V>::load(x.add(i * lanes)), position]
        };
        let inner = if FIRST { 1 } else { pass.inner };
        for outer in 0..outer {
            for window in windows {
                for i in 0..inner {
                    let mut best = [T::Vector::<V>::splat(self.nothing), T::position::<V>(-1)];
                    if window.count > 0 {
                        let mut from = (outer * pass.input + window.first - start) * inner + i;
                        best = get(from);
                        for _ in 1..window.count {
                            from += pass.step * inner;
                            best = T::larger::<V, NAN>(best, get(from));
                        }
                    }
                    // SAFETY: a vector for each result.
                    unsafe {
                        best[0].store(y);
                        best[1].store(to);
                    }
                    y = y.wrapping_add(lanes);
                    to = to.wrapping_add(lanes);
                }
            }
        }
    }
}

/// All passes over a band of a group for its means.
struct Means<'a, T> {
    groups: &'a Groups,
    band: Band,
    divisor: T,
    /// Cells and their results.
    buffers: [*mut T; 2],
}

impl<T: Pooled> Work for Means<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let passes = &self.groups.passes;
        let lanes = T::Vector::<V>::LANES;
        let [mut x, mut y] = self.buffers;
        for (number, pass) in passes.iter().enumerate() {
            let (outer, start, windows) = self.groups.windows(number, &self.band);
            let is_last = number + 1 == passes.len();
            let mut to = y;
            for outer in 0..outer {
                for window in windows {
                    let first = (outer * pass.input + window.first).wrapping_sub(start);
                    for i in 0..pass.inner {
                        let mut from = first.wrapping_mul(pass.inner).wrapping_add(i);
                        let mut sum = T::Vector::<V>::splat(T::ZERO);
                        // SAFETY: buffers have a vector for each element of a band and for each
                        // result of a pass; ranges are inside the axis.
                        unsafe {
                            for _ in 0..window.count {
                                sum = sum.add(T::Vector::<V>::load(x.add(from * lanes)));
                                from += pass.step * pass.inner;
                            }
                            if is_last {
                                sum = T::divided::<V>(sum, self.divisor);
                            }
                            sum.store(to);
                        }
                        to = to.wrapping_add(lanes);
                    }
                }
            }
            [x, y] = [y, x];
        }
    }
}
