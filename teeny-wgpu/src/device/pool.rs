//! Buffers by size class, cached for reuse within a budget.
//!
//! Classes are powers of two with quarter steps, exact multiples of 64 KiB above 64 MiB: at most a
//! quarter is wasted. The next dispatch may use a returned buffer at once, since dispatches run in
//! order. Only an upload, which overtakes the open batch, must avoid buffers that the open batch
//! uses: [`Block::mark`] tells them.
//!
//! The cache has a cap. A buffer that would exceed it displaces the buffers that were returned
//! first.

use crate::device::adapter::Capabilities;
use crate::device::error;
use crate::device::lock::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use teeny_core::{Result, Stats};

/// The least bytes that are cached; see [`crate::Options::cache_bytes`].
const CACHE: u64 = 1 << 30;
/// The most bytes of buffers for reading back that are cached.
const STAGING: u64 = 128 << 20;

/// A buffer of the pool.
pub(crate) struct Block {
    pub buffer: wgpu::Buffer,
    /// How many commands had been recorded when it was returned: none of the later ones uses it.
    mark: u64,
    /// How many buffers had been returned before.
    returned: u64,
}

#[derive(Default)]
struct PoolState {
    /// Free buffers by size, the first returned in front.
    free: HashMap<u64, Vec<Block>>,
    /// Free buffers for reading back.
    staging: Vec<wgpu::Buffer>,
    staging_bytes: u64,
    returned: u64,
    stats: Stats,
    /// Bytes in all buffers, used and free, without those for reading back.
    reserved: u64,
}

/// All buffers of a device.
pub(crate) struct Pool {
    device: wgpu::Device,
    max_buffer: u64,
    budget: Option<u64>,
    cap: Option<u64>,
    /// Commands recorded, and how many of them were submitted.
    recorded: AtomicU64,
    submitted: AtomicU64,
    state: Mutex<PoolState>,
}

/// The first use of the bytes.
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
    pub fn new(
        device: wgpu::Device,
        capabilities: &Capabilities,
        budget: Option<u64>,
        cap: Option<u64>,
    ) -> Pool {
        let [recorded, submitted] = [AtomicU64::new(0), AtomicU64::new(0)];
        Pool {
            device,
            max_buffer: capabilities.max_buffer,
            budget,
            cap,
            recorded,
            submitted,
            state: Mutex::default(),
        }
    }

    /// The open batch has one more command. Called under the lock of the stream.
    pub fn record(&self) {
        self.recorded.fetch_add(1, Ordering::AcqRel);
    }

    /// The open batch was submitted. Called under the lock of the stream.
    pub fn submit(&self) {
        self.submitted.store(self.recorded.load(Ordering::Acquire), Ordering::Release);
    }

    /// A buffer of at least `bytes` bytes. `release` makes the device release all it can before
    /// the one retry.
    ///
    /// # Errors
    /// If the buffer would be too large, or budget or driver refuse even after all free buffers
    /// were dropped.
    pub fn take(&self, bytes: u64, first_use: FirstUse, release: impl FnOnce()) -> Result<Block> {
        let largest = self.max_buffer / 32 * 32;
        if bytes > largest {
            return Err(error::too_large(bytes, self.max_buffer));
        }
        let size = class(bytes.next_multiple_of(32)).min(largest);
        {
            let mut state = lock(&self.state);
            // Read under the lock: the commands of a block are recorded before it is returned.
            let submitted = self.submitted.load(Ordering::Acquire);
            if let Some(blocks) = state.free.get_mut(&size) {
                let found = match first_use {
                    FirstUse::Dispatch => blocks.pop(),
                    FirstUse::Upload => blocks
                        .first()
                        .is_some_and(|b| b.mark <= submitted)
                        .then(|| blocks.remove(0)),
                };
                if let Some(block) = found {
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
                    error::out_of_memory(
                        bytes,
                        reserved,
                        self.budget.filter(|b| reserved.saturating_add(size) > *b),
                    )
                })?
            }
        };
        let mut state = lock(&self.state);
        state.stats.os_allocations += 1;
        state.count(bytes);
        Ok(Block { buffer, mark: 0, returned: 0 })
    }

    fn create(&self, size: u64) -> Option<wgpu::Buffer> {
        {
            let mut state = lock(&self.state);
            if self.budget.is_some_and(|budget| state.reserved.saturating_add(size) > budget) {
                return None;
            }
            state.reserved += size;
        }
        let usage = wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST;
        let buffer = error::scoped(&self.device, wgpu::ErrorFilter::OutOfMemory, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        });
        if buffer.is_err() {
            lock(&self.state).reserved -= size;
        }
        buffer.ok()
    }

    /// Takes a block back from a storage of `bytes` bytes; drops the oldest free buffers beyond the
    /// cap.
    pub fn release(&self, buffer: wgpu::Buffer, bytes: u64) {
        let size = buffer.size();
        let mut dropped = Vec::new();
        let mut state = lock(&self.state);
        let mark = self.recorded.load(Ordering::Acquire);
        state.stats.live_bytes -= bytes;
        state.stats.cached_bytes += size;
        state.returned += 1;
        let returned = state.returned;
        state.free.entry(size).or_default().push(Block { buffer, mark, returned });
        // As much as was in use at once is needed again by a step that is repeated.
        let cap = self.cap.unwrap_or_else(|| CACHE.max(state.stats.peak_bytes));
        while state.stats.cached_bytes > cap
            && let Some(oldest) = state.oldest()
        {
            state.stats.cached_bytes -= oldest.buffer.size();
            state.reserved -= oldest.buffer.size();
            dropped.push(oldest);
        }
        drop(state);
        drop(dropped);
    }

    /// A free buffer of exactly `size` bytes for reading back.
    pub fn take_staging(&self, size: u64) -> Option<wgpu::Buffer> {
        let mut state = lock(&self.state);
        let at = state.staging.iter().position(|b| b.size() == size)?;
        state.staging_bytes -= size;
        Some(state.staging.swap_remove(at))
    }

    /// Caches an unmapped buffer for reading back, if the cache has not reached its cap.
    pub fn keep_staging(&self, buffer: wgpu::Buffer) {
        let mut state = lock(&self.state);
        if state.staging_bytes + buffer.size() <= STAGING.min(self.cap.unwrap_or(STAGING)) {
            state.staging_bytes += buffer.size();
            state.staging.push(buffer);
        }
    }

    /// Drops all free buffers.
    pub fn trim(&self) {
        let mut state = lock(&self.state);
        let free = (std::mem::take(&mut state.free), std::mem::take(&mut state.staging));
        state.reserved -= state.stats.cached_bytes;
        (state.stats.cached_bytes, state.staging_bytes) = (0, 0);
        drop(state);
        drop(free);
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let state = lock(&self.state);
        Stats { cached_bytes: state.stats.cached_bytes + state.staging_bytes, ..state.stats }
    }
}

impl PoolState {
    /// Takes the free buffer that was returned first.
    fn oldest(&mut self) -> Option<Block> {
        let blocks = self
            .free
            .values_mut()
            .filter(|blocks| !blocks.is_empty())
            .min_by_key(|blocks| blocks[0].returned)?;
        Some(blocks.remove(0))
    }

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
        for bytes in
            (257..100_000u64).step_by(37).chain([1 << 20, (1 << 20) + 1, 50 << 20, (64 << 20) + 1])
        {
            let size = class(bytes);
            assert!(
                size >= bytes && size.is_multiple_of(32) && (bytes < 2048 || size * 4 <= bytes * 5),
                "{bytes} → {size}"
            );
        }
    }
}
