//! A product of f32 matrices on one thread that packs nothing: six rows by four vectors of the result stay in registers while
//! both operands are read where they lie.
//!
//! `gemm` copies its operands into panels first, which pays for large matrices. What is small, or has just been laid out by its
//! owner (columns of a convolution, a transformed image, keys that were turned over), is multiplied here. `gemm` module decides.

use crate::gemm::Matrix;
use crate::simd::{F32s, Level, Work, prefetch};

/// `c (m, n) = a (m, k) @ b (k, n)`, or added to what is there. Rows of `b` and `c` are runs; `a` lies as it likes.
pub(crate) struct Product<T> {
    pub mnk: [usize; 3],
    pub a: Matrix<T>,
    pub b: *const T,
    /// From a row of `b` to the next.
    pub b_step: isize,
    pub c: *mut T,
    /// From a row of `c` to the next.
    pub c_step: isize,
    /// Whether the product is added to what `c` holds.
    pub add: bool,
}

impl Product<f32> {
    /// Whether this level multiplies fast enough here: without vectors of its own `gemm` is better.
    pub(crate) fn suits(level: Level) -> bool {
        level > Level::Portable
    }

    /// Computes it.
    ///
    /// # Safety
    /// `a` and `b` are readable and `c` is writable over (m, k), (k, n) and (m, n), and `c` overlaps neither.
    pub(crate) unsafe fn run(self, level: Level) {
        level.run(self);
    }

    /// One strip of columns from `j` on, of which the last vector has `part` lanes if `PART`.
    #[inline(always)]
    unsafe fn strip<V: F32s, const NV: usize, const PART: bool>(&self, j: usize, part: usize) {
        let m = self.mnk[0];
        let mut i = 0;
        // SAFETY: blocks lie before row m.
        unsafe {
            // The last eight as four and four: two rows would wait for every line of the right side.
            while V::NATIVE && i + 6 <= m && m - i != 8 {
                self.block::<V, 6, NV, PART>(i, j, part);
                i += 6;
            }
            while i + 4 <= m {
                self.block::<V, 4, NV, PART>(i, j, part);
                i += 4;
            }
            while V::NATIVE && i + 2 <= m {
                self.block::<V, 2, NV, PART>(i, j, part);
                i += 2;
            }
            while i < m {
                self.block::<V, 1, NV, PART>(i, j, part);
                i += 1;
            }
        }
    }

    /// `MR` rows by `NV` vectors of the result at row `i`, column `j`.
    #[inline(always)]
    unsafe fn block<V: F32s, const MR: usize, const NV: usize, const PART: bool>(&self, i: usize, j: usize, part: usize) {
        let last = |v: usize| PART && v == NV - 1;
        // SAFETY: `run` promises the operands; the block lies inside the result.
        unsafe {
            let mut a = [self.a.ptr; MR];
            for (r, a) in a.iter_mut().enumerate() {
                *a = self.a.at(i + r, 0).ptr;
            }
            let (mut along, mut b) = (0isize, self.b.add(j));
            let mut sums = [[V::splat(0.0); NV]; MR];
            // Long sums hide the way to the result's lines.
            for r in 0..if self.mnk[2] >= 256 { MR } else { 0 } {
                for v in 0..NV {
                    prefetch(self.c.wrapping_offset((i + r) as isize * self.c_step).wrapping_add(j + v * V::LANES));
                }
            }
            for _ in 0..self.mnk[2] {
                let mut row = [V::splat(0.0); NV];
                for (v, to) in row.iter_mut().enumerate() {
                    let from = b.add(v * V::LANES);
                    *to = if last(v) { V::load_part(from, part) } else { V::load(from) };
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = V::splat(*a[r].offset(along));
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = x.fma(row[v], *sum);
                    }
                }
                along += self.a.cols;
                b = b.offset(self.b_step);
            }
            for (r, sums) in sums.into_iter().enumerate() {
                let c = self.c.offset((i + r) as isize * self.c_step).add(j);
                for (v, mut sum) in sums.into_iter().enumerate() {
                    let to = c.add(v * V::LANES);
                    if self.add {
                        sum = sum.add(if last(v) { V::load_part(to, part) } else { V::load(to) });
                    }
                    if last(v) { sum.store_part(to, part) } else { sum.store(to) }
                }
            }
        }
    }
}

/// Vectors side by side in a block: sixteen registers hold six rows of two, thirty-two of four.
const fn strip<V: F32s>() -> usize {
    match V::LANES {
        16 => 4,
        _ if V::NATIVE => 2,
        _ => 1,
    }
}

impl Work for Product<f32> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        // Each kind of strip is compiled only for a level that has it.
        let (mut j, n) = (0, self.mnk[1]);
        // SAFETY: strips follow one another up to column n.
        unsafe {
            while j + strip::<V>() * V::LANES <= n {
                match const { strip::<V>() } {
                    4 => self.strip::<V, 4, false>(j, 0),
                    2 => self.strip::<V, 2, false>(j, 0),
                    _ => self.strip::<V, 1, false>(j, 0),
                }
                j += strip::<V>() * V::LANES;
            }
            let rest = n - j;
            if rest > 0 {
                let vectors = rest.div_ceil(V::LANES);
                let part = rest - (vectors - 1) * V::LANES;
                match vectors {
                    1 => self.strip::<V, 1, true>(j, part),
                    2 if const { strip::<V>() >= 2 } => self.strip::<V, 2, true>(j, part),
                    3 if const { strip::<V>() == 4 } => self.strip::<V, 3, true>(j, part),
                    _ if const { strip::<V>() == 4 } => self.strip::<V, 4, true>(j, part),
                    _ => unreachable!("a rest is shorter than a strip"),
                }
            }
        }
    }
}
