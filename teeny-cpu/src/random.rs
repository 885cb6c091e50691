//! Random numbers: core's Philox blocks, chunk by chunk on all threads. A block depends on its
//! number alone, so the bits are core's for any partition.

use crate::Cpu;
use crate::storage::Shared;
use crate::threads::for_each_chunk;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Distribution, Element, Key, Result, with_element};

/// Philox blocks per chunk.
const CHUNK: usize = 4096;

/// `n` draws.
pub(crate) fn random(
    cpu: &Cpu,
    distribution: Distribution,
    n: usize,
    dtype: DType,
    key: Key,
) -> Result<StorageRef> {
    let storage = cpu.alloc(n, dtype)?;
    let per_block = Distribution::per_block(dtype);
    let out = Shared(storage.ptr());
    for_each_chunk(n.div_ceil(per_block * CHUNK), |c| {
        let first = c * CHUNK * per_block;
        let count = (CHUNK * per_block).min(n - first);
        with_element!(dtype, T => {
            let out = out.get().cast::<T>().wrapping_add(first);
            for (block, at) in (0..count).step_by(per_block).enumerate() {
                let draws = distribution.block(key, (c * CHUNK + block) as u64, dtype);
                for (i, draw) in (at..count).zip(draws.into_iter().take(per_block)) {
                    // SAFETY: element i of this chunk, which no other chunk touches. No reference:
                    // the bytes that are there need not be a bool.
                    unsafe { out.add(i).write(T::from_scalar(draw)) };
                }
            }
        });
    });
    Ok(Arc::new(storage))
}
