//! One matrix product over raw strided matrices: tiles of the result over threads, the `gemm` crate single-threaded inside.
//!
//! gemm's own threading costs several fork-joins per call and is slower than one thread at 128³; tiles claimed by our threads
//! run at nine tenths of two cores. The tiles depend on the sizes alone, so the bits do not depend on the threads.
//!
//! f32 goes through our own `microkernel`: gemm packs both sides of every tile, which the tiles of a small or middle-sized product never earn back, and a
//! transposed right side number by number, which takes longer than multiplying by it. Everything else is gemm's.

use crate::microkernel::Product;
use crate::scratch::Line;
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
    /// The same where T is known to be f32.
    fn f32s(self) -> Matrix<f32> {
        Matrix { ptr: self.ptr.cast(), rows: self.rows, cols: self.cols }
    }

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

/// Columns of a strip of the right side: four vectors of the widest level.
const STRIP: usize = 64;
/// How much of the axis that is summed away is laid out at a time: a strip takes a tenth of a second cache.
const DEPTH: usize = 384;
/// The same where nothing is laid out: rows of weights mostly lie a power of two apart, and fall into a quarter of a cache's sets or less.
const DEEP: usize = 512;
/// The same for a transposed left side: its lines hold several rows, and must still be at hand when the next rows come.
const SHALLOW: usize = 192;
/// Numbers of a cache line, which a vector of the widest level fills.
const LINE: usize = Line::BYTES / size_of::<f32>();
/// Elements of a right side that is multiplied where it lies.
const IN_PLACE: usize = 256 << 10;

thread_local! {
    /// The strip of the right side, and a result that is still to be turned over.
    static LAID: RefCell<[Vec<Line>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// [`tile`], by the way that is fastest for these operands. f32 is multiplied by our own kernel: where it lies if the whole right side, `right` elements,
/// is small, otherwise by strips that are laid out first.
///
/// # Safety
/// As `tile`.
pub(crate) unsafe fn fastest<T: Float>(
    level: Level,
    [m, n, k]: [usize; 3],
    right: usize,
    c: Matrix<T>,
    [old, alpha]: [T; 2],
    lhs: Matrix<T>,
    rhs: Matrix<T>,
) {
    let f32s = std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>();
    let plain = alpha == T::ONE && (old == T::ZERO || old == T::ONE) && c.cols == 1 && k > 0;
    if !(f32s && plain && Product::<f32>::suits(level)) || (rhs.cols != 1 && rhs.rows != 1) {
        // SAFETY: by contract.
        return unsafe { tile([m, n, k], c, old, alpha, lhs, rhs) };
    }
    let (lhs, rhs, keep) = (lhs.f32s(), rhs.f32s(), old == T::ONE);
    let (to, c_step) = (c.ptr.cast_mut().cast::<f32>(), c.rows);
    // SAFETY: by contract; there is room for a strip.
    unsafe {
        if rhs.cols == 1 && right <= IN_PLACE {
            let depth = if lhs.cols == 1 { DEEP } else { SHALLOW };
            for from in (0..k).step_by(depth) {
                let (a, b) = (lhs.at(0, from), rhs.at(from, 0).ptr);
                Product { mnk: [m, n, depth.min(k - from)], a, b, b_step: rhs.rows, c: to, c_step, add: keep || from > 0 }.run(level);
            }
            return;
        }
        LAID.with_borrow_mut(|[strip, flipped]| {
            strip.resize(DEPTH * STRIP / LINE, Line::ZEROS);
            let strip = strip.as_mut_ptr().cast::<f32>();
            if rhs.cols != 1 && lhs.cols == 1 && m <= STRIP && 2 * m <= n && !keep {
                // Few rows: the other way round, cᵀ = rhsᵀ @ lhsᵀ, so that the small side is the one turned over, and the result.
                flipped.resize(flipped.len().max(n * STRIP / LINE), Line::ZEROS);
                let flipped = flipped.as_mut_ptr().cast::<f32>();
                for from in (0..k).step_by(DEPTH) {
                    let depth = DEPTH.min(k - from);
                    turn(level, lhs.at(0, from).ptr, lhs.rows, strip, STRIP as isize, (depth, m), false);
                    let (a, b, c) = (rhs.at(from, 0).t(), strip.cast_const(), flipped);
                    Product { mnk: [n, m, depth], a, b, b_step: STRIP as isize, c, c_step: STRIP as isize, add: from > 0 }.run(level);
                }
                return turn(level, flipped.cast_const(), STRIP as isize, to, c_step, (m, n), false);
            }
            for j in (0..n).step_by(STRIP) {
                let wide = STRIP.min(n - j);
                let deep = if lhs.cols == 1 { DEPTH } else { SHALLOW };
                for from in (0..k).step_by(deep) {
                    let (depth, rhs) = (deep.min(k - from), rhs.at(from, j));
                    if rhs.cols == 1 {
                        for i in 0..depth {
                            std::ptr::copy_nonoverlapping(rhs.at(i, 0).ptr, strip.add(i * STRIP), wide);
                        }
                    } else {
                        turn(level, rhs.ptr, rhs.cols, strip, STRIP as isize, (depth, wide), false);
                    }
                    let (a, b, c) = (lhs.at(0, from), strip.cast_const(), to.add(j));
                    Product { mnk: [m, wide, depth], a, b, b_step: STRIP as isize, c, c_step, add: keep || from > 0 }.run(level);
                }
            }
        });
    }
}

/// Rows and columns of a tile for a product of this size: as many rows as profit from one strip of the right side, and at least a dozen tiles to share.
pub(crate) fn tile_size([m, n, k]: [usize; 3], batch: usize, laid: bool) -> (usize, usize) {
    if m * n * k * batch < THREAD {
        return (m.max(1), n.max(1));
    }
    let (mut tm, mut tn) = (m.clamp(1, 512), n.clamp(1, 512));
    let tiles = |tm: usize, tn: usize| m.div_ceil(tm) * n.div_ceil(tn) * batch;
    // A strip that has to be laid out should serve many rows, so that columns are split first; few rows become columns, which are best whole vectors.
    let (enough, narrow) = if laid { (6, STRIP) } else { (12, 2 * STRIP) };
    while tiles(tm, tn) < enough && tm * tn * k > THREAD / 4 {
        if tn > narrow {
            tn = (tn / 2).next_multiple_of(STRIP);
        } else if tm > 48 {
            tm = (tm / 2).next_multiple_of(if laid { LINE } else { 12 });
        } else if tn > STRIP {
            tn = STRIP;
        } else if tm > if laid { 32 } else { 24 } {
            tm = (tm / 2).next_multiple_of(if laid { LINE } else { 4 });
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
    let laid = batch == 1 && (at(0).2.cols != 1 || n * k > IN_PLACE);
    let (tm, tn) = tile_size([m, n, k], batch, laid);
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
                fastest(level, size, n * k, c, [old, alpha], lhs, rhs);
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
