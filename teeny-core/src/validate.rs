//! The contract of [`Op`](crate::Op): the requirements on its operands, and the shape and dtype of
//! each output.
//!
//! One function per op, called by [`Op::outputs`](crate::Op::outputs): by core for the shapes of
//! results, and by every engine at its door, because anyone may construct an op. All size
//! arithmetic is checked, so that a device computes with these sizes and never recomputes them. A function that returns `Ok` says: counts, types, shapes, axes and
//! windows fit each other, and no size, and no sum or product of sizes, overflows. That a layout is
//! inside its storage, and that the storage belongs to the device, is for the device to check when
//! it looks into the storage.

use crate::attention::AttentionInputs;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::linalg::LinalgOp;
use crate::op::{ReduceOp, ScanOp, ScatterMode, TensorSpec, Window};
use crate::random::{self, Distribution};
use crate::scalar::Scalar;
use crate::shape::{MAX_NUMEL, Shape, index_end, no_axis};
use crate::storage::StorageRef;
use crate::tensor::Tensor;

fn spec(x: &Tensor) -> TensorSpec {
    (*x.shape(), x.dtype())
}

fn axis_of(x: &Shape, axis: usize) -> Result<()> {
    if axis < x.ndim() {
        Ok(())
    } else {
        Err(no_axis(x, isize::try_from(axis).unwrap_or(isize::MAX)))
    }
}

fn float(x: &Tensor) -> Result<()> {
    if x.dtype().is_float() { Ok(()) } else { Err(not_float(x.dtype())) }
}

#[cold]
pub(crate) fn not_float(dtype: DType) -> Error {
    Error::dtype(format!("needs floats, not {dtype}")).help("x.cast(DType::F32)? converts")
}

fn like(name: &str, x: &Tensor, shape: &[usize], dtype: DType) -> Result<()> {
    if x.dtype() == dtype && x.shape()[..] == *shape {
        Ok(())
    } else {
        Err(unlike(name, x, shape, dtype))
    }
}

#[cold]
fn unlike(name: &str, x: &Tensor, shape: &[usize], dtype: DType) -> Error {
    if x.dtype() != dtype {
        return Error::dtype(format!("{name} is {}, not {dtype}", x.dtype()))
            .help(converts(name, dtype));
    }
    let wanted = Shape::from_checked(shape);
    Error::shape(format!("{name} is {}, not {wanted}", x.shape())).help(
        match x.numel() == wanted.numel() {
            true => format!("{name}.reshape({wanted})? has this shape"),
            false => format!("{name}.expand({wanted})? repeats axes of size 1"),
        },
    )
}

/// How to make `name` a tensor of `dtype`.
pub(crate) fn converts(name: &str, dtype: DType) -> String {
    format!("{name}.cast(DType::{})? converts", dtype.variant())
}

/// Which positions an axis of `size` has.
pub(crate) fn positions_to(size: usize) -> String {
    if size == 0 {
        "the axis is empty: it has no positions".to_string()
    } else {
        format!("positions go from 0 to {}", size - 1)
    }
}

/// Which positions an axis of `size` has, negative ones included.
pub(crate) fn indices_to(size: usize) -> String {
    if size == 0 {
        "the axis is empty: it has no positions".to_string()
    } else {
        format!("indices go from -{size} to {}", size - 1)
    }
}

/// What `shape` can be multiplied out to so that it has two axes.
pub(crate) fn two_axes(shape: &Shape) -> &'static str {
    match shape.ndim() {
        0 => "x.reshape((1, 1))? is a matrix of one element",
        _ => "x.unsqueeze(0)? is a matrix of one row, x.unsqueeze(1)? of one column",
    }
}

/// What works where a square matrix is needed and another is given.
pub(crate) const NOT_SQUARE: &str =
    "x.svd()?, x.qr()?, x.pinv(None)? and x.lstsq(&b)? take matrices of any shape";

/// How shapes are made to broadcast.
pub(crate) const BROADCAST: &str =
    "sizes must be equal or 1, aligned from the right: x.unsqueeze(axis)? adds an axis of size 1";

/// Positions along an axis, or in a plane, are `I32`.
fn positions(n: usize) -> Result<()> {
    index_end(n).map(drop)
}

/// [`Device::upload`](crate::Device::upload).
///
/// # Errors
/// If the bytes are not whole elements, or a bool is neither 0 nor 1.
pub fn upload(bytes: &[u8], dtype: DType) -> Result<TensorSpec> {
    let size = dtype.size();
    if !bytes.len().is_multiple_of(size) {
        return Err(Error::value(format!(
            "{} bytes are not whole elements of {dtype}, which have {size} bytes each",
            bytes.len()
        ))
        .help(format!("pass {} bytes or a multiple of {size}", bytes.len() / size * size)));
    }
    if dtype == DType::Bool
        && let Some(i) = bytes.iter().position(|&b| b > 1)
    {
        return Err(Error::value(format!("byte {i} is {}; a bool is 0 or 1", bytes[i]))
            .help("Tensor::from_bytes takes every byte but 0 as true"));
    }
    Ok((Shape::new(&[bytes.len() / size])?, dtype))
}

/// [`Op::Elementwise`](crate::Op::Elementwise). Each output has `shape` and the type of
/// [`Kernel::output_dtype`].
///
/// # Errors
/// If the numbers of inputs or parameters are not the kernel's, or an input has another type or
/// shape.
#[inline]
pub fn elementwise(
    kernel: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<()> {
    let types = kernel.inputs();
    if inputs.len() != types.len() || params.len() != kernel.params().len() {
        return Err(counts(kernel, inputs.len(), params.len()));
    }
    for (i, x) in inputs.iter().enumerate() {
        if x.dtype() != types[i] || x.shape() != shape {
            return Err(wrong_input(i, x, types[i], shape));
        }
    }
    Ok(())
}

#[cold]
pub(crate) fn counts(kernel: &Kernel, inputs: usize, params: usize) -> Error {
    let wanted = (kernel.inputs().len(), kernel.params().len());
    Error::value(format!(
        "the kernel takes {} tensors and {} parameters, not {inputs} and {params}",
        wanted.0, wanted.1
    ))
    .help("kernel.inputs() and kernel.params() list the types of both in order")
}

#[cold]
pub(crate) fn wrong_input(i: usize, x: &Tensor, dtype: DType, shape: &Shape) -> Error {
    if x.dtype() != dtype {
        return Error::dtype(format!("input {i} of the kernel is {dtype}, not {}", x.dtype()))
            .help(converts(&format!("inputs[{i}]"), dtype));
    }
    Error::shape(format!(
        "input {i} is {}, and the kernel runs at every index of {shape}",
        x.shape()
    ))
    .help(format!("inputs[{i}].expand({shape})? repeats axes of size 1"))
}

/// [`Op::ElementwiseInPlace`](crate::Op::ElementwiseInPlace), for a storage of `len` elements
/// of `dtype`.
///
/// # Errors
/// If the kernel has not one output, or one or two inputs; or the storage or the other input is not
/// what they are.
#[inline]
pub fn elementwise_in_place(
    kernel: &Kernel,
    (len, dtype): (usize, DType),
    input_index: usize,
    other: Option<&Tensor>,
    params: &[Scalar],
    shape: &Shape,
) -> Result<()> {
    let types = kernel.inputs();
    let inputs = 1 + usize::from(other.is_some());
    if types.len() != inputs || params.len() != kernel.params().len() {
        return Err(counts(kernel, inputs, params.len()));
    }
    let whole = input_index < inputs && dtype == types[input_index] && len == shape.numel();
    if !whole || kernel.outputs().len() != 1 || kernel.output_dtype(0) != dtype {
        return Err(cannot_overwrite((len, dtype), input_index, shape));
    }
    match other {
        Some(x) if x.dtype() != types[1 - input_index] || x.shape() != shape => {
            Err(wrong_input(1 - input_index, x, types[1 - input_index], shape))
        }
        _ => Ok(()),
    }
}

#[cold]
fn cannot_overwrite((len, dtype): (usize, DType), input_index: usize, shape: &Shape) -> Error {
    Error::shape(format!("{len} elements of {dtype} cannot be input {input_index} and the one result of a kernel over {shape}"))
        .help("Op::Elementwise writes to new storage")
}

#[cold]
pub(crate) fn nothing_to_compare(axis: usize, shape: &Shape) -> Error {
    Error::shape(format!("axis {axis} of {shape} is empty: there is nothing to compare")).help(
        format!(
            "Tensor::cat(&[&start, &x], {axis})? puts a first element in front, to compare with"
        ),
    )
}

/// The result of reducing `axes` of elements of `dtype`.
fn reduction(op: ReduceOp, shape: &Shape, dtype: DType, axes: &[usize]) -> Result<TensorSpec> {
    let ascending =
        axes.windows(2).all(|w| w[0] < w[1]) && axes.last().is_some_and(|&a| a < shape.ndim());
    if !ascending {
        return Err(Error::axis(format!(
            "axes {axes:?} of {shape} are not one or more axes in ascending order"
        ))
        .help(format!(
            "pass each axis once, from 0 to {} in ascending order",
            shape.ndim().saturating_sub(1)
        )));
    }
    let accepts = match op {
        ReduceOp::Any | ReduceOp::All => dtype == DType::Bool,
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => dtype != DType::Bool,
        ReduceOp::ArgMax | ReduceOp::ArgMin => true,
    };
    if !accepts {
        return Err(Error::dtype(format!("{op:?} does not reduce {dtype}")).help(match op {
            ReduceOp::Any | ReduceOp::All => "x.ne(0)? makes bools",
            _ => "x.cast(DType::I64)? converts",
        }));
    }
    if op.is_arg() {
        if axes.len() != 1 {
            return Err(Error::axis(format!("{op:?} reduces one axis, not {axes:?}"))
                .help("x.flatten(start, end)? makes several axes one"));
        }
        positions(shape[axes[0]])?;
    }
    let extreme = matches!(op, ReduceOp::Max | ReduceOp::Min | ReduceOp::ArgMax | ReduceOp::ArgMin);
    if extreme && let Some(&axis) = axes.iter().find(|&&a| shape[a] == 0) {
        return Err(nothing_to_compare(axis, shape));
    }
    Ok((shape.reduced(axes, false), op.output(dtype)))
}

/// [`Op::Reduce`](crate::Op::Reduce).
///
/// # Errors
/// If the axes are not ascending axes of `x`, the type is not one that `op` takes, or there is
/// nothing to compare.
pub fn reduce(op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<TensorSpec> {
    reduction(op, x.shape(), x.dtype(), axes)
}

/// [`Op::ReduceKernel`](crate::Op::ReduceKernel).
///
/// # Errors
/// As [`elementwise`] and [`reduce`]; if the kernel has not one output.
pub fn reduce_kernel(
    kernel: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<TensorSpec> {
    elementwise(kernel, inputs, params, shape)?;
    if kernel.outputs().len() != 1 || inputs.is_empty() {
        let (n, outputs) = (inputs.len(), kernel.outputs().len());
        return Err(Error::value(format!(
            "a kernel that is reduced has inputs and one output, not {n} and {outputs}"
        ))
        .help("build a kernel of one output, from at least one tensor"));
    }
    reduction(op, shape, kernel.output_dtype(0), axes)
}

/// [`Op::Scan`](crate::Op::Scan).
///
/// # Errors
/// If there is no such axis, or the elements are bools.
pub fn scan(op: ScanOp, x: &Tensor, axis: usize) -> Result<TensorSpec> {
    axis_of(x.shape(), axis)?;
    if x.dtype() == DType::Bool {
        return Err(Error::dtype(format!("{op:?} does not scan bools"))
            .help("x.cast(DType::I64)? converts"));
    }
    Ok(spec(x))
}

/// [`Op::Matmul`](crate::Op::Matmul).
///
/// # Errors
/// If the shapes are not (.., m, k) and (.., k, n) with equal leading axes, or the types differ or
/// are bool.
pub fn matmul(lhs: &Tensor, rhs: &Tensor) -> Result<TensorSpec> {
    let (a, b) = (lhs.shape(), rhs.shape());
    let rows = a.ndim().wrapping_sub(2);
    if a.ndim() < 2 || a.ndim() != b.ndim() || a[..rows] != b[..rows] || a[rows + 1] != b[rows] {
        return Err(Error::shape(format!(
            "cannot multiply {a} @ {b}: (.., m, k) @ (.., k, n) with equal leading axes are needed"
        ))
        .help("lhs.matmul(&rhs)? broadcasts leading axes"));
    }
    if lhs.dtype() != rhs.dtype() || lhs.dtype() == DType::Bool {
        return Err(Error::dtype(format!(
            "cannot multiply {} by {}: one type is needed, not bool",
            lhs.dtype(),
            rhs.dtype()
        ))
        .help("lhs.matmul(&rhs)? promotes types; bools are cast to DType::F32"));
    }
    Ok((a.resized(rows + 1, b[rows + 1])?, lhs.dtype()))
}

fn indexed(x: &Tensor, axis: usize, index: &Tensor) -> Result<()> {
    axis_of(x.shape(), axis)?;
    if !index.dtype().is_int() {
        return Err(not_integers("index", index.dtype()));
    }
    index_fits(x.shape(), index.shape(), axis)
}

#[cold]
pub(crate) fn not_integers(name: &str, dtype: DType) -> Error {
    let what = if name == "index" { "positions" } else { name };
    Error::dtype(format!("{what} must be integers, not {dtype}")).help(match dtype {
        DType::Bool if name == "index" => "x.index(&mask)? takes a mask of bools".to_string(),
        _ => converts(name, DType::I64),
    })
}

/// An error unless `index` has as many axes as `x`, none longer except `axis`.
pub(crate) fn index_fits(x: &Shape, index: &Shape, axis: usize) -> Result<()> {
    let fits = index.ndim() == x.ndim() && (0..x.ndim()).all(|a| a == axis || index[a] <= x[a]);
    if fits { Ok(()) } else { Err(index_misfit(x, index, axis)) }
}

#[cold]
fn index_misfit(x: &Shape, index: &Shape, axis: usize) -> Error {
    let longer = (index.ndim() == x.ndim())
        .then(|| (0..x.ndim()).find(|&a| a != axis && index[a] > x[a]))
        .flatten();
    let text = format!(
        "index {index} does not fit {x}: it needs as many axes, none longer except axis {axis}"
    );
    Error::shape(text).help(match longer {
        Some(a) => format!("index.slice({a}, ..{})? is not longer on axis {a}", x[a]),
        None => {
            format!("x.index_select({axis}, &index)? takes whole slices at positions of any shape")
        }
    })
}

#[cold]
pub(crate) fn only_set() -> Error {
    Error::dtype("bools can only be set, not added or compared")
        .help("x.cast(DType::I64)? converts; x.scatter(axis, &index, &src)? sets")
}

/// [`Op::Gather`](crate::Op::Gather). The positions themselves are for the device to check.
///
/// # Errors
/// If there is no such axis, the index is not of integers, or does not fit `x`.
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

/// [`Op::Sort`](crate::Op::Sort): values and positions.
///
/// # Errors
/// If there is no such axis, or it has more positions than `I32`.
pub fn sort(x: &Tensor, axis: usize) -> Result<[TensorSpec; 2]> {
    axis_of(x.shape(), axis)?;
    positions(x.shape()[axis])?;
    Ok([spec(x), (*x.shape(), DType::I32)])
}

/// [`Op::Random`](crate::Op::Random).
///
/// # Errors
/// If the distribution does not exist for the type.
pub fn random(distribution: Distribution, shape: &Shape, dtype: DType) -> Result<TensorSpec> {
    random::check(distribution, dtype)?;
    Ok((*shape, dtype))
}

#[cold]
pub(crate) fn no_tensors() -> Error {
    Error::value("needs at least one tensor")
        .help("a first tensor of size 0 along the axis lets the rest of the list be empty")
}

/// [`Op::Cat`](crate::Op::Cat).
///
/// # Errors
/// If there are no tensors, or they differ in dtype or in a size other than that of `axis`.
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
        // A sum that overflows is refused as a size.
        total = total.saturating_add(x.shape()[axis]);
    }
    Ok((first.shape().resized(axis, total)?, first.dtype()))
}

/// The error of tensor `i` of `shape`, which cannot be concatenated with the first.
#[cold]
fn cat_mismatch(i: usize, shape: &Shape, first: &Shape, axis: usize) -> Error {
    Error::shape(format!(
        "tensor {i} is {shape}, tensor 0 is {first}: all sizes but that of axis {axis} must agree"
    ))
    .help(cat_along(first, shape))
}

/// [`Op::Softmax`](crate::Op::Softmax) and
/// [`Op::LogSoftmax`](crate::Op::LogSoftmax).
///
/// # Errors
/// If there is no such axis, or the elements are not floats.
pub fn softmax(x: &Tensor, axis: usize) -> Result<TensorSpec> {
    axis_of(x.shape(), axis)?;
    float(x)?;
    Ok(spec(x))
}

/// [`Op::SoftmaxGrad`](crate::Op::SoftmaxGrad) and
/// [`Op::LogSoftmaxGrad`](crate::Op::LogSoftmaxGrad).
///
/// # Errors
/// As [`softmax`]; if `g` is not like `y`.
pub fn softmax_grad(y: &Tensor, g: &Tensor, axis: usize) -> Result<TensorSpec> {
    softmax(y, axis)?;
    like("g", g, y.shape(), y.dtype())?;
    Ok(spec(y))
}

/// [`Op::CrossEntropy`](crate::Op::CrossEntropy). The targets' values are for the device
/// to check.
///
/// # Errors
/// If the operands are not floats (n, classes) and integers (n).
pub fn cross_entropy(x: &Tensor, targets: &Tensor) -> Result<TensorSpec> {
    float(x)?;
    if targets.dtype().is_int() && x.ndim() == 2 && targets.shape()[..] == [x.shape()[0]] {
        return Ok((*targets.shape(), x.dtype()));
    }
    Err(wrong_targets(x, targets))
}

#[cold]
fn wrong_targets(x: &Tensor, targets: &Tensor) -> Error {
    if !targets.dtype().is_int() {
        return Error::dtype(format!("targets are classes, so integers, not {}", targets.dtype()))
            .help(match targets.ndim() {
                2 => "targets.argmax(1)? makes classes of rows of zeros and a one",
                _ => "targets.cast(DType::I64)? converts",
            });
    }
    let (n, classes) = (targets.numel(), x.shape().last().copied().unwrap_or(0));
    Error::shape(format!("scores (n, classes) and targets (n) are needed, not {} and {}", x.shape(), targets.shape())).help(
        match x.ndim() > 1 && x.numel() == n * classes {
            true => format!("x.reshape(({n}, {classes}))? and targets.reshape({n})? fit"),
            false => "one target per row: classes on the last axis of x, all other axes joined by x.reshape((-1, classes))?".to_string(),
        },
    )
}

/// [`Op::CrossEntropyGrad`](crate::Op::CrossEntropyGrad).
///
/// # Errors
/// As [`cross_entropy`]; if `g` is not (n) of the type of `x`.
pub fn cross_entropy_grad(x: &Tensor, targets: &Tensor, g: &Tensor) -> Result<TensorSpec> {
    cross_entropy(x, targets)?;
    like("g", g, targets.shape(), x.dtype())?;
    Ok(spec(x))
}

/// [`Op::Norm`](crate::Op::Norm).
///
/// # Errors
/// If `x` has no axes or is not of floats, or weight and bias are not lines of its last axis and of
/// its type.
pub fn norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<TensorSpec> {
    float(x)?;
    let Some(&length) = x.shape().last() else {
        return Err(
            Error::shape("a scalar has no axis to normalise along").help("x.reshape(1)? has one")
        );
    };
    for (name, line) in [("weight", weight), ("bias", bias)] {
        if let Some(line) = line {
            like(name, line, &[length], x.dtype())?;
        }
    }
    if bias.is_some() && weight.is_none() {
        return Err(Error::value("a bias needs a weight beside it").help(format!(
            "a weight of ones changes nothing: Tensor::ones({length}, dtype, &device)?"
        )));
    }
    Ok(spec(x))
}

/// [`Op::NormGrad`](crate::Op::NormGrad).
///
/// # Errors
/// As [`norm`]; if `g` is not like `x`.
pub fn norm_grad(x: &Tensor, weight: Option<&Tensor>, g: &Tensor) -> Result<TensorSpec> {
    norm(x, weight, None)?;
    like("g", g, x.shape(), x.dtype())?;
    Ok(spec(x))
}

/// How many windows of `kernel` elements fit `axis`, of `size`.
fn windows(window: &Window, axis: usize, size: usize, kernel: usize) -> Result<usize> {
    let (stride, dilation) = (window.stride[axis], window.dilation[axis]);
    if stride == 0 || dilation == 0 || kernel == 0 {
        return Err(zero_window(stride, dilation, kernel));
    }
    let (reach, padded) = (window.reach(axis, kernel)?, window.padded(axis, size)?);
    if reach > padded {
        return Err(window_too_large(axis, size, (reach, padded), (kernel, dilation)));
    }
    Ok((padded - reach) / stride + 1)
}

#[cold]
pub(crate) fn zero_window(stride: usize, dilation: usize, kernel: usize) -> Error {
    Error::value(format!("stride {stride}, dilation {dilation} and window {kernel} must not be 0"))
        .help("1 is the smallest, and what Window::new(ndim) has as stride and dilation")
}

/// A window of `kernel` elements, `dilation` apart, that reaches over more than the padded axis.
#[cold]
fn window_too_large(
    axis: usize,
    size: usize,
    (reach, padded): (usize, usize),
    (kernel, dilation): (usize, usize),
) -> Error {
    let padding = (reach - size).div_ceil(2);
    let most = padded.checked_sub(1).map_or(0, |rest| rest / dilation + 1);
    let text = format!(
        "a window of {reach} does not fit spatial axis {axis} of {size} padded to {padded}"
    );
    Error::shape(text).help(match most {
        0 => format!("use a padding of at least {padding} on this axis"),
        most if kernel > most && dilation > 1 => format!(
            "at this dilation a window of at most {most} fits, or a padding of at least {padding}"
        ),
        most => format!(
            "use a window of at most {most} on this axis, or a padding of at least {padding}"
        ),
    })
}

/// The numbers of windows along the last axes of `x`.
fn counts_of(x: &[usize], kernel: &[usize], window: &Window) -> Result<Vec<usize>> {
    window.require_ndim(kernel.len())?;
    (0..kernel.len()).map(|axis| windows(window, axis, x[axis], kernel[axis])).collect()
}

/// The shape of a convolution's result, from the shapes of its operands.
///
/// # Errors
/// If numbers of axes or channels do not fit, or a window does not fit the padded input.
pub fn conv_shape(x: &Shape, weight: &Shape, window: &Window) -> Result<Shape> {
    if weight.ndim() < 3 || x.ndim() != weight.ndim() {
        return Err(Error::shape(format!("input {x} and weight {weight} do not fit: (N, C_in, spatial..) meets (C_out, C_in / groups, kernel..)"))
            .help("both need the same number of axes, at least 3"));
    }
    let groups = window.groups;
    if groups == 0
        || !x[1].is_multiple_of(groups)
        || !weight[0].is_multiple_of(groups)
        || weight[1] != x[1] / groups
    {
        return Err(wrong_channels(x, weight, groups));
    }
    Shape::new(&[&[x[0], weight[0]], &counts_of(&x[2..], &weight[2..], window)?[..]].concat())
}

#[cold]
fn wrong_channels(x: &Shape, weight: &Shape, groups: usize) -> Error {
    let (inner, out) = (x[1], weight[0]);
    let takes = weight[1].saturating_mul(groups);
    Error::shape(format!("input {x} has {inner} channels; weight {weight} with {groups} groups takes {takes}")).help(
        match groups > 0 && inner.is_multiple_of(groups) && out.is_multiple_of(groups) {
            true => format!("a weight of ({out}, {}, kernel..) fits", inner / groups),
            false => format!("the groups must divide the {inner} channels of the input and the {out} of the output; 1 always does"),
        },
    )
}

/// [`Op::Conv`](crate::Op::Conv).
///
/// # Errors
/// As [`conv_shape`]; if the operands are not of one float type.
pub fn conv(x: &Tensor, weight: &Tensor, window: &Window) -> Result<TensorSpec> {
    floats(x, "weight", weight)?;
    Ok((conv_shape(x.shape(), weight.shape(), window)?, x.dtype()))
}

/// [`Op::ConvInputGrad`](crate::Op::ConvInputGrad).
///
/// # Errors
/// As [`conv`]; if `g` is not the shape of a convolution of `x_shape`.
pub fn conv_input_grad(
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<TensorSpec> {
    floats(g, "weight", weight)?;
    like("g", g, &conv_shape(x_shape, weight.shape(), window)?, g.dtype())?;
    Ok((*x_shape, g.dtype()))
}

/// [`Op::ConvWeightGrad`](crate::Op::ConvWeightGrad).
///
/// # Errors
/// As [`conv`]; if `g` is not the shape of a convolution by a weight of `weight_shape`.
pub fn conv_weight_grad(
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<TensorSpec> {
    floats(g, "x", x)?;
    like("g", g, &conv_shape(x.shape(), weight_shape, window)?, g.dtype())?;
    Ok((*weight_shape, g.dtype()))
}

fn floats(x: &Tensor, name: &str, other: &Tensor) -> Result<()> {
    float(x)?;
    if other.dtype() == x.dtype() {
        Ok(())
    } else {
        Err(Error::dtype(format!("{name} is {}, not {}", other.dtype(), x.dtype()))
            .help(converts(name, x.dtype())))
    }
}

#[cold]
pub(crate) fn pool_misfit(size: &[usize], x: &Shape) -> Error {
    let ndim = size.len();
    Error::shape(format!(
        "windows of {size:?} over the last {ndim} axes of {x}, which has {}",
        x.ndim()
    ))
    .help(match ndim {
        0 => "name the size of a window on each of the last axes, e.g. &[2, 2]".to_string(),
        _ => format!("pass at most {} sizes, or add an axis in front: x.unsqueeze(0)?", x.ndim()),
    })
}

/// The shape of a pooling's result: windows of `size` over the last axes of `x`.
///
/// # Errors
/// If there are not as many axes, or a window does not fit the padded input.
pub fn pool_shape(x: &Shape, size: &[usize], window: &Window) -> Result<Shape> {
    let ndim = size.len();
    if ndim == 0 || x.ndim() < ndim {
        return Err(pool_misfit(size, x));
    }
    let (lead, spatial) = x.split_at(x.ndim() - ndim);
    // A mean divides by the number of elements of a window.
    if size.iter().try_fold(1usize, |a, &n| a.checked_mul(n)).is_none_or(|n| n > MAX_NUMEL) {
        return Err(Error::shape(format!("windows of {size:?} do not fit {x}"))
            .help("no size needs to be larger than its padded axis"));
    }
    Shape::new(&[lead, &counts_of(spatial, size, window)?[..]].concat())
}

/// [`Op::MaxPool`](crate::Op::MaxPool): values and positions.
///
/// # Errors
/// As [`pool_shape`]; if the elements are bools, or the pooled axes have more positions than `I32`.
pub fn max_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<[TensorSpec; 2]> {
    if x.dtype() == DType::Bool {
        return Err(
            Error::dtype("bools have no largest window").help("x.cast(DType::U8)? converts")
        );
    }
    let shape = pool_shape(x.shape(), size, window)?;
    positions(x.shape()[x.ndim() - size.len()..].iter().product())?;
    Ok([(shape, x.dtype()), (shape, DType::I32)])
}

/// [`Op::MaxPoolGrad`](crate::Op::MaxPoolGrad). The positions' values are for the
/// device to check.
///
/// # Errors
/// If `g` is not of floats, or `positions` and `g` are not pooled from `x_shape` over its last
/// `spatial` axes.
pub fn max_pool_grad(
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<TensorSpec> {
    float(g)?;
    like("positions", positions, g.shape(), DType::I32)?;
    let lead = x_shape.ndim().checked_sub(spatial).filter(|_| spatial > 0);
    match lead {
        Some(lead) if g.ndim() == x_shape.ndim() && g.shape()[..lead] == x_shape[..lead] => {
            Ok((*x_shape, g.dtype()))
        }
        _ => Err(Error::shape(format!(
            "{} was not pooled from the last {spatial} axes of {x_shape}",
            g.shape()
        ))
        .help(
            "pass the shape of the tensor that was pooled, and the number of axes that were pooled",
        )),
    }
}

/// [`Op::AvgPool`](crate::Op::AvgPool).
///
/// # Errors
/// As [`pool_shape`]; if the elements are not floats.
pub fn avg_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<TensorSpec> {
    float(x)?;
    Ok((pool_shape(x.shape(), size, window)?, x.dtype()))
}

/// [`Op::Attention`](crate::Op::Attention): y and the logsumexp.
///
/// # Errors
/// If the operands are not q (.., T, hs), k (.., S, hs), v (.., S, hv) and a mask (.., T, S) of one
/// float type with equal leading axes, the mask being bool or of that type; or the options
/// contradict each other.
pub fn attention(inputs: &AttentionInputs<'_>) -> Result<[TensorSpec; 2]> {
    let AttentionInputs { q, k, v, mask, options } = *inputs;
    let n = q.ndim();
    let refuse = || {
        Error::shape(format!(
            "queries {}, keys {} and values {} do not fit each other",
            q.shape(),
            k.shape(),
            v.shape()
        ))
        .help("(.., T, hs), (.., S, hs) and (.., S, hv) with equal leading axes")
    };
    if n < 2 || k.ndim() != n || v.ndim() != n {
        return Err(refuse());
    }
    let ([t, hs], [s, hv]) =
        ([q.shape()[n - 2], q.shape()[n - 1]], [v.shape()[n - 2], v.shape()[n - 1]]);
    let lead = &q.shape()[..n - 2];
    if k.shape()[..n - 2] != *lead || v.shape()[..n - 2] != *lead || k.shape()[n - 2..] != [s, hs] {
        return Err(refuse());
    }
    float(q)?;
    if k.dtype() != q.dtype() || v.dtype() != q.dtype() {
        return Err(Error::dtype(format!(
            "queries, keys and values are {}, {} and {}, not of one type",
            q.dtype(),
            k.dtype(),
            v.dtype()
        ))
        .help("q.attention(&k, &v, mask, &options)? promotes types"));
    }
    if let Some(mask) = mask {
        let dtype = if mask.dtype() == DType::Bool { DType::Bool } else { q.dtype() };
        like("the mask", mask, &[lead, &[t, s]].concat(), dtype)?;
    }
    if options.window == Some(0) || options.window.is_some() && options.causal.is_none() {
        return Err(Error::value(format!(
            "a window of {} keys: it has at least one key, and reaches back from a causal query",
            options.window.unwrap_or(0)
        ))
        .help("Attention::causal(offset).window(n) with n of at least 1"));
    }
    let y = q.shape().resized(n - 1, hv)?;
    Ok([(y, q.dtype()), (q.shape().without(n - 1), q.dtype().compute())])
}

/// [`Op::AttentionGrad`](crate::Op::AttentionGrad): the gradients for q, k and v.
///
/// # Errors
/// As [`attention`]; if `y`, `lse` and `g` are not like its results.
pub fn attention_grad(
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
) -> Result<[TensorSpec; 3]> {
    let [(shape, dtype), (rows, wide)] = attention(inputs)?;
    like("y", y, &shape, dtype)?;
    like("lse", lse, &rows, wide)?;
    like("g", g, &shape, dtype)?;
    Ok([spec(inputs.q), spec(inputs.k), spec(inputs.v)])
}

/// [`Op::Linalg`](crate::Op::Linalg).
///
/// # Errors
/// If the operands are not as many matrices as `op` takes, of f32 or f64, square where `op` needs
/// that.
pub fn linalg(op: LinalgOp, inputs: &[&Tensor]) -> Result<Vec<TensorSpec>> {
    let (count, square) = match op {
        LinalgOp::Solve | LinalgOp::SolveTriangular(_) => (2, true),
        LinalgOp::Det | LinalgOp::SlogDet | LinalgOp::Cholesky | LinalgOp::Eigh | LinalgOp::Eig => {
            (1, true)
        }
        LinalgOp::Qr { .. } | LinalgOp::Svd { .. } | LinalgOp::Pinv { .. } => (1, false),
    };
    if inputs.len() != count {
        return Err(Error::value(format!(
            "{} takes {count} matrices, not {}",
            op.name(),
            inputs.len()
        ))
        .help(
            "solve and solve_triangular take a matrix and a right-hand side, all others one matrix",
        ));
    }
    let a = inputs[0];
    let rows = a.ndim().wrapping_sub(2);
    if a.ndim() < 2 || square && a.shape()[rows] != a.shape()[rows + 1] {
        return Err(Error::shape(format!(
            "{} of {}: {} needed",
            op.name(),
            a.shape(),
            if square { "square matrices are" } else { "matrices are" }
        ))
        .help(if a.ndim() < 2 { two_axes(a.shape()) } else { NOT_SQUARE }));
    }
    for x in inputs {
        if !matches!(x.dtype(), DType::F32 | DType::F64) || x.dtype() != a.dtype() {
            return Err(Error::dtype(format!(
                "{} of {}: f32 or f64 is needed",
                op.name(),
                x.dtype()
            ))
            .help("x.cast(DType::F64)? converts"));
        }
    }
    if let Some(b) = inputs.get(1)
        && (b.ndim() != a.ndim() || b.shape()[..=rows] != a.shape()[..=rows])
    {
        return Err(Error::shape(format!(
            "{} of {} and {}: (.., n, n) and (.., n, k) are needed",
            op.name(),
            a.shape(),
            b.shape()
        ))
        .help("a.solve(&b)? takes vectors and broadcasts leading axes"));
    }
    op.results(inputs)
}

/// The axis along which tensors of these shapes can be joined, in words.
#[cold]
fn cat_along(a: &Shape, b: &Shape) -> String {
    let other: Vec<usize> =
        (0..a.ndim().min(b.ndim())).filter(|&axis| a[axis] != b[axis]).collect();
    match other.as_slice() {
        [axis] if a.ndim() == b.ndim() => {
            format!("they fit along axis {axis}: Tensor::cat(&tensors, {axis})?")
        }
        _ if a.ndim() != b.ndim() => "x.unsqueeze(axis)? adds an axis of size 1".to_string(),
        _ => "x.slice(axis, ..n)? and x.pad(&widths, 0)? change single sizes".to_string(),
    }
}
