//! The two loops over lattices: results from weights, and gradients of weights from those of
//! results.
//!
//! ```text
//!   correlate   y[o][p]  = Σ_k w[o][k] x[p + distance[k]]         lanes are p
//!   slopes      dw[o][k] += Σ_p g[o][p] x[p + distance[k]]        lanes are p, added up at the end
//! ```
//! for rows of results that are a pitch apart in the lattice.

use crate::Cpu;
use crate::float::Float;
use crate::matmul::MAX_CHAIN;
use crate::scratch::Array;
use crate::simd::{F32s, Lanes, Work, prefetch};
use teeny_core::Result;

/// The distances of some taps in a lattice.
pub(super) struct Distances {
    each: Array<usize>,
    /// The largest.
    farthest: usize,
}

impl Distances {
    pub(super) fn from_fn(
        cpu: &Cpu,
        taps: usize,
        f: impl FnMut(usize) -> usize,
    ) -> Result<Distances> {
        let each = Array::from_fn(cpu, taps, f)?;
        let farthest = each.iter().copied().max().unwrap_or(0);
        Ok(Distances { each, farthest })
    }
}

/// [`Distances`] as kernels read them.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    each: &'a [usize],
    farthest: usize,
}

impl Distances {
    pub(super) fn table(&self) -> Table<'_> {
        Table { each: &self.each, farthest: self.farthest }
    }
}

/// Results of `rows` rows of `n`.
pub(super) struct Correlate<'a, T> {
    /// The lattice, from the first result's first cell on.
    pub x: &'a [T],
    /// From a row to the next, in the lattice.
    pub pitch: usize,
    pub distances: Table<'a>,
    /// (m, distances)
    pub weight: &'a [T],
    pub m: usize,
    pub rows: usize,
    pub n: usize,
    pub y: *mut T,
    /// From a channel to the next, and from a row to the next.
    pub strides: [usize; 2],
    /// Whether each distance is in another part of memory, which the processor does not prefetch.
    pub prefetches: bool,
}

impl<T: Float> Work for Correlate<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        self.all::<T::Vector<V>>();
    }
}

impl<T: Float> Correlate<'_, T> {
    #[inline(always)]
    fn all<V: Lanes<T>>(self) {
        if self.n == 0 || self.rows == 0 {
            return;
        }
        assert!(
            self.distances.farthest + (self.rows - 1) * self.pitch + self.n <= self.x.len()
                && self.weight.len() == self.m * self.distances.each.len()
        );
        for row in 0..self.rows {
            // SAFETY: the assertion; `y` has these results.
            unsafe {
                let mut m = 0;
                while V::NATIVE && m + 4 <= self.m {
                    self.row::<V, 4>(row, m);
                    m += 4;
                }
                if V::NATIVE && m + 2 <= self.m {
                    self.row::<V, 2>(row, m);
                    m += 2;
                }
                while m < self.m {
                    self.row::<V, 1>(row, m);
                    m += 1;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn row<V: Lanes<T>, const M: usize>(&self, row: usize, m: usize) {
        let mut j = 0;
        // SAFETY: as `tile`.
        unsafe {
            while V::NATIVE && j + 4 * V::LANES <= self.n {
                self.tile::<V, M, 4, false>(row, m, j);
                j += 4 * V::LANES;
            }
            while V::NATIVE && j + 2 * V::LANES < self.n {
                self.tile::<V, M, 4, true>(row, m, j);
                j += 4 * V::LANES;
            }
            while V::NATIVE && j + V::LANES < self.n {
                self.tile::<V, M, 2, true>(row, m, j);
                j += 2 * V::LANES;
            }
            while j < self.n {
                self.tile::<V, M, 1, true>(row, m, j);
                j += V::LANES;
            }
        }
    }

    /// `M` channels by `NV` vectors from column `j` on, up to column n if `PART`.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const M: usize, const NV: usize, const PART: bool>(
        &self,
        row: usize,
        m: usize,
        j: usize,
    ) {
        let k = self.distances.each.len();
        let count = |v: usize| {
            let before = j + v * V::LANES;
            if before < self.n { (self.n - before).min(V::LANES) } else { 0 }
        };
        let mut counts = [V::LANES; NV];
        let mut v = 0;
        while PART && v < NV {
            counts[v] = count(v);
            v += 1;
        }
        // SAFETY: `all` has compared the farthest element that is read with the lattice.
        unsafe {
            let x = self.x.as_ptr().add(row * self.pitch + j);
            let w = self.weight.as_ptr().add(m * k);
            let distances = self.distances.each.as_ptr();
            let mut totals = [[V::splat(T::ZERO); NV]; M];
            let mut i = 0;
            while i < k {
                // Arrays are indexed by loops that are unrolled: others keep them in memory.
                let mut sums = [[V::splat(T::ZERO); NV]; M];
                let end = if k - i > MAX_CHAIN { i + MAX_CHAIN } else { k };
                while i < end {
                    let from = x.add(*distances.add(i));
                    let mut xs = [V::splat(T::ZERO); NV];
                    let mut v = 0;
                    while v < NV {
                        let from = from.wrapping_add(v * V::LANES);
                        xs[v] = if PART { V::load_part(from, counts[v]) } else { V::load(from) };
                        if !PART && self.prefetches {
                            prefetch(from.wrapping_add(2 * NV * V::LANES).cast());
                        }
                        v += 1;
                    }
                    let mut r = 0;
                    while r < M {
                        let w = V::splat(*w.add(r * k + i));
                        let mut v = 0;
                        while v < NV {
                            sums[r][v] = w.mul_add(xs[v], sums[r][v]);
                            v += 1;
                        }
                        r += 1;
                    }
                    i += 1;
                }
                let mut r = 0;
                while r < M {
                    let mut v = 0;
                    while v < NV {
                        totals[r][v] = totals[r][v].add(sums[r][v]);
                        v += 1;
                    }
                    r += 1;
                }
            }
            let mut r = 0;
            while r < M {
                let to = self.y.add((m + r) * self.strides[0] + row * self.strides[1] + j);
                let mut v = 0;
                while v < NV {
                    let to = to.wrapping_add(v * V::LANES);
                    if PART {
                        totals[r][v].store_part(to, counts[v])
                    } else {
                        totals[r][v].store(to)
                    }
                    v += 1;
                }
                r += 1;
            }
        }
    }
}

/// Taps whose sums are in registers at a time.
const TAPS: usize = 9;
const FEW_TAPS: usize = 3;

/// Adds the gradients of weights over `rows` rows of `n`.
pub(super) struct Slopes<'a, T> {
    /// The gradients of `m` channels.
    pub g: &'a [T],
    /// From a channel to the next, and from a row to the next.
    pub g_strides: [usize; 2],
    /// The lattice, from the first result's first cell on.
    pub x: &'a [T],
    pub pitch: usize,
    pub distances: Table<'a>,
    pub m: usize,
    pub rows: usize,
    pub n: usize,
    /// A vector for each channel and distance.
    pub sums: &'a mut [T],
}

impl<T: Float> Work for Slopes<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(mut self) {
        self.all::<T::Vector<V>>();
    }
}

impl<T: Float> Slopes<'_, T> {
    #[inline(always)]
    fn all<V: Lanes<T>>(&mut self) {
        let k = self.distances.each.len();
        if self.n == 0 || self.rows == 0 || self.m == 0 {
            return;
        }
        let behind = |pitch: usize| (self.rows - 1) * pitch + self.n;
        assert!(
            self.distances.farthest + behind(self.pitch) <= self.x.len()
                && (self.m - 1) * self.g_strides[0] + behind(self.g_strides[1]) <= self.g.len()
                && self.sums.len() == self.m * k * V::LANES
        );
        let mut m = 0;
        while m < self.m {
            let (wide, left) = (const { size_of::<V>() == 64 }, self.m - m);
            let mut tap = 0;
            while tap < k {
                let few = !V::NATIVE || k - tap <= FEW_TAPS;
                // SAFETY: the assertion.
                unsafe {
                    match (left.min(4), few) {
                        (4, false) if wide => self.tile::<V, 4, 6>(m, tap),
                        (4, true) if wide => self.tile::<V, 4, FEW_TAPS>(m, tap),
                        (2.., false) => self.tile::<V, 2, TAPS>(m, tap),
                        (2.., true) if V::NATIVE => self.tile::<V, 2, FEW_TAPS>(m, tap),
                        (_, false) => self.tile::<V, 1, TAPS>(m, tap),
                        _ => self.tile::<V, 1, FEW_TAPS>(m, tap),
                    }
                }
                tap += if few {
                    FEW_TAPS
                } else if wide && left >= 4 {
                    6
                } else {
                    TAPS
                };
            }
            m += match left {
                4.. if wide => 4,
                2.. if V::NATIVE => 2,
                _ => 1,
            };
        }
    }

    /// `M` channels by `N` taps from `tap` on; those behind the last are computed as the last and
    /// not added.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const M: usize, const N: usize>(&mut self, m: usize, tap: usize) {
        let k = self.distances.each.len();
        let mut distances = [0; N];
        let mut t = 0;
        while t < N {
            distances[t] = self.distances.each[(tap + t).min(k - 1)];
            t += 1;
        }
        let mut sums = [[V::splat(T::ZERO); N]; M];
        // SAFETY: `all` has compared the farthest elements that are read with both slices.
        unsafe {
            for row in 0..self.rows {
                let x = self.x.as_ptr().add(row * self.pitch);
                let g = self.g.as_ptr().add(m * self.g_strides[0] + row * self.g_strides[1]);
                let mut j = 0;
                while j + V::LANES <= self.n {
                    let mut gs = [V::splat(T::ZERO); M];
                    let mut r = 0;
                    while r < M {
                        gs[r] = V::load(g.add(r * self.g_strides[0] + j));
                        r += 1;
                    }
                    let mut t = 0;
                    while t < N {
                        let x = V::load(x.add(distances[t] + j));
                        let mut r = 0;
                        while r < M {
                            sums[r][t] = gs[r].mul_add(x, sums[r][t]);
                            r += 1;
                        }
                        t += 1;
                    }
                    j += V::LANES;
                }
                let rest = self.n - j;
                if rest > 0 {
                    let mut r = 0;
                    let mut gs = [V::splat(T::ZERO); M];
                    while r < M {
                        gs[r] = V::load_part(g.add(r * self.g_strides[0] + j), rest);
                        r += 1;
                    }
                    let mut t = 0;
                    while t < N {
                        let x = V::load_part(x.add(distances[t] + j), rest);
                        let mut r = 0;
                        while r < M {
                            sums[r][t] = gs[r].mul_add(x, sums[r][t]);
                            r += 1;
                        }
                        t += 1;
                    }
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
        let (vectors, sums) = (self.vectors.as_mut_ptr(), self.sums.as_mut_ptr());
        let mut i = 0;
        while i < self.sums.len() {
            // SAFETY: a vector for each sum.
            unsafe {
                let vector = vectors.add(i * lanes);
                *sums.add(i) += <T::Vector<V> as Lanes<T>>::load(vector).total();
                <T::Vector<V> as Lanes<T>>::splat(T::ZERO).store(vector);
            }
            i += 1;
        }
    }
}
