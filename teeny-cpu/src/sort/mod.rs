//! Stable sorting along one axis; NaN counts as the largest.
//!
//! ```text
//!   values ─► keys, u64 in the same order ─► sorted with positions ─► values at these positions
//! ```
//! The naive form sorts the values by a comparison that knows NaN. With keys there is one sort for
//! all types. A descending order is the ascending order of the keys' complements. Equal keys are
//! ordered by their positions, so that equal values keep their order in both directions and the
//! sort itself allocates nothing.

use crate::scratch::Array;
use crate::storage::{Shared, View};
use crate::threads::try_for_each_range;
use crate::{Cpu, copy};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Tensor, bf16, f16};

/// A value that can be sorted.
trait Key: Copy {
    /// Compares as the values do.
    fn key(self) -> u64;
}

macro_rules! keys {
    ($($t:ty)*) => {$(
        impl Key for $t {
            fn key(self) -> u64 {
                // The least value of a signed type becomes 0.
                (self as u64) ^ (<$t>::MIN as u64)
            }
        }
    )*};
}
keys! { u8 u16 u32 u64 i8 i16 i32 i64 }

impl Key for f64 {
    fn key(self) -> u64 {
        if self.is_nan() {
            return u64::MAX;
        }
        let bits = (self + 0.0).to_bits(); // -0 is 0
        if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
    }
}

impl Key for f32 {
    fn key(self) -> u64 {
        f64::from(self).key()
    }
}

impl Key for f16 {
    fn key(self) -> u64 {
        self.to_f64().key()
    }
}

impl Key for bf16 {
    fn key(self) -> u64 {
        self.to_f64().key()
    }
}

/// Sorted values and their positions before.
pub(crate) fn sort(
    cpu: &Cpu,
    x: &Tensor,
    axis: usize,
    descending: bool,
) -> Result<(StorageRef, StorageRef)> {
    let n = x.numel();
    let input = copy::contiguous(cpu, &View::of(x)?)?;
    let values = cpu.alloc(n, x.dtype())?;
    let positions = cpu.alloc(n, DType::I32)?;
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    if n > 0 {
        let job = Sort {
            cpu,
            x: Shared(input.ptr()),
            values: Shared(values.ptr()),
            positions: Shared(positions.ptr().cast()),
            n,
            length,
            inner,
            descending,
        };
        // SAFETY: all three have n elements; the outputs have no other owner.
        // Bools sort as bytes.
        match x.dtype() {
            DType::Bool | DType::U8 => job.run(keys::<u8>, 1),
            DType::U16 => job.run(keys::<u16>, 2),
            DType::U32 => job.run(keys::<u32>, 4),
            DType::U64 => job.run(keys::<u64>, 8),
            DType::I8 => job.run(keys::<i8>, 1),
            DType::I16 => job.run(keys::<i16>, 2),
            DType::I32 => job.run(keys::<i32>, 4),
            DType::I64 => job.run(keys::<i64>, 8),
            DType::F16 => job.run(keys::<f16>, 2),
            DType::BF16 => job.run(keys::<bf16>, 2),
            DType::F32 => job.run(keys::<f32>, 4),
            DType::F64 => job.run(keys::<f64>, 8),
        }?;
    }
    Ok((Arc::new(values), Arc::new(positions)))
}

/// The keys of `row.len()` elements that are `step` apart, with their positions.
unsafe fn keys<T: Key>(x: *const u8, step: usize, row: &mut [(u64, i32)]) {
    for (i, to) in row.iter_mut().enumerate() {
        // SAFETY: the caller's.
        *to = (unsafe { *x.cast::<T>().add(i * step) }.key(), i as i32);
    }
}

/// `y[i] = x[positions[i]]`, as bits, for elements that are `step` apart in both.
unsafe fn pick<T: Copy>(x: *const u8, y: *mut u8, step: usize, row: &[(u64, i32)]) {
    for (i, &(_, from)) in row.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { *y.cast::<T>().add(i * step) = *x.cast::<T>().add(from as usize * step) };
    }
}

/// Lanes of `length` elements that are `inner` apart.
struct Sort<'a> {
    cpu: &'a Cpu,
    x: Shared<u8>,
    values: Shared<u8>,
    positions: Shared<i32>,
    /// Elements of all lanes.
    n: usize,
    length: usize,
    inner: usize,
    descending: bool,
}

impl Sort<'_> {
    /// Sorts all lanes by the `keys` of elements of `size` bytes.
    fn run(&self, keys: unsafe fn(*const u8, usize, &mut [(u64, i32)]), size: usize) -> Result<()> {
        let (length, inner) = (self.length, self.inner);
        try_for_each_range(self.n / length, 8192 / length, |lanes| {
            let mut row = Array::filled(self.cpu, length, (0, 0))?;
            for lane in lanes {
                let start = lane / inner * length * inner + lane % inner;
                let (x, y) = (
                    self.x.get().wrapping_add(start * size),
                    self.values.get().wrapping_add(start * size),
                );
                // SAFETY: all three tensors have this lane, and in the outputs it belongs to this
                // range.
                unsafe {
                    keys(x, inner, &mut row);
                    if self.descending {
                        row.iter_mut().for_each(|(key, _)| *key = !*key);
                    }
                    row.sort_unstable();
                    match size {
                        1 => pick::<u8>(x, y, inner, &row),
                        2 => pick::<u16>(x, y, inner, &row),
                        4 => pick::<u32>(x, y, inner, &row),
                        _ => pick::<u64>(x, y, inner, &row),
                    }
                    for (i, &(_, position)) in row.iter().enumerate() {
                        *self.positions.get().add(start + i * inner) = position;
                    }
                }
            }
            Ok(())
        })
    }
}
