//! Running sums and products along one axis.
//!
//! The naive form is `acc += x[i]; y[i] = acc` along the axis: a chain in which each element waits
//! for the one before. Here several chains take turns:
//!
//! ```text
//!   lanes     eight lanes at once, element by element: along the last axis, or few columns
//!   pieces    few long lanes: the totals of pieces first, then eight pieces at once as lanes
//!   columns   a row of accumulators goes over rows of elements, by vectors
//! ```
//! Floats accumulate in f64, so that rounding errors do not grow with the length. Pieces depend on
//! the sizes alone, so results have the same bits for any number of threads. Scratch memory is 8
//! bytes for each 2064 elements of a long lane.

use crate::copy::Packed;
use crate::loops::int::Int;
use crate::scratch::Array;
use crate::simd::{F32s, Work};
use crate::storage::{Shared, View};
use crate::threads::for_each_range;
use crate::typed::with_wrapping;
use crate::{Cpu, copy};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, ScanOp, Tensor};

/// Lanes, or pieces of one, that take turns.
const CHAINS: usize = 8;
/// Elements of a piece of a long lane: not a power of two, so that eight of them do not compete for
/// the same places of the cache.
const PIECE: usize = 2064;
/// Bytes after which addresses have the same place in L1.
const ALIASED: usize = 4096;
/// Columns that one task accumulates.
const WIDTH: usize = 512;
/// Columns from which a row of accumulators is faster than lanes.
const MIN_COLUMNS: usize = 16;
/// Elements of a lane below which neighbouring lanes have a separate loop.
const SHORT: usize = 32;
/// Elements of a lane below which a row of accumulators is faster for fewer columns too.
const PLANES: usize = 256;
/// Elements below which one thread scans.
const MIN_PARALLEL_ELEMENTS: usize = 8 << 10;

/// A type with a running value.
trait Running: Copy + Send + Sync + 'static {
    /// The running value's type.
    type Acc: Copy + Send + Sync;
    /// The value of no elements: of a sum, or of a product.
    fn start(product: bool) -> Self::Acc;
    /// Two running values as one.
    fn join(product: bool, a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// One element as a running value.
    fn one(self) -> Self::Acc;
    /// The element that is stored.
    fn value(acc: Self::Acc) -> Self;
}

macro_rules! running {
    (ints $($t:ty)*) => {$(
        impl Running for $t {
            type Acc = $t;
            fn start(product: bool) -> $t { <$t>::from(product) }
            #[inline(always)]
            fn join(product: bool, a: $t, b: $t) -> $t {
                if product { Int::mul(a, b) } else { Int::add(a, b) }
            }
            #[inline(always)]
            fn one(self) -> $t { self }
            #[inline(always)]
            fn value(acc: $t) -> $t { acc }
        }
    )*};
    (floats $($t:ty)*) => {$(
        impl Running for $t {
            type Acc = f64;
            fn start(product: bool) -> f64 { f64::from(u8::from(product)) }
            #[inline(always)]
            fn join(product: bool, a: f64, b: f64) -> f64 { if product { a * b } else { a + b } }
            #[inline(always)]
            fn one(self) -> f64 { self as f64 }
            #[inline(always)]
            fn value(acc: f64) -> $t { acc as $t }
        }
    )*};
}
// For the signed types too, whose results have the same bits.
running! { ints u8 u16 u32 u64 }
running! { floats f32 f64 }

/// Running `op` along `axis`.
pub(crate) fn scan(cpu: &Cpu, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let n = x.numel();
    let input = Packed::of(cpu, &View::of(x)?)?;
    let out = cpu.alloc(n, x.dtype().compute())?;
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    if n > 0 {
        with_wrapping!(x.dtype(), T => {
            let (x, y) = (Shared(input.ptr().cast_mut().cast::<T>()), Shared(out.ptr().cast::<T>()));
            match op {
                ScanOp::Sum => Scan::<T, false> { cpu, x, y, n, length, inner }.run(),
                ScanOp::Prod => Scan::<T, true> { cpu, x, y, n, length, inner }.run(),
            }
        })?;
    }
    drop(input);
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, x.dtype())?))
}

/// A scan of `n` elements `(outer, length, inner)` along the middle axis.
struct Scan<'a, T, const PRODUCT: bool> {
    cpu: &'a Cpu,
    x: Shared<T>,
    y: Shared<T>,
    n: usize,
    length: usize,
    inner: usize,
}

impl<T: Running, const PRODUCT: bool> Scan<'_, T, PRODUCT> {
    fn run(&self) -> Result<()> {
        let (plane, lanes) = (self.length * self.inner, self.n / self.length);
        if self.inner >= MIN_COLUMNS || self.inner > 1 && self.length < PLANES {
            let groups = self.inner.div_ceil(WIDTH);
            let least = MIN_PARALLEL_ELEMENTS / (self.length * WIDTH.min(self.inner));
            for_each_range(self.n / plane * groups, least, |tasks| {
                self.cpu.level.run(Columns { scan: self, tasks });
            });
        } else if lanes < CHAINS && self.length >= 2 * PIECE {
            for lane in 0..lanes {
                self.pieces(lane / self.inner * plane + lane % self.inner)?;
            }
        } else if self.inner == 1 && self.length < SHORT {
            for_each_range(lanes, MIN_PARALLEL_ELEMENTS / plane, |lanes| {
                let start = lanes.start * plane;
                let (x, y) = (self.x.get().wrapping_add(start), self.y.get().wrapping_add(start));
                self.cpu.level.run(Short::<T, PRODUCT> { x, y, lanes: lanes.len(), len: plane });
            });
        } else {
            // Lanes whose elements compete for the same places of the cache: fewer of them.
            let most = if (plane * size_of::<T>()).is_multiple_of(ALIASED) { 4 } else { CHAINS };
            let Self { length: len, inner: width, .. } = *self;
            for_each_range(lanes.div_ceil(most), MIN_PARALLEL_ELEMENTS / most / len, |groups| {
                let lanes = groups.start * most..lanes.min(groups.end * most);
                let of = Laid { first: 0, width, plane, len, most };
                self.cpu.level.run(Lanes { scan: self, of, lanes, accs: &[] });
            });
        }
        Ok(())
    }

    /// One long lane, whose elements begin at `first`.
    fn pieces(&self, first: usize) -> Result<()> {
        let (pieces, whole) = (self.length.div_ceil(PIECE), self.length / PIECE);
        let plane = PIECE * self.inner;
        let mut totals = Array::filled(self.cpu, pieces, T::start(PRODUCT))?;
        let shared = Shared(totals.as_mut_ptr());
        for_each_range(pieces, MIN_PARALLEL_ELEMENTS / PIECE, |pieces| {
            for p in pieces {
                let x = self.x.get().wrapping_add(first + p * plane);
                let len = PIECE.min(self.length - p * PIECE);
                let total = Total::<T, PRODUCT> { x, step: self.inner, len };
                // SAFETY: each piece has its own total.
                unsafe { shared.get().add(p).write(self.cpu.level.run(total)) };
            }
        });
        let mut acc = T::start(PRODUCT);
        for total in totals.iter_mut() {
            acc = T::join(PRODUCT, acc, std::mem::replace(total, acc));
        }
        let accs = &totals[..];
        for_each_range(pieces.div_ceil(CHAINS), 1, |groups| {
            let (start, end) = (groups.start * CHAINS, pieces.min(groups.end * CHAINS));
            for (lanes, len) in
                [(start..end.min(whole), PIECE), (whole.max(start)..end, self.length % PIECE)]
            {
                let of = Laid { first, width: 1, plane, len, most: CHAINS };
                self.cpu.level.run(Lanes { scan: self, of, lanes, accs });
            }
        });
        Ok(())
    }
}

/// The layout of lanes of equal lengths in memory.
#[derive(Clone, Copy)]
struct Laid {
    /// Where lane 0 begins.
    first: usize,
    /// Neighbouring lanes of a plane, and its elements.
    width: usize,
    plane: usize,
    /// Elements of a lane.
    len: usize,
    /// Lanes that take turns.
    most: usize,
}

/// Some of these lanes.
struct Lanes<'a, T: Running, const PRODUCT: bool> {
    scan: &'a Scan<'a, T, PRODUCT>,
    of: Laid,
    lanes: Range<usize>,
    /// The running value before each lane; empty if all begin at the start value.
    accs: &'a [T::Acc],
}

impl<T: Running, const PRODUCT: bool> Lanes<'_, T, PRODUCT> {
    #[inline(always)]
    fn take<const N: usize>(&self, lane: usize) -> usize {
        let Laid { first, width, plane, len, .. } = self.of;
        let (mut at, mut accs) = ([first; N], [T::start(PRODUCT); N]);
        for i in 0..N {
            let lane = lane + i;
            at[i] += match width {
                1 => lane * plane,
                _ => lane / width * plane + lane % width,
            };
            if let Some(&acc) = self.accs.get(lane) {
                accs[i] = acc;
            }
        }
        let (x, y, step) = (self.scan.x.get(), self.scan.y.get(), self.scan.inner);
        let mut r = 0;
        for _ in 0..len {
            for i in 0..N {
                // SAFETY: the elements of a lane, which belongs to this task in y.
                unsafe {
                    accs[i] = T::join(PRODUCT, accs[i], (*x.add(at[i] + r)).one());
                    *y.add(at[i] + r) = T::value(accs[i]);
                }
            }
            r += step;
        }
        N
    }
}

impl<T: Running, const PRODUCT: bool> Work for Lanes<'_, T, PRODUCT> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let mut lane = self.lanes.start;
        while lane < self.lanes.end {
            lane += match self.of.most.min(self.lanes.end - lane) {
                8.. => self.take::<8>(lane),
                4..8 => self.take::<4>(lane),
                2..4 => self.take::<2>(lane),
                _ => self.take::<1>(lane),
            };
        }
    }
}

/// Short lanes that follow one another.
struct Short<T, const PRODUCT: bool> {
    x: *const T,
    y: *mut T,
    lanes: usize,
    len: usize,
}

impl<T: Running, const PRODUCT: bool> Work for Short<T, PRODUCT> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let len = self.len;
        let mut lane = 0;
        while lane + CHAINS <= self.lanes {
            let mut accs = [T::start(PRODUCT); CHAINS];
            for i in 0..len {
                for (j, acc) in accs.iter_mut().enumerate() {
                    let at = (lane + j) * len + i;
                    // SAFETY: the elements of lanes, which belong to this task in y.
                    unsafe {
                        *acc = T::join(PRODUCT, *acc, (*self.x.add(at)).one());
                        *self.y.add(at) = T::value(*acc);
                    }
                }
            }
            lane += CHAINS;
        }
        for lane in lane..self.lanes {
            let mut acc = T::start(PRODUCT);
            for at in lane * len..(lane + 1) * len {
                // SAFETY: as above.
                unsafe {
                    acc = T::join(PRODUCT, acc, (*self.x.add(at)).one());
                    *self.y.add(at) = T::value(acc);
                }
            }
        }
    }
}

/// Whole cache lines.
#[repr(align(64))]
struct Lines<A>(A);

/// Planes, or at most [`WIDTH`] columns of one.
struct Columns<'a, T: Running, const PRODUCT: bool> {
    scan: &'a Scan<'a, T, PRODUCT>,
    tasks: Range<usize>,
}

impl<T: Running, const PRODUCT: bool> Work for Columns<'_, T, PRODUCT> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let &Scan { x, y, length, inner, .. } = self.scan;
        let groups = inner.div_ceil(WIDTH);
        let (mut group, mut plane) = (self.tasks.start % groups, self.tasks.start / groups);
        let mut accs = Lines(MaybeUninit::<[T::Acc; WIDTH]>::uninit());
        let accs = accs.0.as_mut_ptr().cast::<T::Acc>();
        for _ in self.tasks {
            let (first, n) = (group * WIDTH, WIDTH.min(inner - group * WIDTH));
            // SAFETY: there are WIDTH accumulators, which is a multiple of 16.
            (0..n.div_ceil(MIN_COLUMNS)).for_each(|i| unsafe {
                accs.cast::<[T::Acc; MIN_COLUMNS]>().add(i).write([T::start(PRODUCT); MIN_COLUMNS])
            });
            let start = plane * length * inner + first;
            for row in 0..length {
                // SAFETY: rows of the operand and of the result, whose columns belong to this task.
                unsafe {
                    let at = start + row * inner;
                    let (x, y) = (x.get().add(at), y.get().add(at));
                    for i in 0..n {
                        let acc = T::join(PRODUCT, *accs.add(i), (*x.add(i)).one());
                        *accs.add(i) = acc;
                        *y.add(i) = T::value(acc);
                    }
                }
            }
            group += 1;
            if group == groups {
                (group, plane) = (0, plane + 1);
            }
        }
    }
}

/// The sum or the product of `len` elements, `step` apart, in eight chains.
struct Total<T, const PRODUCT: bool> {
    x: *const T,
    step: usize,
    len: usize,
}

impl<T: Running, const PRODUCT: bool> Work for Total<T, PRODUCT> {
    type Out = T::Acc;
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) -> T::Acc {
        // SAFETY: `len` elements of the operand.
        let one = |i: usize| unsafe { *self.x.add(i * self.step) }.one();
        let mut accs = [T::start(PRODUCT); CHAINS];
        let whole = self.len / CHAINS * CHAINS;
        let mut at = 0;
        while at < whole {
            for (i, acc) in accs.iter_mut().enumerate() {
                *acc = T::join(PRODUCT, *acc, one(at + i));
            }
            at += CHAINS;
        }
        let mut total = T::start(PRODUCT);
        for acc in accs {
            total = T::join(PRODUCT, total, acc);
        }
        while at < self.len {
            total = T::join(PRODUCT, total, one(at));
            at += 1;
        }
        total
    }
}
