//! Running sums and products along one axis.
//!
//! The naive form is `acc += x[i]; y[i] = acc` along the axis. Where the axis is not the last, a
//! row of accumulators goes over rows of elements, so that memory is read in order. Floats
//! accumulate in f64, so that rounding errors do not grow with the length.

use crate::elementwise::loops::int::Int;
use crate::scratch::Array;
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::typed::{slice, slice_mut, with_wrapping};
use crate::{Cpu, copy};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, ScanOp, Tensor};

/// A type with a running value.
trait Running: Copy + Send + Sync + 'static {
    /// The running value's type.
    type Acc: Copy;
    fn start(op: ScanOp) -> Self::Acc;
    fn take(op: ScanOp, acc: Self::Acc, x: Self) -> Self::Acc;
    fn value(acc: Self::Acc) -> Self;
}

macro_rules! running {
    (ints $($t:ty)*) => {$(
        impl Running for $t {
            type Acc = $t;
            fn start(op: ScanOp) -> $t {
                match op { ScanOp::Sum => 0, ScanOp::Prod => 1 }
            }
            #[inline(always)]
            fn take(op: ScanOp, acc: $t, x: $t) -> $t {
                match op { ScanOp::Sum => Int::add(acc, x), ScanOp::Prod => Int::mul(acc, x) }
            }
            fn value(acc: $t) -> $t { acc }
        }
    )*};
    (floats $($t:ty)*) => {$(
        impl Running for $t {
            type Acc = f64;
            fn start(op: ScanOp) -> f64 {
                match op { ScanOp::Sum => 0.0, ScanOp::Prod => 1.0 }
            }
            #[inline(always)]
            fn take(op: ScanOp, acc: f64, x: $t) -> f64 {
                match op { ScanOp::Sum => acc + x as f64, ScanOp::Prod => acc * x as f64 }
            }
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
    let input = copy::to_compute_dtype(cpu, &View::of(x)?)?;
    let out = cpu.alloc(n, x.dtype().compute())?;
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    if n > 0 {
        with_wrapping!(x.dtype(), T => {
            // SAFETY: both have n elements of the computed type; the output has no other owner.
            let (input, out) = unsafe { (slice::<T>(input.ptr(), n), slice_mut::<T>(out.ptr(), n)) };
            run(cpu, op, input, out, length, inner)
        })?;
    }
    Ok(Arc::new(copy::cast_to_storage(cpu, out, n, x.dtype())?))
}

/// Scans `(outer, length, inner)` along the middle axis: planes of an outer index each.
fn run<T: Running>(
    cpu: &Cpu,
    op: ScanOp,
    x: &[T],
    y: &mut [T],
    length: usize,
    inner: usize,
) -> Result<()> {
    let plane = length * inner;
    let out = Shared(y.as_mut_ptr());
    try_for_each_range(x.len() / plane, 16 * 1024 / plane, |planes| {
        let range = planes.start * plane..planes.end * plane;
        let mut accs = Array::filled(cpu, if inner == 1 { 0 } else { inner }, T::start(op))?;
        // SAFETY: no other range has these planes.
        let y = unsafe { std::slice::from_raw_parts_mut(out.get().add(range.start), range.len()) };
        for (x, y) in x[range].chunks_exact(plane).zip(y.chunks_exact_mut(plane)) {
            if inner == 1 {
                let mut acc = T::start(op);
                for (y, &x) in y.iter_mut().zip(x) {
                    acc = T::take(op, acc, x);
                    *y = T::value(acc);
                }
                continue;
            }
            accs.fill(T::start(op));
            for (x, y) in x.chunks_exact(inner).zip(y.chunks_exact_mut(inner)) {
                for ((acc, &x), y) in accs.iter_mut().zip(x).zip(y) {
                    *acc = T::take(op, *acc, x);
                    *y = T::value(*acc);
                }
            }
        }
        Ok(())
    })
}
