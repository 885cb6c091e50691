//! One matrix product over raw strided matrices: tiles of the result over threads, the `gemm` crate single-threaded inside.
//!
//! gemm's own threading costs several fork-joins per call and is slower than one thread at 128³; tiles claimed by our threads
//! run at nine tenths of two cores. The tiles depend on the sizes alone, so the bits do not depend on the threads.
//!
//! gemm packs a transposed right side number by number, which takes longer than multiplying by it; such a panel is turned over through registers first.

use crate::simd::{F32s, Level, Work};
use crate::threads::for_each_chunk;
use crate::transpose::turn;
use std::cell::RefCell;

/// A matrix: the first element and the strides between rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub ptr: *const T,
    pub rows: isize,
    pub cols: isize,
}

// SAFETY: only reads, from storages that are borrowed for as long as it lives.
unsafe impl<T> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Matrix<T> {}

impl<T> Matrix<T> {
    /// The matrix that begins at row i, column j.
    pub(crate) fn at(self, i: usize, j: usize) -> Matrix<T> {
        Matrix { ptr: self.ptr.wrapping_offset(i as isize * self.rows + j as isize * self.cols), ..self }
    }
}

impl<T> Matrix<T> {
    /// The transpose.
    pub(crate) fn t(self) -> Matrix<T> {
        Matrix { rows: self.cols, cols: self.rows, ..self }
    }
}

/// Multiplications from which a second thread pays.
pub(crate) const THREAD: usize = 1 << 19;

/// An element of matrices that `gemm` multiplies. Public only because `blas::BlasFloat` builds on it; this module is private.
pub trait Float: Copy + Default + PartialEq + std::ops::Mul<Output = Self> + std::ops::AddAssign + Send + Sync + 'static {
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
}
impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}
impl Float for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}

/// `c = old c + alpha lhs @ rhs` for one tile on this thread; with `old` zero, `c` is not read.
///
/// # Safety
/// `c` is writable and overlaps neither operand; all are readable over (m, n), (m, k), (k, n).
pub(crate) unsafe fn tile<T: Float>([m, n, k]: [usize; 3], c: Matrix<T>, old: T, alpha: T, lhs: Matrix<T>, rhs: Matrix<T>) {
    if m == 0 || n == 0 {
        return;
    }
    let (to, none) = (c.ptr.cast_mut(), gemm::Parallelism::None);
    // SAFETY: by contract.
    unsafe {
        if k == 0 || alpha == T::ZERO {
            for i in 0..m {
                for j in 0..n {
                    let at = to.offset(i as isize * c.rows + j as isize * c.cols);
                    *at = if old == T::ZERO { T::ZERO } else { *at * old };
                }
            }
            return;
        }
        let keep = old != T::ZERO;
        gemm::gemm(
            m, n, k, to, c.cols, c.rows, keep, lhs.ptr, lhs.cols, lhs.rows, rhs.ptr, rhs.cols, rhs.rows, old, alpha, false, false, false, none,
        );
    }
}

/// Rows of a tile from which it pays to turn over a transposed right side.
const TURN: usize = 24;
/// How much of the axis that is summed away is turned over at a time: a panel of 512 columns then stays in the second cache.
const DEPTH: usize = 384;

thread_local! {
    /// The panel that has been turned over.
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// As [`tile`], for a right side whose columns lie in rows, by way of panels; false if this is none.
///
/// # Safety
/// As `tile`.
unsafe fn turned<T: Float>(level: Level, [m, n, k]: [usize; 3], c: Matrix<T>, old: T, alpha: T, lhs: Matrix<T>, rhs: Matrix<T>) -> bool {
    let f32s = std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>();
    if !f32s || m < TURN || n < 16 || k < 16 || rhs.rows != 1 || rhs.cols == 1 {
        return false;
    }
    // not a power of two, so that the lines of a column do not fall into one set of the cache
    let step = n.next_multiple_of(16) + 16;
    PANEL.with_borrow_mut(|panel| {
        panel.resize(panel.len().max(DEPTH.min(k) * step), 0.0);
        for from in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - from);
            let old = if from == 0 { old } else { T::ONE };
            // SAFETY: by contract; the panel has room for `depth` rows of `step`.
            unsafe {
                turn(level, rhs.at(from, 0).ptr.cast::<f32>(), rhs.cols, panel.as_mut_ptr(), step as isize, (depth, n), false);
                let rhs = Matrix { ptr: panel.as_ptr().cast::<T>(), rows: step as isize, cols: 1 };
                tile([m, n, depth], c, old, alpha, lhs.at(0, from), rhs);
            }
        }
    });
    true
}

/// [`tile`], by the way that is faster for this right side.
///
/// # Safety
/// As `tile`.
pub(crate) unsafe fn turned_or_not<T: Float>(level: Level, mnk: [usize; 3], c: Matrix<T>, old: T, alpha: T, lhs: Matrix<T>, rhs: Matrix<T>) {
    // SAFETY: by contract.
    unsafe {
        if !turned(level, mnk, c, old, alpha, lhs, rhs) {
            tile(mnk, c, old, alpha, lhs, rhs);
        }
    }
}

/// Rows and columns of a tile for a product of this size: about 192 x 512, smaller where that gives too few tiles to share.
pub(crate) fn tile_size(m: usize, n: usize, k: usize, batch: usize) -> (usize, usize) {
    let (mut tm, mut tn) = (m, n);
    if m * n * k * batch < THREAD {
        return (m.max(1), n.max(1));
    }
    tm = tm.clamp(1, 192);
    tn = tn.clamp(1, 512);
    let tiles = |tm: usize, tn: usize| m.div_ceil(tm) * n.div_ceil(tn) * batch;
    while tiles(tm, tn) < 12 && tm * tn * k > THREAD / 4 {
        if tn > 64 && tn >= tm {
            tn = (tn / 2).next_multiple_of(16);
        } else if tm > 24 {
            tm = (tm / 2).next_multiple_of(12);
        } else {
            break;
        }
    }
    (tm, tn)
}

/// `batch` products of one size, `c = old c + alpha lhs @ rhs`; `at(b)` gives result, left and right matrix of each.
///
/// # Safety
/// As `tile`, for every product; the results do not overlap.
pub(crate) unsafe fn batched<T: Float>(
    level: Level,
    [m, n, k]: [usize; 3],
    batch: usize,
    [old, alpha]: [T; 2],
    at: impl Fn(usize) -> (Matrix<T>, Matrix<T>, Matrix<T>) + Sync,
) {
    if m * n * batch == 0 {
        return;
    }
    let vector = (m == 1 || n == 1) && k > 0 && old == T::ZERO && alpha == T::ONE;
    let (tm, tn) = tile_size(m, n, k, batch);
    let (rows, columns) = (m.div_ceil(tm), n.div_ceil(tn));
    let tasks = batch * rows * columns;
    let work = |t: usize| {
        let (b, t) = (t / (rows * columns), t % (rows * columns));
        let (i, j) = (t / columns * tm, t % columns * tn);
        let size = [tm.min(m - i), tn.min(n - j), k];
        let (c, lhs, rhs) = at(b);
        let (c, lhs, rhs) = (c.at(i, j), lhs.at(i, 0), rhs.at(0, j));
        // SAFETY: tiles of one result do not overlap.
        unsafe {
            if !(vector && matvec(level, size, c, lhs, rhs)) {
                turned_or_not(level, size, c, old, alpha, lhs, rhs);
            }
        }
    };
    let per_chunk = (THREAD / 4 / (tm * tn * k).max(1)).max(1);
    if m * n * k * batch < THREAD {
        (0..tasks).for_each(work);
    } else {
        for_each_chunk(tasks.div_ceil(per_chunk), |c| (c * per_chunk..((c + 1) * per_chunk).min(tasks)).for_each(&work));
    }
}

/// A product with a vector on one side, if this is f32 and the matrix has a unit stride: `y[j] = Σ_i x[i] a[i][j]`.
///
/// # Safety
/// As `tile`.
unsafe fn matvec<T: Float>(level: Level, [m, n, k]: [usize; 3], c: Matrix<T>, lhs: Matrix<T>, rhs: Matrix<T>) -> bool {
    if std::any::TypeId::of::<T>() != std::any::TypeId::of::<f32>() {
        return false;
    }
    // Written as a row vector times a matrix (k, count).
    let (count, x, step, a, inner, outer, y, y_step) = if m == 1 {
        (n, lhs.ptr, lhs.cols, rhs.ptr, rhs.rows, rhs.cols, c.ptr, c.cols)
    } else {
        (m, rhs.ptr, rhs.rows, lhs.ptr, lhs.cols, lhs.rows, c.ptr, c.rows)
    };
    if step != 1 || y_step != 1 && count > 1 || inner != 1 && outer != 1 {
        return false;
    }
    let work = Matvec { k, count, x: x.cast(), a: a.cast(), inner, outer, y: y.cast_mut().cast() };
    level.run(work);
    true
}

struct Matvec {
    k: usize,
    count: usize,
    x: *const f32,
    a: *const f32,
    inner: isize,
    outer: isize,
    y: *mut f32,
}

impl Work for Matvec {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Matvec { k, count, x, a, inner, outer, y } = self;
        // SAFETY: `matvec` promises k values of x, count of y and the (k, count) matrix a.
        unsafe {
            if inner == 1 {
                for j in 0..count {
                    *y.add(j) = dot::<V>(x, a.offset(j as isize * outer), k);
                }
                return;
            }
            // Columns side by side: four vectors of sums go down the matrix together.
            let width = 4 * V::LANES;
            let mut j = 0;
            while j + width <= count {
                let mut sums = [V::splat(0.0); 4];
                for i in 0..k {
                    let (xi, row) = (V::splat(*x.add(i)), a.offset(i as isize * inner).add(j));
                    for (lane, sum) in sums.iter_mut().enumerate() {
                        *sum = xi.fma(V::load(row.add(lane * V::LANES)), *sum);
                    }
                }
                for (lane, sum) in sums.into_iter().enumerate() {
                    sum.store(y.add(j + lane * V::LANES));
                }
                j += width;
            }
            for j in j..count {
                let mut sum = 0.0f64;
                for i in 0..k {
                    sum += f64::from(*x.add(i)) * f64::from(*a.offset(i as isize * inner).add(j));
                }
                *y.add(j) = sum as f32;
            }
        }
    }
}

/// Σ x[i] a[i] in eight vectors of partial sums.
#[inline(always)]
pub(crate) unsafe fn dot<V: F32s>(x: *const f32, a: *const f32, k: usize) -> f32 {
    let mut sums = [V::splat(0.0); 8];
    let (mut i, width) = (0, 8 * V::LANES);
    // SAFETY: all reads are below k.
    unsafe {
        while i + width <= k {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let at = i + lane * V::LANES;
                *sum = V::load(x.add(at)).fma(V::load(a.add(at)), *sum);
            }
            i += width;
        }
        while i + V::LANES <= k {
            sums[0] = V::load(x.add(i)).fma(V::load(a.add(i)), sums[0]);
            i += V::LANES;
        }
        if i < k {
            sums[1] = V::load_part(x.add(i), k - i).fma(V::load_part(a.add(i), k - i), sums[1]);
        }
        for step in [4, 2, 1] {
            for lane in 0..step {
                sums[lane] = sums[lane].add(sums[lane + step]);
            }
        }
        let mut lanes = [0.0f32; 16];
        sums[0].store(lanes.as_mut_ptr());
        lanes.iter().map(|&v| f64::from(v)).sum::<f64>() as f32
    }
}
