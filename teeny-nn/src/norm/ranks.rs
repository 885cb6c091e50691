//! The ranks whose batches share a mean and a variance.

use crate::ranks::SumOverRanks;
use std::sync::Arc;
use teeny_core::{Result, Tensor};

/// The ranks that share statistics, or one.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks(pub Option<Arc<dyn SumOverRanks>>);

impl Ranks {
    /// Whether there may be other ranks.
    pub fn are_several(&self) -> bool {
        self.0.is_some()
    }

    /// The mean of `x` over `axes` and all ranks, kept with size 1, and the number of elements in
    /// each mean; `count` is this rank's number.
    pub fn mean(&self, x: &Tensor, axes: &[usize], count: usize) -> Result<(Tensor, usize)> {
        let Some(ranks) = &self.0 else { return Ok((x.mean_keepdim(axes)?, count)) };
        let (sum, count) = ranks.sum_with_count(&x.sum_keepdim(axes)?, count)?;
        Ok((sum.div(count as f64)?, count))
    }

    /// The sums over all ranks of tensors of one shape, in one message.
    pub fn sum<const N: usize>(&self, mut tensors: [Tensor; N]) -> Result<[Tensor; N]> {
        if let Some(ranks) = &self.0 {
            let all = Tensor::stack(&tensors.each_ref(), 0)?; // (N, ..)
            let (sums, _) = ranks.sum_with_count(&all, 0)?; // (N, ..)
            for (i, tensor) in tensors.iter_mut().enumerate() {
                *tensor = sums.at(0, i as isize)?;
            }
        }
        Ok(tensors)
    }
}
