//! Training on several processes and machines: collective operations, and what is built on them.
//!
//! ```text
//! Communicator       rank, size, all_reduce, all_gather ..    communicator
//!   SingleRank       one rank                                 single_rank
//!   Threads          threads of one process                   threads
//!   Mpi              processes that mpirun or srun starts     mpi, feature `mpi`
//! Collective         an operation as data, its messages       kind, collective, message, reduce
//! DataParallel       gradients averaged during backward       data_parallel, buckets, traffic
//! Zero               the same, optimizer state divided        zero
//! TensorParallel     a model split over ranks, its checkpoint tensor_parallel, exchange
//! ColumnParallelLinear, RowParallelLinear                     parallel_linear
//! threads_per_rank   a rank's share of the processors         processors
//! ```

mod buckets;
mod collective;
mod communicator;
mod data_parallel;
mod exchange;
mod kind;
mod message;
#[cfg(feature = "mpi")]
mod mpi;
mod parallel_linear;
mod processors;
mod reduce;
mod single_rank;
mod tensor_parallel;
mod threads;
mod traffic;
mod zero;

pub use collective::{Collective, Pending, Reply};
pub use communicator::Communicator;
use communicator::even;
pub use data_parallel::{DataParallel, IntoCommunicator, Share};
pub(crate) use exchange::sum_and_count;
use kind::MessageKind;
pub use kind::{Kind, NotFinite, Reduce};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, MpiOptions};
pub(crate) use parallel_linear::row_parallel;
pub use parallel_linear::{ColumnParallelLinear, RowParallelLinear};
pub use processors::threads_per_rank;
pub use single_rank::SingleRank;
pub use tensor_parallel::TensorParallel;
pub use threads::Threads;
pub use traffic::Span;
pub use zero::{ShardGradients, Zero};

use teeny_core::{Error, Result};

/// A group of ranks that [`Communicator::split`] has made.
struct Split {
    /// The numbers of the members in the communicator that was split.
    members: Vec<usize>,
    /// The number of this rank among them.
    rank: usize,
    /// A number that no communicator of a member has, the same on all of them.
    id: u64,
}

/// The ranks that pass the same `group` as this one. `used` is the highest number of a communicator
/// of this rank.
fn split(comm: &dyn Communicator, group: usize, used: u64) -> Result<Split> {
    let note = [(group as u64).to_le_bytes(), used.to_le_bytes()].concat();
    let notes = communicator::gather(comm, MessageKind::Split, note)?;
    let decode = |note: &Vec<u8>| -> Result<(u64, u64)> {
        let (words, _) = note.as_chunks::<8>();
        match words {
            [group, used] => Ok((u64::from_le_bytes(*group), u64::from_le_bytes(*used))),
            _ => Err(Error::internal("a rank sent no group")),
        }
    };
    let all = notes.iter().map(decode).collect::<Result<Vec<_>>>()?;
    let own = all[comm.rank()].0;
    let members: Vec<usize> = (0..all.len()).filter(|&rank| all[rank].0 == own).collect();
    let rank = members.iter().position(|&rank| rank == comm.rank());
    let rank = rank.ok_or_else(|| Error::internal("a rank is not in its own group"))?;
    // of all ranks, so that groups of one split have one number
    let id = all.iter().map(|(_, used)| used + 1).max().unwrap_or(1);
    Ok(Split { members, rank, id })
}
