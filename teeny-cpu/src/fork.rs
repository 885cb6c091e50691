//! Detection of forks: a fork copies memory, but only the thread that called it.
//!
//! A lock that another thread held at that moment stays locked in the child, where that thread does
//! not exist. Locks of this crate therefore store the number of their process (`pool`). In a child,
//! `threads` runs everything on the calling thread.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static PROCESS: AtomicU32 = AtomicU32::new(1);

/// The number of this process: 1, and one more after each fork.
#[inline]
pub(crate) fn process() -> u32 {
    PROCESS.load(Relaxed)
}

/// Whether a fork made this process, after the first device.
pub(crate) fn is_child() -> bool {
    process() != 1
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        {
            extern "C" fn in_child() {
                PROCESS.fetch_add(1, Relaxed);
            }
            // SAFETY: the handler changes an atomic number, which a child of a process with threads
            // may do.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}
