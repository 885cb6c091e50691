//! Concatenation and padding: the gradient of each tensor is a view of that of the whole. Triangles:
//! what was replaced by zeros has the gradient 0.

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
pub(crate) fn triangle(x: &Tensor, diagonal: i32, upper: bool) -> Result<Tensor> {
    Op::Tri { x, diagonal, upper }.tensor(x.device())
}
