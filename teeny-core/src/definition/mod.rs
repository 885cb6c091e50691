//! The definitions of the fused ops in primitives: the fallback of every device, and the results
//! that a faster kernel must agree with.
//!
//! Everything here is written with public `Tensor` operations, so it runs on any device, and on an
//! autograd device records its own gradient. `window` has those of convolution and pooling.

mod window;

use crate::device::DeviceRef;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::linalg;
use crate::op::{Norm, Op, Outputs};
use crate::scalar::Scalar;
pub use crate::scalar::lowest;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::index::flat_positions;
use crate::tensor::linalg::triangle;
use crate::tensor::reduce::cum_max;
use crate::tensor::view::framed;
use crate::tensor::{Tensor, map};
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
        Op::CumMax { x, axis, largest } => {
            let (values, positions) = cum_max(x, axis, largest)?;
            (finish(values)?, finish(positions)?).into()
        }
        Op::Contiguous { x } => contiguous(x, device)?,
        Op::TopK { x, axis, k, largest } => topk(x, axis, k, largest)?,
        Op::Cat { tensors, axis } => cat(tensors, axis)?.into(),
        Op::Pad { x, widths, value } => finish(framed(x, widths, value)?)?.into(),
        Op::Tri { x, diagonal, upper } => finish(triangle(x, diagonal, upper)?)?.into(),
        Op::Positions { indices, sizes } => finish(flat_positions(indices, sizes)?)?.into(),
        Op::Softmax { x, axis } => softmax(x, axis)?.into(),
        Op::LogSoftmax { x, axis } => log_softmax(x, axis)?.into(),
        Op::SoftmaxGrad { y, g, axis } => softmax_grad(y, g, axis)?.into(),
        Op::LogSoftmaxGrad { y, g, axis } => log_softmax_grad(y, g, axis)?.into(),
        Op::CrossEntropy { x, targets, ignore_index } => {
            cross_entropy(x, targets, ignore_index)?.into()
        }
        Op::CrossEntropyGrad { x, targets, ignore_index, g } => {
            cross_entropy_grad(x, targets, ignore_index, g)?.into()
        }
        Op::Norm { norm: kind, x, weight, bias, eps } => norm(kind, x, weight, bias, eps)?.into(),
        Op::NormGrad { norm, x, weight, g, eps } => norm_grad(norm, x, weight, g, eps)?.into(),
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
fn topk(x: &Tensor, axis: usize, k: usize, largest: bool) -> Result<Outputs> {
    let axis = axis as isize;
    let (values, positions) = x.sort(axis, largest)?;
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

/// `f` of the tensors in their compute dtype, cast to their storage dtype: 16-bit floats keep f32
/// precision between the steps.
fn widened(tensors: &[&Tensor], f: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Result<StorageRef> {
    let dtype = tensors[0].dtype();
    let wide = tensors.iter().map(|t| t.cast(dtype.compute())).collect::<Result<Vec<_>>>()?;
    finish(f(&wide)?.cast(dtype)?)
}

fn softmax(x: &Tensor, axis: usize) -> Result<StorageRef> {
    if x.shape()[axis] == 0 {
        return finish(x.copy()?);
    }
    widened(&[x], &|x| {
        let max = x[0].max_keepdim(axis)?;
        let exp = map([&x[0], &max], |[x, m]| (x - m).exp())?;
        exp.div(&exp.sum_keepdim(axis)?)
    })
}

fn log_softmax(x: &Tensor, axis: usize) -> Result<StorageRef> {
    if x.shape()[axis] == 0 {
        return finish(x.copy()?);
    }
    widened(&[x], &|x| {
        let shifted = x[0].sub(&x[0].max_keepdim(axis)?)?;
        let sum = shifted.exp()?.sum_keepdim(axis)?;
        map([&shifted, &sum], |[x, s]| x - s.log())
    })
}

/// [`Op::SoftmaxGrad`]: `y (g - Σ g y)`.
///
/// # Errors
/// If the device fails.
fn softmax_grad(y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
    widened(&[y, g], &|t| {
        let inner = t[0].mul(&t[1])?.sum_keepdim(axis)?;
        map([&t[0], &t[1], &inner], |[y, g, s]| y * (g - s))
    })
}

/// [`Op::LogSoftmaxGrad`]: `g - exp(y) Σ g`.
///
/// # Errors
/// If the device fails.
fn log_softmax_grad(y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
    widened(&[y, g], &|t| {
        let sum = t[1].sum_keepdim(axis)?;
        map([&t[0], &t[1], &sum], |[y, g, s]| g - y.exp() * s)
    })
}

/// Targets as a column of indices, those equal to `ignore_index` as 0, and a mask of the others.
fn index_of(targets: &Tensor, ignore_index: Option<i64>) -> Result<(Tensor, Option<Tensor>)> {
    // A number outside the targets' dtype matches no target: cast to u8, -100 would be class 156.
    let Some(ignore_index) = ignore_index.filter(|&i| Scalar::Int(i).fits(targets.dtype())) else {
        return Ok((targets.unsqueeze(1)?, None));
    };
    let kept = targets.ne(ignore_index)?; // (n)
    let index = map([&kept, targets], |[kept, t]| kept.where_cond(t, 0).cast(targets.dtype()))?;
    Ok((index.unsqueeze(1)?, Some(kept)))
}

/// [`Op::CrossEntropy`]: `-log_softmax(x)[target]`.
///
/// # Errors
/// If a target is no class, or the device fails.
fn cross_entropy(x: &Tensor, targets: &Tensor, ignore_index: Option<i64>) -> Result<StorageRef> {
    let (index, kept) = index_of(targets, ignore_index)?; // (n, 1), (n)
    widened(&[x], &|x| {
        let losses = x[0].log_softmax(1)?.gather(1, &index)?.squeeze(1)?.neg()?; // (n)
        let Some(kept) = &kept else { return Ok(losses) };
        map([kept, &losses], |[kept, loss]| kept.where_cond(loss, 0.0).cast(losses.dtype()))
    })
}

/// [`Op::CrossEntropyGrad`]: `(softmax(x) - one_hot(targets)) g`.
///
/// # Errors
/// As [`cross_entropy`].
fn cross_entropy_grad(
    x: &Tensor,
    targets: &Tensor,
    ignore_index: Option<i64>,
    g: &Tensor,
) -> Result<StorageRef> {
    let (index, kept) = index_of(targets, ignore_index)?; // (n, 1), (n)
    widened(&[x, g], &|t| {
        let less = Tensor::ones((), t[0].dtype(), &t[0])?.neg()?.expand(*index.shape())?; // (n, 1)
        let along = t[0].softmax(1)?.scatter_add(1, &index, &less)?; // (n, classes)
        let g = t[1].unsqueeze(1)?; // (n, 1)
        let Some(kept) = &kept else { return along.mul(&g) };
        // Selected twice: once against a NaN of an ignored row, once against its gradient, which is
        // infinite for a mean of no elements.
        let kept = kept.unsqueeze(1)?; // (n, 1)
        map([&kept, &along, &g], |[kept, x, g]| {
            kept.where_cond(x * kept.where_cond(g, g.like(0)), 0.0).cast(along.dtype())
        })
    })
}

/// `x` minus its mean over the last axis (or unchanged), and the reciprocal of its standard
/// deviation (or root mean square).
fn standard(norm: Norm, x: &Tensor, eps: f64) -> Result<(Tensor, Tensor)> {
    let centred = match norm {
        Norm::Layer => {
            let centred = x.sub(&x.mean_keepdim(-1)?)?;
            centred.sub(&centred.mean_keepdim(-1)?)? // the mean's rounding error
        }
        Norm::Rms => x.clone(),
    };
    let scale = centred.square()?.mean_keepdim(-1)?.add(eps)?.rsqrt()?; // (.., 1)
    Ok((centred, scale))
}

fn norm(
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<StorageRef> {
    let tensors: Vec<&Tensor> = [Some(x), weight, bias].into_iter().flatten().collect();
    widened(&tensors, &|t| {
        let (centred, scale) = standard(norm, &t[0], eps)?;
        match t {
            [_, w, b] => map([&centred, &scale, w, b], |[x, s, w, b]| x * s * w + b),
            [_, w] => map([&centred, &scale, w], |[x, s, w]| x * s * w),
            _ => centred.mul(&scale),
        }
    })
}

/// [`Op::NormGrad`]: with `h` the normalised values and `u = g weight`,
/// `scale (u - mean(u) - h mean(u h))`, without `mean(u)` for [`Norm::Rms`].
///
/// # Errors
/// If the device fails.
fn norm_grad(
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    g: &Tensor,
    eps: f64,
) -> Result<StorageRef> {
    let tensors: Vec<&Tensor> = [Some(x), Some(g), weight].into_iter().flatten().collect();
    widened(&tensors, &|t| {
        let (centred, scale) = standard(norm, &t[0], eps)?;
        let h = centred.mul(&scale)?;
        let u = if let [_, g, w] = t { g.mul(w)? } else { t[1].clone() };
        let along = u.mul(&h)?.mean_keepdim(-1)?;
        match norm {
            Norm::Layer => {
                map([&u, &h, &along, &scale, &u.mean_keepdim(-1)?], |[u, h, a, s, m]| {
                    s * (u - m - h * a)
                })
            }
            Norm::Rms => map([&u, &h, &along, &scale], |[u, h, a, s]| s * (u - h * a)),
        }
    })
}
