//! [`Shards`]: parameters of which this rank keeps some rows, and all_gather of these rows.

use super::buckets::{Buckets, Division, rows};
use super::collective::{Collective, Pending};
use super::communicator::Communicator;
use super::kind::Kind;
use super::traffic::Traffic;
use std::ops::Range;
use std::time::Instant;
use teeny_autograd::detached;
use teeny_core::{DeviceRef, Result, Tensor};
use teeny_nn::{Param, Store};

/// The rows of parameters that this rank keeps.
#[derive(Debug)]
pub(super) struct Shards {
    /// The whole parameters.
    pub plan: Buckets,
    /// The rows of this rank, by parameter; `None` where it has none.
    pub pieces: Vec<Option<Param>>,
    /// Keeps the pieces.
    _store: Store,
}

/// The operations that gather rows, and when they were started.
pub(super) type Gathering = (Vec<Pending>, Instant);

impl Shards {
    /// The rows of `rank`, which `divided` lists by parameter and rank. They are copies: putting
    /// them back later allocates nothing.
    pub fn new(
        params: Vec<Param>,
        divided: Vec<Vec<Range<usize>>>,
        bytes: usize,
        store: &Store,
        rank: usize,
    ) -> Result<Shards> {
        let plan = Buckets::new(params, Division::Rows(divided), bytes, store);
        let store = Store::new(&plan.device);
        let piece = |(i, param): (usize, &Param)| {
            let mine = &plan.divided(i)[rank];
            if mine.is_empty() {
                return Ok(None);
            }
            let value = rows(&detached(&param.value())?, mine)?.copy()?;
            let make = |_, _, _: &DeviceRef| Ok(value.clone());
            let piece = store.root().param_with(param.name(), *value.shape(), &make)?;
            // an optimizer has no frozen ones
            piece.set_trainable(param.is_trainable())?;
            Ok(Some(piece))
        };
        let pieces = plan.params.iter().enumerate().map(piece).collect::<Result<_>>()?;
        Ok(Shards { plan, pieces, _store: store })
    }

    /// Starts to send the rows of this rank to all, from `device`.
    pub fn start(&self, comm: &dyn Communicator, device: &DeviceRef) -> Result<Gathering> {
        let start = Instant::now();
        let mut pending = Vec::with_capacity(self.plan.buckets.len());
        for bucket in &self.plan.buckets {
            // the ranks without rows send none
            let mut mine = vec![Tensor::zeros(0, bucket.dtype, device)?];
            for piece in bucket.params.iter().filter_map(|&i| self.pieces[i].as_ref()) {
                mine.push(piece.value().reshape(-1)?.to(device)?);
            }
            let flat = Tensor::cat(&mine, 0)?;
            let collective = Collective::of(Kind::AllGather, &flat, bucket.shares.clone())?;
            pending.push(comm.start(collective));
        }
        Ok((pending, start))
    }

    /// The whole parameters.
    pub fn finish(&self, gathering: Gathering, traffic: &mut Traffic) -> Result<Vec<Tensor>> {
        let (pending, start) = gathering;
        let end = Instant::now();
        let mut all = Vec::with_capacity(self.plan.params.len());
        for (i, (bucket, pending)) in self.plan.buckets.iter().zip(pending).enumerate() {
            let reply = pending.wait()?;
            traffic.add(&format!("values of {}", self.plan.name(i)), start, end, &reply);
            let flat = reply.into_tensor()?;
            let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); bucket.params.len()];
            let mut start = 0;
            for rank in 0..bucket.shares.len() {
                for (&i, parts) in bucket.params.iter().zip(&mut parts) {
                    let n = self.plan.part_size(i, rank);
                    parts.push(flat.slice(0, start as isize..(start + n) as isize)?);
                    start += n;
                }
            }
            for (&i, parts) in bucket.params.iter().zip(&parts) {
                all.push(Tensor::cat(parts, 0)?.reshape(self.plan.params[i].shape())?);
            }
        }
        all.reverse(); // buckets have the last parameter first
        Ok(all)
    }
}

/// The rows of a parameter; one without axes is one row.
pub(super) fn count_rows(param: &Param) -> usize {
    param.shape().first().copied().unwrap_or(1)
}

/// The rows of a parameter in ranges by rank, which differ by one at most.
pub(super) fn divide(param: &Param, ranks: usize) -> Vec<Range<usize>> {
    // n * rank / ranks without overflow
    let n = count_rows(param) as u128;
    let bound = |rank: usize| (n * rank as u128 / ranks as u128) as usize;
    (0..ranks).map(|rank| bound(rank)..bound(rank + 1)).collect()
}
