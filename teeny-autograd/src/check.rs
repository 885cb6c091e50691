//! Gradient checks: gradients of the rules against finite differences.

use crate::device::Autograd;
use crate::grad::Grad;
use crate::mode::{enable_grad, no_grad};
use teeny_core::context::enter;
use teeny_core::{DType, DeviceRef, Distribution, Error, Key, Result, Tensor};

teeny_core::options! {
    /// How a gradient is checked; by default with step 1e-5, errors below 1e-6, and floor 1e-2.
    #[derive(Clone, Copy, Debug)]
    pub struct Check {
        /// The step of the central difference.
        eps: f64 = 1e-5, with_eps;
        /// The largest relative error that passes.
        tolerance: f64 = 1e-6, with_tolerance;
        /// Errors are relative to the gradient, or to this where the gradient is smaller: rounding
        /// of the function over `eps` is about 1e-10 alone.
        floor: f64 = 1e-2, with_floor;
    }
}

/// The worst element of a check that passed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many partial derivatives were compared.
    pub checked: usize,
    /// The largest relative error.
    pub error: f64,
    /// Which input it was in.
    pub input: usize,
    /// Where in it, in row-major order.
    pub element: usize,
    /// The derivative by the rules.
    pub analytic: f64,
    /// The central difference.
    pub numeric: f64,
}

/// Compares the gradients of `f` with central differences, for every element of every `F64` input;
/// other inputs are constants.
///
/// A result of several elements is projected on a fixed direction. Inputs may be on any device;
/// they are wrapped in an [`Autograd`] device where they are not on one. `f` is called twice per
/// element, so keep the inputs small, and away from kinks.
///
/// # Errors
/// [`teeny_core::ErrorKind::Gradient`] with the worst element if an error is above the tolerance;
/// errors of `f`; inputs without an `F64` among them.
///
/// # Example
/// ```
/// use teeny_autograd::{Check, gradcheck};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([0.3f64, -1.2], &Reference::new())?; // (2)
/// let report = gradcheck(|x| x[0].sin()?.mul(&x[0]), &[x], &Check::default())?;
/// assert_eq!(report.checked, 2);
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.autograd.gradcheck`.
#[track_caller]
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    check: &Check,
) -> Result<Report> {
    let (device, inputs) = {
        let _op = enter("gradcheck");
        on_autograd(inputs)?
    };
    let y = no_grad(|| f(&inputs))?;
    let direction = direction(&y, &device)?;
    let weights = direction.to_vec::<f64>()?;
    let analytic = enable_grad(|| analytic(&f, &inputs, &direction))?;

    let mut worst = Report::default();
    let mut checked = 0;
    for (i, x) in inputs.iter().enumerate().filter(|(_, x)| x.dtype() == DType::F64) {
        let values = x.to_vec::<f64>()?;
        for element in 0..values.len() {
            let shifted = |step: f64| -> Result<Vec<f64>> {
                let mut values = values.clone();
                values[element] += step;
                let mut inputs = inputs.clone();
                inputs[i] = Tensor::from_vec(values, x.shape(), &device)?;
                no_grad(|| f(&inputs))?.to_vec::<f64>()
            };
            let (high, low) = (shifted(check.eps)?, shifted(-check.eps)?);
            let numeric: f64 = high
                .iter()
                .zip(&low)
                .zip(&weights)
                .map(|((h, l), w)| w * (h - l) / (2.0 * check.eps))
                .sum();
            let analytic = analytic[i][element];
            let error =
                (analytic - numeric).abs() / analytic.abs().max(numeric.abs()).max(check.floor);
            checked += 1;
            // A NaN is worse than anything, and stays.
            if error.is_nan() || error > worst.error {
                worst = Report { checked, error, input: i, element, analytic, numeric };
            }
        }
    }
    worst.checked = checked;
    if worst.error <= check.tolerance {
        return Ok(worst);
    }
    let _op = enter("gradcheck");
    let Report { error, input, element, analytic, numeric, .. } = worst;
    let what = format!(
        "input {input}, element {element}: the gradient is {analytic:?}, central differences \
         give {numeric:?} (relative error {error:.1e})"
    );
    Err(Error::gradient(what)
        .note(format!("{checked} elements compared, tolerance {:.0e}", check.tolerance)))
}

/// [`gradcheck`] of the gradient of `f`: every rule's own backward pass is differentiated, by an
/// autograd device over another.
///
/// # Errors
/// As [`gradcheck`].
///
/// Equivalent: `torch.autograd.gradgradcheck`.
#[track_caller]
pub fn gradgradcheck(
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    check: &Check,
) -> Result<Report> {
    let (first, mut inputs) = {
        let _op = enter("gradgradcheck");
        on_autograd(inputs)?
    };
    let second = Autograd::new(first.clone());
    let y = no_grad(|| f(&inputs))?;
    inputs.push(direction(&y, &first)?);
    let gradient = |inputs: &[Tensor]| -> Result<Tensor> {
        let (v, inputs) = inputs.split_last().ok_or_else(|| Error::internal("no direction"))?;
        // The outer level records always; whether the inner one does is the caller's mode.
        let lift = |x: &Tensor| {
            if x.dtype() == DType::F64 { x.to(&second)?.requires_grad() } else { x.to(&second) }
        };
        let lifted = inputs.iter().map(lift).collect::<Result<Vec<_>>>()?;
        let grads = enable_grad(|| f(&lifted)?.backward_with(v))?;
        let mut sum = Tensor::zeros((), DType::F64, &first)?;
        for x in lifted.iter().filter(|x| grads.contains(x)) {
            let g = grads.get(x)?;
            sum = sum.add(&g.mul(&direction(g, &first)?)?.sum_all()?)?;
        }
        Ok(sum)
    };
    gradcheck(gradient, &inputs, check)
}

/// The inputs as untracked tensors of one autograd device.
fn on_autograd(inputs: &[Tensor]) -> Result<(DeviceRef, Vec<Tensor>)> {
    if !inputs.iter().any(|x| x.dtype() == DType::F64) {
        return Err(Error::gradient("nothing to check: no input is f64")
            .help("x.cast(DType::F64)? converts"));
    }
    let device = match inputs.iter().find(|x| x.device().downcast_ref::<Autograd>().is_some()) {
        Some(x) => x.device().clone(),
        None => Autograd::new(&inputs[0]) as DeviceRef,
    };
    let inputs = inputs.iter().map(|x| x.to(&device)?.detach()).collect::<Result<_>>()?;
    Ok((device, inputs))
}

/// A fixed direction in the shape of `y`, away from 0, so that no element's error is hidden.
fn direction(y: &Tensor, device: &DeviceRef) -> Result<Tensor> {
    Tensor::random(
        Distribution::Uniform { low: 0.5, high: 1.5 },
        y.shape(),
        DType::F64,
        Key { seed: 20, draw: 26 },
        device,
    )
}

/// The gradients by the rules. A missing one is zeros, which the differences then check.
fn analytic(
    f: &impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
    direction: &Tensor,
) -> Result<Vec<Vec<f64>>> {
    let leaf = |x: &Tensor| if x.dtype() == DType::F64 { x.requires_grad() } else { Ok(x.clone()) };
    let leaves = inputs.iter().map(leaf).collect::<Result<Vec<_>>>()?;
    let y = f(&leaves)?;
    let grads = if y.is_tracked() { Some(y.into_backward_with(direction)?) } else { None };
    let vector = |x: &Tensor| match grads.as_ref().filter(|grads| grads.contains(x)) {
        Some(grads) => grads.get(x)?.to_vec::<f64>(),
        None => Ok(vec![0.0; x.numel()]),
    };
    leaves.iter().map(vector).collect()
}
