//! Whether operations on this thread are recorded: [`no_grad`] and its opposite, as guards that
//! survive panics.

use crate::node::Handle;
use std::cell::{Cell, RefCell};
use std::panic::Location;

/// The function that switched recording off, and its line, for errors about a missing gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Off {
    pub op: &'static str,
    pub location: &'static Location<'static>,
}

thread_local! {
    static OFF: Cell<Option<Off>> = const { Cell::new(None) };
    static RECOMPUTING: Cell<bool> = const { Cell::new(false) };
    static WATCH: RefCell<Option<Vec<Handle>>> = const { RefCell::new(None) };
}

/// The reason why nothing is recorded on this thread, if that is so.
pub(crate) fn off() -> Option<Off> {
    OFF.get()
}

/// Restores the former mode when dropped, also while a panic unwinds.
pub(crate) struct Guard(Option<Off>);

impl Drop for Guard {
    fn drop(&mut self) {
        OFF.set(self.0);
    }
}

pub(crate) fn set(mode: Option<Off>) -> Guard {
    Guard(OFF.replace(mode))
}

/// Runs `body` without recording, and collects the tracked values it read: the operands that a
/// checkpoint has captured.
pub(crate) fn watch<T>(off: Off, body: impl FnOnce() -> T) -> (T, Vec<Handle>) {
    struct Restore(Option<Vec<Handle>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WATCH.replace(self.0.take());
        }
    }
    let _off = set(Some(off));
    let _outer = Restore(WATCH.replace(Some(Vec::new())));
    let result = body();
    (result, WATCH.take().unwrap_or_default())
}

/// Adds a tracked value that is read without being recorded to the list of [`watch`].
pub(crate) fn seen(handle: &Handle) {
    WATCH.with_borrow_mut(|watch| {
        if let Some(all) = watch.as_mut().filter(|all| all.iter().all(|h| h.key() != handle.key()))
        {
            all.push(handle.clone());
        }
    });
}

/// Runs `body` without recording: results are plain values, and no memory is kept for a backward
/// pass.
///
/// The switch belongs to this thread and covers every autograd device; other threads go on
/// recording.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Grad, no_grad};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(Reference::new());
/// let w = Tensor::new([1.0f32, 2.0], &device)?.requires_grad()?; // (2)
/// let stepped = no_grad(|| w.sub(0.1))?; // (2)
/// assert!(!stepped.is_tracked());
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.no_grad()`.
#[track_caller]
pub fn no_grad<T>(body: impl FnOnce() -> T) -> T {
    let _guard = set(Some(Off { op: "no_grad", location: Location::caller() }));
    body()
}

/// Runs `body` with recording, inside a [`no_grad`] too. Equivalent: `torch.enable_grad()`.
pub fn enable_grad<T>(body: impl FnOnce() -> T) -> T {
    let _guard = set(None);
    body()
}

/// True if operations on this thread are recorded.
pub fn is_grad_enabled() -> bool {
    off().is_none()
}

/// True if this thread recomputes values that a [`checkpoint`](crate::checkpoint) did not save. A
/// layer must not change its state a second time then: running statistics, counters.
pub fn is_recomputing() -> bool {
    RECOMPUTING.get()
}

/// Runs `body` as a recomputation.
pub(crate) fn recompute<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECOMPUTING.set(self.0);
        }
    }
    let _restore = Restore(RECOMPUTING.replace(true));
    body()
}
