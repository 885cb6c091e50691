//! The memory of one tensor: one wgpu buffer, given back to the pool when its last handle is dropped.
//!
//! Elements lie exactly as on the CPU, little-endian and without gaps; types below 32 bits share words. The buffer is a multiple of 32 bytes long, so
//! that a kernel may always read and write four whole elements.

use crate::pool::{Block, Pool};
use std::any::Any;
use std::sync::Arc;
use teeny_core::Storage;

/// The storage of this device.
pub(crate) struct Memory {
    buffer: wgpu::Buffer,
    len: usize,
    bytes: u64,
    pool: Arc<Pool>,
}

impl Memory {
    /// `len` elements, `bytes` bytes together, in `block`.
    pub fn new(block: Block, len: usize, bytes: u64, pool: Arc<Pool>) -> Memory {
        Memory { buffer: block.buffer, len, bytes, pool }
    }

    /// The buffer.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The bytes that a kernel binds to see all elements, in whole groups of four.
    pub fn bound(&self) -> u64 {
        self.bytes.next_multiple_of(32).max(32).min(self.buffer.size())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.give_back(self.buffer.clone(), self.bytes);
    }
}

impl Storage for Memory {
    fn len(&self) -> usize {
        self.len
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
