//! A product of matrices on one thread that packs nothing: six rows by four vectors of the result
//! stay in registers while both operands are read where they lie.
//!
//! `gemm` copies its operands into panels first, which pays for large matrices. What is small, or
//! has just been laid out by its owner (columns of a convolution, a transformed image, keys that
//! were turned over), is multiplied here. `gemm` module decides.

use crate::gemm::{Float, Matrix};
use crate::simd::{F32s, Lanes, Level, Work, prefetch};

/// Products that are added up in one chain, at most. Rounding errors grow with this and with the
/// number of such parts, and not with k. Rows of weights mostly lie a power of two apart, and so
/// many of them fall into a quarter of a cache's sets or less.
pub(crate) const DEEP: usize = 512;

/// `c (m, n) = old c + alpha a (m, k) @ b (k, n)`. Rows of `b` and `c` are runs; `a` lies as it
/// likes.
pub(crate) struct Product<T> {
    pub mnk: [usize; 3],
    pub a: Matrix<T>,
    pub b: *const T,
    /// From a row of `b` to the next.
    pub b_step: isize,
    pub c: *mut T,
    /// From a row of `c` to the next.
    pub c_step: isize,
    /// `[old, alpha]`; with `old` zero, `c` is not read.
    pub scales: [T; 2],
}

impl<T: Float> Product<T> {
    /// Whether this level multiplies fast enough here: without vectors of its own `gemm` is better.
    pub(crate) fn suits(level: Level) -> bool {
        level > Level::Portable
    }

    /// Computes it.
    ///
    /// # Safety
    /// `a` and `b` are readable and `c` is writable over (m, k), (k, n) and (m, n), and `c`
    /// overlaps neither.
    pub(crate) unsafe fn run(self, level: Level) {
        let [m, n, k] = self.mnk;
        if k <= DEEP {
            return level.run(self);
        }
        for from in (0..k).step_by(DEEP) {
            let (a, b) = (self.a.at(0, from), self.b.wrapping_offset(from as isize * self.b_step));
            let scales = [if from == 0 { self.scales[0] } else { T::ONE }, self.scales[1]];
            level.run(Product { mnk: [m, n, DEEP.min(k - from)], a, b, scales, ..self });
        }
    }

    /// One strip of columns from `j` on: `NV` vectors, of which the last has `part` lanes if
    /// `PART`.
    #[inline(always)]
    unsafe fn strip<V: Lanes<T>, const NV: usize, const PART: bool>(&self, j: usize, part: usize) {
        let m = self.mnk[0];
        let mut i = 0;
        // SAFETY: blocks lie before row m, but for the second row of the last one, which is not
        // touched.
        unsafe {
            // The last eight as four and four: two rows would wait for every line of the right
            // side.
            while V::NATIVE && i + 6 <= m && m - i != 8 {
                self.block::<V, 6, NV, PART>(i, j, part);
                i += 6;
            }
            while i + 4 <= m {
                self.block::<V, 4, NV, PART>(i, j, part);
                i += 4;
            }
            while i < m {
                self.block::<V, 2, NV, PART>(i, j, part);
                i += 2;
            }
        }
    }

    /// `MR` rows by `NV` vectors of the result at row `i`, column `j`. A row below the last, of
    /// which two rows can have one, is computed as the last and let go.
    #[inline(always)]
    unsafe fn block<V: Lanes<T>, const MR: usize, const NV: usize, const PART: bool>(
        &self,
        i: usize,
        j: usize,
        part: usize,
    ) {
        let [m, _, k] = self.mnk;
        let odd = MR == 2 && i + 1 == m;
        // SAFETY: `run` promises the operands; the block lies inside the result. Loops over
        // registers are counted by hand: what `for` makes of them is most of a block's code before
        // the optimiser has seen it, and there are many blocks.
        unsafe {
            let mut a = [self.a.at(i, 0).ptr; MR];
            let mut r = 1;
            while r < MR && !odd {
                a[r] = self.a.at(i + r, 0).ptr;
                r += 1;
            }
            let (mut along, mut b) = (0isize, self.b.add(j));
            let c = self.c.offset(i as isize * self.c_step).add(j);
            let mut sums = [[V::splat(T::ZERO); NV]; MR];
            // Long sums hide the way to the result's lines.
            if k >= 256 {
                let mut r = 0;
                while r < MR {
                    let mut v = 0;
                    while v < NV {
                        prefetch(
                            c.wrapping_offset(r as isize * self.c_step)
                                .wrapping_add(v * V::LANES)
                                .cast(),
                        );
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
                    let x = V::splat(*a[r].offset(along));
                    let mut v = 0;
                    while v < NV {
                        sums[r][v] = x.fma(row[v], sums[r][v]);
                        v += 1;
                    }
                    r += 1;
                }
                along += self.a.cols;
                b = b.offset(self.b_step);
                depth -= 1;
            }
            let [old, alpha] = self.scales;
            let mut r = 0;
            while r < MR && !(odd && r == 1) {
                let mut v = 0;
                while v < NV {
                    let to = c.offset(r as isize * self.c_step).add(v * V::LANES);
                    let mut sum = sums[r][v];
                    if alpha != T::ONE {
                        sum = sum.mul(V::splat(alpha));
                    }
                    if old != T::ZERO {
                        sum = V::splat(old).fma(
                            if PART && v == NV - 1 { V::load_part(to, part) } else { V::load(to) },
                            sum,
                        );
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
        self.strips::<T::Vector<V>>();
    }
}

impl<T: Float> Product<T> {
    /// Strips as wide as the registers allow: of thirty-two, six rows of four vectors take most, of
    /// sixteen six rows of two. What is left goes three, two vectors or one at a time, the last of
    /// them in part: more kinds of strips would take longer to compile than they save.
    #[inline(always)]
    fn strips<V: Lanes<T>>(self) {
        let (mut j, n) = (0, self.mnk[1]);
        // SAFETY: strips follow one another up to column n.
        unsafe {
            while const { size_of::<V>() == 64 } && j + 4 * V::LANES <= n {
                self.strip::<V, 4, false>(j, 0);
                j += 4 * V::LANES;
            }
            while const { V::NATIVE && size_of::<V>() < 64 } && j + 2 * V::LANES <= n {
                self.strip::<V, 2, false>(j, 0);
                j += 2 * V::LANES;
            }
            if const { size_of::<V>() == 64 } && j + 2 * V::LANES < n && j + 3 * V::LANES >= n {
                self.strip::<V, 3, true>(j, n - j - 2 * V::LANES);
                j = n;
            }
            while V::NATIVE && j + V::LANES < n {
                let part = V::LANES.min(n - j - V::LANES);
                self.strip::<V, 2, true>(j, part);
                j += V::LANES + part;
            }
            while j < n {
                let part = V::LANES.min(n - j);
                self.strip::<V, 1, true>(j, part);
                j += part;
            }
        }
    }
}
