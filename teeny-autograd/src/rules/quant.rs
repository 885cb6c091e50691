//! The product with a quantised weight W: `d x = g W` with W as floats, some rows at a time. W has
//! no gradient.

use crate::duals::Duals;
use crate::record::{Operands, Rule};
use teeny_core::{DType, Op, QuantPart, QuantTensor, Result, Tensor};

/// The elements of a weight that are floats at a time: 16 MB. Weights of blocks of models below a
/// billion parameters are one panel; their heads and embeddings are not.
const PANEL: usize = 1 << 22;

/// The rule of `x @ Wᵀ`.
pub(crate) fn matmul(
    operands: &Operands<'_>,
    x: &Tensor,
    blocks: &Tensor,
    parts: &[QuantPart],
) -> Result<Rule> {
    let columns = x.shape().last().copied().unwrap_or(0);
    let weight = QuantTensor::from_packed(blocks, parts, columns)?;
    Ok(Rule::new(operands, move |g| Ok([Some(input_gradient(g, &weight)?), None])))
}

/// `g W` for g (.., rows): the sum over panels of rows of W.
fn input_gradient(g: &Tensor, weight: &QuantTensor) -> Result<Tensor> {
    let [rows, columns] = weight.shape();
    let count = (PANEL / columns.max(1)).max(1);
    // numbers that operations make, so that they can be recorded
    let ones = Tensor::ones(rows, DType::I32, weight.device())?; // (rows)
    let numbers = ones.cumsum(0)?.cast(DType::I32)?.sub(1)?; // (rows)
    let panel = |start: usize| {
        let range = start as isize..rows.min(start + count) as isize;
        let panel = weight.index_select(&numbers.slice(0, range.clone())?)?; // (count, columns)
        g.slice(-1, range)?.matmul(&panel)
    };
    let first = panel(0)?; // (.., columns)
    (count..rows).step_by(count).try_fold(first, |sum, start| sum.add(panel(start)?))
}

/// The tangent: the tangent of x times Wᵀ.
pub(crate) fn matmul_tangent(
    operands: &Duals,
    blocks: &Tensor,
    parts: &[QuantPart],
    exact: bool,
) -> Result<Option<Tensor>> {
    let product = |x: &Tensor| Op::QuantMatmul { x, blocks, parts, exact }.tensor(x.device());
    operands.tangent(0).map(product).transpose()
}
