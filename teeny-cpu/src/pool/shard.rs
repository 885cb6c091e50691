//! Lists of free blocks, and the lock around them. A lock has the number of the process that holds
//! it (`fork`): a child takes over a lock that a thread of its parent held, and begins with empty
//! lists.

use super::classes::CLASSES;
use crate::fork;
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// How many shards there are.
pub(super) const SHARDS: usize = 16;

/// The index of this thread's shard.
#[inline]
pub(super) fn shard_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static INDEX: Cell<usize> = const { Cell::new(usize::MAX) });
    // `with` is not inlined; `INDEX` has no destructor after which this would fail.
    let index = INDEX.try_with(|index| {
        if index.get() == usize::MAX {
            index.set(NEXT.fetch_add(1, Relaxed) % SHARDS);
        }
        index.get()
    });
    index.unwrap_or(0)
}

/// Free blocks, and counts of requests.
#[derive(Default)]
pub(super) struct Lists {
    /// Free blocks by class.
    pub free: Vec<Vec<NonNull<u8>>>,
    pub requests: usize,
    pub scratch: usize,
    pub hits: usize,
}

// SAFETY: the pointers are owned blocks that nothing else refers to.
unsafe impl Send for Lists {}

impl Lists {
    #[inline]
    pub(super) fn pop(&mut self, class: usize) -> Option<NonNull<u8>> {
        self.free.get_mut(class)?.pop()
    }

    /// Keeps a block. False if growing the list fails.
    #[inline]
    pub(super) fn push(&mut self, class: usize, block: NonNull<u8>) -> bool {
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

/// Lists on their own cache line, behind a lock that is held for a few instructions.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Shard {
    /// The number of the process that holds the lock, or 0.
    locked: AtomicU32,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are only reached through `Locked`, of which there is one at a time.
unsafe impl Sync for Shard {}

/// The lists of a shard, until dropped.
pub(super) struct Locked<'a>(&'a Shard);

impl Shard {
    #[inline]
    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        self.locked
            .compare_exchange(0, fork::process(), Acquire, Relaxed)
            .ok()
            .map(|_| Locked(self))
    }

    #[inline]
    pub(super) fn lock(&self) -> Locked<'_> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> Locked<'_> {
        let mut attempts = 0u32;
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
                // process. It may have begun to change the lists, which are therefore not read:
                // their blocks are lost.
                unsafe { self.lists.get().write(Lists::default()) };
                return Locked(self);
            }
            attempts += 1;
            if attempts.is_multiple_of(100) {
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
