//! The memory of one tensor: one wgpu buffer, returned to the pool when its last handle is
//! dropped.
//!
//! Elements are stored exactly as on the CPU, little-endian and without gaps; types below 32 bits
//! share words. The buffer is a multiple of 32 bytes long, so that a kernel may always read and
//! write four whole elements.

use crate::device::pool::{Block, Pool};
use std::any::Any;
use std::sync::Arc;
use teeny_core::{DType, Error, Result, Storage};

/// The storage of this device.
pub(crate) struct Memory {
    owned: Arc<Owned>,
    len: usize,
    dtype: DType,
}

/// A buffer of the pool, returned to it when dropped.
struct Owned {
    buffer: wgpu::Buffer,
    bytes: u64,
    pool: Arc<Pool>,
}

impl Memory {
    /// `len` elements of type `dtype`, `bytes` bytes together, in `block`.
    pub fn new(block: Block, len: usize, dtype: DType, bytes: u64, pool: Arc<Pool>) -> Memory {
        Memory { owned: Arc::new(Owned { buffer: block.buffer, bytes, pool }), len, dtype }
    }

    /// The same buffer, its bits read as another type of the same width.
    ///
    /// # Errors
    /// If the widths differ.
    pub fn reinterpreted(&self, dtype: DType) -> Result<Memory> {
        if dtype.size() != self.dtype.size() {
            return Err(Error::internal(format!(
                "the bits of {} cannot be read as {dtype}",
                self.dtype
            )));
        }
        Ok(Memory { owned: self.owned.clone(), len: self.len, dtype })
    }

    /// The buffer.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.owned.buffer
    }

    /// The bytes that a kernel binds to see all elements, in whole groups of four.
    pub fn bound(&self) -> u64 {
        self.owned.bytes.next_multiple_of(32).max(32).min(self.owned.buffer.size())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.pool.release(self.buffer.clone(), self.bytes);
    }
}

impl Storage for Memory {
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
