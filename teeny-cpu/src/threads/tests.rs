//! Fork-join: every chunk once, nesting, panics, many callers, and the caller's rayon pool.

use super::crew::{MAX_SPIN, MIN_SPIN, Patience, set_generation};
use super::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::*};

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Relaxed);
}

#[test]
fn every_chunk_runs_once() {
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
fn nested_and_concurrent_calls_finish() {
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
fn a_panic_reaches_the_caller_and_leaves_the_crew_usable() {
    for _ in 0..20 {
        let caught =
            std::panic::catch_unwind(|| for_each_chunk(16, |i| assert!(i != 5, "chunk five")));
        let text = *caught.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(text, "chunk five");
    }
    let count = AtomicUsize::new(0);
    for_each_chunk(16, |_| add(&count));
    assert_eq!(count.load(Relaxed), 16);
}

#[test]
fn a_pool_of_n_threads_is_never_exceeded() {
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
fn callers_inside_a_parallel_iterator_do_not_deadlock() {
    use rayon::prelude::*;
    let count = AtomicUsize::new(0);
    (0..64).into_par_iter().for_each(|_| for_each_chunk(8, |_| add(&count)));
    assert_eq!(count.load(Relaxed), 512);
}

#[test]
fn jobs_beyond_four_thousand_million_run_as_others_do() {
    set_generation(u32::MAX - 10);
    for _ in 0..20 {
        let count = AtomicUsize::new(0);
        for_each_chunk(16, |_| add(&count));
        assert_eq!(count.load(Relaxed), 16);
    }
}

#[test]
fn a_pool_whose_threads_are_all_busy_leaves_others_their_helpers() {
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
    let (blocked, free) = (pool(2), pool(2));
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let begun = std::sync::Arc::new(std::sync::Barrier::new(2));
    blocked.spawn({
        let begun = begun.clone();
        move || {
            begun.wait();
            wait.recv().unwrap_err();
        }
    });
    begun.wait();
    // The other thread of the blocked pool asks for a helper, which cannot begin.
    blocked.install(|| for_each_chunk(64, |_| ()));
    let both = (0..5000).any(|_| {
        let seen = Mutex::new(HashSet::new());
        free.install(|| {
            for_each_chunk(64, |_| {
                std::thread::sleep(std::time::Duration::from_micros(20));
                seen.lock().unwrap().insert(std::thread::current().id());
            });
        });
        seen.into_inner().unwrap().len() == 2
    });
    drop(release);
    assert!(both || std::thread::available_parallelism().unwrap().get() == 1);
}

#[test]
fn jobs_of_two_callers_both_have_helpers() {
    // each of two jobs waits for the other to have begun, so both are published at the same time
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let helped = |_| {
        let begun = std::sync::Barrier::new(2);
        let job = || {
            let seen = Mutex::new(HashSet::new());
            let first = AtomicBool::new(true);
            for_each_chunk(256, |_| {
                if first.swap(false, Relaxed) {
                    begun.wait();
                }
                std::thread::sleep(std::time::Duration::from_micros(50));
                seen.lock().unwrap().insert(std::thread::current().id());
            });
            seen.into_inner().unwrap().len() > 1
        };
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| pool.install(job));
            (pool.install(job), other.join().unwrap())
        });
        a && b
    };
    assert!((0..200).any(helped) || processors() == 1);
}

#[test]
fn an_error_of_a_chunk_reaches_the_caller() {
    for chunks in [1, 2, 100] {
        let ran = AtomicUsize::new(0);
        let result = try_for_each_chunk(chunks, |i| {
            add(&ran);
            if i == chunks / 2 { Err(teeny_core::Error::internal("this one")) } else { Ok(()) }
        });
        assert!(result.unwrap_err().to_string().contains("this one"));
        assert!(ran.load(Relaxed) <= chunks);
        assert!(try_for_each_range(chunks, 1, |_| Ok(())).is_ok());
    }
}

#[test]
fn workers_spin_as_long_as_it_paid() {
    let patience = Patience::new();
    assert_eq!(patience.now(), MAX_SPIN);
    for _ in 0..10 {
        patience.missed(patience.now());
    }
    assert_eq!(patience.now(), MIN_SPIN, "no worker waits for jobs that never come in time");
    patience.came_after(MAX_SPIN + 1);
    assert_eq!(patience.now(), MIN_SPIN, "a job that came too late is no reason to wait");
    patience.came_after(20_000);
    assert_eq!(patience.now(), 80_000);
    patience.missed(80_000);
    patience.missed(80_000);
    assert_eq!(patience.now(), 40_000, "one step for all workers that waited for the same job");
    patience.came_after(200_000);
    assert_eq!(patience.now(), MAX_SPIN);
}
