//! [`DataParallel`]: every rank has the whole model and a part of each batch.

use super::broadcast::broadcast;
use super::buckets::{Add, BUCKET, Buckets, Division, Reducer};
use super::collective::{Collective, Pending};
use super::communicator::{Communicator, IntoCommunicator};
use super::fully_shard::FullyShard;
use super::kind::MessageKind;
use super::traffic::{Span, Traffic};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use teeny_autograd::{Grad, Gradients, detached};
use teeny_core::context::enter;
use teeny_core::random::{self, Key};
use teeny_core::{Error, Result, Tensor};
use teeny_nn::Store;
use teeny_nn::train::RunRanks;

/// Data-parallel training: every rank computes the loss of its part of a batch, and the gradients
/// are averaged over the ranks while the backward pass goes on.
///
/// The loss is a mean over items. If every rank has as many items, the averaged gradients equal the
/// gradients of the joint batch on one rank; [`DataParallel::backward_of`] is for parts of unequal
/// size. Sums run in rank order, so equal numbers of ranks give equal bits.
///
/// With [`crate::SingleRank`] nothing is sent: a program has one code path.
///
/// # Example
/// ```
/// use teeny_distributed::{Communicator, DataParallel, Threads};
/// use teeny_nn::prelude::*;
/// let weights = Threads::run(2, |comm| {
///     let store = Store::new(Autograd::new(device("cpu")?));
///     let model = Linear::new(&store.root(), 4, 1)?;
///     let data = DataParallel::new(&store, comm.clone())?; // rank 0's parameters on every rank
///     let mut sgd = Sgd::new(store.trainable(), 0.1);
///     for step in 0..10 {
///         let x = Tensor::full((8, 4), comm.rank() as f32, DType::F32, store.device())?; // (8, 4)
///         let loss = model.forward(&x)?.sub(1.0)?.square()?.mean_all()?; // ()
///         let (_mean, gradients) = data.backward(&loss)?;
///         sgd.step(&gradients)?;
///     }
///     store.get("weight")?.value().to_vec::<f32>()
/// })
/// .unwrap();
/// assert_eq!(weights[0], weights[1]);
/// ```
/// Source: Li et al. 2020, arXiv:2006.15704. Equivalent:
/// `torch.nn.parallel.DistributedDataParallel`.
#[doc(alias = "DistributedDataParallel")]
#[derive(Debug)]
pub struct DataParallel {
    comm: Arc<dyn Communicator>,
    store: Store,
    bucket: usize,
    check_finite: bool,
    plan: Mutex<BucketPlan>,
    traffic: Arc<Mutex<Traffic>>,
    /// Parameters that are divided among the ranks.
    shards: Option<FullyShard>,
}

#[derive(Debug)]
struct BucketPlan {
    /// [`Store::changes`] when the buckets were made.
    changes: u64,
    buckets: Arc<Buckets>,
}

impl BucketPlan {
    fn new(store: &Store, bytes: usize, comm: &dyn Communicator) -> BucketPlan {
        let changes = store.changes();
        let all = Division::Whole(comm.size());
        let buckets = Arc::new(Buckets::new(store.trainable(), all, bytes, store));
        BucketPlan { changes, buckets }
    }
}

impl DataParallel {
    /// Training of the parameters in `store` by the ranks of `comm`. The parameters and buffers of
    /// rank 0 are copied to the others, and from here on each rank draws other random numbers
    /// ([`DataParallel::separate_random`]).
    ///
    /// # Errors
    /// If the ranks have other versions of this crate, parameters of other names, shapes or dtypes,
    /// or other seeds: the error names the first difference and the rank. If a rank fails.
    #[track_caller]
    pub fn new(store: &Store, comm: impl IntoCommunicator) -> Result<DataParallel> {
        let _op = enter("DataParallel::new");
        DataParallel::with_shards(store, comm.into_communicator(), None)
    }

    /// [`DataParallel::new`] with the units of `shards`.
    pub(super) fn with_shards(
        store: &Store,
        comm: Arc<dyn Communicator>,
        shards: Option<FullyShard>,
    ) -> Result<DataParallel> {
        broadcast(&store.all(), store, &*comm)?;
        let data = DataParallel {
            plan: Mutex::new(BucketPlan::new(store, BUCKET, &*comm)),
            comm,
            store: store.clone(),
            bucket: BUCKET,
            check_finite: true,
            traffic: shards.as_ref().map_or_else(Arc::default, FullyShard::traffic),
            shards,
        };
        data.separate_random()?;
        Ok(data)
    }

    /// Sets the size of the buckets in bytes; 1 MiB. Larger ones take fewer messages, smaller ones
    /// begin earlier.
    pub fn bucket_bytes(mut self, bytes: usize) -> DataParallel {
        self.bucket = bytes;
        self.plan().changes = u64::MAX; // the next pass makes them
        self
    }

    /// Sets whether NaN and infinities in gradients are errors that name the rank, the default. A
    /// [`teeny_nn::optim::LossScale`] needs to see them: every rank then skips the same steps.
    pub fn check_finite(mut self, check: bool) -> DataParallel {
        self.check_finite = check;
        self
    }

    /// The ranks.
    pub fn comm(&self) -> &Arc<dyn Communicator> {
        &self.comm
    }

    /// The parameters.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether this is the rank that prints and saves: rank 0.
    pub fn is_first(&self) -> bool {
        self.comm.rank() == 0
    }

    /// Copies the buffers of rank 0, such as the running statistics of a
    /// [`teeny_nn::norm::BatchNorm`], to the other ranks: each rank computes them from its items
    /// otherwise. Call it before an evaluation or a checkpoint.
    ///
    /// Equivalent: `broadcast_buffers` of `torch.nn.parallel.DistributedDataParallel`, which copies
    /// them before each forward pass.
    ///
    /// # Errors
    /// If a rank fails.
    #[doc(alias = "DistributedDataParallel")]
    #[track_caller]
    pub fn broadcast_buffers(&self) -> Result<()> {
        let _op = enter("broadcast_buffers");
        let mut buffers = self.store.all();
        buffers.retain(|param| !param.is_trainable());
        broadcast(&buffers, &self.store, &*self.comm)
    }

    /// Seeds each rank differently, so that their dropout differs: rank 0 keeps its seed, the
    /// others derive one from it. Ranks that have different seeds already keep them.
    /// [`DataParallel::new`] calls it; call it again after a checkpoint has restored the generator.
    ///
    /// # Errors
    /// If the ranks have other seeds, or a rank fails.
    #[track_caller]
    pub fn separate_random(&self) -> Result<()> {
        let _op = enter("separate_random");
        let Key { seed, draw } = random::state();
        let seeds = self.comm.gather_bytes(seed.to_le_bytes().to_vec())?;
        let seeds: Vec<u64> = seeds
            .iter()
            .filter_map(|bytes| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?)))
            .collect();
        // the multiplier of Knuth's MMIX generator, which is odd: seeds of ranks differ
        let own = |rank: usize| {
            seeds[0].wrapping_add((rank as u64).wrapping_mul(6_364_136_223_846_793_005))
        };
        if (0..seeds.len()).all(|rank| seeds[rank] == own(rank)) {
            return Ok(());
        }
        if let Some(rank) = seeds.iter().position(|seed| *seed != seeds[0]) {
            let text = format!("rank 0 has seed {}, but rank {rank} has {}", seeds[0], seeds[rank]);
            return Err(Error::value(text).help("manual_seed with the same number on every rank"));
        }
        random::set_state(Key { seed: own(self.comm.rank()), draw });
        Ok(())
    }

    /// The mean loss () of all ranks, and its gradients. `loss` is the mean loss of this rank's
    /// items; every rank has as many.
    ///
    /// # Errors
    /// As [`Grad::backward`]; if a gradient of a rank is not finite, or there is one on some ranks
    /// only: the error names parameter and rank. If a rank fails.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<(Tensor, Gradients)> {
        let _op = enter("DataParallel::backward");
        self.run(loss, 1.0)
    }

    /// [`DataParallel::backward`] where the ranks have unequal numbers of items; `share` belongs to
    /// this rank.
    ///
    /// # Errors
    /// As [`DataParallel::backward`]; if a rank has no items.
    #[track_caller]
    pub fn backward_of(&self, loss: &Tensor, share: Share) -> Result<(Tensor, Gradients)> {
        let _op = enter("DataParallel::backward");
        self.run(loss, share.weight()?)
    }

    /// Tells the other ranks that this one's next loss is the mean over `items` items. Call it
    /// before the forward pass, during which their numbers arrive.
    pub fn share(&self, items: usize) -> Share {
        let note = (items as u64).to_le_bytes().to_vec();
        let collective = Collective::note(MessageKind::Items, note, self.comm.size());
        Share { items, counts: self.comm.start(collective) }
    }

    fn run(&self, loss: &Tensor, weight: f64) -> Result<(Tensor, Gradients)> {
        let plan = self.buckets();
        let mut reducer = Reducer::new(&plan, &self.comm);
        let mut gradients = backward_each(&plan, loss, weight, &mut |i, g| reducer.add(i, g))?;
        let loss = self.finish(&plan, reducer, loss, weight, &mut gradients)?;
        Ok((loss, gradients))
    }

    /// Averages `gradients` over the ranks in place, after several backward passes were accumulated
    /// or a step was replayed; returns the mean of the ranks' losses.
    ///
    /// # Errors
    /// As [`DataParallel::backward`]. The gradients have not changed then.
    #[track_caller]
    pub fn average(&self, loss: &Tensor, gradients: &mut Gradients) -> Result<Tensor> {
        let _op = enter("DataParallel::average");
        let plan = self.buckets();
        let mut reducer = Reducer::new(&plan, &self.comm);
        reducer.add_all(gradients)?;
        self.finish(&plan, reducer, loss, 1.0, gradients)
    }

    /// Waits for an exchange, and puts its results into `gradients`.
    fn finish(
        &self,
        plan: &Buckets,
        reducer: Reducer,
        loss: &Tensor,
        weight: f64,
        gradients: &mut Gradients,
    ) -> Result<Tensor> {
        let own = number(loss)? * weight;
        let reduced = reducer.finish(own, self.check_finite, &mut self.traffic())?;
        let mean = mean_loss(&reduced.losses, self.check_finite)?;
        let mut averaged = gradients.clone();
        for (bucket, flat) in reduced.buckets.iter().enumerate() {
            for (i, g) in plan.unpack(bucket, flat, self.comm.rank())? {
                if reduced.present[i] {
                    averaged.set(&plan.params[i].value(), g)?;
                }
            }
        }
        *gradients = averaged;
        scalar(mean, loss)
    }

    /// Bytes and milliseconds of communication per step by bucket of gradients, and the share of it
    /// that was hidden behind the backward pass; with [`Zero`](super::Zero) also of the parameters'
    /// values.
    pub fn traffic_table(&self) -> String {
        self.traffic().table()
    }

    /// The exchanges of buckets, at most 65,536.
    pub fn spans(&self) -> Vec<Span> {
        self.traffic().spans().to_vec()
    }

    pub(super) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shards(&self) -> Option<&FullyShard> {
        self.shards.as_ref()
    }

    pub(super) fn bucket(&self) -> usize {
        self.bucket
    }

    pub(super) fn checks_finite(&self) -> bool {
        self.check_finite
    }

    fn plan(&self) -> MutexGuard<'_, BucketPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buckets of the present parameters: they are made again after one was added or frozen.
    fn buckets(&self) -> Arc<Buckets> {
        let mut plan = self.plan();
        if plan.changes != self.store.changes() {
            *plan = BucketPlan::new(&self.store, self.bucket, &*self.comm);
        }
        plan.buckets.clone()
    }
}

impl FullyShard {
    /// Data-parallel training of the units and of the parameters outside units, for
    /// [`Zero::new`](super::Zero::new). Call it after the last layer is made.
    ///
    /// # Errors
    /// As [`DataParallel::new`].
    #[track_caller]
    pub fn data_parallel(&self) -> Result<DataParallel> {
        let _op = enter("FullyShard::data_parallel");
        DataParallel::with_shards(self.store(), self.comm(), Some(self.clone()))
    }
}

impl RunRanks for DataParallel {
    fn is_first(&self) -> bool {
        self.is_first()
    }

    fn require_same(&self, what: &str, value: &dyn Display) -> Result<()> {
        self.comm.require_same(what, value)
    }

    fn broadcast_buffers(&self) -> Result<()> {
        self.broadcast_buffers()
    }

    fn separate_random(&self) -> Result<()> {
        self.separate_random()
    }
}

/// The part of a step's items that a rank has; from [`DataParallel::share`].
#[derive(Debug)]
pub struct Share {
    items: usize,
    counts: Pending,
}

impl Share {
    /// The weight of this rank's loss in the mean over all items: 1 if every rank has as many.
    ///
    /// # Errors
    /// If a rank has no items, or fails.
    pub fn weight(self) -> Result<f64> {
        let counts = self.counts.wait()?.notes;
        let count = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes);
        if let Some(rank) = counts.iter().position(|bytes| count(bytes) == 0) {
            return Err(Error::value(format!("rank {rank} has no items in this step"))
                .help("DataLoader::shard gives every rank some"));
        }
        let all: u64 = counts.iter().map(count).fold(0, u64::saturating_add);
        let mean = all as f64 / counts.len() as f64;
        Ok(self.items as f64 / mean)
    }
}

/// A backward pass from `loss` times `weight` that passes each gradient to `add` when it is
/// complete.
pub(super) fn backward_each(
    plan: &Buckets,
    loss: &Tensor,
    weight: f64,
    add: &mut Add<'_>,
) -> Result<Gradients> {
    if plan.params.is_empty() {
        return Err(Error::value("the store has no trainable parameters")
            .help("make DataParallel after the last layer"));
    }
    let ids: HashMap<u64, usize> = plan
        .params
        .iter()
        .enumerate()
        .filter_map(|(i, param)| Some((param.value().leaf_id()?, i)))
        .collect();
    let g = match weight {
        1.0 => None,
        weight => Some(Tensor::full(*loss.shape(), weight, loss.dtype(), loss.device())?),
    };
    loss.backward_each(g.as_ref(), &mut |leaf, g| match ids.get(&leaf) {
        Some(&i) => add(i, g),
        None => Ok(()),
    })
}

/// The value of a loss, which has one element.
pub(super) fn number(loss: &Tensor) -> Result<f64> {
    let values = detached(loss)?.to_scalars()?;
    match values[..] {
        [value] => Ok(value.to_f64()),
        _ => Err(Error::shape(format!("a loss has one element, not {}", loss.shape()))
            .help("loss.mean_all()?")),
    }
}

/// The mean of the ranks' losses.
pub(super) fn mean_loss(losses: &[f64], check: bool) -> Result<f64> {
    match losses.iter().position(|loss| !loss.is_finite()) {
        Some(rank) if check => Err(Error::value(format!(
            "the loss is {} on rank {rank}; no parameter has changed",
            losses[rank]
        ))
        .help("the usual causes are too high a learning rate and NaN in the data of that rank")),
        _ => Ok(losses.iter().sum::<f64>() / losses.len() as f64),
    }
}

/// `value` as a tensor () like the loss.
pub(super) fn scalar(value: f64, loss: &Tensor) -> Result<Tensor> {
    Tensor::full((), value, loss.dtype(), loss.device())
}
