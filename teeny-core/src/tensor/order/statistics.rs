//! Order statistics along an axis: medians, quantiles, the most frequent element. Each is a stable
//! sort and a gather; NaN is sorted last, and so a rank finds it or leaves it out.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::SortOrder;
use crate::shape::{IntoAxes, index_end};
use crate::tensor::{Side, Tensor, map};

/// The value of a quantile that is between two elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantileMethod {
    /// Linear between both, the default.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// Their mean.
    Midpoint,
    /// The nearer one; on a tie, the one of even rank.
    Nearest,
}

impl Tensor {
    /// The lower median along `axis`, which disappears, and its position (`I32`); NaN if any
    /// element is.
    ///
    /// # Errors
    /// If the axis does not exist or has size 0.
    ///
    /// Equivalent: `torch.median(x, dim)`.
    #[track_caller]
    pub fn median(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _op = enter("median").on([("x", Some(self))]);
        let n = index_end(self.size(axis)?)?;
        // The first NaN is after all numbers.
        self.at_rank(axis, |count| count.eq(n).where_cond(count.like((n - 1) / 2), count))
    }

    /// [`Tensor::median`] of the elements that are not NaN; NaN if all are. Equivalent:
    /// `torch.nanmedian(x, dim)`.
    ///
    /// # Errors
    /// As [`Tensor::median`].
    #[track_caller]
    pub fn nanmedian(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _op = enter("nanmedian").on([("x", Some(self))]);
        self.at_rank(axis, |count| (count - 1).maximum(0).floor_div(2))
    }

    /// The `k`-th smallest element along `axis`, which disappears, and its position (`I32`); k
    /// counts from 1, NaN is larger than all numbers.
    ///
    /// # Errors
    /// If the axis does not have `k` elements.
    ///
    /// Equivalent: `torch.kthvalue`.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, axis: isize) -> Result<(Tensor, Tensor)> {
        let _op = enter("kthvalue").on([("x", Some(self))]);
        let n = self.size(axis)?;
        if k == 0 || k > n {
            return Err(Error::value(format!("expected k in 1..={n}, got {k}"))
                .help("k counts from 1: x.kthvalue(1, axis)? is the smallest"));
        }
        let (values, positions) = self.sort(axis, SortOrder::Ascending)?;
        Ok((values.at(axis, k as isize - 1)?, positions.at(axis, k as isize - 1)?))
    }

    /// The most frequent element along `axis`, which disappears, and the position (`I32`) of its
    /// last occurrence; of equally frequent ones the smallest.
    ///
    /// # Errors
    /// If the axis does not exist or has size 0.
    ///
    /// Equivalent: `torch.mode`.
    #[track_caller]
    pub fn mode(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _op = enter("mode").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)? as isize;
        let n = self.size(axis)?;
        let (values, order) = self.sort(axis, SortOrder::Ascending)?;
        let mut along = vec![1; self.ndim()];
        along[axis as usize] = n;
        let place = Tensor::arange(0i32, index_end(n)?, 1, self)?.reshape(along)?;
        let shifted = values.roll(axis, 1)?;
        let starts = map([&values, &shifted, &place], |[x, before, i]| {
            x.eq(before).and(i.gt(0)).where_cond(i.like(0), i)
        })?;
        // The number of equal elements before each.
        let run = place.sub(&starts.cummax(axis)?.0)?;
        let last = run.argmax(axis)?.unsqueeze(axis)?;
        let at = |x: &Tensor| x.gather(axis, &last)?.squeeze(axis);
        Ok((at(&values)?, at(&order)?))
    }

    /// The values below which the fractions `q` of the elements along `axis` are: the axis
    /// disappears, one of the size of `q` comes first. NaN if any element is.
    ///
    /// # Errors
    /// If the type is not a float, a fraction is outside `0..=1`, or the axis has size 0.
    ///
    /// Equivalent: `torch.quantile(x, q, dim, interpolation=..)`.
    #[track_caller]
    pub fn quantile(&self, q: &[f64], axis: isize, method: QuantileMethod) -> Result<Tensor> {
        let _op = enter("quantile").on([("x", Some(self))]);
        self.quantiles(q, axis, method, false)
    }

    /// [`Tensor::quantile`] of the elements that are not NaN. Equivalent: `torch.nanquantile`.
    ///
    /// # Errors
    /// As [`Tensor::quantile`].
    #[track_caller]
    pub fn nanquantile(&self, q: &[f64], axis: isize, method: QuantileMethod) -> Result<Tensor> {
        let _op = enter("nanquantile").on([("x", Some(self))]);
        self.quantiles(q, axis, method, true)
    }

    fn quantiles(
        &self,
        q: &[f64],
        axis: isize,
        method: QuantileMethod,
        skip_nan: bool,
    ) -> Result<Tensor> {
        self.require_float()?;
        if let Some(q) = q.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(Error::value(format!("expected a quantile in 0.0..=1.0, got {q}"))
                .help("quantiles are between 0.0 and 1.0, the median is 0.5"));
        }
        let axis = self.shape().axis(axis)? as isize;
        let n = index_end(self.size(axis)?)?;
        let (sorted, count) = self.sorted_numbers(axis)?;
        let wide = self.dtype().compute();
        let parts = q.iter().map(|&q| {
            let rank = map([&count], |[count]| {
                let rank = (count - 1).maximum(0).cast(wide) * q;
                if skip_nan { rank } else { count.lt(n).where_cond(rank.like(n - 1), rank) }
            })?;
            let at = |x: Tensor| sorted.gather(axis, &x.cast(DType::I32)?);
            let value = match method {
                QuantileMethod::Nearest => at(rank.round()?)?,
                QuantileMethod::Lower => at(rank.floor()?)?,
                QuantileMethod::Higher => at(rank.ceil()?)?,
                _ => {
                    let weight = match method {
                        QuantileMethod::Linear => rank.frac()?,
                        _ => rank.frac()?.ceil()?.mul(0.5)?,
                    };
                    let ends = [at(rank.floor()?)?, at(rank.ceil()?)?];
                    map([&ends[0], &ends[1], &weight], |[low, high, w]| {
                        // avoids NaN from infinite ends
                        w.eq(0.0).where_cond(low, low.cast(wide).lerp(high.cast(wide), w))
                    })?
                    .cast(self.dtype())?
                }
            };
            value.squeeze(axis)
        });
        Tensor::stack(&parts.collect::<Result<Vec<_>>>()?, 0)
    }

    /// The element of the rank that `rank` makes of the number of elements that are not NaN, and
    /// its position.
    fn at_rank(
        &self,
        axis: isize,
        rank: impl for<'b> FnOnce(crate::Expr<'b>) -> crate::Expr<'b>,
    ) -> Result<(Tensor, Tensor)> {
        let axis = self.shape().axis(axis)? as isize;
        if self.size(axis)? == 0 {
            return Err(crate::messages::nothing_to_compare(axis as usize, self.shape()));
        }
        let (values, order) = self.sort(axis, SortOrder::Ascending)?;
        let rank = map([&self.count_numbers(axis)?], |[count]| rank(count))?;
        let at = |x: &Tensor| x.gather(axis, &rank)?.squeeze(axis);
        Ok((at(&values)?, at(&order)?))
    }

    fn sorted_numbers(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        if self.size(axis)? == 0 {
            return Err(crate::messages::nothing_to_compare(axis as usize, self.shape()));
        }
        Ok((self.sort(axis, SortOrder::Ascending)?.0, self.count_numbers(axis)?))
    }

    /// The number of elements along `axis` that are not NaN (`I32`), with size 1.
    fn count_numbers(&self, axis: isize) -> Result<Tensor> {
        self.is_nan()?.not()?.sum_keepdim(axis)?.cast(DType::I32)
    }

    /// [`Tensor::sum`] with NaN counted as 0. Equivalent: `torch.nansum`.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[track_caller]
    pub fn nansum(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("nansum").on([("x", Some(self))]);
        map([self], |[x]| x.is_nan().where_cond(x.like(0), x))?.sum(axes)
    }

    /// [`Tensor::mean`] of the elements that are not NaN; NaN if all are. Equivalent:
    /// `torch.nanmean`.
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    #[track_caller]
    pub fn nanmean(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("nanmean").on([("x", Some(self))]);
        let axes = axes.axes(self.shape())?;
        let dtype = self.dtype().to_float();
        let wide = self.cast(dtype.compute())?;
        let count = wide.is_nan()?.not()?.sum(&axes[..])?;
        wide.nansum(axes)?.div(&count)?.cast(dtype)
    }

    /// The smallest and the largest element over `axes`. Equivalent: `torch.aminmax`.
    ///
    /// # Errors
    /// As [`Tensor::max`].
    #[track_caller]
    pub fn aminmax(&self, axes: impl IntoAxes) -> Result<(Tensor, Tensor)> {
        let _op = enter("aminmax").on([("x", Some(self))]);
        let axes = axes.axes(self.shape())?;
        Ok((self.min(&axes[..])?, self.max(axes)?))
    }

    /// The numbers (`I32`) of the intervals between the ascending `boundaries` (m) in which the
    /// elements are, from 0 to m: `boundaries[i - 1] < x <= boundaries[i]` with
    /// [`Side::Left`], `boundaries[i - 1] <= x < boundaries[i]` with [`Side::Right`].
    ///
    /// # Errors
    /// If `boundaries` is not a vector.
    ///
    /// Equivalent: `torch.bucketize(x, boundaries)`, with `right=True` for [`Side::Right`].
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, side: Side) -> Result<Tensor> {
        let _op = enter("bucketize").on([("x", Some(self)), ("boundaries", Some(boundaries))]);
        boundaries.searchsorted(self, side)
    }

    /// True where an element is one of `elements`, a tensor of any shape; NaN never is.
    ///
    /// Equivalent: `torch.isin(x, elements)`.
    #[track_caller]
    pub fn isin(&self, elements: &Tensor) -> Result<Tensor> {
        let _op = enter("isin").on([("x", Some(self)), ("elements", Some(elements))]);
        let dtype = self.dtype().promote(elements.dtype());
        let (x, sorted) = (
            self.cast(dtype)?,
            elements.cast(dtype)?.reshape(-1)?.sort(0, SortOrder::Ascending)?.0,
        );
        let n = index_end(sorted.numel())?;
        if n == 0 {
            return Tensor::zeros(self.shape(), DType::Bool, self);
        }
        let place = sorted.searchsorted(&x, Side::Left)?.minimum(n - 1)?;
        sorted.index_select(0, &place)?.eq(&x)
    }
}
