//! Products by the `gemm` crate on the calling thread.
//!
//! gemm adds up all of k in one chain. Here it multiplies [`MAX_CHAIN`] columns of lhs at a time,
//! so that rounding errors grow with the number of such parts and not with k.

use super::matrix::Matrix;
use super::microkernel::MAX_CHAIN;
use super::tile::Tile;
use crate::Cpu;
use crate::FloatMatmul;
use crate::float::Float;
use crate::pool::Buffer;
use crate::scratch::with_scratch;
use teeny_core::{Result, memory};

/// Bytes of the buffer that gemm keeps for each thread: the size of the L2 cache, at most this on
/// usual processors.
const THREAD_BUFFER: usize = 4 << 20;

/// Checks that there is memory for gemm to pack operands of this size: gemm aborts the process if
/// its allocation fails. The device counts the same number of bytes until the returned block is
/// dropped. The allocator provides them once and takes them back; another thread could take them
/// before gemm does.
///
/// # Errors
/// If there is no such memory.
fn reserve_packing<T: Float>(cpu: &Cpu, [m, n, k]: [usize; 3]) -> Result<Buffer> {
    // Both operands packed, in whole tiles of registers.
    const TILE: usize = 128;
    let bytes = (m + n + 2 * TILE).saturating_mul(k.min(MAX_CHAIN)).saturating_mul(size_of::<T>());
    let counted = cpu.scratch(bytes)?;
    drop(memory::reserved::<u8>(bytes.saturating_add(THREAD_BUFFER))?);
    Ok(counted)
}

/// Computes a tile, `k > 0`.
///
/// # Safety
/// As [`Tile::run`].
///
/// # Errors
/// If there is no memory for gemm to pack operands into.
pub(super) unsafe fn run<T: Float>(cpu: &Cpu, tile: Tile<T>) -> Result<()> {
    let Tile { mnk: [m, n, k], lhs, rhs, c, beta, alpha, .. } = tile;
    let _counted = reserve_packing::<T>(cpu, tile.mnk)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    let is_vector = (m == 1 || n == 1) && k > MAX_CHAIN;
    if is_vector && cpu.float_matmul == FloatMatmul::GemmCrate {
        // SAFETY: by contract.
        return unsafe { vector(cpu, tile) };
    }
    // SAFETY: by contract; blocks of k are parts of both operands.
    unsafe {
        if m == 1 && k > MAX_CHAIN {
            row([n, k], c, [beta, alpha], lhs, rhs);
            return Ok(());
        }
        if n == 1 && k > MAX_CHAIN {
            row([m, k], c.t(), [beta, alpha], rhs.t(), lhs.t());
            return Ok(());
        }
        for from in (0..k).step_by(MAX_CHAIN) {
            let beta = if from == 0 { beta } else { T::ONE };
            call([m, n, MAX_CHAIN.min(k - from)], lhs.at(0, from), rhs.at(from, 0), c, beta, alpha);
        }
    }
    Ok(())
}

/// One call of gemm: `c = beta c + alpha lhs @ rhs`.
///
/// # Safety
/// As [`Tile::run`].
unsafe fn call<T: Float>(
    [m, n, k]: [usize; 3],
    lhs: Matrix<T>,
    rhs: Matrix<T>,
    c: Matrix<T>,
    beta: T,
    alpha: T,
) {
    // SAFETY: by contract.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.ptr.cast_mut(),
            c.col_stride,
            c.row_stride,
            beta != T::ZERO,
            lhs.ptr,
            lhs.col_stride,
            lhs.row_stride,
            rhs.ptr,
            rhs.col_stride,
            rhs.row_stride,
            beta,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// One row or one column by gemm, which would add all of its terms to `c` in one chain: each part of
/// [`MAX_CHAIN`] terms goes to scratch memory, which is added to `c`.
///
/// # Safety
/// As [`Tile::run`], for m = 1 or n = 1.
///
/// # Errors
/// If there is no scratch memory.
unsafe fn vector<T: Float>(cpu: &Cpu, tile: Tile<T>) -> Result<()> {
    let Tile { mnk: [m, n, k], lhs, rhs, c, beta, alpha, .. } = tile;
    with_scratch(cpu, [m * n], |[part]: [&mut [T]; 1]| {
        let ptr = part.as_mut_ptr();
        // m or n is 1, so rows follow one another.
        let sums = Matrix { ptr: ptr.cast_const(), row_stride: n as isize, col_stride: 1 };
        for from in (0..k).step_by(MAX_CHAIN) {
            let size = [m, n, MAX_CHAIN.min(k - from)];
            let (lhs, rhs) = (lhs.at(0, from), rhs.at(from, 0));
            // SAFETY: by contract; `part` has m * n elements.
            unsafe {
                if from == 0 {
                    call(size, lhs, rhs, c, beta, alpha);
                    continue;
                }
                call(size, lhs, rhs, sums, T::ZERO, alpha);
                for i in 0..m {
                    for j in 0..n {
                        *c.at(i, j).ptr.cast_mut() += *sums.at(i, j).ptr;
                    }
                }
            }
        }
    })
}

/// One row whose operands have gaps, without gemm: each part of `MAX_CHAIN` terms is summed by itself.
///
/// # Safety
/// As [`Tile::run`], for m = 1.
unsafe fn row<T: Float>(
    [n, k]: [usize; 2],
    c: Matrix<T>,
    [beta, alpha]: [T; 2],
    lhs: Matrix<T>,
    rhs: Matrix<T>,
) {
    /// Columns whose sums stay in registers or the first-level cache.
    const COLUMNS: usize = 64;
    for first in (0..n).step_by(COLUMNS) {
        let columns = COLUMNS.min(n - first);
        let mut totals = [T::ZERO; COLUMNS];
        for part in (0..k).step_by(MAX_CHAIN) {
            let mut sums = [T::ZERO; COLUMNS];
            for p in part..k.min(part + MAX_CHAIN) {
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
            unsafe {
                *to = if beta == T::ZERO { alpha * total } else { *to * beta + alpha * total }
            };
        }
    }
}
