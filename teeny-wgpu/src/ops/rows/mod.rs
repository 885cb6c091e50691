//! Row programs: the named ones that have a shader of their own, and all others.

mod program;
#[cfg(test)]
mod tests;

use crate::device::Wgpu;
use crate::ops::cross_entropy::cross_entropy;
use crate::ops::norm::{Norm, norm};
use crate::ops::softmax::{SoftmaxKind, softmax};
use std::sync::Arc;
use teeny_core::{Kernel, Layout, Outputs, Result, RowFunction, Scalar, Shape, StorageRef, Tensor};

/// The outputs of `program` on the rows along `axes` of `shape`; `None` if a launch does not reach
/// them.
pub(crate) fn rows(
    gpu: &Wgpu,
    program: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
) -> Result<Option<Outputs>> {
    match named(gpu, program, inputs, params, axes)? {
        Some(y) => Ok(Some(Outputs::one(y))),
        None => program::run(gpu, program, inputs, params, shape, axes),
    }
}

/// The one output of a named program; `None` if it has no shader of its own.
fn named(
    gpu: &Wgpu,
    program: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    axes: &[usize],
) -> Result<Option<StorageRef>> {
    let (Some(function), &[axis]) = (program.row_function(), axes) else { return Ok(None) };
    let (x, ndim) = (inputs[0], inputs[0].ndim());
    let soft = |kind| softmax(gpu, kind, inputs, axis).map(Some);
    match function {
        RowFunction::Softmax => soft(SoftmaxKind::Softmax),
        RowFunction::LogSoftmax => soft(SoftmaxKind::LogSoftmax),
        RowFunction::SoftmaxGrad => soft(SoftmaxKind::SoftmaxGrad),
        RowFunction::LogSoftmaxGrad => soft(SoftmaxKind::LogSoftmaxGrad),
        _ if axis + 1 < ndim => Ok(None),
        RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad if ndim == 2 => {
            let g = inputs.get(2).map(|g| column(g)).transpose()?;
            cross_entropy(gpu, x, &column(inputs[1])?, params.first().copied(), g.as_ref())
        }
        RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad => Ok(None),
        RowFunction::LayerNorm | RowFunction::RmsNorm => {
            let bias = inputs.get(2).copied();
            if bias.is_some_and(|bias| !is_line(bias)) {
                return Ok(None);
            }
            norm(gpu, kind(function), x, None, inputs.get(1).copied(), bias, params[0]).map(Some)
        }
        RowFunction::LayerNormGrad | RowFunction::RmsNormGrad => {
            let (g, weight) = (inputs[inputs.len() - 1], &inputs[1..inputs.len() - 1]);
            let weight = weight.first().copied();
            norm(gpu, kind(function), x, Some(g), weight, None, params[0]).map(Some)
        }
    }
}

fn kind(function: RowFunction) -> Norm {
    match function {
        RowFunction::RmsNorm | RowFunction::RmsNormGrad => Norm::Rms,
        _ => Norm::Layer,
    }
}

/// Whether all rows along the last axis of `x` are one row in memory.
fn is_line(x: &Tensor) -> bool {
    let others = x.ndim() - 1;
    (0..others).all(|axis| x.strides()[axis] == 0 || x.shape()[axis] == 1)
}

/// A tensor (n, 1) as (n).
fn column(x: &Tensor) -> Result<Tensor> {
    let (shape, strides) = (Shape::new(&[x.shape()[0]])?, [x.strides()[0]]);
    x.with_layout(Layout::strided(shape, &strides, x.layout().offset(), x.storage().len())?)
}
