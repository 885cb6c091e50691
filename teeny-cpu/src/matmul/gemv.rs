//! Products of one row, or of few rows with few columns: nearly all of their time is that of
//! reading one matrix, which is read once and in the order of memory.
//!
//! The naive form is two loops, in one of two orders:
//!
//! ```text
//!   Gemv   for p in 0..k { for j in 0..n { c[j] += a[p] * b[p][j] } }   rows of b contiguous
//!   Dot    for j in 0..n { for p in 0..k { c[j] += a[p] * b[p][j] } }   columns of b contiguous
//! ```
//! [`Gemv`] takes eight rows of b at a time, so that c is read and written once for all of them,
//! and adds up at most 256 rows in f32 before the sums go on with compensation. [`Dot`] keeps eight
//! vectors of partial sums, which hides the latency of an addition. The register tiles of
//! `microkernel` would read a large b in columns of 256 bytes, with a new page for each row.

use super::matrix::Matrix;
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
                sum = factor.fma(if PART { V::load_part(b, part) } else { V::load(b) }, sum);
            }
            if PART { sum.store_part(c, part) } else { sum.store(c) }
        }
    }
}

/// `c = beta c + alpha a @ b` for contiguous rows of `a` and columns of `b`: the inner product of
/// each with each.
pub(crate) struct Dot<T> {
    pub mnk: [usize; 3],
    pub a: Matrix<T>,
    pub b: Matrix<T>,
    pub c: Matrix<T>,
    /// With `beta` zero, `c` is not read.
    pub beta: T,
    pub alpha: T,
}

/// Bytes of a row that are multiplied by several columns before the next: all of them stay in the
/// first-level cache.
const SHARED_BYTES: usize = 4 << 10;
/// Bytes of a row that are multiplied by a single column and added up in one chain: a lane of the
/// narrowest vectors adds up 256 products, and rounding errors grow with that and with the number
/// of such parts.
const SINGLE_BYTES: usize = 32 << 10;

impl<T: Float> Work for Dot<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let [m, n, k] = self.mnk;
        if n > m {
            return Dot { mnk: [n, m, k], a: self.b.t(), b: self.a.t(), c: self.c.t(), ..self }
                .rows::<T::Vector<V>>();
        }
        self.rows::<T::Vector<V>>();
    }
}

impl<T: Float> Dot<T> {
    /// Row after row of `a`, which has at least as many of them as `b` has columns.
    #[inline(always)]
    fn rows<V: Lanes<T>>(mut self) {
        let [m, n, all] = self.mnk;
        let mut from = 0;
        while from < all {
            let bytes = if n == 1 { SINGLE_BYTES } else { SHARED_BYTES };
            let k = (all - from).min(bytes / size_of::<T>());
            for i in 0..m {
                let mut j = 0;
                while j + 4 <= n {
                    self.row_by_columns::<V, 4>(i, j, from, k);
                    j += 4;
                }
                while j < n {
                    self.row_by_columns::<V, 1>(i, j, from, k);
                    j += 1;
                }
            }
            self.beta = T::ONE;
            from += k;
        }
    }

    /// `k` elements from `from` on of row `i` by those of `N` columns from `j` on.
    #[inline(always)]
    fn row_by_columns<V: Lanes<T>, const N: usize>(
        &self,
        i: usize,
        j: usize,
        from: usize,
        k: usize,
    ) {
        let (beta, alpha) = (self.beta, self.alpha);
        // SAFETY: inside (m, k), (k, n) and (m, n).
        unsafe {
            let mut columns = [self.b.ptr; N];
            for (c, column) in columns.iter_mut().enumerate() {
                *column = self.b.at(from, j + c).ptr;
            }
            let sums = dots::<T, V, N>(self.a.at(i, from).ptr, columns, k);
            for (c, sum) in sums.into_iter().enumerate() {
                let to = self.c.at(i, j + c).ptr.cast_mut();
                *to = if beta == T::ZERO { alpha * sum } else { alpha * sum + beta * *to };
            }
        }
    }
}

/// `Σ x[i] y[i]`.
///
/// # Safety
/// Both are readable for k elements.
#[inline(always)]
pub(crate) unsafe fn dot<T: Float, V: Lanes<T>>(x: *const T, y: *const T, k: usize) -> T {
    // SAFETY: by contract.
    let [sum] = unsafe { dots::<T, V, 1>(x, [y], k) };
    sum
}

/// `Σ x[i] y[i]` for each y, in eight vectors of partial sums.
///
/// # Safety
/// All are readable for k elements.
#[inline(always)]
unsafe fn dots<T: Float, V: Lanes<T>, const N: usize>(
    x: *const T,
    ys: [*const T; N],
    k: usize,
) -> [T; N] {
    let each = const { 8 / N };
    let mut sums = [V::splat(T::ZERO); 8];
    let mut totals = [T::ZERO; N];
    let (mut i, width) = (0, each * V::LANES);
    // SAFETY: all reads are below k.
    unsafe {
        while i + width <= k {
            for part in 0..each {
                let at = i + part * V::LANES;
                let x = V::load(x.add(at));
                for (n, y) in ys.iter().enumerate() {
                    sums[n * each + part] = x.fma(V::load(y.add(at)), sums[n * each + part]);
                }
            }
            i += width;
        }
        while i + V::LANES <= k {
            let x = V::load(x.add(i));
            for (n, y) in ys.iter().enumerate() {
                sums[n * each] = x.fma(V::load(y.add(i)), sums[n * each]);
            }
            i += V::LANES;
        }
        if i < k {
            let x = V::load_part(x.add(i), k - i);
            for (n, y) in ys.iter().enumerate() {
                sums[n * each + 1] = x.fma(V::load_part(y.add(i), k - i), sums[n * each + 1]);
            }
        }
    }
    for (n, total) in totals.iter_mut().enumerate() {
        let mut step = each / 2;
        while step > 0 {
            for part in n * each..n * each + step {
                sums[part] = sums[part].add(sums[part + step]);
            }
            step /= 2;
        }
        *total = sums[n * each].total();
    }
    totals
}
