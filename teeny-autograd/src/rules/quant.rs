//! The product with a quantised weight W: `d x = g W` with W as floats. W has no gradient.

use crate::duals::Duals;
use crate::record::{Operands, Rule};
use teeny_core::{Op, QuantPart, QuantTensor, Result, Tensor};

/// The rule of `x @ Wᵀ`.
pub(crate) fn matmul(
    operands: &Operands<'_>,
    x: &Tensor,
    blocks: &Tensor,
    parts: &[QuantPart],
) -> Result<Rule> {
    let columns = x.shape().last().copied().unwrap_or(0);
    let weight = QuantTensor::from_packed(blocks, parts, columns)?;
    Ok(Rule::new(operands, move |g| Ok([Some(g.matmul(&weight.dequantize()?)?), None])))
}

/// The tangent: that of x times Wᵀ.
pub(crate) fn matmul_tangent(
    operands: &Duals,
    blocks: &Tensor,
    parts: &[QuantPart],
    exact: bool,
) -> Result<Option<Tensor>> {
    let product = |x: &Tensor| Op::QuantMatmul { x, blocks, parts, exact }.tensor(x.device());
    operands.tangent(0).map(product).transpose()
}
