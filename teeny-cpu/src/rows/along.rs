//! Passes along rows, some rows at a time.

use super::bind::{Memory, Side};
use super::folds::{Along, Piece, identity};
use super::job::Job;
use crate::float::{Number, lanes};
use crate::machine::instructions::{BUFFER, Instruction, VECTOR, VECTORS};
use crate::machine::program::{Pass, Reduction};
use crate::machine::registers::run_rows;
use crate::typed::slice_mut;
use std::ops::Range;
use teeny_core::kernel::Fold;

/// Terms that a lane adds before a sum of f32 goes on in f64, not counting the last vectors.
const TERMS: usize = 16;

impl Job<'_> {
    /// A pass over `rows` rows.
    ///
    /// # Safety
    /// The instructions belong to these rows, and no other task writes these.
    pub(super) unsafe fn pass_along<T: Number>(
        &self,
        code: &[Instruction],
        pass: &Pass,
        memory: &Memory,
        base: *mut u8,
        rows: usize,
    ) {
        // A product leaves the range of f32 sooner than its factors.
        let exact = self.size == 4 && pass.folds.iter().any(|fold| fold.fold == Fold::Prod);
        let vector = lanes::<T>(self.level);
        let piece = match (exact, pass.folds.is_empty()) {
            (true, _) => vector,
            (_, true) => self.n,
            _ => TERMS * VECTORS * vector,
        };
        // SAFETY: passed on.
        unsafe {
            let finite = self.pieces_along::<T>(code, pass, memory, base, 0..rows, (piece, exact));
            if !finite && self.size == 4 && !exact {
                for r in 0..rows {
                    let is_finite = |fold: &Reduction| {
                        fold.fold != Fold::Sum
                            || (*memory.row(base, fold.row).cast::<T>().add(r)).to_f64().is_finite()
                    };
                    if !pass.folds.iter().all(is_finite) {
                        let row = r..r + 1;
                        self.pieces_along::<T>(code, pass, memory, base, row, (vector, true));
                    }
                }
            }
        }
    }

    /// Runs the pass in pieces, after each of which folds go on in f64, on request each lane by
    /// itself. Returns false if a sum or product is not finite.
    ///
    /// # Safety
    /// As [`Job::pass_along`].
    unsafe fn pieces_along<T: Number>(
        &self,
        code: &[Instruction],
        pass: &Pass,
        memory: &Memory,
        base: *mut u8,
        rows: Range<usize>,
        (piece, wide): (usize, bool),
    ) -> bool {
        let level = self.level;
        let (vectors, row_stride) = match memory.side {
            Side::Along { short: true } => (1, VECTOR),
            _ => (VECTORS, BUFFER),
        };
        let mut finite = true;
        let mut end = 0;
        while end < self.n {
            let at = end;
            // A short rest is part of the piece before.
            let most = if wide { piece } else { piece + piece / 4 };
            end = if self.n - at <= most { self.n } else { at + piece };
            let part = at..end;
            let place = Piece { first: at == 0, last: end == self.n };
            // SAFETY: by contract; folds have memory for the rows.
            unsafe {
                for (k, reduction) in pass.folds.iter().enumerate() {
                    let to = memory.fold(base, k).wrapping_add(rows.start * row_stride);
                    let to = slice_mut::<T>(to, rows.len() * row_stride / size_of::<T>());
                    to.fill(T::from_f64(identity(reduction.fold)));
                }
                run_rows(level, self.size, code, rows.clone(), part, true);
                for (k, reduction) in pass.folds.iter().enumerate() {
                    finite &= level.run(Along::<T> {
                        fold: reduction.fold,
                        from: memory.fold(base, k).wrapping_add(rows.start * row_stride),
                        row_stride,
                        vectors,
                        rows: rows.len(),
                        piece: place,
                        wide,
                        totals: memory.totals(base, k).add(rows.start),
                        results: memory.row(base, reduction.row).cast::<T>().add(rows.start),
                    });
                }
            }
        }
        finite
    }
}
