//! [`SumOverRanks`]: the interface of layers and metrics to the processes that train together.

use std::fmt;
use teeny_core::{Result, Tensor};

/// The ranks whose values are summed, by [`crate::BatchNorm::synchronised`] and metrics such as
/// [`crate::train::Mean::all_reduce`]. Every communicator of the crate `teeny-distributed` is one.
pub trait SumOverRanks: fmt::Debug + Send + Sync {
    /// The sums over all ranks of `x`, which has one shape on all of them, and of `count`, in one
    /// message.
    ///
    /// # Errors
    /// If the ranks call different operations, a rank fails, or `x` is itself being differentiated.
    fn sum_with_count(&self, x: &Tensor, count: usize) -> Result<(Tensor, usize)>;

    /// The sum over all ranks of each number.
    ///
    /// # Errors
    /// If the ranks call different operations, or a rank fails.
    fn sum_of_numbers(&self, numbers: &[f64]) -> Result<Vec<f64>>;
}
