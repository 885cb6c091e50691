//! The requirements of kernels, reductions, scans and random tensors. `elementwise` is on the path
//! of every small operation: its errors are made in separate cold functions.

use super::{axis_of, of_kernel, positions, spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::messages::{counts, nothing_to_compare, wrong_input};
use crate::op::{ReduceOp, ScanOp, TensorSpec, TensorSpecs};
use crate::random::{self, Distribution};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::tensor::Tensor;

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
    if inputs.len() != types.len()
        || params.len() != kernel.params().len()
        || !kernel.is_pointwise()
    {
        return Err(counts(kernel, inputs.len(), params.len()));
    }
    for (i, x) in inputs.iter().enumerate() {
        if x.dtype() != types[i] || x.shape() != shape {
            return Err(wrong_input(i, spec(x), types[i], shape));
        }
    }
    Ok(())
}

/// [`Op::ElementwiseMany`](crate::Op::ElementwiseMany): the outputs of each shape, in order.
///
/// # Errors
/// If the number of inputs or of parameters is not the kernel's times the number of shapes, or an
/// input has another type than the kernel's or another shape than its own.
pub fn elementwise_many(
    kernel: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shapes: &[Shape],
) -> Result<TensorSpecs> {
    let (own, numbers) = (kernel.inputs().len(), kernel.params().len());
    if own.checked_mul(shapes.len()) != Some(inputs.len())
        || numbers.checked_mul(shapes.len()) != Some(params.len())
    {
        return Err(Error::value(format!(
            "{} inputs and {} parameters for {} shapes of a kernel of {own} inputs and {numbers} \
             parameters",
            inputs.len(),
            params.len(),
            shapes.len()
        ))
        .help("pass all inputs and parameters of the first shape, then all of the second"));
    }
    for (k, shape) in shapes.iter().enumerate() {
        let (inputs, params) =
            (&inputs[k * own..(k + 1) * own], &params[k * numbers..(k + 1) * numbers]);
        elementwise(kernel, inputs, params, shape)
            .map_err(|error| error.note(format!("shape {k} of {}", shapes.len())))?;
    }
    let outputs = 0..kernel.outputs().len();
    let of = |shape: &Shape| {
        let shape = *shape;
        outputs.clone().map(move |i| (shape, kernel.output_dtype(i)))
    };
    Ok(shapes.iter().flat_map(of).collect())
}

/// [`Op::MatmulKernel`](crate::Op::MatmulKernel) and [`Op::ConvKernel`](crate::Op::ConvKernel), whose
/// product has this shape and dtype.
///
/// # Errors
/// If the kernel has no input, the numbers of inputs or parameters are not the kernel's, or an input
/// has another type or shape.
pub fn product_kernel(
    product: TensorSpec,
    kernel: &Kernel,
    others: &[&Tensor],
    params: &[Scalar],
) -> Result<TensorSpecs> {
    let types = kernel.inputs();
    if others.len() + 1 != types.len()
        || params.len() != kernel.params().len()
        || !kernel.is_pointwise()
    {
        return Err(counts(kernel, others.len() + 1, params.len()));
    }
    let specs = std::iter::once(product).chain(others.iter().map(|x| spec(x)));
    for (i, own) in specs.enumerate() {
        if own.1 != types[i] || own.0 != product.0 {
            return Err(wrong_input(i, own, types[i], &product.0));
        }
    }
    Ok(of_kernel(kernel, &product.0))
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
    let counted = types.len() == inputs && params.len() == kernel.params().len();
    if !counted || !kernel.is_pointwise() {
        return Err(counts(kernel, inputs, params.len()));
    }
    let whole = input_index < inputs && dtype == types[input_index] && len == shape.numel();
    if !whole || kernel.outputs().len() != 1 || kernel.output_dtype(0) != dtype {
        return Err(cannot_overwrite((len, dtype), input_index, shape));
    }
    match other {
        Some(x) if x.dtype() != types[1 - input_index] || x.shape() != shape => {
            Err(wrong_input(1 - input_index, spec(x), types[1 - input_index], shape))
        }
        _ => Ok(()),
    }
}

#[cold]
fn cannot_overwrite((len, dtype): (usize, DType), input_index: usize, shape: &Shape) -> Error {
    Error::shape(format!(
        "{len} elements of {dtype} cannot be input {input_index} and the \
         one result of a kernel over {shape}"
    ))
    .help("Op::Elementwise writes to new storage")
}

/// An error unless `axes` are one or more axes of `shape`, ascending.
#[inline(always)]
pub(super) fn ascending(shape: &Shape, axes: &[usize]) -> Result<()> {
    let ascending =
        axes.windows(2).all(|w| w[0] < w[1]) && axes.last().is_some_and(|&a| a < shape.ndim());
    if ascending { Ok(()) } else { Err(not_ascending(shape, axes)) }
}

#[cold]
fn not_ascending(shape: &Shape, axes: &[usize]) -> Error {
    Error::axis(format!("axes {axes:?} of {shape} are not one or more axes in ascending order"))
        .help(format!(
            "pass each axis once, from 0 to {} in ascending order",
            shape.ndim().saturating_sub(1)
        ))
}

/// The result of reducing `axes` of elements of `dtype`.
#[inline(always)]
fn reduction(op: ReduceOp, shape: &Shape, dtype: DType, axes: &[usize]) -> Result<TensorSpec> {
    ascending(shape, axes)?;
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
/// If the axes are not ascending axes of `x`, `op` does not take the dtype, or an extremum is taken
/// over no elements.
#[inline(always)]
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
            "expected inputs and one output of a reduced kernel, got {n} and {outputs}"
        ))
        .help("build a kernel of one output, from at least one tensor"));
    }
    reduction(op, shape, kernel.output_dtype(0), axes)
}

/// [`Op::Scan`](crate::Op::Scan).
///
/// # Errors
/// If `axis` is out of range, or the elements are bools.
pub fn scan(op: ScanOp, x: &Tensor, axis: usize) -> Result<TensorSpec> {
    axis_of(x.shape(), axis)?;
    if x.dtype() == DType::Bool {
        return Err(Error::dtype(format!("{op:?} does not scan bools"))
            .help("x.cast(DType::I64)? converts"));
    }
    Ok(spec(x))
}

/// [`Op::Random`](crate::Op::Random).
///
/// # Errors
/// If the distribution does not exist for the type.
pub fn random(distribution: Distribution, shape: &Shape, dtype: DType) -> Result<TensorSpec> {
    random::check(distribution, dtype)?;
    Ok((*shape, dtype))
}
