//! One matrix product over raw strided matrices: tiles of the result over threads, the `gemm` crate
//! single-threaded inside.
//!
//! gemm's own threading costs several fork-joins per call and is slower than one thread at 128³;
//! tiles claimed by our threads run at nine tenths of two cores. The tiles depend on the sizes
//! alone, so the bits do not depend on the threads.
//!
//! On x86 f32 and f64 go through our own `microkernel`: gemm packs both sides of every tile, which
//! the tiles of a small or middle-sized product never earn back, and a transposed right side number
//! by number, which takes longer than multiplying by it. One row, or few with few, have their own
//! loops (`thin`). Everything else is gemm's: other processors, and operands without runs.

use crate::Cpu;
use crate::microkernel::{DEEP, Product};
use crate::pool::Buffer;
use crate::scratch::{LINE, with_scratch};
use crate::simd::{F32s, Lanes};
use crate::thin::{Dots, Row};
use crate::threads::try_for_each_chunk;
use crate::transpose::turn;
use teeny_core::{Result, memory};

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
        Matrix {
            ptr: self.ptr.wrapping_offset(i as isize * self.rows + j as isize * self.cols),
            ..self
        }
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

/// An element of matrices that `gemm` multiplies. Public only because `blas::BlasFloat` builds on
/// it; this module is private.
pub trait Float:
    Copy
    + Default
    + PartialEq
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::AddAssign
    + Send
    + Sync
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// The vector of such numbers of the level whose vector of f32 is `V`.
    type Vector<V: F32s>: Lanes<Self>;
    /// The nearest number.
    fn from_f64(x: f64) -> Self;
}
impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    type Vector<V: F32s> = V;
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}
impl Float for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    type Vector<V: F32s> = V::F64s;
    fn from_f64(x: f64) -> f64 {
        x
    }
}

/// `c = old c + alpha lhs @ rhs` for one tile on this thread; with `old` zero, `c` is not read.
///
/// # Safety
/// `c` is writable and overlaps neither operand; all are readable over (m, n), (m, k), (k, n).
pub(crate) unsafe fn tile<T: Float>(
    [m, n, k]: [usize; 3],
    c: Matrix<T>,
    old: T,
    alpha: T,
    lhs: Matrix<T>,
    rhs: Matrix<T>,
) {
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
        if m == 1 && k > DEEP {
            return row([n, k], c, [old, alpha], lhs, rhs);
        }
        if n == 1 && k > DEEP {
            return row([m, k], c.t(), [old, alpha], rhs.t(), lhs.t());
        }
        for from in (0..k).step_by(DEEP) {
            let (deep, lhs, rhs) = (DEEP.min(k - from), lhs.at(0, from), rhs.at(from, 0));
            let old = if from == 0 { old } else { T::ONE };
            let (keep, (a, b)) = (old != T::ZERO, (lhs, rhs));
            gemm::gemm(
                m, n, deep, to, c.cols, c.rows, keep, a.ptr, a.cols, a.rows, b.ptr, b.cols, b.rows,
                old, alpha, false, false, false, none,
            );
        }
    }
}

/// One row of [`tile`]: gemm would add a vector's terms to `c` one by one, in a chain as long as k.
/// Here each part of `DEEP` terms is summed apart.
///
/// # Safety
/// As `tile`, for m = 1.
unsafe fn row<T: Float>(
    [n, k]: [usize; 2],
    c: Matrix<T>,
    [old, alpha]: [T; 2],
    lhs: Matrix<T>,
    rhs: Matrix<T>,
) {
    /// Columns whose sums stay in registers or the first cache.
    const COLUMNS: usize = 64;
    for first in (0..n).step_by(COLUMNS) {
        let columns = COLUMNS.min(n - first);
        let mut totals = [T::ZERO; COLUMNS];
        for part in (0..k).step_by(DEEP) {
            let mut sums = [T::ZERO; COLUMNS];
            for p in part..k.min(part + DEEP) {
                // SAFETY: p < k, and the columns are less than n.
                let a = unsafe { *lhs.at(0, p).ptr };
                for (j, sum) in sums[..columns].iter_mut().enumerate() {
                    // SAFETY: as above.
                    *sum += a * unsafe { *rhs.at(p, first + j).ptr };
                }
            }
            totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
        for (j, &total) in totals[..columns].iter().enumerate() {
            let to = c.at(0, first + j).ptr.cast_mut();
            // SAFETY: `c` is writable over (1, n).
            unsafe { *to = if old == T::ZERO { alpha * total } else { *to * old + alpha * total } };
        }
    }
}

/// Bytes of a row of a strip of the right side: four vectors of the widest level.
const STRIP: usize = 4 * LINE;
/// How much of the axis that is summed away is laid out at a time: a strip takes a tenth of a
/// second cache.
const DEPTH: usize = 384;
/// The same for a transposed left side: its lines hold several rows, and must still be at hand when
/// the next rows come.
const SHALLOW: usize = 192;
/// Bytes of a right side that is multiplied where it lies.
const IN_PLACE: usize = 1 << 20;
/// Rows that a large right side is not laid out for.
const FEW_ROWS: usize = 64;
/// Rows or columns that are inner products: more share what they read in registers.
const FEW_DOTS: usize = 8;
/// Bytes of a run from which an inner product is worth adding up its vector's lanes.
const LONG: usize = 256;

/// Bytes of the buffer that the `gemm` crate keeps for each thread: the size of the L2 cache, at
/// most this on usual processors.
const GEMM_SLAB: usize = 4 << 20;

/// Checks that there is memory for the `gemm` crate to pack operands of this size: gemm aborts the
/// process if its allocation fails. The device counts the same number of bytes until the returned
/// block is dropped. The allocator gives them once and takes them back; another thread could take
/// them before gemm does.
///
/// # Errors
/// If there is no such memory.
fn room_for_gemm<T: Float>(cpu: &Cpu, [m, n, k]: [usize; 3]) -> Result<Buffer> {
    // Both operands packed, in whole tiles of registers.
    const TILE: usize = 128;
    let bytes = (m + n + 2 * TILE).saturating_mul(k.min(DEEP)).saturating_mul(size_of::<T>());
    let counted = cpu.scratch(bytes)?;
    drop(memory::reserved::<u8>(bytes.saturating_add(GEMM_SLAB))?);
    Ok(counted)
}

/// [`tile`], by the way that is fastest for these operands. Our own kernel multiplies them where
/// they lie if the whole right side, `right` elements, is small, otherwise by strips that are laid
/// out first.
///
/// # Safety
/// As `tile`.
///
/// # Errors
/// If there is no memory to lay operands out in; `c` may be half done then.
pub(crate) unsafe fn fastest<T: Float>(
    cpu: &Cpu,
    [m, n, k]: [usize; 3],
    right: usize,
    c: Matrix<T>,
    [old, alpha]: [T; 2],
    lhs: Matrix<T>,
    rhs: Matrix<T>,
) -> Result<()> {
    let level = cpu.level;
    if n == 1 && m > 1 && lhs.rows == 1 {
        // SAFETY: the same product, transposed.
        return unsafe { fastest(cpu, [n, m, k], right, c.t(), [old, alpha], rhs.t(), lhs.t()) };
    }
    let (own, scales) = (Product::<T>::suits(level), [old, alpha]);
    let nothing = k == 0 || alpha == T::ZERO;
    if !nothing {
        let few = m == 1 || n == 1 || own && m.min(n) <= FEW_DOTS && k * size_of::<T>() >= LONG;
        if few && lhs.cols == 1 && rhs.rows == 1 {
            level.run(Dots { mnk: [m, n, k], a: lhs, b: rhs, c, scales });
            return Ok(());
        }
        if m == 1 && rhs.cols == 1 && c.cols == 1 {
            level.run(Row {
                nk: [n, k],
                a: lhs.ptr,
                a_step: lhs.cols,
                b: rhs.ptr,
                b_step: rhs.rows,
                c: c.ptr.cast_mut(),
                scales,
            });
            return Ok(());
        }
    }
    if nothing || !own || c.cols != 1 || (rhs.cols != 1 && rhs.rows != 1) {
        let _packed = if nothing { None } else { Some(room_for_gemm::<T>(cpu, [m, n, k])?) };
        // SAFETY: by contract.
        unsafe { tile([m, n, k], c, old, alpha, lhs, rhs) };
        return Ok(());
    }
    let (to, c_step) = (c.ptr.cast_mut(), c.rows);
    let scales = |from: usize| [if from == 0 { old } else { T::ONE }, alpha];
    // SAFETY: by contract; there is room for a strip.
    unsafe {
        if rhs.cols == 1 && (m <= FEW_ROWS || right * size_of::<T>() <= IN_PLACE) {
            let depth = if lhs.cols == 1 { DEEP } else { SHALLOW };
            for from in (0..k).step_by(depth) {
                let (a, b) = (lhs.at(0, from), rhs.at(from, 0).ptr);
                Product {
                    mnk: [m, n, depth.min(k - from)],
                    a,
                    b,
                    b_step: rhs.rows,
                    c: to,
                    c_step,
                    scales: scales(from),
                }
                .run(level);
            }
            return Ok(());
        }
        let width = STRIP / size_of::<T>();
        // Few rows: the other way round, cᵀ = rhsᵀ @ lhsᵀ, so that the small side is the one turned
        // over, and the result.
        let other_way =
            rhs.cols != 1 && lhs.cols == 1 && m <= width && 2 * m <= n && old == T::ZERO;
        // The strip of the right side, and a result that is still to be turned over.
        let sizes = [DEPTH * width, if other_way { n * width } else { 0 }];
        with_scratch(cpu, sizes, |[strip, flipped]: [&mut [T]; 2]| {
            let strip = strip.as_mut_ptr();
            if other_way {
                let flipped = flipped.as_mut_ptr();
                for from in (0..k).step_by(DEPTH) {
                    let depth = DEPTH.min(k - from);
                    turn(
                        level,
                        lhs.at(0, from).ptr,
                        lhs.rows,
                        strip,
                        width as isize,
                        (depth, m),
                        false,
                    );
                    let (a, b, c) = (rhs.at(from, 0).t(), strip.cast_const(), flipped);
                    Product {
                        mnk: [n, m, depth],
                        a,
                        b,
                        b_step: width as isize,
                        c,
                        c_step: width as isize,
                        scales: scales(from),
                    }
                    .run(level);
                }
                return turn(
                    level,
                    flipped.cast_const(),
                    width as isize,
                    to,
                    c_step,
                    (m, n),
                    false,
                );
            }
            for j in (0..n).step_by(width) {
                let wide = width.min(n - j);
                let deep = if lhs.cols == 1 { DEPTH } else { SHALLOW };
                for from in (0..k).step_by(deep) {
                    let (depth, rhs) = (deep.min(k - from), rhs.at(from, j));
                    if rhs.cols == 1 {
                        for i in 0..depth {
                            std::ptr::copy_nonoverlapping(
                                rhs.at(i, 0).ptr,
                                strip.add(i * width),
                                wide,
                            );
                        }
                    } else {
                        turn(level, rhs.ptr, rhs.cols, strip, width as isize, (depth, wide), false);
                    }
                    let (a, b, c) = (lhs.at(0, from), strip.cast_const(), to.add(j));
                    Product {
                        mnk: [m, wide, depth],
                        a,
                        b,
                        b_step: width as isize,
                        c,
                        c_step,
                        scales: scales(from),
                    }
                    .run(level);
                }
            }
        })
    }
}

/// Rows and columns of a tile for a product of this size: as many rows as profit from one strip of
/// the right side, and at least a dozen tiles to share.
pub(crate) fn tile_size([m, n, k]: [usize; 3], batch: usize, laid: bool) -> (usize, usize) {
    if m * n * k * batch < THREAD {
        return (m.max(1), n.max(1));
    }
    // Numbers of f32 in a strip's row and in a line; of f64 these are two of each.
    const COLUMNS: usize = STRIP / size_of::<f32>();
    const NUMBERS: usize = LINE / size_of::<f32>();
    let (mut tm, mut tn) = (m.clamp(1, 512), n.clamp(1, 512));
    let tiles = |tm: usize, tn: usize| m.div_ceil(tm) * n.div_ceil(tn) * batch;
    // A strip that has to be laid out should serve many rows, so that columns are split first; few
    // rows become columns, which are best whole vectors.
    let (enough, narrow) = if laid { (6, COLUMNS) } else { (12, 2 * COLUMNS) };
    while tiles(tm, tn) < enough && tm * tn * k > THREAD / 4 {
        if tn > narrow {
            tn = (tn / 2).next_multiple_of(COLUMNS);
        } else if tm > 48 {
            tm = (tm / 2).next_multiple_of(if laid { NUMBERS } else { 12 });
        } else if tn > COLUMNS {
            tn = COLUMNS;
        } else if tm > if laid { 32 } else { 24 } {
            tm = (tm / 2).next_multiple_of(if laid { NUMBERS } else { 4 });
        } else {
            break;
        }
    }
    (tm, tn)
}

/// `batch` products of one size, `c = old c + alpha lhs @ rhs`; `at(b)` gives result, left and
/// right matrix of each.
///
/// # Safety
/// As `tile`, for every product; the results do not overlap.
///
/// # Errors
/// As `fastest`.
pub(crate) unsafe fn batched<T: Float>(
    cpu: &Cpu,
    [m, n, k]: [usize; 3],
    batch: usize,
    [old, alpha]: [T; 2],
    at: impl Fn(usize) -> (Matrix<T>, Matrix<T>, Matrix<T>) + Sync,
) -> Result<()> {
    if m * n * batch == 0 {
        return Ok(());
    }
    let laid = batch == 1 && (at(0).2.cols != 1 || n * k * size_of::<T>() > IN_PLACE);
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
        unsafe { fastest(cpu, size, n * k, c, [old, alpha], lhs, rhs) }
    };
    let per_chunk = (THREAD / 4 / (tm * tn * k).max(1)).max(1);
    if m * n * k * batch < THREAD {
        (0..tasks).try_for_each(work)
    } else {
        try_for_each_chunk(tasks.div_ceil(per_chunk), |c| {
            (c * per_chunk..((c + 1) * per_chunk).min(tasks)).try_for_each(&work)
        })
    }
}
