//! Products by the `gemm` crate on the calling thread.
//!
//! gemm adds up all of k in one chain. Here it multiplies [`MAX_CHAIN`] columns of lhs at a time,
//! so that rounding errors grow with the number of such parts and not with k.
//!
//! gemm aborts the process where it finds no memory to pack an operand into, so it never packs one
//! of these products: operands that it would pack are copied to scratch memory first, which fails
//! with an error. [`multiply_block`] states the layouts that gemm does not pack. The one buffer that
//! gemm keeps for each thread is allocated here too, by [`allocate_thread_buffer`].

use super::matrix::Matrix;
use super::microkernel::MAX_CHAIN;
use super::pack::pack_rows;
use super::tile::Tile;
use crate::Cpu;
use crate::FloatMatmul;
use crate::float::Float;
use crate::scratch::{LINE, with_scratch};
use dyn_stack::{MemBuffer, StackReq};
use gemm_common::cache::CACHE_INFO;
use gemm_common::gemm::{CACHELINE_ALIGN, L2_SLAB};
use std::cell::Cell;
use teeny_core::{Error, Result};

/// Rows and columns of a part of a tile that gemm multiplies at a time.
const BLOCK: usize = 512;

/// Register tiles of rows above which gemm packs rhs: the most that gemm accepts. Its lowest
/// register tile has two rows, so [`BLOCK`] rows never have more.
const NEVER_PACK: usize = 256;

/// Allocates gemm's buffer of the calling thread, at the thread's first product. gemm would
/// allocate it itself, and abort the process if that fails.
///
/// # Errors
/// If allocating the buffer fails.
fn allocate_thread_buffer() -> Result<()> {
    thread_local! { static ALLOCATED: Cell<bool> = const { Cell::new(false) } }
    if ALLOCATED.get() {
        return Ok(());
    }
    let bytes = CACHE_INFO[1].cache_bytes; // of the L2 cache
    let buffer = MemBuffer::try_new(StackReq::new_aligned::<u8>(bytes, CACHELINE_ALIGN));
    L2_SLAB.set(buffer.map_err(|_| no_memory(bytes))?); // in place of gemm's own initialisation
    ALLOCATED.set(true);
    Ok(())
}

#[cold]
fn no_memory(bytes: usize) -> Error {
    Error::out_of_memory(format!("no memory for a thread's buffer of {bytes} bytes for products"))
        .help("fewer threads need fewer buffers: RAYON_NUM_THREADS")
}

/// Computes a tile, `k > 0`.
///
/// # Safety
/// As [`Tile::run`].
///
/// # Errors
/// If allocating gemm's buffer or the copies of operands fails.
pub(super) unsafe fn run<T: Float>(cpu: &Cpu, tile: Tile<T>) -> Result<()> {
    let Tile { mnk: [m, n, k], lhs, rhs, c, beta, alpha, .. } = tile;
    if m == 0 || n == 0 {
        return Ok(());
    }
    gemm::set_rhs_packing_threshold(NEVER_PACK);
    allocate_thread_buffer()?;
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
            let part = Tile {
                mnk: [m, n, MAX_CHAIN.min(k - from)],
                lhs: lhs.at(0, from),
                rhs: rhs.at(from, 0),
                beta: if from == 0 { beta } else { T::ONE },
                ..tile
            };
            multiply(cpu, part)?;
        }
    }
    Ok(())
}

/// `c = beta c + alpha lhs @ rhs` of at most [`MAX_CHAIN`] terms, block by block.
///
/// # Safety
/// As [`Tile::run`].
///
/// # Errors
/// As [`multiply_block`].
unsafe fn multiply<T: Float>(cpu: &Cpu, tile: Tile<T>) -> Result<()> {
    let Tile { mnk: [m, n, k], lhs, rhs, c, .. } = tile;
    for i in (0..m).step_by(BLOCK) {
        for j in (0..n).step_by(BLOCK) {
            let mnk = [BLOCK.min(m - i), BLOCK.min(n - j), k];
            let block = Tile { mnk, lhs: lhs.at(i, 0), rhs: rhs.at(0, j), c: c.at(i, j), ..tile };
            // SAFETY: by contract; blocks are parts of the operands and of c.
            unsafe { multiply_block(cpu, block)? };
        }
    }
    Ok(())
}

/// A block of at most [`BLOCK`] rows and columns and [`MAX_CHAIN`] terms.
///
/// gemm packs neither operand if the elements of a column of lhs follow one another in memory, and
/// their number is a multiple of a vector, and the elements of a column of rhs follow one another.
/// Operands of another layout are copied, lhs with rows of zeros at the end; the result goes to
/// scratch memory then, and the elements of c are added to it. A single column that gemm reads by
/// vectors as it is needs no copy either.
///
/// # Safety
/// As [`Tile::run`].
///
/// # Errors
/// If allocating scratch memory fails.
unsafe fn multiply_block<T: Float>(cpu: &Cpu, tile: Tile<T>) -> Result<()> {
    // As gemm does: the elements of a column of c are the nearest.
    let [m, n, _] = tile.mnk;
    let by_row = tile.c.col_stride.abs() < tile.c.row_stride.abs();
    let tile = if m == 1 || n > 1 && by_row { tile.transposed() } else { tile };
    let Tile { mnk: [m, n, k], lhs, rhs, mut c, beta, alpha, .. } = tile;
    if n == 1 {
        // Not read, and gemm does not transpose the product.
        c.col_stride = c.row_stride;
        let by_columns = lhs.row_stride == 1 && c.row_stride == 1;
        if by_columns || lhs.col_stride == 1 && rhs.row_stride == 1 {
            // SAFETY: by contract.
            unsafe { call([m, n, k], lhs, rhs, c, [beta, alpha]) };
            return Ok(());
        }
    }
    let rows = m.next_multiple_of(LINE / size_of::<T>());
    let copies_lhs = lhs.row_stride != 1 || rows != m;
    let copies_rhs = rhs.row_stride != 1;
    let sizes = [
        if copies_lhs { rows * k } else { 0 },
        if copies_rhs { n * k } else { 0 },
        if rows != m { rows * n } else { 0 },
    ];
    with_scratch(cpu, sizes, |[lhs_copy, rhs_copy, product]: [&mut [T]; 3]| {
        let (mut a, mut b) = (lhs, rhs);
        // SAFETY: by contract; the copies have k columns of `rows` and n columns of k elements,
        // the product n columns of `rows`.
        unsafe {
            if copies_lhs {
                pack_rows(cpu.level, lhs.t(), [k, m], lhs_copy.as_mut_ptr(), rows);
                for column in lhs_copy.chunks_exact_mut(rows) {
                    column[m..].fill(T::ZERO);
                }
                a = Matrix::by_column(lhs_copy.as_ptr(), rows);
            }
            if copies_rhs {
                pack_rows(cpu.level, rhs.t(), [n, k], rhs_copy.as_mut_ptr(), k);
                b = Matrix::by_column(rhs_copy.as_ptr(), k);
            }
            if rows == m {
                call([m, n, k], a, b, c, [beta, alpha]);
                return;
            }
            let result = Matrix::by_column(product.as_mut_ptr().cast_const(), rows);
            call([rows, n, k], a, b, result, [T::ZERO, alpha]);
            add(c, beta, result, [m, n]);
        }
    })
}

/// `c = beta c + sums`, both of `m` by `n`; with `beta` zero, c is not read.
///
/// # Safety
/// `c` is writable and `sums` is readable over (m, n), and they do not overlap.
unsafe fn add<T: Float>(c: Matrix<T>, beta: T, sums: Matrix<T>, [m, n]: [usize; 2]) {
    for j in 0..n {
        for i in 0..m {
            let to = c.at(i, j).ptr.cast_mut();
            // SAFETY: by contract.
            unsafe {
                let sum = *sums.at(i, j).ptr;
                *to = if beta == T::ZERO { sum } else { *to * beta + sum };
            }
        }
    }
}

/// One call of gemm: `c = beta c + alpha lhs @ rhs`.
///
/// # Safety
/// `lhs` and `rhs` are readable and `c` is writable over (m, k), (k, n) and (m, n), and `c`
/// overlaps neither operand.
unsafe fn call<T: Float>(
    [m, n, k]: [usize; 3],
    lhs: Matrix<T>,
    rhs: Matrix<T>,
    c: Matrix<T>,
    [beta, alpha]: [T; 2],
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
/// If allocating scratch memory fails.
unsafe fn vector<T: Float>(cpu: &Cpu, tile: Tile<T>) -> Result<()> {
    let Tile { mnk: [m, n, k], lhs, rhs, c, .. } = tile;
    with_scratch(cpu, [m * n], |[part]: [&mut [T]; 1]| {
        let ptr = part.as_mut_ptr().cast_const();
        // m or n is 1, so rows follow one another.
        let sums = Matrix { ptr, row_stride: n as isize, col_stride: 1 };
        for from in (0..k).step_by(MAX_CHAIN) {
            let (lhs, rhs) = (lhs.at(0, from), rhs.at(from, 0));
            let part = Tile { mnk: [m, n, MAX_CHAIN.min(k - from)], lhs, rhs, ..tile };
            // SAFETY: by contract; `part` has m * n elements.
            unsafe {
                if from == 0 {
                    multiply(cpu, part)?;
                    continue;
                }
                multiply(cpu, Tile { c: sums, beta: T::ZERO, ..part })?;
                add(c, T::ONE, sums, [m, n]);
            }
        }
        Ok(())
    })?
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
