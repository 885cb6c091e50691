//! The named row programs that have a kernel of their own, and the layouts that it takes.

use super::{Norm, SoftmaxKind, cross_entropy, norm, softmax};
use crate::Cpu;
use teeny_core::storage::StorageRef;
use teeny_core::{Kernel, Layout, Result, RowFunction, Scalar, Shape, Tensor};

/// The one output of `program` on the rows along `axes`; `None` if it has no kernel here.
pub(crate) fn named(
    cpu: &Cpu,
    program: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    axes: &[usize],
) -> Result<Option<StorageRef>> {
    let (Some(function), &[axis]) = (program.row_function(), axes) else { return Ok(None) };
    let (x, ndim) = (inputs[0], inputs[0].ndim());
    let soft = |row, g| softmax::rows(cpu, row, x, g, axis).map(Some);
    match function {
        RowFunction::Softmax => soft(SoftmaxKind::Softmax, None),
        RowFunction::LogSoftmax => soft(SoftmaxKind::LogSoftmax, None),
        RowFunction::SoftmaxGrad => soft(SoftmaxKind::SoftmaxGrad, Some(inputs[1])),
        RowFunction::LogSoftmaxGrad => soft(SoftmaxKind::LogSoftmaxGrad, Some(inputs[1])),
        _ if axis + 1 < ndim => Ok(None),
        RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad if ndim == 2 => {
            let ignored = params.first().map(|p| p.to_i64_wrapping());
            let targets = line(inputs[1], 0)?;
            match inputs.get(2) {
                None => cross_entropy::losses(cpu, x, &targets, ignored).map(Some),
                Some(g) => {
                    let g = line(g, 0)?;
                    cross_entropy::gradient(cpu, x, &targets, ignored, &g).map(Some)
                }
            }
        }
        RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad => Ok(None),
        RowFunction::LayerNorm | RowFunction::RmsNorm => {
            if !inputs[1..].iter().all(|x| is_line(x)) {
                return Ok(None);
            }
            let line = |i: usize| inputs.get(i).map(|x| line(x, axis)).transpose();
            let (weight, bias) = (line(1)?, line(2)?);
            let (weight, bias) = (weight.as_ref(), bias.as_ref());
            norm::forward(cpu, kind(function), x, weight, bias, params[0].to_f64()).map(Some)
        }
        RowFunction::LayerNormGrad | RowFunction::RmsNormGrad => {
            let (g, weight) = (inputs[inputs.len() - 1], &inputs[1..inputs.len() - 1]);
            if !weight.iter().all(|x| is_line(x)) {
                return Ok(None);
            }
            let weight = weight.first().map(|x| line(x, axis)).transpose()?;
            let eps = params[0].to_f64();
            norm::gradient(cpu, kind(function), x, weight.as_ref(), g, eps).map(Some)
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

/// The elements of `x` along `axis`, at the first place of the other axes.
fn line(x: &Tensor, axis: usize) -> Result<Tensor> {
    let (shape, strides) = (Shape::new(&[x.shape()[axis]])?, [x.strides()[axis]]);
    x.with_layout(Layout::strided(shape, &strides, x.layout().offset(), x.storage().len())?)
}
