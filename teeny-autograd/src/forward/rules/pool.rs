//! Pooling: a maximum has the tangent of its winner, a mean the mean of the tangents.

use crate::forward::operands::Operands;
use teeny_core::{Op, Result, Shape, Tensor, Window, definition};

/// The tangent at `positions`, the second output of a max pooling over the last `spatial` axes:
/// (rows, windows).
pub(super) fn max_pool(
    operands: &Operands,
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
pub(super) fn max_pool_grad(
    operands: &Operands,
    positions: &Tensor,
    x_shape: &Shape,
    spatial: usize,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| {
        Op::MaxPoolGrad { g: t, positions, x_shape, spatial }.tensor(t.device())
    })
}

pub(super) fn avg_pool(
    operands: &Operands,
    kernel_size: &[usize],
    window: &Window,
) -> Result<Option<Tensor>> {
    operands.map_tangent(0, |t| t.avg_pool(kernel_size, window))
}
