//! `(x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance over chosen axes: one
//! operation with a gradient of its own.
//!
//! Left to the rules of its parts, the backward pass would store a tensor of x's size for every
//! operand that broadcasts. By hand it reads x and the gradient three times and stores the result
//! only. With `h = (x - mean) r` and `r = 1 / sqrt(variance + eps)`, over n elements:
//!
//! ```text
//! d_bias = Σ g      d_weight = Σ g h      d_x = r (g w - (Σ g w + h Σ g w h) / n)
//! ```
//!
//! Source: Ioffe & Szegedy 2015, arXiv:1502.03167, section 3.

use std::sync::{Arc, OnceLock};
use teeny_autograd::{Function, Saved, apply};
use teeny_core::{DType, Error, Result, Shape, Tensor, map, map_sum};

/// Mean and biased variance, with the averaged axes as 1, on the device below autograd.
pub(super) type Statistics = (Tensor, Tensor);

/// Standardises over `axes`; `affine` is weight and bias in a shape that broadcasts against x axis
/// by axis.
#[track_caller]
pub(super) fn standardise(
    x: &Tensor,
    affine: Option<(Tensor, Tensor)>,
    axes: Vec<usize>,
    eps: f64,
) -> Result<(Tensor, Statistics)> {
    let statistics = Arc::new(OnceLock::new());
    let function = Standardise { axes, eps, statistics: statistics.clone() };
    let y = match &affine {
        Some((weight, bias)) => apply(function, &[x, weight, bias])?,
        None => apply(function, &[x])?,
    };
    let statistics = statistics
        .get()
        .cloned()
        .ok_or_else(|| Error::internal("standardising left no statistics"))?;
    Ok((y, statistics))
}

struct Standardise {
    axes: Vec<usize>,
    eps: f64,
    statistics: Arc<OnceLock<Statistics>>,
}

/// How many elements of `shape` share an element of what is left after reducing `axes`.
fn count(shape: &Shape, axes: &[usize]) -> usize {
    axes.iter().map(|&a| shape[a]).product()
}

/// The sum over `axes`, which stay with size 1.
fn sum_rest(x: &Tensor, axes: impl Iterator<Item = usize>) -> Result<Tensor> {
    let axes: Vec<usize> = axes.filter(|&a| x.shape()[a] != 1).collect();
    if axes.is_empty() { Ok(x.clone()) } else { x.sum_keepdim(axes) }
}

impl Function for Standardise {
    fn name(&self) -> &'static str {
        "norm"
    }

    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        let dtype = inputs.iter().fold(inputs[0].dtype(), |dtype, x| dtype.promote(x.dtype()));
        if !dtype.is_float() {
            return Err(Error::dtype(format!("needs floats, not {dtype}"))
                .help("x.cast(DType::F32)? converts"));
        }
        let x = inputs[0].cast(dtype.compute())?; // 16-bit statistics would be too coarse
        let mean = x.mean_keepdim(&self.axes[..])?; // (1, C, 1, 1), say
        let squares = map_sum([&x, &mean], &self.axes[..], |[x, m]| (x - m).square())?;
        // as the mean
        let variance = squares.div(count(x.shape(), &self.axes) as f64)?.reshape(*mean.shape())?;
        let eps = self.eps;
        let scale = map([&variance], |[v]| (v + eps).rsqrt())?; // as the mean
        let y = match inputs {
            [_, w, b] => {
                map([&x, &mean, &scale, w, b], |[x, m, r, w, b]| ((x - m) * r * w + b).cast(dtype))?
            }
            _ => map([&x, &mean, &scale], |[x, m, r]| ((x - m) * r).cast(dtype))?,
        }; // as x
        for kept in [inputs[0], &mean, &scale].into_iter().chain(inputs.get(1).copied()) {
            saved.save_for_backward(kept);
        }
        // set once: the function is called once
        let _ = self.statistics.set((mean, variance));
        Ok(y)
    }

    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [x, mean, scale, affine @ ..] = saved.tensors() else {
            return Err(Error::internal("norm saved too little"));
        };
        let n = count(x.shape(), &self.axes) as f64;
        let weight = affine.first();
        // summed first over what both the statistics and the parameters are shared by: the rest is
        // small
        let shared = |a: usize| weight.is_none_or(|w| w.shape()[a] == 1);
        let both: Vec<usize> = self.axes.iter().copied().filter(|&a| shared(a)).collect();
        let kept = x.shape().reduced(&both, true);
        let wide = |x: &Tensor| x.cast(x.dtype().compute());
        let sum = wide(g)?.sum_keepdim(&both[..])?; // kept
        // kept
        let product = map_sum([g, x, mean, scale], &both[..], |[g, x, m, r]| g * (x - m) * r)?
            .reshape(kept)?;
        let scaled = |t: &Tensor| weight.map_or(Ok(t.clone()), |w| t.mul(w)); // kept
        let (sum_h, product_h) = (
            sum_rest(&scaled(&sum)?, self.axes.iter().copied())?,
            sum_rest(&scaled(&product)?, self.axes.iter().copied())?,
        );
        let back = |dtype: DType| match weight {
            Some(w) => map([g, x, mean, scale, w, &sum_h, &product_h], |[g, x, m, r, w, s, p]| {
                (r * (g * w - (s + (x - m) * r * p) * (1.0 / n))).cast(dtype)
            }),
            None => map([g, x, mean, scale, &sum_h, &product_h], |[g, x, m, r, s, p]| {
                (r * (g - (s + (x - m) * r * p) * (1.0 / n))).cast(dtype)
            }),
        };
        let mut grads = vec![Some(back(x.dtype())?)];
        if let Some(w) = weight {
            let to_weight =
                |t: &Tensor| sum_rest(t, (0..w.ndim()).filter(|&a| shared(a)))?.cast(w.dtype());
            grads.extend([Some(to_weight(&product)?), Some(to_weight(&sum)?)]);
        }
        Ok(grads)
    }
}
