//! The definitions of the fused ops in primitives: the fallback of every device, and the results
//! that a faster kernel must agree with.
//!
//! Everything here is written with public `Tensor` operations, so it runs on any device, and on an
//! autograd device records its own gradient.

use crate::device::DeviceRef;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::linalg;
use crate::op::{Norm, Op, Outputs, Window};
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
        Norm::Layer => x.sub(&x.mean_keepdim(-1)?)?,
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

/// `x` with `padding` elements of `value` before and after each of its last axes.
fn padded(x: &Tensor, padding: &[usize], value: Scalar) -> Result<Tensor> {
    if padding.iter().all(|&p| p == 0) {
        return Ok(x.clone());
    }
    let lead = x.ndim() - padding.len();
    let mut shape = *x.shape();
    for (i, &p) in padding.iter().enumerate() {
        shape = shape.resized(lead + i, x.shape()[lead + i] + 2 * p)?;
    }
    let frame = Tensor::full(shape, value, x.dtype(), x)?;
    frame.assign_view(|f| unpadded(f, padding), x)
}

/// A padded tensor without its padding, a view.
fn unpadded(x: &Tensor, padding: &[usize]) -> Result<Tensor> {
    let lead = x.ndim() - padding.len();
    padding
        .iter()
        .enumerate()
        .try_fold(x.clone(), |x, (i, &p)| x.slice((lead + i) as isize, p..x.shape()[lead + i] - p))
}

/// All windows over the last `kernel.len()` axes as a view: (lead.., counts.., kernel..).
fn windows(x: &Tensor, kernel: &[usize], window: &Window) -> Result<Tensor> {
    let lead = x.ndim() - kernel.len();
    let mut view = x.clone();
    for (i, &k) in kernel.iter().enumerate() {
        let reach = window.dilation[i] * (k - 1) + 1;
        view = view.unfold((lead + i) as isize, reach, window.stride[i])?.slice_step(
            -1,
            ..,
            window.dilation[i] as isize,
        )?;
    }
    Ok(view)
}

fn axes(parts: &[std::ops::Range<usize>]) -> Vec<usize> {
    parts.iter().cloned().flatten().collect()
}

/// [`Op::Conv`] by im2col: windows as columns, then one matrix product per group.
///
/// # Errors
/// If the device fails.
fn conv(x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
    let (n, groups) = (x.shape()[0], window.groups);
    let (out, kernel) = (weight.shape()[0], &weight.shape()[2..]);
    let d = kernel.len();
    // Groups are split by the reshape only: with a separate axis, three dimensions would need nine
    // axes. (N, C, counts.., kernel..)
    let view = windows(&padded(x, &window.padding, Scalar::Float(0.0))?, kernel, window)?;
    let counts = view.shape()[2..2 + d].to_vec();
    // (N, C, kernel.., counts..)
    let columns = view.permute(axes(&[0..2, 2 + d..2 + 2 * d, 2..2 + d]))?;
    let (rows, places) =
        (weight.shape()[1..].iter().product::<usize>(), counts.iter().product::<usize>());
    let columns = columns.reshape((n, groups, rows, places))?;
    let w = weight.reshape((1, groups, out / groups, rows))?;
    let y = w.matmul(&columns)?; // (N, G, C_out/G, places)
    let mut sizes = vec![n, out];
    sizes.extend(counts);
    finish(y.reshape(sizes)?)
}

/// [`Op::ConvInputGrad`]: every output place adds its window back to the padded input, one
/// strided addition per kernel position, in a fixed order.
///
/// # Errors
/// If the device fails.
fn conv_input_grad(
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<StorageRef> {
    let (n, groups) = (x_shape[0], window.groups);
    let (out, kernel) = (weight.shape()[0], weight.shape()[2..].to_vec());
    let counts = g.shape()[2..].to_vec();
    let (rows, places) =
        (weight.shape()[1..].iter().product::<usize>(), counts.iter().product::<usize>());
    let w = weight.reshape((1, groups, out / groups, rows))?.t()?; // (1, G, rows, C_out/G)
    let columns = w.matmul(&g.reshape((n, groups, out / groups, places))?)?; // (N, G, rows, places)
    let mut sizes = vec![n, x_shape[1], kernel.iter().product()];
    sizes.extend(&counts);
    let columns = columns.reshape(sizes)?; // (N, C, kernel positions, counts..)
    let mut padded_shape = *x_shape;
    for (i, &p) in window.padding.iter().enumerate() {
        padded_shape = padded_shape.resized(2 + i, x_shape[2 + i] + 2 * p)?;
    }
    let mut image = Tensor::zeros(padded_shape, g.dtype(), g)?;
    for position in 0..kernel.iter().product() {
        let part = columns.at(2, position as isize)?; // (N, C, counts..)
        let target = |x: &Tensor| x.at_kernel_position(position, &kernel, &counts, window);
        let sum = target(&image)?.add(&part)?;
        image = image.assign_view(target, &sum)?;
    }
    finish(unpadded(&image, &window.padding)?)
}

/// [`Op::ConvWeightGrad`]: one matrix product per group, of the gradient and the windows as
/// rows.
///
/// # Errors
/// If the device fails.
fn conv_weight_grad(
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<StorageRef> {
    let (n, groups) = (x.shape()[0], window.groups);
    let (out, kernel) = (weight_shape[0], &weight_shape[2..]);
    let d = kernel.len();
    // (N, C, counts.., kernel..)
    let view = windows(&padded(x, &window.padding, Scalar::Float(0.0))?, kernel, window)?;
    let places = view.shape()[2..2 + d].iter().product::<usize>();
    let rows = weight_shape[1..].iter().product::<usize>();
    // (N, counts.., C, kernel..)
    let columns = view.permute(axes(&[0..1, 2..2 + d, 1..2, 2 + d..2 + 2 * d]))?;
    // (G, N places, rows)
    let columns = columns.reshape((n * places, groups, rows))?.transpose(0, 1)?;
    let g = g.reshape((n, groups, out / groups, places))?.permute([1, 2, 0, 3])?.reshape((
        groups,
        out / groups,
        n * places,
    ))?;
    finish(g.matmul(&columns)?.reshape(weight_shape)?)
}

/// [`Op::MaxPool`] by comparing every element of every window with the window's largest.
///
/// # Errors
/// If the device fails.
fn max_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<(StorageRef, StorageRef)> {
    let d = size.len();
    let lead = x.ndim() - d;
    // (lead.., counts.., size..)
    let view = windows(&padded(x, &window.padding, lowest(x.dtype()))?, size, window)?;
    let counts = view.shape()[lead..lead + d].to_vec();
    let mut flat_shape = view.shape()[..lead + d].to_vec();
    flat_shape.push(size.iter().product());
    let flat = view.reshape(flat_shape)?; // (lead.., counts.., places in the window)
    // The positions of all places in all windows, with padding marked -1, so a padded position is
    // never returned.
    let spatial = Shape::new(&x.shape()[lead..])?;
    let numbers =
        Tensor::arange(0i32, crate::shape::index_end(spatial.numel())?, 1, x)?.reshape(spatial)?;
    let mut places_shape = counts.clone();
    places_shape.push(size.iter().product());
    // (counts.., places)
    let places = windows(&padded(&numbers, &window.padding, Scalar::Int(-1))?, size, window)?
        .reshape(places_shape)?;
    // An element must win over padding of equal value, so the position marks padding as lowest. In
    // a window of only padding the first position is selected: its value is the lowest, its
    // position -1.
    let real = places.ge(0)?;
    let best = flat.max_keepdim(-1)?; // (lead.., counts.., 1)
    let winner = map([&flat, &best, &real], |[x, b, r]| x.eq(b).or(x.is_nan()).and(r))?;
    let first = winner.cast(DType::I32)?.argmax(-1)?.unsqueeze(-1)?; // (lead.., counts.., 1)
    let mut stretched = view.shape()[..lead + d].to_vec();
    stretched.push(places.shape()[d]);
    let positions = places.expand(stretched)?.gather(-1, &first)?.squeeze(-1)?;
    let values = flat.gather(-1, &first)?.squeeze(-1)?;
    Ok((finish(values)?, finish(positions)?))
}

fn max_pool_grad(
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<StorageRef> {
    if x_shape.numel() == 0 {
        return finish(Tensor::zeros(x_shape, g.dtype(), g)?);
    }
    // A window of only padding has position -1: it adds 0 to the first position.
    let index = map([positions], |[p]| p.eq(-1).where_cond(p.like(0), p))?;
    let g = &map([positions, g], |[p, g]| p.eq(-1).where_cond(g.like(0), g))?;
    let lead = x_shape.ndim() - spatial;
    let places = x_shape[lead..].iter().product::<usize>();
    let mut zero_shape = x_shape[..lead].to_vec();
    let mut flat_shape = zero_shape.clone();
    zero_shape.push(places);
    flat_shape.push(g.shape()[lead..].iter().product());
    let zeros = Tensor::zeros(zero_shape, g.dtype(), g)?;
    finish(
        zeros
            .scatter_add(
                -1,
                &index.reshape(flat_shape.as_slice())?,
                &g.reshape(flat_shape.as_slice())?,
            )?
            .reshape(x_shape)?,
    )
}

/// The elements of `x` (.., places) at the `positions` (.., windows) of a max-pooling, along the
/// last axis: 0 for a window of only padding.
///
/// # Errors
/// If the shapes do not fit, or a position is outside.
pub fn at_winners(x: &Tensor, positions: &Tensor) -> Result<Tensor> {
    if x.shape().last() == Some(&0) {
        return Tensor::zeros(positions.shape(), x.dtype(), x);
    }
    let index = map([positions], |[p]| p.eq(-1).where_cond(p.like(0), p))?;
    map([positions, &x.gather(-1, &index)?], |[p, x]| p.eq(-1).where_cond(x.like(0), x))
}

fn avg_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<StorageRef> {
    let lead = x.ndim() - size.len();
    let view = windows(&padded(x, &window.padding, Scalar::Float(0.0))?, size, window)?;
    let inside: Vec<usize> = (lead + size.len()..view.ndim()).collect();
    finish(view.mean(inside)?)
}
