//! Elementwise kernels on tensors of any size.

pub(crate) mod direct;
pub(crate) mod many;

use crate::device::Wgpu;
use crate::ops::copy::{compact_all, contiguous};
use crate::ops::elementwise::direct::try_elementwise;
use std::sync::Arc;
use teeny_core::{Error, Kernel, Outputs, Result, Scalar, Shape, Tensor};

/// The outputs of `kernel` at every index of `shape`.
pub(crate) fn elementwise(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    if let Some(outputs) = try_elementwise(gpu, kernel, inputs, params, shape)? {
        return Ok(outputs);
    }
    // Neighbours of the result are further apart in some large input than a kernel reaches; in a
    // row-major copy they are within reach.
    let packed = compact_all(gpu, inputs)?;
    let packed = packed
        .iter()
        .map(|x| {
            if gpu.exceeds_binding(x) {
                gpu.tensor(contiguous(gpu, x)?, *x.shape(), x.dtype(), x)
            } else {
                Ok(x.clone())
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let outputs = try_elementwise(gpu, kernel, &packed.iter().collect::<Vec<_>>(), params, shape)?;
    outputs.ok_or_else(|| {
        Error::unsupported(format!(
            "bindings of {} bytes are too small for this kernel",
            gpu.capabilities.max_binding
        ))
    })
}
