//! Sums of f32 by vectors.
//!
//! The naive form is `sum += x[i]` in f64. Vectors of f32 are faster, but their rounding errors
//! grow with the number of terms. So a lane adds at most 32 numbers in f32 before the sum goes on
//! in f64. Where such a partial sum is not finite, its terms are added in f64 instead.

use super::table::halved;
use crate::simd::{F32s, Level, Work, for_pairs, prefetch_ahead};
use crate::typed::slice_mut;
use std::ops::Range;

/// The sum of `xs`: 8 vectors of f32, of which a lane adds 8 terms before it is added to a lane of
/// totals, which adds 16; the sums of such pieces are added in f64.
#[inline(always)]
pub(super) fn sum_f32<V: F32s>(xs: &[f32]) -> f64 {
    const VECTORS: usize = 8;
    const TERMS: usize = 8;
    let mut total = 0.0;
    for piece in xs.chunks(VECTORS * V::LANES * TERMS * 16) {
        let mut sums = [V::splat(0.0); VECTORS];
        for block in piece.chunks(VECTORS * V::LANES * TERMS) {
            let mut terms = [V::splat(0.0); VECTORS];
            let mut groups = block.chunks_exact(VECTORS * V::LANES);
            for group in &mut groups {
                prefetch_ahead(group);
                for (j, sum) in terms.iter_mut().enumerate() {
                    // SAFETY: a group is VECTORS vectors.
                    *sum = sum.add(unsafe { V::load(group.as_ptr().add(j * V::LANES)) });
                }
            }
            for (j, rest) in groups.remainder().chunks(V::LANES).enumerate() {
                // SAFETY: reads the rest, at most a vector.
                terms[j] = terms[j].add(unsafe { V::load_part(rest.as_ptr(), rest.len()) });
            }
            for_pairs(&mut sums, &terms, |sum, terms| *sum = sum.add(terms));
        }
        let (mut lanes, mut lanes_f64) = ([0.0f32; 16], [0.0f64; 16]);
        // SAFETY: the array has the lanes of the widest vector.
        unsafe { halved(&mut sums, V::add).store(lanes.as_mut_ptr()) };
        for_pairs(&mut lanes_f64, &lanes, |to, lane| *to = f64::from(lane));
        let sum = halved(&mut lanes_f64, |a, b| a + b);
        total += if sum.is_finite() { sum } else { sum_f64(piece) };
    }
    total
}

/// The sum of terms whose partial sums may be too large for f32, or of infinities and NaN.
#[cold]
#[inline(never)]
fn sum_f64(xs: &[f32]) -> f64 {
    xs.iter().map(|&x| f64::from(x)).sum()
}

/// Adds rows of f32 to sums in f64 that are still zero: eight rows in f32 first, by vectors.
struct SumRows<'a> {
    sums: &'a mut [f64],
    x: *const f32,
    /// Elements from a row to the next.
    step: usize,
    rows: usize,
}

/// [`SumRows`] as a function of the table.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn sum_rows(
    level: Level,
    _: u64,
    accs: *mut u8,
    n: usize,
    x: *const u8,
    step: usize,
    rows: Range<usize>,
) {
    // SAFETY: the caller's.
    let sums = unsafe { slice_mut(accs, n) };
    level.run(SumRows { sums, x: x.cast(), step, rows: rows.len() });
}

impl Work for SumRows<'_> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        const GROUP: usize = 8;
        let SumRows { sums, x, step, rows } = self;
        for first in (0..rows).step_by(GROUP) {
            let count = GROUP.min(rows - first);
            for (j, sums) in sums.chunks_mut(V::LANES).enumerate() {
                // SAFETY: `rows` rows of `sums.len()` elements are readable; a part where a vector
                // would reach beyond the row.
                unsafe {
                    let x = x.add(first * step + j * V::LANES);
                    let row = |i: usize| {
                        if sums.len() == V::LANES {
                            V::load(x.add(i * step))
                        } else {
                            V::load_part(x.add(i * step), sums.len())
                        }
                    };
                    let sum = if count == GROUP {
                        row(0)
                            .add(row(1))
                            .add(row(2).add(row(3)))
                            .add(row(4).add(row(5)).add(row(6).add(row(7))))
                    } else {
                        (0..count).fold(V::splat(0.0), |sum, i| sum.add(row(i)))
                    };
                    let mut lanes = [0.0f32; 16];
                    sum.store(lanes.as_mut_ptr());
                    for_pairs(sums, &lanes, |sum, lane| *sum += f64::from(lane));
                }
            }
        }
        if sums.iter().any(|sum| !sum.is_finite()) {
            // SAFETY: as above.
            unsafe { column_sums_f64(sums, x, step, rows) };
        }
    }
}

/// [`sum_f64`] of columns whose sums are not finite.
///
/// # Safety
/// `rows` rows of `sums.len()` elements, `step` apart, are readable at `x`.
#[cold]
#[inline(never)]
unsafe fn column_sums_f64(sums: &mut [f64], x: *const f32, step: usize, rows: usize) {
    for (j, sum) in sums.iter_mut().enumerate().filter(|(_, sum)| !sum.is_finite()) {
        // SAFETY: by contract.
        *sum = (0..rows).map(|i| f64::from(unsafe { *x.add(i * step + j) })).sum();
    }
}
