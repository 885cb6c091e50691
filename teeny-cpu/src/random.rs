//! Random numbers: core's Philox blocks, chunk by chunk on all threads. The bits are core's, whatever the partition.

use crate::Cpu;
use crate::elementwise::cast::slice_mut;
use crate::storage::Shared;
use crate::threads::for_each_chunk;
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Distribution, Element, Key, Result, with_element};

/// Philox blocks per chunk.
const CHUNK: usize = 4096;

/// `n` draws.
pub(crate) fn random(cpu: &Cpu, distribution: Distribution, n: usize, dtype: DType, key: Key) -> Result<StorageRef> {
    let storage = cpu.alloc(n, dtype)?;
    let per_block = Distribution::per_block(dtype);
    let out = Shared(storage.ptr());
    for_each_chunk(n.div_ceil(per_block * CHUNK), |c| {
        let first = c * CHUNK * per_block;
        let count = (CHUNK * per_block).min(n - first);
        with_element!(dtype, T => {
            // SAFETY: this chunk's elements, which no other chunk touches. Bools are written whole before any is read.
            let out = unsafe { slice_mut::<T>(out.get().add(first * size_of::<T>()), count) };
            for (block, values) in out.chunks_mut(per_block).enumerate() {
                let draws = distribution.block(key, (c * CHUNK + block) as u64, dtype);
                for (value, draw) in values.iter_mut().zip(draws) {
                    *value = T::from_scalar(draw);
                }
            }
        });
    });
    Ok(Arc::new(storage))
}
