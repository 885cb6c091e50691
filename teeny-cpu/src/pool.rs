//! Memory for storages: blocks by size class, kept for reuse, so that a training step asks the OS for nothing.
//!
//! ```text
//!   alloc ── own shard (LIFO, <= 1 MiB) ── shared lists (> 1 MiB) ── other shards ── OS: malloc, or mmap from 2 MiB on
//!   free  ── own shard / shared list, or back to the OS when the cache is at its cap
//! ```
//! A shard belongs to the threads whose number falls on it and is held for nanoseconds, so nothing leaks when a thread ends
//! and any thread may free. Every block is zeroed when it comes from the OS: pooled memory is stale, never uninitialised.
//! An allocation and its release cost four locked instructions in all, which is most of what they take: a shard's lock is opened by a plain store, and
//! the count of live bytes is also what keeps the pool in existence.
//! Knows nothing of tensors. Next: `os_memory` for where blocks come from.

use crate::os_memory;
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Blocks up to this size live in the shards; larger ones are rare and worth sharing.
const SHARDED: usize = 1 << 20;
const SHARDS: usize = 16;
/// The largest class index: 2^48 bytes.
const CLASSES: usize = 4 * (48 - 8) + 4;

/// The size class of a request and the bytes a block of it has: multiples of 64 up to 256, then four per octave.
#[inline]
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
    #[inline]
    fn pop(&mut self, class: usize) -> Option<NonNull<u8>> {
        self.free.get_mut(class)?.pop()
    }

    #[inline]
    fn push(&mut self, class: usize, block: NonNull<u8>) {
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(block);
    }
}

/// A shard on its own cache line, behind a lock that is held for a few instructions.
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are only reached through `Locked`, of which there is one at a time.
unsafe impl Sync for Shard {}

/// The lists of a shard, until dropped.
struct Locked<'a>(&'a Shard);

impl Shard {
    #[inline]
    fn try_lock(&self) -> Option<Locked<'_>> {
        self.locked.compare_exchange(false, true, Acquire, Relaxed).ok().map(|_| Locked(self))
    }

    #[inline]
    fn lock(&self) -> Locked<'_> {
        let mut looks = 0u32;
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            while self.locked.load(Relaxed) {
                looks += 1;
                if looks.is_multiple_of(100) { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Lists;
    #[inline]
    fn deref(&self) -> &Lists {
        // SAFETY: the lock is held.
        unsafe { &*self.0.lists.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Lists {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.lists.get() }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Release);
    }
}

/// What a [`Pool`] adds to the count of live bytes; sizes of blocks are multiples of 64.
const OWNER: usize = 1;
/// The bits of the count that are not bytes.
const OWNERS: usize = 63;

/// The blocks and counters of a pool. Exists as long as there is a [`Pool`] or a [`Buffer`] of it.
pub(crate) struct Blocks {
    shards: [Shard; SHARDS],
    shared: Shard,
    /// Bytes of the blocks in use, and [`OWNER`]. Whoever brings it to zero is the last and frees all this.
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

/// The number of this thread's home shard.
#[inline]
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static HOME: Cell<usize> = const { Cell::new(usize::MAX) });
    // `with` is not inlined; there is no destructor after which this would fail.
    let number = HOME.try_with(|home| {
        if home.get() == usize::MAX {
            home.set(NEXT.fetch_add(1, Relaxed) % SHARDS);
        }
        home.get()
    });
    number.unwrap_or(0)
}

impl Pool {
    /// A pool that keeps up to `cache_cap` bytes for reuse and hands out at most `limit` at a time.
    pub(crate) fn new(cache_cap: usize, limit: Option<usize>) -> Pool {
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
            trimming: AtomicBool::new(false),
        });
        Pool(NonNull::from(Box::leak(blocks)))
    }

    /// A buffer of at least `bytes` bytes, aligned to 64: zeros or stale data.
    #[inline]
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Buffer, OutOfMemory> {
        let (class, size) = if bytes > isize::MAX as usize / 4 { (CLASSES, 0) } else { class_of(bytes) };
        if class >= CLASSES {
            return Err(OutOfMemory { wanted: bytes, live: self.live(), limit: None });
        }
        self.add_live(bytes, size)?;
        let block = match self.reuse(class, size) {
            Some(block) => block,
            None => self.take_from_os(size).ok_or_else(|| {
                self.live.fetch_sub(size, Relaxed);
                OutOfMemory { wanted: bytes, live: self.live(), limit: None }
            })?,
        };
        Ok(Buffer {
            block,
            class: class as u32,
            #[cfg(test)]
            bytes,
            pool: self.0,
        })
    }
}

impl Blocks {
    /// Bytes of the blocks in use.
    #[inline]
    fn live(&self) -> usize {
        self.live.load(Relaxed) & !OWNERS
    }

    /// Takes a part out of the count, and frees everything if it was the last.
    ///
    /// # Safety
    /// `part` was counted for the caller, who does not look at the pool again.
    #[inline]
    unsafe fn release(this: NonNull<Blocks>, part: usize) {
        // SAFETY: the caller's part keeps it until now; whoever takes out the last has it alone.
        unsafe {
            if this.as_ref().live.fetch_sub(part, AcqRel) == part {
                drop(Box::from_raw(this.as_ptr()));
            }
        }
    }

    #[inline]
    fn add_live(&self, wanted: usize, size: usize) -> Result<(), OutOfMemory> {
        let limit = self.limit.load(Relaxed);
        let live = if limit == usize::MAX {
            (self.live.fetch_add(size, Relaxed) & !OWNERS) + size
        } else {
            let fits = |live: usize| live.checked_add(size).filter(|&sum| sum & !OWNERS <= limit);
            match self.live.fetch_update(Relaxed, Relaxed, fits) {
                Ok(before) => (before & !OWNERS) + size,
                Err(live) => {
                    return Err(OutOfMemory { wanted, live: live & !OWNERS, limit: Some(limit) });
                }
            }
        };
        if live > self.peak.load(Relaxed) {
            self.peak.fetch_max(live, Relaxed);
        }
        Ok(())
    }

    /// The shard for `size` seen from this thread.
    #[inline]
    fn shard(&self, size: usize) -> &Shard {
        if size <= SHARDED { &self.shards[home()] } else { &self.shared }
    }

    #[inline]
    fn reuse(&self, class: usize, size: usize) -> Option<NonNull<u8>> {
        {
            let mut lists = self.shard(size).lock();
            lists.requests += 1;
            if let Some(block) = lists.pop(class) {
                lists.hits += 1;
                return Some(block);
            }
        }
        if size > SHARDED || self.held.load(Relaxed) <= self.live() {
            return None; // nothing is cached beyond what is in use
        }
        // A thread that only allocates what others free: look in their shards, without waiting.
        for shard in &self.shards {
            let Some(mut lists) = shard.try_lock() else { continue };
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

    /// Takes a block back.
    ///
    /// # Safety
    /// It was handed out by this pool and is not used again, nor the pool on its account.
    #[inline]
    unsafe fn give(this: NonNull<Blocks>, block: NonNull<u8>, class: usize) {
        let size = class_size(class);
        // SAFETY: the block's part in `live` keeps the pool until it is released.
        unsafe {
            let pool = this.as_ref();
            let cap = pool.cache_cap.load(Relaxed);
            if pool.held.load(Relaxed) + size <= cap.saturating_add(pool.live()) {
                pool.shard(size).lock().push(class, block);
                return Blocks::release(this, size);
            }
            pool.live.fetch_add(OWNER, Relaxed); // in place of the block's part, which ends first
            pool.live.fetch_sub(size, Relaxed);
            if size > cap {
                pool.to_os(block, size);
            } else {
                pool.shard(size).lock().push(class, block);
                pool.trim(cap);
            }
            Blocks::release(this, OWNER);
        }
    }

    /// Gives cached blocks back to the OS, largest first, until at most `keep` bytes are cached.
    pub(crate) fn trim(&self, keep: usize) {
        let cached = || self.held.load(Relaxed).saturating_sub(self.live());
        if self.trimming.swap(true, Acquire) {
            return;
        }
        'shards: for shard in std::iter::once(&self.shared).chain(&self.shards) {
            let mut lists = shard.lock();
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
            let free = std::mem::take(&mut shard.lock().free);
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
            let lists = shard.lock();
            requests += lists.requests;
            hits += lists.hits;
        }
        let live_bytes = self.live();
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
#[inline]
fn class_size(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * 64;
    }
    let (octave, q) = ((class - 4) / 4 + 8, (class - 4) % 4 + 1);
    (1 << octave) + q * (1 << (octave - 2))
}

impl Drop for Blocks {
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
    /// Kept by this block's part in the count of live bytes.
    pool: NonNull<Blocks>,
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
        // SAFETY: the block is the pool's, and this is the end of it.
        unsafe { Blocks::give(self.pool, self.block, self.class as usize) }
    }
}
