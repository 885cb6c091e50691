//! The memory of one tensor: one wgpu buffer, or a part of one that several tensors share. It is
//! returned to the pool when its last handle is dropped.
//!
//! Elements are stored exactly as on the CPU, little-endian and without gaps; types below 32 bits
//! share words. The buffer is a multiple of 32 bytes long, so that a kernel may always read and
//! write four whole elements.

use crate::device::pool::{Block, Pool};
use std::sync::Arc;
use teeny_core::{DType, Error, Result, Storage};

/// Parts of a shared buffer begin at multiples of this many bytes, where bindings may begin.
pub(crate) const PART_ALIGNMENT: u64 = 256;

/// The storage of this device.
pub(crate) struct Memory {
    owned: Arc<Owned>,
    /// Where the elements begin in the buffer, and how many bytes they have.
    start: u64,
    bytes: u64,
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
        let owned = Arc::new(Owned { buffer: block.buffer, bytes, pool });
        Memory { owned, start: 0, bytes, len, dtype }
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
        Ok(Memory { owned: self.owned.clone(), dtype, ..*self })
    }

    /// The `len` elements that begin `start` bytes, a multiple of [`PART_ALIGNMENT`], after the
    /// first one, as a storage. No other part may have bytes up to the next such multiple.
    pub fn part(&self, start: u64, len: usize) -> Memory {
        let bytes = (len * self.dtype.size()) as u64;
        Memory { owned: self.owned.clone(), start: self.start + start, bytes, len, ..*self }
    }

    /// The buffer; the elements begin [`Memory::start`] bytes after its first.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.owned.buffer
    }

    /// Where the elements begin in the buffer, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Whether other handles have elements in the same buffer, so that a launch cannot write here
    /// and read there.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.owned) > 1
    }

    /// A number that handles of the same buffer have in common.
    pub fn block(&self) -> usize {
        Arc::as_ptr(&self.owned) as usize
    }

    /// The bytes that a kernel binds: all elements, rounded up to 32 bytes, so that it may read
    /// whole groups of four elements, or of eight elements of at most 32 bits.
    pub fn bound(&self) -> u64 {
        let most = self.owned.buffer.size() - self.start;
        self.bytes.next_multiple_of(32).max(32).min(most)
    }

    /// [`Memory::bound`] of all of the buffer, from its first byte.
    pub fn block_bytes(&self) -> u64 {
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
}
