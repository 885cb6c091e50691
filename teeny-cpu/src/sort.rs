//! Stable sorting along one axis; NaN counts as the largest.

use crate::elementwise::cast::{slice, slice_mut};
use crate::storage::{Shared, View};
use crate::threads::for_each_chunk;
use crate::{Cpu, copy};
use std::cmp::Ordering;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Tensor, bf16, f16};

/// The order of sorting.
fn order<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    // Only NaN is not equal to itself, and it comes last.
    let nan = |x: &T| x.partial_cmp(x).is_none();
    a.partial_cmp(b).unwrap_or_else(|| nan(a).cmp(&nan(b)))
}

/// Values and former positions.
pub(crate) fn sort(cpu: &Cpu, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
    let n = x.numel();
    let input = copy::contiguous(cpu, &View::of(x)?)?;
    let values = cpu.alloc(n, x.dtype())?;
    let positions = cpu.alloc(n, DType::I32)?;
    let (length, inner) = (x.shape()[axis], x.shape()[axis + 1..].iter().product::<usize>());
    if n > 0 {
        // SAFETY: all three have n elements; the outputs have no other owner. Bools sort as bytes.
        unsafe {
            let p = slice_mut::<i32>(positions.ptr(), n);
            macro_rules! go {
                ($t:ty) => {
                    run(slice::<$t>(input.ptr(), n), slice_mut::<$t>(values.ptr(), n), p, length, inner, descending)
                };
            }
            match x.dtype() {
                DType::Bool | DType::U8 => go!(u8),
                DType::U16 => go!(u16),
                DType::U32 => go!(u32),
                DType::U64 => go!(u64),
                DType::I8 => go!(i8),
                DType::I16 => go!(i16),
                DType::I32 => go!(i32),
                DType::I64 => go!(i64),
                DType::F16 => go!(f16),
                DType::BF16 => go!(bf16),
                DType::F32 => go!(f32),
                DType::F64 => go!(f64),
            }
        }
    }
    Ok((Arc::new(values), Arc::new(positions)))
}

fn run<T: PartialOrd + Copy + Send + Sync>(x: &[T], values: &mut [T], positions: &mut [i32], length: usize, inner: usize, descending: bool) {
    let lanes = x.len() / length;
    let (values, positions) = (Shared(values.as_mut_ptr()), Shared(positions.as_mut_ptr()));
    let per_chunk = (8192 / length).max(1);
    for_each_chunk(lanes.div_ceil(per_chunk), |c| {
        let mut row: Vec<(T, i32)> = Vec::with_capacity(length);
        for lane in c * per_chunk..((c + 1) * per_chunk).min(lanes) {
            let start = lane / inner * length * inner + lane % inner;
            row.clear();
            row.extend((0..length).map(|i| (x[start + i * inner], i as i32)));
            if descending {
                row.sort_by(|a, b| order(&b.0, &a.0));
            } else {
                row.sort_by(|a, b| order(&a.0, &b.0));
            }
            for (i, &(value, position)) in row.iter().enumerate() {
                // SAFETY: inside the lane, which belongs to this chunk.
                unsafe {
                    *values.get().add(start + i * inner) = value;
                    *positions.get().add(start + i * inner) = position;
                }
            }
        }
    });
}
