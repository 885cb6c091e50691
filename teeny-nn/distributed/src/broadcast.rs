//! [`broadcast`]: rank 0's values on every rank, after a check that all have one model.

use super::buckets::{Buckets, Division};
use super::collective::Collective;
use super::communicator::Communicator;
use super::kind::Kind;
use super::released::is_sharded;
use teeny_autograd::detached;
use teeny_core::{Error, Result};
use teeny_nn::{Param, Store};

/// Returns an error unless all ranks have the same parameters and version.
fn require_same_model(params: &[Param], comm: &dyn Communicator) -> Result<()> {
    let mut lines = vec![format!("teeny-distributed {}", env!("CARGO_PKG_VERSION"))];
    lines.extend(params.iter().map(|param| {
        let value = param.stored();
        let kind = if param.is_trainable() { "parameter" } else { "buffer" };
        format!("{kind} {:?} {} {}", param.name(), value.dtype(), value.shape())
    }));
    let texts = comm.gather_bytes(lines.join("\n").into_bytes())?;
    let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
    let Some(rank) = (1..texts.len()).find(|&rank| texts[rank] != texts[0]) else { return Ok(()) };
    let line = |rank: usize, i| texts[rank].lines().nth(i).unwrap_or("nothing more");
    let most = texts[0].len().max(texts[rank].len());
    let i = (0..most).find(|&i| line(0, i) != line(rank, i)).unwrap_or(0);
    let text = format!("rank 0 has {}, but rank {rank} has {}", line(0, i), line(rank, i));
    Err(Error::value(text).help("start every rank with the same program and options"))
}

/// Copies the values of rank 0 to the other ranks, which have the same parameters of `store`; those
/// of units stay.
pub(super) fn broadcast(params: &[Param], store: &Store, comm: &dyn Communicator) -> Result<()> {
    require_same_model(params, comm)?;
    if comm.size() == 1 {
        return Ok(());
    }
    let whole = params.iter().filter(|param| !is_sharded(param)).cloned().collect();
    let plan = Buckets::new(whole, Division::Whole(1), usize::MAX, store);
    let mut new = Vec::with_capacity(plan.params.len());
    for (i, bucket) in plan.buckets.iter().enumerate() {
        let flat = plan.flat(bucket, |i| detached(&plan.params[i].stored()))?;
        let kind = Kind::Broadcast { root: 0 };
        let flat = comm.start(Collective::of(kind, &flat, bucket.shares.clone())?).wait()?;
        for (i, part) in plan.unpack(i, &flat.into_tensor()?, 0)? {
            // a copy: a view would keep all of them in memory
            new.push((&plan.params[i], part.copy()?));
        }
    }
    Param::set_all(new.iter().map(|(param, value)| (*param, value)))
}
