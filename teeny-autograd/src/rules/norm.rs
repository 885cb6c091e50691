//! Normalization: one pass forward, one pass backward for the input; only the input is saved.
//!
//! The gradient of the weight is `sum(g h)` and that of the bias `sum(g)` over all rows, with `h`
//! the normalized values. They are computed again where the weight's gradient needs them: a pass
//! over memory is cheaper than keeping them.

use crate::record::{Operands, Rule, if_needed};
use teeny_core::{Norm, Op, Result, Tensor};

/// The sum over all axes but the last.
fn rows(x: &Tensor) -> Result<Tensor> {
    let lead: Vec<usize> = (0..x.ndim() - 1).collect();
    if lead.is_empty() { Ok(x.clone()) } else { x.sum(lead) }
}

/// The rule of normalizing `x`.
pub(crate) fn norm(
    operands: &Operands<'_>,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Rule {
    let count = 1 + usize::from(weight.is_some()) + usize::from(bias.is_some());
    let needs: Vec<bool> = (0..count).map(|i| operands.need(i)).collect();
    let (x, w) = (x.clone(), weight.cloned());
    let d_x = move |x: &Tensor, g: &Tensor| {
        Op::NormGrad { norm, x, weight: w.as_ref(), g, eps }.tensor(x.device())
    };
    let d_weight = move |x: &Tensor, g: &Tensor| {
        let h = Op::Norm { norm, x, weight: None, bias: None, eps }.tensor(x.device())?;
        rows(&g.mul(&h)?)
    };
    Rule {
        backward: Box::new(move |g| {
            let Some(g) = &g[0] else { return Ok(vec![None; needs.len()]) };
            let mut grads = vec![if_needed(needs[0], || d_x(&x, g))?];
            if let Some(&need) = needs.get(1) {
                grads.push(if_needed(need, || d_weight(&x, g))?);
            }
            if let Some(&need) = needs.get(2) {
                grads.push(if_needed(need, || rows(g))?);
            }
            Ok(grads)
        }),
        edges: operands.edges(),
        detached: None,
    }
}
