//! Collective operations as data, and the messages of each.
//!
//! ```text
//! all_reduce       every rank owns a share of the elements: it receives the other ranks' copies of
//!                  its share, adds them in the order of the ranks, and sends the result to all
//! reduce_scatter   the first half of that
//! all_gather       the second half
//! broadcast        along a binomial tree, in log2(ranks) steps
//! ```
//!
//! All of it is messages between two ranks, which a [`Transport`] carries. The bytes that a rank
//! sends in an all_reduce are `2 (ranks - 1) / ranks` of the data, the least possible. MPI's own
//! reductions are not used: their order of summation depends on library, sizes and network, they
//! have no 16-bit floats, and they do not say which rank they wait for.

use super::kind::{Kind, MessageKind, NotFinite, Reduce};
use super::message::{Expected, Header, Outgoing, Transport};
use super::reduce::sum;
use std::ops::Range;
#[cfg(feature = "mpi")]
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc::Receiver,
};
use std::time::Instant;
use teeny_autograd::detached;
use teeny_core::{DType, Error, Result, Tensor, memory};

/// The elements that a rank brings: bytes, or a tensor that is read while the caller goes on.
#[derive(Debug)]
pub(super) enum Data {
    Bytes(Vec<u8>),
    Tensor(Tensor),
}

/// A collective operation, with the elements of this rank.
#[derive(Debug)]
pub struct Collective {
    pub(super) kind: Kind,
    pub(super) dtype: DType,
    /// The elements of each rank's share; one number, the whole, for a broadcast.
    pub(super) shares: Vec<usize>,
    pub(super) data: Data,
    /// Sent to every rank with the data.
    pub(super) note: Vec<u8>,
    /// The purpose of an operation that has only notes.
    pub(super) purpose: MessageKind,
}

impl Collective {
    /// `kind` of the elements of `x`, row-major; `shares` are the elements of each rank.
    ///
    /// # Errors
    /// If the dtype does not support the reduction.
    pub fn of(kind: Kind, x: &Tensor, shares: Vec<usize>) -> Result<Collective> {
        if let Kind::AllReduce(reduce) | Kind::ReduceScatter(reduce) = kind {
            check(reduce, x.dtype())?;
        }
        let data = Data::Tensor(detached(x)?);
        let (note, purpose) = (Vec::new(), MessageKind::Elements);
        Ok(Collective { kind, dtype: x.dtype(), shares, data, note, purpose })
    }

    /// `kind` of bytes.
    pub(super) fn bytes(kind: Kind, data: Vec<u8>, shares: Vec<usize>) -> Collective {
        let (data, note, purpose) = (Data::Bytes(data), Vec::new(), MessageKind::Elements);
        Collective { kind, dtype: DType::U8, shares, data, note, purpose }
    }

    /// A gathering of notes alone, among `size` ranks.
    pub(super) fn note(purpose: MessageKind, note: Vec<u8>, size: usize) -> Collective {
        let shares = vec![0; size];
        Collective {
            kind: Kind::AllGather,
            dtype: DType::U8,
            shares,
            data: Data::Bytes(Vec::new()),
            note,
            purpose,
        }
    }

    /// This operation with a few bytes for every rank beside the data: [`Reply::notes`]. A
    /// broadcast has none.
    pub fn with_note(mut self, note: Vec<u8>) -> Collective {
        self.note = note;
        self
    }
}

fn check(reduce: Reduce, dtype: DType) -> Result<()> {
    match reduce {
        Reduce::Mean if !dtype.is_float() => {
            Err(Error::dtype(format!("the mean of {dtype} needs a float"))
                .help("Reduce::Sum keeps integers; x.cast(DType::F32)? has a mean"))
        }
        Reduce::Sum if dtype == DType::Bool => Err(Error::dtype("booleans have no sum")
            .help("Reduce::Max is true where one is; x.cast(DType::I32)? counts")),
        _ => Ok(()),
    }
}

/// The result of a collective operation.
#[derive(Debug)]
pub struct Reply {
    /// The elements; none if they are in the tensor.
    pub data: Vec<u8>,
    /// The elements (N), on the device of the tensor that this rank brought.
    pub tensor: Option<Tensor>,
    /// The notes of all ranks, by rank; none after a broadcast.
    pub notes: Vec<Vec<u8>>,
    /// The first element of a reduction that is NaN or infinite.
    pub not_finite: Option<NotFinite>,
    /// Bytes that this rank sent.
    pub sent: usize,
    /// When the exchange began and ended.
    pub time: Range<Instant>,
}

impl Reply {
    /// The tensor (N).
    ///
    /// # Errors
    /// If the operation was one of bytes.
    pub fn into_tensor(self) -> Result<Tensor> {
        self.tensor.ok_or_else(|| Error::internal("an operation of bytes has no tensor"))
    }
}

/// A collective operation that was started.
#[derive(Debug)]
#[must_use = "its result is in `wait`"]
pub struct Pending(pub(super) PendingState);

#[derive(Debug)]
pub(super) enum PendingState {
    Done(Box<Result<Reply>>),
    /// The result to come, and how many callers wait for one.
    #[cfg(feature = "mpi")]
    Running(Receiver<Result<Reply>>, Arc<AtomicUsize>),
}

impl Pending {
    pub(super) fn done(result: Result<Reply>) -> Pending {
        Pending(PendingState::Done(Box::new(result)))
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// If the ranks called different operations, or a rank failed or did not answer.
    pub fn wait(self) -> Result<Reply> {
        match self.0 {
            PendingState::Done(result) => *result,
            #[cfg(feature = "mpi")]
            PendingState::Running(result, waiting) => {
                waiting.fetch_add(1, Ordering::Relaxed);
                let result = result.recv();
                waiting.fetch_sub(1, Ordering::Relaxed);
                result.unwrap_or_else(|_| {
                    Err(Error::internal("the communication thread ended before its work"))
                })
            }
        }
    }
}

/// A rank and the members of its communicator.
pub(super) struct Group<'a> {
    /// A number that tells communicators apart.
    pub id: u64,
    pub rank: usize,
    /// The numbers in the transport, by rank.
    pub members: &'a [usize],
    /// The number of this operation.
    pub sequence: u64,
}

/// Runs `collective` on this rank.
pub(super) fn run(
    transport: &mut dyn Transport,
    group: &Group<'_>,
    collective: Collective,
) -> Result<Reply> {
    let start = Instant::now();
    let Collective { kind, dtype, shares, data, note, purpose } = collective;
    let elements = shares.iter().map(|&n| n as u64).fold(0, u64::saturating_add);
    let head = Header::new(group.id, group.sequence, (kind, purpose), dtype, elements);
    let (data, device) = match data {
        Data::Bytes(bytes) => (bytes, None),
        Data::Tensor(x) => (transport.read(&x)?, Some(x.device().clone())),
    };
    let mut exchange = Exchange { transport, group, head, note, sent: 0 };
    let size = dtype.size();
    require_shares(kind, &shares, data.len() / size, group)?;
    let bounds = bounds(&shares, size)?;
    let (data, notes, not_finite) = match kind {
        Kind::AllReduce(reduce) => exchange.all_reduce(reduce, dtype, &bounds, data)?,
        Kind::ReduceScatter(reduce) => {
            let mut data = data;
            let (notes, found) = exchange.reduce(reduce, dtype, &bounds, &mut data)?;
            (data[bounds[group.rank].clone()].to_vec(), notes, found)
        }
        Kind::AllGather => {
            let own = bounds[group.rank].clone();
            let mut all = memory::filled(0, bounds.last().map_or(0, |last| last.end))?;
            all[own].copy_from_slice(&data);
            let notes = exchange.gather(&bounds, &mut all)?;
            (all, notes, None)
        }
        Kind::Broadcast { root } => {
            let bytes = bounds.last().map_or(0, |last| last.end);
            (exchange.broadcast(root, bytes, data)?, Vec::new(), None)
        }
    };
    let sent = exchange.sent;
    let (data, tensor) = match device {
        None => (data, None),
        Some(device) => {
            let length = data.len() / size;
            (Vec::new(), Some(Tensor::from_bytes(&data, length, dtype, &device)?))
        }
    };
    Ok(Reply { data, tensor, notes, not_finite, sent, time: start..Instant::now() })
}

/// The messages of one operation.
struct Exchange<'a> {
    transport: &'a mut dyn Transport,
    group: &'a Group<'a>,
    head: Header,
    note: Vec<u8>,
    sent: usize,
}

/// The data of a reduction or gathering, the notes by rank, and the first element that is not
/// finite.
type Reduced = Result<(Vec<u8>, Vec<Vec<u8>>, Option<NotFinite>)>;

impl Exchange<'_> {
    /// The other ranks, each rank beginning with the next one, so that not all send to the same.
    fn others(&self) -> Vec<usize> {
        let (rank, size) = (self.group.rank, self.group.members.len());
        (1..size).map(|i| (rank + i) % size).collect()
    }

    fn outgoing<'d>(&mut self, to: usize, data: &'d [u8]) -> Outgoing<'d> {
        self.sent += data.len() + self.note.len();
        let (bytes, note) = (data.len() as u64, self.note.clone());
        let head = Header { bytes, note, ..self.head.clone() };
        Outgoing { to: self.group.members[to], head, data }
    }

    fn expected<'d>(&self, from: usize, into: &'d mut [u8]) -> Expected<'d> {
        Expected { from: self.group.members[from], head: self.head.clone(), into }
    }

    /// The notes by rank, of those that the others sent.
    fn by_rank(&self, arrived: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut notes = vec![Vec::new(); self.group.members.len()];
        notes[self.group.rank] = self.note.clone();
        self.others().into_iter().zip(arrived).for_each(|(rank, note)| notes[rank] = note);
        notes
    }

    fn all_reduce(
        &mut self,
        reduce: Reduce,
        dtype: DType,
        bounds: &[Range<usize>],
        mut data: Vec<u8>,
    ) -> Reduced {
        let (notes, found) = self.reduce(reduce, dtype, bounds, &mut data)?;
        // the second half sends every rank the notes of the owners of shares
        self.note = found.map_or(Vec::new(), NotFinite::encode);
        let flags = self.gather(bounds, &mut data)?;
        let found = flags.iter().zip(bounds).find_map(|(flag, bounds)| {
            let found = NotFinite::decode(flag)?;
            Some(NotFinite { element: found.element + bounds.start / dtype.size(), ..found })
        });
        Ok((data, notes, found))
    }

    /// Reduces this rank's share of `data` in place; the notes by rank, and the first element that
    /// is not finite.
    fn reduce(
        &mut self,
        reduce: Reduce,
        dtype: DType,
        bounds: &[Range<usize>],
        data: &mut [u8],
    ) -> Result<(Vec<Vec<u8>>, Option<NotFinite>)> {
        let (rank, others) = (self.group.rank, self.others());
        let own = bounds[rank].clone();
        let mut scratch = std::mem::take(self.transport.scratch());
        let needed = own.len().saturating_mul(others.len());
        if scratch.len() < needed {
            scratch = memory::filled(0, needed)?;
        }
        let mut theirs: Vec<&mut [u8]> = Vec::new();
        let mut rest = &mut scratch[..];
        for _ in &others {
            let (first, after) = rest.split_at_mut(own.len());
            theirs.push(first);
            rest = after;
        }
        let outgoing: Vec<Outgoing<'_>> =
            others.iter().map(|&to| self.outgoing(to, &data[bounds[to].clone()])).collect();
        let mut expected: Vec<Expected<'_>> =
            others.iter().zip(&mut theirs).map(|(&from, into)| self.expected(from, into)).collect();
        let arrived = self.transport.exchange(&outgoing, &mut expected)?;
        let notes = self.by_rank(arrived);
        let mut by_rank: Vec<&mut [u8]> = theirs;
        // `others` are the ranks after this one, then those from 0 on
        by_rank.rotate_left(others.len() - rank);
        by_rank.insert(rank, &mut data[own]);
        let found = sum(reduce, dtype, &mut by_rank, rank);
        *self.transport.scratch() = scratch;
        Ok((notes, found))
    }

    /// Sends this rank's share of `data` to all, and receives the other shares.
    fn gather(&mut self, bounds: &[Range<usize>], data: &mut [u8]) -> Result<Vec<Vec<u8>>> {
        let (rank, others) = (self.group.rank, self.others());
        let mut parts: Vec<Option<&mut [u8]>> = Vec::new();
        let mut rest = data;
        for range in bounds {
            let (part, after) = rest.split_at_mut(range.len());
            parts.push(Some(part));
            rest = after;
        }
        let own: &[u8] = parts[rank].take().map_or(&[], |own| own);
        let outgoing: Vec<Outgoing<'_>> = others.iter().map(|&to| self.outgoing(to, own)).collect();
        let mut expected: Vec<Expected<'_>> = others
            .iter()
            .filter_map(|&from| Some(self.expected(from, parts[from].take()?)))
            .collect();
        let arrived = self.transport.exchange(&outgoing, &mut expected)?;
        Ok(self.by_rank(arrived))
    }

    /// The data of `root`: rank r, counted from the root, has it from `r` without its highest bit.
    fn broadcast(&mut self, root: usize, bytes: usize, mut data: Vec<u8>) -> Result<Vec<u8>> {
        let ranks = self.group.members.len();
        let place = (self.group.rank + ranks - root) % ranks;
        let rank = |place: usize| (place + root) % ranks;
        let mut step = 1;
        if place > 0 {
            let highest = 1 << place.ilog2();
            step = highest * 2;
            data = memory::filled(0, bytes)?;
            let expected = self.expected(rank(place - highest), &mut data);
            self.transport.exchange(&[], &mut [expected])?;
        }
        let mut outgoing = Vec::new();
        while place + step < ranks {
            outgoing.push(self.outgoing(rank(place + step), &data));
            step *= 2;
        }
        self.transport.exchange(&outgoing, &mut [])?;
        Ok(data)
    }
}

/// Returns an error unless `shares` fit this operation on `elements` elements of this rank.
fn require_shares(kind: Kind, shares: &[usize], elements: usize, group: &Group<'_>) -> Result<()> {
    let (rank, ranks) = (group.rank, group.members.len());
    let (fits, expected) = match kind {
        Kind::AllReduce(_) | Kind::ReduceScatter(_) => {
            let sum = shares.iter().try_fold(0usize, |sum, &share| sum.checked_add(share));
            (
                shares.len() == ranks && sum == Some(elements),
                format!("a share for each of {ranks} ranks, {elements} elements in all"),
            )
        }
        Kind::AllGather => (
            shares.len() == ranks && shares[rank] == elements,
            format!("a share for each of {ranks} ranks, {elements} elements on rank {rank}"),
        ),
        Kind::Broadcast { root } => (
            root < ranks && shares.len() == 1 && (rank != root || shares[0] == elements),
            format!("a root among {ranks} ranks, and one share with all of its elements"),
        ),
    };
    if fits {
        return Ok(());
    }
    Err(Error::value(format!("{kind:?} with the shares {shares:?} needs {expected}")))
}

/// Where the bytes of each share are.
fn bounds(shares: &[usize], size: usize) -> Result<Vec<Range<usize>>> {
    let too_large = || Error::value("the shares of all ranks are more than memory can hold");
    let mut end = 0usize;
    shares
        .iter()
        .map(|n| {
            let start = end;
            end = n.checked_mul(size).and_then(|n| start.checked_add(n)).ok_or_else(too_large)?;
            Ok(start..end)
        })
        .collect()
}
