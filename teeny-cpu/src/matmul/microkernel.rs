//! A product of matrices on one thread that packs nothing: rows of the right operand are
//! contiguous, because they were stored or packed so.
//!
//! The naive form is three loops:
//!
//! ```text
//!   for i in 0..m { for j in 0..n { for p in 0..k { c[i][j] += a[i][p] * b[p][j] } } }
//! ```
//! The steps from there:
//!
//! 1. p becomes the innermost loop around a register tile of 6 rows by 4 vectors of c (6 by 2 where
//!    there are sixteen registers, 4 by 2 where products need one of them): each value that is
//!    loaded is used 6 or 64 times.
//! 2. Column panels as wide as a register tile are the outermost loop, so that their part of b
//!    stays in a cache while all rows of a go by.
//! 3. Column panels that are not whole vectors load and store the last vector in part.
//! 4. k is split so that no sum is a chain of more than [`MAX_CHAIN`] products.
//!
//! An element of c is a sum over p in ascending order in such chains, in any tile: tile sizes are
//! free, `MAX_CHAIN` changes the bits. A column panel is a range of columns; it need not be packed.

use super::matrix::Matrix;
use crate::float::Float;
use crate::simd::{F32s, Lanes, Level, PairWork, Work, prefetch};

/// The most products that are added up in one chain. Rounding errors grow with this and with the
/// number of such parts, and not with k. It also bounds the rows of b in use: rows of weights are
/// mostly a power of two apart, so that many of them share a quarter of a cache's sets or less.
pub(crate) const MAX_CHAIN: usize = 512;

/// `c (m, n) = beta c + alpha a (m, k) @ b (k, n)`. Rows of `b` and `c` are contiguous; `a` has any
/// strides.
pub(crate) struct Product<T> {
    pub mnk: [usize; 3],
    pub a: Matrix<T>,
    pub b: *const T,
    /// From a row of `b` to the next.
    pub b_row_stride: isize,
    pub c: *mut T,
    /// From a row of `c` to the next.
    pub c_row_stride: isize,
    /// With `beta` zero, `c` is not read.
    pub beta: T,
    pub alpha: T,
}

impl<T: Float> Product<T> {
    /// Computes it with the instructions of `level`.
    ///
    /// # Safety
    /// `a` and `b` are readable and `c` is writable over (m, k), (k, n) and (m, n), and `c`
    /// overlaps neither.
    pub(crate) unsafe fn run(self, level: Level) {
        let [m, n, k] = self.mnk;
        if k <= MAX_CHAIN {
            return level.run(self);
        }
        for from in (0..k).step_by(MAX_CHAIN) {
            let a = self.a.at(0, from);
            let b = self.b.wrapping_offset(from as isize * self.b_row_stride);
            let beta = if from == 0 { self.beta } else { T::ONE };
            level.run(Product { mnk: [m, n, MAX_CHAIN.min(k - from)], a, b, beta, ..self });
        }
    }

    /// The column panel of `NV` vectors from column `j` on, of which the last has `part` lanes if
    /// `PART`.
    #[inline(always)]
    unsafe fn panel<V: Lanes<T>, const NV: usize, const PART: bool>(&self, j: usize, part: usize) {
        let m = self.mnk[0];
        let mut i = 0;
        // SAFETY: register tiles are above row m, except for the second row of the last one, which
        // is not touched.
        unsafe {
            // The last eight rows are four and four: two rows would wait for every cache line of b.
            while const { V::NATIVE && V::FUSED } && i + 6 <= m && m - i != 8 {
                self.register_tile::<V, 6, NV, PART>(i, j, part);
                i += 6;
            }
            while i + 4 <= m {
                self.register_tile::<V, 4, NV, PART>(i, j, part);
                i += 4;
            }
            while i < m {
                self.register_tile::<V, 2, NV, PART>(i, j, part);
                i += 2;
            }
        }
    }

    /// `MR` rows by `NV` vectors of the result at row `i`, column `j`. If the second of two rows is
    /// below the last, the last row is computed twice and stored once.
    #[inline(always)]
    unsafe fn register_tile<V: Lanes<T>, const MR: usize, const NV: usize, const PART: bool>(
        &self,
        i: usize,
        j: usize,
        part: usize,
    ) {
        let [m, _, k] = self.mnk;
        let odd = MR == 2 && i + 1 == m;
        // SAFETY: `run` promises the operands; the tile is inside the result. Loops over registers
        // are written with `while`: `for` makes more code of them before optimisation, and there
        // are many register tiles.
        unsafe {
            let mut a = [self.a.at(i, 0).ptr; MR];
            let mut r = 1;
            while r < MR && !odd {
                a[r] = self.a.at(i + r, 0).ptr;
                r += 1;
            }
            let (mut a_offset, mut b) = (0isize, self.b.add(j));
            let c = self.c.offset(i as isize * self.c_row_stride).add(j);
            let mut sums = [[V::splat(T::ZERO); NV]; MR];
            // Long sums hide the time until the cache lines of the result are there.
            if k >= 256 {
                let mut r = 0;
                while r < MR {
                    let mut v = 0;
                    while v < NV {
                        let row = c.wrapping_offset(r as isize * self.c_row_stride);
                        prefetch(row.wrapping_add(v * V::LANES).cast());
                        v += 1;
                    }
                    r += 1;
                }
            }
            let mut depth = k;
            while depth > 0 {
                let mut row = [V::splat(T::ZERO); NV];
                let mut v = 0;
                while v < NV {
                    let from = b.add(v * V::LANES);
                    row[v] =
                        if PART && v == NV - 1 { V::load_part(from, part) } else { V::load(from) };
                    v += 1;
                }
                let mut r = 0;
                while r < MR {
                    let x = V::splat(*a[r].offset(a_offset));
                    let mut v = 0;
                    while v < NV {
                        sums[r][v] = x.mul_add(row[v], sums[r][v]);
                        v += 1;
                    }
                    r += 1;
                }
                a_offset += self.a.col_stride;
                b = b.offset(self.b_row_stride);
                depth -= 1;
            }
            let (beta, alpha) = (self.beta, self.alpha);
            let mut r = 0;
            while r < MR && !(odd && r == 1) {
                let mut v = 0;
                while v < NV {
                    let to = c.offset(r as isize * self.c_row_stride).add(v * V::LANES);
                    let mut sum = sums[r][v];
                    if alpha != T::ONE {
                        sum = sum.mul(V::splat(alpha));
                    }
                    if beta != T::ZERO {
                        // No `fma`: on pairs of bf16 it multiplies other numbers.
                        let old =
                            if PART && v == NV - 1 { V::load_part(to, part) } else { V::load(to) };
                        sum = V::splat(beta).mul(old).add(sum);
                    }
                    if PART && v == NV - 1 {
                        sum.store_part(to, part)
                    } else {
                        sum.store(to)
                    }
                    v += 1;
                }
                r += 1;
            }
        }
    }
}

impl<T: Float> Work for Product<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        self.panels::<T::Vector<V>>();
    }
}

/// Elements of `a` and `b` are pairs of bf16 along k, and `beta` and `alpha` are 0 or 1.
impl PairWork for Product<f32> {
    #[inline(always)]
    fn run<V: Lanes<f32>>(self) {
        self.panels::<V>();
    }
}

impl<T: Float> Product<T> {
    /// Column panels as wide as the registers allow: of thirty-two, six rows of four vectors use
    /// most, of sixteen six rows of two. The rest goes three, two vectors or one at a time, the
    /// last of them in part: more kinds of panels would take longer to compile than they save.
    #[inline(always)]
    fn panels<V: Lanes<T>>(self) {
        let (mut j, n) = (0, self.mnk[1]);
        // SAFETY: panels follow one another up to column n.
        unsafe {
            while const { V::REGISTERS == 32 } && j + 4 * V::LANES <= n {
                self.panel::<V, 4, false>(j, 0);
                j += 4 * V::LANES;
            }
            while const { V::NATIVE && V::REGISTERS < 32 } && j + 2 * V::LANES <= n {
                self.panel::<V, 2, false>(j, 0);
                j += 2 * V::LANES;
            }
            if const { V::REGISTERS == 32 } && j + 2 * V::LANES < n && j + 3 * V::LANES >= n {
                self.panel::<V, 3, true>(j, n - j - 2 * V::LANES);
                j = n;
            }
            while V::NATIVE && j + V::LANES < n {
                let part = V::LANES.min(n - j - V::LANES);
                self.panel::<V, 2, true>(j, part);
                j += V::LANES + part;
            }
            while j < n {
                let part = V::LANES.min(n - j);
                self.panel::<V, 1, true>(j, part);
                j += part;
            }
        }
    }
}
