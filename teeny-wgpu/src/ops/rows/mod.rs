//! Row programs: what a launch cannot reach is refused here or left to the definition.

mod program;
#[cfg(test)]
mod tests;

use crate::AdapterKind;
use crate::device::Wgpu;
use crate::ops::copy::{can_compact, compact_all};
use std::sync::Arc;
use teeny_core::kernel::Extent;
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
    let one = shape.reduced(axes, true);
    for o in 0..program.outputs().len() {
        let is_element = program.output_extent(o) == Extent::Element;
        let len = if is_element { shape.numel() } else { one.numel() };
        gpu.checked_bytes(len, program.output_dtype(o))?;
    }
    if can_compact(gpu, inputs) {
        let packed = compact_all(gpu, inputs)?;
        return rows(gpu, program, &packed.iter().collect::<Vec<_>>(), params, shape, axes);
    }
    let software = gpu.capabilities.kind == AdapterKind::Cpu;
    program::run(gpu, software, program, inputs, params, shape, axes)
}
