//! The requirements of operations that move elements: by index, into a view, sorted, joined. The
//! device checks positions.

use super::{axis_of, like, positions, spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::messages::{converts, index_fits, no_tensors, not_integers, only_set, two_axes};
use crate::op::{ScatterMode, TensorSpec};
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;

fn indexed(x: &Tensor, axis: usize, index: &Tensor) -> Result<()> {
    axis_of(x.shape(), axis)?;
    if !index.dtype().is_int() {
        return Err(not_integers("index", index.dtype()));
    }
    index_fits(x.shape(), index.shape(), axis)
}

/// [`Op::Gather`](crate::Op::Gather). The device checks the positions.
///
/// # Errors
/// If `axis` is out of range, or the index is not an integer tensor or does not fit `x`.
pub fn gather(x: &Tensor, axis: usize, index: &Tensor) -> Result<TensorSpec> {
    indexed(x, axis, index)?;
    Ok((*index.shape(), x.dtype()))
}

/// [`Op::Scatter`](crate::Op::Scatter). The positions themselves are for the device to
/// check.
///
/// # Errors
/// As [`gather`]; if `src` has not the shape of the index and the type of `x`, or bools are not
/// just set.
pub fn scatter(
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<TensorSpec> {
    indexed(x, axis, index)?;
    like("src", src, index.shape(), x.dtype())?;
    if mode != ScatterMode::Set && x.dtype() == DType::Bool {
        return Err(only_set());
    }
    Ok(spec(x))
}

/// [`Op::CopyInto`](crate::Op::CopyInto).
///
/// # Errors
/// If the view reaches outside `dst` or names an element twice, or `src` has another shape or type.
pub fn copy_into(dst: &StorageRef, view: &Layout, src: &Tensor) -> Result<()> {
    if dst.dtype() != src.dtype() {
        return Err(Error::dtype(format!(
            "the destination holds {}, the source {}",
            dst.dtype(),
            src.dtype()
        ))
        .help(converts("src", dst.dtype())));
    }
    if !view.fits(dst.len()) {
        return Err(Error::index(format!(
            "{view:?} reaches outside a storage of {} elements",
            dst.len()
        ))
        .help(
            "Layout::strided(shape, strides, offset, storage.len())? makes a layout that does not",
        ));
    }
    if view.shape() != src.shape() {
        return Err(Error::shape(format!(
            "a source of {} does not fit a view of {}",
            src.shape(),
            view.shape()
        ))
        .help(format!("src.expand({})? repeats axes of size 1", view.shape())));
    }
    if !view.is_injective() {
        return Err(Error::value(format!(
            "cannot write to a view in which elements occur twice ({view:?})"
        ))
        .help("write to a copy: x.copy()?"));
    }
    Ok(())
}

/// [`Op::Sort`](crate::Op::Sort) and [`Op::CumMax`](crate::Op::CumMax): values and positions.
///
/// # Errors
/// If `axis` is out of range, or it has more positions than `I32`.
pub fn sort(x: &Tensor, axis: usize) -> Result<(TensorSpec, TensorSpec)> {
    axis_of(x.shape(), axis)?;
    positions(x.shape()[axis])?;
    Ok((spec(x), (*x.shape(), DType::I32)))
}

/// [`Op::TopK`](crate::Op::TopK): values and positions.
///
/// # Errors
/// As [`sort`]; if the axis has fewer than `k` elements.
pub fn topk(x: &Tensor, axis: usize, k: usize) -> Result<(TensorSpec, TensorSpec)> {
    sort(x, axis)?;
    let size = x.shape()[axis];
    if k > size {
        return Err(too_few(x.shape(), axis, k));
    }
    let shape = x.shape().resized(axis, k)?;
    Ok(((shape, x.dtype()), (shape, DType::I32)))
}

#[cold]
fn too_few(shape: &Shape, axis: usize, k: usize) -> Error {
    let size = shape[axis];
    Error::value(format!("axis {axis} of {shape} has {size} elements, not {k}"))
        .help(format!("x.topk({size}, {axis}, extremum)? sorts all of them"))
}

/// [`Op::Cat`](crate::Op::Cat).
///
/// # Errors
/// If `tensors` is empty, or they differ in dtype or in a size other than on `axis`.
pub fn cat(tensors: &[&Tensor], axis: usize) -> Result<TensorSpec> {
    let Some(first) = tensors.first() else { return Err(no_tensors()) };
    axis_of(first.shape(), axis)?;
    let mut total = 0usize;
    for (i, x) in tensors.iter().enumerate() {
        let fits = x.ndim() == first.ndim()
            && (0..first.ndim()).all(|a| a == axis || x.shape()[a] == first.shape()[a]);
        if !fits {
            return Err(cat_mismatch(i, x.shape(), first.shape(), axis));
        }
        if x.dtype() != first.dtype() {
            return Err(Error::dtype(format!(
                "tensor {i} is {}, tensor 0 is {}",
                x.dtype(),
                first.dtype()
            ))
            .help(converts(&format!("tensors[{i}]"), first.dtype())));
        }
        // A sum that overflows is an error of the shape.
        total = total.saturating_add(x.shape()[axis]);
    }
    Ok((first.shape().resized(axis, total)?, first.dtype()))
}

/// [`Op::Pad`](crate::Op::Pad).
///
/// # Errors
/// If there is not one pair of widths for each axis, or a size overflows.
pub fn pad(x: &Tensor, widths: &[(usize, usize)]) -> Result<TensorSpec> {
    if widths.len() != x.ndim() {
        return Err(Error::axis(format!(
            "got {} pairs of widths for the {} axes of {}",
            widths.len(),
            x.ndim(),
            x.shape()
        ))
        .help("x.pad(&widths, value)? takes pairs for the last axes only"));
    }
    let mut sizes = *x.shape();
    for (axis, &(before, after)) in widths.iter().enumerate() {
        // A sum that overflows is an error of the shape.
        let size = sizes[axis].saturating_add(before).saturating_add(after);
        sizes = sizes.resized(axis, size)?;
    }
    Ok((sizes, x.dtype()))
}

/// [`Op::Tri`](crate::Op::Tri).
///
/// # Errors
/// If there are fewer than two axes, or one of the last two has more positions than `I32`.
pub fn tri(x: &Tensor) -> Result<TensorSpec> {
    let Some(front) = x.ndim().checked_sub(2) else {
        return Err(Error::shape(format!("expected at least two axes, got {}", x.shape()))
            .help(two_axes(x.shape())));
    };
    x.shape()[front..].iter().try_for_each(|&size| positions(size))?;
    Ok(spec(x))
}

/// [`Op::Positions`](crate::Op::Positions).
///
/// # Errors
/// If there is not one index for each size, they are not integers of one shape, or the product of
/// the sizes overflows.
pub fn flat_positions(indices: &[&Tensor], sizes: &[usize]) -> Result<TensorSpec> {
    let Some(first) = indices.first().filter(|_| indices.len() == sizes.len()) else {
        return Err(Error::value(format!(
            "{} indices for {} sizes: one for each is needed",
            indices.len(),
            sizes.len()
        ))
        .help("x.index((&rows, &columns))? takes a tensor for each axis"));
    };
    for index in indices {
        if !index.dtype().is_int() {
            return Err(not_integers("index", index.dtype()));
        }
        like("index", index, first.shape(), index.dtype())?;
    }
    let count = |total: i64, &size: &usize| total.checked_mul(i64::try_from(size).ok()?);
    match sizes.iter().try_fold(1i64, count) {
        Some(_) => Ok((*first.shape(), DType::I64)),
        None => Err(Error::value(format!("axes of {sizes:?} have more elements than I64 counts"))
            .help("index one axis after the other")),
    }
}

/// The error of tensor `i` of `shape`, which cannot be concatenated with the first.
#[cold]
fn cat_mismatch(i: usize, shape: &Shape, first: &Shape, axis: usize) -> Error {
    Error::shape(format!(
        "tensor {i} is {shape}, tensor 0 is {first}: all sizes except on axis {axis} must agree"
    ))
    .help(cat_help(first, shape, axis))
}

/// How tensors of these shapes can be joined, in words.
#[cold]
fn cat_help(a: &Shape, b: &Shape, axis: usize) -> String {
    if a.ndim() != b.ndim() {
        return "x.unsqueeze(axis)? adds an axis of size 1".to_string();
    }
    let unequal: Vec<usize> = (0..a.ndim()).filter(|&i| i != axis && a[i] != b[i]).collect();
    let cut = match unequal[..] {
        [other] => format!("x.slice({other}, ..{})? cuts the larger", a[other].min(b[other])),
        _ => "x.slice(axis, ..n)? cuts the larger".to_string(),
    };
    // images (N, C, spatial..): along a spatial axis, one would be below the other
    if a.ndim() >= 4 && unequal.iter().all(|&i| i >= 2) {
        let sizes: Vec<usize> = (2..a.ndim()).map(|i| a[i].max(b[i])).collect();
        let resized = format!("x.interpolate(&{sizes:?}, Interpolation::Nearest)?");
        return format!("{cut}; x.pad(&widths, 0)? or {resized} enlarges the smaller");
    }
    let cures = format!("{cut}; x.pad(&widths, 0)? enlarges the smaller");
    match unequal[..] {
        [i] if a[axis] == b[axis] => {
            format!("they fit along axis {i}: Tensor::cat(&tensors, {i})?; {cures}")
        }
        _ => cures,
    }
}
