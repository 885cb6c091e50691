//! The jobs that are published, and the workers that help with them.
//!
//! There are places for [`JOBS`] jobs at a time, so that operations of several threads all get
//! helpers: a worker takes a seat at any job with chunks left, while fewer threads run than there
//! are processors, and keeps it until no chunk of that job is left.
//!
//! The time that an idle worker spins follows the pauses between jobs ([`Patience`]): a worker that
//! waited in vain halves it, and a job that came within it, or soon after it, sets it to four times
//! the pause.

use super::claims::Unclaimed;
use super::processors;
use crate::processor;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// The longest and the shortest time that an idle worker spins, in nanoseconds: longer than the
/// pauses between the products of a training step, and as long as recruiting takes. A worker that
/// sleeps has to be woken, perhaps on the processor of its caller.
pub(super) const MAX_SPIN: u64 = 250_000;
pub(super) const MIN_SPIN: u64 = 10_000;
/// How many times a worker polls for a job between two reads of the clock.
const POLLS: u32 = 64;
/// How many times the owner of a job polls for the end of its last chunks before it yields.
const POLLS_BEFORE_YIELD: u32 = 12_000;
/// Jobs that are published at a time; the others run inline.
const JOBS: usize = 4;

/// The time that an idle worker spins before it leaves, in nanoseconds.
pub(super) struct Patience(AtomicU64);

impl Patience {
    pub(super) const fn new() -> Patience {
        Patience(AtomicU64::new(MAX_SPIN))
    }

    pub(super) fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// A job came after this pause. Spinning that long pays, up to [`MAX_SPIN`].
    pub(super) fn came_after(&self, pause: u64) {
        if pause <= MAX_SPIN {
            self.0.fetch_max((4 * pause).min(MAX_SPIN), Relaxed);
        }
    }

    /// No job came within `waited`. One step for all workers that waited for the same one.
    pub(super) fn missed(&self, waited: u64) {
        _ = self.0.compare_exchange(waited, (waited / 2).max(MIN_SPIN), Relaxed, Relaxed);
    }
}

/// A job that threads share. No other data are on its cache lines.
#[repr(align(128))]
struct Job {
    /// Held by the thread whose job is published here.
    busy: AtomicBool,
    /// The chunks that are not yet claimed, as [`Unclaimed::bits`]. A claim exchanges exactly the
    /// value seen, so a worker that was suspended at the end of a job cannot claim from the next
    /// one.
    unclaimed: AtomicU64,
    /// Chunks finished.
    done: AtomicUsize,
    /// Helpers that the job still admits.
    seats: AtomicUsize,
    /// Threads that work on the job at most.
    threads: AtomicUsize,
    /// The address of the owner's reference to the closure. Valid while `unclaimed` has chunks or
    /// `done` is less than their number.
    closure: AtomicPtr<()>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A value; no other data are on its cache lines.
#[repr(align(128))]
struct Line<T>(T);

/// The state of the workers.
struct Crew {
    /// Workers that have begun and not left yet.
    members: AtomicUsize,
    /// Workers that have a seat. Only they write it.
    working: Line<AtomicUsize>,
    patience: Patience,
    /// The processor of the caller when it published the last job. Only callers write it.
    processor: Line<AtomicU32>,
    /// When the idle time began of the worker that left last, in nanoseconds of `now`; 0 if none
    /// has left.
    idle: AtomicU64,
}

static PLACES: [Job; JOBS] = [const {
    Job {
        busy: AtomicBool::new(false),
        unclaimed: AtomicU64::new(0),
        done: AtomicUsize::new(0),
        seats: AtomicUsize::new(0),
        threads: AtomicUsize::new(1),
        closure: AtomicPtr::new(std::ptr::null_mut()),
        panic: Mutex::new(None),
    }
}; JOBS];

static CREW: Crew = Crew {
    members: AtomicUsize::new(0),
    working: Line(AtomicUsize::new(0)),
    patience: Patience::new(),
    processor: Line(AtomicU32::new(0)),
    idle: AtomicU64::new(0),
};

thread_local! {
    /// Whether this thread is inside a chunk.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Workers that this thread has recruited and that have not begun. A pool whose threads are all
    /// busy begins none; they are counted per caller, so that other callers can still recruit.
    static RECRUITED: Arc<AtomicUsize> = Arc::new(AtomicUsize::new(0));
}

/// Nanoseconds since the first call, from 1 on.
fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}

/// Whether this thread is inside a chunk.
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}

/// Makes this thread one that is inside a chunk, until the result is dropped.
#[cfg(feature = "simulate")]
pub(super) fn enter() -> impl Drop {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    INSIDE.set(true);
    Inside
}

/// Calls `f` with each of `chunks` chunks on this thread and up to `helpers` others, and returns
/// when all are done. False, without a call, if no place is free.
pub(super) fn run(chunks: usize, helpers: usize, f: &(dyn Fn(usize) + Sync)) -> bool {
    let free = |job: &&Job| !job.busy.load(Relaxed) && !job.busy.swap(true, Acquire);
    let Some(job) = PLACES.iter().find(free) else { return false };
    job.closure.store((&raw const f).cast_mut().cast(), Relaxed);
    job.done.store(0, Relaxed);
    job.seats.store(helpers, Relaxed);
    job.threads.store(helpers + 1, Relaxed);
    CREW.processor.0.store(processor::current(), Relaxed);
    let all = Unclaimed::all(Unclaimed::of(job.unclaimed.load(Relaxed)).generation, chunks);
    job.unclaimed.store(all.bits(), Release);
    recruit(helpers);

    INSIDE.set(true);
    job.work(all.generation, true);
    INSIDE.set(false);
    // Workers have claimed the remaining chunks and are running them.
    let mut polls = 0u32;
    while job.done.load(Acquire) < chunks {
        polls += 1;
        if polls < POLLS_BEFORE_YIELD { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    let panic = job.panic.lock().ok().and_then(|mut panic| panic.take());
    job.busy.store(false, Release);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    true
}

/// Brings the crew up to `wanted` members, from the rayon pool that the caller belongs to.
fn recruit(wanted: usize) {
    let members = CREW.members.load(Relaxed);
    if members >= wanted {
        return;
    }
    // While a thread ends its counter is gone, and the caller works by itself.
    _ = RECRUITED.try_with(|recruited| {
        for _ in members + recruited.load(Relaxed)..wanted {
            if recruited.fetch_add(1, Relaxed) == 0 {
                lengthen_patience();
            }
            let recruited = recruited.clone();
            rayon::spawn(move || {
                recruited.fetch_sub(1, Relaxed);
                serve();
            });
        }
    });
}

/// A job has come after workers had left. If it came soon, workers spin longer from now on.
fn lengthen_patience() {
    let idle = CREW.idle.swap(0, Relaxed);
    if idle > 0 {
        CREW.patience.came_after(now().saturating_sub(idle));
    }
}

/// The loop of a worker: polls for jobs, takes a seat, works, and leaves when no job has come for a
/// while.
fn serve() {
    processor::leave(CREW.processor.0.load(Relaxed));
    let pool = rayon::current_num_threads();
    if CREW.members.fetch_add(1, Relaxed) < pool {
        // Threads that run at a time.
        let limit = pool.max(processors());
        while let Some((job, generation)) = next_job(limit) {
            INSIDE.set(true);
            job.work(generation, false);
            INSIDE.set(false);
            CREW.working.0.fetch_sub(1, Relaxed);
        }
    }
    CREW.members.fetch_sub(1, Relaxed);
}

/// A seat at a job with chunks left, or none after a while.
fn next_job(limit: usize) -> Option<(&'static Job, u64)> {
    let patience = CREW.patience.now();
    let (mut polls, mut since) = (0u32, 0);
    loop {
        if let Some(seat) = PLACES.iter().find_map(|job| job.seat(limit)) {
            if since > 0 {
                CREW.patience.came_after(now() - since);
            }
            return Some(seat);
        }
        polls += 1;
        if polls.is_multiple_of(POLLS) {
            let now = now();
            if since == 0 {
                since = now;
            } else if now - since >= patience {
                processor::leave(CREW.processor.0.load(Relaxed));
                CREW.idle.store(since, Relaxed);
                CREW.patience.missed(patience);
                return None;
            }
        }
        std::hint::spin_loop();
    }
}

impl Job {
    /// A seat, if there are chunks left and fewer than `limit` threads run.
    fn seat(&'static self, limit: usize) -> Option<(&'static Job, u64)> {
        let unclaimed = Unclaimed::of(self.unclaimed.load(Acquire));
        if unclaimed.is_empty() {
            return None;
        }
        let callers = PLACES.iter().filter(|job| job.busy.load(Relaxed)).count();
        let full = CREW.working.0.load(Relaxed) + callers >= limit || self.seats.load(Relaxed) == 0;
        if full {
            return None; // without a write, which others that poll would wait for
        }
        if CREW.working.0.fetch_add(1, Relaxed) + callers < limit
            && self.seats.fetch_update(Relaxed, Relaxed, |seats| seats.checked_sub(1)).is_ok()
        {
            return Some((self, unclaimed.generation));
        }
        CREW.working.0.fetch_sub(1, Relaxed);
        None
    }

    /// Claims and runs chunks of one generation, from the front or the back, until none is left.
    fn work(&self, generation: u64, front: bool) {
        let threads = self.threads.load(Relaxed);
        loop {
            let bits = self.unclaimed.load(Acquire);
            let unclaimed = Unclaimed::of(bits);
            let Some((next, claimed)) = unclaimed.claim(front, threads) else { return };
            if unclaimed.generation != generation {
                return;
            }
            let next = next.bits();
            if self.unclaimed.compare_exchange_weak(bits, next, AcqRel, Relaxed).is_err() {
                continue;
            }
            // The claim keeps the closure alive: its owner waits until `done` counts these chunks.
            let closure = self.closure.load(Relaxed).cast_const();
            let closure = closure.cast::<&(dyn Fn(usize) + Sync)>();
            let count = claimed.len();
            for chunk in claimed {
                let run = AssertUnwindSafe(|| {
                    // SAFETY: `closure` was stored from such a reference before the state that we
                    // acquired, and its owner is still waiting.
                    unsafe { (*closure)(chunk) }
                });
                if let Err(panic) = catch_unwind(run)
                    && let Ok(mut slot) = self.panic.lock()
                {
                    slot.get_or_insert(panic);
                }
            }
            self.done.fetch_add(count, Release);
        }
    }
}

/// Sets the state as if this many jobs had run in each place.
#[cfg(test)]
pub(super) fn set_generation(generation: u32) {
    for job in &PLACES {
        while job.busy.swap(true, Acquire) {
            std::thread::yield_now();
        }
        job.unclaimed.store(u64::from(generation) << 32, Relaxed);
        job.busy.store(false, Release);
    }
}
