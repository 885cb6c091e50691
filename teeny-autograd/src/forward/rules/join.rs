//! Concatenation, padding and triangles: the same of the tangents.

use crate::forward::operands::Operands;
use crate::rules::join::triangle;
use teeny_core::{Result, Tensor};

/// The tangent of `count` tensors concatenated along `axis`.
pub(super) fn cat(operands: &Operands, count: usize, axis: usize) -> Result<Option<Tensor>> {
    let parts = (0..count).map(|i| operands.tangent_or_zeros(i)).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as isize).map(Some)
}

/// The tangent of a padded tensor, around which nothing changes.
pub(super) fn pad(operands: &Operands, widths: &[(usize, usize)]) -> Result<Option<Tensor>> {
    let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    let widths: Vec<_> = widths.iter().map(|&(a, b)| (signed(a), signed(b))).collect();
    operands.tangent(0).map(|x| x.pad(&widths, 0)).transpose()
}

/// The tangent of a triangle.
pub(super) fn tri(operands: &Operands, diagonal: i32, upper: bool) -> Result<Option<Tensor>> {
    operands.tangent(0).map(|x| triangle(x, diagonal, upper)).transpose()
}
