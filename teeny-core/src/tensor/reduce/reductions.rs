//! Reductions along axes: sums, means, variances, extrema, `any` and `all`. Which dtype accumulates
//! is [`DType::sum_type`]'s rule; a cast to it happens in the same pass.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::table::UnaryTable;
use crate::layout::Layout;
use crate::messages::nothing_to_compare;
use crate::op::{Op, ReduceOp};
use crate::shape::{IntoAxes, index_end};
use crate::tensor::{Tensor, map, map_rows};

impl Tensor {
    /// The sum over `axes`, which disappear. Bool and integers are summed as `I64` (`U64` as
    /// itself); floats in wide or blocked accumulators.
    ///
    /// Accuracy on `Cpu`: of f32 within `2e-6 Σ |x|` of the exact sum for any number of terms, and
    /// half a unit in the last place; sums on the way may leave the range of f32. Of f64 within
    /// `(n / 32 + 100) 2^-53 Σ |x|`. 16-bit floats are summed as f32 and rounded once.
    ///
    /// # Errors
    /// If an axis does not exist or is named twice.
    ///
    /// Equivalent: `torch.sum(x, dim)`.
    #[track_caller]
    pub fn sum(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("sum").on([("x", Some(self))]);
        self.sum_as(&axes.axes(self.shape())?, false)
    }

    /// [`Tensor::sum`] that leaves the axes with size 1.
    #[track_caller]
    pub fn sum_keepdim(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("sum_keepdim").on([("x", Some(self))]);
        self.sum_as(&axes.axes(self.shape())?, true)
    }

    /// The sum of all elements, a scalar.
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        let _op = enter("sum_all").on([("x", Some(self))]);
        self.sum(..)
    }

    fn sum_as(&self, axes: &[usize], keepdim: bool) -> Result<Tensor> {
        self.reduce_as(ReduceOp::Sum, self.dtype().sum_type(), axes, keepdim)
    }

    /// The product over `axes`; types as in [`Tensor::sum`].
    ///
    /// Accuracy on `Cpu`: the product of n floats is made in f64, within `n 2^-53` of its size, and
    /// rounded once.
    #[track_caller]
    pub fn prod(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("prod").on([("x", Some(self))]);
        self.reduce_as(ReduceOp::Prod, self.dtype().sum_type(), &axes.axes(self.shape())?, false)
    }

    /// The mean over `axes`; integers are averaged as `F32`. The mean of no elements is NaN.
    ///
    /// Accuracy as of [`Tensor::sum`], and another rounding. A sum beyond the range of the result's
    /// type makes an infinite mean.
    #[track_caller]
    pub fn mean(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("mean").on([("x", Some(self))]);
        self.mean_as(&axes.axes(self.shape())?, false)
    }

    /// [`Tensor::mean`] that leaves the axes with size 1.
    #[track_caller]
    pub fn mean_keepdim(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("mean_keepdim").on([("x", Some(self))]);
        self.mean_as(&axes.axes(self.shape())?, true)
    }

    /// The mean of all elements, a scalar.
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        let _op = enter("mean_all").on([("x", Some(self))]);
        self.mean(..)
    }

    fn mean_as(&self, axes: &[usize], keepdim: bool) -> Result<Tensor> {
        let count: usize = axes.iter().map(|&a| self.shape()[a]).product();
        let dtype = self.dtype().to_float();
        // The sum of 16-bit floats may overflow where their mean does not.
        self.reduce_as(ReduceOp::Sum, dtype.compute(), axes, keepdim)?
            .div(count as f64)?
            .cast(dtype)
    }

    /// The largest over `axes`; NaN if any element is NaN. Zeros of either sign are equal, and a
    /// result of zero is +0 on `Cpu` and `Reference`. Equal elements share the gradient; where the
    /// result is NaN, all of it is NaN, as in PyTorch. Equivalent: `torch.amax`.
    ///
    /// # Errors
    /// If a reduced axis is empty.
    #[doc(alias = "amax")]
    #[track_caller]
    pub fn max(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("max").on([("x", Some(self))]);
        self.extremum(ReduceOp::Max, &axes.axes(self.shape())?, false)
    }

    /// [`Tensor::max`] that leaves the axes with size 1.
    #[track_caller]
    pub fn max_keepdim(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("max_keepdim").on([("x", Some(self))]);
        self.extremum(ReduceOp::Max, &axes.axes(self.shape())?, true)
    }

    /// The smallest over `axes`; NaN if any element is NaN. Zeros are treated as in
    /// [`Tensor::max`].
    ///
    /// # Errors
    /// If a reduced axis is empty.
    #[track_caller]
    pub fn min(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("min").on([("x", Some(self))]);
        self.extremum(ReduceOp::Min, &axes.axes(self.shape())?, false)
    }

    /// [`Tensor::min`] that leaves the axes with size 1.
    #[track_caller]
    pub fn min_keepdim(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("min_keepdim").on([("x", Some(self))]);
        self.extremum(ReduceOp::Min, &axes.axes(self.shape())?, true)
    }

    /// The largest element, a scalar.
    #[track_caller]
    pub fn max_all(&self) -> Result<Tensor> {
        let _op = enter("max_all").on([("x", Some(self))]);
        self.max(..)
    }

    /// The smallest element, a scalar.
    #[track_caller]
    pub fn min_all(&self) -> Result<Tensor> {
        let _op = enter("min_all").on([("x", Some(self))]);
        self.min(..)
    }

    /// The position (`I32`) of the first largest along `axis`, which disappears; the first NaN
    /// counts as the largest. Zeros of either sign are equal.
    ///
    /// # Errors
    /// If the axis has size 0, or more elements than an `I32` counts.
    #[track_caller]
    pub fn argmax(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("argmax").on([("x", Some(self))]);
        self.extremum(ReduceOp::ArgMax, &[self.shape().axis(axis)?], false)
    }

    /// The position (`I32`) of the first smallest along `axis`, which disappears; the first NaN
    /// counts as the smallest. Zeros of either sign are equal.
    ///
    /// # Errors
    /// If the axis has size 0, or more elements than an `I32` counts.
    #[track_caller]
    pub fn argmin(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("argmin").on([("x", Some(self))]);
        self.extremum(ReduceOp::ArgMin, &[self.shape().axis(axis)?], false)
    }

    /// True where any element over `axes` is not 0; false of no elements.
    #[track_caller]
    pub fn any(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("any").on([("x", Some(self))]);
        self.reduce_as(ReduceOp::Any, DType::Bool, &axes.axes(self.shape())?, false)
    }

    /// True where all elements over `axes` are not 0; true of no elements.
    #[track_caller]
    pub fn all(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("all").on([("x", Some(self))]);
        self.reduce_as(ReduceOp::All, DType::Bool, &axes.axes(self.shape())?, false)
    }

    /// The variance over `axes`: mean squared distance from the mean, divided by
    /// `count - correction` (1: unbiased, 0: biased).
    ///
    /// Computed as `Σ (d - Σ d / count)² / (count - correction)` with `d = x - mean`: a large mean
    /// does not cancel it, and its rounding error is subtracted. Accuracy on `Cpu`, of f32:
    /// within 8e-6 of the variance, if the deviation is above 3e-6 of the mean magnitude. Squares
    /// beyond the range of f32 make it infinite. If `count <= correction`, it is divided by 0: NaN
    /// where all elements are equal, else infinite. Equivalent: `torch.var(x, dim, correction=..)`.
    ///
    /// # Errors
    /// If the type is not a float.
    #[track_caller]
    pub fn var(&self, axes: impl IntoAxes, correction: usize) -> Result<Tensor> {
        let _op = enter("var").on([("x", Some(self))]);
        self.require_float()?;
        let axes = axes.axes(self.shape())?;
        let wide = self.dtype().compute();
        map_rows([self], &axes[..], |[x]| x.cast(wide).var(correction).cast(self.dtype()))?
            .squeeze(axes)
    }

    /// The standard deviation over `axes`: the root of [`Tensor::var`], where squares may leave the
    /// range of the type. The gradient of equal elements is 0, as in PyTorch.
    #[track_caller]
    pub fn std(&self, axes: impl IntoAxes, correction: usize) -> Result<Tensor> {
        let _op = enter("std").on([("x", Some(self))]);
        self.require_float()?;
        let axes = axes.axes(self.shape())?;
        let scale = self.scale_of(2.0, &axes)?;
        map_rows([self, &scale], &axes[..], |[x, scale]| {
            let variance = x.cast(scale.dtype()).scaled_var(correction, Some(scale));
            (variance.norm_power(0.5) / scale).cast(self.dtype())
        })?
        .squeeze(axes)
    }

    /// `log(sum(exp(x)))` over `axes` without overflow; -inf where all elements are -inf.
    ///
    /// Accuracy on `Cpu`, of f32: within `4e-6 (1 + |result|)`.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("logsumexp").on([("x", Some(self))]);
        self.require_float()?;
        let axes = axes.axes(self.shape())?;
        if axes.iter().any(|&a| self.shape()[a] == 0) {
            return self.exp()?.sum_as(&axes, false)?.log();
        }
        // An infinite maximum would give inf - inf; shifting by 0 instead leaves exp and log to
        // find the answer.
        let x = self.cast(self.dtype().compute())?;
        let max = x.max_keepdim(axes.as_slice())?;
        let shift = map([&max], |[m]| m.is_inf().where_cond(m.like(0), m))?;
        let sum = map([&x, &shift], |[x, m]| (x - m).exp())?.sum_as(&axes, true)?;
        map([&sum, &shift], |[s, m]| s.log() + m)?.cast(self.dtype())?.squeeze(axes)
    }

    fn extremum(&self, op: ReduceOp, axes: &[usize], keepdim: bool) -> Result<Tensor> {
        if let Some(&axis) = axes.iter().find(|&&a| self.shape()[a] == 0) {
            return Err(nothing_to_compare(axis, self.shape()));
        }
        if op.is_arg() {
            index_end(axes.iter().map(|&a| self.shape()[a]).product())?;
        }
        if self.dtype() == DType::Bool && !op.is_arg() {
            let op = if op == ReduceOp::Max { ReduceOp::Any } else { ReduceOp::All };
            return self.reduce_as(op, DType::Bool, axes, keepdim);
        }
        self.reduce_as(op, self.dtype(), axes, keepdim)
    }

    /// Reduces the elements, cast to `dtype` on the way (in the same pass).
    fn reduce_as(
        &self,
        op: ReduceOp,
        dtype: DType,
        axes: &[usize],
        keepdim: bool,
    ) -> Result<Tensor> {
        if axes.is_empty() {
            return self.cast(dtype);
        }
        let y = if dtype == self.dtype() {
            Op::Reduce { op, x: self, axes }.tensor(self.device())
        } else {
            let (kernel, shape) = (cast_kernel(self.dtype(), dtype)?, self.shape());
            Op::ReduceKernel { kernel, inputs: &[self], params: &[], shape, op, axes }
                .tensor(self.device())
        };
        if !keepdim {
            return y;
        }
        Ok(y?.through(Layout::contiguous(self.shape().reduced(axes, true))))
    }
}

/// The kernel that casts to one of the types reductions accumulate in.
fn cast_kernel(from: DType, to: DType) -> Result<&'static std::sync::Arc<crate::kernel::Kernel>> {
    static BOOL: UnaryTable = UnaryTable::new();
    static I64: UnaryTable = UnaryTable::new();
    static F32: UnaryTable = UnaryTable::new();
    match to {
        DType::Bool => BOOL.get(from, |x| x.truth()),
        DType::I64 => I64.get(from, |x| x.cast(DType::I64)),
        DType::F32 => F32.get(from, |x| x.cast(DType::F32)),
        other => Err(Error::internal(format!("no reduction accumulates {from} as {other}"))),
    }
}
