//! Memory for storages and for tasks: blocks by size class, kept for reuse, so that a training step
//! asks the OS for nothing.
//!
//! ```text
//!   alloc ── own shard (LIFO, <= 1 MiB) ── shared lists (> 1 MiB) ── other shards ── OS: malloc, or mmap from 2 MiB on
//!   free  ── own shard / shared list, or back to the OS when the cache is at its cap
//! ```
//! A shard belongs to the threads whose number falls on it and is held for nanoseconds, so nothing
//! leaks when a thread ends and any thread may free. Every block is zeroed when it comes from the
//! OS: pooled memory is stale, never uninitialised. An allocation and its release cost four locked
//! instructions in all, which is most of what they take: a shard's lock is opened by a plain store,
//! and the count of live bytes is also what keeps the pool in existence.
//!
//! A limit bounds all that the pool has from the OS, in use or cached: cached blocks make room for
//! new ones, and only what is in use makes a request fail. Locks hold the number of their process
//! (`fork`): a lock that a thread of the parent held is taken over in the child, whose lists begin
//! empty. `guard` surrounds blocks with bytes that nobody may change. Knows nothing of tensors.
//! Next: `os_memory` for where blocks come from.

use crate::guard::{Guard, MARGIN};
use crate::{fork, os_memory};
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Blocks up to this size live in the shards; larger ones are rare and worth sharing.
const SHARDED: usize = 1 << 20;
const SHARDS: usize = 16;
/// The largest class index: 2^48 bytes.
const CLASSES: usize = 4 * (48 - 8) + 4;

/// The size class of a request and the bytes a block of it has: multiples of 64 up to 256, then
/// four per octave.
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

/// Counters of a memory pool. Exact whenever no other thread is inside the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks asked for: for storages, and for tasks to work in.
    pub requests: usize,
    /// Of these requests, those for tasks to work in.
    pub scratch_requests: usize,
    /// Requests answered from the cache.
    pub hits: usize,
    /// Blocks taken from the operating system.
    pub os_allocations: usize,
    /// Blocks returned to the operating system.
    pub os_frees: usize,
    /// Bytes in use, in whole blocks: storages, and while an operation runs what its tasks work in.
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

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A storage.
    Storage,
    /// A task, until it ends.
    Scratch,
}

#[derive(Default)]
struct Lists {
    /// Free blocks by class.
    free: Vec<Vec<NonNull<u8>>>,
    requests: usize,
    scratch: usize,
    hits: usize,
}

// SAFETY: the pointers are owned blocks that nothing else refers to.
unsafe impl Send for Lists {}

impl Lists {
    #[inline]
    fn pop(&mut self, class: usize) -> Option<NonNull<u8>> {
        self.free.get_mut(class)?.pop()
    }

    /// Keeps a block. False if there is no memory to note it in.
    #[inline]
    fn push(&mut self, class: usize, block: NonNull<u8>) -> bool {
        let Some(list) = self.free.get_mut(class) else { return self.push_first(class, block) };
        if list.len() == list.capacity() && list.try_reserve(1).is_err() {
            return false;
        }
        list.push(block);
        true
    }

    #[cold]
    fn push_first(&mut self, class: usize, block: NonNull<u8>) -> bool {
        if self.free.try_reserve_exact(CLASSES - self.free.len()).is_err() {
            return false;
        }
        self.free.resize_with(class + 1, Vec::new);
        self.push(class, block)
    }
}

/// A shard on its own cache line, behind a lock that is held for a few instructions.
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    /// The number of the process that holds the lock, or 0.
    locked: AtomicU32,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are only reached through `Locked`, of which there is one at a time.
unsafe impl Sync for Shard {}

/// The lists of a shard, until dropped.
struct Locked<'a>(&'a Shard);

impl Shard {
    #[inline]
    fn try_lock(&self) -> Option<Locked<'_>> {
        self.locked
            .compare_exchange(0, fork::process(), Acquire, Relaxed)
            .ok()
            .map(|_| Locked(self))
    }

    #[inline]
    fn lock(&self) -> Locked<'_> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> Locked<'_> {
        let mut looks = 0u32;
        loop {
            if let Some(locked) = self.try_lock() {
                return locked;
            }
            let holder = self.locked.load(Relaxed);
            if holder != 0
                && holder != fork::process()
                && self.locked.compare_exchange(holder, fork::process(), Acquire, Relaxed).is_ok()
            {
                // SAFETY: the lock is held, and the thread that held it does not exist in this
                // process. What it had begun to change is not looked at: the blocks of these lists
                // are lost.
                unsafe { self.lists.get().write(Lists::default()) };
                return Locked(self);
            }
            looks += 1;
            if looks.is_multiple_of(100) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
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
        self.0.locked.store(0, Release);
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
    /// Bytes of the blocks in use, and [`OWNER`]. Whoever brings it to zero is the last and frees
    /// all this.
    live: AtomicUsize,
    peak: AtomicUsize,
    /// Bytes obtained from the OS and not given back; the cache holds what of it is not live.
    held: AtomicUsize,
    os_allocations: AtomicUsize,
    os_frees: AtomicUsize,
    cache_cap: AtomicUsize,
    limit: AtomicUsize,
    /// The number of the process that trims, or 0.
    trimming: AtomicU32,
    guard: Option<Box<Guard>>,
    /// The request that is to fail, counted from the next one; 0 if none is.
    #[cfg(test)]
    fault: AtomicUsize,
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

    /// Lets request number `k` from now on fail, and no other; none if `k` is 0.
    #[cfg(test)]
    pub(crate) fn set_fault(&self, k: usize) {
        self.fault.store(k, SeqCst);
    }

    /// Whether the fault is still to come.
    #[cfg(test)]
    pub(crate) fn has_fault(&self) -> bool {
        self.fault.load(SeqCst) > 0
    }

    /// Counts a request. True if it is the one to fail.
    #[cfg(test)]
    pub(crate) fn fails(&self) -> bool {
        self.fault.fetch_update(SeqCst, SeqCst, |k| k.checked_sub(1)) == Ok(1)
    }

    /// A request that the OS, or the limit on what it has given, did not allow.
    #[cold]
    fn refused(&self, wanted: usize, size: usize) -> OutOfMemory {
        self.live.fetch_sub(size, Relaxed);
        OutOfMemory { wanted, live: self.live(), limit: None }
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
    fn reuse(&self, class: usize, size: usize, to: Use) -> Option<NonNull<u8>> {
        {
            let mut lists = self.shard(size).lock();
            lists.requests += 1;
            lists.scratch += usize::from(to == Use::Scratch);
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
        self.make_room(size)?;
        let block = os_memory::alloc(size).or_else(|| {
            self.clear();
            os_memory::alloc(size)
        });
        match block {
            Some(_) => self.os_allocations.fetch_add(1, Relaxed),
            None => self.held.fetch_sub(size, Relaxed),
        };
        block
    }

    /// Counts `size` bytes as held, for which cached blocks go back to the OS if the limit asks for
    /// it. None if that is not enough, which can only be while other threads hold blocks that they
    /// have not counted yet, or count no longer.
    fn make_room(&self, size: usize) -> Option<()> {
        for _ in 0..1000 {
            let limit = self.limit.load(Relaxed);
            let fits = |held: usize| held.checked_add(size).filter(|&sum| sum <= limit);
            if self.held.fetch_update(Relaxed, Relaxed, fits).is_ok() {
                return Some(());
            }
            self.evict(|| self.held.load(Relaxed).saturating_add(size) <= limit);
            std::thread::yield_now();
        }
        None
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
            let block = match &pool.guard {
                Some(guard) => guard.open(block),
                None => block,
            };
            let limit = pool.limit.load(Relaxed);
            let held = pool.held.load(Relaxed);
            if held + size <= cap.saturating_add(pool.live())
                && held <= limit
                && pool.shard(size).lock().push(class, block)
            {
                return Blocks::release(this, size);
            }
            pool.live.fetch_add(OWNER, Relaxed); // in place of the block's part, which ends first
            pool.live.fetch_sub(size, Relaxed);
            if size > cap || held > limit || !pool.shard(size).lock().push(class, block) {
                pool.to_os(block, size);
            } else {
                pool.trim(cap);
            }
            Blocks::release(this, OWNER);
        }
    }

    /// Returns cached blocks to the OS, largest first, until at most `keep` bytes are cached.
    pub(crate) fn trim(&self, keep: usize) {
        let holder = self.trimming.swap(fork::process(), Acquire);
        if holder != fork::process() {
            self.evict(|| self.held.load(Relaxed).saturating_sub(self.live()) <= keep);
            self.trimming.store(0, Release);
        }
    }

    /// Returns cached blocks to the OS, largest first in each list, until `enough`.
    fn evict(&self, enough: impl Fn() -> bool) {
        for shard in std::iter::once(&self.shared).chain(&self.shards) {
            let mut lists = shard.lock();
            for class in (0..lists.free.len()).rev() {
                loop {
                    if enough() {
                        return;
                    }
                    let Some(block) = lists.pop(class) else { break };
                    self.to_os(block, class_size(class));
                }
            }
        }
    }

    /// Returns every cached block to the OS.
    pub(crate) fn clear(&self) {
        self.evict(|| false);
    }

    /// The counters.
    pub(crate) fn stats(&self) -> PoolStats {
        let (mut requests, mut scratch_requests, mut hits) = (0, 0, 0);
        for shard in std::iter::once(&self.shared).chain(&self.shards) {
            let lists = shard.lock();
            requests += lists.requests;
            scratch_requests += lists.scratch;
            hits += lists.hits;
        }
        let live_bytes = self.live();
        PoolStats {
            requests,
            scratch_requests,
            hits,
            os_allocations: self.os_allocations.load(Relaxed),
            os_frees: self.os_frees.load(Relaxed),
            live_bytes,
            peak_live_bytes: self.peak.load(Relaxed),
            cached_bytes: self.held.load(Relaxed).saturating_sub(live_bytes),
        }
    }

    /// Changes the limit. What is cached beyond it goes back to the OS.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        let limit = limit.unwrap_or(usize::MAX);
        self.limit.store(limit, Relaxed);
        self.evict(|| self.held.load(Relaxed) <= limit);
    }

    /// The limit on bytes in use or cached.
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

/// Bytes from a pool, aligned to 64, returned on drop.
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
