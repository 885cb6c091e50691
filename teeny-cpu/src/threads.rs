//! Fork-join over numbered chunks, with workers borrowed from rayon.
//!
//! A rayon fork-join costs 5 to 12 us, which is what a whole small op costs. Here a call publishes a job in one place and
//! starts on it itself; a *crew* of rayon threads, recruited by `rayon::spawn` from the pool that the caller is in, claims
//! chunks too and lingers for a fraction of a millisecond after the last job, so that a burst of ops pays for recruiting once and then
//! 0.2 to 0.5 us per call. Nobody waits for a worker that has not claimed a chunk. `RAYON_NUM_THREADS` and
//! `ThreadPool::install` hold: a job admits one helper fewer than the caller's pool has threads. A call inside a chunk, or
//! while another thread's job is published, runs inline. Chunks are the caller's choice, so results can not depend on threads.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

/// How many times an idle worker looks for a job before it goes back to rayon, and an owner for the last chunks before it yields: about 250 us of `pause`,
/// longer than what lies between the products of a training step. A worker that sleeps has to be woken, perhaps on the processor of its caller.
const LINGER: u32 = 12_000;

/// How many threads a job started here may use.
pub(crate) fn threads() -> usize {
    rayon::current_num_threads()
}

/// The one published job and the crew's book-keeping.
struct Crew {
    /// Held by the thread whose job is published.
    busy: AtomicBool,
    /// generation << 32 | chunks not yet claimed. A claim is a decrement of exactly the value seen, so a worker that slept
    /// through the end of a job can not claim from the next one by mistake.
    state: AtomicU64,
    /// Chunks finished.
    done: AtomicUsize,
    /// Helpers that the job still admits.
    seats: AtomicUsize,
    /// Workers recruited and not yet gone.
    members: AtomicUsize,
    /// The job: where the owner keeps its reference to the closure. Valid while `state` has chunks or `done` is short of them.
    job: AtomicPtr<()>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

static CREW: Crew = Crew {
    busy: AtomicBool::new(false),
    state: AtomicU64::new(0),
    done: AtomicUsize::new(0),
    seats: AtomicUsize::new(0),
    members: AtomicUsize::new(0),
    job: AtomicPtr::new(std::ptr::null_mut()),
    panic: Mutex::new(None),
};

thread_local! {
    /// Whether this thread is inside a chunk.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `f(0)`, …, `f(chunks - 1)`, each once, on up to `threads()` threads, and returns when all are done.
///
/// If chunks panic, one of the panics is raised here after the others have finished.
///
/// The closure comes as a trait object: this function is compiled once, not once for each of its hundreds of callers.
pub(crate) fn for_each_chunk(chunks: usize, f: impl Fn(usize) + Sync) {
    each_chunk(chunks, &f);
}

/// Calls `f` with ranges that together are `0..n`, each of `least` at least, or of all there are.
///
/// There are no more than sixteen ranges for each thread: neighbours fall to different threads, so that memory which is asked for beyond the end of a range is
/// read twice. The ranges depend on the number of threads: no result may depend on them.
pub(crate) fn for_each_range(n: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
    let len = (n / (16 * threads())).max(least).max(1);
    each_chunk(n.div_ceil(len), &|c| f(c * len..((c + 1) * len).min(n)));
}

fn each_chunk(chunks: usize, f: &(dyn Fn(usize) + Sync)) {
    let helpers = if chunks < 2 || INSIDE.get() { 0 } else { threads().min(chunks) - 1 };
    if helpers == 0 || chunks > u32::MAX as usize || CREW.busy.swap(true, Acquire) {
        (0..chunks).for_each(f);
        return;
    }
    CREW.job.store((&raw const f).cast_mut().cast(), Relaxed);
    CREW.done.store(0, Relaxed);
    CREW.seats.store(helpers, Relaxed);
    let generation = (CREW.state.load(Relaxed) >> 32).wrapping_add(1);
    CREW.state.store(generation << 32 | chunks as u64, Release);
    recruit(helpers);

    INSIDE.set(true);
    work(generation);
    INSIDE.set(false);
    // What remains has been claimed and is being run by a worker.
    let mut looks = 0u32;
    while CREW.done.load(Acquire) < chunks {
        looks += 1;
        if looks < LINGER { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    let panic = CREW.panic.lock().ok().and_then(|mut panic| panic.take());
    CREW.busy.store(false, Release);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// Brings the crew up to `wanted` members, from the rayon pool that the caller belongs to.
fn recruit(wanted: usize) {
    let mut members = CREW.members.load(Relaxed);
    while members < wanted {
        match CREW.members.compare_exchange_weak(members, members + 1, Relaxed, Relaxed) {
            Ok(_) => {
                rayon::spawn(linger);
                members += 1;
            }
            Err(now) => members = now,
        }
    }
}

/// A worker's life: look for jobs, take a seat, work, and leave when none has come for a while.
fn linger() {
    let mut idle = 0;
    let mut served = u64::MAX;
    while idle < LINGER {
        let state = CREW.state.load(Acquire);
        let generation = state >> 32;
        let open = state as u32 > 0 && generation != served;
        if open && CREW.seats.fetch_update(Relaxed, Relaxed, |seats| seats.checked_sub(1)).is_ok() {
            served = generation;
            INSIDE.set(true);
            work(generation);
            INSIDE.set(false);
            idle = 0;
        } else {
            idle += 1;
            std::hint::spin_loop();
        }
    }
    CREW.members.fetch_sub(1, Relaxed);
}

/// Claims and runs chunks of one generation until none is left. Chunks are numbered by what remained at the claim.
fn work(generation: u64) {
    loop {
        let state = CREW.state.load(Acquire);
        let left = state as u32;
        if state >> 32 != generation || left == 0 {
            return;
        }
        if CREW.state.compare_exchange_weak(state, state - 1, AcqRel, Relaxed).is_err() {
            continue;
        }
        // The claim keeps the job alive: its owner waits until `done` counts this chunk.
        let job = CREW.job.load(Relaxed).cast_const().cast::<&(dyn Fn(usize) + Sync)>();
        let run = AssertUnwindSafe(|| {
            // SAFETY: `job` was stored from such a reference before the state that we acquired, and its owner is still waiting.
            unsafe { (*job)(left as usize - 1) }
        });
        if let Err(panic) = catch_unwind(run)
            && let Ok(mut slot) = CREW.panic.lock()
        {
            slot.get_or_insert(panic);
        }
        CREW.done.fetch_add(1, Release);
    }
}
