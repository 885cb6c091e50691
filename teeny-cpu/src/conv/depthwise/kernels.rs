//! The two loops over cells, whose lanes are channels.
//!
//! ```text
//!   correlate   y[p] = Σ_t w[t] cell[p * step + distance[t]]
//!   slopes      dw[t] += Σ_p g[p] cell[p * step + distance[t]]
//! ```
//! All strides and distances are in elements: whole vectors.

use crate::float::Float;
use crate::simd::{F32s, Lanes, Work};

/// Rows of results.
#[derive(Clone, Copy)]
pub(super) struct Correlate<'a, T> {
    /// The cell of the first result, of which `distances` are measured.
    pub x: *const T,
    pub distances: &'a [usize],
    /// A vector for each distance.
    pub weights: *const T,
    /// The distances of each row of results: from the first to before the second.
    pub taps: &'a [[usize; 2]],
    pub width: usize,
    /// From a row of results to the next and from a result to the next: in the cells, and in `y`.
    pub x_strides: [usize; 2],
    pub y: *mut T,
    pub y_strides: [usize; 2],
}

impl<T: Float> Work for Correlate<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let lanes = <T::Vector<V> as Lanes<T>>::LANES;
        // SAFETY: by contract of the caller.
        unsafe {
            if self.x_strides[1] == lanes {
                self.all::<T::Vector<V>, 1>();
            } else if self.x_strides[1] == 2 * lanes {
                self.all::<T::Vector<V>, 2>();
            } else {
                self.all::<T::Vector<V>, 0>();
            }
        }
    }
}

impl<T: Float> Correlate<'_, T> {
    /// Rows with a step of `S` vectors, or of any number if that is 0, in tiles of four to
    /// [`MAX_RESULTS`] results that differ by one at most: none is computed twice, and a weight is
    /// loaded for as many as there are registers. Of rows of two or three results the last tile
    /// begins earlier.
    #[inline(always)]
    unsafe fn all<V: Lanes<T>, const S: usize>(self) {
        let wide = V::NATIVE && self.width >= 4;
        let tiles = self.width.div_ceil(if wide { MAX_RESULTS } else { 2 });
        let (least, longer) = (self.width / tiles.max(1), self.width % tiles.max(1));
        for row in 0..self.taps.len() {
            let mut at = 0;
            for i in 0..tiles {
                let count = least + usize::from(i < longer);
                // SAFETY: tiles are inside the row.
                unsafe {
                    match count {
                        _ if self.width == 1 => self.tile::<V, S, 1>(row, 0),
                        _ if !wide => self.tile::<V, S, 2>(row, (2 * i).min(self.width - 2)),
                        MAX_RESULTS => self.tile::<V, S, MAX_RESULTS>(row, at),
                        7 => self.tile::<V, S, 7>(row, at),
                        6 => self.tile::<V, S, 6>(row, at),
                        5 => self.tile::<V, S, 5>(row, at),
                        _ => self.tile::<V, S, 4>(row, at),
                    }
                }
                at += count;
            }
        }
    }

    /// Results `at .. at + P` of a row.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const S: usize, const P: usize>(self, row: usize, at: usize) {
        let [first, end] = self.taps[row];
        let step = if S > 0 { S * V::LANES } else { self.x_strides[1] };
        // SAFETY: by contract of `all`.
        unsafe {
            let x = self.x.add(row * self.x_strides[0] + at * step);
            let mut sums = [V::splat(T::ZERO); P];
            let mut t = first;
            while t < end {
                let w = V::load(self.weights.add(t * V::LANES));
                let x = x.add(*self.distances.as_ptr().add(t));
                let mut p = 0;
                while p < P {
                    sums[p] = w.mul_add(V::load(x.add(p * step)), sums[p]);
                    p += 1;
                }
                t += 1;
            }
            let y = self.y.add(row * self.y_strides[0] + at * self.y_strides[1]);
            let mut p = 0;
            while p < P {
                sums[p].store(y.add(p * self.y_strides[1]));
                p += 1;
            }
        }
    }
}

/// Results of a tile, at most.
const MAX_RESULTS: usize = 8;
/// Taps whose sums are in registers at a time.
const TAPS: usize = 9;
const FEW_TAPS: usize = 3;

/// Adds gradients of the weights over rows of results.
#[derive(Clone, Copy)]
pub(super) struct Slopes<'a, T> {
    /// The gradients, a vector for each result.
    pub g: *const T,
    pub x: *const T,
    pub distances: &'a [usize],
    pub rows: usize,
    pub width: usize,
    /// From a row of results to the next and from a result to the next, in the cells.
    pub x_strides: [usize; 2],
    /// A vector for each distance.
    pub sums: *mut T,
}

impl<T: Float> Work for Slopes<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let mut tap = 0;
        while tap < self.distances.len() {
            // SAFETY: by contract of the caller.
            unsafe {
                if <T::Vector<V> as Lanes<T>>::NATIVE && self.distances.len() - tap > FEW_TAPS {
                    self.tile::<T::Vector<V>, TAPS>(tap);
                    tap += TAPS;
                } else {
                    self.tile::<T::Vector<V>, FEW_TAPS>(tap);
                    tap += FEW_TAPS;
                }
            }
        }
    }
}

impl<T: Float> Slopes<'_, T> {
    /// `N` taps from `tap` on; those behind the last are computed as the last and not added.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const N: usize>(self, tap: usize) {
        let last = self.distances.len() - 1;
        let mut distances = [0; N];
        let mut t = 0;
        while t < N {
            distances[t] = self.distances[(tap + t).min(last)];
            t += 1;
        }
        let mut sums = [V::splat(T::ZERO); N];
        // SAFETY: by contract of the caller.
        unsafe {
            for row in 0..self.rows {
                let mut x = self.x.add(row * self.x_strides[0]);
                let mut g = self.g.add(row * self.width * V::LANES);
                for _ in 0..self.width {
                    let slope = V::load(g);
                    let mut t = 0;
                    while t < N {
                        sums[t] = slope.mul_add(V::load(x.add(distances[t])), sums[t]);
                        t += 1;
                    }
                    x = x.wrapping_add(self.x_strides[1]);
                    g = g.wrapping_add(V::LANES);
                }
            }
            let mut t = 0;
            while t < N && tap + t <= last {
                let to = self.sums.add((tap + t) * V::LANES);
                V::load(to).add(sums[t]).store(to);
                t += 1;
            }
        }
    }
}
