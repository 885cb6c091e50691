//! Passes across rows: a row in each lane.
//!
//! ```text
//!   columns     neighbouring rows are neighbours in memory, where they are read
//!   blocks      short rows are transposed, some at a time: (rows, n) ─► (n, rows) ─► (rows, n)
//! ```
//! Folds are operations between vectors, without an exchange between lanes. Sums of f32 go on in f64
//! every [`TERMS`] terms; if a result is not finite, the pass runs again with every term in f64.

use super::bind::Memory;
use super::folds::{Across, Piece, identity};
use super::job::Job;
use crate::float::{Number, are_finite};
use crate::half;
use crate::machine::instructions::Instruction;
use crate::machine::program::Pass;
use crate::machine::registers::run_rows;
use crate::scratch::LINE;
use crate::transpose::transpose;
use crate::typed::{slice, slice_mut};
use teeny_core::kernel::Fold;

/// Terms of a sum of f32 before it goes on in f64.
const TERMS: usize = 32;

impl Job<'_> {
    /// Transposes the operands of some rows.
    ///
    /// # Safety
    /// The memory has `rows` rows.
    pub(super) unsafe fn read_block<T: Number>(
        &self,
        memory: &Memory,
        base: *mut u8,
        first: usize,
        rows: usize,
    ) {
        let (level, n, size) = (self.level, self.n, self.size);
        let stage = memory.tile(base, self.elements.len() + self.outputs.len(), size).0;
        for (k, x) in self.elements.iter().enumerate().filter(|(_, x)| x.outer != 0) {
            let (to, row_stride) = memory.tile(base, k, size);
            let mut from = x.first.get().wrapping_offset(first as isize * x.outer);
            let mut step = x.outer / x.dtype.size() as isize;
            // SAFETY: rows of n elements; the tiles have memory for them.
            unsafe {
                if x.dtype.is_half() {
                    let packed = step == n as isize;
                    let (runs, len) = if packed { (1, n * rows) } else { (rows, n) };
                    for r in 0..runs {
                        let row = from.wrapping_offset(r as isize * x.outer);
                        let to = stage.add(4 * r * len);
                        half::to_f32(level, x.dtype, row, to, len);
                    }
                    (from, step) = (stage, n as isize);
                }
                let (from, to) = (from.cast_const().cast::<T>(), to.cast::<T>());
                transpose(level, from, step, to, row_stride as isize, (n, rows), false);
            }
        }
    }

    /// Transposes the results of some rows.
    ///
    /// # Safety
    /// As [`Job::read_block`]; no other task writes these rows.
    pub(super) unsafe fn write_block<T: Number>(
        &self,
        memory: &Memory,
        base: *mut u8,
        first: usize,
        rows: usize,
    ) {
        let (level, n, size) = (self.level, self.n, self.size);
        let stage = memory.tile(base, self.elements.len() + self.outputs.len(), size).0;
        for (o, out) in self.outputs.iter().enumerate() {
            if self.code.row_outputs.iter().any(|&(of_rows, _)| of_rows == o) {
                continue;
            }
            let dtype = self.output_dtype(o);
            let (from, row_stride) = memory.tile(base, self.elements.len() + o, size);
            let out = out.get().wrapping_add(first * n * dtype.size());
            let to = if dtype.is_half() { stage } else { out };
            // SAFETY: rows of n elements of the output, or memory for them.
            unsafe {
                let (from, to) = (from.cast_const().cast::<T>(), to.cast::<T>());
                transpose(level, from, row_stride as isize, to, n as isize, (rows, n), false);
                if dtype.is_half() {
                    half::from_f32(level, dtype, stage, out, n * rows);
                }
            }
        }
    }

    /// A pass over neighbouring rows.
    ///
    /// # Safety
    /// The instructions belong to these rows, and no other task writes these.
    pub(super) unsafe fn pass_across<T: Number>(
        &self,
        code: &[Instruction],
        pass: &Pass,
        memory: &Memory,
        base: *mut u8,
        lanes: usize,
    ) {
        let has = |fold| pass.folds.iter().any(|reduction| reduction.fold == fold);
        // A product leaves the range of f32 sooner than its factors.
        let exact = self.size == 4 && has(Fold::Prod);
        let terms = match (exact, self.size == 4 && has(Fold::Sum)) {
            (true, _) => 1,
            (_, true) => TERMS,
            _ => self.n,
        };
        // SAFETY: passed on.
        unsafe {
            let finite = self.pieces_across::<T>(code, pass, memory, base, lanes, terms);
            if !finite && self.size == 4 && !exact {
                self.pieces_across::<T>(code, pass, memory, base, lanes, 1);
            }
        }
    }

    /// Runs the pass in pieces of `terms` positions, and adds each piece's sums and products to f64
    /// totals. Returns false if a result is not finite.
    ///
    /// # Safety
    /// As [`Job::pass_across`].
    unsafe fn pieces_across<T: Number>(
        &self,
        code: &[Instruction],
        pass: &Pass,
        memory: &Memory,
        base: *mut u8,
        lanes: usize,
        terms: usize,
    ) -> bool {
        let level = self.level;
        let mut finite = true;
        for at in (0..self.n).step_by(terms) {
            let positions = at..self.n.min(at + terms);
            let piece = Piece { first: at == 0, last: positions.end == self.n };
            // SAFETY: by contract; row values have memory of whole cache lines.
            unsafe {
                for reduction in &pass.folds {
                    let is_total = matches!(reduction.fold, Fold::Sum | Fold::Prod);
                    if is_total || piece.first {
                        let n = (lanes * size_of::<T>()).next_multiple_of(LINE) / size_of::<T>();
                        let to = slice_mut::<T>(memory.row(base, reduction.row), n);
                        to.fill(T::from_f64(identity(reduction.fold)));
                    }
                }
                run_rows(level, self.size, code, positions, 0..lanes, false);
                for (k, reduction) in pass.folds.iter().enumerate() {
                    if let Fold::Sum | Fold::Prod = reduction.fold {
                        let results = memory.row(base, reduction.row);
                        level.run(Across::<T> {
                            fold: reduction.fold,
                            rows: lanes,
                            piece,
                            totals: memory.totals(base, k),
                            results: results.cast(),
                        });
                        finite &= !piece.last || are_finite::<T>(level, slice(results, lanes));
                    }
                }
            }
        }
        finite
    }
}
