//! Pooling: a maximum sends its gradient to the winner, a mean spreads it over the window.

use crate::duals::Duals;
use crate::record::{Operands, Rule};
use teeny_core::{Op, Result, Shape, Tensor, Window, definition};

/// The rule of max-pooling `x` over its last `spatial` axes, with the winners at `positions`.
pub(crate) fn max_pool(
    operands: &Operands<'_>,
    x: &Tensor,
    spatial: usize,
    positions: &Tensor,
) -> Rule {
    let (winners, full) = (positions.clone(), *x.shape());
    Rule::new(operands, move |g| {
        let op = Op::MaxPoolGrad { g, positions: &winners, x_shape: &full, spatial };
        Ok([Some(op.tensor(g.device())?)])
    })
    .detaching(1, Some("the positions of max_pool"))
}

/// The rule of the gradient of max-pooling, which is linear in `g`. Its transpose reads at the
/// positions.
pub(crate) fn max_pool_grad(
    operands: &Operands<'_>,
    g: &Tensor,
    positions: &Tensor,
    spatial: usize,
) -> Rule {
    let (out, positions) = (*g.shape(), positions.clone());
    Rule::new(operands, move |upper| {
        let lead = (out.ndim() - spatial) as isize;
        let (flat, places) = (upper.flatten(lead, -1)?, positions.flatten(lead, -1)?);
        Ok([Some(definition::at_winners(&flat, &places)?.reshape(out)?), None])
    })
}

/// The rule of average pooling. A mean is a convolution of one channel with equal weights; its
/// gradient is that convolution's. Where windows lie side by side, an element has one mean.
pub(crate) fn avg_pool(
    operands: &Operands<'_>,
    x: &Tensor,
    kernel_size: &[usize],
    window: &Window,
) -> Rule {
    let (size, window, full) = (kernel_size.to_vec(), window.clone(), *x.shape());
    Rule::new(operands, move |g| {
        let lead = full.ndim() - size.len();
        let apart = window.stride == size
            && window.dilation.iter().all(|&d| d == 1)
            && window.padding.iter().all(|&p| p == 0);
        if apart && size.len() <= 3 {
            return Ok([Some(repeat(g, &size, &full)?)]);
        }
        let images = |shape: &Shape| [&[full[..lead].iter().product(), 1], &shape[lead..]].concat();
        let kernel = [&[1, 1], &size[..]].concat();
        let weight =
            Tensor::full(kernel, 1.0 / size.iter().product::<usize>() as f64, g.dtype(), g)?;
        let d_x = g.reshape(images(g.shape()))?.conv_transpose(&weight, &window, &full[lead..])?;
        Ok([Some(d_x.reshape(full)?)])
    })
}

/// `g` over the elements of a window, for each of its elements; zeros after the last window.
fn repeat(g: &Tensor, size: &[usize], full: &Shape) -> Result<Tensor> {
    let lead = full.ndim() - size.len();
    let (mut single, mut windows) = (vec![g.shape()[..lead].iter().product()], Vec::new());
    windows.push(single[0]);
    for (&n, &size) in g.shape()[lead..].iter().zip(size) {
        single.extend([n, 1]);
        windows.extend([n, size]);
    }
    let share = g.div(size.iter().product::<usize>() as f64)?.reshape(single)?;
    let covered: Vec<usize> = g.shape()[lead..].iter().zip(size).map(|(n, k)| n * k).collect();
    let x = share.expand(windows)?.reshape([&full[..lead], &covered[..]].concat())?;
    if covered == full[lead..] {
        return Ok(x);
    }
    let behind = full[lead..].iter().zip(&covered).map(|(n, m)| (0, (n - m) as isize));
    x.pad(&behind.collect::<Vec<_>>(), 0)
}

/// The tangent at `positions`, the second output of a max pooling over the last `spatial` axes:
/// (rows, windows).
pub(crate) fn max_pool_tangent(
    operands: &Duals,
    spatial: usize,
    positions: &Tensor,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| {
        let numel = |sizes: &[usize]| sizes.iter().product::<usize>();
        let (lead, spatial_sizes) = t.shape().split_at(t.ndim() - spatial);
        let windows = numel(&positions.shape()[lead.len()..]);
        let index = positions.reshape((numel(lead), windows))?; // (rows, windows)
        let rows = t.reshape((numel(lead), numel(spatial_sizes)))?; // (rows, places)
        definition::at_winners(&rows, &index)
    })
}

/// The op is linear in its gradient.
pub(crate) fn max_pool_grad_tangent(
    operands: &Duals,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| {
        Op::MaxPoolGrad { g: t, positions, x_shape, spatial }.tensor(t.device())
    })
}

/// The mean of the tangents.
pub(crate) fn avg_pool_tangent(
    operands: &Duals,
    kernel_size: &[usize],
    window: &Window,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| t.avg_pool(kernel_size, window))
}
