//! Repeating elements: an expanded axis of stride 0, then a reshape that copies. Rolling along an
//! axis joins two slices.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{IntoShape, MAX_NDIM};
use crate::tensor::{Side, Tensor};

impl Tensor {
    /// The whole tensor repeated `counts[i]` times along axis i; extra counts in front add axes.
    /// Equivalent: `x.repeat`.
    #[track_caller]
    pub fn repeat(&self, counts: impl IntoShape) -> Result<Tensor> {
        let _op = enter("repeat").on([("x", Some(self))]);
        let counts = counts.shape()?;
        let Some(lead) = counts.ndim().checked_sub(self.ndim()) else {
            return Err(Error::shape(format!(
                "got {} counts for the {} axes of {}",
                counts.ndim(),
                self.ndim(),
                self.shape()
            ))
            .help(format!(
                "pass {} counts, or x.tile(counts)?, which takes missing ones as 1",
                self.ndim()
            )));
        };
        // Axis by axis as cat of itself would: stretch a new axis in front of it, then join the
        // two.
        let mut x = self.clone();
        for _ in 0..lead {
            x = x.unsqueeze(0)?;
        }
        // One copy if the axes and the stretched axes are few enough.
        let repeated = (0..counts.ndim()).filter(|&axis| counts[axis] != 1).count();
        if repeated > 1 && counts.ndim() + repeated <= MAX_NDIM {
            let mut joined = *x.shape();
            let mut stretched = *x.shape();
            for axis in (0..counts.ndim()).rev().filter(|&axis| counts[axis] != 1) {
                stretched = stretched.with_axis(axis, counts[axis])?;
                // has as many elements as `stretched`
                joined = joined.resized(axis, joined[axis] * counts[axis])?;
                x = x.unsqueeze(axis as isize)?;
            }
            return x.expand(stretched)?.reshape(joined);
        }
        for axis in 0..counts.ndim() {
            let n = x.shape()[axis];
            let stretched = x.shape().with_axis(axis, counts[axis])?;
            // has as many elements as `stretched`
            let joined = x.shape().resized(axis, n * counts[axis])?;
            x = x.unsqueeze(axis as isize)?.expand(stretched)?.reshape(joined)?;
        }
        Ok(x)
    }

    /// Every element repeated `count` times in place along `axis`. Equivalent:
    /// `torch.repeat_interleave`.
    #[track_caller]
    pub fn repeat_interleave(&self, axis: isize, count: usize) -> Result<Tensor> {
        let _op = enter("repeat_interleave").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let stretched = self.shape().with_axis(axis + 1, count)?;
        // has as many elements as `stretched`
        let joined = self.shape().resized(axis, self.shape()[axis] * count)?;
        self.unsqueeze(axis as isize + 1)?.expand(stretched)?.reshape(joined)
    }

    /// Shifted by `shift` positions along `axis`, circularly. Equivalent: `torch.roll`.
    #[track_caller]
    pub fn roll(&self, axis: isize, shift: isize) -> Result<Tensor> {
        let _op = enter("roll").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let n = self.shape()[axis];
        if n == 0 {
            return Ok(self.clone());
        }
        let cut = n - shift.rem_euclid(n as isize) as usize;
        Tensor::cat(
            &[&self.slice(axis as isize, cut..n)?, &self.slice(axis as isize, 0..cut)?],
            axis as isize,
        )
    }

    /// Element i along `axis` repeated `counts[i]` times in place. Waits for the device: the
    /// result's size depends on the counts.
    ///
    /// # Errors
    /// If `counts` is not a vector of integers as long as the axis, or one is negative.
    ///
    /// Equivalent: `torch.repeat_interleave(x, counts, dim)`.
    #[doc(alias = "repeat_interleave")]
    #[track_caller]
    pub fn repeat_each(&self, axis: isize, counts: &Tensor) -> Result<Tensor> {
        let _op = enter("repeat_each").on([("x", Some(self)), ("counts", Some(counts))]);
        let axis = self.shape().axis(axis)?;
        counts.require_int("counts")?;
        if counts.shape()[..] != [self.shape()[axis]] {
            return Err(Error::shape(format!(
                "counts of {} for axis {axis} of {}: one for each element is needed",
                counts.shape(),
                self.shape()
            ))
            .help(format!(
                "({},) would fit; x.repeat_interleave({axis}, count)? takes one count for all",
                self.shape()[axis]
            )));
        }
        let numbers = counts.to_scalars()?;
        if let Some(i) = numbers.iter().position(|n| n.to_i128() < 0) {
            return Err(Error::value(format!("counts[{i}] is {}, expected 0 or more", numbers[i]))
                .help("counts.maximum(0)? makes negative counts 0, which leaves the element out"));
        }
        let total: i128 = numbers.iter().map(|n| n.to_i128()).sum();
        let Ok(total) = i64::try_from(total) else {
            return Err(Error::value(format!("the counts add up to {total}, expected an i64"))
                .help("counts are the numbers of copies of each element"));
        };
        let ends = counts.cast(DType::I64)?.cumsum(0)?; // (n)
        self.shape().resized(axis, total as usize)?;
        // (total)
        let places =
            ends.searchsorted(&Tensor::arange(0i64, total, 1, counts.device())?, Side::Right)?;
        self.index_select(axis as isize, &places)
    }

    /// [`Tensor::repeat`] that takes missing counts in front as 1. Equivalent: `torch.tile`,
    /// `numpy.tile`.
    #[track_caller]
    pub fn tile(&self, counts: impl IntoShape) -> Result<Tensor> {
        let _op = enter("tile").on([("x", Some(self))]);
        let counts = counts.sizes();
        let mut all = vec![1; self.ndim().saturating_sub(counts.len())];
        all.extend(counts);
        self.repeat(all)
    }
}
