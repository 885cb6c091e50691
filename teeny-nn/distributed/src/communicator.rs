//! [`Communicator`]: collective operations on the tensors of all ranks.

use super::collective::{Collective, Pending, Reply};
use super::kind::{Kind, MessageKind, Reduce};
use std::fmt;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Shape, Tensor};
use teeny_nn::SumOverRanks;

/// The ranks that train together: processes, each with its own tensors.
///
/// Every rank calls the same operations in the same order, with the same dtypes and shapes; if they
/// differ, every rank gets an error that names the rank and both operations. An operation that
/// failed ends the communicator: later ones return the same error.
///
/// Sums are computed in the order of the ranks, `((x0 + x1) + x2) + ..`, whatever the shape or the
/// network. So the same number of ranks gives the same bits, and every rank has the same result.
/// 16-bit floats are summed in f32. Results are untracked, on the device of the operand.
///
/// [`SumOverRanks`] is what layers and metrics need of it: one that is not of this crate implements
/// it by [`crate::sum_with_count`] and [`Communicator::sum_numbers`].
///
/// # Example
/// A program has one code path for one rank and for many.
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_distributed::{SingleRank, Communicator, Reduce};
/// # fn main() -> teeny_core::Result<()> {
/// let comm: Box<dyn Communicator> = Box::new(SingleRank);   // or Mpi::world()?
/// let x = Tensor::new([1.0f32, 2.0], &Reference::new())?;
/// let sum = comm.all_reduce(&x, Reduce::Sum)?; // (2)
/// assert_eq!(sum.to_vec::<f32>()?, [1.0, 2.0].map(|x: f32| x * comm.size() as f32));
/// # Ok(()) }
/// ```
pub trait Communicator: SumOverRanks {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Starts a collective operation, which runs while the caller goes on. Operations run one after
    /// another, in the order in which they were started.
    fn start(&self, collective: Collective) -> Pending;

    /// The communicator of the ranks that pass the same `group`, in the order of their numbers
    /// here: for example those that share a model, and those that share the data.
    ///
    /// # Errors
    /// If a rank fails.
    fn split(&self, group: usize) -> Result<Arc<dyn Communicator>>;

    /// Tells the other ranks why this one cannot go on: their pending operations fail with this
    /// text.
    fn abort(&self, error: &Error);

    /// Sum, mean or largest element over all ranks: x of any shape, the same on every rank → the
    /// same shape.
    ///
    /// Equivalent: `torch.distributed.all_reduce`.
    ///
    /// # Errors
    /// If the ranks call different operations, a rank fails or does not answer, or the dtype has no
    /// such reduction (a mean of integers, a sum of booleans).
    #[track_caller]
    fn all_reduce(&self, x: &Tensor, reduce: Reduce) -> Result<Tensor> {
        let _op = enter("all_reduce");
        let shares = even(x.numel(), self.size());
        let result = self.start(Collective::of(Kind::AllReduce(reduce), x, shares)?).wait()?;
        shaped(result, *x.shape(), x)
    }

    /// The tensors of all ranks, joined along the first axis in the order of the ranks: (N, ..) →
    /// (N * ranks, ..).
    ///
    /// Equivalent: `torch.distributed.all_gather_into_tensor`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`]; if x has no axis.
    #[track_caller]
    fn all_gather(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("all_gather");
        let rows = first_axis(x)?;
        let shape = with_rows(x, rows.checked_mul(self.size()))?;
        let shares = vec![x.numel(); self.size()];
        let result = self.start(Collective::of(Kind::AllGather, x, shares)?).wait()?;
        shaped(result, shape, x)
    }

    /// This rank's part of the reduction over all ranks: (N, ..) → (N / ranks, ..), the rows that
    /// belong to its number.
    ///
    /// Equivalent: `torch.distributed.reduce_scatter_tensor`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`]; if the first axis is not a multiple of the number of ranks.
    #[track_caller]
    fn reduce_scatter(&self, x: &Tensor, reduce: Reduce) -> Result<Tensor> {
        let _op = enter("reduce_scatter");
        let (rows, size) = (first_axis(x)?, self.size());
        if !rows.is_multiple_of(size) {
            return Err(Error::shape(format!(
                "the first axis of {} is not a multiple of the {size} ranks",
                x.shape()
            ))
            .help("each rank gets as many rows: pad the tensor, or use all_reduce"));
        }
        let shape = with_rows(x, Some(rows / size))?;
        let shares = vec![x.numel() / size; size];
        let result = self.start(Collective::of(Kind::ReduceScatter(reduce), x, shares)?).wait()?;
        shaped(result, shape, x)
    }

    /// The tensor of rank `root`, on every rank. Shape and dtype are the same everywhere.
    ///
    /// Equivalent: `torch.distributed.broadcast`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`]; if rank `root` does not exist.
    #[track_caller]
    fn broadcast(&self, x: &Tensor, root: usize) -> Result<Tensor> {
        let _op = enter("broadcast");
        if root >= self.size() {
            return Err(Error::index(format!("no rank {root}; there are {}", self.size()))
                .help("ranks are 0..comm.size()"));
        }
        let kind = Kind::Broadcast { root };
        let result = self.start(Collective::of(kind, x, vec![x.numel()])?).wait()?;
        shaped(result, *x.shape(), x)
    }

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// If the ranks call different operations, or a rank fails or does not answer.
    #[track_caller]
    fn barrier(&self) -> Result<()> {
        let _op = enter("barrier");
        let barrier = Collective::note(MessageKind::Barrier, Vec::new(), self.size());
        self.start(barrier).wait().map(|_| ())
    }

    /// The bytes of every rank, of any length, by rank: small things such as numbers and names.
    ///
    /// # Errors
    /// If the ranks call different operations, or a rank fails or does not answer.
    #[track_caller]
    fn gather_bytes(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let _op = enter("gather_bytes");
        gather(self, MessageKind::Bytes, bytes)
    }

    /// The bytes of rank `root`, on every rank; other ranks pass any.
    ///
    /// # Errors
    /// As [`Communicator::gather_bytes`]; if rank `root` does not exist.
    #[track_caller]
    fn broadcast_bytes(&self, bytes: Vec<u8>, root: usize) -> Result<Vec<u8>> {
        let _op = enter("broadcast_bytes");
        let mine = if self.rank() == root { bytes.len() as u64 } else { 0 };
        let lengths = self.gather_bytes(mine.to_le_bytes().to_vec())?;
        let length = lengths.get(root).and_then(|b| b.as_slice().try_into().ok());
        let Some(length) = length.map(u64::from_le_bytes) else {
            return Err(Error::index(format!("no rank {root}; there are {}", self.size()))
                .help("ranks are 0..comm.size()"));
        };
        let length = usize::try_from(length)
            .map_err(|_| Error::value(format!("{length} bytes do not fit this machine")))?;
        let data = if self.rank() == root { bytes } else { Vec::new() };
        Ok(self.start(Collective::bytes(Kind::Broadcast { root }, data, vec![length])).wait()?.data)
    }

    /// The sum over all ranks of each number, in f64: counts, sums of losses.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    #[track_caller]
    fn sum_numbers(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        let _op = enter("sum_numbers");
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut sums = vec![0.0; numbers.len()];
        for theirs in gather(self, MessageKind::Numbers, bytes)? {
            if theirs.len() != 8 * numbers.len() {
                return Err(Error::value(format!(
                    "this rank sums {} numbers, another rank {}",
                    numbers.len(),
                    theirs.len() / 8
                ))
                .help("all ranks must pass lists of the same length"));
            }
            for (sum, x) in sums.iter_mut().zip(theirs.chunks_exact(8)) {
                *sum += x.try_into().map_or(f64::NAN, f64::from_le_bytes);
            }
        }
        Ok(sums)
    }

    /// Returns an error on every rank unless `value` is the same on all of them; `what` names it.
    ///
    /// # Errors
    /// The error names the first rank that differs from rank 0, and both values.
    #[track_caller]
    fn require_same(&self, what: &str, value: &dyn fmt::Display) -> Result<()> {
        let _op = enter("require_same");
        let values = gather(self, MessageKind::Comparison, value.to_string().into_bytes())?;
        let text = |rank: usize| String::from_utf8_lossy(&values[rank]).into_owned();
        match (1..values.len()).find(|&rank| values[rank] != values[0]) {
            None => Ok(()),
            Some(rank) => Err(Error::value(format!(
                "{what} is {} on rank 0, but {} on rank {rank}",
                text(0),
                text(rank)
            ))
            .help("start every rank with the same program, options and data")),
        }
    }
}

/// The bytes of every rank, by rank.
pub(super) fn gather<C: Communicator + ?Sized>(
    comm: &C,
    purpose: MessageKind,
    bytes: Vec<u8>,
) -> Result<Vec<Vec<u8>>> {
    Ok(comm.start(Collective::note(purpose, bytes, comm.size())).wait()?.notes)
}

/// `n` items in `parts` shares that differ by one at most, the larger ones first.
pub(super) fn even(n: usize, parts: usize) -> Vec<usize> {
    (0..parts).map(|i| n / parts + usize::from(i < n % parts)).collect()
}

fn first_axis(x: &Tensor) -> Result<usize> {
    x.shape().first().copied().ok_or_else(|| {
        Error::shape("a tensor without axes has no rows").help("x.reshape((1,))? is one row")
    })
}

/// The shape of `x` with `rows` rows.
fn with_rows(x: &Tensor, rows: Option<usize>) -> Result<Shape> {
    let mut sizes = x.shape().to_vec();
    let too_many = || {
        Error::shape(format!("the result of {} has too many elements", x.shape()))
            .help("gather fewer rows at a time")
    };
    sizes[0] = rows.ok_or_else(too_many)?;
    teeny_core::IntoShape::shape(&sizes[..])
}

/// The result of an operation on `x`, on its device, untracked.
fn shaped(result: Reply, shape: Shape, x: &Tensor) -> Result<Tensor> {
    result.into_tensor()?.reshape(shape)?.to(x.device())
}

/// A communicator, or something that holds one.
pub trait IntoCommunicator {
    /// The communicator.
    fn into_communicator(self) -> Arc<dyn Communicator>;
}

impl<C: Communicator + 'static> IntoCommunicator for C {
    fn into_communicator(self) -> Arc<dyn Communicator> {
        Arc::new(self)
    }
}

impl IntoCommunicator for Arc<dyn Communicator> {
    fn into_communicator(self) -> Arc<dyn Communicator> {
        self
    }
}

impl IntoCommunicator for &Arc<dyn Communicator> {
    fn into_communicator(self) -> Arc<dyn Communicator> {
        self.clone()
    }
}

/// A group of ranks that [`Communicator::split`] has made.
pub(crate) struct Split {
    /// The numbers of the members in the communicator that was split.
    pub members: Vec<usize>,
    /// The number of this rank among them.
    pub rank: usize,
    /// A number that no communicator of a member has, the same on all of them.
    pub id: u64,
}

/// The ranks that pass the same `group` as this one. `used` is the highest number of a communicator
/// of this rank.
pub(crate) fn split(comm: &dyn Communicator, group: usize, used: u64) -> Result<Split> {
    let note = [(group as u64).to_le_bytes(), used.to_le_bytes()].concat();
    let notes = gather(comm, MessageKind::Split, note)?;
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
