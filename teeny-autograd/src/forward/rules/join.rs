//! Concatenation: the tangents are concatenated.

use crate::forward::operands::Operands;
use teeny_core::{Result, Tensor};

/// The tangent of `count` tensors concatenated along `axis`.
pub(super) fn cat(operands: &Operands, count: usize, axis: usize) -> Result<Option<Tensor>> {
    let parts = (0..count).map(|i| operands.tangent_or_zeros(i)).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as isize).map(Some)
}
