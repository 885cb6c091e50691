//! Products by the `gemm` crate on the calling thread.
//!
//! gemm adds up all of k in one chain. Here it multiplies [`MAX_CHAIN`] columns of lhs at a time,
//! so that rounding errors grow with the number of such parts and not with k.

use super::gemm::Tile;
use super::matrix::{Float, Matrix};
use super::microkernel::{MAX_CHAIN, Product};
use crate::Cpu;
use crate::pool::Buffer;
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
            let (depth, lhs, rhs) = (MAX_CHAIN.min(k - from), lhs.at(0, from), rhs.at(from, 0));
            let beta = if from == 0 { beta } else { T::ONE };
            gemm::gemm(
                m,
                n,
                depth,
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
    Ok(())
}

/// A product as the microkernel takes it.
///
/// # Safety
/// As [`Product::run`].
///
/// # Errors
/// As `run`.
pub(super) unsafe fn run_product<T: Float>(cpu: &Cpu, product: Product<T>) -> Result<()> {
    let Product { mnk, a, b, b_row_stride, c, c_row_stride, beta, alpha } = product;
    let rhs = Matrix { ptr: b, row_stride: b_row_stride, col_stride: 1 };
    let c = Matrix { ptr: c.cast_const(), row_stride: c_row_stride, col_stride: 1 };
    let tile = Tile { mnk, lhs: a, rhs, c, beta, alpha, rhs_numel: mnk[1] * mnk[2] };
    // SAFETY: by contract. The tile goes through `Tile::run`, which handles an empty k.
    unsafe { tile.run(cpu) }
}

/// One row: gemm would add a vector's terms to `c` one by one, in a chain as long as k. Here each
/// part of `MAX_CHAIN` terms is summed by itself.
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
