//! Gradient clipping, between the backward pass and the step.

use crate::store::Param;
use teeny_autograd::Gradients;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// Scales the gradients of `params` so that their total norm is at most `max_norm`; returns the
/// norm before that.
///
/// `norm = sqrt(Σ g²)` over all elements; each g is multiplied by `max_norm / (norm + 1e-6)` if
/// that is below 1. Reading the norm waits for the device. Frozen parameters are skipped. With a
/// [`super::LossScale`], clip to `max_norm * scale.factor()`.
///
/// Equivalent: `torch.nn.utils.clip_grad_norm_(.., error_if_nonfinite=True)`. Source: Pascanu,
/// Mikolov & Bengio 2012, arXiv:1211.5063.
///
/// # Errors
/// If a parameter has no gradient, or the norm is not finite: the error names the first parameter
/// whose gradient is not finite. Nothing has changed then.
///
/// # Example
/// ```
/// # use teeny_core::{Result, Tensor}; use teeny_autograd::Grad;
/// # use teeny_nn::{Store, optim::{Optimizer, clip_grad_norm}};
/// # fn demo(store: &Store, loss: &Tensor, optimizer: &mut dyn Optimizer) -> Result<()> {
/// let mut gradients = loss.backward()?;
/// let norm = clip_grad_norm(&mut gradients, &store.trainable(), 1.0)?;
/// optimizer.step(&gradients)?;
/// # let _ = norm; Ok(()) }
/// ```
#[track_caller]
pub fn clip_grad_norm(gradients: &mut Gradients, params: &[Param], max_norm: f64) -> Result<f64> {
    let _op = enter("clip_grad_norm");
    if max_norm.is_nan() || max_norm <= 0.0 {
        return Err(Error::value(format!("gradients cannot be clipped to a norm of {max_norm}"))
            .help("a number above 0, often 1.0"));
    }
    let params: Vec<&Param> = params.iter().filter(|p| p.is_trainable()).collect();
    if params.is_empty() {
        return Ok(0.0);
    }
    let mut squares = Vec::with_capacity(params.len());
    for param in &params {
        let g = gradients.get(&param.value())?;
        squares.push(g.cast(g.dtype().compute())?.square()?.sum_all()?.reshape((1,))?); // (1)
    }
    let squares: Vec<f64> = read(&squares)?;
    let norm = squares.iter().sum::<f64>().sqrt();
    if !norm.is_finite() {
        let first =
            squares.iter().position(|s| !s.is_finite()).map_or("the sum", |i| params[i].name());
        let text = format!(
            "the norm of the gradients is {norm}; the first that is not finite is that of {first:?}"
        );
        return Err(Error::value(text).help(
            "is the learning rate too high, or the loss not finite? require_finite stops at it",
        ));
    }
    let factor = max_norm / (norm + 1e-6);
    if factor < 1.0 {
        replace(gradients, params, |g| g.mul(factor))?;
    }
    Ok(norm)
}

/// Clamps every element of the gradients of `params` to `-limit..=limit`. Frozen parameters are
/// skipped; NaN stays NaN.
///
/// Equivalent: `torch.nn.utils.clip_grad_value_`.
///
/// # Errors
/// If a parameter has no gradient, or the limit is negative or NaN. Nothing has changed then.
#[track_caller]
pub fn clip_grad_value(gradients: &mut Gradients, params: &[Param], limit: f64) -> Result<()> {
    let _op = enter("clip_grad_value");
    if limit.is_nan() || limit < 0.0 {
        return Err(Error::value(format!("gradients cannot be clipped to {limit}"))
            .help("a limit of 0 or more"));
    }
    replace(gradients, params.iter().filter(|p| p.is_trainable()), |g| g.clamp(-limit, limit))
}

/// Replaces the gradients of `params` by `f(gradient)`: all of them, or none after an error.
fn replace<'a>(
    gradients: &mut Gradients,
    params: impl IntoIterator<Item = &'a Param>,
    f: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let mut new = gradients.clone(); // handles, not elements
    for param in params {
        let value = param.value();
        let g = f(gradients.get(&value)?)?;
        new.set(&value, g)?;
    }
    *gradients = new;
    Ok(())
}

/// The values of tensors (1), in one transfer if their dtypes agree.
pub(super) fn read(tensors: &[Tensor]) -> Result<Vec<f64>> {
    let dtype = tensors[0].dtype();
    let parts = if tensors.iter().all(|t| t.dtype() == dtype) {
        vec![Tensor::cat(&tensors.iter().collect::<Vec<_>>(), 0)?]
    } else {
        tensors.to_vec()
    };
    let parts = parts.iter().map(Tensor::to_scalars).collect::<Result<Vec<_>>>()?;
    Ok(parts.concat().into_iter().map(|s| s.to_f64()).collect())
}
