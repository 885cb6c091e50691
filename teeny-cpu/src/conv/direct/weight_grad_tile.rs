//! The gradient of weights: `dw[o][t] += Σ_p g[o][p] x[p * step + distance[t]]`, the sums of some
//! taps and channels in registers while rows go by.
//!
//! A sum is a vector. Where lanes are pixels its lanes are added up at the end ([`Totals`]), where
//! they are channels it is the sum of each channel. Strides and distances are in elements.

use super::correlate::Table;
use crate::float::Float;
use crate::simd::{F32s, Lanes, Work};

/// Taps whose sums are in registers at a time, in a large and in a small tile.
const MAX_TAPS: usize = 9;
const MIN_TAPS: usize = 3;

/// Adds the gradients of weights over `rows` rows of `n` elements of gradients.
pub(super) struct WeightGradTile<'a, T> {
    /// The gradients of `m` channels, or of the channels that are lanes: `m` is 1 then.
    pub g: &'a [T],
    /// From a channel to the next, and from a row to the next.
    pub g_strides: [usize; 2],
    /// The packed input, from the first result's first element on.
    pub x: &'a [T],
    /// From a row to the next, and from a vector of gradients to the next, in the packed input: a
    /// vector where lanes are pixels.
    pub x_strides: [usize; 2],
    pub lanes_are_channels: bool,
    pub distances: Table<'a>,
    pub m: usize,
    pub rows: usize,
    pub n: usize,
    /// A vector for each channel and distance.
    pub sums: &'a mut [T],
}

impl<T: Float> Work for WeightGradTile<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(mut self) {
        self.all::<T::Vector<V>>();
    }
}

impl<T: Float> WeightGradTile<'_, T> {
    #[inline(always)]
    fn all<V: Lanes<T>>(&mut self) {
        let k = self.distances.each.len();
        if self.n == 0 || self.rows == 0 || self.m == 0 {
            return;
        }
        // Where lanes are channels, whole vectors are read.
        let steps = self.lanes_are_channels;
        let (whole, rest) = (self.n / V::LANES, self.n % V::LANES);
        let along =
            if steps { whole.saturating_sub(1) * self.x_strides[1] + V::LANES } else { self.n };
        assert!(
            self.distances.farthest + (self.rows - 1) * self.x_strides[0] + along <= self.x.len()
                && (self.m - 1) * self.g_strides[0] + (self.rows - 1) * self.g_strides[1] + self.n
                    <= self.g.len()
                && self.sums.len() == self.m * k * V::LANES
                && (!steps || (self.m == 1 && rest == 0))
        );
        let mut m = 0;
        while m < self.m {
            let (wide, left) = (const { V::REGISTERS == 32 }, self.m - m);
            let mut tap = 0;
            while tap < k {
                let few = !V::NATIVE || k - tap <= MIN_TAPS;
                // SAFETY: the assertion.
                unsafe {
                    match (left.min(4), few) {
                        (_, false) if steps => self.tile::<V, 1, MAX_TAPS, true>(m, tap),
                        (_, true) if steps => self.tile::<V, 1, MIN_TAPS, true>(m, tap),
                        (4, false) if wide => self.tile::<V, 4, 6, false>(m, tap),
                        (4, true) if wide => self.tile::<V, 4, MIN_TAPS, false>(m, tap),
                        (2.., false) => self.tile::<V, 2, MAX_TAPS, false>(m, tap),
                        (2.., true) if V::NATIVE => self.tile::<V, 2, MIN_TAPS, false>(m, tap),
                        (_, false) => self.tile::<V, 1, MAX_TAPS, false>(m, tap),
                        _ => self.tile::<V, 1, MIN_TAPS, false>(m, tap),
                    }
                }
                tap += if few {
                    MIN_TAPS
                } else if wide && left >= 4 {
                    6
                } else {
                    MAX_TAPS
                };
            }
            m += match left {
                4.. if wide => 4,
                2.. if V::NATIVE => 2,
                _ => 1,
            };
        }
    }

    /// `M` channels by `N` taps from `tap` on; taps after the last repeat the last and are not
    /// added. `STEPS`: lanes are channels, and vectors may not be neighbours in the packed input.
    ///
    /// # Safety
    /// The channels exist, and `all` has compared the farthest elements that are read with the
    /// slices.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const M: usize, const N: usize, const STEPS: bool>(
        &mut self,
        m: usize,
        tap: usize,
    ) {
        let k = self.distances.each.len();
        let mut distances = [0; N];
        let mut t = 0;
        while t < N {
            distances[t] = self.distances.each[(tap + t).min(k - 1)];
            t += 1;
        }
        let [g_channel, g_row] = self.g_strides;
        let mut sums = [[V::splat(T::ZERO); N]; M];
        for row in 0..self.rows {
            // SAFETY: by contract.
            unsafe {
                let x = self.x.as_ptr().add(row * self.x_strides[0]);
                let g = self.g.as_ptr().add(m * g_channel + row * g_row);
                let (mut from, mut at) = ([g, x], 0);
                while at + V::LANES <= self.n {
                    let places = if STEPS { [0; 2] } else { [at; 2] };
                    sums =
                        products::<T, V, M, N, false>(from, places, g_channel, &distances, sums, 0);
                    if STEPS {
                        let [g, x] = from;
                        from = [g.wrapping_add(V::LANES), x.wrapping_add(self.x_strides[1])];
                    }
                    at += V::LANES;
                }
                let rest = self.n - at;
                if !STEPS && rest > 0 {
                    let places = [at; 2];
                    sums = products::<T, V, M, N, true>(
                        from, places, g_channel, &distances, sums, rest,
                    );
                }
            }
        }
        let mut r = 0;
        while r < M {
            let mut t = 0;
            while t < N && tap + t < k {
                // SAFETY: the vector of this channel and distance.
                unsafe {
                    let to = self.sums.as_mut_ptr().add(((m + r) * k + tap + t) * V::LANES);
                    V::load(to).add(sums[r][t]).store(to);
                }
                t += 1;
            }
            r += 1;
        }
    }
}

/// `sums` and the products of a vector of gradients of `M` channels, `stride` apart from `g` on,
/// with the elements at each distance from `x`, at the same places: `rest` lanes if `PART`.
///
/// # Safety
/// These are readable.
#[inline(always)]
unsafe fn products<T: Float, V: Lanes<T>, const M: usize, const N: usize, const PART: bool>(
    [g, x]: [*const T; 2],
    [g_at, x_at]: [usize; 2],
    stride: usize,
    distances: &[usize; N],
    mut sums: [[V; N]; M],
    rest: usize,
) -> [[V; N]; M] {
    // SAFETY: by contract.
    unsafe {
        let mut gs = [V::splat(T::ZERO); M];
        let mut r = 0;
        while r < M {
            let g = g.add(r * stride + g_at);
            gs[r] = if PART { V::load_part(g, rest) } else { V::load(g) };
            r += 1;
        }
        let mut t = 0;
        while t < N {
            let x = x.add(distances[t] + x_at);
            let x = if PART { V::load_part(x, rest) } else { V::load(x) };
            let mut r = 0;
            while r < M {
                sums[r][t] = gs[r].mul_add(x, sums[r][t]);
                r += 1;
            }
            t += 1;
        }
    }
    sums
}

/// Adds the lanes of vectors to a sum each, and makes them zero.
pub(super) struct Totals<'a, T> {
    pub vectors: &'a mut [T],
    pub sums: &'a mut [T],
}

impl<T: Float> Work for Totals<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let lanes = <T::Vector<V> as Lanes<T>>::LANES;
        assert!(self.vectors.len() == self.sums.len() * lanes);
        for (i, vector) in self.vectors.chunks_exact_mut(lanes).enumerate() {
            let vector = vector.as_mut_ptr();
            // SAFETY: the chunk is a vector.
            unsafe {
                self.sums[i] += <T::Vector<V> as Lanes<T>>::load(vector).total();
                <T::Vector<V> as Lanes<T>>::splat(T::ZERO).store(vector);
            }
        }
    }
}
