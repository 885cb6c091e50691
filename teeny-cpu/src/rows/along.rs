//! Passes along rows, some rows at a time.

use super::bind::{Bound, Memory, Side};
use super::folds::{Along, Fill, Piece, identity};
use super::program::{Pass, Reduction};
use super::{CHUNK, Job};
use crate::elementwise::instructions::{BUFFER, Instruction, VECTOR, VECTORS};
use crate::elementwise::registers::{SHORT, run_rows};
use crate::float::{Number, lanes};
use crate::half;
use crate::threads::try_for_each_range;
use std::ops::Range;
use teeny_core::kernel::Fold;
use teeny_core::{DType, Result};

/// Terms that a lane adds before a sum of f32 goes on in f64, besides those of the last vectors.
const TERMS: usize = 16;

impl Job<'_> {
    /// Computes all rows, `count` at a time.
    pub(super) fn along(&self, count: usize) -> Result<()> {
        match self.code.dtype {
            DType::F64 => self.along_of::<f64>(count),
            _ => self.along_of::<f32>(count),
        }
    }

    fn along_of<T: Number>(&self, count: usize) -> Result<()> {
        let vector = lanes::<T>(self.level);
        let short = self.n < SHORT * vector;
        let count = count.min(self.outer);
        let memory = Memory::new(self, count, Side::Along { short }, 0);
        let numbers = self.numbers();
        let template = self.template(&memory, &numbers);
        try_for_each_range(self.outer, (CHUNK / self.n).max(count), |range| {
            let block = self.cpu.scratch(memory.bytes)?;
            let base = block.ptr();
            let mut bound = template.bound(base);
            for first in range.clone().step_by(count) {
                let rows = count.min(range.end - first);
                bound.move_to(first, 0);
                for k in 0..self.code.passes.len() {
                    // SAFETY: these rows are this range's, and the memory has `count` of them.
                    unsafe { self.pass_along::<T>(&bound, k, &memory, base, rows) };
                }
                // SAFETY: as above.
                unsafe { self.write_rows(&memory, base, first, rows) };
            }
            Ok(())
        })
    }

    /// Writes the outputs of one value a row.
    ///
    /// # Safety
    /// The memory has the values of these rows, which belong to this task in the outputs.
    pub(super) unsafe fn write_rows(
        &self,
        memory: &Memory,
        base: *mut u8,
        first: usize,
        rows: usize,
    ) {
        for &(o, row) in &self.code.row_outputs {
            let dtype = self.output_dtype(o);
            let to = self.outputs[o].get().wrapping_add(first * dtype.size());
            let from = match self.known.get(row) {
                Some(known) => known.first.get().wrapping_add(first * self.size),
                None => memory.row(base, row - self.known.len()),
            };
            // SAFETY: by contract.
            unsafe {
                if dtype.is_half() {
                    half::from_f32(self.level, dtype, from, to, rows);
                } else {
                    std::ptr::copy_nonoverlapping(from, to, rows * self.size);
                }
            }
        }
    }

    /// Pass `k` over `rows` rows.
    ///
    /// # Safety
    /// The instructions are those of these rows, and no other task writes these.
    unsafe fn pass_along<T: Number>(
        &self,
        bound: &Bound<'_>,
        k: usize,
        memory: &Memory,
        base: *mut u8,
        rows: usize,
    ) {
        let (level, size, pass) = (self.level, self.size, &self.code.passes[k]);
        let [before, code] = bound.pass(k);
        if !before.is_empty() {
            // SAFETY: all row values have `rows` elements.
            unsafe { run_rows(level, size, before, 0..1, 0..rows, false) };
        }
        if code.is_empty() {
            return;
        }
        // A product leaves the range of f32 sooner than its factors.
        let exact = size == 4 && pass.folds.iter().any(|fold| fold.fold == Fold::Prod);
        let vector = lanes::<T>(level);
        let piece = match (exact, pass.folds.is_empty()) {
            (true, _) => vector,
            (_, true) => self.n,
            _ => TERMS * VECTORS * vector,
        };
        // SAFETY: passed on.
        unsafe {
            let finite = self.pieces_along::<T>(code, pass, memory, base, 0..rows, (piece, exact));
            if !finite && size == 4 && !exact {
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
        let (vectors, pitch) = match memory.side {
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
                    let to = memory.fold(base, k).wrapping_add(rows.start * pitch).cast();
                    let x = T::from_f64(identity(reduction.fold));
                    level.run(Fill::<T> { to, bytes: rows.len() * pitch, x });
                }
                run_rows(level, self.size, code, rows.clone(), part, true);
                for (k, reduction) in pass.folds.iter().enumerate() {
                    finite &= level.run(Along::<T> {
                        fold: reduction.fold,
                        from: memory.fold(base, k).wrapping_add(rows.start * pitch),
                        pitch,
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
