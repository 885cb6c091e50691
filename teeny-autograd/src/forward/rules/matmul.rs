//! Matrix products: the product rule.

use crate::forward::operands::Operands;
use teeny_core::{Result, Tensor};

pub(super) fn matmul(operands: &Operands, lhs: &Tensor, rhs: &Tensor) -> Result<Option<Tensor>> {
    operands.product_rule(|t| t.matmul(rhs), |t| lhs.matmul(t))
}
