//! Kernels with transposed inputs: inputs whose elements are contiguous along another axis than the
//! innermost one of the walk.
//!
//! The naive form gathers each tile of such an input element by element, each from a cache line of
//! its own. Here a slab of 64 rows by 1024 columns is transposed into scratch memory by blocks in
//! registers, which reads and writes whole cache lines. Then the rows of the slab are the input's
//! tiles. Several rows are one tile where they are short and follow one another in the output, and
//! several matrices that are smaller than a tile are one slab.

use super::tiles::{Outs, Scratch, TILE, Tiles};
use crate::storage::View;
use crate::transpose::transpose;
use crate::walk::{MAX_OPERANDS, TransposedInputs};

/// Rows and columns of a slab, 256 KiB of f32, a quarter to a half of an L2. 64 rows are four
/// neighbouring cache lines of f32 in each column of the source.
const SLAB_ROWS: usize = 64;
const SLAB_COLUMNS: usize = 1024;
/// Elements of a row from which a row is a tile; shorter ones are joined.
const MIN_TILE_ROW: usize = 512;
/// Elements from one row of a slab to the next: not a power of two, so that a column of cache lines
/// spreads over the sets of the cache.
const SLAB_STRIDE: usize = SLAB_COLUMNS + 16;
/// Bytes of the slab of one operand, of elements of any size.
const SLAB_BYTES: usize = SLAB_ROWS * SLAB_STRIDE * 8;

/// The bytes of a slab for each of the transposed inputs.
pub(super) fn bytes(inputs: &TransposedInputs) -> usize {
    inputs.count() * SLAB_BYTES
}

/// A part of the output: `rows` indices along the transposed inputs' contiguous axis by `len`
/// elements of the innermost axis. Small whole matrices may have more rows than [`SLAB_ROWS`].
pub(super) struct Slab {
    /// The first element of the output.
    start: usize,
    rows: usize,
    /// Elements of each row.
    len: usize,
    /// Matrices of these rows, which follow one another in the output; more than one only if they
    /// are whole.
    matrices: usize,
}

/// The elements of a matrix if whole ones share a tile, which follow one another in the output.
fn small_matrix(inputs: &TransposedInputs, row: usize) -> Option<usize> {
    let len = inputs.size * row;
    (inputs.row_step == row && len <= TILE).then_some(len)
}

impl Tiles<'_> {
    /// The transposed inputs, if there are any.
    pub(super) fn transposed_inputs(&self) -> Option<TransposedInputs> {
        self.walk.transposed_inputs()
    }

    /// How many slabs cover the output.
    pub(super) fn slab_count(&self, inputs: &TransposedInputs) -> usize {
        let rest: usize = self.walk.rows() / inputs.size;
        if let Some(len) = small_matrix(inputs, self.walk.row()) {
            return rest.div_ceil(TILE / len);
        }
        rest * inputs.size.div_ceil(SLAB_ROWS) * self.walk.row().div_ceil(SLAB_COLUMNS)
    }

    /// Slab `number`, counted along the rows first, then along the inputs' contiguous axis, then
    /// along the other axes.
    pub(super) fn slab(&self, inputs: &TransposedInputs, number: usize) -> Slab {
        if let Some(len) = small_matrix(inputs, self.walk.row()) {
            let (most, first) = (TILE / len, number * (TILE / len));
            let matrices = most.min(self.walk.rows() / inputs.size - first);
            let (rows, len) = (inputs.size, self.walk.row());
            return Slab { start: first * rows * len, rows, len, matrices };
        }
        let (down, across) =
            (inputs.size.div_ceil(SLAB_ROWS), self.walk.row().div_ceil(SLAB_COLUMNS));
        let (first, column) = (number / across % down * SLAB_ROWS, number % across * SLAB_COLUMNS);
        let start = self.walk.row_start(inputs.axis, number / across / down)
            + first * inputs.row_step
            + column;
        Slab {
            start,
            rows: SLAB_ROWS.min(inputs.size - first),
            len: SLAB_COLUMNS.min(self.walk.row() - column),
            matrices: 1,
        }
    }

    /// Evaluates a slab: transposes its inputs for all rows, then runs the kernel row by row.
    ///
    /// # Safety
    /// As `tile`; the scratch was made for these inputs.
    pub(super) unsafe fn run_slab(
        &self,
        scratch: &mut Scratch,
        inputs: &TransposedInputs,
        slab: &Slab,
        outs: &Outs,
        stream: bool,
    ) {
        let Slab { start, rows, len, matrices } = *slab;
        let joins = inputs.row_step == len && len < MIN_TILE_ROW;
        debug_assert!(matrices == 1 || joins, "several matrices are one run of elements");
        let stride = if joins { len } else { SLAB_STRIDE };
        let first = scratch.slabs;
        let mut count = 0;
        let slabs: [Option<*mut u8>; MAX_OPERANDS] = inputs.operands.map(|transposed| {
            transposed.then(|| {
                count += 1;
                first.wrapping_add((count - 1) * SLAB_BYTES)
            })
        });
        // SAFETY: rows and columns are the walk's; there is a slab for each input; outputs as
        // promised.
        unsafe {
            for (i, slab) in slabs.iter().enumerate() {
                let Some(slab) = *slab else { continue };
                let View { ptr, dtype, .. } = self.views[i];
                for matrix in 0..matrices {
                    let first = matrix * rows * len;
                    let (from, step) = self.walk.strided_from(i, ptr, dtype.size(), start + first);
                    let to = slab.wrapping_add(first * dtype.size());
                    let (shape, stride, level) = ((rows, len), stride as isize, self.level);
                    macro_rules! as_bits {
                        ($t:ty) => {
                            transpose::<$t>(
                                level,
                                from.cast(),
                                step,
                                to.cast(),
                                stride,
                                shape,
                                false,
                            )
                        };
                    }
                    match dtype.size() {
                        1 => as_bits!(u8),
                        2 => as_bits!(u16),
                        4 => as_bits!(u32),
                        _ => as_bits!(u64),
                    }
                }
            }
            let rows = matrices * rows;
            let rows_per_tile = if joins { TILE / len } else { 1 };
            for row in (0..rows).step_by(rows_per_tile) {
                let len = rows_per_tile.min(rows - row) * len;
                let at = start + row * inputs.row_step;
                for (i, slab) in slabs.iter().enumerate() {
                    scratch.transposed[i] = slab.map(|slab| {
                        slab.wrapping_add(row * stride * self.views[i].dtype.size()).cast_const()
                    });
                }
                self.tile(scratch, at, len, outs, stream);
            }
        }
        scratch.transposed = [None; MAX_OPERANDS];
    }
}
