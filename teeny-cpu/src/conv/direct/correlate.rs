//! The loop of direct convolution: `y[o][p] = Σ_t w[o][t] x[p * step + distance[t]]`, with the sums
//! of a tile of vectors in registers. t goes over all taps of all input channels of a group.
//!
//! ```text
//!   PixelRows     lanes are pixels p, a weight is in all lanes    up to 4 channels x 4 vectors
//!   ChannelRows   lanes are channels o, a weight is a vector      up to 8 vectors
//! ```
//! Both walk the taps by [`Taps::sums`]. `PixelRows` has step 1, because strides were split into
//! phases before (`phase_split`), and adds at most [`MAX_CHAIN`] products in a chain; `ChannelRows`
//! has one input channel. Strides and distances are in elements. Tile sizes are free; the order of
//! t and `MAX_CHAIN` decide the bits.

use crate::Cpu;
use crate::float::Float;
use crate::matmul::MAX_CHAIN;
use crate::scratch::Array;
use crate::simd::{F32s, Lanes, Work, prefetch};
use teeny_core::Result;

/// The distances of some taps in the packed input.
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

    pub(super) fn table(&self) -> Table<'_> {
        Table { each: &self.each, farthest: self.farthest }
    }
}

/// [`Distances`] as kernels read them.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub each: &'a [usize],
    pub farthest: usize,
}

/// The taps of a tile of results.
#[derive(Clone, Copy)]
struct Taps<T> {
    distances: *const usize,
    /// The weights of the tile's first channel: an element per tap, or a vector if lanes are
    /// channels.
    weights: *const T,
    /// From a channel of the tile to the next, in `weights`.
    stride: usize,
    /// Whether each distance is in another part of memory, which the processor does not prefetch.
    prefetches: bool,
}

impl<T: Float> Taps<T> {
    /// The sums over taps `first .. end` of `M` channels by `N` vectors, which are `step` elements
    /// apart in the packed input. `CHANNELS`: lanes are channels. `PART`: vector v has `counts[v]`
    /// lanes.
    ///
    /// # Safety
    /// There are distances and weights of these taps, and all vectors at these distances from `x`
    /// are readable.
    #[inline(always)]
    unsafe fn sums<
        V: Lanes<T>,
        const CHANNELS: bool,
        const PART: bool,
        const M: usize,
        const N: usize,
    >(
        self,
        x: *const T,
        step: usize,
        [first, end]: [usize; 2],
        counts: [usize; N],
    ) -> [[V; N]; M] {
        // Arrays are indexed by loops that are unrolled: others keep them in memory.
        let mut sums = [[V::splat(T::ZERO); N]; M];
        let mut t = first;
        // SAFETY: by contract.
        unsafe {
            while t < end {
                let from = x.add(*self.distances.add(t));
                let mut xs = [V::splat(T::ZERO); N];
                let mut v = 0;
                while v < N {
                    let from = from.wrapping_add(v * step);
                    xs[v] = if PART { V::load_part(from, counts[v]) } else { V::load(from) };
                    if !CHANNELS && !PART && self.prefetches {
                        prefetch(from.wrapping_add(2 * N * V::LANES).cast());
                    }
                    v += 1;
                }
                let mut r = 0;
                while r < M {
                    let w = match CHANNELS {
                        true => V::load(self.weights.add(t * V::LANES)),
                        false => V::splat(*self.weights.add(r * self.stride + t)),
                    };
                    let mut v = 0;
                    while v < N {
                        sums[r][v] = w.mul_add(xs[v], sums[r][v]);
                        v += 1;
                    }
                    r += 1;
                }
                t += 1;
            }
        }
        sums
    }
}

/// `rows` rows of `n` pixels of `m` channels.
pub(super) struct PixelRows<'a, T> {
    /// The packed input, from the first result's first element on.
    pub x: &'a [T],
    /// The row stride of the packed input.
    pub row_stride: usize,
    pub distances: Table<'a>,
    /// (m, distances)
    pub weight: &'a [T],
    pub m: usize,
    pub rows: usize,
    pub n: usize,
    pub y: *mut T,
    /// From a channel to the next, and from a row to the next.
    pub strides: [usize; 2],
    /// As in [`Taps`].
    pub prefetches: bool,
}

impl<T: Float> Work for PixelRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        self.all::<T::Vector<V>>();
    }
}

impl<T: Float> PixelRows<'_, T> {
    #[inline(always)]
    fn all<V: Lanes<T>>(self) {
        if self.n == 0 || self.rows == 0 {
            return;
        }
        assert!(
            self.distances.farthest + (self.rows - 1) * self.row_stride + self.n <= self.x.len()
                && self.weight.len() == self.m * self.distances.each.len()
        );
        for row in 0..self.rows {
            // SAFETY: the assertion; the driver that made `y` has these results.
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

    /// `M` channels by `N` vectors from column `j` on, up to column n if `PART`.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const M: usize, const N: usize, const PART: bool>(
        &self,
        row: usize,
        m: usize,
        j: usize,
    ) {
        let k = self.distances.each.len();
        let mut counts = [V::LANES; N];
        let mut v = 0;
        while PART && v < N {
            counts[v] = self.n.saturating_sub(j + v * V::LANES).min(V::LANES);
            v += 1;
        }
        // SAFETY: `all` has compared the farthest element that is read with the packed input.
        unsafe {
            let x = self.x.as_ptr().add(row * self.row_stride + j);
            let taps = Taps {
                distances: self.distances.each.as_ptr(),
                weights: self.weight.as_ptr().add(m * k),
                stride: k,
                prefetches: self.prefetches,
            };
            let mut totals = [[V::splat(T::ZERO); N]; M];
            let mut i = 0;
            while i < k {
                let end = if k - i > MAX_CHAIN { i + MAX_CHAIN } else { k };
                let sums = taps.sums::<V, false, PART, M, N>(x, V::LANES, [i, end], counts);
                i = end;
                let mut r = 0;
                while r < M {
                    let mut v = 0;
                    while v < N {
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
                while v < N {
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

/// Results of a tile of [`ChannelRows`], at most.
const MAX_RESULTS: usize = 8;

/// Rows of `width` results, of as many channels as a vector has lanes.
#[derive(Clone, Copy)]
pub(super) struct ChannelRows<'a, T> {
    /// The packed input, from the first result's first element on. `BlockedLayout::steps` has
    /// compared the last elements that are read and written from here and `y` on with their bands.
    pub x: *const T,
    pub distances: Table<'a>,
    /// A vector for each distance.
    pub weights: *const T,
    /// The distances of each row of results: from the first to before the second.
    pub taps: &'a [[usize; 2]],
    pub width: usize,
    /// From a row of results to the next and from a result to the next: in the packed input, and in
    /// `y`.
    pub x_strides: [usize; 2],
    pub y: *mut T,
    pub y_strides: [usize; 2],
}

impl<T: Float> Work for ChannelRows<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let lanes = <T::Vector<V> as Lanes<T>>::LANES;
        if self.x_strides[1] == lanes {
            self.all::<T::Vector<V>, 1>();
        } else if self.x_strides[1] == 2 * lanes {
            self.all::<T::Vector<V>, 2>();
        } else {
            self.all::<T::Vector<V>, 0>();
        }
    }
}

impl<T: Float> ChannelRows<'_, T> {
    /// Rows with a step of `S` vectors, or of any number if that is 0, in tiles of four to
    /// [`MAX_RESULTS`] results that differ by one at most: none is computed twice, and a weight is
    /// loaded for as many as there are registers. Of rows of two or three results the last tile
    /// begins earlier.
    #[inline(always)]
    fn all<V: Lanes<T>, const S: usize>(self) {
        let wide = V::NATIVE && self.width >= 4;
        let tiles = self.width.div_ceil(if wide { MAX_RESULTS } else { 2 });
        let (least, longer) = (self.width / tiles.max(1), self.width % tiles.max(1));
        for row in 0..self.taps.len() {
            let mut at = 0;
            for i in 0..tiles {
                let count = least + usize::from(i < longer);
                // SAFETY: tiles are inside the row, rows inside the band by `BlockedLayout::steps`.
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

    /// Results `at .. at + N` of a row.
    ///
    /// # Safety
    /// They are in the row, and the row is in the band.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, const S: usize, const N: usize>(self, row: usize, at: usize) {
        let step = if S > 0 { S * V::LANES } else { self.x_strides[1] };
        let (distances, weights) = (self.distances.each.as_ptr(), self.weights);
        let taps = Taps { distances, weights, stride: 0, prefetches: false };
        let [down, along] = self.y_strides;
        // SAFETY: by contract; `BlockedLayout::taps` finds the taps of a row among the distances.
        unsafe {
            let x = self.x.add(row * self.x_strides[0] + at * step);
            let [sums] = taps.sums::<V, true, false, 1, N>(x, step, self.taps[row], [V::LANES; N]);
            let y = self.y.add(row * down + at * along);
            let mut p = 0;
            while p < N {
                sums[p].store(y.add(p * along));
                p += 1;
            }
        }
    }
}
