//! Stable sorting along one axis, and the first `k` in that order; NaN counts as the largest.
//!
//! ```text
//!   values ─► entries, keys with positions (keys) ─► sorted (radix) or selected (select)
//!          ─► values at these positions
//! ```
//! In rows of a few values the place of each is counted (rank).
//! The naive form sorts the values by a comparison that knows NaN. With keys there is one sort for
//! all types. A row that is short of neighbours, along an axis that is not the last, is gathered
//! together with those beside it.

mod keys;
mod radix;
mod rank;
mod select;

use crate::scratch::Array;
use crate::storage::{Shared, View};
use crate::threads::{for_each_range, try_for_each_range};
use crate::typed::with_type;
use crate::{Cpu, copy};
use keys::{Entry, Fill, Float16, Order, Value};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Tensor};

/// Elements below which one thread sorts.
const MIN_PARALLEL_ELEMENTS: usize = 4096;
/// Values of a piece of a long row from which candidates are selected.
const PIECE: usize = 64 << 10;
/// Values up to which a row is sorted whole, for any selection.
const SHORT: usize = 32;
/// Neighbouring rows along an axis that is not the last, gathered together: a cache line of f32.
const TOGETHER: usize = 16;

/// Sorted values and their positions before.
pub(crate) fn sort(
    cpu: &Cpu,
    x: &Tensor,
    axis: usize,
    descending: bool,
) -> Result<(StorageRef, StorageRef)> {
    first(cpu, x, axis, x.shape()[axis], descending)
}

/// The first `k` values in ascending or descending order, and their positions.
pub(crate) fn first(
    cpu: &Cpu,
    x: &Tensor,
    axis: usize,
    k: usize,
    descending: bool,
) -> Result<(StorageRef, StorageRef)> {
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    let rows = x.numel().checked_div(length).unwrap_or(0);
    let values = cpu.alloc(rows * k, x.dtype())?;
    let positions = cpu.alloc(rows * k, DType::I32)?;
    if rows * k > 0 {
        let view = View::of(x)?;
        let copy = if view.is_contiguous() { None } else { Some(copy::contiguous(cpu, &view)?) };
        let input = copy.as_ref().map_or(view.ptr, |copy| copy.ptr());
        // the types whose bits are the values
        with_type!(x.dtype(), T => {
            let (order, x) = (Order::of(x.dtype(), descending), Shared(input.cast_mut().cast()));
            let (values, positions) = (Shared(values.ptr().cast()), Shared(positions.ptr().cast()));
            Rows::<T> { cpu, x, values, positions, rows, length, inner, k, order }.run()?
        }; Bool | U8 | I8 => u8, U16 | I16 => u16, U32 | I32 => u32, U64 | I64 => u64,
           F16 | BF16 => Float16, F32 => f32, F64 => f64;);
    }
    Ok((Arc::new(values), Arc::new(positions)))
}

/// Rows of `length` values that are `inner` apart, of which the first `k` are written.
struct Rows<'a, V> {
    cpu: &'a Cpu,
    x: Shared<V>,
    values: Shared<V>,
    positions: Shared<i32>,
    rows: usize,
    length: usize,
    inner: usize,
    k: usize,
    order: Order,
}

impl<V: Value> Rows<'_, V> {
    fn run(&self) -> Result<()> {
        let (length, k) = (self.length, self.k);
        if length <= rank::MAX_LENGTH {
            let least = MIN_PARALLEL_ELEMENTS / length;
            for_each_range(self.rows, least, |range| rank::sort(self, range));
            return Ok(());
        }
        let pieces = length.div_ceil(PIECE);
        if self.rows < 4 && pieces > 3 && k <= PIECE / 16 && self.inner == 1 {
            return (0..self.rows).try_for_each(|row| self.long_row(row, pieces));
        }
        // Selecting and sorting many values takes as long as a radix sort of all.
        let selects = k < length && (k <= SHORT / 4 || k <= length / 8 && length > SHORT);
        let list = if selects { select::candidates(length, k) } else { length };
        let group = if self.inner == 1 { 1 } else { TOGETHER };
        // A single row is sorted by all threads.
        let alone = self.rows == 1;
        let run = |range: std::ops::Range<usize>| {
            let zero = V::Entry::default();
            let mut entries = Array::filled(self.cpu, list, zero)?;
            let mut spare = Array::filled(self.cpu, if selects { 0 } else { length }, zero)?;
            let words = if self.inner == 1 { 0 } else { group * length * size_of::<V>() };
            let mut gathered = Array::filled(self.cpu, words.div_ceil(8), 0u64)?;
            let mut at = range.start;
            while at < range.end {
                let count = group.min(range.end - at).min(self.inner - at % self.inner);
                let start = at / self.inner * length * self.inner + at % self.inner;
                let x = self.x.get().wrapping_add(start);
                let near = gathered.as_mut_ptr().cast::<V>();
                if self.inner > 1 {
                    for i in 0..length {
                        for row in 0..count {
                            // SAFETY: element i of a row of the operand; there is memory for all.
                            unsafe { *near.add(row * length + i) = *x.add(i * self.inner + row) };
                        }
                    }
                }
                for row in 0..count {
                    let from = if self.inner == 1 {
                        x.cast_const()
                    } else {
                        near.wrapping_add(row * length)
                    };
                    // SAFETY: a row of the operand, or its gathered values.
                    let x = unsafe { std::slice::from_raw_parts(from, length) };
                    if selects {
                        let level = self.cpu.level;
                        if !select::select(level, x, 0, k, self.order, &mut entries) {
                            // They are not in the order of their positions, which a sort by bytes
                            // of the keys relies on.
                            entries[..k].sort_unstable();
                        }
                    } else {
                        self.cpu.level.run(Fill {
                            x,
                            first: 0,
                            order: self.order,
                            entries: &mut entries,
                        });
                        radix::sort(self.cpu, &mut entries, &mut spare)?;
                    }
                    self.write(at + row, x, &entries[..k]);
                }
                at += count;
            }
            Ok(())
        };
        if alone {
            run(0..1)
        } else {
            try_for_each_range(self.rows, (MIN_PARALLEL_ELEMENTS / length).max(1), run)
        }
    }

    /// One of few long rows: candidates of each piece, on several threads, then of the row.
    fn long_row(&self, row: usize, pieces: usize) -> Result<()> {
        let k = self.k;
        // SAFETY: a row of the operand.
        let x =
            unsafe { std::slice::from_raw_parts(self.x.get().add(row * self.length), self.length) };
        let piece = |p: usize| p * PIECE..((p + 1) * PIECE).min(self.length);
        // The last piece may have fewer values than are selected.
        let kept = |p: usize| k.min(piece(p).len());
        let total = (pieces - 1) * k + kept(pieces - 1);
        let mut all = Array::filled(self.cpu, total, V::Entry::default())?;
        let shared = Shared(all.as_mut_ptr());
        try_for_each_range(pieces, 1, |range| {
            let most = select::candidates(PIECE, k);
            let mut list = Array::filled(self.cpu, most, V::Entry::default())?;
            for p in range {
                let x = &x[piece(p)];
                select::select(self.cpu.level, x, p * PIECE, kept(p), self.order, &mut list);
                // SAFETY: each piece has its own candidates.
                let to =
                    unsafe { std::slice::from_raw_parts_mut(shared.get().add(p * k), kept(p)) };
                to.copy_from_slice(&list[..kept(p)]);
            }
            Ok(())
        })?;
        if total > k {
            all.select_nth_unstable(k - 1);
        }
        all[..k].sort_unstable();
        self.write(row, x, &all[..k]);
        Ok(())
    }

    /// Writes the values and positions of the entries of a row.
    fn write(&self, row: usize, x: &[V], entries: &[V::Entry]) {
        let inner = self.inner;
        let start = row / inner * self.k * inner + row % inner;
        let (values, positions) = (self.values.get(), self.positions.get());
        for (i, entry) in entries.iter().enumerate() {
            let (at, from) = (start + i * inner, entry.position());
            // SAFETY: element i of a row of the results, which belongs to this task.
            unsafe {
                *values.add(at) = x[from];
                *positions.add(at) = from as i32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::keys::{Float16, all_keys_ascend};
    use teeny_core::{DType, bf16, f16};

    #[test]
    fn keys_have_the_order_of_the_values() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let floats =
            [-inf, f32::MIN, -1.5, -1e-40, -0.0, 0.0, 1e-45, 1e-40, 1.0, f32::MAX, inf, nan, -nan];
        assert!(all_keys_ascend(DType::F32, &floats));
        assert!(all_keys_ascend(DType::F64, &floats.map(f64::from)));
        assert!(all_keys_ascend(DType::F16, &floats.map(|x| Float16(f16::from_f32(x).to_bits()))));
        assert!(all_keys_ascend(
            DType::BF16,
            &floats.map(|x| Float16(bf16::from_f32(x).to_bits()))
        ));
        assert!(all_keys_ascend(DType::I8, &[i8::MIN, -1, 0, 1, i8::MAX].map(|x| x as u8)));
        assert!(all_keys_ascend(DType::I16, &[i16::MIN, -1, 0, 1, i16::MAX].map(|x| x as u16)));
        assert!(all_keys_ascend(DType::I32, &[i32::MIN, -1, 0, 1, i32::MAX].map(|x| x as u32)));
        assert!(all_keys_ascend(DType::I64, &[i64::MIN, -1, 0, 1, i64::MAX].map(|x| x as u64)));
        assert!(all_keys_ascend(DType::U64, &[0u64, 1, u64::MAX]));
        assert!(all_keys_ascend(DType::U8, &[0u8, 128, 255]));
    }
}
