//! Attention by subgroups of 8 threads, one tile each; see `software_attention.wgsl`.

use crate::codegen::shader::{Shader, shader};
use crate::device::adapter::Capabilities;
use crate::ops::software::multiplies_by_subgroups;
use teeny_core::DType;

/// The most columns of the values: a thread has accumulators for them.
const COLUMNS: usize = 64;

/// Whether the forward pass of operands of this type, with values of `columns` columns, runs by
/// subgroups, if all rows are groups of four neighbours.
pub(crate) fn suits(gpu: &Capabilities, dtype: DType, columns: usize) -> bool {
    multiplies_by_subgroups(gpu, dtype) && columns <= COLUMNS
}

/// The shader, which still needs its operands and parameters.
pub(crate) fn template() -> Shader {
    shader!("software_attention")
}

/// `shader` with its tile of `keys` keys and `columns` columns, and whether a mask applies and is
/// added.
pub(crate) fn with_tile(
    shader: Shader,
    dtype: DType,
    [keys, columns]: [usize; 2],
    [masks, added]: [bool; 2],
) -> Shader {
    shader
        .store_quads("y", dtype)
        .number("keys", keys)
        .number("step", 4)
        .number("columns", columns)
        .flag("masks", masks)
        .flag("added", added)
}
