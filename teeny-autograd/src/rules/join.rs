//! Concatenation and padding: the gradient of each tensor is a view of the result's gradient.
//! Triangles: elements that were replaced by zeros get the gradient 0.

use crate::duals::Duals;
use crate::record::{Operands, Rule};
use teeny_core::{Op, Result, Tensor};

/// The rule of concatenating `tensors` along `axis`.
pub(crate) fn cat(operands: &Operands<'_>, tensors: &[&Tensor], axis: usize) -> Rule {
    let parts: Vec<(bool, usize)> =
        tensors.iter().enumerate().map(|(i, x)| (operands.need(i), x.shape()[axis])).collect();
    Rule {
        backward: Box::new(move |g| {
            let Some(g) = &g[0] else { return Ok(vec![None; parts.len()]) };
            let mut start = 0;
            let part = |&(needed, size): &(bool, usize)| {
                start += size;
                needed.then(|| g.slice(axis as isize, start - size..start)).transpose()
            };
            parts.iter().map(part).collect()
        }),
        edges: operands.edges(),
        detached: None,
    }
}

/// The rule of padding `x` with a constant.
pub(crate) fn pad(operands: &Operands<'_>, x: &Tensor, widths: &[(usize, usize)]) -> Rule {
    let own: Vec<(usize, usize)> =
        widths.iter().zip(x.shape().iter()).map(|(&(before, _), &size)| (before, size)).collect();
    Rule::new(operands, move |g| {
        let part = |g: Tensor, (axis, &(start, size)): (usize, &(usize, usize))| {
            g.slice(axis as isize, start..start + size)
        };
        Ok([Some(own.iter().enumerate().try_fold(g.clone(), part)?)])
    })
}

/// The rule of taking a triangle.
pub(crate) fn tri(operands: &Operands<'_>, diagonal: i32, upper: bool) -> Rule {
    Rule::new(operands, move |g| Ok([Some(triangle(g, diagonal, upper)?)]))
}

/// The same triangle of `x`.
fn triangle(x: &Tensor, diagonal: i32, upper: bool) -> Result<Tensor> {
    Op::Tri { x, diagonal, upper }.tensor(x.device())
}

/// The tangent of `count` tensors concatenated along `axis`.
pub(crate) fn cat_tangent(operands: &Duals, count: usize, axis: usize) -> Result<Option<Tensor>> {
    let parts = (0..count).map(|i| operands.tangent_or_zeros(i)).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, axis as isize).map(Some)
}

/// The tangent of a padded tensor, around which nothing changes.
pub(crate) fn pad_tangent(operands: &Duals, widths: &[(usize, usize)]) -> Result<Option<Tensor>> {
    let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    let widths: Vec<_> = widths.iter().map(|&(a, b)| (signed(a), signed(b))).collect();
    operands.tangent(0).map(|x| x.pad(&widths, 0)).transpose()
}

/// The tangent of a triangle.
pub(crate) fn tri_tangent(operands: &Duals, diagonal: i32, upper: bool) -> Result<Option<Tensor>> {
    operands.tangent(0).map(|x| triangle(x, diagonal, upper)).transpose()
}
