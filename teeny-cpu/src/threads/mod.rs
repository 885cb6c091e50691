//! Fork-join over numbered chunks, with workers borrowed from rayon.
//!
//! The naive form is a parallel iterator of rayon, whose fork-join costs 5 to 12 us: as much as a
//! whole small operation. Here a call publishes a job in one place and starts on it itself. A
//! *crew* of rayon threads, recruited by `rayon::spawn` from the caller's pool, claims chunks too
//! and spins after the last job, so that a burst of operations pays for recruiting once and then
//! 0.2 to 0.5 us per call. A caller never waits for a worker that has not claimed a chunk.
//! `RAYON_NUM_THREADS` and `ThreadPool::install` hold: a job admits one helper fewer than the
//! caller's pool has threads. A call inside a chunk runs inline. Chunks are the caller's choice, so
//! results do not depend on threads.
//!
//! ```text
//!   the caller ► 0 1 2 3 4 5 │ 6 7 8 9 ◄ workers
//! ```
//! The caller claims chunks from the front and workers from the back: of two operations on tensors
//! of one shape the second finds what the first has read and written in the caches of its
//! processor.
//!
//! With one processor, in the child of a fork, and in WebAssembly without threads, everything runs
//! on the calling thread. `crew` has the jobs and the workers, `claims` what is left of a job,
//! `simulated` (feature `simulate`) the time that more threads would take.

mod claims;
mod crew;
#[cfg(feature = "simulate")]
pub mod simulated;

#[cfg(test)]
mod tests;

use claims::MAX_CHUNKS;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError};
use teeny_core::{Error, Result};

use crate::{fork, processor};

/// True if threads are unavailable: WebAssembly has them only with atomic instructions, and a clock
/// only in some environments. Everything runs on the calling thread then.
const SINGLE: bool = cfg!(all(target_family = "wasm", not(target_feature = "atomics")));

/// The number of threads that an operation started here may use: the threads of the caller's rayon
/// pool. The global pool, which the first operation starts if nothing has, has `RAYON_NUM_THREADS`,
/// or one for each core of the processors that the process may use.
pub fn threads() -> usize {
    if SINGLE {
        return 1;
    }
    #[cfg(feature = "simulate")]
    if let Some(threads) = simulated::threads() {
        return threads;
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

/// Starts rayon's threads: as many as its environment variable says, or one for each core. False if
/// the operating system refuses: rayon would then panic in `current_num_threads`.
#[cold]
fn start() -> bool {
    let said = std::env::var_os("RAYON_NUM_THREADS").is_some();
    let count = if said { 0 } else { processor::cores(processors()) };
    match rayon::ThreadPoolBuilder::new().num_threads(count).build_global() {
        Ok(()) => true,
        // Without a source they had been started before.
        Err(error) => std::error::Error::source(&error).is_none(),
    }
}

/// The number of processors that this process may use: by its affinity mask, at most its quota.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let count = || std::thread::available_parallelism().map_or(1, usize::from);
    *PROCESSORS.get_or_init(count)
}

/// Whether a second thread would only take the processor from the first, or does not exist.
fn alone() -> bool {
    processors() == 1 || fork::is_child()
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
/// There are at most [`ranges`], beyond whose ends memory may be prefetched that another thread
/// reads. The ranges depend on the number of threads: no result may depend on them.
pub(crate) fn for_each_range(n: usize, least: usize, f: impl Fn(Range<usize>) + Sync) {
    let len = (n / ranges(threads())).max(least).max(1);
    each_chunk(n.div_ceil(len), &|c| f(c * len..((c + 1) * len).min(n)));
}

/// The most ranges of a loop: sixteen for each of a few threads, so that they end together; four
/// for each of many, which claim them one after the other.
fn ranges(threads: usize) -> usize {
    (16 * threads).min((4 * threads).max(256))
}

/// [`for_each_chunk`] for chunks that can fail. After an error, chunks that have not begun are
/// skipped.
///
/// # Errors
/// The error of a chunk.
pub(crate) fn try_for_each_chunk(
    chunks: usize,
    f: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    try_each_chunk(chunks, &f)
}

/// [`for_each_range`] for ranges that can fail, as [`try_for_each_chunk`].
///
/// # Errors
/// The error of a range.
pub(crate) fn try_for_each_range(
    n: usize,
    least: usize,
    f: impl Fn(Range<usize>) -> Result<()> + Sync,
) -> Result<()> {
    let len = (n / ranges(threads())).max(least).max(1);
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
    #[cfg(feature = "simulate")]
    if simulated::run(chunks, f) {
        return;
    }
    let inline = chunks < 2 || crew::is_inside() || alone();
    let helpers = if inline { 0 } else { threads().min(chunks) - 1 };
    if helpers == 0 || !crew::run(chunks, helpers, f) {
        (0..chunks).for_each(f);
    }
}
