//! Views: other layouts over the same storage. None of them touches the device, except where a
//! reshape cannot be a view.

use crate::context::{Guard, enter};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::op::Op;
use crate::shape::{IntoAxes, IntoShape, Shape, Size};
use crate::tensor::Tensor;
use crate::validate::BROADCAST;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// A range along an axis, as [`Tensor::slice`] takes it: `2..5`, `..-1`, `3..`, `..`. Negative
/// positions count from the end; positions beyond the ends are cut, as in Python. (Clippy takes
/// `1..-1` for an empty range; `x.slice(0, 1..)?.slice(0, ..-1)` says the same.)
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
    /// The same elements in row-major order as another shape; one size may be -1 and is inferred. A
    /// view where strides allow it, a copy otherwise.
    ///
    /// # Errors
    /// If the number of elements differs.
    ///
    /// Equivalent: `torch.reshape`.
    #[track_caller]
    pub fn reshape(&self, shape: impl IntoShape) -> Result<Tensor> {
        let _op = enter("reshape").on([("x", Some(self))]);
        self.reshaped(&shape.sizes())
    }

    fn reshaped(&self, sizes: &[i64]) -> Result<Tensor> {
        let shape = infer(self.shape(), sizes)?;
        match self.layout().reshape(&shape) {
            Some(layout) => Ok(self.through(layout)),
            None => Ok(self.contiguous()?.through(Layout::contiguous(shape))),
        }
    }

    /// [`Tensor::reshape`] that never copies.
    ///
    /// # Errors
    /// If no strides can express the new shape.
    #[track_caller]
    pub fn view(&self, shape: impl IntoShape) -> Result<Tensor> {
        let _op = enter("view").on([("x", Some(self))]);
        let shape = infer(self.shape(), &shape.sizes())?;
        self.layout().reshape(&shape).map(|layout| self.through(layout)).ok_or_else(|| {
            Error::shape(format!(
                "shape {} with strides {:?} cannot be seen as {shape} without a copy",
                self.shape(),
                self.strides()
            ))
            .help("x.reshape(..)? copies where needed")
        })
    }

    /// Axes `start..=end` joined into one. Equivalent: `torch.flatten`.
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let _op = enter("flatten").on([("x", Some(self))]);
        if self.ndim() == 0 {
            return self.reshape(1);
        }
        let (start, end) = (self.shape().axis(start)?, self.shape().axis(end)?);
        if start > end {
            return Err(Error::axis(format!("axis {start} comes after axis {end}"))
                .help(format!("x.flatten({end}, {start})? names them in order")));
        }
        let mut sizes = self.shape()[..start].to_vec();
        sizes.push(self.shape()[start..=end].iter().product());
        sizes.extend_from_slice(&self.shape()[end + 1..]);
        self.reshape(sizes)
    }

    /// One axis split into several; one size may be -1. Equivalent: `torch.unflatten`.
    #[track_caller]
    pub fn unflatten(&self, axis: isize, sizes: impl IntoShape) -> Result<Tensor> {
        let _op = enter("unflatten").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let parts = infer(&Shape::new(&[self.shape()[axis]])?, &sizes.sizes())?;
        let mut shape = self.shape()[..axis].to_vec();
        shape.extend_from_slice(&parts);
        shape.extend_from_slice(&self.shape()[axis + 1..]);
        self.reshape(shape)
    }

    /// The axes in another order, each named once.
    ///
    /// # Errors
    /// If an axis is missing or named twice.
    #[track_caller]
    pub fn permute(&self, order: impl IntoShape) -> Result<Tensor> {
        let _op = enter("permute").on([("x", Some(self))]);
        let order = order.sizes();
        let axes =
            order.iter().map(|&a| self.shape().axis(a as isize)).collect::<Result<Vec<_>>>()?;
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if sorted != (0..self.ndim()).collect::<Vec<_>>() {
            return Err(Error::axis(format!(
                "{order:?} does not name each of the {} axes of {} once",
                self.ndim(),
                self.shape()
            ))
            .help(format!(
                "x.permute({:?})? reverses the axes",
                (0..self.ndim()).rev().collect::<Vec<_>>()
            )));
        }
        Ok(self.through(self.layout().permute(&axes)))
    }

    /// Axes `a` and `b` exchanged.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let _op = enter("transpose").on([("x", Some(self))]);
        let (a, b) = (self.shape().axis(a)?, self.shape().axis(b)?);
        Ok(self.through(self.layout().transpose(a, b)))
    }

    /// The last two axes exchanged; a vector or scalar stays as it is. Equivalent: `x.mT`.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        let _op = enter("t").on([("x", Some(self))]);
        match self.ndim() {
            0 | 1 => Ok(self.clone()),
            n => Ok(self.through(self.layout().transpose(n - 2, n - 1))),
        }
    }

    /// Axes of size 1 repeated to `shape`, missing axes added in front; -1 keeps a size. No memory
    /// is used: the stride is 0.
    ///
    /// # Errors
    /// If an axis of another size than 1 would have to change.
    #[track_caller]
    pub fn expand(&self, shape: impl IntoShape) -> Result<Tensor> {
        let _op = enter("expand").on([("x", Some(self))]);
        let sizes = shape.sizes();
        let shift = sizes.len() as isize - self.ndim() as isize;
        let mut target = Vec::with_capacity(sizes.len());
        for (axis, &n) in sizes.iter().enumerate() {
            let own = axis as isize - shift;
            target.push(match n {
                -1 if own >= 0 && shift >= 0 => self.shape()[own as usize],
                n if n >= 0 => n as usize,
                n => {
                    return Err(Error::shape(format!(
                        "size {n} for axis {axis}, which {} does not have",
                        self.shape()
                    ))
                    .help(
                        "-1 keeps the size of an axis of x; a new axis in front needs its size",
                    ));
                }
            });
        }
        let target = Shape::new(&target)?;
        match self.layout().expand(&target) {
            Some(layout) => Ok(self.through(layout)),
            None => Err(no_expand(self.shape(), &target)),
        }
    }

    /// [`Tensor::expand`] to the shape of `other`.
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        let _op = enter("expand_as").on([("x", Some(self)), ("other", Some(other))]);
        self.expand(other.shape())
    }

    /// The part of `axis` in `range`: `x.slice(0, 2..5)`. Equivalent: `x[2:5]`.
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

    fn sliced(&self, axis: isize, range: &impl SliceRange, step: isize) -> Result<Layout> {
        sliced(self.layout(), self.shape().axis(axis)?, range, step)
    }

    /// The elements at `index` of `axis`, without that axis; negative indices count from the end.
    /// Equivalent: `torch.select`.
    ///
    /// # Errors
    /// If the index is outside the axis.
    #[track_caller]
    pub fn at(&self, axis: isize, index: isize) -> Result<Tensor> {
        let _op = enter("at").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let place = crate::tensor::index::place(index as i64, self.shape(), axis)?;
        Ok(self.through(self.layout().slice(axis, place, 1, 1).remove(axis)))
    }

    /// The given axes read backwards.
    #[track_caller]
    pub fn flip(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("flip").on([("x", Some(self))]);
        let axes = axes.axes(self.shape())?;
        Ok(self.through(axes.into_iter().fold(*self.layout(), |layout, axis| layout.flip(axis))))
    }

    /// Without the given axes, all of which must have size 1.
    ///
    /// # Errors
    /// If one of them has another size.
    #[track_caller]
    pub fn squeeze(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("squeeze").on([("x", Some(self))]);
        let axes = axes.axes(self.shape())?;
        if let Some(axis) = axes.iter().find(|&&a| self.shape()[a] != 1) {
            return Err(Error::shape(format!(
                "axis {axis} of {} has size {}, not 1",
                self.shape(),
                self.shape()[*axis]
            ))
            .help(squeezable(self.shape(), *axis)));
        }
        Ok(self
            .through(axes.iter().rev().fold(*self.layout(), |layout, &axis| layout.remove(axis))))
    }

    /// With a new axis of size 1 at position `axis`; -1 is behind the last.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("unsqueeze").on([("x", Some(self))]);
        Ok(self.through(self.layout().unsqueeze(self.shape().gap(axis)?)?))
    }

    /// The elements with equal index on axes `a` and `b`, `shift` to the right of the main
    /// diagonal; the diagonal becomes the last axis.
    #[track_caller]
    pub fn diagonal(&self, shift: isize, a: isize, b: isize) -> Result<Tensor> {
        let _op = enter("diagonal").on([("x", Some(self))]);
        let (a, b) = (self.shape().axis(a)?, self.shape().axis(b)?);
        if a == b {
            return Err(Error::axis(format!("a diagonal needs two different axes, not {a} twice"))
                .help("x.diagonal(shift, -2, -1)? takes the last two"));
        }
        Ok(self.through(self.layout().diagonal(shift, a, b)))
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
                "no window of {size} elements by steps of {step} in axis {axis} of {}",
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

    /// Self if its elements lie row-major without gaps, else a copy that does.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        let _op = enter("contiguous").on([("x", Some(self))]);
        if self.is_contiguous() { Ok(self.clone()) } else { self.copy() }
    }

    /// A row-major copy with storage of its own.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        let _op = enter("copy").on([("x", Some(self))]);
        Op::Contiguous { x: self }.tensor(self.device())
    }

    /// Self with the part of `axis` in `range` replaced by `src`, which must have the part's shape
    /// or broadcast to it, and is cast to self's type.
    ///
    /// The handle is consumed: if it is the only one of its storage, the elements are changed in
    /// place, else in a copy. No other handle ever changes.
    #[track_caller]
    pub fn slice_assign(self, axis: isize, range: impl SliceRange, src: &Tensor) -> Result<Tensor> {
        let op = enter("slice_assign").on([("src", Some(src))]);
        let part =
            self.sliced(axis, &range, 1).inspect_err(|_| op.failed_on(&[("x", Some(&self))]))?;
        self.assign_part(&op, part, src)
    }

    /// [`Tensor::assign`] to a part that no index names: `part` gets this tensor and gives back a
    /// view of it, e.g. `x.assign_view(|x| x.diagonal(0, 0, 1), &y)`.
    ///
    /// # Errors
    /// If `part` gives something other than a view of self, or one in which elements occur twice.
    #[track_caller]
    pub fn assign_view(
        self,
        part: impl FnOnce(&Tensor) -> Result<Tensor>,
        src: &Tensor,
    ) -> Result<Tensor> {
        let op = enter("assign_view").on([("src", Some(src))]);
        let view = part(&self)?;
        if !view.same_storage(&self) {
            let error = Err(Error::value("the part to assign to is not a view of the tensor")
                .help("return a view of the argument, e.g. |x| x.slice(0, 1..), not the result of a computation"));
            op.failed_on(&[("x", Some(&self))]);
            return error;
        }
        let layout = *view.layout();
        drop(view);
        self.assign_part(&op, layout, src)
    }

    /// Self with `part` replaced by `src`, for the operation `op`.
    pub(in crate::tensor) fn assign_part<const N: usize>(
        self,
        op: &Guard<'_, N>,
        part: Layout,
        src: &Tensor,
    ) -> Result<Tensor> {
        let (target, src) =
            self.assignable(&part, src).inspect_err(|_| op.failed_on(&[("x", Some(&self))]))?;
        drop(self);
        let (storage, layout, dtype, device) = target.into_parts();
        let mut op = Op::CopyInto { dst: Some(storage), view: &part, src: &src };
        let storage = op.run(&device)?.into_first().ok_or_else(crate::tensor::no_output)?;
        Tensor::from_parts(storage, layout, dtype, device)
    }

    /// Self and `src` on one device, `src` in the type of self and the shape of `part`.
    fn assignable(&self, part: &Layout, src: &Tensor) -> Result<(Tensor, Tensor)> {
        if let Some(bad) = [self.layout(), part].into_iter().find(|layout| !layout.is_injective()) {
            return Err(Error::value(format!(
                "cannot assign to a view in which elements occur twice ({bad:?})"
            ))
            .help("assign to x.copy()?"));
        }
        let device = crate::device::common(self.device(), src.device())?;
        let target = crate::tensor::lift(self, &device)?.into_owned();
        let src = crate::tensor::lift(src, &device)?.cast(target.dtype())?;
        Ok((target, crate::tensor::index::broadcasts(&src, part.shape())?))
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

/// The shape named by `sizes`, with a -1 replaced so that `from.numel()` elements fit.
fn infer(from: &Shape, sizes: &[i64]) -> Result<Shape> {
    let bad = |why: &str, help: &str| {
        Err(Error::shape(format!("{from} cannot become {}: {why}", Written(sizes))).help(help))
    };
    let unknown = sizes.iter().filter(|&&n| n == -1).count();
    if sizes.iter().any(|&n| n < -1) {
        return bad("a size is negative", "only one size may be negative: -1, which is inferred");
    }
    if unknown > 1 {
        return bad("only one size can be -1", "write the other sizes as numbers");
    }
    let known =
        sizes.iter().filter(|&&n| n >= 0).try_fold(1usize, |a, &n| a.checked_mul(n as usize));
    let numel = from.numel();
    let fits = || fitting(sizes, numel);
    let Some(known) = known else { return bad("too many elements", &fits()) };
    if unknown == 0 {
        if known != numel {
            return bad(&format!("{numel} elements are not {known}"), &fits());
        }
    } else if known == 0 {
        return bad("-1 beside a size of 0 could be anything", "write the size instead of -1");
    } else if !numel.is_multiple_of(known) {
        return bad(&format!("{numel} elements do not divide by {known}"), &fits());
    }
    Shape::new(
        &sizes
            .iter()
            .map(|&n| if n == -1 { numel / known } else { n as usize })
            .collect::<Vec<_>>(),
    )
}

/// The sizes of which one is replaced so that there are `numel` elements, in words.
#[cold]
fn fitting(sizes: &[i64], numel: usize) -> String {
    let replaced = |axis: usize| -> Option<String> {
        let others = sizes
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != axis)
            .try_fold(1usize, |a, (_, &n)| a.checked_mul(usize::try_from(n).ok()?))?;
        let mut sizes = sizes.to_vec();
        sizes[axis] =
            i64::try_from(numel.checked_div(others).filter(|_| numel.is_multiple_of(others))?)
                .ok()?;
        Some(format!("{} has {numel} elements", Written(&sizes)))
    };
    let found = (0..sizes.len()).rev().find_map(replaced);
    found.unwrap_or_else(|| format!("the sizes must multiply to {numel}"))
}

/// How to get rid of `axis`, whose size is not 1.
#[cold]
fn squeezable(shape: &Shape, axis: usize) -> String {
    let ones: Vec<usize> = (0..shape.ndim()).filter(|&a| shape[a] == 1).collect();
    match ones.as_slice() {
        [] => format!(
            "x.at({axis}, 0)? takes one position of it, x.flatten(start, end)? joins it with others"
        ),
        ones => format!("x.squeeze({ones:?})? removes the axes of size 1"),
    }
}

#[cold]
pub(in crate::tensor) fn no_expand(from: &Shape, to: &Shape) -> Error {
    let moved =
        from.with_axis(from.ndim(), 1).ok().filter(|moved| moved.broadcast(to) == Some(*to));
    let shift = to.ndim().saturating_sub(from.ndim());
    let counts: Option<Vec<usize>> = (0..to.ndim())
        .map(|a| {
            a.checked_sub(shift).map_or(Some(to[a]), |own| {
                to[a].checked_div(from[own]).filter(|n| n * from[own] == to[a])
            })
        })
        .collect();
    Error::shape(format!(
        "{from} does not expand to {to}: only axes of size 1 stretch, aligned from the right"
    ))
    .help(match (moved, counts) {
        _ if from.ndim() > to.ndim() => {
            "x.at(axis, index)? and x.squeeze(axis)? remove axes".to_string()
        }
        (Some(_), _) => format!("x.unsqueeze(-1)?.expand({to})? stretches a new last axis"),
        (_, Some(counts)) => format!("x.repeat({counts:?})? repeats axes of other sizes"),
        _ => BROADCAST.to_string(),
    })
}

struct Written<'s>(&'s [i64]);
impl std::fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes = self.0.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        if self.0.len() == 1 { write!(f, "({sizes},)") } else { write!(f, "({sizes})") }
    }
}
