//! Which operation is in progress on this thread, and the user's line that called it.
//!
//! Every public `Tensor` method enters its name here before it checks or dispatches anything. The
//! outermost entry wins: `softmax` stays `softmax` while it runs `max`, `exp` and `sum`. Errors,
//! gradient records and wrapper devices read it.

use crate::calls;
use crate::dtype::DType;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

/// The operation in progress: its public name and the line that called it.
#[derive(Clone, Copy, Debug)]
pub struct OpContext {
    /// The name of the public method, e.g. `matmul`.
    pub op: &'static str,
    /// The line outside this crate that called it.
    pub location: &'static Location<'static>,
    /// True while deferred work of the operation runs: its gradient.
    pub later: bool,
    /// The argument that a gather or scatter takes its positions from.
    pub positions: &'static Positions,
}

/// The argument of an operation that a gather or scatter takes its positions from, as an error
/// names it. A recording device keeps it with the operation, as it does the line.
#[derive(Debug)]
pub struct Positions {
    /// The name of the parameter.
    pub name: &'static str,
    /// The legal elements, and the help of the error, if [`Tensor::checked`] makes the positions.
    ///
    /// [`Tensor::checked`]: crate::Tensor::checked
    pub expected: Option<[&'static str; 2]>,
}

/// The positions of gather and scatter themselves.
pub const INDEX: &Positions = &Positions::of("index");

impl Positions {
    /// Positions that are the elements of `name` themselves.
    pub const fn of(name: &'static str) -> Positions {
        Positions { name, expected: None }
    }

    /// The element that [`Tensor::checked`](crate::Tensor::checked) encodes as `position`, or the
    /// position itself.
    pub fn value(&self, position: i128) -> i128 {
        match (self.expected, position < 0) {
            (None, _) => position,
            (Some(_), true) => !position,
            (Some(_), false) => -position,
        }
    }
}

/// The argument whose elements the operation in progress takes as positions.
pub fn positions() -> &'static Positions {
    current().map_or(INDEX, |context| context.positions)
}

/// Names the argument whose elements the next gathers and scatters take as positions, until the
/// guard is dropped.
pub fn positions_of(positions: &'static Positions) -> Resumed {
    resume_as(current().map(|context| OpContext { positions, ..context }))
}

/// An operand as an error describes it. Computed only when an error is made.
#[doc(hidden)]
pub trait Described {
    /// The shape, as an error prints it.
    fn shape(&self) -> String;
    /// The type of the elements.
    fn dtype(&self) -> DType;
    /// The name of the device.
    fn device(&self) -> String;
}

/// The operands of a guard without operands.
impl Described for Infallible {
    fn shape(&self) -> String {
        match *self {}
    }
    fn dtype(&self) -> DType {
        match *self {}
    }
    fn device(&self) -> String {
        match *self {}
    }
}

/// One operand of a failed operation, as its error prints it.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub name: String,
    pub shape: String,
    pub dtype: DType,
    /// The name of its device.
    pub device: String,
}

/// The operands of a failed operation. An error holds it from the start; the operation fills it
/// when it ends.
pub(crate) type Operands = Arc<OnceLock<Vec<Operand>>>;

struct Current {
    op: Cell<Option<OpContext>>,
    /// Whether an error was made since the outermost operation began.
    failed: Cell<bool>,
}

thread_local! {
    // It has no destructor, so it is available until the thread ends.
    static CURRENT: Current = const { Current { op: Cell::new(None), failed: Cell::new(false) } };
    /// The operands of the newest error of this thread.
    static NEWEST: RefCell<Option<Operands>> = const { RefCell::new(None) };
}

/// Reads or changes [`CURRENT`]. The methods of `LocalKey` that look the same are not inlined: each
/// would be a call in every small operation.
#[inline(always)]
fn with_current<R: Default>(f: impl FnOnce(&Current) -> R) -> R {
    CURRENT.try_with(f).unwrap_or_default()
}

/// The outermost operation in progress on this thread.
pub fn current() -> Option<OpContext> {
    with_current(|current| current.op.get())
}

/// The operands of the operation in progress, which it fills in later, for an error that is being
/// made.
pub(crate) fn operands() -> Option<Operands> {
    current()?;
    with_current(|current| current.failed.set(true));
    let operands = Operands::default();
    // A thread that ends has already dropped its thread-local values.
    NEWEST.try_with(|newest| newest.replace(Some(operands.clone()))).ok()?;
    Some(operands)
}

/// Leaves the operation when dropped, if entering it made it the outermost one. If an error was
/// made in between, the newest one gets the `N` operands.
#[must_use = "the operation ends when the guard is dropped"]
pub struct Guard<'t, X: Described = Infallible, const N: usize = 0> {
    outermost: bool,
    operands: [Named<'t, X>; N],
}

/// [`Guard`] for an operation on a list of operands.
#[must_use = "the operation ends when the guard is dropped"]
pub(crate) struct ListGuard<'t, X: Described> {
    guard: Guard<'static>,
    name: &'static str,
    list: &'t [&'t X],
}

/// The name of a parameter, and its operand if it is a tensor.
type Named<'t, X> = (&'static str, Option<&'t X>);

impl Guard<'static> {
    /// The operands of the operation, for errors, in the order of its signature; `None` is
    /// omitted.
    #[inline]
    pub(crate) fn on<'t, X: Described, const N: usize>(
        self,
        operands: [Named<'t, X>; N],
    ) -> Guard<'t, X, N> {
        let outermost = self.outermost;
        std::mem::forget(self); // the new guard ends the operation
        Guard { outermost, operands }
    }

    /// [`Guard::on`] for a list of operands.
    pub(crate) fn on_all<'t, X: Described>(
        self,
        name: &'static str,
        list: &'t [&'t X],
    ) -> ListGuard<'t, X> {
        ListGuard { guard: self, name, list }
    }
}

impl<X: Described, const N: usize> Drop for Guard<'_, X, N> {
    #[inline]
    fn drop(&mut self) {
        if calls::is_recording() {
            calls::end();
        }
        if !self.outermost {
            return;
        }
        with_current(|current| current.op.set(None));
        if N > 0 && with_current(|current| current.failed.get()) {
            self.failed_on::<X>(&[]);
        }
    }
}

impl<X: Described, const N: usize> Guard<'_, X, N> {
    /// Adds the operands of this failed operation, `operands` and the guard's, to the newest error.
    /// For operands that the guard cannot hold because the operation changes or consumes them.
    #[cold]
    pub(crate) fn failed_on<Y: Described>(&self, operands: &[Named<'_, Y>]) {
        if self.outermost {
            let others = operands.iter().filter_map(|(name, x)| Some(described(name, (*x)?)));
            let own = self.operands.iter().filter_map(|(name, x)| Some(described(name, (*x)?)));
            fill(others.chain(own));
        }
    }
}

impl<X: Described> Drop for ListGuard<'_, X> {
    fn drop(&mut self) {
        if self.guard.outermost && with_current(|current| current.failed.get()) {
            fill(
                self.list
                    .iter()
                    .enumerate()
                    .take(LISTED)
                    .map(|(i, x)| described(&format!("{}[{i}]", self.name), *x)),
            );
        }
    }
}

/// How many operands of a list an error prints.
const LISTED: usize = 8;

#[cold]
fn described(name: &str, x: &impl Described) -> Operand {
    Operand { name: name.to_string(), shape: x.shape(), dtype: x.dtype(), device: x.device() }
}

/// Sets the operands of the newest error, if it has none.
#[cold]
fn fill(operands: impl Iterator<Item = Operand>) {
    let operands: Vec<Operand> = operands.collect();
    let newest = NEWEST.try_with(|newest| newest.borrow().clone()).ok().flatten();
    if let Some(newest) = newest.filter(|_| !operands.is_empty()) {
        // Fails if an inner operation has already set them.
        let _ = newest.set(operands);
    }
}

/// Enters operation `op` at the caller's line, unless an operation is already in progress.
#[track_caller]
#[inline]
pub fn enter(op: &'static str) -> Guard<'static> {
    let location = Location::caller();
    let outermost = with_current(|current| {
        let outermost = current.op.get().is_none();
        if outermost {
            current.op.set(Some(OpContext { op, location, later: false, positions: INDEX }));
            current.failed.set(false);
        }
        outermost
    });
    if calls::is_recording() {
        calls::begin(op, location);
    }
    Guard { outermost, operands: [] }
}

/// Enters `op` with a given place even if another operation is in progress; used by wrappers that
/// run recorded work later.
pub fn resume(context: OpContext) -> Resumed {
    Resumed {
        previous: with_current(|current| {
            current.op.replace(Some(OpContext { later: true, ..context }))
        }),
    }
}

/// [`resume`] for an operation that runs now for the first time, such as after a function of the
/// user, or for none.
pub fn resume_as(context: Option<OpContext>) -> Resumed {
    Resumed { previous: with_current(|current| current.op.replace(context)) }
}

/// `future`, polled within the operation that is in progress at this call: its late errors carry the
/// name and the line of that operation.
pub fn continued<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    let context = current();
    let mut future = Box::pin(future);
    poll_fn(move |waker| {
        let _op = resume_as(context.or_else(current));
        future.as_mut().poll(waker)
    })
}

/// Gives the newest error these operands, unless it has some.
#[cold]
pub(crate) fn failed_on<'t, X: Described + 't>(
    operands: impl Iterator<Item = (&'static str, &'t X)>,
) {
    fill(operands.map(|(name, x)| described(name, x)));
}

/// Restores the operation that was in progress before [`resume`].
#[must_use = "the operation ends when the guard is dropped"]
pub struct Resumed {
    previous: Option<OpContext>,
}

impl Drop for Resumed {
    fn drop(&mut self) {
        with_current(|current| current.op.set(self.previous));
    }
}
