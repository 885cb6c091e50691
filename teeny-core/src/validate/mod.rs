//! The contract of [`Op`]: the requirements on its operands, and the shape and dtype of
//! each output.
//!
//! One function per op, called by [`Op::outputs`]: by core for the shapes of results, and by every
//! engine before it computes, because any code may construct an op. All size arithmetic is checked,
//! so that a device computes with these sizes and never recomputes them. `Ok` means that counts,
//! types, shapes, axes and windows fit each other, and no size, and no sum or product of sizes,
//! overflows. That a layout is inside its storage, and that the storage belongs to the device, is
//! checked by the device. Functions of frequent small operations are inlined, so that
//! [`Op::outputs`] writes a shape once.
//!
//! | file | operations |
//! |---|---|
//! | `elementwise` | kernels, reductions, scans, random tensors |
//! | `index` | gather, scatter, copies into a view, sort, cat |
//! | `linalg` | matmul, solvers, decompositions |
//! | `window` | convolution, pooling |
//! | `rows` | row programs |
//! | `nn` | attention |
//! | `quant` | products and rows of quantised weights |

mod elementwise;
mod index;
mod linalg;
mod nn;
mod quant;
mod rows;
mod window;

pub use crate::op::{conv_shape, pool_shape};
pub use elementwise::{
    elementwise, elementwise_in_place, elementwise_many, product_kernel, random, reduce,
    reduce_kernel, scan,
};
pub use index::{cat, copy_into, flat_positions, gather, pad, scatter, sort, topk, tri};
pub use linalg::{linalg, matmul};
pub use nn::{attention, attention_grad};
pub use quant::{quant_blocks, quant_matmul, quant_rows};
pub use rows::rows;
pub use window::{avg_pool, conv, conv_input_grad, conv_weight_grad, max_pool, max_pool_grad};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::messages::{converts, not_float};
use crate::op::{Op, TensorSpec, TensorSpecs, taken};
use crate::shape::{Shape, index_end, no_axis};
use crate::tensor::Tensor;

impl Op<'_> {
    /// Checks the op and returns shape and dtype of each output. [`Op::CopyInto`]'s and
    /// [`Op::ElementwiseInPlace`]'s is the storage that they are given; the former counts as a
    /// vector, as the op does not know the shape of the whole.
    ///
    /// # Errors
    /// If counts, dtypes, shapes, axes or windows do not fit each other, a size overflows, or the
    /// destination of [`Op::CopyInto`] has been taken.
    pub fn outputs(&self) -> Result<TensorSpecs> {
        Ok(match *self {
            Op::Elementwise { kernel, inputs, params, shape } => {
                elementwise(kernel, inputs, params, shape)?;
                of_kernel(kernel, shape)
            }
            Op::ElementwiseInPlace { kernel, ref storage, input_index, other, params, shape } => {
                let own = (storage.len(), storage.dtype());
                elementwise_in_place(kernel, own, input_index, other, params, shape)?;
                TensorSpecs::default()
            }
            Op::ElementwiseMany { kernel, inputs, params, shapes } => {
                elementwise_many(kernel, inputs, params, shapes)?
            }
            Op::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
                reduce_kernel(kernel, inputs, params, shape, op, axes)?.into()
            }
            Op::Rows { program, inputs, params, shape, axes } => {
                rows(program, inputs, params, shape, axes)?
            }
            Op::Reduce { op, x, axes } => reduce(op, x, axes)?.into(),
            Op::Scan { op, x, axis } => scan(op, x, axis)?.into(),
            Op::Random { distribution, shape, dtype, .. } => {
                random(distribution, shape, dtype)?.into()
            }
            Op::Matmul { lhs, rhs } => matmul(lhs, rhs)?.into(),
            Op::MatmulKernel { lhs, rhs, kernel, others, params } => {
                product_kernel(matmul(lhs, rhs)?, kernel, others, params)?
            }
            Op::ConvKernel { x, weight, window, kernel, others, params } => {
                product_kernel(conv(x, weight, window)?, kernel, others, params)?
            }
            Op::Gather { x, axis, index } => gather(x, axis, index)?.into(),
            Op::Scatter { mode, x, axis, index, src } => scatter(mode, x, axis, index, src)?.into(),
            Op::CopyInto { ref dst, view, src } => {
                let dst = dst.as_ref().ok_or_else(taken)?;
                copy_into(dst, view, src)?;
                (Shape::new(&[dst.len()])?, dst.dtype()).into()
            }
            Op::Sort { x, axis, .. } | Op::CumMax { x, axis, .. } => sort(x, axis)?.into(),
            Op::TopK { x, axis, k, .. } => topk(x, axis, k)?.into(),
            Op::Contiguous { x } => (*x.shape(), x.dtype()).into(),
            Op::Cat { tensors, axis } => cat(tensors, axis)?.into(),
            Op::Pad { x, widths, .. } => pad(x, widths)?.into(),
            Op::Tri { x, .. } => tri(x)?.into(),
            Op::Positions { indices, sizes } => flat_positions(indices, sizes)?.into(),
            Op::Conv { x, weight, window } => conv(x, weight, window)?.into(),
            Op::ConvInputGrad { g, weight, window, x_shape } => {
                conv_input_grad(g, weight, window, x_shape)?.into()
            }
            Op::ConvWeightGrad { g, x, window, weight_shape } => {
                conv_weight_grad(g, x, window, weight_shape)?.into()
            }
            Op::MaxPool { x, kernel_size, window } => max_pool(x, kernel_size, window)?.into(),
            Op::MaxPoolGrad { g, positions, x_shape, spatial } => {
                max_pool_grad(g, positions, x_shape, spatial)?.into()
            }
            Op::AvgPool { x, kernel_size, window } => avg_pool(x, kernel_size, window)?.into(),
            Op::Attention { ref inputs } => attention(inputs)?.into(),
            Op::AttentionGrad { ref inputs, y, lse, g, needs } => {
                let all = attention_grad(inputs, y, lse, g)?;
                if needs == [false; 3] {
                    return Err(Error::value("attention_grad computes at least one gradient")
                        .help(
                            "needs says for each of q, k and v whether its gradient is computed",
                        ));
                }
                let needed = all.into_iter().zip(needs).filter(|(_, need)| *need);
                needed.map(|(spec, _)| spec).collect()
            }
            Op::QuantMatmul { x, blocks, parts, .. } => quant_matmul(x, blocks, parts)?.into(),
            Op::QuantRows { blocks, index, parts, columns } => {
                quant_rows(blocks, index, parts, columns)?.into()
            }
            Op::Linalg { op, inputs } => linalg(op, inputs)?.into_iter().collect(),
        })
    }
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

/// The outputs of `kernel` at every index of `shape`.
#[inline(always)]
fn of_kernel(kernel: &Kernel, shape: &Shape) -> TensorSpecs {
    match kernel.outputs().len() {
        1 => (*shape, kernel.output_dtype(0)).into(),
        n => (0..n).map(|i| (*shape, kernel.output_dtype(i))).collect(),
    }
}

#[inline(always)]
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

/// Positions along an axis, or in a plane, are `I32`.
fn positions(n: usize) -> Result<()> {
    index_end(n).map(drop)
}
