//! Records which parameters a closure reads, and in which calls.

use super::Param;
use std::cell::RefCell;
use teeny_core::calls;

/// One read of a parameter.
pub(crate) struct Read {
    pub param: Param,
    /// The innermost call in progress, of [`calls::record`].
    pub caller: Option<usize>,
    /// The next call.
    pub next: usize,
}

thread_local! {
    static READS: RefCell<Vec<Read>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, and returns the reads by this thread while it records its calls; none if it did
/// before, as [`calls::record`].
pub(crate) fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Read>) {
    if calls::position().is_some() {
        return (work(), Vec::new());
    }
    READS.take();
    let result = work();
    (result, READS.take())
}

/// Records a read of `param`, if this thread records its calls.
pub(super) fn note(param: &Param) {
    if let Some(calls::Position { caller, next }) = calls::position() {
        READS.with_borrow_mut(|reads| reads.push(Read { param: param.clone(), caller, next }));
    }
}
