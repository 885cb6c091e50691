//! Training on several processes and machines: collective operations, and data and model
//! parallelism built on them.
//!
//! ```text
//! Communicator       rank, size, all_reduce, all_gather ..    communicator
//!   SingleRank       one rank                                 single_rank
//!   Threads          threads of one process                   threads
//!   Mpi              processes that mpirun or srun starts     mpi, feature `mpi`
//! Collective         an operation as data, its messages       kind, collective, message, reduce
//! DataParallel       gradients averaged during backward       data_parallel, buckets, traffic
//! Zero               the same, optimizer state divided        zero
//! FullyShard         the same, parameters and gradients too   fully_shard, shards
//! TensorParallel     a model split over ranks, its checkpoint tensor_parallel, exchange
//!   gpt              a model of such parts, its attention      models
//! ColumnParallelLinear, RowParallelLinear                     parallel_linear
//! threads_per_rank   a rank's share of the processors         processors
//! ```
//!
//! The crate uses the layers, optimizers and runs of [`teeny_nn`], which sees ranks only through
//! traits: [`SumOverRanks`], [`teeny_nn::attention::HeadRanks`],
//! [`teeny_nn::transformer::BlockLayers`] and [`teeny_nn::train::RunRanks`].
#![forbid(unsafe_code)]

mod broadcast;
mod buckets;
mod collective;
mod communicator;
mod data_parallel;
mod exchange;
mod fully_shard;
mod kind;
mod message;
mod models;
#[cfg(feature = "mpi")]
mod mpi;
mod parallel_linear;
mod processors;
mod reduce;
mod released;
mod shards;
mod single_rank;
mod sums;
mod tensor_parallel;
mod threads;
mod traffic;
mod zero;

pub use collective::{Collective, Pending, Reply};
pub use communicator::{Communicator, IntoCommunicator};
pub use data_parallel::{DataParallel, Share};
pub use fully_shard::{FullyShard, Unit};
pub use kind::{Kind, NotFinite, Reduce};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, MpiOptions};
pub use parallel_linear::{ColumnParallelLinear, RowParallelLinear};
pub use processors::threads_per_rank;
pub use single_rank::SingleRank;
pub use sums::sum_with_count;
pub use teeny_nn::SumOverRanks;
pub use tensor_parallel::TensorParallel;
pub use threads::Threads;
pub use traffic::Span;
pub use zero::{ShardGradients, Zero};
