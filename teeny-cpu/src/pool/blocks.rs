//! The blocks and counters of a pool: where a request is answered from, and where a block goes when
//! it is dropped.

use super::classes::class_size;
use super::shard::{SHARDS, Shard, shard_index};
use super::{OutOfMemory, PoolStats, Use};
use crate::guard::Guard;
use crate::{fork, os_memory};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// Blocks up to this size are in the shards; larger ones are rare and worth sharing.
const MAX_SHARDED: usize = 1 << 20;

/// The part of a `Pool` in the count of live bytes; sizes of blocks are multiples of 64.
pub(super) const OWNER: usize = 1;
/// The bits of the count that are not bytes.
const OWNERS: usize = 63;

/// The blocks and counters of a pool. They exist as long as there is a `Pool` or a `Buffer` of it.
pub(crate) struct Blocks {
    pub(super) shards: [Shard; SHARDS],
    pub(super) shared: Shard,
    /// Bytes of the blocks in use, and [`OWNER`]. The thread that reduces it to zero is the last
    /// one and frees all of this.
    pub(super) live: AtomicUsize,
    pub(super) peak: AtomicUsize,
    /// Bytes obtained from the OS and not returned; those that are not live are cached.
    pub(super) held: AtomicUsize,
    pub(super) os_allocations: AtomicUsize,
    pub(super) os_frees: AtomicUsize,
    pub(super) cache_cap: AtomicUsize,
    pub(super) limit: AtomicUsize,
    /// The number of the process that is trimming, or 0.
    pub(super) trimming: AtomicU32,
    pub(super) guard: Option<Box<Guard>>,
    /// The request that is to fail, counted from the next one; 0 if none is.
    #[cfg(test)]
    pub(super) fault: AtomicUsize,
}

impl Blocks {
    /// Bytes of the blocks in use.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live.load(Relaxed) & !OWNERS
    }

    /// Subtracts a part of the count, and frees everything if it was the last.
    ///
    /// # Safety
    /// `part` was counted for the caller, which does not use the pool afterwards.
    #[inline]
    pub(super) unsafe fn release(this: NonNull<Blocks>, part: usize) {
        // SAFETY: the caller's part keeps it until now; the thread that subtracts the last part is
        // its only user.
        unsafe {
            if this.as_ref().live.fetch_sub(part, AcqRel) == part {
                drop(Box::from_raw(this.as_ptr()));
            }
        }
    }

    /// Makes request number `k` from now on fail, and no other; none if `k` is 0.
    #[cfg(test)]
    pub(crate) fn set_fault(&self, k: usize) {
        self.fault.store(k, SeqCst);
    }

    /// Whether the request that is to fail has not come yet.
    #[cfg(test)]
    pub(crate) fn has_fault(&self) -> bool {
        self.fault.load(SeqCst) > 0
    }

    /// Counts a request. True if it is the one to fail.
    #[cfg(test)]
    pub(crate) fn fails(&self) -> bool {
        self.fault.fetch_update(SeqCst, SeqCst, |k| k.checked_sub(1)) == Ok(1)
    }

    /// The error of a request that the OS, or the limit on memory from it, did not allow.
    #[cold]
    pub(super) fn refused(&self, wanted: usize, size: usize) -> OutOfMemory {
        self.live.fetch_sub(size, Relaxed);
        OutOfMemory { wanted, live: self.live(), limit: None }
    }

    #[inline]
    pub(super) fn add_live(&self, wanted: usize, size: usize) -> Result<(), OutOfMemory> {
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

    /// The shard of this thread for blocks of `size`.
    #[inline]
    fn shard(&self, size: usize) -> &Shard {
        if size <= MAX_SHARDED { &self.shards[shard_index()] } else { &self.shared }
    }

    #[inline]
    pub(super) fn reuse(&self, class: usize, size: usize, to: Use) -> Option<NonNull<u8>> {
        {
            let mut lists = self.shard(size).lock();
            lists.requests += 1;
            lists.scratch += usize::from(to == Use::Scratch);
            if let Some(block) = lists.pop(class) {
                lists.hits += 1;
                return Some(block);
            }
        }
        self.reuse_of_others(class, size)
    }

    /// A cached block of another thread's shard.
    #[inline(never)]
    fn reuse_of_others(&self, class: usize, size: usize) -> Option<NonNull<u8>> {
        if size > MAX_SHARDED || self.held.load(Relaxed) <= self.live() {
            return None; // nothing is cached beyond the blocks in use
        }
        // This thread may only allocate and others only free: try their shards, without waiting.
        for shard in &self.shards {
            let Some(mut lists) = shard.try_lock() else { continue };
            if let Some(block) = lists.pop(class) {
                lists.hits += 1;
                return Some(block);
            }
        }
        None
    }

    pub(super) fn take_from_os(&self, size: usize) -> Option<NonNull<u8>> {
        self.hold(size)?;
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

    /// Counts `size` bytes as held, and returns cached blocks to the OS if the limit requires it.
    /// None if that is not enough, which happens only while other threads hold blocks that they
    /// have not counted yet, or no longer count.
    fn hold(&self, size: usize) -> Option<()> {
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
    /// It came from this pool; neither the block nor, because of it, the pool is used afterwards.
    #[inline]
    pub(super) unsafe fn give_back(this: NonNull<Blocks>, block: NonNull<u8>, class: usize) {
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

    /// Changes the limit. Cached blocks beyond it return to the OS.
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

impl Drop for Blocks {
    fn drop(&mut self) {
        self.clear();
    }
}
