//! Guard bytes around the blocks of a pool: an operation that writes beyond its memory is named
//! when it ends.
//!
//! ```text
//!   64 bytes of pattern │ the requested bytes, filled with ones │ 64 to 320 bytes of pattern
//! ```
//! For debug builds, fuzzing and `TEENY_POOL_GUARD=1`. The guard bytes of all blocks in use are
//! checked when an operation ends, so that the operation that wrote is this one, or one in progress
//! on another thread. A new block is filled with ones, which are NaN as floats, so that reading
//! memory that was never written shows too.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes before a block and, at least, after it. A multiple of a block's alignment.
pub(crate) const MARGIN: usize = 64;
/// The most bytes after a block that are checked.
const BEHIND: usize = 320;
/// A byte of a margin.
const PATTERN: u8 = 0xa7;
/// A byte of a new block.
const NEW: u8 = 0xff;

/// A block in use.
struct Enclosed {
    /// Bytes requested, and bytes of pattern after them.
    bytes: usize,
    behind: usize,
}

#[derive(Default)]
struct GuardState {
    /// Blocks in use, by the address of their first requested byte.
    blocks: BTreeMap<usize, Enclosed>,
    /// The operations in progress, in the order in which they began.
    operations: Vec<String>,
    /// The first overwritten margin of a block that was returned before an operation ended.
    found: Option<String>,
}

/// The margins of a pool's blocks.
#[derive(Default)]
pub(crate) struct Guard {
    state: Mutex<GuardState>,
    /// Whether the next block is to be overwritten.
    #[cfg(test)]
    pub overrun: std::sync::atomic::AtomicBool,
}

impl Guard {
    fn state(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills a block of `size` bytes and returns the first requested byte.
    ///
    /// # Safety
    /// The block has no other user, and has `bytes` and two margins.
    pub(crate) unsafe fn enclose(
        &self,
        block: NonNull<u8>,
        size: usize,
        bytes: usize,
    ) -> NonNull<u8> {
        let behind = (size - MARGIN - bytes).min(BEHIND);
        // SAFETY: all parts are inside the block, by contract.
        let inner = unsafe {
            block.write_bytes(PATTERN, MARGIN);
            let inner = block.add(MARGIN);
            inner.write_bytes(NEW, bytes);
            inner.add(bytes).write_bytes(PATTERN, behind);
            #[cfg(test)]
            if self.overrun.swap(false, std::sync::atomic::Ordering::SeqCst) {
                inner.add(bytes).write(0);
            }
            inner
        };
        self.state().blocks.insert(inner.as_ptr().expose_provenance(), Enclosed { bytes, behind });
        inner
    }

    /// Checks a block that is returned to the pool, and returns its first byte.
    ///
    /// # Safety
    /// It came from `enclose`.
    pub(crate) unsafe fn open(&self, inner: NonNull<u8>) -> NonNull<u8> {
        let mut state = self.state();
        if let Some(enclosed) = state.blocks.remove(&inner.as_ptr().addr()) {
            // SAFETY: the block was in use until now.
            let found = unsafe { overwritten(inner.as_ptr(), &enclosed) };
            state.found = state.found.take().or(found);
        }
        // SAFETY: `enclose` moved it on by this much.
        unsafe { inner.sub(MARGIN) }
    }

    /// Begins an operation, which ends when the result is dropped: with a panic if a margin was
    /// overwritten.
    pub(crate) fn begin(&self, operation: String) -> Operation<'_> {
        self.state().operations.push(operation.clone());
        Operation { guard: self, operation }
    }
}

/// An operation in progress.
pub(crate) struct Operation<'a> {
    guard: &'a Guard,
    operation: String,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let mut state = self.guard.state();
        let in_progress = state.operations.join(", ");
        if let Some(at) =
            state.operations.iter().rposition(|operation| *operation == self.operation)
        {
            state.operations.remove(at);
        }
        let mut found = state.found.take();
        for (&inner, enclosed) in &state.blocks {
            // SAFETY: the block is in use: it is removed from this map, whose lock is held, before
            // its owner drops it.
            found = found.or_else(|| unsafe {
                overwritten(std::ptr::with_exposed_provenance_mut(inner), enclosed)
            });
        }
        drop(state);
        if let Some(found) = found
            && !std::thread::panicking()
        {
            panic!("{found}; in progress: {in_progress}");
        }
    }
}

/// How a margin of a block was overwritten, if one was.
///
/// # Safety
/// The block came from `enclose` and is still in use.
unsafe fn overwritten(inner: *mut u8, &Enclosed { bytes, behind }: &Enclosed) -> Option<String> {
    let changed = |start: *mut u8, n: usize| {
        // SAFETY: the margins belong to the block. A faulty operation may be writing to them, so
        // each byte is read by itself.
        (0..n)
            .filter(|&i| unsafe { start.add(i).read_volatile() } != PATTERN)
            .map(|i| i + 1)
            .fold((0, 0), |(count, _), last| (count + 1, last))
    };
    let ((before, _), (after, last)) =
        (changed(inner.wrapping_sub(MARGIN), MARGIN), changed(inner.wrapping_add(bytes), behind));
    if before + after == 0 {
        return None;
    }
    // Restored after the report, so that the next report is of another fault.
    // SAFETY: as above.
    unsafe {
        inner.wrapping_sub(MARGIN).write_bytes(PATTERN, MARGIN);
        inner.wrapping_add(bytes).write_bytes(PATTERN, behind);
    }
    Some(format!(
        "memory was overwritten around a block of {bytes} bytes: {before} bytes before it, {after} behind it, the last of them byte {}",
        bytes + last.saturating_sub(usize::from(after > 0)),
    ))
}
