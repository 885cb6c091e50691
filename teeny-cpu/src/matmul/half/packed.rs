//! Tiles by the microkernel on panels: of f32, or of pairs of bf16.
//!
//! ```text
//!   for each block of k
//!     a    in place if it has whole pairs along k, otherwise packed
//!     for each panel of 64 columns
//!       b  packed: (depth, 64) f32, or (depth / 2, 64) pairs
//!       c += a b
//! ```
//! A block of pairs that might meet subnormal numbers is multiplied in f32.

use super::Tile;
use super::pack::{Smallest, interleave, pair_rows, widen};
use crate::Cpu;
use crate::matmul::matrix::Matrix;
use crate::matmul::microkernel::{MAX_CHAIN, Product};
use crate::scratch::with_scratch;
use crate::simd::Level;
use crate::transpose::transpose;
use teeny_core::{DType, Result};

/// Columns of a panel.
const WIDTH: usize = 64;
/// Rows of k that are transposed at a time: 64 lines of them stay in L1.
const TRANSPOSED: usize = 64;

/// Computes `c` (m, n), row-major.
///
/// # Safety
/// The operands are readable.
///
/// # Errors
/// If allocating scratch memory fails.
pub(super) unsafe fn run(cpu: &Cpu, tile: Tile, c: &mut [f32]) -> Result<()> {
    let [m, n, k] = tile.mnk;
    // Blocks of one size, of whole pairs.
    let block = k.div_ceil(k.div_ceil(MAX_CHAIN)).next_multiple_of(2).min(k);
    let pairs = tile.dtype == DType::BF16 && cpu.level.has_pairs();
    // Pairs are half as many; an odd one is filled up.
    let rows = if pairs { block.div_ceil(2) } else { block };
    let in_place = pairs && has_pairs(tile.a, k);
    let sizes = [if in_place { 0 } else { m * rows }, rows * WIDTH, WIDTH * TRANSPOSED];
    let result = c.as_mut_ptr();
    with_scratch(cpu, sizes, |[a, panel, lines]: [&mut [f32]; 3]| {
        for from in (0..k).step_by(block) {
            let depth = block.min(k - from);
            let a_block = tile.a.at(0, from);
            let beta = if from == 0 { 0.0 } else { 1.0 };
            // SAFETY: by contract; scratch memory has room for blocks, panels and lines.
            unsafe {
                let (packed, of_a) = if !pairs {
                    (pack_f32(cpu.level, tile.dtype, a_block, [m, depth], a), None)
                } else {
                    let (packed, of_a) = match in_place {
                        true => (words(a_block), Smallest::of(cpu.level, a_block, [m, depth])),
                        false => pack_pairs(cpu.level, a_block, [m, depth], a),
                    };
                    (packed, Some(of_a))
                };
                for j in (0..n).step_by(WIDTH) {
                    let columns = WIDTH.min(n - j);
                    let b = tile.b.at(from, j);
                    let product = |rows, a, b| Product {
                        mnk: [m, columns, rows],
                        a,
                        b,
                        b_row_stride: WIDTH as isize,
                        c: result.add(j),
                        c_row_stride: n as isize,
                        beta,
                        alpha: 1.0,
                    };
                    let size = [depth, columns];
                    let Some(of_a) = of_a else {
                        panel_f32(cpu.level, tile.dtype, b, size, panel, lines);
                        product(depth, packed, panel.as_ptr()).run(cpu.level);
                        continue;
                    };
                    if of_a.is_safe_with(panel_pairs(cpu.level, b, size, panel, lines)) {
                        let product = product(depth.div_ceil(2), packed, panel.as_ptr());
                        cpu.level.run_pairs(product);
                        continue;
                    }
                    let sizes = [m * depth, depth * WIDTH];
                    with_scratch(cpu, sizes, |[a, panel]: [&mut [f32]; 2]| {
                        let a = pack_f32(cpu.level, tile.dtype, a_block, [m, depth], a);
                        panel_f32(cpu.level, tile.dtype, b, size, panel, lines);
                        product(depth, a, panel.as_ptr()).run(cpu.level);
                    })?;
                }
            }
        }
        Ok(())
    })?
}

/// Whether rows of `x` are whole pairs along k: lanes of f32 that need no packing.
fn has_pairs(x: Matrix<u16>, k: usize) -> bool {
    x.col_stride == 1
        && x.row_stride % 2 == 0
        && k.is_multiple_of(2)
        && (x.ptr as usize).is_multiple_of(align_of::<f32>())
}

/// Pairs of neighbours in rows of `x` as elements.
fn words(x: Matrix<u16>) -> Matrix<f32> {
    Matrix { ptr: x.ptr.cast(), row_stride: x.row_stride / 2, col_stride: 1 }
}

/// A left operand in f32, in the order of its memory.
///
/// # Safety
/// It is readable, and `to` has as many elements.
unsafe fn pack_f32(
    level: Level,
    dtype: DType,
    x: Matrix<u16>,
    [m, depth]: [usize; 2],
    to: &mut [f32],
) -> Matrix<f32> {
    let ptr = to.as_mut_ptr();
    // SAFETY: by contract.
    unsafe {
        if x.row_stride == 1 && x.col_stride != 1 {
            widen(level, dtype, x.t(), [depth, m], ptr, m);
            return Matrix { ptr, row_stride: 1, col_stride: m as isize };
        }
        widen(level, dtype, x, [m, depth], ptr, depth);
    }
    Matrix { ptr, row_stride: depth as isize, col_stride: 1 }
}

/// A left operand in pairs along k.
///
/// # Safety
/// As `pack_f32`, for half as many elements.
unsafe fn pack_pairs(
    level: Level,
    x: Matrix<u16>,
    [m, depth]: [usize; 2],
    to: &mut [f32],
) -> (Matrix<f32>, Smallest) {
    let ptr = to.as_mut_ptr();
    let rows = depth.div_ceil(2);
    // SAFETY: by contract.
    let smallest = unsafe {
        if x.row_stride == 1 && x.col_stride != 1 {
            let smallest = interleave(level, x.t(), [depth, m], ptr.cast(), m);
            return (Matrix { ptr, row_stride: 1, col_stride: m as isize }, smallest);
        }
        pair_rows(x, [m, depth], ptr.cast(), rows);
        Smallest::of(level, x, [m, depth])
    };
    (Matrix { ptr, row_stride: rows as isize, col_stride: 1 }, smallest)
}

/// A panel of f32.
///
/// # Safety
/// `b` is readable; the panel has `depth` rows of [`WIDTH`], `lines` [`WIDTH`] of [`TRANSPOSED`].
unsafe fn panel_f32(
    level: Level,
    dtype: DType,
    b: Matrix<u16>,
    [depth, columns]: [usize; 2],
    panel: &mut [f32],
    lines: &mut [f32],
) {
    let (panel, lines) = (panel.as_mut_ptr(), lines.as_mut_ptr());
    // SAFETY: by contract.
    unsafe {
        if b.col_stride == 1 {
            return widen(level, dtype, b, [depth, columns], panel, WIDTH);
        }
        for p in (0..depth).step_by(TRANSPOSED) {
            let rows = TRANSPOSED.min(depth - p);
            widen(level, dtype, b.at(p, 0).t(), [columns, rows], lines, TRANSPOSED);
            let (step, to) = (TRANSPOSED as isize, panel.add(p * WIDTH));
            transpose(level, lines, step, to, WIDTH as isize, (rows, columns), false);
        }
    }
}

/// A panel of pairs along k.
///
/// # Safety
/// As `panel_f32`, for a panel of half as many rows.
unsafe fn panel_pairs(
    level: Level,
    b: Matrix<u16>,
    [depth, columns]: [usize; 2],
    panel: &mut [f32],
    lines: &mut [f32],
) -> Smallest {
    let (panel, lines, width) = (panel.as_mut_ptr(), lines.as_mut_ptr(), WIDTH as isize);
    // SAFETY: by contract.
    unsafe {
        if b.col_stride == 1 {
            return interleave(level, b, [depth, columns], panel.cast(), WIDTH);
        }
        let smallest = Smallest::of(level, b.t(), [columns, depth]);
        if has_pairs(b.t(), depth) {
            let x = words(b.t());
            let size = (depth / 2, columns);
            transpose(level, x.ptr, x.row_stride, panel, width, size, false);
            return smallest;
        }
        for p in (0..depth).step_by(2 * TRANSPOSED) {
            let rows = (2 * TRANSPOSED).min(depth - p);
            pair_rows(b.at(p, 0).t(), [columns, rows], lines.cast(), TRANSPOSED);
            let (step, to) = (TRANSPOSED as isize, panel.add(p / 2 * WIDTH));
            transpose(level, lines, step, to, width, (rows.div_ceil(2), columns), false);
        }
        smallest
    }
}
