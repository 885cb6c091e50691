//! Products of f32 and f64 down the columns of some rows, by vectors.
//!
//! The naive form multiplies each accumulator, an f64, by an element of one row after the other.
//! Here eight rows are multiplied while the accumulators are registers, in the same order, and few
//! rows need none. A product of two f32 is exact in f64: rounded it is their product in f32.

use super::table::Few;
use crate::simd::{F32s, Lanes, Level, Work};
use std::ops::Range;

/// Rows that are multiplied at once: memory is read in order for as long as a row of the group.
const GROUP: usize = 8;

/// Multiplies accumulators by rows of f32.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn multiply_rows(
    level: Level,
    _: u64,
    accs: *mut u8,
    n: usize,
    x: *const u8,
    step: isize,
    rows: Range<usize>,
) {
    level.run(MultiplyRows { accs: accs.cast(), n, x: x.cast(), step, rows: rows.len() });
}

struct MultiplyRows {
    accs: *mut f64,
    n: usize,
    x: *const f32,
    step: isize,
    rows: usize,
}

impl Work for MultiplyRows {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let MultiplyRows { accs, n, x, step, rows } = self;
        let half = <V::F64s as Lanes<f64>>::LANES;
        for first in (0..rows).step_by(GROUP) {
            let count = GROUP.min(rows - first);
            for at in (0..n).step_by(V::LANES) {
                let x = x.wrapping_offset(first as isize * step).wrapping_add(at);
                let (low_at, high_at) = (accs.wrapping_add(at), accs.wrapping_add(at + half));
                let (left, behind) = (n - at, (n - at).saturating_sub(half));
                // SAFETY: these columns are part of the rows and of the accumulators.
                unsafe {
                    let mut low: V::F64s = Lanes::load_up_to(low_at, left);
                    let mut high: V::F64s = Lanes::load_up_to(high_at, behind);
                    for row in 0..count as isize {
                        let (a, b) = V::load_up_to(x.wrapping_offset(row * step), left).widen();
                        (low, high) = (low.mul(a), high.mul(b));
                    }
                    low.store_up_to(low_at, left);
                    high.store_up_to(high_at, behind);
                }
            }
        }
    }
}

/// Writes the products of few rows of f32: always true.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn multiply_few(
    level: Level,
    _: u64,
    results: *mut u8,
    x: *const u8,
    few: Few,
) -> bool {
    level.run(FewRows { to: results.cast(), x: x.cast(), few });
    true
}

struct FewRows {
    to: *mut f32,
    x: *const f32,
    few: Few,
}

impl Work for FewRows {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Few { n, rows, step, blocks, apart } = self.few;
        for block in 0..blocks {
            let x = self.x.wrapping_offset(block as isize * apart);
            for at in (0..n).step_by(V::LANES) {
                let (to, left) = (self.to.wrapping_add(block * n + at), n - at);
                let row = |i: usize| {
                    let x = x.wrapping_offset(i as isize * step).wrapping_add(at);
                    // SAFETY: these columns are part of the rows.
                    unsafe { V::load_up_to(x, left) }
                };
                let product = match rows {
                    1 => row(0),
                    2 => row(0).mul(row(1)),
                    _ => {
                        let (mut low, mut high) = row(0).widen();
                        for i in 1..rows {
                            let (a, b) = row(i).widen();
                            (low, high) = (low.mul(a), high.mul(b));
                        }
                        V::narrow(low, high)
                    }
                };
                // SAFETY: these are results.
                unsafe { product.store_up_to(to, left) }
            }
        }
    }
}

/// [`multiply_few`] of f64.
///
/// # Safety
/// As there.
pub(super) unsafe fn multiply_few_doubles(
    level: Level,
    _: u64,
    results: *mut u8,
    x: *const u8,
    few: Few,
) -> bool {
    level.run(FewDoubles { to: results.cast(), x: x.cast(), few });
    true
}

struct FewDoubles {
    to: *mut f64,
    x: *const f64,
    few: Few,
}

impl Work for FewDoubles {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Few { n, rows, step, blocks, apart } = self.few;
        for block in 0..blocks {
            let x = self.x.wrapping_offset(block as isize * apart);
            for at in (0..n).step_by(<V::F64s as Lanes<f64>>::LANES) {
                let (x, to) = (x.wrapping_add(at), self.to.wrapping_add(block * n + at));
                // SAFETY: these columns are part of the rows and of the results.
                unsafe {
                    let mut product: V::F64s = Lanes::load_up_to(x, n - at);
                    for row in 1..rows as isize {
                        let x = x.wrapping_offset(row * step);
                        product = product.mul(Lanes::load_up_to(x, n - at));
                    }
                    product.store_up_to(to, n - at);
                }
            }
        }
    }
}
