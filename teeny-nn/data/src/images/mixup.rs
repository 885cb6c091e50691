//! [`mixup()`]: batches of mixed images.

use super::draws::Draws;
use teeny_core::context::enter;
use teeny_core::{Error, Key, Result, Tensor};

/// Mixes each item of a batch with the one before it: `x' = l x + (1 - l) roll(x)`, and so the
/// classes, with one `l` from Beta(`alpha`, `alpha`) that `key` draws.
///
/// Shapes: `x` (B, ..) of floats, `labels` (B) of integers → x' (B, ..) and probabilities
/// (B, classes) of the type of `x`, which `teeny_nn::loss::cross_entropy` takes as
/// targets. A key of the number of the step repeats a run.
///
/// # Errors
/// If `alpha` is not above 0 and finite, a label is not below `classes`, or the shapes or types are
/// others.
///
/// # Example
/// ```
/// use teeny_core::Key;
/// use teeny_data::images::mixup;
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let device = device("cpu")?;
/// let x = Tensor::rand((4, 3, 8, 8), DType::F32, &device)?; // (B, 3, H, W)
/// let labels = Tensor::from_vec(vec![0i32, 1, 2, 1], 4, &device)?; // (B)
/// let (x, targets) = mixup(&x, &labels, 3, 0.2, Key { seed: 1, draw: 0 })?;
/// assert_eq!((&x.shape()[..], &targets.shape()[..]), (&[4, 3, 8, 8][..], &[4, 3][..]));
/// # Ok(()) }
/// ```
///
/// Source: Zhang et al., mixup: Beyond Empirical Risk Minimization, 2018, arXiv:1710.09412.
/// Equivalent: `torchvision.transforms.v2.MixUp(alpha=alpha, num_classes=classes)`.
#[track_caller]
pub fn mixup(
    x: &Tensor,
    labels: &Tensor,
    classes: usize,
    alpha: f64,
    key: Key,
) -> Result<(Tensor, Tensor)> {
    let _op = enter("mixup");
    if !(alpha > 0.0 && alpha.is_finite()) {
        return Err(Error::value(format!("alpha is {alpha}")).help("use a finite number above 0"));
    }
    if !x.dtype().is_float() || labels.ndim() != 1 || x.shape().first() != labels.shape().first() {
        let (x, labels, dtype) = (x.shape(), labels.shape(), x.dtype());
        return Err(Error::shape(format!("cannot mix images {x} of {dtype} with labels {labels}"))
            .help("pass images (B, ..) of floats and labels (B) of integers"));
    }
    let mut draws = Draws::new(key);
    let [a, b] = [0, 1].map(|_| gamma(alpha, &mut draws));
    // both are 0 where alpha is so small that one of the images has all weight
    let l = if a + b > 0.0 { a / (a + b) } else { 1.0 };
    let mix = |x: &Tensor| x.mul(l)?.add(&x.roll(0, 1)?.mul(1.0 - l)?);
    Ok((mix(x)?, mix(&labels.one_hot(classes, x.dtype())?)?))
}

/// A number of the gamma distribution with shape `a` and scale 1.
///
/// Source: Marsaglia and Tsang, A Simple Method for Generating Gamma Variables, 2000.
fn gamma(a: f64, draws: &mut Draws) -> f64 {
    if a < 1.0 {
        return gamma(a + 1.0, draws) * draws.unit().powf(1.0 / a);
    }
    let d = a - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        // 1 - u is above 0
        let radius = (-2.0 * (1.0 - draws.unit()).ln()).sqrt();
        let z = radius * (std::f64::consts::TAU * draws.unit()).cos();
        let v = (1.0 + c * z).powi(3);
        let u = 1.0 - draws.unit();
        if v > 0.0 && u.ln() < 0.5 * z * z + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}
