//! Which operation is in progress on this thread, and the user's line that called it.
//!
//! Every public `Tensor` method enters its name here before it checks or dispatches anything. The outermost entry wins: `softmax` stays
//! `softmax` while it is carried out by `max`, `exp` and `sum`. Errors, gradient records and wrapper devices read it.

use std::cell::Cell;
use std::panic::Location;

/// The operation in progress: its public name and the line that called it.
#[derive(Clone, Copy, Debug)]
pub struct OpContext {
    /// The name of the public method, e.g. `matmul`.
    pub op: &'static str,
    /// The line outside this crate that called it.
    pub location: &'static Location<'static>,
    /// True while work that the operation left for later is carried out: its gradient.
    pub later: bool,
}

thread_local! {
    static CURRENT: Cell<Option<OpContext>> = const { Cell::new(None) };
}

/// Reads or changes [`CURRENT`]. The methods of `LocalKey` that look the same are calls in every small operation, as nothing asks for their inlining.
#[inline(always)]
fn with_current<R: Default>(f: impl FnOnce(&Cell<Option<OpContext>>) -> R) -> R {
    // It has no destructor, after which there would be none.
    CURRENT.try_with(f).unwrap_or_default()
}

/// The outermost operation in progress on this thread.
pub fn current() -> Option<OpContext> {
    with_current(Cell::get)
}

/// Leaves the operation when dropped, if entering it made it the outermost one.
#[must_use = "the operation ends when the guard is dropped"]
pub struct Guard {
    outermost: bool,
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.outermost {
            with_current(|current| current.set(None));
        }
    }
}

/// Enters operation `op` at the caller's line, unless an operation is already in progress.
#[track_caller]
#[inline]
pub fn enter(op: &'static str) -> Guard {
    let location = Location::caller();
    let outermost = with_current(|current| {
        let outermost = current.get().is_none();
        if outermost {
            current.set(Some(OpContext { op, location, later: false }));
        }
        outermost
    });
    Guard { outermost }
}

/// Enters `op` with a given place even if another operation is in progress; used by wrappers that carry out recorded work later.
pub fn resume(context: OpContext) -> Resumed {
    Resumed { previous: with_current(|current| current.replace(Some(OpContext { later: true, ..context }))) }
}

/// Restores the operation that was in progress before [`resume`].
#[must_use = "the operation ends when the guard is dropped"]
pub struct Resumed {
    previous: Option<OpContext>,
}

impl Drop for Resumed {
    fn drop(&mut self) {
        with_current(|current| current.set(self.previous));
    }
}
