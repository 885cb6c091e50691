//! Fork-join over numbered chunks, with workers borrowed from rayon.
//!
//! The naive form is a parallel iterator of rayon, whose fork-join costs 5 to 12 us: as much as a
//! whole small operation. Here a call publishes a job in one place and starts on it itself. A
//! *crew* of rayon threads, recruited by `rayon::spawn` from the caller's pool, claims chunks too
//! and spins after the last job, so that a burst of operations pays for recruiting once and then
//! 0.2 to 0.5 us per call. A caller never waits for a worker that has not claimed a chunk.
//! `RAYON_NUM_THREADS` and `ThreadPool::install` hold: a job admits one helper fewer than the
//! caller's pool has threads. A call inside a chunk, or while another thread's job is published,
//! runs inline. Chunks are the caller's choice, so results do not depend on threads.
//!
//! ```text
//!   the caller ► 0 1 2 3 4 5 │ 6 7 8 9 ◄ workers
//! ```
//! The caller claims chunks from the front and workers from the back: of two operations on tensors of
//! one shape the second finds what the first has read and written in the caches of its processor.
//!
//! The time that an idle worker spins follows the pauses between jobs ([`Patience`]): a worker that
//! waited in vain halves it, and a job that came within it, or soon after it, sets it to four times
//! the pause. With one processor, in the child of a fork, and in WebAssembly without
//! threads, everything runs on the calling thread.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;
use teeny_core::{Error, Result};

use crate::{fork, processor};

/// The longest and the shortest time that an idle worker spins, in nanoseconds: longer than the
/// pauses between the products of a training step, and as long as recruiting takes. A worker that
/// sleeps has to be woken, perhaps on the processor of its caller.
pub(crate) const MAX_SPIN: u64 = 250_000;
pub(crate) const MIN_SPIN: u64 = 10_000;
/// How many times a worker polls for a job between two reads of the clock.
const POLLS: u32 = 64;
/// How many times the owner of a job polls for the end of its last chunks before it yields.
const POLLS_BEFORE_YIELD: u32 = 12_000;
/// Generations are numbers of 32 bits.
const GENERATION: u64 = u32::MAX as u64;
/// The most claims of a job.
const MAX_CHUNKS: usize = u16::MAX as usize;

/// Whether there are no threads: WebAssembly has them only with atomic instructions, and a clock
/// only in some environments. Everything runs on the calling thread then.
const SINGLE: bool = cfg!(all(target_family = "wasm", not(target_feature = "atomics")));

/// How many threads a job started here may use.
pub(crate) fn threads() -> usize {
    if SINGLE {
        return 1;
    }
    static STARTED: AtomicU8 = AtomicU8::new(0);
    match STARTED.load(Relaxed) {
        1 => rayon::current_num_threads(),
        2 => 1,
        _ if rayon::current_thread_index().is_some() => rayon::current_num_threads(),
        _ => {
            let started = start();
            STARTED.store(if started { 1 } else { 2 }, Relaxed);
            if started { rayon::current_num_threads() } else { 1 }
        }
    }
}

/// Starts rayon's threads. False if the operating system refuses: rayon would then panic when it is
/// asked for their number.
#[cold]
fn start() -> bool {
    match rayon::ThreadPoolBuilder::new().build_global() {
        Ok(()) => true,
        // Without a source they had been started before.
        Err(error) => std::error::Error::source(&error).is_none(),
    }
}

/// Whether a second thread would only take the processor from the first, or does not exist.
fn alone() -> bool {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let count = || std::thread::available_parallelism().map_or(1, usize::from);
    *PROCESSORS.get_or_init(count) == 1 || fork::is_child()
}

/// The time that an idle worker spins before it leaves, in nanoseconds.
pub(crate) struct Patience(AtomicU64);

impl Patience {
    pub(crate) const fn new() -> Patience {
        Patience(AtomicU64::new(MAX_SPIN))
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// A job came after this pause. Spinning that long pays, up to [`MAX_SPIN`].
    pub(crate) fn came_after(&self, pause: u64) {
        if pause <= MAX_SPIN {
            self.0.fetch_max((4 * pause).min(MAX_SPIN), Relaxed);
        }
    }

    /// No job came within `waited`. One step for all workers that waited for the same one.
    pub(crate) fn missed(&self, waited: u64) {
        _ = self.0.compare_exchange(waited, (waited / 2).max(MIN_SPIN), Relaxed, Relaxed);
    }
}

/// The published job and the state of the crew.
struct Crew {
    /// Held by the thread whose job is published.
    busy: AtomicBool,
    /// The chunks that are not yet claimed, as [`CrewState::bits`]. A claim exchanges exactly the
    /// value seen, so a worker that was suspended at the end of a job cannot claim from the next
    /// one.
    state: AtomicU64,
    /// Chunks finished.
    done: AtomicUsize,
    /// Helpers that the job still admits.
    seats: AtomicUsize,
    /// Workers that have begun and not left yet.
    members: AtomicUsize,
    patience: Patience,
    /// The processor of the caller when it published the job.
    processor: AtomicU32,
    /// When the idle time began of the worker that left last, in nanoseconds of `now`; 0 if none
    /// has left.
    idle: AtomicU64,
    /// The address of the owner's reference to the closure. Valid while `state` has chunks or
    /// `done` is less than their number.
    job: AtomicPtr<()>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The number of a job and its chunks that no thread has claimed, `first .. end`.
#[derive(Clone, Copy)]
struct CrewState {
    generation: u64,
    first: u16,
    end: u16,
}

impl CrewState {
    /// generation << 32 | first << 16 | end.
    fn bits(self) -> u64 {
        self.generation << 32 | u64::from(self.first) << 16 | u64::from(self.end)
    }

    fn of(bits: u64) -> CrewState {
        CrewState { generation: bits >> 32, first: (bits >> 16) as u16, end: bits as u16 }
    }

    /// The state after a claim from the front or the back, and the chunk that was claimed.
    fn claim(self, front: bool) -> Option<(CrewState, usize)> {
        match (self.first < self.end, front) {
            (false, _) => None,
            (true, true) => {
                Some((CrewState { first: self.first + 1, ..self }, usize::from(self.first)))
            }
            (true, false) => {
                Some((CrewState { end: self.end - 1, ..self }, usize::from(self.end) - 1))
            }
        }
    }
}

static CREW: Crew = Crew {
    busy: AtomicBool::new(false),
    state: AtomicU64::new(0),
    done: AtomicUsize::new(0),
    seats: AtomicUsize::new(0),
    members: AtomicUsize::new(0),
    patience: Patience::new(),
    processor: AtomicU32::new(0),
    idle: AtomicU64::new(0),
    job: AtomicPtr::new(std::ptr::null_mut()),
    panic: Mutex::new(None),
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

/// Calls `f(0)`, …, `f(chunks - 1)`, each once, on up to `threads()` threads, and returns when all
/// are done.
///
/// If chunks panic, one of the panics is raised here after the others have finished.
///
/// The closure becomes a trait object, so that the work is compiled once, not for each of hundreds
/// of callers.
pub(crate) fn for_each_chunk(chunks: usize, f: impl Fn(usize) + Sync) {
    each_chunk(chunks, &f);
}

/// Calls `f` with ranges that together are `0..n`, each of at least `least` elements, or all.
///
/// There are at most sixteen ranges for each thread, beyond whose ends memory may be prefetched that
/// another thread reads. The ranges depend on the
/// number of threads: no result may depend on them.
pub(crate) fn for_each_range(n: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
    let len = (n / (16 * threads())).max(least).max(1);
    each_chunk(n.div_ceil(len), &|c| f(c * len..((c + 1) * len).min(n)));
}

/// [`for_each_chunk`] for chunks that can fail. After an error, chunks that have not begun are
/// skipped.
///
/// # Errors
/// That of a chunk.
pub(crate) fn try_for_each_chunk(
    chunks: usize,
    f: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    try_each_chunk(chunks, &f)
}

/// [`for_each_range`] for ranges that can fail, as [`try_for_each_chunk`].
///
/// # Errors
/// That of a range.
pub(crate) fn try_for_each_range(
    n: usize,
    least: usize,
    f: impl Fn(Range<usize>) -> Result<()> + Sync,
) -> Result<()> {
    let len = (n / (16 * threads())).max(least).max(1);
    try_each_chunk(n.div_ceil(len), &|c| f(c * len..((c + 1) * len).min(n)))
}

fn try_each_chunk(chunks: usize, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    if chunks < 2 || SINGLE {
        return (0..chunks).try_for_each(f);
    }
    let (failed, first) = (AtomicBool::new(false), Mutex::new(None::<Error>));
    each_chunk(chunks, &|c| {
        if !failed.load(Relaxed)
            && let Err(error) = f(c)
        {
            failed.store(true, Relaxed);
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn each_chunk(chunks: usize, f: &(dyn Fn(usize) + Sync)) {
    if SINGLE {
        return (0..chunks).for_each(f);
    }
    if chunks > MAX_CHUNKS {
        // Several at a time.
        let len = chunks.div_ceil(MAX_CHUNKS);
        let some = |c: usize| (c * len..((c + 1) * len).min(chunks)).for_each(f);
        return each_chunk(chunks.div_ceil(len), &some);
    }
    let helpers = if chunks < 2 || INSIDE.get() || alone() { 0 } else { threads().min(chunks) - 1 };
    if helpers == 0 || CREW.busy.swap(true, Acquire) {
        (0..chunks).for_each(f);
        return;
    }
    CREW.job.store((&raw const f).cast_mut().cast(), Relaxed);
    CREW.done.store(0, Relaxed);
    CREW.seats.store(helpers, Relaxed);
    CREW.processor.store(processor::current(), Relaxed);
    let generation = ((CREW.state.load(Relaxed) >> 32) + 1) & GENERATION;
    CREW.state.store(CrewState { generation, first: 0, end: chunks as u16 }.bits(), Release);
    recruit(helpers);

    INSIDE.set(true);
    work(generation, true);
    INSIDE.set(false);
    // Workers have claimed the remaining chunks and are running them.
    let mut polls = 0u32;
    while CREW.done.load(Acquire) < chunks {
        polls += 1;
        if polls < POLLS_BEFORE_YIELD { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    let panic = CREW.panic.lock().ok().and_then(|mut panic| panic.take());
    CREW.busy.store(false, Release);
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
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
    processor::leave(CREW.processor.load(Relaxed));
    if CREW.members.fetch_add(1, Relaxed) < rayon::current_num_threads() {
        let mut served = u64::MAX;
        while let Some(generation) = next_job(served) {
            served = generation;
            INSIDE.set(true);
            work(generation, false);
            INSIDE.set(false);
        }
    }
    CREW.members.fetch_sub(1, Relaxed);
}

/// A seat at a job other than `served`, or none after a while.
fn next_job(served: u64) -> Option<u64> {
    let patience = CREW.patience.now();
    let (mut polls, mut since) = (0u32, 0);
    loop {
        let CrewState { generation, first, end } = CrewState::of(CREW.state.load(Acquire));
        let open = first < end && generation != served;
        if open && CREW.seats.fetch_update(Relaxed, Relaxed, |seats| seats.checked_sub(1)).is_ok() {
            if since > 0 {
                CREW.patience.came_after(now() - since);
            }
            return Some(generation);
        }
        polls += 1;
        if polls.is_multiple_of(POLLS) {
            let now = now();
            if since == 0 {
                since = now;
            } else if now - since >= patience {
                processor::leave(CREW.processor.load(Relaxed));
                CREW.idle.store(since, Relaxed);
                CREW.patience.missed(patience);
                return None;
            }
        }
        std::hint::spin_loop();
    }
}

/// Claims and runs chunks of one generation, from the front or the back, until none is left.
fn work(generation: u64, front: bool) {
    loop {
        let bits = CREW.state.load(Acquire);
        let state = CrewState::of(bits);
        let Some((next, chunk)) = state.claim(front) else { return };
        if state.generation != generation {
            return;
        }
        if CREW.state.compare_exchange_weak(bits, next.bits(), AcqRel, Relaxed).is_err() {
            continue;
        }
        // The claim keeps the job alive: its owner waits until `done` counts this chunk.
        let job = CREW.job.load(Relaxed).cast_const().cast::<&(dyn Fn(usize) + Sync)>();
        let run = AssertUnwindSafe(|| {
            // SAFETY: `job` was stored from such a reference before the state that we acquired, and
            // its owner is still waiting.
            unsafe { (*job)(chunk) }
        });
        if let Err(panic) = catch_unwind(run)
            && let Ok(mut slot) = CREW.panic.lock()
        {
            slot.get_or_insert(panic);
        }
        CREW.done.fetch_add(1, Release);
    }
}

/// Sets the state as if this many jobs had run.
#[cfg(test)]
pub(crate) fn set_generation(generation: u32) {
    while CREW.busy.swap(true, Acquire) {
        std::thread::yield_now();
    }
    CREW.state.store(u64::from(generation) << 32, Relaxed);
    CREW.busy.store(false, Release);
}
