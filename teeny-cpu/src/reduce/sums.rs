//! Sums of f32 and f64, and of their squares, by vectors.
//!
//! The naive form is `sum += x[i]` in f64. Vectors of f32 are faster, but their rounding errors
//! grow with the number of terms. So a lane adds at most 32 numbers in f32 before the sum goes on
//! in f64. Where such a partial sum is not finite, its terms are added in f64 instead. The sums of
//! up to 32 rows are results as they are.

use super::table::{Few, MAX_ROUNDED_ROWS, halved};
use crate::simd::{F32s, F64s, Lanes, Level, Work, for_pairs};
use crate::typed::{slice, slice_mut};
use std::ops::Range;

/// Terms that a lane of a short run adds.
const SHORT: usize = 24;

/// `x`, or its square.
#[inline(always)]
fn powers<T, V: Lanes<T>, const SQUARES: bool>(x: V) -> V {
    if SQUARES { x.mul(x) } else { x }
}

/// The sum of `xs`, at most 96 vectors: four vectors of f32, whose lanes are added at the end.
#[inline(always)]
fn sum_short<V: F32s, const SQUARES: bool>(xs: &[f32]) -> f32 {
    const VECTORS: usize = 4;
    let (mut i, n, mut sums) = (0, xs.len(), [V::splat(0.0); VECTORS]);
    if n <= V::LANES {
        // SAFETY: there are n elements.
        return powers::<f32, V, SQUARES>(unsafe { V::load_part(xs.as_ptr(), n) }).total();
    }
    // SAFETY: loads end at n.
    unsafe {
        while i + VECTORS * V::LANES <= n {
            for (j, sum) in sums.iter_mut().enumerate() {
                let x = V::load(xs.as_ptr().add(i + j * V::LANES));
                *sum = sum.add(powers::<f32, V, SQUARES>(x));
            }
            i += VECTORS * V::LANES;
        }
        while i + V::LANES <= n {
            sums[1] = sums[1].add(powers::<f32, V, SQUARES>(V::load(xs.as_ptr().add(i))));
            i += V::LANES;
        }
        if i < n {
            let x = V::load_part(xs.as_ptr().add(i), n - i);
            sums[0] = sums[0].add(powers::<f32, V, SQUARES>(x));
        }
    }
    sums[0].add(sums[1]).add(sums[2].add(sums[3])).total()
}

/// The sum of `xs`: 8 vectors of f32, of which a lane adds 8 terms before it is added to a lane of
/// totals, which adds 16; the sums of such pieces are added in f64.
#[inline(always)]
pub(super) fn sum_f32<V: F32s, const SQUARES: bool>(xs: &[f32]) -> f64 {
    const VECTORS: usize = 8;
    const TERMS: usize = 8;
    if xs.len() <= 4 * SHORT * V::LANES {
        let sum = f64::from(sum_short::<V, SQUARES>(xs));
        return if sum.is_finite() { sum } else { sum_f64(xs, SQUARES) };
    }
    let mut total = 0.0;
    for piece in xs.chunks(VECTORS * V::LANES * TERMS * 16) {
        let mut sums = [V::splat(0.0); VECTORS];
        for block in piece.chunks(VECTORS * V::LANES * TERMS) {
            let mut terms = [V::splat(0.0); VECTORS];
            let mut groups = block.chunks_exact(VECTORS * V::LANES);
            for group in &mut groups {
                for (j, sum) in terms.iter_mut().enumerate() {
                    // SAFETY: a group is VECTORS vectors.
                    let x = unsafe { V::load(group.as_ptr().add(j * V::LANES)) };
                    *sum = sum.add(powers::<f32, V, SQUARES>(x));
                }
            }
            for (j, rest) in groups.remainder().chunks(V::LANES).enumerate() {
                // SAFETY: reads the rest, at most a vector.
                let x = unsafe { V::load_part(rest.as_ptr(), rest.len()) };
                terms[j] = terms[j].add(powers::<f32, V, SQUARES>(x));
            }
            for_pairs(&mut sums, &terms, |sum, terms| *sum = sum.add(terms));
        }
        let (mut lanes, mut lanes_f64) = ([0.0f32; 16], [0.0f64; 16]);
        // SAFETY: the array has the lanes of the widest vector.
        unsafe { halved(&mut sums, V::add).store(lanes.as_mut_ptr()) };
        for_pairs(&mut lanes_f64, &lanes, |to, lane| *to = f64::from(lane));
        let sum = halved(&mut lanes_f64, |a, b| a + b);
        total += if sum.is_finite() { sum } else { sum_f64(piece, SQUARES) };
    }
    total
}

/// The sum of terms whose partial sums may be too large for f32, or of infinities and NaN.
#[cold]
#[inline(never)]
fn sum_f64(xs: &[f32], squares: bool) -> f64 {
    xs.iter().map(|&x| f64::from(x)).map(|x| if squares { x * x } else { x }).sum()
}

/// The sum of `xs` in four vectors of f64, or of their squares.
#[inline(always)]
pub(super) fn sum_doubles<D: F64s, const SQUARES: bool>(xs: &[f64]) -> f64 {
    const VECTORS: usize = 4;
    let (mut i, n, mut sums) = (0, xs.len(), [D::splat(0.0); VECTORS]);
    // SAFETY: loads end at n.
    unsafe {
        while i + VECTORS * D::LANES <= n {
            for (j, sum) in sums.iter_mut().enumerate() {
                let x = D::load(xs.as_ptr().add(i + j * D::LANES));
                *sum = sum.add(powers::<f64, D, SQUARES>(x));
            }
            i += VECTORS * D::LANES;
        }
        while i < n {
            let x = D::load_up_to(xs.as_ptr().add(i), n - i);
            sums[1] = sums[1].add(powers::<f64, D, SQUARES>(x));
            i += D::LANES;
        }
    }
    sums[0].add(sums[1]).add(sums[2].add(sums[3])).total()
}

/// As [`sum_rows`] for up to [`ROWS`] rows that are all that is added: writes the sums as results.
/// False if one is not finite: its terms may be, or their sum in f64.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn sum_few<const SQUARES: bool>(
    level: Level,
    _: u64,
    results: *mut u8,
    x: *const u8,
    few: Few,
) -> bool {
    level.run(FewRows::<SQUARES> { to: results.cast(), x: x.cast(), few })
}

/// [`sum_few`] of f64: always true.
///
/// # Safety
/// As there.
pub(super) unsafe fn sum_few_doubles<const SQUARES: bool>(
    level: Level,
    _: u64,
    results: *mut u8,
    x: *const u8,
    few: Few,
) -> bool {
    level.run(FewDoubles::<SQUARES> { to: results.cast(), x: x.cast(), few });
    true
}

/// The sums of few rows of f64.
struct FewDoubles<const SQUARES: bool> {
    to: *mut f64,
    x: *const f64,
    few: Few,
}

impl<const SQUARES: bool> Work for FewDoubles<SQUARES> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Few { n, rows, step, blocks, apart } = self.few;
        let lanes = <V::F64s as Lanes<f64>>::LANES;
        for block in 0..blocks {
            let to = self.to.wrapping_add(block * n);
            let x = self.x.wrapping_offset(block as isize * apart);
            // Eight rows at a time, which are read in order for as long as the row of results.
            for first in (0..rows).step_by(TREE) {
                for at in (0..n).step_by(lanes) {
                    let (left, to) = (n - at, to.wrapping_add(at));
                    // SAFETY: these columns are part of the rows and of the results.
                    unsafe {
                        let mut sum: V::F64s = match first {
                            0 => Lanes::splat(0.0),
                            _ => Lanes::load_up_to(to, left),
                        };
                        for row in first..rows.min(first + TREE) {
                            let x = x.wrapping_offset(row as isize * step).wrapping_add(at);
                            let x = <V::F64s as Lanes<f64>>::load_up_to(x, left);
                            sum = sum.add(powers::<f64, V::F64s, SQUARES>(x));
                        }
                        sum.store_up_to(to, left);
                    }
                }
            }
        }
    }
}

/// The sums of few rows of f32.
struct FewRows<const SQUARES: bool> {
    to: *mut f32,
    x: *const f32,
    few: Few,
}

impl<const SQUARES: bool> Work for FewRows<SQUARES> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        let Few { n, rows, step, blocks, apart } = self.few;
        for block in 0..blocks {
            let x = self.x.wrapping_offset(block as isize * apart);
            for first in (0..rows).step_by(TREE) {
                let x = x.wrapping_offset(first as isize * step);
                // SAFETY: these rows are readable, and each block has n results.
                unsafe {
                    let to = std::slice::from_raw_parts_mut(self.to.add(block * n), n);
                    tree::<V, SQUARES>(x, step, TREE.min(rows - first), to, first == 0);
                }
            }
        }
        // Zeros, and NaN for sums that are not finite.
        let (mut check, zero, n) = (V::splat(0.0), V::splat(0.0), n * blocks);
        for at in (0..n).step_by(V::LANES) {
            // SAFETY: these are results.
            let sum = unsafe { V::load_up_to(self.to.add(at), n - at) };
            check = check.add(sum.mul(zero));
        }
        !check.total().is_nan()
    }
}

/// Adds rows of f32 to sums in f64.
struct SumRows<'a, const SQUARES: bool> {
    sums: &'a mut [f64],
    x: *const f32,
    /// Elements from a row to the next.
    step: isize,
    rows: usize,
}

/// [`SumRows`] as a function of the table.
///
/// # Safety
/// As all functions of a table.
pub(super) unsafe fn sum_rows<const SQUARES: bool>(
    level: Level,
    _: u64,
    accs: *mut u8,
    n: usize,
    x: *const u8,
    step: isize,
    rows: Range<usize>,
) {
    // SAFETY: the caller's.
    let sums = unsafe { slice_mut(accs, n) };
    level.run(SumRows::<SQUARES> { sums, x: x.cast(), step, rows: rows.len() });
}

/// Rows that are added in f32 before their sum goes on in f64.
const ROWS: usize = MAX_ROUNDED_ROWS;
/// Vectors of neighbouring columns whose sums are registers.
const VECTORS: usize = 8;
/// Wide rows that are added at once: memory is read in order for as long as a row of the group, and
/// few pages are open.
const TREE: usize = 8;
/// Columns of wide rows whose sums of f32 stay in L1.
const WIDTH: usize = 1024;

impl<const SQUARES: bool> Work for SumRows<'_, SQUARES> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        if self.sums.len() <= VECTORS * V::LANES { self.narrow::<V>() } else { self.wide::<V>() }
    }
}

impl<const SQUARES: bool> SumRows<'_, SQUARES> {
    /// Rows of a few vectors: each is added to registers.
    #[inline(always)]
    fn narrow<V: F32s>(self) {
        let SumRows { sums, x, step, rows } = self;
        let (mut lanes, n) = ([0.0f32; VECTORS * 16], sums.len());
        for first in (0..rows).step_by(ROWS) {
            let rows = ROWS.min(rows - first) as isize;
            let x = x.wrapping_offset(first as isize * step);
            // SAFETY: `rows` rows of n elements are readable at x. There are lanes for the widest
            // vectors.
            unsafe {
                if n == VECTORS * V::LANES {
                    let mut acc = [V::splat(0.0); VECTORS];
                    for row in 0..rows {
                        let x = x.offset(row * step);
                        for (j, acc) in acc.iter_mut().enumerate() {
                            let x = V::load(x.add(j * V::LANES));
                            *acc = acc.add(powers::<f32, V, SQUARES>(x));
                        }
                    }
                    for (j, acc) in acc.into_iter().enumerate() {
                        acc.store(lanes.as_mut_ptr().add(j * V::LANES));
                    }
                } else {
                    for at in (0..n).step_by(V::LANES) {
                        let (mut acc, x) = (V::splat(0.0), x.add(at));
                        for row in 0..rows {
                            let x = V::load_up_to(x.offset(row * step), n - at);
                            acc = acc.add(powers::<f32, V, SQUARES>(x));
                        }
                        acc.store(lanes.as_mut_ptr().add(at));
                    }
                }
            }
            for_pairs(sums, &lanes, |sum, lane| *sum += f64::from(lane));
        }
    }

    /// Wide rows: eight at a time to sums in L1.
    #[inline(always)]
    fn wide<V: F32s>(self) {
        let SumRows { sums, x, step, rows } = self;
        let mut trees = [0.0f32; WIDTH];
        for (c, sums) in sums.chunks_mut(WIDTH).enumerate() {
            let x = x.wrapping_add(c * WIDTH);
            for first in (0..rows).step_by(ROWS) {
                let end = rows.min(first + ROWS);
                for row in (first..end).step_by(TREE) {
                    let x = x.wrapping_offset(row as isize * step);
                    let (count, fresh) = (TREE.min(end - row), row == first);
                    // SAFETY: `count` rows of `sums.len()` elements are readable at x.
                    unsafe { tree::<V, SQUARES>(x, step, count, &mut trees[..sums.len()], fresh) };
                }
                for_pairs(sums, &trees, |sum, tree| *sum += f64::from(tree));
            }
        }
    }
}

/// Adds the sum of up to eight rows to `to`, or replaces it.
///
/// # Safety
/// `count` rows of `to.len()` elements, `step` apart, are readable at `x`.
#[inline(always)]
unsafe fn tree<V: F32s, const SQUARES: bool>(
    x: *const f32,
    step: isize,
    count: usize,
    to: &mut [f32],
    fresh: bool,
) {
    for (j, to) in to.chunks_mut(V::LANES).enumerate() {
        let (x, n) = (x.wrapping_add(j * V::LANES), to.len());
        // SAFETY: by contract; a part where a vector would reach beyond the row.
        unsafe {
            let row = |i: isize| powers::<f32, V, SQUARES>(V::load_up_to(x.offset(i * step), n));
            let sum = if count == TREE {
                let low = row(0).add(row(1)).add(row(2).add(row(3)));
                low.add(row(4).add(row(5)).add(row(6).add(row(7))))
            } else {
                (1..count as isize).fold(row(0), |sum, i| sum.add(row(i)))
            };
            // Zero even where all rows are -0.
            let before = if fresh { V::splat(0.0) } else { V::load_up_to(to.as_ptr(), n) };
            sum.add(before).store_up_to(to.as_mut_ptr(), n);
        }
    }
}

/// Whether no sum on the way was too large for f32, and no element infinite or NaN.
///
/// # Safety
/// There are `n` sums.
pub(super) unsafe fn sums_are_finite(accs: *const u8, n: usize) -> bool {
    // SAFETY: by contract.
    unsafe { slice::<f64>(accs, n) }.iter().all(|sum| sum.is_finite())
}
