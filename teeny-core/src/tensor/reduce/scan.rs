//! Scans: running sums, products and extrema, and differences of neighbours. Sums and products are
//! `Op::Scan`, extrema `Op::CumMax`.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Extremum, Op, ScanOp};
use crate::shape::index_end;
use crate::tensor::{Tensor, map};

impl Tensor {
    /// The running sum along `axis`; types as in [`Tensor::sum`].
    ///
    /// Accuracy on `Cpu`: floats are carried in f64, so that n of them are within `n 2^-53 Σ |x|`,
    /// and each result is rounded once.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("cumsum").on([("x", Some(self))]);
        self.scan(ScanOp::Sum, axis)
    }

    /// The running product along `axis`; types as in [`Tensor::sum`], accuracy as in
    /// [`Tensor::prod`].
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("cumprod").on([("x", Some(self))]);
        self.scan(ScanOp::Prod, axis)
    }

    /// The running `log(sum(exp(x)))` along `axis` without overflow: sums of 1, 2, 4, .. elements
    /// by [`Tensor::logaddexp`].
    ///
    /// # Errors
    /// If the axis does not exist or the type is not a float.
    ///
    /// Equivalent: `torch.logcumsumexp`.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("logcumsumexp").on([("x", Some(self))]);
        self.require_float()?;
        let axis = self.shape().axis(axis)?;
        let (n, mut step) = (self.shape()[axis], 1);
        let mut y = self.cast(self.dtype().compute())?;
        while step < n {
            let mut widths = vec![(0, 0); self.ndim()];
            widths[axis] = (step as isize, -(step as isize));
            y = y.logaddexp(&y.pad(&widths, f64::NEG_INFINITY)?)?;
            step *= 2;
        }
        y.cast(self.dtype())
    }

    /// The running maximum along `axis`, and its position (`I32`): of equal ones the latest. From
    /// the first NaN on, NaN.
    ///
    /// Equivalent: `torch.cummax`.
    #[track_caller]
    pub fn cummax(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _op = enter("cummax").on([("x", Some(self))]);
        self.running(axis, Extremum::Largest)
    }

    /// The running minimum along `axis`, and its position, as in [`Tensor::cummax`].
    #[track_caller]
    pub fn cummin(&self, axis: isize) -> Result<(Tensor, Tensor)> {
        let _op = enter("cummin").on([("x", Some(self))]);
        self.running(axis, Extremum::Smallest)
    }

    /// The differences of neighbours along `axis`, taken `n` times; the axis is as much shorter,
    /// bools differ by `xor`. Equivalent: `torch.diff`.
    #[track_caller]
    pub fn diff(&self, axis: isize, n: usize) -> Result<Tensor> {
        let _op = enter("diff").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)? as isize;
        let step = |x: Tensor| {
            let (above, below) =
                (x.slice(axis, 1..)?, x.slice(axis, ..x.shape()[axis as usize].saturating_sub(1))?);
            if x.dtype() == DType::Bool { above.xor(&below) } else { above.sub(&below) }
        };
        let size = self.shape()[axis as usize];
        if n >= size || self.numel() == 0 {
            return self.slice(axis, ..size.saturating_sub(n)); // nothing is left to subtract
        }
        (0..n).try_fold(self.clone(), |x, _| step(x))
    }

    fn running(&self, axis: isize, extremum: Extremum) -> Result<(Tensor, Tensor)> {
        let axis = self.shape().axis(axis)?;
        Op::CumMax { x: self, axis, extremum }.tensors(self.device()).map(<(_, _)>::from)
    }

    fn scan(&self, op: ScanOp, axis: isize) -> Result<Tensor> {
        let axis = self.shape().axis(axis)?;
        let x = self.cast(self.dtype().sum_type())?;
        Op::Scan { op, x: &x, axis }.tensor(x.device())
    }
}

/// The definition of [`Op::CumMax`]: values and positions.
pub(crate) fn cum_max(x: &Tensor, axis: usize, extremum: Extremum) -> Result<(Tensor, Tensor)> {
    let n = index_end(x.shape()[axis])?;
    let mut along = vec![1; x.ndim()];
    along[axis] = x.shape()[axis];
    let place = Tensor::arange(0i32, n, 1, x)?.reshape(along)?;
    let better: fn(&Tensor, &Tensor) -> Result<Tensor> = match extremum {
        Extremum::Largest => |a, b| a.maximum(b),
        Extremum::Smallest => |a, b| a.minimum(b),
    };
    let extreme = doubled(x, axis, better)?;
    // The position of the running extremum is the latest element equal to it.
    let record =
        map([x, &extreme, &place], |[x, y, p]| x.eq(y).or(x.is_nan()).where_cond(p, p.like(0)))?;
    let positions = doubled(&record, axis, |a, b| a.maximum(b))?;
    Ok((x.gather(axis as isize, &positions)?, positions))
}

/// The running `best` along `axis`, an associative choice: after k rounds of the last 2^k.
fn doubled(
    x: &Tensor,
    axis: usize,
    best: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let (n, a) = (x.shape()[axis], axis as isize);
    let mut y = x.clone();
    let mut step = 1;
    while step < n {
        let rest = best(&y.slice(a, step..)?, &y.slice(a, ..n - step)?)?;
        y = Tensor::cat(&[&y.slice(a, ..step)?, &rest], a)?;
        step *= 2;
    }
    Ok(y)
}
