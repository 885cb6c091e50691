//! Tasks of a convolution, and the sums that they leave.

use crate::float::Float;
use crate::threads::try_for_each_chunk;
use teeny_core::Result;

/// Runs tasks `0 .. tasks` on all threads if that pays, or one after the other.
pub(super) fn run_tasks(
    tasks: usize,
    parallel: bool,
    task: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    if parallel { try_for_each_chunk(tasks, task) } else { (0..tasks).try_for_each(task) }
}

/// Adds the sums of all blocks, each of `n`, in order: to those of the first.
pub(super) fn joined<T: Float>(sums: &mut [T], n: usize) -> &[T] {
    let (first, others) = sums.split_at_mut(n);
    for other in others.chunks_exact(n) {
        first.iter_mut().zip(other).for_each(|(sum, &more)| *sum += more);
    }
    first
}
