//! The definitions of the fused ops in primitives: the fallback of every device, and the results
//! that a faster kernel must agree with.
//!
//! Everything here is written with public `Tensor` operations, so it runs on any device, and on an
//! autograd device records its own gradient. `window` defines convolution and pooling.

mod rows;
mod window;

use crate::device::DeviceRef;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::linalg;
use crate::op::{Extremum, Op, Outputs};
use crate::scalar::Scalar;
pub use crate::scalar::lowest;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use crate::tensor::index::flat_positions;
use crate::tensor::linalg::triangle;
use crate::tensor::quant::{dequantized, rows as quantized_rows};
use crate::tensor::reduce::cum_max;
use crate::tensor::view::framed;
use crate::validate;
use std::sync::Arc;
pub use window::at_winners;
use window::{avg_pool, conv, conv_input_grad, conv_weight_grad, max_pool, max_pool_grad};

/// The storage of a result, row-major and without another owner.
pub(crate) fn finish(x: Tensor) -> Result<StorageRef> {
    let whole = x.is_contiguous() && x.layout().offset() == 0 && x.storage().len() == x.numel();
    Ok(if whole { x.storage().clone() } else { x.copy()?.storage().clone() })
}

/// Runs the definition of `op`, which `device` has declined, in primitives on the device of its
/// operands.
pub(crate) fn run(op: &mut Op<'_>, device: &DeviceRef) -> Result<Outputs> {
    op.outputs()?; // checks the operands
    Ok(match *op {
        Op::Elementwise { .. }
        | Op::Reduce { .. }
        | Op::Scan { .. }
        | Op::Matmul { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::CopyInto { .. }
        | Op::Sort { .. }
        | Op::Random { .. } => {
            return Err(Error::internal(format!("{} is a primitive", op.name())));
        }
        Op::ElementwiseInPlace { kernel, ref mut storage, input_index, other, params, shape } => {
            let (layout, dtype) = (Layout::contiguous(*shape), storage.dtype());
            let x = Tensor::from_parts(storage.clone(), layout, dtype, device.clone())?;
            let pair = [&x, other.unwrap_or(&x)];
            let swapped = [pair[1], pair[0]];
            let inputs = if input_index == 0 { &pair } else { &swapped };
            let inputs = &inputs[..1 + usize::from(other.is_some())];
            let y = Op::Elementwise { kernel, inputs, params, shape }.tensor(device)?;
            **storage = y.storage().clone();
            Outputs::new()
        }
        Op::ElementwiseMany { kernel, inputs, params, shapes } => {
            many(kernel, inputs, params, shapes, device)?
        }
        Op::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
            let mapped = Op::Elementwise { kernel, inputs, params, shape }.tensor(device)?;
            Op::Reduce { op, x: &mapped, axes }.run(device)?
        }
        Op::Rows { program, inputs, params, shape, axes } => {
            rows::rows(program, inputs, params, shape, axes, device)?
        }
        Op::CumMax { x, axis, extremum } => {
            let (values, positions) = cum_max(x, axis, extremum)?;
            (finish(values)?, finish(positions)?).into()
        }
        Op::Contiguous { x } => contiguous(x, device)?,
        Op::TopK { x, axis, k, extremum } => topk(x, axis, k, extremum)?,
        Op::Cat { tensors, axis } => cat(tensors, axis)?.into(),
        Op::Pad { x, widths, value } => finish(framed(x, widths, value)?)?.into(),
        Op::Tri { x, diagonal, upper } => finish(triangle(x, diagonal, upper)?)?.into(),
        Op::Positions { indices, sizes } => finish(flat_positions(indices, sizes)?)?.into(),
        Op::MatmulKernel { lhs, rhs, kernel, others, params } => {
            with_kernel(&Op::Matmul { lhs, rhs }.tensor(device)?, kernel, others, params)?
        }
        Op::ConvKernel { x, weight, window, kernel, others, params } => {
            with_kernel(&Op::Conv { x, weight, window }.tensor(device)?, kernel, others, params)?
        }
        Op::Conv { x, weight, window } => finish(conv(x, weight, window)?)?.into(),
        Op::ConvInputGrad { g, weight, window, x_shape } => {
            finish(conv_input_grad(g, weight, window, x_shape)?)?.into()
        }
        Op::ConvWeightGrad { g, x, window, weight_shape } => {
            finish(conv_weight_grad(g, x, window, weight_shape)?)?.into()
        }
        Op::MaxPool { x, kernel_size, window } => {
            let (values, positions) = max_pool(x, kernel_size, window)?;
            (finish(values)?, finish(positions)?).into()
        }
        Op::MaxPoolGrad { g, positions, x_shape, spatial } => {
            finish(max_pool_grad(g, positions, x_shape, spatial)?)?.into()
        }
        Op::AvgPool { x, kernel_size, window } => finish(avg_pool(x, kernel_size, window)?)?.into(),
        Op::Attention { ref inputs } => {
            let (y, lse) = inputs.composed()?;
            (finish(y)?, finish(lse)?).into()
        }
        Op::AttentionGrad { ref inputs, y, lse, g, needs } => inputs
            .composed_grad(Some((y, lse)), g, needs)?
            .into_iter()
            .flatten()
            .map(finish)
            .collect::<Result<Outputs>>()?,
        Op::QuantMatmul { x, blocks, parts, .. } => {
            let weight = dequantized(blocks, parts, x.shape().last().copied().unwrap_or(0))?;
            finish(x.matmul(&weight.t()?)?)?.into()
        }
        Op::QuantRows { blocks, index, parts, columns } => {
            finish(quantized_rows(blocks, index, parts, columns)?)?.into()
        }
        Op::Linalg { op, inputs } => linalg::on_host(device, op, inputs)?,
    })
}

/// [`Op::ElementwiseMany`]: the kernel of each shape, one after another.
fn many(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shapes: &[Shape],
    device: &DeviceRef,
) -> Result<Outputs> {
    let (own, numbers) = (kernel.inputs().len(), kernel.params().len());
    let mut outputs = Outputs::new();
    for (k, shape) in shapes.iter().enumerate() {
        let inputs = &inputs[k * own..(k + 1) * own];
        let params = &params[k * numbers..(k + 1) * numbers];
        let of_shape = Op::Elementwise { kernel, inputs, params, shape }.run(device)?;
        of_shape.into_iter().for_each(|storage| outputs.push(storage));
    }
    Ok(outputs)
}

/// `kernel` at every index of `product`, which is its first input.
fn with_kernel(
    product: &Tensor,
    kernel: &Arc<Kernel>,
    others: &[&Tensor],
    params: &[Scalar],
) -> Result<Outputs> {
    let inputs: Vec<&Tensor> = std::iter::once(product).chain(others.iter().copied()).collect();
    let (device, shape) = (product.device(), product.shape());
    Op::Elementwise { kernel, inputs: &inputs, params, shape }.run(device)
}

/// The identity kernel: copies an input of any strides to row-major order.
fn contiguous(x: &Tensor, device: &DeviceRef) -> Result<Outputs> {
    use crate::kernel::table::UnaryTable;
    static IDENTITY: UnaryTable = UnaryTable::new();
    let kernel = IDENTITY.get(x.dtype(), |x| x)?;
    Op::Elementwise { kernel, inputs: &[x], params: &[], shape: x.shape() }.run(device)
}

/// [`Op::TopK`]: all elements are sorted.
fn topk(x: &Tensor, axis: usize, k: usize, extremum: Extremum) -> Result<Outputs> {
    let axis = axis as isize;
    let (values, positions) = x.sort(axis, extremum.order())?;
    let first = |x: Tensor| finish(x.slice(axis, ..k)?);
    Ok((first(values)?, first(positions)?).into())
}

fn cat(tensors: &[&Tensor], axis: usize) -> Result<StorageRef> {
    let (shape, dtype) = validate::cat(tensors, axis)?;
    let mut out = Tensor::zeros(shape, dtype, tensors[0])?;
    let mut start = 0;
    for part in tensors {
        let end = start + part.shape()[axis];
        out = out.slice_assign(axis as isize, start..end, part)?;
        start = end;
    }
    finish(out)
}
