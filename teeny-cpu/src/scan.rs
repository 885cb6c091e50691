//! Running sums and products along one axis.
//!
//! The naive form is `acc += x[i]; y[i] = acc` along the axis: a chain in which each element waits
//! for the one before. Here several chains take turns:
//!
//! ```text
//!   lanes     eight lanes at once, element by element: along the last axis, or few columns
//!   pieces    few long lanes: the totals of pieces first, then eight pieces at once
//!   columns   a row of accumulators goes over rows of elements, by vectors
//! ```
//! Floats accumulate in f64, so that rounding errors do not grow with the length. Pieces depend on
//! the sizes alone, so results have the same bits for any number of threads. Scratch memory is 8
//! bytes for each 2064 elements or for each of 512 columns of a task.

use crate::elementwise::loops::int::Int;
use crate::fused::Packed;
use crate::scratch::Array;
use crate::simd::{F32s, Work};
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::typed::with_wrapping;
use crate::{Cpu, copy};
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
/// Elements of a lane below which lanes follow one another in groups, without a list of chains.
const SHORT: usize = 32;
/// Columns that one task accumulates.
const WIDTH: usize = 512;
/// Columns from which a row of accumulators is faster than lanes.
const MIN_COLUMNS: usize = 16;
/// Elements of a lane below which few columns go through a plane together.
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
        let lanes = self.n / self.length;
        if self.inner >= MIN_COLUMNS {
            self.columns()
        } else if lanes < CHAINS && self.length >= 2 * PIECE {
            (0..lanes).try_for_each(|lane| self.pieces(lane))
        } else if self.inner > 1 && self.length < PLANES {
            let plane = self.length * self.inner;
            try_for_each_range(self.n / plane, MIN_PARALLEL_ELEMENTS / plane, |planes| {
                let start = planes.start * plane;
                let (x, y) = (self.x.get().wrapping_add(start), self.y.get().wrapping_add(start));
                let (count, rows, inner) = (planes.len(), self.length, self.inner);
                self.cpu.level.run(Planes::<T, PRODUCT> { x, y, count, rows, inner });
                Ok(())
            })
        } else if self.inner == 1 && self.length < SHORT {
            let least = MIN_PARALLEL_ELEMENTS / self.length;
            try_for_each_range(lanes, least, |lanes| {
                let (start, len) = (lanes.start * self.length, self.length);
                let (x, y) = (self.x.get().wrapping_add(start), self.y.get().wrapping_add(start));
                self.cpu.level.run(Short::<T, PRODUCT> { x, y, lanes: lanes.len(), len });
                Ok(())
            })
        } else {
            // Chains whose elements compete for the same places of the cache: fewer of them.
            let apart = self.length * self.inner * size_of::<T>();
            let count = if apart.is_multiple_of(ALIASED) { CHAINS / 2 } else { CHAINS };
            let groups = lanes.div_ceil(count);
            let least = MIN_PARALLEL_ELEMENTS / count / self.length;
            try_for_each_range(groups, least, |groups| {
                for group in groups {
                    let first = group * count;
                    self.chains(count.min(lanes - first), |i| Chain {
                        start: self.lane(first + i),
                        len: self.length,
                        acc: T::start(PRODUCT),
                    });
                }
                Ok(())
            })
        }
    }

    /// Where a lane begins.
    fn lane(&self, lane: usize) -> usize {
        lane / self.inner * self.length * self.inner + lane % self.inner
    }

    /// One long lane.
    fn pieces(&self, lane: usize) -> Result<()> {
        let (start, pieces) = (self.lane(lane), self.length.div_ceil(PIECE));
        let piece = |p: usize, acc| Chain {
            start: start + p * PIECE * self.inner,
            len: PIECE.min(self.length - p * PIECE),
            acc,
        };
        let mut totals = Array::filled(self.cpu, pieces, T::start(PRODUCT))?;
        let shared = Shared(totals.as_mut_ptr());
        let least = MIN_PARALLEL_ELEMENTS / PIECE;
        try_for_each_range(pieces, least, |pieces| {
            for p in pieces {
                let chain = piece(p, T::start(PRODUCT));
                let x = self.x.get().wrapping_add(chain.start);
                let total = Total::<T, PRODUCT> { x, step: self.inner, len: chain.len };
                // SAFETY: each piece has its own total.
                unsafe { shared.get().add(p).write(self.cpu.level.run(total)) };
            }
            Ok(())
        })?;
        let mut acc = T::start(PRODUCT);
        for total in totals.iter_mut() {
            let before = acc;
            acc = T::join(PRODUCT, acc, *total);
            *total = before;
        }
        try_for_each_range(pieces.div_ceil(CHAINS), 1, |groups| {
            for group in groups {
                let first = group * CHAINS;
                self.chains(CHAINS.min(pieces - first), |i| piece(first + i, totals[first + i]));
            }
            Ok(())
        })
    }

    /// Up to eight chains, all of one length except the last.
    fn chains(&self, count: usize, chain: impl Fn(usize) -> Chain<T>) {
        let (x, y, step) = (self.x.get(), self.y.get(), self.inner);
        let mut first = 0;
        while first < count {
            let left = count - first;
            let equal = chain(first).len == chain(count - 1).len;
            let same = if equal || left == 1 { left } else { left - 1 };
            let run =
                Chains::<T, PRODUCT> { x, y, step, chain: &|i| chain(first + i), count: same };
            first += self.cpu.level.run(run);
        }
    }

    fn columns(&self) -> Result<()> {
        let groups = self.inner.div_ceil(WIDTH);
        let least = MIN_PARALLEL_ELEMENTS / (self.length * WIDTH.min(self.inner));
        try_for_each_range(self.n / self.length / self.inner * groups, least, |tasks| {
            let mut accs = Array::filled(self.cpu, WIDTH.min(self.inner), T::start(PRODUCT))?;
            for task in tasks {
                let first = task % groups * WIDTH;
                let width = WIDTH.min(self.inner - first);
                let start = task / groups * self.length * self.inner + first;
                self.cpu.level.run(Columns::<T, PRODUCT> {
                    x: self.x.get().wrapping_add(start),
                    y: self.y.get().wrapping_add(start),
                    step: self.inner,
                    rows: self.length,
                    accs: &mut accs[..width],
                });
            }
            Ok(())
        })
    }
}

/// A running value and the elements that follow it.
struct Chain<T: Running> {
    start: usize,
    len: usize,
    acc: T::Acc,
}

/// Some of `count` chains of equal lengths: 8, 4, 2 or 1. Returns how many.
struct Chains<'a, T: Running, const PRODUCT: bool> {
    x: *const T,
    y: *mut T,
    step: usize,
    chain: &'a dyn Fn(usize) -> Chain<T>,
    count: usize,
}

impl<T: Running, const PRODUCT: bool> Chains<'_, T, PRODUCT> {
    #[inline(always)]
    fn take<const N: usize>(&self) {
        let chains: [Chain<T>; N] = std::array::from_fn(|i| (self.chain)(i));
        let mut accs: [T::Acc; N] = std::array::from_fn(|i| chains[i].acc);
        let starts: [usize; N] = std::array::from_fn(|i| chains[i].start);
        let mut at = 0;
        for _ in 0..chains[0].len {
            for i in 0..N {
                // SAFETY: the elements of a lane, which belongs to this task in y.
                unsafe {
                    accs[i] = T::join(PRODUCT, accs[i], (*self.x.add(starts[i] + at)).one());
                    *self.y.add(starts[i] + at) = T::value(accs[i]);
                }
            }
            at += self.step;
        }
    }
}

impl<T: Running, const PRODUCT: bool> Work for Chains<'_, T, PRODUCT> {
    type Out = usize;
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) -> usize {
        match self.count {
            8.. => {
                self.take::<8>();
                8
            }
            4..8 => {
                self.take::<4>();
                4
            }
            2..4 => {
                self.take::<2>();
                2
            }
            _ => {
                self.take::<1>();
                1
            }
        }
    }
}

/// Planes of `rows` rows of a few columns.
struct Planes<T, const PRODUCT: bool> {
    x: *const T,
    y: *mut T,
    count: usize,
    rows: usize,
    inner: usize,
}

impl<T: Running, const PRODUCT: bool> Work for Planes<T, PRODUCT> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let inner = self.inner.min(MIN_COLUMNS);
        let mut at = 0;
        for _ in 0..self.count {
            let mut accs = [T::start(PRODUCT); MIN_COLUMNS];
            for _ in 0..self.rows {
                for (i, acc) in accs[..inner].iter_mut().enumerate() {
                    // SAFETY: an element of a plane, which belongs to this task in y.
                    unsafe {
                        *acc = T::join(PRODUCT, *acc, (*self.x.add(at + i)).one());
                        *self.y.add(at + i) = T::value(*acc);
                    }
                }
                at += inner;
            }
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

/// Columns of `rows` rows that are `step` apart.
struct Columns<'a, T: Running, const PRODUCT: bool> {
    x: *const T,
    y: *mut T,
    step: usize,
    rows: usize,
    accs: &'a mut [T::Acc],
}

impl<T: Running, const PRODUCT: bool> Work for Columns<'_, T, PRODUCT> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        self.accs.fill(T::start(PRODUCT));
        let (accs, n) = (self.accs.as_mut_ptr(), self.accs.len());
        for row in 0..self.rows {
            // SAFETY: rows of the operand and of the result, whose columns belong to this task.
            unsafe {
                let (x, y) = (self.x.add(row * self.step), self.y.add(row * self.step));
                for i in 0..n {
                    let acc = T::join(PRODUCT, *accs.add(i), (*x.add(i)).one());
                    *accs.add(i) = acc;
                    *y.add(i) = T::value(acc);
                }
            }
        }
    }
}
