//! [`Shard`]: the part of a batch that a rank gets.

use std::ops::Range;
use teeny_core::context::enter;
use teeny_core::{Error, Result};

/// The part of each batch that one of several ranks gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    rank: usize,
    pub ranks: usize,
}

impl Shard {
    /// All of a batch.
    pub const WHOLE: Shard = Shard { rank: 0, ranks: 1 };

    /// Part `rank` of `ranks`.
    #[track_caller]
    pub fn new(rank: usize, ranks: usize) -> Result<Shard> {
        let _op = enter("Shard::new");
        if rank >= ranks {
            return Err(Error::index(format!("no rank {rank}; there are {ranks}"))
                .help("ranks count from 0: shard(comm.rank(), comm.size())"));
        }
        Ok(Shard { rank, ranks })
    }

    /// The items of this part, of `n`; parts differ by one item at most.
    pub fn of(self, n: usize) -> Range<usize> {
        // n * rank / ranks without overflow
        let bound = |rank: usize| (n as u128 * rank as u128 / self.ranks as u128) as usize;
        bound(self.rank)..bound(self.rank + 1)
    }
}
