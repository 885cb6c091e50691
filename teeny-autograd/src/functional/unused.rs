//! Arguments that a function does not use: an error, unless the caller allows them.
//!
//! A function that computes with something else in place of its argument (a parameter of a model, a
//! value read back from the device) would have zero derivatives in silence. An argument is used if
//! an operation of its level reads it, or the result is a view of it. So a function that is constant
//! or linear in its argument has zeros as derivatives, as in mathematics.

use crate::dual::try_dual;
use crate::storage::{Tracked, try_tracked};
use std::cell::Cell;
use teeny_core::context::{OpContext, resume_as};
use teeny_core::{Error, Result, Tensor};

thread_local! {
    static ALLOWED: Cell<bool> = const { Cell::new(false) };
}

/// Restores the former mode when dropped, also while a panic unwinds.
struct Guard(bool);

impl Drop for Guard {
    fn drop(&mut self) {
        ALLOWED.set(self.0);
    }
}

/// Runs `body`, in which an argument that a function does not use is not an error of [`grad`],
/// [`vjp`], [`jvp`], [`hvp`] and the matrices: its derivatives are zeros. The switch belongs to this
/// thread.
///
/// # Example
/// ```
/// use teeny_autograd::{allow_unused, grad};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([1.0f64, 2.0], &Reference::new())?; // (2)
/// let both = [x.clone(), x];
/// let first = |[a, _]: &[Tensor; 2]| a.square()?.sum_all();
/// assert!(grad(first, &both).is_err());
/// let [a, b] = allow_unused(|| grad(first, &both))?;
/// assert_eq!((a.to_vec::<f64>()?, b.to_vec::<f64>()?), (vec![2.0, 4.0], vec![0.0, 0.0]));
/// # Ok(()) }
/// ```
///
/// Equivalent: `allow_unused=True, materialize_grads=True` of `torch.autograd.grad`.
///
/// [`grad`]: crate::grad()
/// [`vjp`]: crate::vjp
/// [`jvp`]: crate::jvp
/// [`hvp`]: crate::hvp
pub fn allow_unused<T>(body: impl FnOnce() -> T) -> T {
    let _guard = Guard(ALLOWED.replace(true));
    body()
}

/// The name of `x` on its device or one that this wraps.
fn name(x: &Tensor) -> Option<&str> {
    match (try_tracked(x), try_dual(x)) {
        (Some(Tracked { inner, handle, .. }), _) => {
            handle.as_ref().and_then(|handle| handle.node.name()).or_else(|| name(inner))
        }
        (None, Some(dual)) => name(&dual.value),
        (None, None) => None,
    }
}

/// An error that names the arguments `x` for whose index `used` returns false; it has the name and
/// the line of `at`.
pub(super) fn require_used(
    x: &[Tensor],
    used: impl Fn(usize) -> bool,
    at: OpContext,
) -> Result<()> {
    let unused: Vec<usize> = (0..x.len()).filter(|&i| !used(i)).collect();
    if unused.is_empty() || ALLOWED.get() {
        return Ok(());
    }
    let _op = resume_as(Some(at));
    let describe = |&i: &usize| {
        let name = name(&x[i]).map_or_else(|| format!("argument {i}"), |name| format!("`{name}`"));
        format!("{name}, {} {}", x[i].dtype(), x[i].shape())
    };
    let all: Vec<String> = unused.iter().map(describe).collect();
    let text = format!("the function does not use {}", all.join("; "));
    Err(Error::gradient(text)
        .note("its derivatives would be zeros; detached and read values do not count")
        .help(
            "compute with the closure's argument: |w| store.with_values([(\"fc.weight\", w)], ..) \
             for a parameter; allow_unused(|| ..) returns zeros",
        ))
}
