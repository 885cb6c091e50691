//! Layer and RMS normalisation along trailing axes: checks, types and devices of the operands. The
//! formulas are in [`RowFunction`].

use crate::context::enter;
use crate::device::common;
use crate::error::{Error, Result};
use crate::kernel::RowFunction;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::one_device::lift;

impl Tensor {
    /// Layer normalisation over the last `axes` axes:
    /// `(x - mean) / sqrt(variance + eps) * weight + bias`.
    ///
    /// Shapes: self `(.., sizes..)` → the same; `weight` and `bias` `(sizes..)`. The variance is
    /// the population variance (no correction).
    ///
    /// Accuracy on `Cpu`, of f32: within `6e-6 (1 + max |y|)` for rows of any length whose mean is
    /// not far larger than their deviation. Rows whose squares or sums leave the range of f32 are
    /// computed in f64; a NaN or an infinity makes its whole row NaN.
    ///
    /// # Errors
    /// If there are fewer axes, `weight` or `bias` has another shape, or a type is not a float.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Reference, Tensor};
    /// # fn main() -> teeny_core::Result<()> {
    /// let x = Tensor::new([[1.0f32, 3.0], [5.0, 5.0]], &Reference::new())?; // (2, 2)
    /// let y = x.layer_norm(1, None, None, 0.0001)?; // (2, 2)
    /// assert_eq!(y.round()?.to_vec::<f32>()?, [-1.0, 1.0, 0.0, 0.0]);
    /// # Ok(()) }
    /// ```
    ///
    /// Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450. Equivalent:
    /// `torch.nn.functional.layer_norm`.
    #[track_caller]
    pub fn layer_norm(
        &self,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let _op = enter("layer_norm").on([("x", Some(self)), ("weight", weight), ("bias", bias)]);
        self.normalised(RowFunction::LayerNorm, axes, weight, bias, eps)
    }

    /// Root mean square normalisation over the last `axes` axes:
    /// `x / sqrt(mean(x^2) + eps) * weight`.
    ///
    /// Shapes: self `(.., sizes..)` → the same; `weight` `(sizes..)`. Accuracy as of
    /// [`Tensor::layer_norm`].
    ///
    /// # Errors
    /// As [`Tensor::layer_norm`].
    ///
    /// Source: Zhang & Sennrich 2019, arXiv:1910.07467. Equivalent: `torch.nn.functional.rms_norm`.
    #[track_caller]
    pub fn rms_norm(&self, axes: usize, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let _op = enter("rms_norm").on([("x", Some(self)), ("weight", weight)]);
        self.normalised(RowFunction::RmsNorm, axes, weight, None, eps)
    }

    fn normalised(
        &self,
        norm: RowFunction,
        axes: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        self.require_float()?;
        if axes == 0 || axes > self.ndim() {
            return Err(Error::shape(format!(
                "cannot normalise the last {axes} axes of {}, which has {}",
                self.shape(),
                self.ndim()
            ))
            .help(match self.ndim() {
                0 => "x.reshape(1)? has an axis".to_string(),
                ndim => format!("pass 1 for the last axis, {ndim} for all axes"),
            }));
        }
        let lead = self.ndim() - axes;
        let sizes = &self.shape()[lead..];
        for (name, parameter) in [("weight", weight), ("bias", bias)] {
            if let Some(p) = parameter.filter(|p| p.shape()[..] != *sizes) {
                return Err(Error::shape(format!(
                    "{name} {} does not fit the last {axes} axes of {}",
                    p.shape(),
                    self.shape()
                ))
                .help(format!("it should be {sizes:?}")));
            }
        }
        let given = || [weight, bias].into_iter().flatten();
        let dtype = given().fold(self.dtype(), |dtype, p| dtype.promote(p.dtype()));
        let device =
            given().try_fold(self.device().clone(), |device, p| common(&device, p.device()))?;
        // Merge the normalised axes into one.
        let length: usize = sizes.iter().product();
        let mut flat = self.shape()[..lead].to_vec();
        flat.push(length);
        let x = lift(self, &device)?.cast(dtype)?.reshape(&flat[..])?; // (.., length)
        let line = |p: Option<&Tensor>| {
            p.map(|p| lift(p, &device)?.cast(dtype)?.reshape(length)).transpose()
        };
        let (weight, bias) = (line(weight)?, line(bias)?);
        if x.numel() == 0 {
            // Nothing to compute, but every operand has a gradient, which is 0.
            let scaled = weight.map_or_else(|| x.copy(), |w| x.mul(&w))?;
            return bias
                .map_or_else(|| Ok(scaled.clone()), |b| scaled.add(&b))?
                .reshape(*self.shape());
        }
        // The program has a bias only beside a weight.
        let (beside, after) = if weight.is_some() { (bias, None) } else { (None, bias) };
        let inputs: Vec<&Tensor> =
            [Some(&x), weight.as_ref(), beside.as_ref()].into_iter().flatten().collect();
        let eps = Scalar::Float(eps).cast(dtype.compute());
        let y = norm.run(&inputs, &[eps], &[lead])?;
        let y = match after {
            Some(bias) => y.add(&bias)?,
            None => y,
        };
        y.reshape(*self.shape())
    }
}
