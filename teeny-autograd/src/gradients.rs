//! The result of a backward pass: the gradients of leaves and of retained values, by tensor.

use crate::backward::{Kept, KeptGrad};
use crate::detach_points::{self, DetachPoints};
use crate::node::{Handle, Node};
use crate::storage::try_tracked;
use std::collections::hash_map::Entry;
use std::fmt;
use teeny_core::context::enter;
use teeny_core::{Error, Layout, Result, Tensor};

/// Gradients by tensor. They are row-major tensors of the inner device, with the shape and type of
/// their values; gradients of 16-bit values may be set to f32.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Grad};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(Reference::new());
/// let x = Tensor::new([3.0f64], &device)?.requires_grad()?; // (1)
/// let loss = x.mul(&x)?.add(&x)?.sum_all()?; // ()
/// let mut grads = loss.backward()?;
/// assert_eq!(grads.get(&x)?.to_vec::<f64>()?, [7.0]);
/// grads.accumulate(&loss.backward()?)?; // a second pass adds to the first
/// assert_eq!(grads.get(&x)?.to_vec::<f64>()?, [14.0]);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Gradients {
    pub(crate) kept: Kept,
    /// The detach points of the loss.
    pub(crate) detach_points: DetachPoints,
}

/// The tensor and the shape of each gradient, without the elements.
impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.kept.iter().collect();
        all.sort_by_key(|(key, _)| **key);
        f.debug_map()
            .entries(all.into_iter().map(|(_, kept)| (kept.node.describe(), *kept.view().shape())))
            .finish()
    }
}

impl Gradients {
    /// No gradients; [`Gradients::set`] adds them.
    pub fn new() -> Gradients {
        Gradients::default()
    }

    /// The gradient of `x`, a leaf or a retained value.
    ///
    /// # Errors
    /// [`teeny_core::ErrorKind::Gradient`] if it is missing: the message names the operation and
    /// line that stopped it, or states that the loss does not depend on `x`, that `x` is an
    /// intermediate that was not retained, a view of something else, or an older or newer value of
    /// a parameter.
    #[track_caller]
    pub fn get(&self, x: &Tensor) -> Result<&Tensor> {
        let _op = enter("grads.get");
        let handle = self.handle(x)?;
        self.kept.get(&handle.key()).ok_or_else(|| self.missing(&handle))?.get()
    }

    /// The gradient of `x`, removed from here.
    ///
    /// # Errors
    /// As [`Gradients::get`].
    #[track_caller]
    pub fn take(&mut self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("grads.take");
        let handle = self.handle(x)?;
        self.kept.remove(&handle.key()).ok_or_else(|| self.missing(&handle))?.into_tensor()
    }

    /// Puts `g` in the place of the gradient of `x`, e.g. a clipped one.
    ///
    /// # Errors
    /// If `x` is not tracked, or `g` has another shape or type.
    #[track_caller]
    pub fn set(&mut self, x: &Tensor, g: Tensor) -> Result<()> {
        let _op = enter("grads.set");
        let handle = self.handle(x)?;
        require_like(&handle, &g)?;
        self.kept.insert(handle.key(), KeptGrad::new(handle.node, g));
        Ok(())
    }

    /// True if there is a gradient of `x`.
    pub fn contains(&self, x: &Tensor) -> bool {
        self.handle(x).is_ok_and(|handle| self.kept.contains_key(&handle.key()))
    }

    /// True if these are gradients of another value of the parameter that `x` is: one that a step
    /// or `set` has replaced, or the one that has replaced `x`. Values of one parameter are
    /// recognised by their name.
    pub fn is_stale(&self, x: &Tensor) -> bool {
        self.handle(x).is_ok_and(|handle| {
            !self.kept.contains_key(&handle.key()) && self.namesake(&handle).is_some()
        })
    }

    /// How many gradients there are.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// True if no gradient is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Adds the gradients of another backward pass to these. Sums are new tensors; tensors
    /// read before keep their values.
    ///
    /// # Errors
    /// If the device fails.
    #[track_caller]
    pub fn accumulate(&mut self, other: &Gradients) -> Result<()> {
        let _op = enter("grads.accumulate");
        for (key, theirs) in &other.kept {
            match self.kept.entry(*key) {
                Entry::Occupied(mut mine) => {
                    let sum = mine.get().get()?.add(theirs.get()?)?;
                    *mine.get_mut() = KeptGrad::new(theirs.node.clone(), sum);
                }
                Entry::Vacant(place) => {
                    place.insert(theirs.clone());
                }
            }
        }
        self.detach_points.merge(&other.detach_points);
        Ok(())
    }

    /// Every gradient replaced by `f` of it, e.g. a multiple for clipping by the global norm.
    ///
    /// # Errors
    /// The first error of `f`, or a result of another shape or type.
    #[track_caller]
    pub fn map(mut self, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Gradients> {
        for (key, kept) in &mut self.kept {
            let (node, new) = (kept.node.clone(), f(kept.get()?)?);
            require_like(&Handle { node: node.clone(), output: key.1 }, &new)?;
            *kept = KeptGrad::new(node, new);
        }
        Ok(self)
    }

    /// All gradients, in the order in which their tensors were made. Without memory for a row-major
    /// copy, one that repeats elements is a view, which cannot be assigned to.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        let mut all: Vec<_> = self.kept.iter().collect();
        all.sort_by_key(|(key, _)| **key);
        all.into_iter().map(|(_, kept)| kept.get().unwrap_or(kept.view()))
    }

    /// The value in the graph that `x` is.
    fn handle(&self, x: &Tensor) -> Result<Handle> {
        let Some(storage) = try_tracked(x) else {
            let device = x.device().info().name;
            return Err(Error::gradient(format!(
                "the tensor {} is on {device}, which records nothing",
                x.shape()
            )));
        };
        let Some(handle) = &storage.handle else {
            let error = Error::gradient(match storage.detach_points.iter().last() {
                Some(point) => {
                    format!("no gradient reaches the tensor {}: {}", x.shape(), point.describe())
                }
                None => {
                    format!("no gradient reaches the tensor {}: it does not require one", x.shape())
                }
            });
            return Err(error.help("ask for the gradient of a tensor made by x.requires_grad()?"));
        };
        if *x.layout() != Layout::contiguous(handle.value().shape) {
            let error = Error::gradient(format!(
                "the tensor {} is a view of {} {}",
                x.shape(),
                handle.node.describe(),
                handle.value().shape
            ));
            return Err(error.help(
                "ask for the gradient of that tensor, or call \
                 x.retain_grad()? on the view before it is used",
            ));
        }
        Ok(handle.clone())
    }

    /// A leaf of the same name that has a gradient here: another value of the same parameter.
    fn namesake(&self, handle: &Handle) -> Option<&Node> {
        let name = handle.node.name()?;
        self.kept.values().map(|kept| &*kept.node).find(|node| node.name() == Some(name))
    }

    /// The error that explains why a tracked value has no gradient.
    fn missing(&self, handle: &Handle) -> Error {
        let name = handle.node.describe();
        if let Some(other) = self.namesake(handle) {
            let (age, help) = if other.id < handle.node.id {
                (
                    "an earlier value, which a step or `set` has replaced since, or of another \
                     store's parameter",
                    "compute loss and gradients again after a step; ask for gradients of the \
                     store whose parameters the loss uses",
                )
            } else {
                (
                    "a later value: this tensor is one that a step or `set` has replaced",
                    "call param.value() again after a step",
                )
            };
            return Error::gradient(format!(
                "this value of {name} has no gradient: the gradient is of {age}"
            ))
            .note(
                "parameters are recognised by name: put models with equal names on \
                 separate stores and losses",
            )
            .help(help);
        }
        let mut detach_points =
            self.detach_points.iter().filter(|point| point.mask & handle.node.mask != 0);
        if let (false, true) = (
            handle.node.is_leaf(),
            self.kept.values().any(|kept| kept.node.mask & handle.node.mask != 0),
        ) {
            return Error::gradient(format!(
                "the gradient of {name} was not kept, because it is an intermediate result"
            ))
            .help("let x = x.retain_grad()? before the backward pass keeps it");
        }
        match detach_points.next() {
            Some(point) => {
                let error =
                    Error::gradient(format!("no gradient reaches {name}: {}", point.describe()));
                detach_points.fold(error, |e, c| e.note(format!("also {}", c.describe())))
            }
            None => {
                let error = Error::gradient(format!(
                    "no gradient reaches {name}: the loss does not depend on it"
                ))
                .help(
                    "was its layer called? a parameter that is not to be \
                     trained is frozen or left out of the optimizer",
                );
                // The first 128 leaves have unique bits: with more of them it may be another leaf's
                // value.
                let left = detach_points::moves_of(handle.node.mask);
                match left.first().and_then(|point| Some((point.op, point.location?))) {
                    Some((op, place)) => error.note(format!(
                        "a value that may depend on it left the device by `{op}` at {}:{}: the \
                         copy has no history; if it came back into the loss, keep it on the device \
                         that records",
                        place.file(),
                        place.line()
                    )),
                    None => error,
                }
            }
        }
    }
}

/// An error unless `g` has the shape and type of the value.
pub(crate) fn require_like(handle: &Handle, g: &Tensor) -> Result<()> {
    let value = handle.value();
    if *g.shape() == value.shape && [value.dtype, value.dtype.compute()].contains(&g.dtype()) {
        return Ok(());
    }
    Err(Error::gradient(format!(
        "a gradient of {} {} does not fit a value of {} {}",
        g.dtype(),
        g.shape(),
        value.dtype,
        value.shape
    )))
}
