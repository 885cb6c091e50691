//! Positions in several axes as positions in these axes joined into one.
//!
//! The naive form is `Σ indices[i] * Π sizes[i + 1..]`, one pass over memory for each operation: a
//! comparison and an addition for negative positions, a comparison for those outside, a product and
//! a sum for each axis. Here a block goes through all of them in L1. Independent of the elements.

use super::integers;
use crate::Cpu;
use crate::cost::Cost;
use crate::simd::{F32s, Work};
use crate::storage::Shared;
use crate::threads::for_each_range;
use crate::typed::slice_mut;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Result, Tensor};

/// Positions of a block: its sums and marks stay in L1.
const BLOCK: usize = 512;

/// The positions in the joined axes of `sizes`; -1 where one is outside its own axis.
pub(crate) fn flat_positions(
    cpu: &Cpu,
    indices: &[&Tensor],
    sizes: &[usize],
) -> Result<StorageRef> {
    let n = indices[0].numel();
    let out = cpu.alloc(n, DType::I64)?;
    let all = indices.iter().map(|index| integers(cpu, index)).collect::<Result<Vec<_>>>()?;
    let to = Shared(out.ptr());
    let least = Cost::bytes(8 + 8 * all.len()).arithmetic(16 * all.len()).range(n);
    for_each_range(n, least, |range| {
        for start in range.clone().step_by(BLOCK) {
            let len = BLOCK.min(range.end - start);
            // SAFETY: these positions of the result belong to this range.
            let sums = unsafe { slice_mut::<i64>(to.get().wrapping_add(8 * start), len) };
            sums.fill(0);
            let mut outside = [0; BLOCK];
            let outside = &mut outside[..len];
            for ((index, &size), tensor) in all.iter().zip(sizes).zip(indices) {
                let (index, size) = (&index[start..start + len], size as i64);
                // An unsigned position beyond i64 is negative here and stays outside.
                let wrapped = if tensor.dtype().is_signed_int() { size } else { 0 };
                cpu.level.run(Join { sums, outside, index, size, wrapped });
            }
            sums.iter_mut().zip(outside).for_each(|(sum, outside)| *sum |= *outside >> 63);
        }
    });
    Ok(Arc::new(out))
}

/// `sums = sums * size + index`; the sign of `outside` is set where an index is not in the axis.
struct Join<'a> {
    sums: &'a mut [i64],
    outside: &'a mut [i64],
    index: &'a [i64],
    size: i64,
    /// Added to negative indices.
    wrapped: i64,
}

impl Work for Join<'_> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Join { sums, outside, index, size, wrapped } = self;
        for ((sum, outside), &index) in sums.iter_mut().zip(outside).zip(index) {
            let place = index.wrapping_add((index >> 63) & wrapped);
            *outside |= place | (size - 1).wrapping_sub(place);
            *sum = sum.wrapping_mul(size).wrapping_add(place);
        }
    }
}
