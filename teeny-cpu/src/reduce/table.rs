//! A reduction as a trait, [`Reducer`], and as a table of functions on bytes made of it. The
//! traversal that calls them, `reduce`, is compiled once and not for each pair of dtype and
//! operation.
//!
//! The naive form is `acc = add(acc, x[i])`. [`Reducer::run`] keeps 32 accumulators, so that adding
//! is not one chain of latencies. The operations are in `reducers`.

use crate::simd::{F32s, Level, Work, for_pairs, prefetch_ahead};
use crate::typed::{slice, slice_mut};
use std::ops::Range;

/// One reduction of elements `T`.
pub(crate) trait Reducer<T: Copy>: Copy + Send + Sync + 'static {
    /// The running value.
    type Acc: Copy + Send + Sync + 'static;
    /// The result.
    type Out: Copy;
    /// The value of nothing.
    const START: Self::Acc;
    /// Whether its loops are compiled for AVX-512 too, as [`Work::FOR_AVX512`](crate::simd::Work::FOR_AVX512).
    const FOR_AVX512: bool = false;
    /// The elements from which a run is reduced by vectors, without a slow end; none if 0.
    const VECTORS: usize = 0;
    /// Whether short rows are added element by element: processors overlap rows whose elements take
    /// one cheap instruction each.
    const BY_ELEMENT: bool = false;
    /// Adds rows to accumulators, faster than element by element.
    const FAST_ROWS: Rows = rows::<T, Self>;
    /// Checks that accumulators of `FAST_ROWS` agree with [`rows`]; `None` if they always do.
    const IS_FINITE: Option<IsFinite> = None;
    /// As `FAST_ROWS` followed by `finish`, for up to `MAX_FEW_ROWS` rows that are all there are.
    const FEW_ROWS: Option<FewRows> = None;
    /// The most rows of `FEW_ROWS`.
    const MAX_FEW_ROWS: usize = MAX_ROUNDED_ROWS;
    /// Position i of each accumulator becomes `scale * i + offset`, if it has one.
    const RENUMBER: Option<Renumber> = None;
    /// Adds element `x`, whose position along the reduced axes is `i`.
    fn add(acc: Self::Acc, x: T, i: usize, flip: u64) -> Self::Acc;
    /// Two runs as one; `b` comes later.
    fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The result.
    fn finish(acc: Self::Acc, flip: u64) -> Self::Out;

    /// [`Reducer::run`] by vectors of a level, where that is faster.
    #[inline(always)]
    fn run_on<V: F32s>(xs: &[T], i: usize, flip: u64) -> Self::Acc {
        Self::run(xs, i, flip)
    }

    /// A run of consecutive elements whose first has position `i`: 32 lanes, so that adding is not
    /// one chain of latencies, or 64 that four elements at a time are added to.
    #[inline(always)]
    fn run(xs: &[T], i: usize, flip: u64) -> Self::Acc {
        const WIDE: usize = 64;
        if xs.len() >= 64 * WIDE {
            let mut lanes = [Self::START; WIDE];
            let (blocks, tail) = xs.as_chunks::<{ 4 * WIDE }>();
            for block in blocks {
                // Enough lanes that the compiler keeps this loop, and vectorises it.
                for j in 0..WIDE {
                    let low =
                        Self::add(Self::add(lanes[j], block[j], i, flip), block[WIDE + j], i, flip);
                    let high = Self::add(low, block[2 * WIDE + j], i, flip);
                    lanes[j] = Self::add(high, block[3 * WIDE + j], i, flip);
                }
            }
            for chunk in tail.chunks(WIDE) {
                for_pairs(&mut lanes, chunk, |lane, x| *lane = Self::add(*lane, x, i, flip));
            }
            return join_lanes::<T, Self>(&mut lanes);
        }
        const LANES: usize = 32;
        let mut lanes = [Self::START; LANES];
        let (chunks, tail) = xs.as_chunks::<LANES>();
        for chunk in chunks {
            prefetch_ahead(chunk);
            for_pairs(&mut lanes, chunk, |lane, x| *lane = Self::add(*lane, x, i, flip));
        }
        for_pairs(&mut lanes, tail, |lane, x| *lane = Self::add(*lane, x, i, flip));
        join_lanes::<T, Self>(&mut lanes)
    }
}

/// All values as one, halves first. Their number is a power of two.
#[inline(always)]
pub(super) fn halved<T: Copy>(values: &mut [T], join: impl Fn(T, T) -> T) -> T {
    let mut width = values.len();
    while width > 1 {
        width /= 2;
        for j in 0..width {
            values[j] = join(values[j], values[j + width]);
        }
    }
    values[0]
}

/// The lanes as one.
#[inline(always)]
fn join_lanes<T: Copy, R: Reducer<T>>(lanes: &mut [R::Acc]) -> R::Acc {
    halved(lanes, R::join)
}

/// Adds rows of `n` elements that begin `step` elements apart at `x`, the first of them number
/// `rows.start`: element j of each to accumulator j.
pub(crate) type Rows = unsafe fn(
    Level,
    flip: u64,
    accs: *mut u8,
    n: usize,
    x: *const u8,
    step: isize,
    rows: Range<usize>,
);
/// The most rows of [`FewRows`] whose results are rounded.
pub(crate) const MAX_ROUNDED_ROWS: usize = 32;
/// Writes the results of blocks of a few rows at `x`, one block after the other; false if the rows
/// have to be added in another way.
pub(crate) type FewRows = unsafe fn(Level, flip: u64, results: *mut u8, x: *const u8, Few) -> bool;
/// `blocks` blocks, `apart` elements apart, of `rows` rows of `n` elements, `step` apart.
#[derive(Clone, Copy)]
pub(crate) struct Few {
    pub n: usize,
    pub rows: usize,
    pub step: isize,
    pub blocks: usize,
    pub apart: isize,
}
/// Whether all of `n` accumulators are finite.
pub(crate) type IsFinite = unsafe fn(accs: *const u8, n: usize) -> bool;
/// Position i of each of `n` accumulators becomes `scale * i + offset`.
pub(crate) type Renumber = unsafe fn(accs: *mut u8, n: usize, scale: usize, offset: usize);

/// Runs of `n` elements, `step` elements apart; each is added to the accumulator `acc_step` after
/// the previous run's. Each run starts at the position of the first run, or `n` after the previous
/// run's if they share an accumulator.
#[derive(Clone, Copy)]
pub(crate) struct Runs {
    pub n: usize,
    pub count: usize,
    pub step: isize,
    pub acc_step: usize,
}

/// The functions of one reduction. Accumulators are plain values that follow one another, aligned
/// to 8 bytes.
///
/// All are unsafe in the same way: elements must be readable, accumulators and results writable, of
/// the types that the table was made for. `flip` comes from `flip_of`.
pub(crate) struct Table {
    /// Bytes of an element.
    pub element: usize,
    /// Bytes of an accumulator, at most 16.
    pub acc: usize,
    /// Bytes of a result.
    pub result: usize,
    /// Makes `n` accumulators without elements.
    pub start: unsafe fn(accs: *mut u8, n: usize),
    /// [`Reducer::VECTORS`].
    pub vectors: usize,
    /// [`Reducer::BY_ELEMENT`].
    pub by_element: bool,
    /// Adds runs; the first element of the first has position `i`.
    pub run: unsafe fn(Level, flip: u64, accs: *mut u8, x: *const u8, Runs, i: usize),
    /// Adds rows.
    pub rows: Rows,
    /// As `rows`, faster; see `is_finite`.
    pub fast_rows: Rows,
    /// If this says no after `fast_rows`, the rows are to be added again by `rows`.
    pub is_finite: Option<IsFinite>,
    /// [`Reducer::FEW_ROWS`].
    pub few_rows: Option<FewRows>,
    /// [`Reducer::MAX_FEW_ROWS`].
    pub max_few_rows: usize,
    /// [`Reducer::RENUMBER`].
    pub renumber: Option<Renumber>,
    /// Adds `n` elements of short rows, each of `length`, the first of them at `at` of the row of
    /// the accumulator; writes the results of rows that end and leaves the accumulator of the last
    /// row if it does not end.
    pub short: unsafe fn(
        flip: u64,
        acc: *mut u8,
        x: *const u8,
        n: usize,
        at: usize,
        length: usize,
        results: *mut u8,
    ),
    /// Joins accumulators j, n + j, 2n + j, .. of `blocks` blocks in this order, in the first of
    /// them, and writes result j, for each of `n`.
    pub finish: unsafe fn(flip: u64, accs: *mut u8, blocks: usize, n: usize, results: *mut u8),
}

/// The table of `R` over elements `T`.
pub(crate) fn of<T: Copy + 'static, R: Reducer<T>>() -> &'static Table {
    const {
        assert!(size_of::<R::Acc>() <= 16 && align_of::<R::Acc>() <= 8);
        &Table {
            element: size_of::<T>(),
            acc: size_of::<R::Acc>(),
            result: size_of::<R::Out>(),
            start: start::<T, R>,
            vectors: R::VECTORS,
            by_element: R::BY_ELEMENT,
            run: run::<T, R>,
            rows: rows::<T, R>,
            fast_rows: R::FAST_ROWS,
            is_finite: R::IS_FINITE,
            few_rows: R::FEW_ROWS,
            max_few_rows: R::MAX_FEW_ROWS,
            renumber: R::RENUMBER,
            short: short::<T, R>,
            finish: finish::<T, R>,
        }
    }
}

unsafe fn start<T: Copy, R: Reducer<T>>(accs: *mut u8, n: usize) {
    // SAFETY: the caller's.
    unsafe { slice_mut(accs, n) }.fill(R::START);
}

unsafe fn run<T: Copy, R: Reducer<T>>(
    level: Level,
    flip: u64,
    accs: *mut u8,
    x: *const u8,
    runs: Runs,
    i: usize,
) {
    level.run(EachRun::<T, R> { accs: accs.cast(), x: x.cast(), runs, i, flip });
}

/// `Reducer::run` of each of some runs, compiled for a level.
struct EachRun<T: Copy, R: Reducer<T>> {
    accs: *mut R::Acc,
    x: *const T,
    runs: Runs,
    i: usize,
    flip: u64,
}

impl<T: Copy, R: Reducer<T>> Work for EachRun<T, R> {
    type Out = ();
    const FOR_AVX512: bool = R::FOR_AVX512;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Runs { n, count, step, acc_step } = self.runs;
        let i_step = if acc_step == 0 { n } else { 0 };
        for run in 0..count {
            // SAFETY: the caller of `run` promises the runs and their accumulators.
            unsafe {
                let xs = std::slice::from_raw_parts(self.x.offset(run as isize * step), n);
                let acc = self.accs.add(run * acc_step);
                *acc = R::join(*acc, R::run_on::<V>(xs, self.i + run * i_step, self.flip));
            }
        }
    }
}

/// [`Table::rows`] for any reducer.
///
/// # Safety
/// As all functions of a table.
pub(crate) unsafe fn rows<T: Copy, R: Reducer<T>>(
    level: Level,
    flip: u64,
    accs: *mut u8,
    n: usize,
    x: *const u8,
    step: isize,
    rows: Range<usize>,
) {
    // SAFETY: the caller's.
    level.run(Fold::<T, R> { accs: unsafe { slice_mut(accs, n) }, x: x.cast(), step, rows, flip });
}

/// Adds rows to the accumulators of their columns, compiled for a level.
struct Fold<'a, T: Copy, R: Reducer<T>> {
    accs: &'a mut [R::Acc],
    x: *const T,
    step: isize,
    rows: Range<usize>,
    flip: u64,
}

impl<T: Copy, R: Reducer<T>> Work for Fold<'_, T, R> {
    type Out = ();
    const FOR_AVX512: bool = R::FOR_AVX512;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let flip = self.flip;
        for (i, row) in self.rows.enumerate() {
            // SAFETY: the caller of `rows` promises the rows.
            let xs = unsafe {
                std::slice::from_raw_parts(self.x.offset(i as isize * self.step), self.accs.len())
            };
            for_pairs(self.accs, xs, |acc, x| *acc = R::add(*acc, x, row, flip));
        }
    }
}

unsafe fn short<T: Copy, R: Reducer<T>>(
    flip: u64,
    acc: *mut u8,
    x: *const u8,
    n: usize,
    mut at: usize,
    length: usize,
    results: *mut u8,
) {
    // SAFETY: the caller's.
    unsafe {
        let (mut xs, mut results) = (slice::<T>(x, n), results.cast::<R::Out>());
        let mut sum = *acc.cast::<R::Acc>();
        while !xs.is_empty() {
            let count = (length - at).min(xs.len());
            for (i, &x) in xs[..count].iter().enumerate() {
                sum = R::add(sum, x, at + i, flip);
            }
            (xs, at) = (&xs[count..], at + count);
            if at == length {
                *results = R::finish(sum, flip);
                (results, at, sum) = (results.add(1), 0, R::START);
            }
        }
        *acc.cast() = sum;
    }
}

unsafe fn finish<T: Copy, R: Reducer<T>>(
    flip: u64,
    accs: *mut u8,
    blocks: usize,
    n: usize,
    results: *mut u8,
) {
    // SAFETY: the caller's.
    let (accs, results) =
        unsafe { (slice_mut::<R::Acc>(accs, blocks * n), slice_mut::<R::Out>(results, n)) };
    if blocks == 0 {
        return results.fill(R::finish(R::START, flip));
    }
    let (sums, others) = accs.split_at_mut(n);
    for b in 0..blocks - 1 {
        for_pairs(sums, &others[b * n..(b + 1) * n], |sum, acc| *sum = R::join(*sum, acc));
    }
    for_pairs(results, sums, |result, sum| *result = R::finish(sum, flip));
}
