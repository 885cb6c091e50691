//! Windows that slide over images, for convolutions and pooling.

use teeny_core::Window;

/// True if signed numbers of a shader reach all places of an axis of `size` elements with its
/// padding, and the parts of a kernel of `kernel` elements.
pub(crate) fn countable(size: usize, kernel: usize, window: &Window, axis: usize) -> bool {
    let padded = window.padding[axis].saturating_mul(2).saturating_add(size);
    let reach = window.dilation[axis].saturating_mul(kernel.saturating_sub(1));
    padded.saturating_add(reach).max(window.stride[axis]) <= i32::MAX as usize
}
