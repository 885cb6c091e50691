//! Pooling: the maximum, the mean or the p-norm of every window over the last axes, and unpooling
//! by positions.

use crate::context::{Positions, enter, positions_of};
use crate::error::{Error, Result};
use crate::op::{Op, Window, at_least_one, pool_window_error};
use crate::scalar::lowest;
use crate::shape::{MAX_NDIM, Shape, index_end};
use crate::tensor::create::generate;
use crate::tensor::{Tensor, map};

crate::options! {
    /// How [`Tensor::avg_pool_with`] counts; by default as PyTorch: sizes are rounded down, padding
    /// counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Averaging {
        /// Windows that reach beyond the end count too, if they begin inside: sizes are rounded up.
        /// Elements beyond the end are not averaged.
        ceil: bool = false, with_ceil;
        /// Padding counts as zeros; otherwise a mean excludes padding.
        count_padding: bool = true, with_count_padding;
        /// Sums are divided by this number instead of the window's number of elements.
        divisor: Option<usize> = None, with_divisor;
    }
}

impl Tensor {
    /// The largest element of every window of `size` over the last `size.len()` axes. Padding never
    /// wins. The first of equal elements does, zeros of either sign being equal, and the first NaN.
    /// A window of only padding, which a dilated window may be, returns the lowest value of the
    /// type (-inf for floats), as in PyTorch.
    ///
    /// # Errors
    /// If there are not enough axes, a window does not fit, or padding exceeds half the window.
    ///
    /// Equivalent: `torch.nn.functional.max_pool2d`.
    #[doc(alias = "max_pool1d", alias = "max_pool2d", alias = "max_pool3d")]
    #[track_caller]
    pub fn max_pool(&self, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("max_pool").on([("x", Some(self))]);
        Ok(self.max_pool_indices(size, window)?.0)
    }

    /// [`Tensor::max_pool`] with the positions (`I32`) of the winners in the flattened spatial axes
    /// of self; -1 for a window of only padding, which passes no gradient. (PyTorch 2.15 names a
    /// place outside the input here.)
    #[track_caller]
    pub fn max_pool_indices(&self, size: &[usize], window: &Window) -> Result<(Tensor, Tensor)> {
        let _op = enter("max_pool_indices").on([("x", Some(self))]);
        let op = Op::MaxPool { x: self, kernel_size: size, window };
        op.outputs()?; // checks the operands
        if let Some(axis) = (0..size.len()).find(|&i| window.padding[i] > size[i] / 2) {
            return Err(Error::value(format!(
                "padding {} is more than half of window {}",
                window.padding[axis], size[axis]
            ))
            .help(format!(
                "use a padding of at most {}, or x.pad(&widths, value)? before",
                size[axis] / 2
            )));
        }
        op.tensors(self.device()).map(<(_, _)>::from)
    }

    /// The mean of every window of `size` over the last `size.len()` axes; padding counts as zeros.
    ///
    /// # Errors
    /// If there are not enough axes, a window does not fit, or the type is not a float.
    ///
    /// Equivalent: `torch.nn.functional.avg_pool2d`.
    #[doc(alias = "avg_pool1d", alias = "avg_pool2d", alias = "avg_pool3d")]
    #[track_caller]
    pub fn avg_pool(&self, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("avg_pool").on([("x", Some(self))]);
        let op = Op::AvgPool { x: self, kernel_size: size, window };
        op.outputs()?; // checks the operands
        let spatial = &self.shape()[self.ndim() - size.len()..];
        if spatial == size && window.padding.iter().all(|&n| n == 0) {
            // One window: a sum along rows, whose gradient is one number for each.
            let axes: Vec<i64> = (1..=size.len() as i64).map(|i| -i).collect();
            return self.mean_keepdim(axes);
        }
        op.tensor(self.device())
    }

    /// [`Tensor::max_pool_indices`] with sizes rounded up: windows that begin inside but reach
    /// beyond the end count too.
    ///
    /// # Errors
    /// As [`Tensor::max_pool`].
    ///
    /// Equivalent: `torch.nn.functional.max_pool2d(.., ceil_mode=True, return_indices=True)`.
    #[doc(alias = "max_pool1d", alias = "max_pool2d", alias = "max_pool3d")]
    #[track_caller]
    pub fn max_pool_ceil(&self, size: &[usize], window: &Window) -> Result<(Tensor, Tensor)> {
        let _op = enter("max_pool_ceil").on([("x", Some(self))]);
        let beyond = overhang(self.shape(), size, window)?;
        if beyond.iter().all(|&n| n == 0) {
            return self.max_pool_indices(size, window);
        }
        let widths: Vec<(isize, isize)> = beyond.iter().map(|&n| (0, n as isize)).collect();
        let (values, positions) =
            self.pad(&widths, lowest(self.dtype()))?.max_pool_indices(size, window)?;
        // From positions in the wider axes to positions in self's.
        let lead = self.ndim() - size.len();
        let mut rest = positions;
        let mut own = rest.zeros_like()?;
        let mut stride = 1;
        for (i, &more) in beyond.iter().enumerate().rev() {
            let n = index_end(self.shape()[lead + i])?;
            let wide = n + index_end(more)?;
            own = own.add(&rest.rem(wide)?.minimum(n - 1)?.mul(stride)?)?;
            rest = rest.floor_div(wide)?;
            stride *= n;
        }
        Ok((values, own))
    }

    /// [`Tensor::avg_pool`] with options for counting.
    ///
    /// # Errors
    /// As [`Tensor::avg_pool`]; if the divisor is 0.
    ///
    /// Equivalent:
    /// `torch.nn.functional.avg_pool2d(.., ceil_mode, count_include_pad, divisor_override)`.
    #[doc(alias = "avg_pool1d", alias = "avg_pool2d", alias = "avg_pool3d")]
    #[track_caller]
    pub fn avg_pool_with(&self, size: &[usize], window: &Window, by: Averaging) -> Result<Tensor> {
        let _op = enter("avg_pool_with").on([("x", Some(self))]);
        self.require_float()?;
        if by.divisor == Some(0) {
            return Err(Error::value("cannot divide means by 0")
                .help("a divisor of None divides by the number of elements"));
        }
        let beyond =
            if by.ceil { overhang(self.shape(), size, window)? } else { vec![0; size.len()] };
        let lead = self.ndim().saturating_sub(size.len());
        let widths: Vec<(isize, isize)> = beyond.iter().map(|&n| (0, n as isize)).collect();
        let x = if beyond.iter().all(|&n| n == 0) { self.clone() } else { self.pad(&widths, 0.0)? };
        let y = x.avg_pool(size, window)?; // (lead.., counts..), divided by whole windows
        let whole = Shape::new(size)?.numel();
        if let Some(divisor) = by.divisor {
            return y.mul(whole as f64 / divisor as f64);
        }
        // The number of positions of a window that count, axis by axis; the mean is corrected by
        // the product.
        let counted = |axis: usize, i: usize| -> usize {
            let (n, p) = (self.shape()[lead + axis], window.padding[axis]);
            let places = if by.count_padding { 0..n + 2 * p } else { p..n + p };
            let (start, step) = (i * window.stride[axis], window.dilation[axis]);
            // Those k below the size with `start + k step` in `places`.
            let before = |end: usize| end.saturating_sub(start).div_ceil(step).min(size[axis]);
            before(places.end) - before(places.start)
        };
        let spatial = Shape::new(&y.shape()[lead..])?;
        if (0..size.len()).all(|axis| (0..spatial[axis]).all(|i| counted(axis, i) == size[axis])) {
            return Ok(y);
        }
        let factor = |mut place: usize| {
            let mut index = [0; MAX_NDIM];
            for axis in (0..spatial.ndim()).rev() {
                (index[axis], place) = (place % spatial[axis], place / spatial[axis]);
            }
            index[..spatial.ndim()].iter().enumerate().fold(whole as f64, |rest, (axis, &i)| {
                match counted(axis, i) {
                    0 => 0.0,
                    count => rest / count as f64,
                }
            })
        };
        y.mul(&generate(spatial, &y, factor)?.cast(y.dtype())?)
    }

    /// The p-norm of every window: `(Σ x^p)^(1/p)`; NaN where odd powers add up to less than 0, as
    /// in PyTorch.
    ///
    /// # Errors
    /// As [`Tensor::avg_pool`]; if `p` is not positive.
    ///
    /// Equivalent: `torch.nn.functional.lp_pool2d`.
    #[doc(alias = "lp_pool2d")]
    #[track_caller]
    pub fn lp_pool(&self, p: f64, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("lp_pool").on([("x", Some(self))]);
        if p.is_nan() || p <= 0.0 {
            return Err(Error::value(format!("p is {p}, not positive")).help(
                "1.0 gives sums, 2.0 Euclidean norms; x.max_pool(..)? is the limit for large p",
            ));
        }
        let wide = self.cast(self.dtype().compute())?;
        let sum = wide.pow(p)?.avg_pool(size, window)?.mul(Shape::new(size)?.numel() as f64)?;
        map([&sum], |[s]| s.norm_power(1.0 / p))?.cast(self.dtype())
    }

    /// The elements put back at the `positions` (of [`Tensor::max_pool_indices`]) of last axes of
    /// the given `spatial` sizes, 0 elsewhere. Where positions repeat, the last wins.
    ///
    /// # Errors
    /// If the shapes differ, or a position is outside.
    ///
    /// Equivalent: `torch.nn.functional.max_unpool2d`.
    #[doc(alias = "max_unpool2d")]
    #[track_caller]
    pub fn max_unpool(&self, positions: &Tensor, spatial: &[usize]) -> Result<Tensor> {
        let _op = enter("max_unpool").on([("x", Some(self)), ("positions", Some(positions))]);
        if positions.shape() != self.shape() || spatial.is_empty() || spatial.len() > self.ndim() {
            return Err(Error::shape(format!(
                "cannot unpool {} at positions {} to axes {spatial:?}",
                self.shape(),
                positions.shape()
            ))
            .help(
                "pass the positions of x.max_pool_indices(..)? and the spatial sizes before \
                 pooling",
            ));
        }
        let lead = self.ndim() - spatial.len();
        let places = Shape::new(spatial)?.numel();
        let empty = Tensor::zeros([&self.shape()[..lead], &[places]].concat(), self.dtype(), self)?;
        let _named = positions_of(const { &Positions::of("positions") });
        // (lead.., places)
        let full = empty.scatter(
            -1,
            &positions.flatten(lead as isize, -1)?,
            &self.flatten(lead as isize, -1)?,
        )?;
        full.reshape([&self.shape()[..lead], spatial].concat())
    }
}

/// How far the last window of each axis reaches beyond the padded input, if every window that
/// begins inside it counts.
fn overhang(x: &Shape, size: &[usize], window: &Window) -> Result<Vec<usize>> {
    let ndim = size.len();
    if ndim == 0 || x.ndim() < ndim {
        return Err(pool_window_error(size, x));
    }
    window.require_ndim(ndim)?;
    let lead = x.ndim() - ndim;
    let beyond = |axis: usize| -> Result<usize> {
        let (n, p, stride) = (x[lead + axis], window.padding[axis], window.stride[axis]);
        at_least_one(stride, window.dilation[axis], size[axis])?;
        let (reach, padded) = (window.reach(axis, size[axis])?, window.padded(axis, n)?);
        // The number of the last window that begins inside, counted in steps that may be longer
        // than any axis.
        let mut last = padded.saturating_sub(reach).div_ceil(stride) as u128 * stride as u128;
        if last >= (n + p) as u128 {
            last = last.saturating_sub(stride as u128);
        }
        Ok((last as usize + reach).saturating_sub(padded))
    };
    (0..ndim).map(beyond).collect()
}
