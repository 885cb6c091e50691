//! The sums that layers and metrics of [`teeny_nn`] need.

use super::collective::Collective;
use super::communicator::{Communicator, even};
use super::exchange::no_forward_mode;
use super::kind::{Kind, Reduce};
#[cfg(feature = "mpi")]
use super::mpi::Mpi;
use super::single_rank::SingleRank;
use super::threads::Threads;
use teeny_core::{Result, Tensor};
use teeny_nn::SumOverRanks;

/// Implements [`SumOverRanks`] for a communicator.
macro_rules! sum_over_ranks {
    ($communicator:ty) => {
        impl SumOverRanks for $communicator {
            fn sum_with_count(&self, x: &Tensor, count: usize) -> Result<(Tensor, usize)> {
                sum_with_count(self, x, count)
            }

            fn sum_of_numbers(&self, numbers: &[f64]) -> Result<Vec<f64>> {
                self.sum_numbers(numbers)
            }
        }
    };
}

sum_over_ranks!(SingleRank);
sum_over_ranks!(Threads);
#[cfg(feature = "mpi")]
sum_over_ranks!(Mpi);

/// [`SumOverRanks::sum_with_count`] of the ranks of `comm`.
///
/// # Errors
/// As [`Communicator::all_reduce`]; if `x` is itself being differentiated.
pub fn sum_with_count<C: Communicator + ?Sized>(
    comm: &C,
    x: &Tensor,
    count: usize,
) -> Result<(Tensor, usize)> {
    no_forward_mode(x)?;
    let shares = even(x.numel(), comm.size());
    let collective = Collective::of(Kind::AllReduce(Reduce::Sum), x, shares)?
        .with_note((count as u64).to_le_bytes().to_vec());
    let reply = comm.start(collective).wait()?;
    let mut total = 0;
    for note in &reply.notes {
        let count = note.as_slice().try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
        total = usize::try_from(count).map_or(usize::MAX, |count| count.saturating_add(total));
    }
    Ok((reply.into_tensor()?.reshape(*x.shape())?.to(x.device())?, total))
}
