//! Sorting rows of a few values, and selecting from them, by counting.
//!
//! The naive form compares and swaps, and mispredicts every other comparison. Here the place of a
//! value is the number of values before it: values with a smaller key, and those with the same key
//! and a smaller position. Each pair is compared once, without a branch.

use super::Rows;
use super::keys::{Entry, Value};
use std::ops::Range;

/// Values of a row, at most: they are compared in pairs.
pub(super) const MAX_LENGTH: usize = 8;

/// Sorts some rows of up to [`MAX_LENGTH`] values, or selects from them.
pub(super) fn sort<V: Value>(all: &Rows<'_, V>, range: Range<usize>) {
    match all.length {
        ..=1 => rank::<V, 1>(all, range),
        2 => rank::<V, 2>(all, range),
        3 => rank::<V, 3>(all, range),
        4 => rank::<V, 4>(all, range),
        5 => rank::<V, 5>(all, range),
        6 => rank::<V, 6>(all, range),
        7 => rank::<V, 7>(all, range),
        _ => rank::<V, MAX_LENGTH>(all, range),
    }
}

/// Rows of `N` values: with a known number all comparisons are unrolled.
fn rank<V: Value, const N: usize>(all: &Rows<'_, V>, range: Range<usize>) {
    let Rows { inner, k, order, .. } = *all;
    let mut keys = [V::Entry::LAST; N];
    let (mut outer, mut column) = (range.start / inner, range.start % inner);
    for _ in range {
        let x = all.x.get().wrapping_add(outer * N * inner + column);
        let start = outer * k * inner + column;
        let (values, positions) = (all.values.get(), all.positions.get());
        let (values, positions) = (values.wrapping_add(start), positions.wrapping_add(start));
        for (i, key) in keys.iter_mut().enumerate() {
            // SAFETY: element i of a row of the operand.
            *key = unsafe { *x.add(i * inner) }.sort_key(order);
        }
        let mut places = [0usize; N];
        for i in 1..N {
            for j in 0..i {
                let is_before = usize::from(keys[j] <= keys[i]);
                places[i] += is_before;
                places[j] += 1 - is_before;
            }
        }
        for (i, place) in places.into_iter().enumerate() {
            if place < k {
                // SAFETY: element i of a row of the operand; elements of the results' rows, which
                // belong to this task.
                unsafe {
                    *values.add(place * inner) = *x.add(i * inner);
                    *positions.add(place * inner) = i as i32;
                }
            }
        }
        column += 1;
        if column == inner {
            (outer, column) = (outer + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cpu;
    use teeny_core::{DType, Extremum, Reference, Result, Tensor, ToDevice};

    /// Rows of all lengths and with equal values have the reference's order, on any axis.
    #[test]
    fn short_rows_are_sorted_as_by_the_definition() -> Result<()> {
        let (cpu, reference) = (Cpu::new().to_device(), Reference::new().to_device());
        for length in 1..=MAX_LENGTH + 1 {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::I64, DType::U8] {
                let x = |device| {
                    let x = Tensor::arange(0i32, (6 * length) as i32, 1, device)?;
                    let x = x.mul(7)?.rem(5)?.reshape((2, length, 3))?;
                    x.cast(dtype)
                };
                let (a, b) = (x(&cpu)?, x(&reference)?);
                for (axis, size) in [(1, length), (2, 3)] {
                    for extremum in [Extremum::Smallest, Extremum::Largest] {
                        let sorted = |x: &Tensor| x.sort(axis, extremum.order());
                        let (got, want) = (sorted(&a)?, sorted(&b)?);
                        assert_eq!(got.0.to_bytes()?, want.0.to_bytes()?, "{length} {dtype}");
                        assert_eq!(got.1.to_bytes()?, want.1.to_bytes()?, "{length} {dtype}");
                        let selected = |x: &Tensor| x.topk(size.div_ceil(2), axis, extremum);
                        let (got, want) = (selected(&a)?, selected(&b)?);
                        assert_eq!(got.0.to_bytes()?, want.0.to_bytes()?, "{length} {dtype}");
                        assert_eq!(got.1.to_bytes()?, want.1.to_bytes()?, "{length} {dtype}");
                    }
                }
            }
        }
        Ok(())
    }
}
