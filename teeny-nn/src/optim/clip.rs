//! Gradient clipping, between the backward pass and the step.

use crate::store::Param;
use std::sync::Arc;
use teeny_autograd::Gradients;
use teeny_core::context::{continued, enter};
use teeny_core::{DType, Error, Expr, Kernel, Op, ReduceOp, Result, Scalar, Tensor};

/// Scales the gradients of `params` so that their total norm is at most `max_norm`; returns the
/// norm before that.
///
/// `norm = sqrt(Σ g²)` over all elements, scaled where squares leave the type's range; each g is
/// multiplied by `max_norm / (norm + 1e-6)` if that is below 1. Reading the norm waits for the
/// device. Frozen parameters are skipped. Gradients of a scaled loss are clipped after
/// [`super::LossScale::unscale`].
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
    clip_grad_norm_by(gradients, params, max_norm, |_, squares| Ok(squares))
}

/// [`clip_grad_norm`] as a future.
///
/// # Errors
/// As [`clip_grad_norm`].
#[track_caller]
pub fn clip_grad_norm_async<'a>(
    gradients: &'a mut Gradients,
    params: &[Param],
    max_norm: f64,
) -> impl Future<Output = Result<f64>> + use<'a> {
    let _op = enter("clip_grad_norm_async");
    let params: Vec<Param> = params.iter().filter(|p| p.is_trainable()).cloned().collect();
    let begun = of_params(gradients, &params, max_norm)
        .and_then(|all| Ok((read_async(&sums_of(&all, |g| g.square())?)?, all)));
    continued(async move {
        let (reading, all) = begun?;
        let squares = reading.await?;
        let again = Again::of(&all, &squares)?;
        let values = read_async(&again.sums)?.await?;
        clip_to(gradients, &params, max_norm, again.replace(squares, values))
    })
}

/// [`clip_grad_norm`] for gradients that are divided, for example over ranks: `combine` receives the
/// trainable parameters and the squared norms of this part, and returns the squared norms of the
/// complete gradients.
///
/// # Errors
/// As [`clip_grad_norm`], or of `combine`.
#[track_caller]
pub fn clip_grad_norm_by(
    gradients: &mut Gradients,
    params: &[Param],
    max_norm: f64,
    combine: impl FnOnce(&[Param], SquaredNorms) -> Result<SquaredNorms>,
) -> Result<f64> {
    let _op = enter("clip_grad_norm");
    let params: Vec<Param> = params.iter().filter(|p| p.is_trainable()).cloned().collect();
    let all = of_params(gradients, &params, max_norm)?;
    if params.is_empty() {
        return Ok(0.0);
    }
    let squares = combine(&params, SquaredNorms::of(&all)?)?;
    clip_to(gradients, &params, max_norm, squares)
}

/// Returns an error unless gradients can be clipped to `max_norm`.
pub(super) fn require_norm(max_norm: f64) -> Result<()> {
    if max_norm.is_nan() || max_norm <= 0.0 {
        return Err(Error::value(format!("gradients cannot be clipped to a norm of {max_norm}"))
            .help("a number above 0, often 1.0"));
    }
    Ok(())
}

/// The gradients of `params`.
fn of_params(gradients: &Gradients, params: &[Param], max_norm: f64) -> Result<Vec<Tensor>> {
    require_norm(max_norm)?;
    params.iter().map(|param| of_param(gradients, param)).collect()
}

/// The gradient of `param`; the error has a help line for parameters that need none.
fn of_param(gradients: &Gradients, param: &Param) -> Result<Tensor> {
    let help = "was its layer called? if it should not be trained: param.set_trainable(false)?; \
        params without it are clipped alone";
    super::gradient_or(gradients, param, help)
}

/// Squared norms of tensors whose elements are multiplied by `unit`.
#[derive(Clone, Debug)]
pub struct SquaredNorms {
    /// `Σ (x unit)²` by tensor.
    pub values: Vec<f64>,
    /// A power of two: 1 unless the squares of f64 would be infinite.
    pub unit: f64,
}

impl SquaredNorms {
    /// The squared norms of tensors.
    ///
    /// # Errors
    /// If the device fails.
    pub fn of(tensors: &[Tensor]) -> Result<SquaredNorms> {
        let squares = read(&sums_of(tensors, |x| x.square())?)?;
        let again = Again::of(tensors, &squares)?;
        let values = read(&again.sums)?;
        Ok(again.replace(squares, values))
    }

    /// The norm of the gradients of `params`, whose squared norms these are, and the factor that
    /// clips them to `max_norm` if it is below 1.
    ///
    /// # Errors
    /// If `max_norm` is not above 0, or the norm is not finite: the error names the first parameter
    /// whose gradient is not.
    pub fn clip_factor(&self, params: &[Param], max_norm: f64) -> Result<(f64, f64)> {
        require_norm(max_norm)?;
        let SquaredNorms { values, unit } = self;
        let norm = values.iter().sum::<f64>().sqrt() / unit;
        if !norm.is_finite() {
            let first = values.iter().position(|s| !s.is_finite());
            let first = first.map_or("the sum", |i| params[i].name());
            let text = format!(
                "the norm of the gradients is {norm}; the first gradient that is not finite: \
                 {first:?}"
            );
            return Err(Error::value(text).help(
                "is the learning rate too high, or the loss not finite? require_finite stops at it",
            ));
        }
        Ok((norm, max_norm / (norm + 1e-6)))
    }
}

/// Sums of squares that left the range of their type, or of f32 lost squares below it, of scaled
/// elements.
struct Again {
    /// Which sums, and the factor of the elements: a power of two.
    which: Vec<(usize, f64)>,
    sums: Vec<Tensor>,
}

/// The factor of f64 elements whose squares leave the range.
const UNIT: f64 = f64::from_bits((1023 - 600) << 52); // 2^-600

impl Again {
    fn of(tensors: &[Tensor], squares: &[f64]) -> Result<Again> {
        let (mut which, mut sums) = (Vec::new(), Vec::new());
        for (i, (x, &square)) in tensors.iter().zip(squares).enumerate() {
            let factor = match (square, x.dtype().compute()) {
                (1e300.., DType::F64) => UNIT,
                (f64::INFINITY, DType::F32) => 2f64.powi(-80),
                (..1e-30, DType::F32) => 2f64.powi(80),
                _ => continue,
            };
            which.push((i, factor));
            sums.extend(sums_of(std::slice::from_ref(x), |x| (x * factor).square())?);
        }
        Ok(Again { which, sums })
    }

    /// `squares` with these values of the sums.
    fn replace(&self, mut squares: Vec<f64>, values: Vec<f64>) -> SquaredNorms {
        let unit = if self.which.iter().any(|(_, factor)| *factor == UNIT) { UNIT } else { 1.0 };
        squares.iter_mut().for_each(|square| *square = *square * unit * unit);
        for (&(i, factor), value) in self.which.iter().zip(values) {
            squares[i] = value * (unit / factor) * (unit / factor);
        }
        SquaredNorms { values: squares, unit }
    }
}

/// Scales gradients with these squared norms; returns the norm.
fn clip_to(
    gradients: &mut Gradients,
    params: &[Param],
    max_norm: f64,
    squares: SquaredNorms,
) -> Result<f64> {
    let (norm, factor) = squares.clip_factor(params, max_norm)?;
    if factor < 1.0 {
        scale(gradients, params, factor)?;
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

/// Multiplies the gradients of `params` by `factor`: all of them, or none after an error.
fn scale(gradients: &mut Gradients, params: &[Param], factor: f64) -> Result<()> {
    let mut new = gradients.clone(); // handles, not elements
    let values: Vec<Tensor> = params.iter().map(|param| param.value()).collect();
    let all = params.iter().map(|param| of_param(gradients, param)).collect::<Result<Vec<_>>>()?;
    let mut rest: Vec<usize> = (0..all.len()).collect();
    // Gradients of one type are scaled together.
    while let Some(dtype) = rest.first().map(|&i| all[i].dtype()) {
        let (together, others): (Vec<usize>, Vec<usize>) =
            rest.into_iter().partition(|&i| all[i].dtype() == dtype);
        rest = others;
        // the program of `mul` by a number
        let compute = dtype.compute();
        let kernel = Kernel::build([dtype], [compute], |[g], [factor]| {
            [(g.cast(compute) * factor).cast(dtype)]
        })?;
        let factor = [Scalar::Float(factor)];
        let inputs: Vec<[&Tensor; 1]> = together.iter().map(|&i| [&all[i]]).collect();
        let launches: Vec<_> = inputs.iter().map(|g| (&g[..], &factor[..])).collect();
        for (&i, outputs) in together.iter().zip(Arc::new(kernel).run_many(&launches)?) {
            let [g] = super::outputs(outputs)?;
            new.set(&values[i], g)?;
        }
    }
    *gradients = new;
    Ok(())
}

/// Replaces the gradients of `params` by `f(gradient)`: all of them, or none after an error.
fn replace<'a>(
    gradients: &mut Gradients,
    params: impl IntoIterator<Item = &'a Param>,
    f: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let mut new = gradients.clone(); // handles, not elements
    for param in params {
        let g = f(&of_param(gradients, param)?)?;
        new.set(&param.value(), g)?;
    }
    *gradients = new;
    Ok(())
}

/// The sum of `f` of the elements of each tensor (1), in the dtype that they are computed in: one
/// pass over each.
pub(super) fn sums_of(
    tensors: &[Tensor],
    f: impl for<'b> Fn(Expr<'b>) -> Expr<'b>,
) -> Result<Vec<Tensor>> {
    let mut kernels: Vec<(DType, Arc<Kernel>)> = Vec::new();
    let mut sum = |x: &Tensor| {
        let dtype = x.dtype();
        let kernel = match kernels.iter().find(|(own, _)| *own == dtype) {
            Some((_, kernel)) => kernel.clone(),
            None => {
                let kernel = Kernel::build([dtype], [], |[x], []| [f(x.cast(dtype.compute()))])?;
                kernels.push((dtype, Arc::new(kernel)));
                kernels[kernels.len() - 1].1.clone()
            }
        };
        let x = if x.ndim() == 0 { x.reshape((1,))? } else { x.clone() };
        let axes: Vec<usize> = (0..x.ndim()).collect();
        let (kernel, inputs, shape, axes) = (&kernel, &[&x][..], x.shape(), &axes[..]);
        let op = Op::ReduceKernel { kernel, inputs, params: &[], shape, op: ReduceOp::Sum, axes };
        op.tensor(x.device())?.reshape((1,))
    };
    tensors.iter().map(&mut sum).collect()
}

/// The values of tensors (1), in one transfer if their dtypes agree.
pub(super) fn read(tensors: &[Tensor]) -> Result<Vec<f64>> {
    let parts = joined(tensors)?.iter().map(Tensor::to_scalars).collect::<Result<Vec<_>>>()?;
    Ok(parts.concat().into_iter().map(|s| s.to_f64()).collect())
}

/// [`read`], begun.
pub(super) fn read_async(
    tensors: &[Tensor],
) -> Result<impl Future<Output = Result<Vec<f64>>> + use<>> {
    let reads: Vec<_> = joined(tensors)?.iter().map(Tensor::to_scalars_async).collect();
    Ok(async {
        let mut values = Vec::new();
        for reading in reads {
            values.extend(reading.await?.into_iter().map(|s| s.to_f64()));
        }
        Ok(values)
    })
}

/// Tensors (1) as one, or as they are if their dtypes differ.
fn joined(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    match tensors {
        [first, ..] if tensors.iter().all(|t| t.dtype() == first.dtype()) => {
            Ok(vec![Tensor::cat(tensors, 0)?])
        }
        _ => Ok(tensors.to_vec()),
    }
}
