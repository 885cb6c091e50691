//! Products with a Jacobian or a Hessian, which is never formed.

use super::levels::{inner_device, with_level};
use super::point::{Point, require_direction};
use super::unused::require_used;
use crate::device::Autograd;
use crate::dual::{Dual, try_dual};
use crate::forward::Forward;
use crate::grad::Grad;
use crate::mode::enable_grad;
use crate::storage::try_tracked;
use std::panic::Location;
use std::sync::Arc;
use teeny_core::context::{INDEX, OpContext, current, resume_as};
use teeny_core::device::common;
use teeny_core::{DeviceRef, Error, Result, Tensor};

/// `f(x)` and its derivative along `v`, `J v`: forward mode, one run of `f` that computes both and
/// records nothing.
///
/// Shapes: `v` as `x`; the derivative as the value. It is zero where the result does not depend on
/// `x`. Both are on the device of `x`, and are recorded there if `x` is tracked: the derivative can
/// be differentiated again.
///
/// # Errors
/// If `v` has another shape or dtype than `x`, or the dtype is not a float; errors of `f`; a result
/// on an unrelated device.
///
/// # Example
/// ```
/// use teeny_autograd::jvp;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([0.0f64, 1.0], &Reference::new())?; // (2)
/// let v = Tensor::new([1.0f64, 2.0], &x)?; // (2)
/// let (y, along) = jvp(|x| x.square(), &x, &v)?; // (2), (2)
/// assert_eq!(y.to_vec::<f64>()?, [0.0, 1.0]);
/// assert_eq!(along.to_vec::<f64>()?, [0.0, 4.0]); // 2 x v
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.func.jvp`.
#[track_caller]
pub fn jvp<P: Point, Q: Point>(f: impl FnOnce(&P) -> Result<Q>, x: &P, v: &P) -> Result<(Q, Q)> {
    jvp_at(f, x, v, caller("jvp"))
}

fn jvp_at<P: Point, Q: Point>(
    f: impl FnOnce(&P) -> Result<Q>,
    x: &P,
    v: &P,
    at: OpContext,
) -> Result<(Q, Q)> {
    {
        let _op = resume_as(Some(at));
        require_direction(x.tensors(), v.tensors())?;
    }
    let v: Vec<Option<&Tensor>> = v.tensors().iter().map(Some).collect();
    let (form, values, along) = push_forward(f, x, &v, at)?;
    let along = values
        .iter()
        .zip(along)
        .map(|(y, t)| t.map_or_else(|| y.zeros_like(), Ok))
        .collect::<Result<_>>()?;
    Ok((form.with(values)?, form.with(along)?))
}

/// The operation `op` at the caller's line, or the one in progress: for errors that are made after
/// the user's function has run.
#[track_caller]
pub(super) fn caller(op: &'static str) -> OpContext {
    current().unwrap_or(OpContext {
        op,
        location: Location::caller(),
        later: false,
        positions: INDEX,
    })
}

/// The result of `f` on a new forward-mode level, with its values and tangents on the device of the
/// arguments; `v` are the tangents of the arguments.
pub(super) fn push_forward<P: Point, Q: Point>(
    f: impl FnOnce(&P) -> Result<Q>,
    x: &P,
    v: &[Option<&Tensor>],
    at: OpContext,
) -> Result<(Q, Vec<Tensor>, Vec<Option<Tensor>>)> {
    let level = Forward::new(inner_device(x.tensors())?);
    let lift =
        |(x, v): (&Tensor, &Option<&Tensor>)| v.map_or_else(|| x.to(&level), |v| level.dual(x, v));
    let lifted = x.with(x.tensors().iter().zip(v).map(lift).collect::<Result<_>>()?)?;
    let y = with_level(level.clone(), || f(&lifted))?;
    let used = |i: usize| {
        let x = &lifted.tensors()[i];
        try_dual(x).is_some_and(Dual::is_used)
            || y.tensors().iter().any(|y| Arc::ptr_eq(y.storage(), x.storage()))
    };
    require_used(x.tensors(), used, at)?;
    let (values, tangents) = y
        .tensors()
        .iter()
        .map(|y| level.unpack(y))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    Ok((y, values, tangents))
}

/// `f(x)` and `gᵀ J`, the gradient of `sum(g * f(x))`: reverse mode, one run of `f` that is
/// recorded, and one backward pass.
///
/// Shapes: `g` as the value; the gradient as `x`. It is zero where the result does not depend on
/// `x`. Both are on the device of `x`.
///
/// # Errors
/// If `g` has another shape or dtype than the value; if the tensors of `x` are not floats; errors
/// of `f`; a result on an unrelated device.
///
/// # Example
/// ```
/// use teeny_autograd::vjp;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let w = Tensor::new([[1.0f64, 2.0], [3.0, 4.0]], &Reference::new())?; // (2, 2)
/// let x = Tensor::new([1.0f64, 1.0], &w)?; // (2)
/// let g = Tensor::new([1.0f64, 10.0], &w)?; // (2)
/// let (y, [d_w, d_x]) = vjp(|[w, x]| w.matmul(x), &[w, x], &g)?; // (2), (2, 2), (2)
/// assert_eq!(y.to_vec::<f64>()?, [3.0, 7.0]);
/// assert_eq!(d_w.to_vec::<f64>()?, [1.0, 1.0, 10.0, 10.0]); // g xᵀ
/// assert_eq!(d_x.to_vec::<f64>()?, [31.0, 42.0]); // gᵀ w
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.func.vjp`.
#[track_caller]
pub fn vjp<P: Point>(
    f: impl FnOnce(&P) -> Result<Tensor>,
    x: &P,
    g: &Tensor,
) -> Result<(Tensor, P)> {
    let at = caller("vjp");
    let recorded = Recorded::of(f, x, at)?;
    let _op = resume_as(Some(at));
    let value = recorded.value()?;
    let grads = recorded.gradients(g)?;
    Ok((value, x.with(grads)?))
}

/// The gradient at `x` of `f`, which returns one number: reverse mode.
///
/// Shapes: as `x`, on the device of `x`; zero where the number does not depend on `x`.
///
/// # Errors
/// If the result has more than one element, or the tensors of `x` are not floats; errors of `f`; a
/// result on an unrelated device.
///
/// # Example
/// ```
/// use teeny_autograd::grad;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new(0.5f64, &Reference::new())?; // ()
/// let slope = grad(|x| x.sin(), &x)?; // ()
/// assert_eq!(slope.item::<f64>()?, 0.5f64.cos());
/// let curvature = grad(|x| grad(|x| x.sin(), x), &x)?; // ()
/// assert_eq!(curvature.item::<f64>()?, -0.5f64.sin());
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.func.grad`.
#[track_caller]
pub fn grad<P: Point>(f: impl FnOnce(&P) -> Result<Tensor>, x: &P) -> Result<P> {
    grad_at(f, x, caller("grad"))
}

/// [`grad`] whose errors have the name and the line of `at`.
pub(super) fn grad_at<P: Point>(
    f: impl FnOnce(&P) -> Result<Tensor>,
    x: &P,
    at: OpContext,
) -> Result<P> {
    let recorded = Recorded::of(f, x, at)?;
    let _op = resume_as(Some(at));
    if recorded.y.numel() != 1 {
        let shape = recorded.y.shape();
        let error = Error::gradient(format!("expected a function of one number, got {shape}"));
        return Err(error.help(
            "take the gradient of its sum, give a direction: vjp(f, &x, &g), or ask for \
             jacobian(f, &x)",
        ));
    }
    x.with(recorded.gradients(&recorded.value()?.ones_like()?)?)
}

/// The gradient of `f`, which returns one number, and the product of its Hessian with `v`: forward
/// over reverse, about twice the work of the gradient, with no Hessian in memory.
///
/// Shapes: both as `x` and `v`, on the device of `x`.
///
/// # Errors
/// As [`grad`] and [`jvp`].
///
/// # Example
/// ```
/// use teeny_autograd::hvp;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([1.0f64, 2.0], &Reference::new())?; // (2)
/// let v = x.ones_like()?; // (2)
/// let (gradient, along) = hvp(|x| x.pow(3)?.sum_all(), &x, &v)?; // (2), (2)
/// assert_eq!(gradient.to_vec::<f64>()?, [3.0, 12.0]); // 3 x²
/// assert_eq!(along.to_vec::<f64>()?, [6.0, 12.0]); // 6 x v
/// # Ok(()) }
/// ```
///
/// Source: Pearlmutter 1994, "Fast exact multiplication by the Hessian". Equivalent:
/// `torch.func.jvp(torch.func.grad(f), (x,), (v,))`.
#[track_caller]
pub fn hvp<P: Point>(f: impl Fn(&P) -> Result<Tensor>, x: &P, v: &P) -> Result<(P, P)> {
    let at = caller("hvp");
    jvp_at(|x| grad_at(&f, x, at), x, v, at)
}

/// One recorded run of a function.
pub(super) struct Recorded {
    /// The device of the arguments, and of the derivatives.
    inner: DeviceRef,
    leaves: Vec<Tensor>,
    /// The result, on the reverse-mode level.
    pub y: Tensor,
}

impl Recorded {
    /// A run of `f` at `x`. Errors outside `f` have the name and the line of `at`.
    pub fn of<P: Point>(
        f: impl FnOnce(&P) -> Result<Tensor>,
        x: &P,
        at: OpContext,
    ) -> Result<Recorded> {
        let inner = inner_device(x.tensors())?;
        let level = Autograd::with_shared_cache(&inner);
        let leaves = {
            let _op = resume_as(Some(at));
            let leaf = |x: &Tensor| x.to(&level)?.requires_grad();
            x.tensors().iter().map(leaf).collect::<Result<Vec<_>>>()?
        };
        let lifted = x.with(leaves.clone())?;
        let device: DeviceRef = level.clone();
        let y = enable_grad(|| with_level(device.clone(), || f(&lifted)))?;
        let used = |i: usize| {
            let node = |x: &Tensor| Some(try_tracked(x)?.handle.as_ref()?.node.clone());
            let leaf = node(&leaves[i]);
            leaf.as_ref().is_some_and(|leaf| leaf.is_used())
                || node(&y).zip(leaf).is_some_and(|(y, leaf)| Arc::ptr_eq(&y, &leaf))
        };
        require_used(x.tensors(), used, at)?;
        common(&device, y.device())?;
        let y = y.to(&level)?;
        Ok(Recorded { inner, leaves, y })
    }

    /// The result, on the device of the arguments.
    pub fn value(&self) -> Result<Tensor> {
        self.y.to(&self.inner)
    }

    /// The gradients of `sum(g * y)` for the arguments.
    pub fn gradients(&self, g: &Tensor) -> Result<Vec<Tensor>> {
        if !self.y.is_tracked() {
            require_direction(std::slice::from_ref(&self.y), std::slice::from_ref(g))?;
            return self.leaves.iter().map(|x| x.to(&self.inner)?.zeros_like()).collect();
        }
        let grads = self.y.backward_with(g)?;
        self.leaves
            .iter()
            .map(|x| {
                if grads.contains(x) {
                    grads.get(x).cloned()
                } else {
                    x.to(&self.inner)?.zeros_like()
                }
            })
            .collect()
    }
}
