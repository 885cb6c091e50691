//! Products of one row, or of few with few: nearly all of their time is that of reading one matrix,
//! which is read once and as it lies.
//!
//! Tiles of registers (`microkernel`) would go through a large matrix in columns of 256 bytes, a
//! page further with each of its rows.

use crate::gemm::{Float, Matrix};
use crate::simd::{F32s, Lanes, Work};

/// `c (n) = old c + alpha a (k) @ b (k, n)` for rows of `b` and `c` that are runs: a few rows of
/// `b` at a time are added to the result.
pub(crate) struct Row<T> {
    pub nk: [usize; 2],
    pub a: *const T,
    /// From an element of `a` to the next.
    pub a_step: isize,
    pub b: *const T,
    /// From a row of `b` to the next.
    pub b_step: isize,
    pub c: *mut T,
    /// `[old, alpha]`; with `old` zero, `c` is not read.
    pub scales: [T; 2],
}

/// Rows of the matrix that are taken together: the result is read and written once for all of them.
const TOGETHER: usize = 8;
/// Rows that are added up in one chain. The sums of such parts are added with compensation, so that
/// rounding errors grow with this and not with k: at most `DEPTH + 2` units of roundoff of Σ |a b|.
const DEPTH: usize = 256;
/// Columns whose sums, in three runs, stay in L1.
const COLUMNS: usize = 512;

impl<T: Float> Work for Row<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let [n, k] = self.nk;
        if k <= DEPTH {
            return self.rows::<V>();
        }
        let [old, alpha] = self.scales;
        for j in (0..n).step_by(COLUMNS) {
            let width = COLUMNS.min(n - j);
            let (mut totals, mut losses) = ([T::ZERO; COLUMNS], [T::ZERO; COLUMNS]);
            let mut part = [T::ZERO; COLUMNS];
            for from in (0..k).step_by(DEPTH) {
                let a = self.a.wrapping_offset(from as isize * self.a_step);
                let b = self.b.wrapping_offset(from as isize * self.b_step).wrapping_add(j);
                let nk = [width, DEPTH.min(k - from)];
                Row { nk, a, b, c: part.as_mut_ptr(), scales: [T::ZERO, alpha], ..self }
                    .rows::<V>();
                for ((total, loss), &term) in totals.iter_mut().zip(&mut losses).zip(&part) {
                    // What the sum loses by rounding (Knuth's TwoSum).
                    let sum = *total + term;
                    let shifted = sum - *total;
                    *loss += (*total - (sum - shifted)) + (term - shifted);
                    *total = sum;
                }
            }
            for i in 0..width {
                // Infinities lose NaN, which is no loss.
                #[allow(clippy::eq_op)]
                let sum = if losses[i] == losses[i] { totals[i] + losses[i] } else { totals[i] };
                // SAFETY: column j + i < n of the result.
                unsafe {
                    let to = self.c.add(j + i);
                    *to = if old == T::ZERO { sum } else { old * *to + sum };
                }
            }
        }
    }
}

impl<T: Float> Row<T> {
    /// All rows in one chain.
    #[inline(always)]
    fn rows<V: F32s>(&self) {
        let (k, mut from) = (self.nk[1], 0);
        // SAFETY: rows below k, in order.
        unsafe {
            while from + TOGETHER <= k {
                self.add::<T::Vector<V>, TOGETHER>(from);
                from += TOGETHER;
            }
            while from < k {
                self.add::<T::Vector<V>, 1>(from);
                from += 1;
            }
        }
    }

    /// Adds `K` rows of `b`, from row `from` on.
    #[inline(always)]
    unsafe fn add<V: Lanes<T>, const K: usize>(&self, from: usize) {
        let (n, [old, alpha]) = (self.nk[0], self.scales);
        let old = if from == 0 { old } else { T::ONE };
        // SAFETY: `run` keeps to the operands' sizes.
        unsafe {
            let mut factors = [V::splat(T::ZERO); K];
            for (k, factor) in factors.iter_mut().enumerate() {
                *factor = V::splat(alpha * *self.a.offset((from + k) as isize * self.a_step));
            }
            let b = self.b.offset(from as isize * self.b_step);
            let mut j = 0;
            while j + V::LANES <= n {
                self.columns::<V, K, false>(&factors, old, b.add(j), self.c.add(j), V::LANES);
                j += V::LANES;
            }
            if j < n {
                self.columns::<V, K, true>(&factors, old, b.add(j), self.c.add(j), n - j);
            }
        }
    }

    /// [`Row::add`] for one vector of columns, of which `part` are there if `PART`.
    #[inline(always)]
    unsafe fn columns<V: Lanes<T>, const K: usize, const PART: bool>(
        &self,
        factors: &[V; K],
        old: T,
        b: *const T,
        c: *mut T,
        part: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            let mut sum = V::splat(T::ZERO);
            if old != T::ZERO {
                sum = V::splat(old).mul(if PART { V::load_part(c, part) } else { V::load(c) });
            }
            for (k, factor) in factors.iter().enumerate() {
                let b = b.offset(k as isize * self.b_step);
                sum = factor.fma(if PART { V::load_part(b, part) } else { V::load(b) }, sum);
            }
            if PART { sum.store_part(c, part) } else { sum.store(c) }
        }
    }
}

/// `c = old c + alpha a @ b` for rows of `a` and columns of `b` that are runs: the inner product of
/// each with each.
pub(crate) struct Dots<T> {
    pub mnk: [usize; 3],
    pub a: Matrix<T>,
    pub b: Matrix<T>,
    pub c: Matrix<T>,
    /// `[old, alpha]`; with `old` zero, `c` is not read.
    pub scales: [T; 2],
}

/// Bytes of a run that are multiplied by several others before the next: all of them stay in the
/// first cache.
const RUN: usize = 4 << 10;
/// Bytes of a run that is multiplied by one other and added up in one go: a lane of the narrowest
/// vectors takes in 256 products, and rounding errors grow with that and the number of such parts.
const LONE_RUN: usize = 32 << 10;

impl<T: Float> Work for Dots<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let [m, n, k] = self.mnk;
        if n > m {
            return Dots { mnk: [n, m, k], a: self.b.t(), b: self.a.t(), c: self.c.t(), ..self }
                .rows::<T::Vector<V>>();
        }
        self.rows::<T::Vector<V>>();
    }
}

impl<T: Float> Dots<T> {
    /// Row after row of `a`, which has more of them than `b` has columns.
    #[inline(always)]
    fn rows<V: Lanes<T>>(mut self) {
        let [m, n, all] = self.mnk;
        let mut from = 0;
        while from < all {
            let run = if n == 1 { LONE_RUN } else { RUN };
            let k = (all - from).min(run / size_of::<T>());
            for i in 0..m {
                let mut j = 0;
                while j + 4 <= n {
                    self.dots::<V, 4>(i, j, from, k);
                    j += 4;
                }
                while j < n {
                    self.dots::<V, 1>(i, j, from, k);
                    j += 1;
                }
            }
            self.scales[0] = T::ONE;
            from += k;
        }
    }

    /// `k` elements from `from` on of row `i` by those of `N` columns from `j` on.
    #[inline(always)]
    fn dots<V: Lanes<T>, const N: usize>(&self, i: usize, j: usize, from: usize, k: usize) {
        let [old, alpha] = self.scales;
        // SAFETY: inside (m, k), (k, n) and (m, n).
        unsafe {
            let mut columns = [self.b.ptr; N];
            for (c, column) in columns.iter_mut().enumerate() {
                *column = self.b.at(from, j + c).ptr;
            }
            let sums = dots::<T, V, N>(self.a.at(i, from).ptr, columns, k);
            for (c, sum) in sums.into_iter().enumerate() {
                let to = self.c.at(i, j + c).ptr.cast_mut();
                *to = if old == T::ZERO { alpha * sum } else { alpha * sum + old * *to };
            }
        }
    }
}

/// Σ x[i] y[i].
///
/// # Safety
/// Both are readable for k elements.
#[inline(always)]
pub(crate) unsafe fn dot<T: Float, V: Lanes<T>>(x: *const T, y: *const T, k: usize) -> T {
    // SAFETY: by contract.
    let [sum] = unsafe { dots::<T, V, 1>(x, [y], k) };
    sum
}

/// Σ x[i] y[i] for each y, in eight vectors of partial sums.
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
