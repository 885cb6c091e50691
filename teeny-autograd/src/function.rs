//! User-defined operations: a forward and a backward function.

use crate::device::Autograd;
use crate::node::Backward;
use crate::record::Operands;
use crate::storage::{Tracked, own, unwrap};
use teeny_core::context::enter;
use teeny_core::device::common;
use teeny_core::{Error, Result, Tensor};

/// The tensors that a function saves in its forward pass for its backward pass.
pub struct Saved {
    tensors: Vec<Tensor>,
    is_needed: bool,
}

impl Saved {
    /// Keeps `x`, a handle, not a copy; nothing unless there will be a backward pass.
    pub fn save_for_backward(&mut self, x: &Tensor) {
        if self.is_needed {
            self.tensors.push(x.clone());
        }
    }

    /// Whether there may be a backward pass. If not, tensors that only it needs can be skipped.
    ///
    /// Equivalent: `any(ctx.needs_input_grad)` and `torch.is_grad_enabled()`.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// The saved tensors, in order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

/// An operation with a user-defined gradient: where the symbolic derivative would be slow, unstable
/// or not the intended one.
///
/// Both functions see tensors of the inner device: they are not recorded, run on every device, and
/// where the inner device is itself an autograd device the backward function can be differentiated
/// again. A formula that is only elementwise needs none of this: [`teeny_core::map`] has a
/// derivative.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Function, Grad, Saved, apply};
/// use teeny_core::{Reference, Result, Tensor};
///
/// /// Rounds, with the gradient of the identity: a straight-through estimator (Bengio et al.
/// /// 2013, arXiv:1308.3432).
/// struct Quantize;
/// impl Function for Quantize {
///     fn name(&self) -> &'static str {
///         "quantize"
///     }
///     fn forward(&self, inputs: &[&Tensor], _saved: &mut Saved) -> Result<Tensor> {
///         inputs[0].round()
///     }
///     fn backward(&self, _saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(g.clone())])
///     }
/// }
/// # fn main() -> Result<()> {
/// let device = Autograd::new(Reference::new());
/// let x = Tensor::new([0.4f32, 1.7], &device)?.requires_grad()?; // (2)
/// let y = apply(Quantize, &[&x])?; // (2)
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0]);
/// assert_eq!(y.sum_all()?.backward()?.get(&x)?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.autograd.Function`.
pub trait Function: Send + Sync + 'static {
    /// The name in messages.
    fn name(&self) -> &'static str;

    /// Returns the result and saves the tensors that the backward function needs in `saved`.
    ///
    /// # Errors
    /// The errors of the operations used.
    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor>;

    /// The gradients of the inputs, one per input in its shape and type (`None`: no gradient flows
    /// there), from the gradient `g` of the result.
    ///
    /// # Errors
    /// The errors of the operations used.
    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>>;
}

/// Runs `function` on `inputs`, recorded as one operation if an input is tracked. On a device
/// without autograd only the forward function runs.
///
/// # Errors
/// If `inputs` is empty, they are on unrelated devices, or the forward function fails. The backward
/// pass reports, by name, a backward function that returns a wrong number of gradients, or one of a
/// wrong shape or dtype.
#[track_caller]
pub fn apply(function: impl Function, inputs: &[&Tensor]) -> Result<Tensor> {
    let _op = enter(function.name());
    applied(Box::new(function), inputs)
}

fn applied(function: Box<dyn Function>, inputs: &[&Tensor]) -> Result<Tensor> {
    let name = function.name();
    let Some(first) = inputs.first() else {
        return Err(Error::value("needs at least one tensor, whose device does the work"));
    };
    let device =
        inputs.iter().try_fold(first.device().clone(), |device, x| common(&device, x.device()))?;
    let inputs = inputs.iter().map(|x| x.to(&device)).collect::<Result<Vec<_>>>()?;
    let outer: Vec<&Tensor> = inputs.iter().collect();
    let mut saved = Saved { tensors: Vec::new(), is_needed: false };
    if device.downcast_ref::<Autograd>().is_none() {
        return function.forward(&outer, &mut saved);
    }
    let operands = Operands::of(&outer)?;
    saved.is_needed = operands.recording;
    let inner = inputs.iter().map(unwrap).collect::<Result<Vec<_>>>()?;
    let value = own(function.forward(&inner.iter().collect::<Vec<_>>(), &mut saved)?)?;
    let (shape, dtype) = (*value.shape(), value.dtype());
    let storage = if !operands.recording {
        Tracked::storage(value, None, operands.detach_points)
    } else if !dtype.is_float() {
        Tracked::storage(value, None, operands.stopped().detach_points)
    } else {
        let forms: Vec<_> = inner.iter().map(|x| (*x.shape(), x.dtype())).collect();
        let backward: Backward = Box::new(move |g| {
            let Some(g) = &g[0] else { return Ok(vec![None; forms.len()]) };
            let grads = function.backward(&saved, g)?;
            if grads.len() != forms.len() {
                return Err(Error::gradient(format!(
                    "the backward function of {name} gave {} gradients for {} inputs",
                    grads.len(),
                    forms.len()
                )));
            }
            for (i, (g, (shape, dtype))) in grads.iter().zip(&forms).enumerate() {
                if let Some(g) = g.as_ref().filter(|g| g.shape() != shape || g.dtype() != *dtype) {
                    let what = format!(
                        "the backward function of {name} gave {} {} for input {i}, which is \
                         {dtype} {shape}",
                        g.dtype(),
                        g.shape()
                    );
                    return Err(Error::gradient(what));
                }
            }
            Ok(grads)
        });
        {
            let edges = operands.edges();
            operands.store("function", value, edges, backward)
        }
    };
    Tensor::from_result(storage, shape, dtype, device)
}
