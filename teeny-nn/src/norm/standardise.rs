//! `(x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance over chosen axes, as
//! one [`Function`] with a hand-written backward pass.
//!
//! Automatic differentiation of its parts would store a tensor of x's size for every operand that
//! broadcasts. The hand-written pass reads x and the gradient three times and stores only the
//! result. With `h = (x - mean) r` and `r = 1 / sqrt(variance + eps)`, over n elements:
//!
//! ```text
//! d_bias = Σ g      d_weight = Σ g h      d_x = r (g w - (Σ g w + h Σ g w h) / n)
//! ```
//!
//! Over several ranks, n, the means and both sums of `d_x` cover all ranks' batches; `d_bias` and
//! `d_weight` cover the rank's own batch: their sum over the ranks is the gradient of the sum of
//! the ranks' losses.
//!
//! Source: Ioffe & Szegedy 2015, arXiv:1502.03167, section 3.

use super::ranks::Ranks;
use std::sync::{Arc, OnceLock};
use teeny_autograd::{Autograd, Function, Saved, apply};
use teeny_core::{DType, Error, Result, Shape, Tensor, map, map_n, map_sum};

/// Mean and biased variance, with size 1 on the averaged axes, on the device inside autograd.
#[derive(Clone)]
pub(super) struct Statistics {
    pub mean: Tensor,
    pub variance: Tensor,
    /// The number of elements in each mean.
    pub count: usize,
}

/// Standardises over `axes` and `ranks`; `affine` is weight and bias, both with as many axes as x
/// and broadcasting against it.
#[track_caller]
pub(super) fn standardise(
    x: &Tensor,
    affine: Option<(Tensor, Tensor)>,
    axes: Vec<usize>,
    eps: f64,
    ranks: Ranks,
) -> Result<(Tensor, Statistics)> {
    let statistics = Arc::new(OnceLock::new());
    let function = Standardise { axes, eps, ranks, statistics: statistics.clone() };
    let y = match &affine {
        Some((weight, bias)) => apply(function, &[x, weight, bias])?,
        None => apply(function, &[x])?,
    };
    let statistics = statistics
        .get()
        .cloned()
        .ok_or_else(|| Error::internal("standardise set no statistics"))?;
    Ok((y, statistics))
}

struct Standardise {
    axes: Vec<usize>,
    eps: f64,
    ranks: Ranks,
    statistics: Arc<OnceLock<Statistics>>,
}

/// The factor of deviations, a power of two, with which their squares stay in the type's range.
/// Squares below it are less than the rounding error of `variance + eps`.
fn unit(dtype: DType, eps: f64) -> f64 {
    let exponent = if dtype == DType::F64 { 483.0 } else { 51.0 };
    if eps > 0.0 { (-exponent - eps.log2() / 2.0).ceil().min(0.0).exp2() } else { 1.0 }
}

/// The number of elements that reducing `axes` of `shape` combines into one.
fn count(shape: &Shape, axes: &[usize]) -> usize {
    axes.iter().map(|&a| shape[a]).product()
}

/// The sum over `axes`, kept with size 1; axes of size 1 are skipped.
fn sum_axes(x: &Tensor, axes: impl Iterator<Item = usize>) -> Result<Tensor> {
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
        if self.ranks.are_several() && inputs[0].device().downcast_ref::<Autograd>().is_some() {
            return Err(Error::gradient("statistics of several ranks have no second derivative")
                .help("a norm without `synchronised`, or one Autograd around the device"));
        }
        let x = inputs[0].cast(dtype.compute())?; // 16-bit statistics would be too inexact
        // for example (1, C, 1, 1)
        let (mean, count) = self.ranks.mean(&x, &self.axes, count(x.shape(), &self.axes))?;
        let (eps, n) = (self.eps, count as f64);
        let a = unit(x.dtype(), eps);
        let squares = map_sum([&x, &mean], &self.axes[..], |[x, m]| ((x - m) * a).square())?;
        let rest = map_sum([&x, &mean], &self.axes[..], |[x, m]| x - m)?;
        let [squares, rest] = self.ranks.sum([squares, rest])?;
        // The rounding error of the mean, as large as the deviations of values far from zero.
        let rest = rest.div(n)?.reshape(*mean.shape())?; // as the mean
        let squares = squares.reshape(*mean.shape())?; // as the mean
        let [variance, scale] = map_n([&squares, &rest], |[squares, rest]| {
            let variance = squares / n - (rest * a).square();
            let variance = variance.lt(0).where_cond(variance.like(0), variance);
            [variance / a / a, (variance + eps * a * a).rsqrt() * a]
        })?; // as the mean
        let y = match inputs {
            [_, w, b] => map([&x, &mean, &rest, &scale, w, b], |[x, m, e, r, w, b]| {
                ((x - m - e) * r * w + b).cast(dtype)
            })?,
            _ => map([&x, &mean, &rest, &scale], |[x, m, e, r]| ((x - m - e) * r).cast(dtype))?,
        }; // as x
        for kept in [inputs[0], &mean, &rest, &scale].into_iter().chain(inputs.get(1).copied()) {
            saved.save_for_backward(kept);
        }
        let mean = mean.add(&rest)?;
        // set once: the function is called once
        let _ = self.statistics.set(Statistics { mean, variance, count });
        Ok(y)
    }

    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [x, mean, rest, scale, affine @ ..] = saved.tensors() else {
            return Err(Error::internal("norm saves at least four tensors"));
        };
        let statistics = self.statistics.get();
        let n = statistics.map_or(count(x.shape(), &self.axes), |s| s.count) as f64;
        let weight = affine.first();
        // first over the axes that both the statistics and the parameters reduce; the sums over the
        // other axes are then small
        let shared = |a: usize| weight.is_none_or(|w| w.shape()[a] == 1);
        let both: Vec<usize> = self.axes.iter().copied().filter(|&a| shared(a)).collect();
        let kept = x.shape().reduced(&both, true);
        let cast_to_compute = |x: &Tensor| x.cast(x.dtype().compute());
        let sum = cast_to_compute(g)?.sum_keepdim(&both[..])?; // kept
        // kept
        let product =
            map_sum([g, x, mean, rest, scale], &both[..], |[g, x, m, e, r]| g * (x - m - e) * r)?
                .reshape(kept)?;
        let scaled = |t: &Tensor| weight.map_or(Ok(t.clone()), |w| t.mul(w)); // kept
        let [sum_h, product_h] = self.ranks.sum([
            sum_axes(&scaled(&sum)?, self.axes.iter().copied())?,
            sum_axes(&scaled(&product)?, self.axes.iter().copied())?,
        ])?;
        let back = |dtype: DType| match weight {
            Some(w) => {
                let inputs = [g, x, mean, rest, scale, w, &sum_h, &product_h];
                map(inputs, |[g, x, m, e, r, w, s, p]| {
                    (r * (g * w - (s + (x - m - e) * r * p) * (1.0 / n))).cast(dtype)
                })
            }
            None => {
                let inputs = [g, x, mean, rest, scale, &sum_h, &product_h];
                map(inputs, |[g, x, m, e, r, s, p]| {
                    (r * (g - (s + (x - m - e) * r * p) * (1.0 / n))).cast(dtype)
                })
            }
        };
        let mut grads = vec![Some(back(x.dtype())?)];
        if let Some(w) = weight {
            let to_weight =
                |t: &Tensor| sum_axes(t, (0..w.ndim()).filter(|&a| shared(a)))?.cast(w.dtype());
            grads.extend([Some(to_weight(&product)?), Some(to_weight(&sum)?)]);
        }
        Ok(grads)
    }
}
