//! The list of the tensors that an op reads.

use crate::kernel::MAX_INPUTS;
use crate::tensor::Tensor;
use std::ops::Deref;

/// The tensors that an op reads, in the order of [`Op::operand_names`](super::Op::operand_names).
pub enum Operands<'a> {
    /// Operands that the op holds as a list.
    List(&'a [&'a Tensor]),
    /// A fixed number of operands; the first `len` of the array count.
    Fixed {
        /// The operands; the first one fills the rest of the array.
        tensors: [&'a Tensor; MAX_FIXED],
        /// How many there are.
        len: usize,
    },
}

/// The most operands of an op that does not hold all of them as one list: both of a product and the
/// other inputs of its kernel.
const MAX_FIXED: usize = 1 + MAX_INPUTS;

impl<'a> Operands<'a> {
    #[inline(always)]
    pub(super) fn push(&mut self, x: &'a Tensor) {
        match self {
            Operands::List(_) => *self = Operands::Fixed { tensors: [x; MAX_FIXED], len: 1 },
            Operands::Fixed { tensors, len } => {
                tensors[*len] = x;
                *len += 1;
            }
        }
    }

    /// Adds a list. Operands beyond the maximum are dropped: such an op is invalid anyway.
    #[inline(always)]
    pub(super) fn extend(&mut self, list: &'a [&'a Tensor]) {
        match self {
            Operands::List(_) => *self = Operands::List(list),
            Operands::Fixed { tensors, len } => {
                let count = list.len().min(MAX_FIXED - *len);
                tensors[*len..*len + count].copy_from_slice(&list[..count]);
                *len += count;
            }
        }
    }
}

impl<'a> Deref for Operands<'a> {
    type Target = [&'a Tensor];
    fn deref(&self) -> &[&'a Tensor] {
        match self {
            Operands::List(list) => list,
            Operands::Fixed { tensors, len } => &tensors[..*len],
        }
    }
}
