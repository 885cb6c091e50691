//! The definitions of convolution, pooling and their gradients: windows as views.

use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Window, conv_shape, pool_shape};
use crate::scalar::{Scalar, lowest};
use crate::shape::{MAX_NDIM, Shape};
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

/// All windows over the last `kernel.len()` axes, the other axes joined: (lead, counts..,
/// kernel..), a view; (lead, windows, places in a window) where a view would have more axes than a
/// tensor.
fn windows(x: &Tensor, kernel: &[usize], window: &Window) -> Result<Tensor> {
    let (d, lead) = (kernel.len(), x.ndim() - kernel.len());
    let joined = x.shape()[..lead].iter().product();
    if 2 * d < MAX_NDIM {
        let mut view = x.reshape([&[joined], &x.shape()[lead..]].concat())?; // (lead, spatial..)
        for (i, &k) in kernel.iter().enumerate() {
            let reach = window.dilation[i] * (k - 1) + 1;
            let step = window.dilation[i] as isize;
            view =
                view.unfold(1 + i as isize, reach, window.stride[i])?.slice_step(-1, .., step)?;
        }
        return Ok(view);
    }
    let unpadded = Window { padding: vec![0; d], ..window.clone() };
    let counts = pool_shape(x.shape(), kernel, &unpadded)?[lead..].to_vec();
    let column = |position| {
        let part = x.at_kernel_position(position, kernel, &counts, window)?; // (lead.., counts..)
        part.reshape((joined, counts.iter().product::<usize>(), 1))
    };
    let columns = (0..kernel.iter().product()).map(column).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&columns, 2)
}

/// [`windows`] as (lead, windows, places in a window).
fn flat_windows(x: &Tensor, kernel: &[usize], window: &Window) -> Result<Tensor> {
    let view = windows(x, kernel, window)?;
    let (lead, places) = (view.shape()[0], kernel.iter().product::<usize>());
    let counts = view.shape()[1..view.ndim().div_ceil(2)].iter().product::<usize>();
    view.reshape((lead, counts, places))
}

fn axes(parts: &[std::ops::Range<usize>]) -> Vec<usize> {
    parts.iter().cloned().flatten().collect()
}

/// [`Op::Conv`] by im2col: windows as columns, then one matrix product per group.
///
/// # Errors
/// If the device fails.
pub(super) fn conv(x: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
    let y_shape = &conv_shape(x.shape(), weight.shape(), window)?;
    let (n, groups) = (x.shape()[0], window.groups);
    let (out, kernel) = (weight.shape()[0], &weight.shape()[2..]);
    // (N C, counts.., kernel..)
    let view = windows(&padded(x, &window.padding, Scalar::Float(0.0))?, kernel, window)?;
    let middle = view.ndim().div_ceil(2);
    // (N C, kernel.., counts..)
    let columns = view.permute(axes(&[0..1, middle..view.ndim(), 1..middle]))?;
    let rows = weight.shape()[1..].iter().product::<usize>();
    let places = view.shape()[1..middle].iter().product::<usize>();
    let columns = columns.reshape((n, groups, rows, places))?;
    let w = weight.reshape((1, groups, out / groups, rows))?;
    w.matmul(&columns)?.reshape(*y_shape) // (N, G, C_out/G, places)
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
    // The sums of windows that overlap are rounded once.
    let (dtype, wide) = (g.dtype(), g.dtype().compute());
    let (g, weight) = (&g.cast(wide)?, &weight.cast(wide)?);
    let (n, groups) = (x_shape[0], window.groups);
    let (out, kernel) = (weight.shape()[0], weight.shape()[2..].to_vec());
    let counts = g.shape()[2..].to_vec();
    let (rows, places) =
        (weight.shape()[1..].iter().product::<usize>(), counts.iter().product::<usize>());
    let w = weight.reshape((1, groups, out / groups, rows))?.t()?; // (1, G, rows, C_out/G)
    let columns = w.matmul(&g.reshape((n, groups, out / groups, places))?)?; // (N, G, rows, places)
    // (N, C, kernel positions, places)
    let columns = columns.reshape((n, x_shape[1], kernel.iter().product::<usize>(), places))?;
    let part_shape = [&[n, x_shape[1]], &counts[..]].concat();
    let mut padded_shape = *x_shape;
    for (i, &p) in window.padding.iter().enumerate() {
        padded_shape = padded_shape.resized(2 + i, x_shape[2 + i] + 2 * p)?;
    }
    let mut image = Tensor::zeros(padded_shape, g.dtype(), g)?;
    for position in 0..kernel.iter().product() {
        // (N, C, counts..)
        let part = columns.at(2, position as isize)?.reshape(part_shape.as_slice())?;
        let target = |x: &Tensor| x.at_kernel_position(position, &kernel, &counts, window);
        let sum = target(&image)?.add(&part)?;
        image = image.assign_view(target, &sum)?;
    }
    unpadded(&image, &window.padding)?.cast(dtype)
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
    // (N C, windows, places in a window)
    let view = flat_windows(&padded(x, &window.padding, Scalar::Float(0.0))?, kernel, window)?;
    let (places, inside) = (view.shape()[1], view.shape()[2]);
    let rows = weight_shape[1..].iter().product::<usize>();
    let columns = view.reshape((n, groups * rows / inside, places, inside))?;
    // (G, N places, rows)
    let columns = columns.permute([0, 2, 1, 3])?.reshape((n * places, groups, rows))?;
    let columns = columns.transpose(0, 1)?;
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
    let lead = x.ndim() - size.len();
    let shape = pool_shape(x.shape(), size, window)?;
    // (lead, windows, places in a window)
    let flat = flat_windows(&padded(x, &window.padding, lowest(x.dtype()))?, size, window)?;
    // The positions of all places in all windows, with padding marked -1, so a padded position is
    // never returned.
    let spatial = Shape::new(&x.shape()[lead..])?;
    let numbers =
        Tensor::arange(0i32, crate::shape::index_end(spatial.numel())?, 1, x)?.reshape(spatial)?;
    // (1, windows, places)
    let places = flat_windows(&padded(&numbers, &window.padding, Scalar::Int(-1))?, size, window)?;
    // An element must win over padding of equal value, so the position marks padding as lowest. In
    // a window of only padding the first position is selected: its value is the lowest, its
    // position -1.
    let real = places.ge(0)?;
    let best = flat.max_keepdim(-1)?; // (lead, windows, 1)
    let winner = map([&flat, &best, &real], |[x, b, r]| x.eq(b).or(x.is_nan()).and(r))?;
    let first = winner.cast(DType::I32)?.argmax(-1)?.unsqueeze(-1)?; // (lead, windows, 1)
    let positions = places.expand(*flat.shape())?.gather(-1, &first)?.reshape(shape)?;
    let values = flat.gather(-1, &first)?.reshape(shape)?;
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
    let shape = pool_shape(x.shape(), size, window)?;
    let view = windows(&padded(x, &window.padding, Scalar::Float(0.0))?, size, window)?;
    let inside: Vec<usize> = (view.ndim().div_ceil(2)..view.ndim()).collect();
    view.mean(inside)?.reshape(shape)
}
