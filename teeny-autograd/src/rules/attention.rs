//! Attention: the device's own backward pass where it can be used, primitives where more is needed.
//!
//! ```text
//! q, k or v tracked     one fused pass each way; saved: q, k, v, y and a logsumexp per query
//! the mask tracked      the definition, whose primitives are recorded
//! the gradient tracked  the composed gradient, from q, k and v alone: y and the logsumexp are
//!                       functions of them
//! ```

use crate::record::{Operands, Rule};
use crate::storage::own;
use teeny_core::{AttentionInputs, Op, Outputs, Result, Tensor};

/// The rule of attention whose mask needs no gradient, with y and the logsumexp in `values`.
pub(crate) fn attention(
    operands: &Operands<'_>,
    inputs: &AttentionInputs<'_>,
    values: &[Tensor],
) -> Rule {
    let (q, k, v, mask) =
        (inputs.q.clone(), inputs.k.clone(), inputs.v.clone(), inputs.mask.cloned());
    let (options, needs) = (inputs.options, [0, 1, 2].map(|i| operands.need(i)));
    let (y, lse) = (values[0].clone(), values[1].clone());
    let count = 3 + usize::from(mask.is_some());
    Rule {
        backward: Box::new(move |g| {
            let Some(g) = &g[0] else { return Ok(vec![None; count]) };
            let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: mask.as_ref(), options };
            let op = Op::AttentionGrad { inputs, y: &y, lse: &lse, g, needs };
            let mut computed = op.tensor_list(q.device())?.into_iter();
            let mut grads: Vec<_> =
                needs.iter().map(|need| need.then(|| computed.next()).flatten()).collect();
            grads.resize(count, None);
            Ok(grads)
        }),
        edges: operands.edges(),
        detached: Some((1, Some("the logsumexp of attention"))),
    }
}

/// [`Op::AttentionGrad`] that is itself recorded: in primitives, from q, k and v alone.
pub(crate) fn recorded_grad(
    inputs: &AttentionInputs<'_>,
    g: &Tensor,
    needs: [bool; 3],
) -> Result<Outputs> {
    let grads = inputs.composed_grad(None, g, needs)?;
    grads.into_iter().flatten().map(|x| Ok(own(x)?.storage().clone())).collect()
}
