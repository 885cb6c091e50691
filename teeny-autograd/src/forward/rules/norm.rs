//! Normalization.

use crate::forward::operands::{Operands, sum};
use teeny_core::{Norm, Op, Result, Tensor};

/// The normalized values `h` have a symmetric Jacobian: [`Op::NormGrad`] without a weight applies
/// it. Then `t_y = t_h weight + h t_weight + t_bias`.
pub(super) fn norm(
    operands: &Operands,
    norm: Norm,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Option<Tensor>> {
    let from_x = operands.map_tangent(0, |t| {
        let t = Op::NormGrad { norm, x, weight: None, g: t, eps }.tensor(x.device())?;
        weight.map_or_else(|| Ok(t.clone()), |weight| t.mul(weight))
    })?;
    let from_weight = operands.map_tangent(1, |t| {
        Op::Norm { norm, x, weight: None, bias: None, eps }.tensor(x.device())?.mul(t)
    })?;
    let from_bias = match bias {
        Some(_) => operands.map_tangent(2, |t| t.expand(x.shape()))?,
        None => None,
    };
    sum([from_x, from_weight, from_bias])
}
