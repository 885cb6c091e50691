//! Memory for storages: blocks by size class, kept for reuse, so that a training step asks the OS for nothing.
//!
//! ```text
//!   alloc ── own shard (LIFO, <= 1 MiB) ── shared lists (> 1 MiB) ── other shards ── OS: malloc, or mmap from 2 MiB on
//!   free  ── own shard / shared list, or back to the OS when the cache is at its cap
//! ```
//! A shard belongs to the threads whose number falls on it and is held for nanoseconds, so nothing leaks when a thread ends
//! and any thread may free. Every block is zeroed when it comes from the OS: pooled memory is stale, never uninitialised.
//! Knows nothing of tensors. Next: `os_memory` for where blocks come from.

use crate::os_memory;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Blocks up to this size live in the shards; larger ones are rare and worth sharing.
const SHARDED: usize = 1 << 20;
const SHARDS: usize = 16;
/// The largest class index: 2^48 bytes.
const CLASSES: usize = 4 * (48 - 8) + 4;

/// The size class of a request and the bytes a block of it has: multiples of 64 up to 256, then four per octave.
fn class_of(bytes: usize) -> (usize, usize) {
    if bytes <= 256 {
        let class = bytes.max(1).div_ceil(64) - 1;
        return (class, (class + 1) * 64);
    }
    let octave = (bytes - 1).ilog2(); // 2^octave < bytes <= 2^(octave + 1)
    let quarter = 1usize << (octave - 2);
    let q = (bytes - (1 << octave)).div_ceil(quarter); // 1..=4
    (4 * (octave as usize - 8) + 3 + q, (1 << octave) + q * quarter)
}

/// What a pool has done so far. Exact whenever no other thread is inside the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks asked for.
    pub requests: usize,
    /// Requests answered from the cache.
    pub hits: usize,
    /// Blocks taken from the operating system.
    pub os_allocations: usize,
    /// Blocks given back to the operating system.
    pub os_frees: usize,
    /// Bytes in use, in whole blocks.
    pub live_bytes: usize,
    /// The most that `live_bytes` has been.
    pub peak_live_bytes: usize,
    /// Bytes held for reuse.
    pub cached_bytes: usize,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes in use at that moment.
    pub live: usize,
    /// The limit that was met, or none if the operating system refused.
    pub limit: Option<usize>,
}

#[derive(Default)]
struct Lists {
    /// Free blocks by class.
    free: Vec<Vec<NonNull<u8>>>,
    requests: usize,
    hits: usize,
}

// SAFETY: the pointers are owned blocks that nothing else refers to.
unsafe impl Send for Lists {}

impl Lists {
    fn pop(&mut self, class: usize) -> Option<NonNull<u8>> {
        self.free.get_mut(class)?.pop()
    }

    fn push(&mut self, class: usize, block: NonNull<u8>) {
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(block);
    }
}

/// A shard on its own cache line.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Lists>);

/// A pool of blocks. Shared by `Arc`; a buffer keeps its pool alive.
pub(crate) struct Pool {
    shards: [Shard; SHARDS],
    shared: Shard,
    live: AtomicUsize,
    peak: AtomicUsize,
    /// Bytes obtained from the OS and not given back; the cache holds what of it is not live.
    held: AtomicUsize,
    os_allocations: AtomicUsize,
    os_frees: AtomicUsize,
    cache_cap: AtomicUsize,
    limit: AtomicUsize,
    trimming: AtomicBool,
}

/// The number of this thread's home shard.
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static HOME: Cell<usize> = const { Cell::new(usize::MAX) });
    HOME.with(|home| {
        if home.get() == usize::MAX {
            home.set(NEXT.fetch_add(1, Relaxed) % SHARDS);
        }
        home.get()
    })
}

fn lock(shard: &Shard) -> MutexGuard<'_, Lists> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool that keeps up to `cache_cap` bytes for reuse and hands out at most `limit` at a time.
    pub(crate) fn new(cache_cap: usize, limit: Option<usize>) -> Arc<Pool> {
        Arc::new(Pool {
            shards: Default::default(),
            shared: Shard::default(),
            live: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            os_allocations: AtomicUsize::new(0),
            os_frees: AtomicUsize::new(0),
            cache_cap: AtomicUsize::new(cache_cap),
            limit: AtomicUsize::new(limit.unwrap_or(usize::MAX)),
            trimming: AtomicBool::new(false),
        })
    }

    /// A buffer of at least `bytes` bytes, aligned to 64: zeros or stale data.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Buffer, OutOfMemory> {
        if bytes > isize::MAX as usize / 4 || class_of(bytes).0 >= CLASSES {
            return Err(OutOfMemory { wanted: bytes, live: self.live.load(Relaxed), limit: None });
        }
        let (class, size) = class_of(bytes);
        self.add_live(bytes, size)?;
        let block = match self.reuse(class, size) {
            Some(block) => block,
            None => self.take_from_os(size).ok_or_else(|| {
                let live = self.live.fetch_sub(size, Relaxed) - size;
                OutOfMemory { wanted: bytes, live, limit: None }
            })?,
        };
        Ok(Buffer {
            block,
            class: class as u32,
            #[cfg(test)]
            bytes,
            pool: self.clone(),
        })
    }

    fn add_live(&self, wanted: usize, size: usize) -> Result<(), OutOfMemory> {
        let limit = self.limit.load(Relaxed);
        let live = if limit == usize::MAX {
            self.live.fetch_add(size, Relaxed) + size
        } else {
            let fits = |live: usize| live.checked_add(size).filter(|&sum| sum <= limit);
            match self.live.fetch_update(Relaxed, Relaxed, fits) {
                Ok(before) => before + size,
                Err(live) => {
                    return Err(OutOfMemory { wanted, live, limit: Some(limit) });
                }
            }
        };
        if live > self.peak.load(Relaxed) {
            self.peak.fetch_max(live, Relaxed);
        }
        Ok(())
    }

    /// The shard for `size` seen from this thread.
    fn shard(&self, size: usize) -> &Shard {
        if size <= SHARDED { &self.shards[home()] } else { &self.shared }
    }

    fn reuse(&self, class: usize, size: usize) -> Option<NonNull<u8>> {
        {
            let mut lists = lock(self.shard(size));
            lists.requests += 1;
            if let Some(block) = lists.pop(class) {
                lists.hits += 1;
                return Some(block);
            }
        }
        if size > SHARDED || self.held.load(Relaxed) <= self.live.load(Relaxed) {
            return None; // nothing is cached beyond what is in use
        }
        // A thread that only allocates what others free: look in their shards, without waiting.
        for shard in &self.shards {
            let mut lists = match shard.0.try_lock() {
                Ok(lists) => lists,
                Err(TryLockError::Poisoned(e)) => e.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if let Some(block) = lists.pop(class) {
                lists.hits += 1;
                return Some(block);
            }
        }
        None
    }

    fn take_from_os(&self, size: usize) -> Option<NonNull<u8>> {
        let block = os_memory::alloc(size).or_else(|| {
            self.clear();
            os_memory::alloc(size)
        })?;
        self.held.fetch_add(size, Relaxed);
        self.os_allocations.fetch_add(1, Relaxed);
        Some(block)
    }

    fn to_os(&self, block: NonNull<u8>, size: usize) {
        self.held.fetch_sub(size, Relaxed);
        self.os_frees.fetch_add(1, Relaxed);
        // SAFETY: the block came from `os_memory::alloc(size)` and has left every list.
        unsafe { os_memory::free(block, size) }
    }

    fn give(&self, block: NonNull<u8>, class: usize, size: usize) {
        let live = self.live.fetch_sub(size, Relaxed) - size;
        let cap = self.cache_cap.load(Relaxed);
        if self.held.load(Relaxed).saturating_sub(live) > cap {
            if size > cap {
                return self.to_os(block, size);
            }
            lock(self.shard(size)).push(class, block);
            return self.trim(cap);
        }
        lock(self.shard(size)).push(class, block);
    }

    /// Gives cached blocks back to the OS, largest first, until at most `keep` bytes are cached.
    pub(crate) fn trim(&self, keep: usize) {
        let cached = || self.held.load(Relaxed).saturating_sub(self.live.load(Relaxed));
        if self.trimming.swap(true, Acquire) {
            return;
        }
        'shards: for shard in std::iter::once(&self.shared).chain(&self.shards) {
            let mut lists = lock(shard);
            for class in (0..lists.free.len()).rev() {
                while let Some(block) = if cached() > keep {
                    lists.pop(class)
                } else {
                    break 'shards;
                } {
                    self.to_os(block, class_size(class));
                }
            }
        }
        self.trimming.store(false, Release);
    }

    /// Gives every cached block back to the OS.
    pub(crate) fn clear(&self) {
        for shard in std::iter::once(&self.shared).chain(&self.shards) {
            let free = std::mem::take(&mut lock(shard).free);
            for (class, blocks) in free.into_iter().enumerate() {
                for block in blocks {
                    self.to_os(block, class_size(class));
                }
            }
        }
    }

    /// The counters.
    pub(crate) fn stats(&self) -> PoolStats {
        let (mut requests, mut hits) = (0, 0);
        for shard in std::iter::once(&self.shared).chain(&self.shards) {
            let lists = lock(shard);
            requests += lists.requests;
            hits += lists.hits;
        }
        let live_bytes = self.live.load(Relaxed);
        PoolStats {
            requests,
            hits,
            os_allocations: self.os_allocations.load(Relaxed),
            os_frees: self.os_frees.load(Relaxed),
            live_bytes,
            peak_live_bytes: self.peak.load(Relaxed),
            cached_bytes: self.held.load(Relaxed).saturating_sub(live_bytes),
        }
    }

    /// Changes the limit on live bytes.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        self.limit.store(limit.unwrap_or(usize::MAX), Relaxed);
    }

    /// The limit on live bytes.
    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Relaxed)).filter(|&limit| limit != usize::MAX)
    }
}

/// The bytes of a block of this class: the inverse of `class_of`.
fn class_size(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * 64;
    }
    let (octave, q) = ((class - 4) / 4 + 8, (class - 4) % 4 + 1);
    (1 << octave) + q * (1 << (octave - 2))
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes from a pool, aligned to 64, given back on drop.
pub(crate) struct Buffer {
    block: NonNull<u8>,
    class: u32,
    #[cfg(test)]
    bytes: usize,
    pool: Arc<Pool>,
}

// SAFETY: a buffer owns its block; shared access only reads through it, writers hold it alone (see `storage`).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The bytes asked for.
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
        self.pool.give(self.block, self.class as usize, class_size(self.class as usize));
    }
}
