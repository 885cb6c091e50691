//! The ranks whose batches share a mean and a variance.

#[cfg(feature = "distributed")]
use crate::distributed::{Communicator, Reduce, sum_and_count};
#[cfg(feature = "distributed")]
use std::sync::Arc;
use teeny_core::{Result, Tensor};

/// The ranks that share statistics; without the feature `distributed` there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    #[cfg(feature = "distributed")]
    comm: Option<Arc<dyn Communicator>>,
}

impl Ranks {
    /// The ranks of `comm`.
    #[cfg(feature = "distributed")]
    pub fn new(comm: Arc<dyn Communicator>) -> Ranks {
        Ranks { comm: Some(comm) }
    }

    /// Whether there may be other ranks.
    pub fn are_several(&self) -> bool {
        #[cfg(feature = "distributed")]
        if self.comm.is_some() {
            return true;
        }
        false
    }

    /// The mean of `x` over `axes` and all ranks, kept with size 1, and the number of elements in
    /// each mean; `count` is this rank's number.
    pub fn mean(&self, x: &Tensor, axes: &[usize], count: usize) -> Result<(Tensor, usize)> {
        #[cfg(feature = "distributed")]
        if let Some(comm) = &self.comm {
            let (sum, count) = sum_and_count(&**comm, &x.sum_keepdim(axes)?, count)?;
            return Ok((sum.div(count as f64)?, count));
        }
        Ok((x.mean_keepdim(axes)?, count))
    }

    /// The sums over all ranks of tensors of one shape, in one message.
    pub fn sum<const N: usize>(&self, tensors: [Tensor; N]) -> Result<[Tensor; N]> {
        #[cfg(feature = "distributed")]
        if let Some(comm) = &self.comm {
            let all = Tensor::stack(&tensors.each_ref(), 0)?; // (N, ..)
            let sums = comm.all_reduce(&all, Reduce::Sum)?; // (N, ..)
            let mut tensors = tensors;
            for (i, tensor) in tensors.iter_mut().enumerate() {
                *tensor = sums.at(0, i as isize)?;
            }
            return Ok(tensors);
        }
        Ok(tensors)
    }
}
