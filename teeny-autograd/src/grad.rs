//! [`Grad`]: the methods that autograd adds to `Tensor`.

use crate::backward::{self, Kept};
use crate::detach_points::DetachPoints;
use crate::device::{Autograd, from_inner};
use crate::dual::{Dual, try_dual};
use crate::gradients::Gradients;
use crate::hooks::{Hook, HookFn};
use crate::mode;
use crate::node::{Handle, Node, Value};
use crate::record::{Operands, Rule, current_detach_point};
use crate::storage::{Tracked, own, tracked, try_tracked, unwrap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use teeny_core::context::{self, enter};
use teeny_core::{DType, Error, Layout, Result, Tensor};

/// Gradients for tensors of an [`Autograd`] device.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Grad};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(Reference::new());
/// let w = Tensor::new([[1.0f64, 2.0], [3.0, 4.0]], &device)?.requires_grad()?; // (2, 2)
/// let x = Tensor::new([1.0f64, -1.0], &device)?; // (2)
/// let loss = w.matmul(&x)?.square()?.sum_all()?; // ()
/// let grads = loss.backward()?;
/// assert_eq!(grads.get(&w)?.to_vec::<f64>()?, [-2.0, 2.0, -2.0, 2.0]);
/// # Ok(()) }
/// ```
pub trait Grad: Sized {
    /// A new leaf with the same elements: a tensor whose gradient a backward pass keeps. No
    /// gradient passes through it to the values it was computed from.
    ///
    /// # Errors
    /// If the tensor is not on an autograd device, or not of floats.
    #[track_caller]
    fn requires_grad(&self) -> Result<Tensor>;

    /// [`Grad::requires_grad`] with a name for messages, e.g. `fc1.weight`.
    ///
    /// # Errors
    /// As [`Grad::requires_grad`].
    #[track_caller]
    fn requires_grad_named(&self, name: &str) -> Result<Tensor>;

    /// True if a gradient can flow back through this tensor: it is a leaf, or was computed from one
    /// while recording was on.
    fn is_tracked(&self) -> bool;

    /// True if this is a leaf or a view of one.
    fn is_leaf(&self) -> bool;

    /// The same elements without a history: gradients of every order stop here, and tangents.
    /// Nothing is copied.
    ///
    /// # Errors
    /// None at present.
    #[track_caller]
    fn detach(&self) -> Result<Tensor>;

    /// This value with its gradient kept by later backward passes. Use the returned tensor from
    /// here on: of a view it is a copy, recorded as a value.
    ///
    /// # Errors
    /// If the tensor is not tracked.
    #[track_caller]
    #[must_use = "the gradient of the returned tensor is kept"]
    fn retain_grad(&self) -> Result<Tensor>;

    /// Calls `hook` with the complete gradient of this tensor in every backward pass. A returned
    /// tensor replaces the gradient.
    ///
    /// # Errors
    /// If the tensor is not tracked, or is a view (register on the value itself, or on
    /// `x.retain_grad()?`).
    #[track_caller]
    fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<Hook>;

    /// The gradients of this scalar. The graph stays: a second call returns the same.
    ///
    /// # Errors
    /// [`teeny_core::ErrorKind::Gradient`] if the tensor has more than one element, is not of
    /// floats, or has no history. The error of a rule names the operation it belongs to.
    #[track_caller]
    fn backward(&self) -> Result<Gradients>;

    /// The gradients of `sum(g * self)`: the vector-Jacobian product. `g` has the shape and type of
    /// self, on its device or the inner device.
    ///
    /// # Errors
    /// As [`Grad::backward`]; `g` may not have another shape or type.
    #[track_caller]
    fn backward_with(&self, g: &Tensor) -> Result<Gradients>;

    /// The number of this leaf in [`Grad::backward_each`]: no other leaf of the process has it.
    /// `None` if the tensor is not a leaf, or is a view of one.
    fn leaf_id(&self) -> Option<u64>;

    /// [`Grad::backward_with`] that calls `each` with the [`Grad::leaf_id`] and the gradient of a
    /// leaf as soon as that gradient is complete, while the pass goes on: the last layers come
    /// first. Without `g` it is [`Grad::backward`].
    ///
    /// # Errors
    /// As [`Grad::backward_with`]; the first error of `each`.
    #[track_caller]
    fn backward_each(
        &self,
        g: Option<&Tensor>,
        each: &mut dyn FnMut(u64, &Tensor) -> Result<()>,
    ) -> Result<Gradients>;

    /// [`Grad::backward`] that takes the loss: the saved tensors of each operation are freed as
    /// soon as its rule has run, unless the graph has another owner.
    ///
    /// # Errors
    /// As [`Grad::backward`].
    #[track_caller]
    fn into_backward(self) -> Result<Gradients>;

    /// [`Grad::backward_with`] that takes the tensor, as [`Grad::into_backward`] does.
    ///
    /// # Errors
    /// As [`Grad::backward_with`].
    #[track_caller]
    fn into_backward_with(self, g: &Tensor) -> Result<Gradients>;
}

impl Grad for Tensor {
    #[track_caller]
    fn requires_grad(&self) -> Result<Tensor> {
        let _op = enter("requires_grad");
        leaf(self, None)
    }

    #[track_caller]
    fn requires_grad_named(&self, name: &str) -> Result<Tensor> {
        let _op = enter("requires_grad");
        leaf(self, Some(name.into()))
    }

    fn is_tracked(&self) -> bool {
        try_tracked(self).is_some_and(|s| s.handle.is_some())
    }

    fn is_leaf(&self) -> bool {
        try_tracked(self).and_then(|s| s.handle.as_ref()).is_some_and(|h| h.node.is_leaf())
    }

    #[track_caller]
    fn detach(&self) -> Result<Tensor> {
        let _op = enter("detach");
        // The result stays on its autograd device, whose storages are all `Tracked`.
        let storage = match (try_tracked(self), try_dual(self)) {
            (Some(Tracked { inner, handle, detach_points }), _) => Tracked::storage(
                inner.detach()?,
                None,
                with_detach_point(handle.as_ref(), detach_points),
            ),
            (None, Some(dual)) => Dual::storage(dual.value.detach()?, None)?,
            (None, None) => return Ok(self.clone()),
        };
        Tensor::from_parts(storage, *self.layout(), self.dtype(), self.device().clone())
    }

    #[track_caller]
    fn retain_grad(&self) -> Result<Tensor> {
        let _op = enter("retain_grad");
        let handle = tracked_handle(self)?;
        let whole = *self.layout() == Layout::contiguous(handle.value().shape);
        let value = if whole { self.clone() } else { own_value(self)? };
        tracked_handle(&value)?.node.retain.store(true, Ordering::Relaxed);
        Ok(value)
    }

    #[track_caller]
    fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<Hook> {
        let _op = enter("register_hook");
        let handle = tracked_handle(self)?;
        if *self.layout() != Layout::contiguous(handle.value().shape) || handle.output != 0 {
            let error = Error::gradient(format!(
                "{} is a view of {} {}",
                self.shape(),
                handle.node.describe(),
                handle.value().shape
            ));
            return Err(error.help("let x = x.retain_grad()? makes the view a separate value"));
        }
        let hook: Arc<HookFn> = Arc::new(hook);
        let registered = Hook::new(&handle.node, &hook);
        handle.node.hooks.push(hook);
        Ok(registered)
    }

    #[track_caller]
    fn backward(&self) -> Result<Gradients> {
        self.clone().into_backward()
    }

    #[track_caller]
    fn backward_with(&self, g: &Tensor) -> Result<Gradients> {
        self.clone().into_backward_with(g)
    }

    fn leaf_id(&self) -> Option<u64> {
        let handle = try_tracked(self)?.handle.as_ref()?;
        let whole = *self.layout() == Layout::contiguous(handle.value().shape);
        (whole && handle.node.is_leaf()).then_some(handle.node.id)
    }

    #[track_caller]
    fn backward_each(
        &self,
        g: Option<&Tensor>,
        each: &mut dyn FnMut(u64, &Tensor) -> Result<()>,
    ) -> Result<Gradients> {
        let _op = enter("backward");
        let start = start(self, g)?;
        start.run(|root, g, points| backward::run_each(root, g, points, each))
    }

    #[track_caller]
    fn into_backward(self) -> Result<Gradients> {
        let _op = enter("backward");
        let start = start(&self, None)?;
        // This may be the last handle of the loss: dropping it lets the backward pass free memory.
        drop(self);
        start.run(backward::run)
    }

    #[track_caller]
    fn into_backward_with(self, g: &Tensor) -> Result<Gradients> {
        let _op = enter("backward_with");
        let start = start(&self, Some(g))?;
        drop(self);
        start.run(backward::run)
    }
}

/// Where a backward pass starts.
struct Start {
    root: Handle,
    detach_points: DetachPoints,
    /// The gradient of the root.
    g: Tensor,
}

/// A backward pass from `x`, whose gradient is `g`, or 1 for a scalar.
fn start(x: &Tensor, g: Option<&Tensor>) -> Result<Start> {
    let (root, detach_points, view) = history_of(x)?;
    let inner = unwrap(x)?;
    let g = match g {
        None if x.numel() != 1 => {
            let error = Error::gradient(format!(
                "the tensor {} is not a scalar, so its gradient needs a direction",
                x.shape()
            ));
            return Err(
                error.help("take the gradient of x.sum_all()?, or give one: x.backward_with(&g)?")
            );
        }
        None => inner.ones_like()?,
        Some(g) if g.shape() != x.shape() || g.dtype() != x.dtype() => {
            let what = format!(
                "expected a gradient of {} {}, got {} {}",
                x.dtype(),
                x.shape(),
                g.dtype(),
                g.shape()
            );
            return Err(Error::gradient(what).help("they need one shape and one type"));
        }
        Some(g) => g.to(inner.device())?,
    };
    let g = match view {
        Some(view) => crate::adjoint::adjoint(&view, &root.value().shape, &g)?,
        None => g,
    };
    Ok(Start { root, detach_points, g })
}

impl Start {
    fn run(
        self,
        pass: impl FnOnce(Handle, Tensor, &mut DetachPoints) -> Result<Kept>,
    ) -> Result<Gradients> {
        let Start { root, mut detach_points, g } = self;
        let kept = pass(root, g, &mut detach_points)?;
        Ok(Gradients { kept, detach_points })
    }
}

/// The same elements without a history on this device. Inner autograd devices keep theirs.
pub(crate) fn untracked(x: &Tensor) -> Result<Tensor> {
    let Some(Tracked { inner, handle: Some(handle), detach_points }) = try_tracked(x) else {
        return Ok(x.clone());
    };
    let storage =
        Tracked::storage(inner.clone(), None, with_detach_point(Some(handle), detach_points));
    Tensor::from_parts(storage, *x.layout(), x.dtype(), x.device().clone())
}

/// `detach_points`, and one where the history of `handle` ends.
fn with_detach_point(handle: Option<&Handle>, detach_points: &DetachPoints) -> DetachPoints {
    let mut detach_points = detach_points.clone();
    if let Some(handle) = handle {
        detach_points.push(current_detach_point(handle.node.mask));
    }
    detach_points
}

fn leaf(x: &Tensor, name: Option<Arc<str>>) -> Result<Tensor> {
    if !is_autograd(x) {
        let error = Error::gradient(format!("{} records no operations", x.device().info().name));
        return Err(error.help(
            "let device = Autograd::new(device); x.to(&device)? is a \
             tensor that can require a gradient",
        ));
    }
    if !x.dtype().is_float() {
        return Err(Error::gradient(format!("only floats have gradients, not {}", x.dtype()))
            .help("x.cast(DType::F32)? converts"));
    }
    let inner = own(unwrap(x)?)?;
    let mut detach_points = DetachPoints::default();
    if let Some(handle) = &tracked(x)?.handle {
        detach_points.push(current_detach_point(handle.node.mask));
    }
    let node = Arc::new(Node::leaf(Value::of(x), context::current(), name));
    let storage = Tracked::storage(inner, Some(Handle { node, output: 0 }), detach_points);
    Tensor::from_result(storage, *x.shape(), x.dtype(), x.device().clone())
}

fn is_autograd(x: &Tensor) -> bool {
    x.device().downcast_ref::<Autograd>().is_some()
}

/// The view as a separate recorded value, row-major; without a copy if it is one already.
fn own_value(x: &Tensor) -> Result<Tensor> {
    let inner = own(unwrap(x)?)?;
    let _on = mode::set(None);
    let outer = [x];
    let operands = Operands::of(&outer)?;
    let storage = if operands.recording {
        let Rule { backward, edges, .. } = Rule::new(&operands, |g| Ok([Some(g.clone())]));
        operands.store("retain_grad", inner, edges, backward)
    } else {
        Tracked::storage(inner, None, operands.detach_points)
    };
    from_inner(storage, x)
}

fn tracked_handle(x: &Tensor) -> Result<Handle> {
    let handle = try_tracked(x).and_then(|s| s.handle.clone());
    handle.ok_or_else(|| {
        Error::gradient(format!("the tensor {} has no gradient: it is not tracked", x.shape()))
    })
}

/// The value that a backward pass starts from, its detach points, and the view of it.
fn history_of(x: &Tensor) -> Result<(Handle, DetachPoints, Option<Layout>)> {
    if x.dtype() == DType::Bool || !x.dtype().is_float() {
        return Err(Error::gradient(format!("only floats have gradients, not {}", x.dtype())));
    }
    let Some(storage) = try_tracked(x) else {
        let error = Error::gradient(format!(
            "the tensor was computed on {}, which records nothing",
            x.device().info().name
        ));
        return Err(error
            .note("a gradient is a tensor of the device inside the autograd device")
            .help(
                "run the model on Autograd::new(device); for the gradient of a gradient nest: \
             grad(|x| grad(f, x)?.sum_all(), &x), or Autograd::new(Autograd::new(device))",
            ));
    };
    let Some(handle) = storage.handle.clone() else {
        let (why, help) = match storage.detach_points.iter().last() {
            Some(point) => (point.describe(), point.help()),
            None => (
                "nothing it was computed from requires a gradient".to_string(),
                "parameters are made by x.requires_grad()?",
            ),
        };
        return Err(Error::gradient(format!("the tensor has no history: {why}")).help(help));
    };
    let view = (*x.layout() != Layout::contiguous(handle.value().shape)).then(|| *x.layout());
    Ok((handle, storage.detach_points.clone(), view))
}
