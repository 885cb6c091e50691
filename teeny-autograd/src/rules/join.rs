//! Concatenation: the gradient of each tensor is a view of that of the whole.

use crate::record::{Operands, Rule};
use teeny_core::Tensor;

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
