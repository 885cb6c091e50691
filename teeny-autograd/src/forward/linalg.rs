//! Solving and factoring matrices: by the backward rules, which are linear in the gradient.

use crate::device::Autograd;
use crate::duals::Duals;
use crate::grad::Grad;
use crate::mode::enable_grad;
use crate::rules::linalg::{adjoint, require_rule};
use teeny_core::{LinalgOp, Result, Tensor};

/// The tangents of `outputs`; `None` for an output that is constant.
///
/// The adjoint `u ↦ Jᵀ u` is linear, so the gradient of `<Jᵀ u, v>` for u, at any u, is `J v`: each
/// backward rule is a forward rule too.
pub(super) fn linalg(
    operands: &Duals,
    op: LinalgOp,
    outputs: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let Duals { values, tangents } = operands;
    require_rule(op, &operands.inner())?;
    let inner = outputs[0].device();
    let device = Autograd::new(inner);
    let needs: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    enable_grad(|| {
        let leaf = |y: &Tensor| y.zeros_like()?.to(&device)?.requires_grad();
        let u = outputs.iter().map(|y| leaf(y).map(Some)).collect::<Result<Vec<_>>>()?;
        let adjoints = adjoint(op, values, outputs, &u, &needs)?;
        let mut sum = Tensor::zeros((), outputs[0].dtype(), &device)?; // ()
        for (adjoint, v) in adjoints.iter().zip(tangents) {
            if let (Some(adjoint), Some(v)) = (adjoint, v) {
                sum = sum.add(&adjoint.mul(v)?.sum_all()?)?;
            }
        }
        let mut gradients = sum.backward()?;
        let mut tangent =
            |u: &Tensor| gradients.contains(u).then(|| gradients.take(u)?.to(inner)).transpose();
        u.iter().flatten().map(&mut tangent).collect()
    })
}
