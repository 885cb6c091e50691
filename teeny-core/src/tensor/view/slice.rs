//! Views of parts: slices, positions, diagonals, windows, and any strides. Ranges and negative
//! positions are resolved here; parts that tensors name are in `index`.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::messages::indices_to;
use crate::shape::{IntoShape, Shape, Size};
use crate::tensor::Tensor;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// A range along an axis, as [`Tensor::slice`] takes it: `2..5`, `..-1`, `3..`, `..`. Negative
/// positions count from the end; positions beyond the ends are clamped, as in Python. (Clippy
/// reports `1..-1` as an empty range; `x.slice(0, 1..)?.slice(0, ..-1)` is the same.)
pub trait SliceRange {
    /// First position and end for an axis of `size`, with `start <= end <= size`.
    fn resolve(&self, size: usize) -> (usize, usize);
}

/// The positions `start..end` named by two bounds.
fn resolve<T: Size>(range: &impl RangeBounds<T>, size: usize) -> (usize, usize) {
    let place = |p: i64| (if p < 0 { p + size as i64 } else { p }).clamp(0, size as i64);
    let after = |p: i64| if p == -1 { size as i64 } else { place(p.saturating_add(1)) };
    let start = match range.start_bound() {
        Bound::Included(p) => place(p.size()),
        Bound::Excluded(p) => after(p.size()),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(p) => after(p.size()),
        Bound::Excluded(p) => place(p.size()),
        Bound::Unbounded => size as i64,
    };
    (start as usize, end.max(start) as usize)
}

macro_rules! slice_range {
    ($($range:ident)*) => {$(
        impl<T: Size> SliceRange for $range<T> {
            fn resolve(&self, size: usize) -> (usize, usize) { resolve(self, size) }
        }
    )*};
}

slice_range!(Range RangeFrom RangeTo RangeInclusive RangeToInclusive);

impl SliceRange for (Bound<i64>, Bound<i64>) {
    fn resolve(&self, size: usize) -> (usize, usize) {
        resolve(self, size)
    }
}

impl SliceRange for RangeFull {
    fn resolve(&self, size: usize) -> (usize, usize) {
        (0, size)
    }
}

impl Tensor {
    /// The part of `axis` in `range`: `x.slice(0, 2..5)`. Equivalent: `x[2:5]`.
    #[doc(alias = "narrow")]
    #[track_caller]
    pub fn slice(&self, axis: isize, range: impl SliceRange) -> Result<Tensor> {
        let _op = enter("slice").on([("x", Some(self))]);
        Ok(self.through(self.sliced(axis, &range, 1)?))
    }

    /// Every `step`-th element of the part of `axis` in `range`; a negative step reads the same
    /// range from its end. Equivalent: `x[2:9:3]`, and for a negative step `x[2:9].flip(0)[::3]`.
    ///
    /// # Errors
    /// If `step` is 0.
    #[track_caller]
    pub fn slice_step(&self, axis: isize, range: impl SliceRange, step: isize) -> Result<Tensor> {
        let _op = enter("slice_step").on([("x", Some(self))]);
        Ok(self.through(self.sliced(axis, &range, step)?))
    }

    pub(in crate::tensor) fn sliced(
        &self,
        axis: isize,
        range: &impl SliceRange,
        step: isize,
    ) -> Result<Layout> {
        sliced(self.layout(), self.shape().axis(axis)?, range, step)
    }

    /// The elements at `index` of `axis`, without that axis; negative indices count from the end.
    /// Equivalent: `torch.select`.
    ///
    /// # Errors
    /// If the index is outside the axis.
    #[doc(alias = "select")]
    #[track_caller]
    pub fn at(&self, axis: isize, index: isize) -> Result<Tensor> {
        let _op = enter("at").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let place = place(index as i64, self.shape(), axis)?;
        Ok(self.through(self.layout().slice(axis, place, 1, 1).remove(axis)))
    }

    /// Diagonal `diagonal` of axes `a` and `b` (positive: above the main diagonal), as the last
    /// axis of a view.
    #[track_caller]
    pub fn diagonal(&self, diagonal: isize, a: isize, b: isize) -> Result<Tensor> {
        let _op = enter("diagonal").on([("x", Some(self))]);
        let (a, b) = (self.shape().axis(a)?, self.shape().axis(b)?);
        if a == b {
            return Err(Error::axis(format!("expected two different axes, got {a} twice"))
                .help("x.diagonal(diagonal, -2, -1)? takes the last two"));
        }
        Ok(self.through(self.layout().diagonal(diagonal, a, b)))
    }

    /// All windows of `size` elements along `axis`, `step` apart: `axis` counts them, a new last
    /// axis runs inside one. Equivalent: `x.unfold`.
    ///
    /// # Errors
    /// If no window fits, or `size` or `step` is 0.
    #[track_caller]
    pub fn unfold(&self, axis: isize, size: usize, step: usize) -> Result<Tensor> {
        let _op = enter("unfold").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        if size == 0 || step == 0 || size > self.shape()[axis] {
            return Err(Error::value(format!(
                "cannot take windows of {size} elements by steps of {step} from axis {axis} of {}",
                self.shape()
            ))
            .help(format!("sizes go from 1 to {}, steps from 1 on", self.shape()[axis])));
        }
        Ok(self.through(self.layout().unfold(axis, size, step)?))
    }

    /// The storage seen through any strides, checked to stay inside it; `offset` counts from the
    /// storage's start. Equivalent: `torch.as_strided`.
    #[track_caller]
    pub fn as_strided(
        &self,
        shape: impl IntoShape,
        strides: &[isize],
        offset: usize,
    ) -> Result<Tensor> {
        let _op = enter("as_strided").on([("x", Some(self))]);
        Ok(self.through(Layout::strided(shape.shape()?, strides, offset, self.storage().len())?))
    }
}

/// Every `step`-th position of `range` of `axis`.
pub(in crate::tensor) fn sliced(
    layout: &Layout,
    axis: usize,
    range: &impl SliceRange,
    step: isize,
) -> Result<Layout> {
    let (start, end) = range.resolve(layout.shape()[axis]);
    if step == 0 {
        return Err(Error::value("the step of a slice cannot be 0")
            .help("1 takes every element, 2 every second, -1 all of them backwards"));
    }
    let len = (end - start).div_ceil(step.unsigned_abs());
    let first = if step > 0 { start } else { end.saturating_sub(1) };
    Ok(layout.slice(axis, first, len, step))
}

/// Position `position` of `axis` counted from the front.
pub(in crate::tensor) fn place(position: i64, shape: &Shape, axis: usize) -> Result<usize> {
    let size = shape[axis] as i64;
    let place = if position < 0 { position.saturating_add(size) } else { position };
    if (0..size).contains(&place) {
        return Ok(place as usize);
    }
    Err(Error::index(format!(
        "index {position} is outside axis {axis} of {shape}, which has size {size}"
    ))
    .help(indices_to(shape[axis])))
}
