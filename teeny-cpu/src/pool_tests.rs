//! The pool: classes, reuse, limits, statistics, and a race of eight threads.

use crate::pool::*;
use std::sync::{Arc, Barrier, mpsc};

const MIB: usize = 1 << 20;

#[test]
fn blocks_are_aligned_large_enough_and_waste_at_most_a_quarter() {
    let pool = Pool::new(64 * MIB, None, false);
    for bytes in
        (0..5000).chain([MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 1, 5 * MIB - 3, 9 * MIB])
    {
        let before = pool.stats().live_bytes;
        let buffer = pool.alloc(bytes, Use::Storage).unwrap();
        let size = pool.stats().live_bytes - before;
        assert_eq!((buffer.ptr() as usize % 64, buffer.len()), (0, bytes));
        assert!(size >= bytes && size <= (bytes + bytes / 4).max(bytes + 64), "{bytes} in {size}");
        // SAFETY: the buffer has `bytes` bytes.
        unsafe { std::ptr::write_bytes(buffer.ptr(), 0xab, bytes) };
    }
}

#[test]
fn statistics_are_exact() {
    let pool = Pool::new(64 * MIB, None, false);
    let a = pool.alloc(1000, Use::Storage).unwrap(); // 1024
    let b = pool.alloc(3 * MIB, Use::Storage).unwrap();
    drop(a);
    let c = pool.alloc(1020, Use::Storage).unwrap(); // the block of a
    let stats = pool.stats();
    assert_eq!((stats.requests, stats.hits, stats.os_allocations), (3, 1, 2));
    assert_eq!(
        (stats.live_bytes, stats.peak_live_bytes, stats.cached_bytes),
        (3 * MIB + 1024, 3 * MIB + 1024, 0)
    );
    drop((b, c));
    assert_eq!((pool.stats().live_bytes, pool.stats().cached_bytes), (0, 3 * MIB + 1024));
    pool.clear();
    assert_eq!((pool.stats().cached_bytes, pool.stats().os_frees), (0, 2));
}

#[test]
fn a_limit_is_respected_and_leaves_the_pool_usable() {
    let pool = Pool::new(64 * MIB, Some(4 * MIB), false);
    let a = pool.alloc(3 * MIB, Use::Storage).unwrap();
    let error = pool.alloc(2 * MIB, Use::Storage).err().unwrap();
    assert_eq!(error, OutOfMemory { wanted: 2 * MIB, live: 3 * MIB, limit: Some(4 * MIB) });
    assert_eq!(pool.stats().peak_live_bytes, 3 * MIB);
    drop(a);
    assert!(pool.alloc(4 * MIB, Use::Storage).is_ok());
    pool.set_limit(None);
    assert!(
        pool.alloc(usize::MAX / 2, Use::Storage).is_err(),
        "more than an address space is an error, not an abort"
    );
    assert!(
        pool.alloc(1 << 46, Use::Storage).is_err(),
        "more than the machine has is an error, not an abort"
    );
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn the_cache_stays_under_its_cap() {
    let pool = Pool::new(8 * MIB, None, false);
    let all: Vec<_> =
        (0..40).map(|i| pool.alloc(MIB / 2 + i * 40_000, Use::Storage).unwrap()).collect();
    drop(all);
    assert!(pool.stats().cached_bytes <= 8 * MIB && pool.stats().cached_bytes > 4 * MIB);
}

#[test]
fn eight_threads_allocate_here_and_free_there() {
    let pool = Arc::new(Pool::new(16 * MIB, None, false));
    let barrier = Arc::new(Barrier::new(8));
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..8).map(|_| mpsc::channel::<(Buffer, u8)>()).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(me, inbox)| {
            let (pool, barrier, next) =
                (pool.clone(), barrier.clone(), senders[(me + 1) % 8].clone());
            std::thread::spawn(move || {
                barrier.wait();
                for i in 0..2000usize {
                    let bytes = 64 + (i * 7919 + me * 104_729) % 40_000;
                    let buffer = pool.alloc(bytes, Use::Storage).unwrap();
                    // SAFETY: the buffer has `bytes` bytes and no other owner.
                    unsafe { std::ptr::write_bytes(buffer.ptr(), me as u8, bytes) };
                    next.send((buffer, me as u8)).unwrap();
                    if let Ok((buffer, mark)) = inbox.try_recv() {
                        // SAFETY: written in full before it was sent.
                        let bytes =
                            unsafe { std::slice::from_raw_parts(buffer.ptr(), buffer.len()) };
                        assert!(bytes.iter().all(|&b| b == mark), "two owners wrote one block");
                    }
                }
                barrier.wait(); // keeps every inbox open until the last send
            })
        })
        .collect();
    drop(senders);
    threads.into_iter().for_each(|t| t.join().unwrap());
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.requests), (0, 16_000));
    assert_eq!(stats.hits + stats.os_allocations, stats.requests);
    pool.clear();
    assert_eq!(pool.stats().os_allocations, pool.stats().os_frees);
}

#[test]
fn a_buffer_outlives_the_owner_of_its_pool() {
    let pool = Pool::new(8 * MIB, None, false);
    let (small, large) =
        (pool.alloc(100, Use::Storage).unwrap(), pool.alloc(3 * MIB, Use::Storage).unwrap());
    drop(pool.alloc(2 * MIB, Use::Storage).unwrap());
    drop(pool);
    // SAFETY: the buffers have these bytes and no other owner.
    unsafe {
        small.ptr().write_bytes(1, 100);
        large.ptr().write_bytes(2, 3 * MIB);
    }
    drop(small);
    let last = std::thread::spawn(move || drop(large));
    last.join().unwrap();
}

#[test]
#[cfg(unix)]
fn a_child_of_a_fork_allocates_whatever_was_locked() {
    let pool = Arc::new(Pool::new(64 * MIB, None, false));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Large blocks come from the list that all threads share, so that its lock is mostly held.
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (pool, stop) = (pool.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(pool.alloc(2 * MIB, Use::Storage).unwrap());
                }
            })
        })
        .collect();
    for i in 0..300 {
        // SAFETY: the child calls nothing but the pool, `alarm` and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(30) };
            let works = (0..10).all(|_| {
                pool.alloc(2 * MIB, Use::Storage).is_ok() && pool.alloc(100, Use::Scratch).is_ok()
            });
            pool.trim(0);
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(i32::from(!works)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(
            status, 0,
            "child {i} ended otherwise than by itself: it hung, or had no memory"
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
