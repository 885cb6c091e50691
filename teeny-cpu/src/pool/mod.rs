//! The memory pool: blocks by size class, kept for reuse, so that a training step asks the OS for
//! nothing. Pooling over windows is `pooling`.
//!
//! The naive form is one malloc per storage, of which large ones fault in every page again.
//!
//! ```text
//!   alloc ── own shard (LIFO, <= 1 MiB) ── shared lists (> 1 MiB) ── other shards ── OS
//!   free  ── own shard / shared list, or back to the OS when the cache is at its cap
//! ```
//! Each thread has one of sixteen shards, which it locks for nanoseconds, so nothing leaks when a
//! thread ends and any thread may free. Every block is zeroed when it comes from the OS: pooled
//! memory is stale, never uninitialised. An allocation and its release take four locked
//! instructions in all, which is most of their time: a shard is unlocked by a plain store, and the
//! count of live bytes also keeps the pool in existence.
//!
//! A limit bounds all memory that the pool has from the OS, in use or cached: cached blocks are
//! returned for new ones, and a request only fails because of blocks in use. `guard` surrounds
//! blocks with bytes that no operation may change. Independent of tensors. Next: `blocks`, and
//! `os_memory` for where blocks come from.

mod blocks;
mod classes;
mod shard;

use crate::fork;
use crate::guard::{Guard, MARGIN};
use blocks::{Blocks, OWNER};
use classes::{CLASSES, class_of, class_size};
use shard::Shard;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Counters of a memory pool. Exact whenever no other thread is inside the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Requests for blocks: of storages, and of scratch memory.
    pub requests: usize,
    /// The part of these requests that is for scratch memory.
    pub scratch_requests: usize,
    /// Requests answered from the cache.
    pub hits: usize,
    /// Blocks taken from the operating system.
    pub os_allocations: usize,
    /// Blocks returned to the operating system.
    pub os_frees: usize,
    /// Bytes in use, in whole blocks: storages, and the scratch memory of operations that run.
    pub live_bytes: usize,
    /// The largest value of `live_bytes`.
    pub peak_live_bytes: usize,
    /// Bytes kept for reuse.
    pub cached_bytes: usize,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory {
    /// Bytes requested.
    pub wanted: usize,
    /// Bytes in use at that moment.
    pub live: usize,
    /// The limit that was reached, or none if the operating system refused.
    pub limit: Option<usize>,
}

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A storage.
    Storage,
    /// Scratch memory of a task, until it ends.
    Scratch,
}

/// The owner of a pool of blocks. A buffer keeps the blocks' pool in existence beyond it.
pub(crate) struct Pool(NonNull<Blocks>);

// SAFETY: all of `Blocks` may be used from any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Deref for Pool {
    type Target = Blocks;
    #[inline]
    fn deref(&self) -> &Blocks {
        // SAFETY: its own part of `live` keeps it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: this owner's part.
        unsafe { Blocks::release(self.0, OWNER) }
    }
}

impl Pool {
    /// A pool that keeps up to `cache_cap` bytes for reuse and takes at most `limit` from the OS.
    /// With `guarded`, blocks are surrounded by bytes that are checked.
    pub(crate) fn new(cache_cap: usize, limit: Option<usize>, guarded: bool) -> Pool {
        fork::watch();
        let blocks = Box::new(Blocks {
            shards: Default::default(),
            shared: Shard::default(),
            live: AtomicUsize::new(OWNER),
            peak: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            os_allocations: AtomicUsize::new(0),
            os_frees: AtomicUsize::new(0),
            cache_cap: AtomicUsize::new(cache_cap),
            limit: AtomicUsize::new(limit.unwrap_or(usize::MAX)),
            trimming: AtomicU32::new(0),
            guard: guarded.then(Box::default),
            #[cfg(test)]
            fault: AtomicUsize::new(0),
        });
        Pool(NonNull::from(Box::leak(blocks)))
    }

    /// A buffer of at least `bytes` bytes, aligned to 64: zeros or stale data.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize, to: Use) -> Result<Buffer, OutOfMemory> {
        #[cfg(test)]
        if self.fails() {
            return Err(OutOfMemory { wanted: bytes, live: self.live(), limit: None });
        }
        if let Some(guard) = &self.guard {
            return self.alloc_guarded(guard, bytes, to);
        }
        self.alloc_block(bytes, to)
    }

    /// [`alloc`](Pool::alloc) with margins.
    #[cold]
    fn alloc_guarded(&self, guard: &Guard, bytes: usize, to: Use) -> Result<Buffer, OutOfMemory> {
        let mut buffer = self.alloc_block(bytes.saturating_add(2 * MARGIN), to)?;
        // SAFETY: the block has these bytes and no other owner.
        buffer.block =
            unsafe { guard.enclose(buffer.block, class_size(buffer.class as usize), bytes) };
        #[cfg(test)]
        {
            buffer.bytes = bytes;
        }
        Ok(buffer)
    }

    #[inline(always)]
    fn alloc_block(&self, bytes: usize, to: Use) -> Result<Buffer, OutOfMemory> {
        let (class, size) =
            if bytes > isize::MAX as usize / 4 { (CLASSES, 0) } else { class_of(bytes) };
        if class >= CLASSES {
            return Err(OutOfMemory { wanted: bytes, live: self.live(), limit: None });
        }
        self.add_live(bytes, size)?;
        let block = match self.reuse(class, size, to) {
            Some(block) => block,
            None => self.take_from_os(size).ok_or_else(|| self.refused(bytes, size))?,
        };
        Ok(Buffer {
            block,
            class: class as u32,
            #[cfg(test)]
            bytes,
            pool: self.0,
        })
    }

    /// The guard of this pool's blocks, if it has one.
    #[inline]
    pub(crate) fn guard(&self) -> Option<&Guard> {
        self.guard.as_deref()
    }
}

/// Memory from a pool, aligned to 64 bytes and returned on drop.
pub(crate) struct Buffer {
    block: NonNull<u8>,
    class: u32,
    #[cfg(test)]
    bytes: usize,
    /// Kept by this block's part in the count of live bytes.
    pool: NonNull<Blocks>,
}

// SAFETY: a buffer owns its block; shared access only reads through it, writers hold it alone (see
// `storage`).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The bytes requested.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The first byte.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.block.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the block is the pool's, and this is the end of it.
        unsafe { Blocks::give_back(self.pool, self.block, self.class as usize) }
    }
}
