//! The definitions of convolution, pooling and their gradients: windows as views.

use crate::dtype::DType;
use crate::error::Result;
use crate::op::Window;
use crate::scalar::{Scalar, lowest};
use crate::shape::Shape;
use crate::tensor::{Tensor, map};

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
pub(super) fn conv(x: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
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
    y.reshape(sizes)
}

/// [`Op::ConvInputGrad`]: every output place adds its window back to the padded input, one
/// strided addition per kernel position, in a fixed order.
///
/// # Errors
/// If the device fails.
pub(super) fn conv_input_grad(
    g: &Tensor,
    weight: &Tensor,
    window: &Window,
    x_shape: &Shape,
) -> Result<Tensor> {
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
    unpadded(&image, &window.padding)
}

/// [`Op::ConvWeightGrad`]: one matrix product per group, of the gradient and the windows as
/// rows.
///
/// # Errors
/// If the device fails.
pub(super) fn conv_weight_grad(
    g: &Tensor,
    x: &Tensor,
    window: &Window,
    weight_shape: &Shape,
) -> Result<Tensor> {
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
    g.matmul(&columns)?.reshape(weight_shape)
}

/// [`Op::MaxPool`] by comparing every element of every window with the window's largest.
///
/// # Errors
/// If the device fails.
pub(super) fn max_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<(Tensor, Tensor)> {
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
    Ok((values, positions))
}

pub(super) fn max_pool_grad(
    g: &Tensor,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<Tensor> {
    if x_shape.numel() == 0 {
        return Tensor::zeros(x_shape, g.dtype(), g);
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
    zeros
        .scatter_add(
            -1,
            &index.reshape(flat_shape.as_slice())?,
            &g.reshape(flat_shape.as_slice())?,
        )?
        .reshape(x_shape)
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

pub(super) fn avg_pool(x: &Tensor, size: &[usize], window: &Window) -> Result<Tensor> {
    let lead = x.ndim() - size.len();
    let view = windows(&padded(x, &window.padding, Scalar::Float(0.0))?, size, window)?;
    let inside: Vec<usize> = (lead + size.len()..view.ndim()).collect();
    view.mean(inside)
}
