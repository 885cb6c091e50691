//! Row programs, by one template.

mod program;
#[cfg(test)]
mod tests;

use crate::AdapterKind;
use crate::device::Wgpu;
use crate::ops::copy::{can_compact, compact_all};
use std::sync::Arc;
use teeny_core::{Kernel, Outputs, Result, Scalar, Shape, Tensor};

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
    if can_compact(gpu, inputs) {
        let packed = compact_all(gpu, inputs)?;
        return rows(gpu, program, &packed.iter().collect::<Vec<_>>(), params, shape, axes);
    }
    let software = gpu.capabilities.kind == AdapterKind::Cpu;
    program::run(gpu, software, program, inputs, params, shape, axes)
}
