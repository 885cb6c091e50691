//! Transposes of blocks of 4 x 4 elements in registers; see `software_transpose.wgsl`.

use crate::codegen::shader::{Shader, shader};

/// The shader for tiles of `tile` x `tile` elements, a thread for each block; it still needs its
/// parameters and addresses. Through workgroup memory takes 1 to 3 times as long as a thread per
/// four elements on a software adapter.
pub(crate) fn template(tile: usize) -> Shader {
    shader!("software_transpose").number("threads", tile * tile / 16).number("tile", tile)
}
