//! The time that more threads would take: a model of fork-join, fed with the chunks of a real run.
//!
//! Everything runs on the calling thread. Each chunk is timed, and the chunks of a job are then
//! given to threads as [`super::crew`] gives them: claims, which are made one after the other, from
//! the front by the caller and from the back by workers. The time that a job would save is
//! subtracted from the time of the whole run. The model knows no shared caches and no shared
//! bandwidth of memory, so it holds for work that is bound by computation; loops that are bound by
//! memory scale until the memory of the machine is busy.

use super::claims::Unclaimed;
use super::crew;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// Nanoseconds from the start of a job until a worker that spins has seen it.
const START: u64 = 300;
/// Nanoseconds of a claim among several threads, in which the cache line of the job goes from one
/// processor to another.
const CLAIM: u64 = 60;
/// Nanoseconds until the caller sees that the last chunk is done.
const END: u64 = 100;

/// The times of a run that was simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The time on one thread.
    pub serial: Duration,
    /// The part of it that is inside jobs.
    pub shared: Duration,
    /// The time that the threads would take.
    pub predicted: Duration,
    /// Jobs of two or more chunks.
    pub jobs: usize,
}

thread_local! {
    static THREADS: Cell<usize> = const { Cell::new(0) };
    /// Nanoseconds inside jobs, and the predicted nanoseconds.
    static TOTALS: RefCell<(u64, u64, usize)> = const { RefCell::new((0, 0, 0)) };
}

/// The simulated number of threads, if this thread simulates.
pub(super) fn threads() -> Option<usize> {
    Some(THREADS.get()).filter(|&threads| threads > 0)
}

/// Runs the chunks of a job one after the other, if this thread simulates.
pub(super) fn run(chunks: usize, f: &(dyn Fn(usize) + Sync)) -> bool {
    let Some(threads) = threads().filter(|_| chunks > 1 && !crew::is_inside()) else {
        return false;
    };
    let inside = crew::enter();
    let mut times = Vec::with_capacity(chunks);
    let mut last = Instant::now();
    let start = last;
    for chunk in 0..chunks {
        f(chunk);
        let now = Instant::now();
        times.push((now - last).as_nanos() as u64);
        last = now;
    }
    drop(inside);
    let predicted = makespan(&times, threads);
    TOTALS.with_borrow_mut(|(shared, fast, jobs)| {
        *shared += start.elapsed().as_nanos() as u64;
        *fast += predicted;
        *jobs += 1;
    });
    true
}

/// Runs `f` on this thread as if jobs had `threads` threads, and returns the predicted time.
///
/// # Panics
/// If `threads` is 0.
pub fn simulate<T>(threads: usize, f: impl FnOnce() -> T) -> (T, Report) {
    assert!(threads > 0, "simulate: at least one thread");
    struct Simulating(usize);
    impl Drop for Simulating {
        fn drop(&mut self) {
            THREADS.set(self.0);
        }
    }
    let simulating = Simulating(THREADS.replace(threads));
    TOTALS.set((0, 0, 0));
    let start = Instant::now();
    let result = f();
    let serial = start.elapsed();
    drop(simulating);
    let (shared, fast, jobs) = TOTALS.take();
    let [shared, fast] = [shared, fast].map(Duration::from_nanos);
    let predicted = serial.saturating_sub(shared) + fast;
    (result, Report { serial, shared, predicted, jobs })
}

/// The time, in nanoseconds, until `threads` threads have run chunks that take `times`.
fn makespan(times: &[u64], threads: usize) -> u64 {
    let threads = threads.min(times.len());
    if threads < 2 {
        return times.iter().sum();
    }
    // The times at which threads are free; the caller is number 0.
    let mut free: BinaryHeap<Reverse<(u64, usize)>> =
        (0..threads).map(|t| Reverse((if t == 0 { 0 } else { START }, t))).collect();
    let (mut left, mut line, mut end) = (Unclaimed::all(0, times.len()), 0, 0);
    while let Some(Reverse((at, thread))) = free.pop() {
        let Some((next, claimed)) = left.claim(thread == 0, threads) else { break };
        left = next;
        line = at.max(line) + CLAIM;
        let done = line + times[claimed].iter().sum::<u64>();
        end = end.max(done);
        free.push(Reverse((done, thread)));
    }
    end + END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_equal_chunks_and_wait_for_the_longest() {
        let fixed = START + 4 * CLAIM + END;
        let ms = 1_000_000;
        for (times, threads, want) in [
            (vec![ms; 64], 1, 64 * ms),
            (vec![ms; 64], 2, 32 * ms),
            (vec![ms; 64], 16, 4 * ms),
            (vec![ms; 64], 128, ms),
            (vec![ms; 65], 16, 5 * ms),
            (vec![ms, 10 * ms, ms], 8, 10 * ms),
        ] {
            let got = makespan(&times, threads);
            assert!((want..want + fixed + 128 * CLAIM).contains(&got), "{threads}: {got}");
        }
        // Claims one after the other take longer than short chunks.
        assert!(makespan(&[1; 1024], 128) > 128 * CLAIM);
    }

    #[test]
    fn a_simulated_run_does_the_work_once_and_is_faster_with_threads() {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let sleep = |_| {
            std::thread::sleep(Duration::from_millis(2));
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let ((), report) = simulate(4, || crate::threads::for_each_chunk(8, sleep));
        assert_eq!((count.into_inner(), report.jobs), (8, 1));
        assert!(report.shared >= Duration::from_millis(16) && report.serial >= report.shared);
        assert!(report.predicted < report.serial / 2, "{report:?}");
        assert_eq!(threads(), None);
    }
}
