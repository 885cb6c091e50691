//! What the reductions accumulate: one small type per operation, generic over the element.
//!
//! Products of f32 are carried in f64. Sums of f32 too, after at most 32 roundings in f32: their
//! error is at most 2e-6 of Σ |x|, whatever their number, and half a unit in the last place of the
//! result. Where such a partial sum leaves the range of f32, its terms are added in f64 instead.
//! Integers wrap in their own type. NaN wins every comparison, and of equals the first; an extreme
//! of zero is +0.
//!
//! Only the largest is looked for: elements are compared after some of their bits are flipped,
//! those of [`flip_of`], which turns the order of signed integers into that of unsigned ones, and
//! the smallest into the largest.

use super::table::{self, Rows};
use crate::elementwise::cast::slice_mut;
use crate::elementwise::int::Int;
use crate::simd::{F32s, Level, Work, for_pairs, prefetch_ahead};
use std::ops::Range;
use teeny_core::{DType, ReduceOp};

/// One reduction of elements `T`.
pub(crate) trait Reducer<T: Copy>: Copy + Send + Sync + 'static {
    /// The running value.
    type Acc: Copy + Send + Sync + 'static;
    /// What is stored.
    type Out: Copy;
    /// The value of nothing.
    const START: Self::Acc;
    /// Whether its loops are compiled for AVX-512 too, as [`Work::WIDE`].
    const WIDE: bool = false;
    /// How rows that lie in memory as they are, one behind the other, are taken in.
    const PACKED: Rows = table::rows::<T, Self>;
    /// Takes in element `x`, whose position along the reduced axes is `i`.
    fn add(acc: Self::Acc, x: T, i: usize, flip: u64) -> Self::Acc;
    /// Two runs as one; `b` comes later.
    fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The result.
    fn finish(acc: Self::Acc, flip: u64) -> Self::Out;

    /// [`Reducer::run`] where vectors of the level at hand do better.
    #[inline(always)]
    fn run_on<V: F32s>(xs: &[T], i: usize, flip: u64) -> Self::Acc {
        Self::run(xs, i, flip)
    }

    /// A run of consecutive elements whose first has position `i`: 32 lanes, so that adding is not
    /// one chain of latencies.
    #[inline(always)]
    fn run(xs: &[T], i: usize, flip: u64) -> Self::Acc {
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

/// All values as one, halves first; as many as a power of two.
#[inline(always)]
fn halved<T: Copy>(values: &mut [T], join: impl Fn(T, T) -> T) -> T {
    let mut width = values.len();
    while width > 1 {
        width /= 2;
        for j in 0..width {
            values[j] = join(values[j], values[j + width]);
        }
    }
    values[0]
}

/// The lanes as one. A function of its own, so that no level has a copy of these many joins.
#[inline(never)]
fn join_lanes<T: Copy, R: Reducer<T>>(lanes: &mut [R::Acc]) -> R::Acc {
    halved(lanes, R::join)
}

/// Sum.
#[derive(Clone, Copy)]
pub(crate) struct Sum;
/// Product.
#[derive(Clone, Copy)]
pub(crate) struct Prod;
/// Largest.
#[derive(Clone, Copy)]
pub(crate) struct Max;
/// Position of the first largest.
#[derive(Clone, Copy)]
pub(crate) struct ArgMax;
/// Whether any is true.
#[derive(Clone, Copy)]
pub(crate) struct Any;
/// Whether all are true.
#[derive(Clone, Copy)]
pub(crate) struct All;

/// The sum of `xs`: 8 vectors of f32, of which a lane takes in 8 terms before it is added to a lane
/// of totals, which takes in 16; the pieces that these make are added in f64.
#[inline(always)]
fn sum_f32<V: F32s>(xs: &[f32]) -> f64 {
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
        let (mut lanes, mut wide) = ([0.0f32; 16], [0.0f64; 16]);
        // SAFETY: room for the widest vector.
        unsafe { halved(&mut sums, V::add).store(lanes.as_mut_ptr()) };
        for_pairs(&mut wide, &lanes, |wide, lane| *wide = f64::from(lane));
        let sum = halved(&mut wide, |a, b| a + b);
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

/// Adds rows of f32 to sums in f64 of nothing yet: eight rows as f32 first, by vectors.
struct SumRows<'a> {
    sums: &'a mut [f64],
    x: *const f32,
    /// From a row to the next.
    step: usize,
    rows: usize,
}

/// [`SumRows`] as an entry of the table.
unsafe fn sum_rows(
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

macro_rules! float_sums {
    ($($t:ty { $($own:item)* };)*) => {$(
        impl Reducer<$t> for Sum {
            type Acc = f64;
            type Out = $t;
            const START: f64 = 0.0;
            #[inline(always)]
            fn add(acc: f64, x: $t, _: usize, _: u64) -> f64 { acc + x as f64 }
            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 { a + b }
            #[inline(always)]
            fn finish(acc: f64, _: u64) -> $t { acc as $t }
            $($own)*
        }
        impl Reducer<$t> for Prod {
            type Acc = f64;
            type Out = $t;
            const START: f64 = 1.0;
            #[inline(always)]
            fn add(acc: f64, x: $t, _: usize, _: u64) -> f64 { acc * x as f64 }
            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 { a * b }
            #[inline(always)]
            fn finish(acc: f64, _: u64) -> $t { acc as $t }
        }
    )*};
}
float_sums! {
    f32 {
        const WIDE: bool = true;
        const PACKED: Rows = sum_rows;
        #[inline(always)]
        fn run_on<V: F32s>(xs: &[f32], _: usize, _: u64) -> f64 { sum_f32::<V>(xs) }
    };
    f64 {};
}

/// A type with an order in which NaN beats everything.
pub(crate) trait Ordered: Copy + PartialOrd + Send + Sync + 'static {
    /// Below every value.
    const LOWEST: Self;
    /// Whether its loops are compiled for AVX-512 too.
    const WIDE: bool;
    /// Whether this is NaN.
    fn nan(self) -> bool;
    /// This, with -0 as 0: which of several equal zeros comes first depends on the order of lanes.
    fn unsigned_zero(self) -> Self;
    /// This with the bits of `flip` flipped. For f32, where a flip more in the loop shows, its
    /// loops are compiled without it as well.
    fn flipped(self, flip: u64) -> Self;
}

macro_rules! ordered {
    ($($t:ty, $low:expr, $nan:expr, $zero:expr, $flipped:expr, $wide:literal;)*) => {$(
        impl Ordered for $t {
            const WIDE: bool = $wide;
            const LOWEST: $t = $low;
            #[inline(always)]
            fn nan(self) -> bool { ($nan)(self) }
            #[inline(always)]
            fn unsigned_zero(self) -> $t { ($zero)(self) }
            #[inline(always)]
            fn flipped(self, flip: u64) -> $t { ($flipped)(self, flip) }
        }
    )*};
}
ordered! {
    u8, 0, |_| false, |x| x, |x, flip| x ^ flip as u8, false;
    u16, 0, |_| false, |x| x, |x, flip| x ^ flip as u16, false;
    u32, 0, |_| false, |x| x, |x, flip| x ^ flip as u32, false;
    u64, 0, |_| false, |x| x, |x, flip| x ^ flip, false;
    f32, f32::NEG_INFINITY, f32::is_nan, |x| x + 0.0, |x: f32, flip| if flip == 0 { x } else { f32::from_bits(x.to_bits() ^ flip as u32) }, true;
    f64, f64::NEG_INFINITY, f64::is_nan, |x| x + 0.0, |x: f64, flip| f64::from_bits(x.to_bits() ^ flip), false;
}

/// The bits that turn the order in which `op` looks for the first of `dtype` into one whose largest
/// comes first.
pub(crate) fn flip_of(op: ReduceOp, dtype: DType) -> u64 {
    let sign = 1 << (8 * dtype.compute().size() - 1);
    let as_unsigned = if dtype.is_signed_int() { sign } else { 0 };
    let reversed = match op {
        ReduceOp::Min | ReduceOp::ArgMin if dtype.is_float() => sign,
        ReduceOp::Min | ReduceOp::ArgMin => u64::MAX,
        ReduceOp::Max
        | ReduceOp::ArgMax
        | ReduceOp::Sum
        | ReduceOp::Prod
        | ReduceOp::Any
        | ReduceOp::All => 0,
    };
    as_unsigned ^ reversed
}

macro_rules! int_sums {
    ($($t:ty)*) => {$(
        impl Reducer<$t> for Sum {
            type Acc = $t;
            type Out = $t;
            const START: $t = 0;
            #[inline(always)]
            fn add(acc: $t, x: $t, _: usize, _: u64) -> $t { Int::add(acc, x) }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t { Int::add(a, b) }
            #[inline(always)]
            fn finish(acc: $t, _: u64) -> $t { acc }
        }
        impl Reducer<$t> for Prod {
            type Acc = $t;
            type Out = $t;
            const START: $t = 1;
            #[inline(always)]
            fn add(acc: $t, x: $t, _: usize, _: u64) -> $t { Int::mul(acc, x) }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t { Int::mul(a, b) }
            #[inline(always)]
            fn finish(acc: $t, _: u64) -> $t { acc }
        }
    )*};
}
// For the signed ones too, whose sums and products have the same bits.
int_sums! { u8 u16 u32 u64 }

impl<T: Ordered> Reducer<T> for Max {
    type Acc = T;
    type Out = T;
    const START: T = T::LOWEST;
    const WIDE: bool = T::WIDE;
    #[inline(always)]
    fn add(acc: T, x: T, _: usize, flip: u64) -> T {
        Self::join(acc, x.flipped(flip))
    }
    #[inline(always)]
    fn join(a: T, b: T) -> T {
        if (b > a) | b.nan() { b } else { a }
    }
    #[inline(always)]
    fn finish(acc: T, flip: u64) -> T {
        acc.flipped(flip).unsigned_zero()
    }
}

impl<T: Ordered> Reducer<T> for ArgMax {
    /// The best value and its position; at first a position that every element beats.
    type Acc = (T, i32);
    type Out = i32;
    const START: (T, i32) = (T::LOWEST, i32::MAX);
    const WIDE: bool = T::WIDE;
    #[inline(always)]
    fn add(acc: (T, i32), x: T, i: usize, flip: u64) -> (T, i32) {
        Self::join(acc, (x.flipped(flip), i as i32))
    }
    #[inline(always)]
    fn join(a: (T, i32), b: (T, i32)) -> (T, i32) {
        let better = if a.0.nan() {
            b.0.nan() & (b.1 < a.1)
        } else {
            b.0.nan() | (b.0 > a.0) | ((b.0 == a.0) & (b.1 < a.1))
        };
        if better { b } else { a }
    }
    #[inline(always)]
    fn finish(acc: (T, i32), _: u64) -> i32 {
        acc.1
    }
    /// The extreme of the run, then where it first stands: two passes over cached data beat one
    /// with branches.
    #[inline(always)]
    fn run(xs: &[T], i: usize, flip: u64) -> (T, i32) {
        if xs.is_empty() {
            return Self::START;
        }
        let best = <Max as Reducer<T>>::run(xs, 0, flip);
        let wanted = best.flipped(flip);
        let found = |x: &T| (*x == wanted) | (x.nan() & wanted.nan());
        // whole groups without a way out in their middle are looked through by vectors
        let group =
            xs.chunks(64).position(|group| group.iter().fold(false, |any, x| any | found(x)));
        let first = 64 * group.unwrap_or(0);
        xs[first..].iter().position(found).map_or(Self::START, |at| (best, (i + first + at) as i32))
    }
}

macro_rules! bools {
    ($($name:ident $start:literal $op:tt;)*) => {$(
        impl Reducer<u8> for $name {
            type Acc = u8;
            type Out = u8;
            const START: u8 = $start;
            #[inline(always)]
            fn add(acc: u8, x: u8, _: usize, _: u64) -> u8 { acc $op x }
            #[inline(always)]
            fn join(a: u8, b: u8) -> u8 { a $op b }
            #[inline(always)]
            fn finish(acc: u8, _: u64) -> u8 { acc }
        }
    )*};
}
bools! { Any 0 |; All 1 &; }
