//! Taking a mutex of this crate.

use std::sync::{Mutex, MutexGuard};

/// The content of a mutex, whether or not a thread panicked while it held it: every section under a
/// lock of this crate leaves the content whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
