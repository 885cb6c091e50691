//! Fork-join: every chunk once, nesting, panics, many callers, and the caller's rayon pool.

use crate::threads::*;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Relaxed);
}

#[test]
fn a45_every_chunk_runs_once() {
    for chunks in [0, 1, 2, 3, 7, 64, 1000] {
        let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..50 {
            for_each_chunk(chunks, |i| {
                counts[i].fetch_add(1, Relaxed);
            });
        }
        assert!(counts.iter().all(|c| c.load(Relaxed) == 50));
    }
}

#[test]
fn a45_nested_and_concurrent_calls_finish() {
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    for_each_chunk(4, |_| for_each_chunk(3, |_| add(&total)));
                }
            });
        }
    });
    assert_eq!(total.load(Relaxed), 4 * 200 * 12);
}

#[test]
fn a45_a_panic_reaches_the_caller_and_leaves_the_crew_usable() {
    for _ in 0..20 {
        let caught = std::panic::catch_unwind(|| for_each_chunk(16, |i| assert!(i != 5, "chunk five")));
        let text = *caught.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(text, "chunk five");
    }
    let count = AtomicUsize::new(0);
    for_each_chunk(16, |_| add(&count));
    assert_eq!(count.load(Relaxed), 16);
}

#[test]
fn a45_a_pool_of_n_threads_is_never_exceeded() {
    for n in 1..=4 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
        for _ in 0..20 {
            let seen = Mutex::new(HashSet::new());
            pool.install(|| {
                assert_eq!(threads(), n);
                for_each_chunk(64, |_| {
                    std::thread::sleep(std::time::Duration::from_micros(5));
                    seen.lock().unwrap().insert(std::thread::current().id());
                });
            });
            assert!(seen.lock().unwrap().len() <= n);
        }
    }
}

#[test]
fn a45_callers_inside_a_parallel_iterator_do_not_deadlock() {
    use rayon::prelude::*;
    let count = AtomicUsize::new(0);
    (0..64).into_par_iter().for_each(|_| for_each_chunk(8, |_| add(&count)));
    assert_eq!(count.load(Relaxed), 512);
}
