//! The kinds of collective operations, the purposes of messages, and [`NotFinite`] elements.

/// How the elements of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum; integers wrap around.
    Sum,
    /// Their sum divided by the number of ranks; floats only.
    Mean,
    /// The largest; NaN if any element is NaN, `true` if any is true.
    Max,
}

/// The kind of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every rank gets the reduction of all shares.
    AllReduce(Reduce),
    /// Every rank gets the reduction of its share.
    ReduceScatter(Reduce),
    /// Every rank gets the shares of all ranks.
    AllGather,
    /// Every rank gets the data of one.
    Broadcast {
        /// That rank.
        root: usize,
    },
}

/// The purpose of a collective operation: ranks with different ones disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Elements.
    Elements,
    /// `Communicator::barrier`.
    Barrier,
    /// `Communicator::gather_bytes`.
    Bytes,
    /// `Communicator::sum_numbers`.
    Numbers,
    /// `Communicator::require_same`.
    Comparison,
    /// `Communicator::split`.
    Split,
    /// The numbers of items of `DataParallel::share`.
    Items,
}

impl MessageKind {
    /// All purposes with the names of their operations, in the order of the variants.
    pub const NAMES: [&str; 7] =
        ["", "barrier", "gather_bytes", "sum_numbers", "require_same", "split", "share"];
}

/// An element that is NaN or infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite {
    /// The number of the element.
    pub element: usize,
    /// The first rank whose element is not finite; `None` if only the sum is infinite.
    pub rank: Option<usize>,
}

impl NotFinite {
    /// As a note.
    pub(super) fn encode(self) -> Vec<u8> {
        let rank = self.rank.map_or(u64::MAX, |rank| rank as u64);
        [(self.element as u64).to_le_bytes(), rank.to_le_bytes()].concat()
    }

    /// The inverse of [`NotFinite::encode`].
    pub(super) fn decode(bytes: &[u8]) -> Option<NotFinite> {
        let (element, rank) = bytes.split_first_chunk()?;
        let rank = u64::from_le_bytes(rank.try_into().ok()?);
        let rank = (rank != u64::MAX).then_some(rank as usize);
        Some(NotFinite { element: u64::from_le_bytes(*element) as usize, rank })
    }
}
