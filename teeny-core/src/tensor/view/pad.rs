//! Padding: with a value, or with the tensor's own elements. Negative widths crop.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::scalar::Scalar;
use crate::shape::MAX_NDIM;
use crate::tensor::Tensor;

/// The elements that padding repeats; for the axis `a b c d`, two elements on each side:
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PadMode {
    /// `c b | a b c d | c b`: mirrored at the outermost elements, which do not occur twice. At most
    /// one element less than the axis has.
    Reflect,
    /// `a a | a b c d | d d`: the outermost element, any number of times.
    Replicate,
    /// `c d | a b c d | a b`: circular. At most as many elements as the axis has.
    Circular,
}

impl Tensor {
    /// With `(before, after)` elements of `value` around each axis, one pair per axis, outermost
    /// first; missing leading pairs are (0, 0). Negative widths crop. Equivalent:
    /// `torch.nn.functional.pad`, whose pairs come in the opposite order.
    ///
    /// # Errors
    /// If there are more pairs than axes, or an axis has fewer elements than are cropped.
    #[track_caller]
    pub fn pad(&self, widths: &[(isize, isize)], value: impl Into<Scalar>) -> Result<Tensor> {
        let _op = enter("pad").on([("x", Some(self))]);
        let lead = self.padded_from(widths)?;
        let part = self.cropped(widths, lead)?;
        let mut all = [(0, 0); MAX_NDIM];
        for (all, &(before, after)) in all[lead..].iter_mut().zip(widths) {
            *all = (before.max(0) as usize, after.max(0) as usize);
        }
        Op::Pad { x: &part, widths: &all[..self.ndim()], value: value.into() }.tensor(self.device())
    }

    /// With `(before, after)` of the tensor's own elements around each axis, chosen by `mode`;
    /// widths as in [`Tensor::pad`].
    ///
    /// # Errors
    /// As [`Tensor::pad`]; if a width is more than `mode` can give.
    ///
    /// Equivalent: `torch.nn.functional.pad(x, pairs, mode)`, `numpy.pad` with the modes reflect,
    /// edge and wrap.
    #[doc(alias = "pad")]
    #[track_caller]
    pub fn pad_mode(&self, widths: &[(isize, isize)], mode: PadMode) -> Result<Tensor> {
        let _op = enter("pad_mode").on([("x", Some(self))]);
        let lead = self.padded_from(widths)?;
        let mut x = self.cropped(widths, lead)?;
        for (i, &(before, after)) in widths.iter().enumerate() {
            let (axis, n) = (lead + i, x.shape()[lead + i]);
            let (before, after) = (before.max(0) as usize, after.max(0) as usize);
            let most = match mode {
                PadMode::Reflect => n.saturating_sub(1),
                PadMode::Replicate if n > 0 => usize::MAX,
                PadMode::Replicate | PadMode::Circular => n,
            };
            if before.max(after) > most {
                let axis = format!("axis {axis} of {} elements", n);
                return Err(Error::value(format!(
                    "{mode:?} cannot give {before} elements \
                     before and {after} after {axis}: at most {most}"
                ))
                .help(match mode {
                    PadMode::Replicate => "x.pad(&widths, value)? needs no elements to repeat",
                    _ => "PadMode::Replicate has no limit",
                }));
            }
            if before + after == 0 {
                continue;
            }
            let a = axis as isize;
            let (head, tail) = match mode {
                PadMode::Reflect => (
                    x.slice(a, 1..1 + before)?.flip(a)?,
                    x.slice(a, n - 1 - after..n - 1)?.flip(a)?,
                ),
                PadMode::Replicate => {
                    let edge = |from: usize, times: usize| {
                        x.slice(a, from..from + 1)?.expand(x.shape().resized(axis, times)?)
                    };
                    (edge(0, before)?, edge(n - 1, after)?)
                }
                PadMode::Circular => (x.slice(a, n - before..)?, x.slice(a, ..after)?),
            };
            x = Tensor::cat(&[&head, &x, &tail], a)?;
        }
        Ok(x)
    }

    /// The first axis that `widths` cover.
    fn padded_from(&self, widths: &[(isize, isize)]) -> Result<usize> {
        let too_many = || {
            Error::axis(format!(
                "got {} pairs of widths for the {} axes of {}",
                widths.len(),
                self.ndim(),
                self.shape()
            ))
            .help(format!("pass at most {} pairs, or add axes: x.unsqueeze(0)?", self.ndim()))
        };
        self.ndim().checked_sub(widths.len()).ok_or_else(too_many)
    }

    /// The tensor cropped by the negative widths.
    fn cropped(&self, widths: &[(isize, isize)], lead: usize) -> Result<Tensor> {
        let mut part = self.clone();
        for (i, &(before, after)) in widths.iter().enumerate() {
            let (axis, n) = (lead + i, self.shape()[lead + i]);
            let (cut_before, cut_after) =
                (before.min(0).unsigned_abs(), after.min(0).unsigned_abs());
            if cut_before.saturating_add(cut_after) > n {
                return Err(Error::value(format!(
                    "widths ({before}, {after}) cut more than \
                     the {n} elements of axis {axis} of {}",
                    self.shape()
                ))
                .help(format!("negative widths of this axis add up to -{n} at most")));
            }
            part = part.slice(axis as isize, cut_before..n - cut_after)?;
        }
        Ok(part)
    }
}

/// The definition of [`Op::Pad`].
pub(crate) fn framed(x: &Tensor, widths: &[(usize, usize)], value: Scalar) -> Result<Tensor> {
    let mut sizes = *x.shape();
    for (axis, &(before, after)) in widths.iter().enumerate() {
        sizes = sizes.resized(axis, before + x.shape()[axis] + after)?;
    }
    let inside = |frame: &Tensor| {
        widths.iter().enumerate().try_fold(frame.clone(), |frame, (axis, &(before, _))| {
            frame.slice(axis as isize, before..before + x.shape()[axis])
        })
    };
    Tensor::full(sizes, value, x.dtype(), x)?.assign_view(inside, x)
}
