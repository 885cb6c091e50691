//! Records the calls of a closure as a list: each operation with the operations inside it, the
//! shape of its result and its floating-point operations. Model summaries use it.

use std::cell::{Cell, RefCell};
use std::panic::Location;

/// One call of an operation: a `Tensor` method, a layer, a loss.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name, e.g. `matmul`.
    pub op: &'static str,
    /// The line that called it.
    pub location: &'static Location<'static>,
    /// How many calls it is inside of.
    pub depth: usize,
    /// The sizes of the last tensor that was made in it, if one was: its result.
    pub result: Option<Vec<usize>>,
    /// The floating-point operations of this call without those inside it, by
    /// [`Op::cost`](crate::Op::cost).
    pub flops: u64,
}

#[derive(Default)]
struct Recording {
    calls: Vec<Call>,
    /// The indices of the calls in progress.
    open: Vec<usize>,
}

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(false) };
    static RECORDING: RefCell<Recording> = const {
        RefCell::new(Recording { calls: Vec::new(), open: Vec::new() })
    };
}

/// Whether this thread records its calls.
#[inline(always)]
pub(crate) fn is_recording() -> bool {
    RECORDS.try_with(Cell::get).unwrap_or_default()
}

/// Runs `work`, and returns the calls of this thread in their order: a call is followed by those
/// inside it. Work within an operation that is recorded already returns no calls.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Result, Tensor, calls};
/// # fn main() -> Result<()> {
/// let x = Tensor::ones((2, 3), DType::F32, &Reference::new())?; // (2, 3)
/// let (y, calls) = calls::record(|| x.t()?.matmul(&x));
/// assert_eq!(y?.shape()[..], [3, 3]);
/// assert_eq!((calls[0].op, calls[0].flops), ("t", 0));
/// assert_eq!((calls[1].op, calls[1].flops), ("matmul", 2 * 3 * 2 * 3));
/// assert_eq!(calls[1].result, Some(vec![3, 3]));
/// # Ok(()) }
/// ```
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Call>) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            RECORDS.set(false);
            RECORDING.take();
        }
    }
    if is_recording() {
        return (work(), Vec::new());
    }
    RECORDING.take();
    RECORDS.set(true);
    let stop = Stop;
    let result = work();
    let calls = RECORDING.take().calls;
    drop(stop);
    (result, calls)
}

/// Where in the list of calls the work of this thread is.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// The index of the innermost call in progress.
    pub caller: Option<usize>,
    /// The index of the next call.
    pub next: usize,
}

/// The position in the calls of this thread; none unless it records them.
pub fn position() -> Option<Position> {
    let now =
        |now: &Recording| Position { caller: now.open.last().copied(), next: now.calls.len() };
    is_recording().then(|| RECORDING.with_borrow(now))
}

/// Tells that the call in progress results in a tensor of `sizes`, if it is not the last one that
/// was made: for layers that return states too.
pub fn result(sizes: &[usize]) {
    if is_recording() {
        made(sizes, 0);
    }
}

/// A call begins.
#[cold]
pub(crate) fn begin(op: &'static str, location: &'static Location<'static>) {
    RECORDING.with_borrow_mut(|now| {
        let call = Call { op, location, depth: now.open.len(), result: None, flops: 0 };
        now.open.push(now.calls.len());
        now.calls.push(call);
    });
}

/// The call that began last ends.
#[cold]
pub(crate) fn end() {
    RECORDING.with_borrow_mut(|now| now.open.pop());
}

/// A tensor of these sizes was made by `flops` operations.
#[cold]
pub(crate) fn made(sizes: &[usize], flops: u64) {
    RECORDING.with_borrow_mut(|now| {
        let Recording { calls, open } = now;
        for &i in open.iter() {
            calls[i].result = Some(sizes.to_vec());
        }
        if let Some(&innermost) = open.last() {
            calls[innermost].flops += flops;
        }
    });
}

/// Runs `work`, whose cost is known, without recording it.
#[cold]
pub(crate) fn pause<R>(work: impl FnOnce() -> R) -> R {
    struct Resume;
    impl Drop for Resume {
        fn drop(&mut self) {
            RECORDS.set(true);
        }
    }
    RECORDS.set(false);
    let _resume = Resume;
    work()
}
