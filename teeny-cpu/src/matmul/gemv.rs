//! A row times a matrix with contiguous rows: nearly all of its time goes to reading the matrix,
//! once and in memory order.
//!
//! The naive form is `for p in 0..k { for j in 0..n { c[j] += a[p] * b[p][j] } }`. [`Gemv`] takes
//! eight rows of b at a time, so that c is read and written once for all of them, and adds up at
//! most 256 rows in f32 before the sums go on with compensation. The register tiles of
//! `microkernel` would read a large b in columns of 256 bytes, with a new page for each row.
//! Products of operands that are contiguous along k are in `dots`.

use crate::float::Float;
use crate::simd::{F32s, Lanes, Work};

/// `c (n) = beta c + alpha a (k) @ b (k, n)` for contiguous rows of `b` and `c`.
pub(crate) struct Gemv<T> {
    pub nk: [usize; 2],
    pub a: *const T,
    /// From an element of `a` to the next.
    pub a_stride: isize,
    pub b: *const T,
    /// From a row of `b` to the next.
    pub b_row_stride: isize,
    pub c: *mut T,
    /// With `beta` zero, `c` is not read.
    pub beta: T,
    pub alpha: T,
}

/// Rows of b that are taken together: the result is read and written once for all of them.
const ROWS_TOGETHER: usize = 8;
/// Rows that are added up in one chain. The sums of such parts are added with compensation, so that
/// rounding errors grow with this and not with k: at most `CHAIN + 2` units of roundoff of Σ |a b|.
const CHAIN: usize = 256;
/// Columns whose sums, in three arrays, stay in L1.
const COLUMNS: usize = 512;

impl<T: Float> Work for Gemv<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let [n, k] = self.nk;
        if k <= CHAIN {
            return self.chain::<V>();
        }
        for j in (0..n).step_by(COLUMNS) {
            let width = COLUMNS.min(n - j);
            let (mut totals, mut losses) = ([T::ZERO; COLUMNS], [T::ZERO; COLUMNS]);
            let mut part = [T::ZERO; COLUMNS];
            for from in (0..k).step_by(CHAIN) {
                let a = self.a.wrapping_offset(from as isize * self.a_stride);
                let b = self.b.wrapping_offset(from as isize * self.b_row_stride).wrapping_add(j);
                let nk = [width, CHAIN.min(k - from)];
                Gemv { nk, a, b, c: part.as_mut_ptr(), beta: T::ZERO, ..self }.chain::<V>();
                for ((total, loss), &term) in totals.iter_mut().zip(&mut losses).zip(&part) {
                    // The rounding error of the sum (Knuth's TwoSum).
                    let sum = *total + term;
                    let shifted = sum - *total;
                    *loss += (*total - (sum - shifted)) + (term - shifted);
                    *total = sum;
                }
            }
            for i in 0..width {
                // The loss of an infinite sum is NaN and is left out.
                #[allow(clippy::eq_op)]
                let sum = if losses[i] == losses[i] { totals[i] + losses[i] } else { totals[i] };
                // SAFETY: column j + i < n of the result.
                unsafe {
                    let to = self.c.add(j + i);
                    *to = if self.beta == T::ZERO { sum } else { self.beta * *to + sum };
                }
            }
        }
    }
}

impl<T: Float> Gemv<T> {
    /// All rows in one chain.
    #[inline(always)]
    fn chain<V: F32s>(&self) {
        let (k, mut from) = (self.nk[1], 0);
        // SAFETY: rows below k, in order.
        unsafe {
            while from + ROWS_TOGETHER <= k {
                self.add_rows::<T::Vector<V>, ROWS_TOGETHER>(from);
                from += ROWS_TOGETHER;
            }
            while from < k {
                self.add_rows::<T::Vector<V>, 1>(from);
                from += 1;
            }
        }
    }

    /// Adds `K` rows of `b`, from row `from` on.
    #[inline(always)]
    unsafe fn add_rows<V: Lanes<T>, const K: usize>(&self, from: usize) {
        let (n, alpha) = (self.nk[0], self.alpha);
        let beta = if from == 0 { self.beta } else { T::ONE };
        // SAFETY: `run` stays within the operands' sizes.
        unsafe {
            let mut factors = [V::splat(T::ZERO); K];
            for (k, factor) in factors.iter_mut().enumerate() {
                *factor = V::splat(alpha * *self.a.offset((from + k) as isize * self.a_stride));
            }
            let b = self.b.offset(from as isize * self.b_row_stride);
            let mut j = 0;
            while j + V::LANES <= n {
                self.add_vector::<V, K, false>(&factors, beta, b.add(j), self.c.add(j), V::LANES);
                j += V::LANES;
            }
            if j < n {
                self.add_vector::<V, K, true>(&factors, beta, b.add(j), self.c.add(j), n - j);
            }
        }
    }

    /// [`Gemv::add_rows`] for one vector of columns, of which `part` exist if `PART`.
    #[inline(always)]
    unsafe fn add_vector<V: Lanes<T>, const K: usize, const PART: bool>(
        &self,
        factors: &[V; K],
        beta: T,
        b: *const T,
        c: *mut T,
        part: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            let mut sum = V::splat(T::ZERO);
            if beta != T::ZERO {
                sum = V::splat(beta).mul(if PART { V::load_part(c, part) } else { V::load(c) });
            }
            for (k, factor) in factors.iter().enumerate() {
                let b = b.offset(k as isize * self.b_row_stride);
                sum = factor.mul_add(if PART { V::load_part(b, part) } else { V::load(b) }, sum);
            }
            if PART { sum.store_part(c, part) } else { sum.store(c) }
        }
    }
}
