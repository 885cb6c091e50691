//! The largest or the smallest of a run of f32 or f64 by vectors.
//!
//! The naive form compares with the value before and asks whether it is NaN. Vector instructions
//! ignore a NaN on one side; here the elements are also added, and a sum that is NaN tells that one
//! may be among them, or infinities of both signs.

use super::table::Few;
use crate::simd::{F32s, F64s, Level, Work};

/// Vectors, so that comparing is not one chain of latencies.
const VECTORS: usize = 4;

/// The largest, or with `smallest` the negated smallest, of `xs`; none if there may be a NaN, or
/// fewer elements than a vector has.
#[inline(always)]
pub(super) fn largest<V: F32s>(xs: &[f32], smallest: bool) -> Option<f32> {
    if xs.len() < V::LANES {
        return None;
    }
    let (best, sum) = if smallest { extremes::<V, true>(xs) } else { extremes::<V, false>(xs) };
    (!sum.is_nan()).then_some(best)
}

/// The extreme as above, and a sum of all elements, some of them counted twice.
#[inline(always)]
fn extremes<V: F32s, const SMALLEST: bool>(xs: &[f32]) -> (f32, f32) {
    let (n, p) = (xs.len(), xs.as_ptr());
    // SAFETY: there is at least one vector, and every load ends at or before n.
    unsafe {
        let first = V::load(p);
        let (mut best, mut sums) = ([first; VECTORS], [V::splat(0.0); VECTORS]);
        let mut add = |j: usize, x: V| {
            // Both return the second operand if either is NaN.
            best[j] = if SMALLEST { x.min(best[j]) } else { x.max(best[j]) };
            sums[j] = sums[j].add(x);
        };
        let mut i = 0;
        while i + VECTORS * V::LANES <= n {
            for j in 0..VECTORS {
                add(j, V::load(p.add(i + j * V::LANES)));
            }
            i += VECTORS * V::LANES;
        }
        while i + V::LANES <= n {
            add(1, V::load(p.add(i)));
            i += V::LANES;
        }
        if i < n {
            add(2, V::load(p.add(n - V::LANES)));
        }
        let sum = sums[0].add(sums[1]).add(sums[2].add(sums[3])).total();
        let best = if SMALLEST {
            best[0].min(best[1]).min(best[2].min(best[3])).xor_sign(V::splat(-0.0))
        } else {
            best[0].max(best[1]).max(best[2].max(best[3]))
        };
        (best.largest(), sum)
    }
}

/// The largest, or with a `flip` the smallest, of each column of few rows; false if there may be a
/// NaN among them.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn largest_few(
    level: Level,
    flip: u64,
    results: *mut u8,
    x: *const u8,
    few: Few,
) -> bool {
    let (to, x, smallest, fresh) = (results.cast(), x.cast(), flip != 0, true);
    level.run(Columns { to, x, few, smallest, fresh })
}

/// Compares accumulators, which are negated for the smallest, with rows; false if there may be a NaN
/// among these, which are to be compared again then.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn largest_rows(
    level: Level,
    flip: u64,
    accs: *mut u8,
    x: *const u8,
    few: Few,
) -> bool {
    let (to, x, smallest, fresh) = (accs.cast(), x.cast(), flip != 0, false);
    level.run(Columns { to, x, few, smallest, fresh })
}

/// Rows that are compared at once: memory is read in order for as long as a row of the group.
const GROUP: usize = 8;

/// The extremes of columns of f32. They begin with the first row if they are `fresh`.
struct Columns {
    to: *mut f32,
    x: *const f32,
    few: Few,
    smallest: bool,
    fresh: bool,
}

impl Work for Columns {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        if self.smallest { self.extremes::<V, true>() } else { self.extremes::<V, false>() }
    }
}

impl Columns {
    #[inline(always)]
    fn extremes<V: F32s, const SMALLEST: bool>(self) -> bool {
        let Few { n, rows, step, blocks, apart } = self.few;
        let sign = V::splat(if SMALLEST && !self.fresh { -0.0 } else { 0.0 });
        let mut sums = V::splat(0.0);
        for block in 0..blocks {
            let (x, to) = (self.x.wrapping_offset(block as isize * apart), block * n);
            for first in (0..rows).step_by(GROUP) {
                for at in (0..n).step_by(V::LANES) {
                    let (x, to) = (x.wrapping_add(at), self.to.wrapping_add(to + at));
                    let row = |row: usize| x.wrapping_offset(row as isize * step);
                    // SAFETY: these columns are part of the rows and of the results.
                    unsafe {
                        let begins = first == 0 && self.fresh;
                        let before = if begins { row(0) } else { to.cast_const() };
                        let mut best = V::load_up_to(before, n - at).xor_sign(sign);
                        let mut sum = V::splat(0.0);
                        for i in first..rows.min(first + GROUP) {
                            let x = V::load_up_to(row(i), n - at);
                            best = if SMALLEST { x.min(best) } else { x.max(best) };
                            sum = sum.add(x);
                        }
                        sums = sums.add(sum);
                        // An extreme of zero is +0.
                        best.add(V::splat(0.0)).xor_sign(sign).store_up_to(to, n - at);
                    }
                }
            }
        }
        !sums.total().is_nan()
    }
}

/// [`largest`] of f64.
#[inline(always)]
pub(super) fn largest_double<D: F64s>(xs: &[f64], smallest: bool) -> Option<f64> {
    let (n, p) = (xs.len(), xs.as_ptr());
    if n < D::LANES {
        return None;
    }
    // The sign bit that makes the smallest the largest.
    let sign = D::splat(if smallest { -0.0 } else { 0.0 });
    let (mut best, mut sums) = ([D::splat(f64::NEG_INFINITY); VECTORS], [D::splat(0.0); VECTORS]);
    let mut lanes = [f64::NEG_INFINITY; 8];
    // SAFETY: every load ends at or before n; the array has the lanes of the widest vector.
    unsafe {
        let mut add = |j: usize, x: D| {
            let x = x.xor_sign(sign);
            best[j] = x.max(best[j]);
            sums[j] = sums[j].add(x);
        };
        let mut i = 0;
        while i + VECTORS * D::LANES <= n {
            for j in 0..VECTORS {
                add(j, D::load(p.add(i + j * D::LANES)));
            }
            i += VECTORS * D::LANES;
        }
        while i + D::LANES <= n {
            add(1, D::load(p.add(i)));
            i += D::LANES;
        }
        if i < n {
            add(2, D::load(p.add(n - D::LANES)));
        }
        best[0].max(best[1]).max(best[2].max(best[3])).store(lanes.as_mut_ptr());
    }
    let sum = sums[0].add(sums[1]).add(sums[2].add(sums[3])).total();
    let mut largest = lanes[0];
    let mut j = 1;
    while j < D::LANES {
        largest = if lanes[j] > largest { lanes[j] } else { largest };
        j += 1;
    }
    (!sum.is_nan()).then_some(largest)
}
