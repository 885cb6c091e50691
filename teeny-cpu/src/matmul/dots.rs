//! Products of operands that are contiguous along k: the inner product of each row of one with each
//! row of the other. Few rows meet many, which are read once and in the order of memory.
//!
//! The naive form is three loops:
//!
//! ```text
//!   for j in 0..n { for i in 0..m { for p in 0..k { c[i][j] += a[i][p] * b[j][p] } } }
//! ```
//! The steps from there:
//!
//! 1. A register tile of up to 4 rows of a by 4 of b: each vector that is loaded is used 4 times.
//!    One row keeps eight vectors of partial sums instead, which hides the latency of an addition.
//!    A large b is read one row at a time.
//! 2. The lanes of four sums are added up together.
//! 3. Long rows are taken in parts that stay in L1, and so are sums: rounding errors grow with the
//!    parts and not with k.
//! 4. 16-bit floats of b are converted in registers ([`Source`]); pairs of bf16 are multiplied as
//!    such where the machine can (`simd::PairWork`).

use super::matrix::Matrix;
use crate::float::Float;
use crate::simd::{F32s, Half, Lanes, PairWork, Work};
use std::marker::PhantomData;

/// How elements in memory become lanes of `V`.
trait Source<T, V: Lanes<T>> {
    /// The element.
    type Element;
    /// # Safety
    /// A vector of elements is readable at `p`.
    unsafe fn load(p: *const Self::Element) -> V;
    /// # Safety
    /// `n` elements are readable at `p`, at most a vector of them.
    unsafe fn load_part(p: *const Self::Element, n: usize) -> V;
}

/// Elements of the type of the lanes.
struct Plain;

impl<T, V: Lanes<T>> Source<T, V> for Plain {
    type Element = T;
    #[inline(always)]
    unsafe fn load(p: *const T) -> V {
        // SAFETY: by contract.
        unsafe { V::load(p) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const T, n: usize) -> V {
        // SAFETY: by contract.
        unsafe { V::load_part(p, n) }
    }
}

/// 16-bit floats.
struct Widened<H>(PhantomData<H>);

impl<H: Half, V: F32s> Source<f32, V> for Widened<H> {
    type Element = u16;
    #[inline(always)]
    unsafe fn load(p: *const u16) -> V {
        // SAFETY: by contract.
        unsafe { V::load_half::<H>(p) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const u16, n: usize) -> V {
        // SAFETY: by contract.
        unsafe { load_half_part::<H, V>(p, n) }
    }
}

/// The first `n` lanes from 16-bit floats; the others are 0.
///
/// # Safety
/// They are readable, and at most a vector.
#[inline(always)]
pub(crate) unsafe fn load_half_part<H: Half, V: F32s>(p: *const u16, n: usize) -> V {
    let mut lanes = [0u16; 16];
    let mut i = 0;
    // SAFETY: by contract; no vector has more than 16 lanes.
    unsafe {
        while i < n {
            lanes[i] = p.add(i).read_unaligned();
            i += 1;
        }
        V::load_half::<H>(lanes.as_ptr())
    }
}

/// `c = beta c + alpha a @ bᵀ` for rows of `a` and `b` that are contiguous along k. `E` is the
/// element of b.
pub(crate) struct Dots<T, E = T> {
    /// Rows of a, rows of b, and k.
    pub mnk: [usize; 3],
    pub a: *const T,
    /// From a row to the next, in bytes.
    pub a_step: isize,
    pub b: *const E,
    /// As `a_step`.
    pub b_step: isize,
    /// Element (i, j) is the product of rows i of a and j of b.
    pub c: Matrix<T>,
    /// With `beta` zero, `c` is not read.
    pub beta: T,
    pub alpha: T,
}

impl<T: Float> Work for Dots<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        self.run_on::<T::Vector<V>, Plain>();
    }
}

/// [`Dots`] whose b is of 16-bit floats.
pub(crate) struct DotsHalf<H>(pub Dots<f32, u16>, pub PhantomData<H>);

impl<H: Half> Work for DotsHalf<H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        self.0.run_on::<V, Widened<H>>();
    }
}

impl PairWork for Dots<f32> {
    #[inline(always)]
    fn run<V: Lanes<f32>>(self) {
        self.run_on::<V, Plain>();
    }
}

/// Bytes of a row that are multiplied by several rows before the next: all of them stay in the
/// first-level cache.
const SHARED_BYTES: usize = 4 << 10;
/// Bytes of a row that are multiplied by a single row and added up in one chain: a lane of the
/// narrowest vectors adds up 256 products.
const SINGLE_BYTES: usize = 32 << 10;

/// Bytes of b from which it probably comes from memory. A single row of a then meets one row of b
/// after the other, at 1.1 to 1.7 times the speed of four together: the processor prefetches one
/// stream better than four that end soon, after a page if they are converted and after four else.
const FAR_BYTES: usize = 512 << 10;
const PAGE_BYTES: usize = 4 << 10;

/// Rows of the next register tile, of `rest` rows: so that no row is left alone. Of sixteen
/// registers, three by four sums and an operand fill most.
#[inline(always)]
fn rows_of_tile(rest: usize, registers: usize) -> usize {
    match (registers == 32, rest) {
        (_, 1..=3) => rest,
        (true, 6) => 3,
        (true, _) => {
            if rest % 4 == 1 {
                3
            } else {
                4
            }
        }
        (false, _) => {
            if rest % 3 == 1 {
                2
            } else {
                3
            }
        }
    }
}

impl<T: Float, E> Dots<T, E> {
    #[inline(always)]
    fn run_on<V: Lanes<T>, S: Source<T, V, Element = E>>(mut self) {
        let [m, n, all] = self.mnk;
        let bytes = if m.min(n) == 1 { SINGLE_BYTES } else { SHARED_BYTES };
        let in_order = self.is_in_order();
        let mut from = 0;
        while from < all {
            let k = (all - from).min(bytes / size_of::<T>());
            let mut j = 0;
            while j + 4 <= n && !in_order {
                let mut i = 0;
                while i < m {
                    // SAFETY: rows i.. and j.. exist, and so do elements from..from + k.
                    unsafe {
                        match rows_of_tile(m - i, V::REGISTERS) {
                            1 => i += self.row::<V, S>(i, j, from, k),
                            2 => i += self.tile::<V, S, 2>(i, j, from, k),
                            3 => i += self.tile::<V, S, 3>(i, j, from, k),
                            _ => i += self.tile::<V, S, 4>(i, j, from, k),
                        }
                    }
                }
                j += 4;
            }
            while j < n {
                let mut i = 0;
                // SAFETY: as above.
                unsafe {
                    while i + 4 <= m {
                        let a = |r| self.a_row(i + r, from);
                        let a = [a(0), a(1), a(2), a(3)];
                        let sums = sums::<T, V, S, Plain, 4>(self.b_row(j, from), a, k);
                        self.put(self.c.at(i, j).t(), &sums);
                        i += 4;
                    }
                    while i < m {
                        let a = [self.a_row(i, from)];
                        let sums = sums::<T, V, S, Plain, 1>(self.b_row(j, from), a, k);
                        self.put(self.c.at(i, j), &sums);
                        i += 1;
                    }
                }
                j += 1;
            }
            self.beta = T::ONE;
            from += k;
        }
    }

    /// Whether the rows of b are read one after the other.
    #[inline(always)]
    fn is_in_order(&self) -> bool {
        let ([m, n, k], size) = (self.mnk, size_of::<E>());
        let short = if size == size_of::<T>() { 4 * PAGE_BYTES } else { PAGE_BYTES };
        m == 1 && k < short / size && n.saturating_mul(k) >= FAR_BYTES / size
    }

    #[inline(always)]
    fn a_row(&self, i: usize, from: usize) -> *const T {
        self.a.wrapping_byte_offset(i as isize * self.a_step).wrapping_add(from)
    }

    #[inline(always)]
    fn b_row(&self, j: usize, from: usize) -> *const E {
        self.b.wrapping_byte_offset(j as isize * self.b_step).wrapping_add(from)
    }

    /// Adds `sums` to the first elements of the first row of `to`, a part of c.
    #[inline(always)]
    unsafe fn put(&self, to: Matrix<T>, sums: &[T]) {
        let (mut at, step) = (to.ptr.cast_mut(), to.col_stride);
        let (alpha, beta) = (self.alpha, self.beta);
        if beta == T::ZERO && alpha == T::ONE && step == 1 {
            // SAFETY: elements of c.
            unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), at, sums.len()) };
            return;
        }
        let mut i = 0;
        while i < sums.len() {
            // SAFETY: elements of c.
            unsafe {
                let sum = alpha * *sums.get_unchecked(i);
                *at = if beta == T::ZERO { sum } else { sum + beta * *at };
            }
            at = at.wrapping_offset(step);
            i += 1;
        }
    }

    /// Row `i` of a by four of b.
    #[inline(always)]
    unsafe fn row<V: Lanes<T>, S: Source<T, V, Element = E>>(
        &self,
        i: usize,
        j: usize,
        from: usize,
        k: usize,
    ) -> usize {
        // SAFETY: by contract of `run_on`.
        unsafe {
            let b = |c| self.b_row(j + c, from);
            let b = [b(0), b(1), b(2), b(3)];
            let sums = sums::<T, V, Plain, S, 4>(self.a_row(i, from), b, k);
            self.put(self.c.at(i, j), &sums);
        }
        1
    }

    /// `R` rows of a by four of b.
    #[inline(always)]
    unsafe fn tile<V: Lanes<T>, S: Source<T, V, Element = E>, const R: usize>(
        &self,
        i: usize,
        j: usize,
        from: usize,
        k: usize,
    ) -> usize {
        let mut sums = [[V::splat(T::ZERO); 4]; R];
        // SAFETY: by contract of `run_on`; reads are below k. Loops over registers are written with
        // `while`: `for` makes more code of them before optimisation.
        unsafe {
            let (mut a, mut b) = ([self.a_row(i, from); R], [self.b_row(j, from); 4]);
            let mut r = 1;
            while r < R {
                a[r] = self.a_row(i + r, from);
                r += 1;
            }
            let mut c = 1;
            while c < 4 {
                b[c] = self.b_row(j + c, from);
                c += 1;
            }
            let mut p = 0;
            while p + V::LANES <= k {
                let mut columns = [V::splat(T::ZERO); 4];
                let mut c = 0;
                while c < 4 {
                    columns[c] = S::load(b[c].add(p));
                    c += 1;
                }
                let mut r = 0;
                while r < R {
                    let x = V::load(a[r].add(p));
                    let mut c = 0;
                    while c < 4 {
                        sums[r][c] = x.mul_add(columns[c], sums[r][c]);
                        c += 1;
                    }
                    r += 1;
                }
                p += V::LANES;
            }
            if p < k {
                let mut columns = [V::splat(T::ZERO); 4];
                let mut c = 0;
                while c < 4 {
                    columns[c] = S::load_part(b[c].add(p), k - p);
                    c += 1;
                }
                let mut r = 0;
                while r < R {
                    let x = V::load_part(a[r].add(p), k - p);
                    let mut c = 0;
                    while c < 4 {
                        sums[r][c] = x.mul_add(columns[c], sums[r][c]);
                        c += 1;
                    }
                    r += 1;
                }
            }
            // Written out, so that the sums stay in registers.
            let mut totals = [[T::ZERO; 4]; 4];
            totals[0] = V::totals(sums[0]);
            if const { R > 1 } {
                totals[1] = V::totals(sums[const { if R > 1 { 1 } else { 0 } }]);
            }
            if const { R > 2 } {
                totals[2] = V::totals(sums[const { if R > 2 { 2 } else { 0 } }]);
            }
            if const { R > 3 } {
                totals[3] = V::totals(sums[const { if R > 3 { 3 } else { 0 } }]);
            }
            let mut r = 0;
            while r < R {
                self.put(self.c.at(i + r, j), &totals[r]);
                r += 1;
            }
        }
        R
    }
}

/// `Σ x[i] y[i]`.
///
/// # Safety
/// Both are readable for k elements.
#[inline(always)]
pub(crate) unsafe fn dot<T: Float, V: Lanes<T>>(x: *const T, y: *const T, k: usize) -> T {
    // SAFETY: by contract.
    let [sum] = unsafe { sums::<T, V, Plain, Plain, 1>(x, [y], k) };
    sum
}

/// `Σ x[i] y[i]` for each y, in eight vectors of partial sums.
///
/// # Safety
/// All are readable for k elements.
#[inline(always)]
unsafe fn sums<T: Float, V: Lanes<T>, X: Source<T, V>, Y: Source<T, V>, const N: usize>(
    x: *const X::Element,
    ys: [*const Y::Element; N],
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
                let x = X::load(x.add(at));
                for (n, y) in ys.iter().enumerate() {
                    sums[n * each + part] = x.mul_add(Y::load(y.add(at)), sums[n * each + part]);
                }
            }
            i += width;
        }
        while i + V::LANES <= k {
            let x = X::load(x.add(i));
            for (n, y) in ys.iter().enumerate() {
                sums[n * each] = x.mul_add(Y::load(y.add(i)), sums[n * each]);
            }
            i += V::LANES;
        }
        if i < k {
            let x = X::load_part(x.add(i), k - i);
            for (n, y) in ys.iter().enumerate() {
                sums[n * each + 1] = x.mul_add(Y::load_part(y.add(i), k - i), sums[n * each + 1]);
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
