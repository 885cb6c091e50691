//! The operands of an op on a forward-mode device, unwrapped once: their values and tangents.

use crate::dual::{Dual, tangent, try_dual, value, zeros};
use teeny_core::{Result, Tensor};

/// Values and tangents in the order of [`teeny_core::Op::operands`]; tensors of the inner device.
pub(crate) struct Duals {
    pub values: Vec<Tensor>,
    /// `None` where a tangent is zero everywhere.
    pub tangents: Vec<Option<Tensor>>,
}

impl Duals {
    /// Unwraps the operands `outer` of an op.
    pub fn of(outer: &[&Tensor]) -> Result<Duals> {
        outer.iter().filter_map(|x| try_dual(x)).for_each(Dual::mark_used);
        Ok(Duals {
            values: outer.iter().map(|x| value(x)).collect::<Result<_>>()?,
            tangents: outer.iter().map(|x| tangent(x)).collect::<Result<_>>()?,
        })
    }

    /// The values as operands of an op on the inner device.
    pub fn inner(&self) -> Vec<&Tensor> {
        self.values.iter().collect()
    }

    /// The tangent of operand `i`.
    pub fn tangent(&self, i: usize) -> Option<&Tensor> {
        self.tangents.get(i)?.as_ref()
    }

    /// The tangent of operand `i`, or zeros in its shape that take no memory.
    pub fn tangent_or_zeros(&self, i: usize) -> Result<Tensor> {
        self.tangent(i).map_or_else(|| zeros(&self.values[i]), |t| Ok(t.clone()))
    }

    /// True if an operand has a tangent.
    pub fn any_tangent(&self) -> bool {
        self.tangents.iter().any(Option::is_some)
    }

    /// The operands that have a tangent, as bits: of a kernel, which has at most eight.
    pub fn tangent_bits(&self) -> u8 {
        self.tangents.iter().enumerate().fold(0, |bits, (i, t)| bits | u8::from(t.is_some()) << i)
    }

    /// `f` of the tangent of operand `i`, if it has one.
    pub fn map_tangent(
        &self,
        i: usize,
        f: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<Tensor>> {
        self.tangent(i).map(f).transpose()
    }

    /// The tangent of a product of operands 0 and 1: `lhs` of the first tangent plus `rhs` of the
    /// second.
    pub fn product_rule(
        &self,
        lhs: impl FnOnce(&Tensor) -> Result<Tensor>,
        rhs: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Option<Tensor>> {
        sum([self.map_tangent(0, lhs)?, self.map_tangent(1, rhs)?])
    }
}

/// The sum of the tangents that are not `None`.
pub(crate) fn sum<const N: usize>(terms: [Option<Tensor>; N]) -> Result<Option<Tensor>> {
    let mut terms = terms.into_iter().flatten();
    let Some(first) = terms.next() else { return Ok(None) };
    terms.try_fold(first, |sum, term| sum.add(&term)).map(Some)
}
