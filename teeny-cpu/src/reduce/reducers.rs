//! The operations of reductions: one small type each, generic over the element.
//!
//! Products of f32 accumulate in f64. So do sums, after at most 32 roundings in f32 (`sums`): their
//! error is at most 2e-6 of Σ |x|, for any number of terms, and half a unit in the last place of
//! the result. Integers wrap in their own type. NaN wins every comparison, and the first of equal
//! elements does; an extreme of zero is +0.
//!
//! Extremes are always the largest: elements are compared after the bits of [`flip_of`] are
//! flipped, which maps the order of signed integers to the order of unsigned ones, and the smallest
//! to the largest.

use super::extremes::{largest, largest_double, largest_few, largest_rows};
use super::products::{multiply_few, multiply_few_doubles, multiply_rows};
use super::sums::{sum_doubles, sum_f32, sum_few, sum_few_doubles, sum_rows, sums_are_finite};
use super::table::{Few, FewRows, IsFinite, Reducer, Renumber, Rows, rows};
use crate::loops::int::Int;
use crate::simd::{F32s, Level, for_pairs};
use crate::typed::slice_mut;
use std::ops::Range;
use teeny_core::{DType, ReduceOp};

/// Sum.
#[derive(Clone, Copy)]
pub(crate) struct Sum;
/// Sum of squares.
#[derive(Clone, Copy)]
pub(crate) struct Squares;
/// Sum of smaller integers, wrapping in 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct WideSum;
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

macro_rules! float_sums {
    ($($t:ty { $($own:item)* } { $($products:item)* };)*) => {$(
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
            $($products)*
            type Acc = f64;
            type Out = $t;
            const START: f64 = 1.0;
            const FOR_AVX512: bool = true;
            const BY_ELEMENT: bool = true;
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
        const FOR_AVX512: bool = true;
        const VECTORS: usize = 2;
        const FAST_ROWS: Rows = sum_rows::<false>;
        const IS_FINITE: Option<IsFinite> = Some(sums_are_finite);
        const FEW_ROWS: Option<FewRows> = Some(sum_few::<false>);
        #[inline(always)]
        fn run_on<V: F32s>(xs: &[f32], _: usize, _: u64) -> f64 { sum_f32::<V, false>(xs) }
    } {
        const FAST_ROWS: Rows = multiply_rows;
        const FEW_ROWS: Option<FewRows> = Some(multiply_few);
    };
    f64 {
        const VECTORS: usize = 8;
        const FEW_ROWS: Option<FewRows> = Some(sum_few_doubles::<false>);
        const BY_ELEMENT: bool = true;
        #[inline(always)]
        fn run_on<V: F32s>(xs: &[f64], _: usize, _: u64) -> f64 {
            sum_doubles::<V::F64s, false>(xs)
        }
    } {
        const FEW_ROWS: Option<FewRows> = Some(multiply_few_doubles);
    };
}

impl Reducer<f32> for Squares {
    type Acc = f64;
    type Out = f32;
    const START: f64 = 0.0;
    const FOR_AVX512: bool = true;
    const VECTORS: usize = 2;
    const FAST_ROWS: Rows = sum_rows::<true>;
    const IS_FINITE: Option<IsFinite> = Some(sums_are_finite);
    const FEW_ROWS: Option<FewRows> = Some(sum_few::<true>);
    #[inline(always)]
    fn add(acc: f64, x: f32, _: usize, _: u64) -> f64 {
        acc + f64::from(x) * f64::from(x)
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        a + b
    }
    #[inline(always)]
    fn finish(acc: f64, _: u64) -> f32 {
        acc as f32
    }
    #[inline(always)]
    fn run_on<V: F32s>(xs: &[f32], _: usize, _: u64) -> f64 {
        sum_f32::<V, true>(xs)
    }
}

impl Reducer<f64> for Squares {
    type Acc = f64;
    type Out = f64;
    const START: f64 = 0.0;
    const VECTORS: usize = 8;
    const FEW_ROWS: Option<FewRows> = Some(sum_few_doubles::<true>);
    const BY_ELEMENT: bool = true;
    #[inline(always)]
    fn add(acc: f64, x: f64, _: usize, _: u64) -> f64 {
        acc + x * x
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        a + b
    }
    #[inline(always)]
    fn finish(acc: f64, _: u64) -> f64 {
        acc
    }
    #[inline(always)]
    fn run_on<V: F32s>(xs: &[f64], _: usize, _: u64) -> f64 {
        sum_doubles::<V::F64s, true>(xs)
    }
}

/// A type with an order in which NaN beats everything.
pub(crate) trait Ordered: Copy + PartialOrd + Send + Sync + 'static {
    /// Below every value.
    const LOWEST: Self;
    /// Whether its loops are compiled for AVX-512 too.
    const FOR_AVX512: bool;
    /// Whether this is NaN.
    fn nan(self) -> bool;
    /// This, with -0 as 0: which of several equal zeros comes first depends on the order of lanes.
    fn unsigned_zero(self) -> Self;
    /// This with the bits of `flip` flipped. For f32, where one more instruction in the loop is
    /// measurable, loops are compiled without it as well.
    fn flipped(self, flip: u64) -> Self;
    /// [`Reducer::VECTORS`] of `largest_on`.
    const VECTORS: usize = 0;
    /// [`Reducer::FAST_ROWS`] and [`Reducer::FEW_ROWS`] of the largest.
    const FAST_ROWS: Rows = rows::<Self, Max>;
    const FEW_ROWS: Option<FewRows> = None;
    /// The largest after flipping, by vectors of a level; none if a NaN may be among them.
    #[inline(always)]
    fn largest_on<V: F32s>(_: &[Self], _: u64) -> Option<Self> {
        None
    }
}

macro_rules! ordered {
    ($($t:ty, $low:expr, $nan:expr, $zero:expr, $flipped:expr, $for_avx512:literal
       $({ $($own:item)* })?;)*) => {$(
        impl Ordered for $t {
            const FOR_AVX512: bool = $for_avx512;
            const LOWEST: $t = $low;
            #[inline(always)]
            fn nan(self) -> bool { ($nan)(self) }
            #[inline(always)]
            fn unsigned_zero(self) -> $t { ($zero)(self) }
            #[inline(always)]
            fn flipped(self, flip: u64) -> $t { ($flipped)(self, flip) }
            $($($own)*)?
        }
    )*};
}
ordered! {
    u8, 0, |_| false, |x| x, |x, flip| x ^ flip as u8, false;
    u16, 0, |_| false, |x| x, |x, flip| x ^ flip as u16, false;
    u32, 0, |_| false, |x| x, |x, flip| x ^ flip as u32, false;
    u64, 0, |_| false, |x| x, |x, flip| x ^ flip, true;
    f32, f32::NEG_INFINITY, f32::is_nan, |x| x + 0.0, |x: f32, flip| if flip == 0 { x } else { f32::from_bits(x.to_bits() ^ flip as u32) }, true {
        const VECTORS: usize = 16;
        const FAST_ROWS: Rows = rows_of_f32;
        const FEW_ROWS: Option<FewRows> = Some(largest_few);
        #[inline(always)]
        fn largest_on<V: F32s>(xs: &[f32], flip: u64) -> Option<f32> { largest::<V>(xs, flip != 0) }
    };
    f64, f64::NEG_INFINITY, f64::is_nan, |x| x + 0.0, |x: f64, flip| f64::from_bits(x.to_bits() ^ flip), false {
        const VECTORS: usize = 8;
        #[inline(always)]
        fn largest_on<V: F32s>(xs: &[f64], flip: u64) -> Option<f64> {
            largest_double::<V::F64s>(xs, flip != 0)
        }
    };
}

/// [`rows`] of the largest of f32.
///
/// # Safety
/// As all functions of a table.
unsafe fn rows_of_f32(
    level: Level,
    flip: u64,
    accs: *mut u8,
    n: usize,
    x: *const u8,
    step: isize,
    range: Range<usize>,
) {
    let few = Few { n, rows: range.len(), step, blocks: 1, apart: 0 };
    // SAFETY: passed on. To compare a row twice changes nothing.
    unsafe {
        if !largest_rows(level, flip, accs, x, few) {
            rows::<f32, Max>(level, flip, accs, n, x, step, range);
        }
    }
}

/// The bits whose flipping makes the largest element of `dtype` the one that `op` looks for.
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
            const FOR_AVX512: bool = size_of::<$t>() == 8;
            const BY_ELEMENT: bool = true;
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
            const BY_ELEMENT: bool = true;
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
    const FOR_AVX512: bool = T::FOR_AVX512;
    const VECTORS: usize = T::VECTORS;
    const FAST_ROWS: Rows = T::FAST_ROWS;
    const FEW_ROWS: Option<FewRows> = T::FEW_ROWS;
    const MAX_FEW_ROWS: usize = usize::MAX;
    #[inline(always)]
    fn run_on<V: F32s>(xs: &[T], i: usize, flip: u64) -> T {
        match T::largest_on::<V>(xs, flip) {
            Some(largest) => largest,
            None => Self::run(xs, i, flip),
        }
    }
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
    /// The largest value and its position; at first a position that every element precedes.
    type Acc = (T, i32);
    type Out = i32;
    const START: (T, i32) = (T::LOWEST, i32::MAX);
    const FOR_AVX512: bool = T::FOR_AVX512;
    const RENUMBER: Option<Renumber> = Some(renumber::<T>);
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
        // Whole groups are searched without an exit in their middle, by vectors.
        let group =
            xs.chunks(64).position(|group| group.iter().fold(false, |any, x| any | found(x)));
        let first = 64 * group.unwrap_or(0);
        xs[first..].iter().position(found).map_or(Self::START, |at| (best, (i + first + at) as i32))
    }
}

/// [`Renumber`] of positions; the position of no element stays.
unsafe fn renumber<T: Ordered>(accs: *mut u8, n: usize, scale: usize, offset: usize) {
    // SAFETY: the caller has n accumulators of `ArgMax`.
    for (_, position) in unsafe { slice_mut::<(T, i32)>(accs, n) } {
        if *position != i32::MAX {
            *position = (*position as usize * scale + offset) as i32;
        }
    }
}

/// The sum of a slice in lanes of twice the width, each of which adds no more terms than it holds,
/// then of these in 64 bits.
macro_rules! add {
    ($xs:expr, $t:ty, $lane:ty, $lanes:literal) => {{
        let mut lanes: [$lane; $lanes] = [0; $lanes];
        let (chunks, tail) = $xs.as_chunks::<$lanes>();
        for chunk in chunks {
            for_pairs(&mut lanes, chunk, |lane, x| *lane = lane.wrapping_add(x as $lane));
        }
        for_pairs(&mut lanes, tail, |lane, x| *lane = lane.wrapping_add(x as $lane));
        let (mut sum, mut i) = (0u64, 0);
        while i < $lanes {
            sum = sum.wrapping_add(lanes[i] as u64);
            i += 1;
        }
        sum
    }};
}

macro_rules! wide_sums {
    ($($t:ty as $lane:ty, $terms:literal;)*) => {$(
        impl Reducer<$t> for WideSum {
            type Acc = u64;
            type Out = u64;
            const START: u64 = 0;
            const FOR_AVX512: bool = true;
            const BY_ELEMENT: bool = true;
            #[inline(always)]
            fn add(acc: u64, x: $t, _: usize, _: u64) -> u64 { acc.wrapping_add(x as u64) }
            #[inline(always)]
            fn join(a: u64, b: u64) -> u64 { a.wrapping_add(b) }
            #[inline(always)]
            fn finish(acc: u64, _: u64) -> u64 { acc }
            #[inline(always)]
            fn run(xs: &[$t], _: usize, _: u64) -> u64 {
                let mut total = 0u64;
                for block in xs.chunks(32 * $terms) {
                    let long = block.len() >= 1024;
                    let sum = if long { add!(block, $t, $lane, 128) } else { add!(block, $t, $lane, 32) };
                    total = total.wrapping_add(sum);
                }
                total
            }
        }
    )*};
}
wide_sums! {
    u8 as u16, 256;
    i8 as i16, 256;
    u16 as u32, 65536;
    i16 as i32, 65536;
    u32 as u64, 65536;
    i32 as i64, 65536;
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
