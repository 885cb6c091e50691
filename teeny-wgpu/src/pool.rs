//! Buffers by size class, kept for reuse within a budget.
//!
//! Classes are powers of two with quarter steps, exact multiples of 64 KiB above 64 MiB: at most a quarter is wasted. A returned buffer may be used by the
//! next dispatch at once, since dispatches run in order; only an upload, which overtakes the open batch, must avoid buffers that the batch still uses.
//! That is what [`Block::batch`] is for.

use crate::adapter::Capabilities;
use crate::error::{self, lock};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use teeny_core::{Result, Stats};

/// A buffer of the pool.
pub(crate) struct Block {
    pub buffer: wgpu::Buffer,
    /// The batch in which it was last given back: commands up to that batch may still use it.
    batch: u64,
}

#[derive(Default)]
struct State {
    free: HashMap<u64, Vec<Block>>,
    stats: Stats,
    /// Bytes in all buffers, used and free.
    reserved: u64,
}

/// All buffers of a device.
pub(crate) struct Pool {
    device: wgpu::Device,
    max_buffer: u64,
    budget: Option<u64>,
    batch: AtomicU64,
    state: Mutex<State>,
}

/// What the bytes will be used for first.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FirstUse {
    /// Written by a command of the open batch.
    Dispatch,
    /// Written by the queue before the open batch runs.
    Upload,
}

/// The size of the buffer for `bytes` bytes.
fn class(bytes: u64) -> u64 {
    const FINE: u64 = 64 << 20;
    if bytes <= 256 {
        return 256;
    }
    if bytes > FINE {
        return bytes.next_multiple_of(64 << 10);
    }
    let step = bytes.next_power_of_two() / 8; // quarter steps of the power of two below
    bytes.next_multiple_of(step.max(256))
}

impl Pool {
    pub fn new(device: wgpu::Device, capabilities: &Capabilities, budget: Option<u64>) -> Pool {
        Pool { device, max_buffer: capabilities.max_buffer, budget, batch: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Says that the open batch was submitted.
    pub fn next_batch(&self) {
        self.batch.fetch_add(1, Ordering::AcqRel);
    }

    /// A buffer of at least `bytes` bytes. `release` makes the device let go of what it can before the one retry.
    ///
    /// # Errors
    /// If the buffer would be too large, or budget or driver refuse even after all free buffers were dropped.
    pub fn take(&self, bytes: u64, first_use: FirstUse, release: impl FnOnce()) -> Result<Block> {
        let size = class(bytes.next_multiple_of(32)).min(self.max_buffer / 32 * 32);
        if bytes > size {
            return Err(error::too_large(bytes, self.max_buffer));
        }
        let batch = self.batch.load(Ordering::Acquire);
        {
            let mut state = lock(&self.state);
            if let Some(blocks) = state.free.get_mut(&size) {
                let fit = match first_use {
                    FirstUse::Dispatch => blocks.len().checked_sub(1),
                    FirstUse::Upload => blocks.iter().position(|b| b.batch < batch),
                };
                if let Some(i) = fit {
                    let block = blocks.swap_remove(i);
                    state.stats.cached_bytes -= size;
                    state.count(bytes);
                    return Ok(block);
                }
            }
        }
        let buffer = match self.create(size) {
            Some(buffer) => buffer,
            None => {
                self.trim();
                release();
                self.create(size).ok_or_else(|| {
                    let reserved = lock(&self.state).reserved;
                    error::out_of_memory(bytes, reserved, self.budget.filter(|b| reserved + size > *b))
                })?
            }
        };
        let mut state = lock(&self.state);
        state.stats.os_allocations += 1;
        state.count(bytes);
        Ok(Block { buffer, batch: 0 })
    }

    fn create(&self, size: u64) -> Option<wgpu::Buffer> {
        {
            let mut state = lock(&self.state);
            if self.budget.is_some_and(|budget| state.reserved + size > budget) {
                return None;
            }
            state.reserved += size;
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = crate::pipeline::scoped(&self.device, wgpu::ErrorFilter::OutOfMemory, || {
            self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        });
        if buffer.is_err() {
            lock(&self.state).reserved -= size;
        }
        buffer.ok()
    }

    /// Takes a block back from a storage of `bytes` bytes.
    pub fn give_back(&self, mut block: Block, bytes: u64) {
        block.batch = self.batch.load(Ordering::Acquire);
        let size = block.buffer.size();
        let mut state = lock(&self.state);
        state.stats.live_bytes -= bytes;
        state.stats.cached_bytes += size;
        state.free.entry(size).or_default().push(block);
    }

    /// Drops all free buffers.
    pub fn trim(&self) {
        let mut state = lock(&self.state);
        let free = std::mem::take(&mut state.free);
        state.reserved -= state.stats.cached_bytes;
        state.stats.cached_bytes = 0;
        drop(state);
        drop(free);
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        lock(&self.state).stats
    }
}

impl State {
    fn count(&mut self, bytes: u64) {
        self.stats.allocations += 1;
        self.stats.live_bytes += bytes;
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.live_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for bytes in (257..100_000u64).step_by(37).chain([1 << 20, (1 << 20) + 1, 50 << 20, (64 << 20) + 1]) {
            let size = class(bytes);
            assert!(size >= bytes && size.is_multiple_of(32) && (bytes < 2048 || size * 4 <= bytes * 5), "{bytes} → {size}");
        }
    }
}
