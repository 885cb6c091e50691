//! Errors and help lines that several operations share. They use shapes and dtypes, no tensors:
//! both `validate` and the methods of `Tensor` call them.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::shape::Shape;

#[cold]
pub(crate) fn not_float(dtype: DType) -> Error {
    Error::dtype(format!("needs floats, not {dtype}")).help("x.cast(DType::F32)? converts")
}

/// The help line that converts `name` to `dtype`.
pub(crate) fn converts(name: &str, dtype: DType) -> String {
    format!("{name}.cast(DType::{})? converts", dtype.variant())
}

/// The valid indices of an axis of `size`, negative ones included.
pub(crate) fn indices_to(size: usize) -> String {
    if size == 0 {
        "the axis is empty: it has no positions".to_string()
    } else {
        format!("indices go from -{size} to {}", size - 1)
    }
}

/// The help line that gives `shape` two axes.
pub(crate) fn two_axes(shape: &Shape) -> &'static str {
    match shape.ndim() {
        0 => "x.reshape((1, 1))? is a matrix of one element",
        _ => "x.unsqueeze(0)? is a matrix of one row, x.unsqueeze(1)? of one column",
    }
}

/// The help line for a matrix that is not square.
pub(crate) const NOT_SQUARE: &str =
    "x.svd()?, x.qr()?, x.pinv(None)? and x.lstsq(&b)? take matrices of any shape";

/// The help line for shapes that do not broadcast.
pub(crate) const BROADCAST: &str =
    "sizes must be equal or 1, aligned from the right: x.unsqueeze(axis)? adds an axis of size 1";

fn takes(what: &str, kernel: &Kernel, inputs: usize, params: usize, help: &str) -> Error {
    let (tensors, numbers) = (kernel.inputs().len(), kernel.params().len());
    Error::value(format!(
        "the {what} takes {tensors} tensors and {numbers} parameters, not {inputs} and {params}"
    ))
    .help(help)
}

#[cold]
pub(crate) fn counts(kernel: &Kernel, inputs: usize, params: usize) -> Error {
    if !kernel.is_pointwise() {
        return Error::value(format!(
            "{} works on rows, and a kernel that runs at each element has no rows",
            kernel.expression()
        ))
        .help("map_rows(inputs, axes, |..| ..) runs it; x.sum(axes)? reduces a tensor");
    }
    let help = "kernel.inputs() and kernel.params() list the types of both in order";
    takes("kernel", kernel, inputs, params, help)
}

#[cold]
pub(crate) fn wrong_input(
    i: usize,
    (own_shape, own_dtype): (Shape, DType),
    dtype: DType,
    shape: &Shape,
) -> Error {
    if own_dtype != dtype {
        return Error::dtype(format!("input {i} of the kernel is {dtype}, not {own_dtype}"))
            .help(converts(&format!("inputs[{i}]"), dtype));
    }
    Error::shape(format!("input {i} is {own_shape}, and the kernel runs at every index of {shape}"))
        .help(format!("inputs[{i}].expand({shape})? repeats axes of size 1"))
}

#[cold]
pub(crate) fn row_counts(program: &Kernel, inputs: usize, params: usize) -> Error {
    let help = "a row program reads at least one tensor that varies along the row";
    takes("row program", program, inputs, params, help)
}

#[cold]
pub(crate) fn wrong_row_input(
    i: usize,
    (own_shape, own_dtype): (Shape, DType),
    dtype: DType,
    wanted: &Shape,
) -> Error {
    if own_dtype != dtype {
        return wrong_input(i, (own_shape, own_dtype), dtype, wanted);
    }
    Error::shape(format!("input {i} of the row program is {own_shape}, not {wanted}"))
        .help(format!("inputs[{i}].expand({wanted})? repeats axes of size 1"))
}

#[cold]
pub(crate) fn nothing_to_compare(axis: usize, shape: &Shape) -> Error {
    Error::shape(format!("axis {axis} of {shape} is empty: there is nothing to compare")).help(
        format!(
            "Tensor::cat(&[&start, &x], {axis})? puts a first element in front, to compare with"
        ),
    )
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
        "index {index} does not fit {x}: only axis {axis} may be longer, and no axis may be missing"
    );
    let column = (index.ndim() + 1 == x.ndim()).then(|| index.with_axis(axis, 1).ok()).flatten();
    let column = column.filter(|column| (0..x.ndim()).all(|a| a == axis || column[a] <= x[a]));
    Error::shape(text).help(match (longer, column) {
        (Some(a), _) => format!("index.slice({a}, ..{})? is not longer on axis {a}", x[a]),
        (_, Some(column)) => format!("index.unsqueeze({axis})? is {column}: one position a row"),
        _ => {
            format!("x.index_select({axis}, &index)? takes whole slices at positions of any shape")
        }
    })
}

#[cold]
pub(crate) fn only_set() -> Error {
    Error::dtype("bools can only be set, not added or compared")
        .help("x.cast(DType::I64)? converts; x.scatter(axis, &index, &src)? sets")
}

#[cold]
pub(crate) fn no_tensors() -> Error {
    Error::value("needs at least one tensor")
        .help("a first tensor of size 0 along the axis lets the rest of the list be empty")
}
