//! Kernels that only software adapters run: Mesa's llvmpipe, on which continuous integration and
//! machines without a GPU compute. A GPU runs none of it, and a device is complete without it.
//!
//! ```text
//! is_software                in registers: transposes                        transpose
//! reads_octets               elementwise kernels and reductions by eight     (a number of lanes)
//! multiplies_by_subgroups    products                                        matmul
//!                            convolutions, by products of stored patches     patches
//!                            attention                                       attention
//! ```
//!
//! There a load is a loop over the threads of a vector, and costs as much for 256 bits as for 32;
//! workgroup memory is as slow as other memory; and a barrier switches between stacks. So tiles
//! through workgroup memory are slow. Measured on llvmpipe: products and attention by subgroups of
//! 8 threads are 3 to 6 times as fast as the tiled kernels, convolutions with stored patches and
//! elementwise kernels and reductions by eight elements 3 to 5 times, transposes in registers up to
//! 3 times (BENCHMARKS.md).
//!
//! An operation calls them where it selects its kernel and where it makes its shader; products,
//! attention and transposes have `shaders/software_*.wgsl`. The kernels of GPUs are tested on the
//! same adapter.

pub(crate) mod attention;
pub(crate) mod matmul;
pub(crate) mod patches;
pub(crate) mod transpose;

use crate::device::adapter::Capabilities;
use crate::device::options::AdapterKind;
use teeny_core::DType;

/// Whether the adapter is software.
pub(crate) fn is_software(gpu: &Capabilities) -> bool {
    gpu.kind == AdapterKind::Cpu
}

/// Whether threads of elementwise kernels take eight elements at a time instead of four, in 64-bit
/// words.
pub(crate) fn reads_octets(gpu: &Capabilities) -> bool {
    is_software(gpu) && gpu.int64
}

/// Whether subgroups of 8 threads multiply elements of this type by one tile each, without
/// workgroup memory.
pub(crate) fn multiplies_by_subgroups(gpu: &Capabilities, dtype: DType) -> bool {
    is_software(gpu)
        && gpu.subgroups
        && gpu.subgroup_threads == (8, 8)
        && matches!(dtype, DType::F32 | DType::I32 | DType::U32)
}
