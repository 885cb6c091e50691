//! [`TensorParallel`]: the ranks that share one model, and the parameters that are split over them.
//!
//! ```text
//! weight of one layer     (6, 4)             rank 0 of 2    rank 1 of 2
//!   split along axis 0    column-parallel    rows 0..3      rows 3..6
//!   split along axis 1    row-parallel       columns 0..2   columns 2..4
//!   three parts, axis 0   q, k, v of heads   rows 0 2 4     rows 1 3 5
//! ```
//!
//! The layers are in `parallel_linear`. A checkpoint has whole parameters, as if the model were on
//! one rank.

use super::Communicator;
use super::exchange::{copy_to_ranks, sum_over_ranks};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use teeny_autograd::{Gradients, detached};
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Error, Result, Shape, Tensor, random};
use teeny_formats::{Mapping, State, TensorSource};
use teeny_nn::optim::{SquaredNorms, clip_grad_norm_by};
use teeny_nn::state::Stateful;
use teeny_nn::{Init, LoadReport, Param, Path, Store};

/// The ranks that share one model: each has a part of the large weights and computes with it. One
/// value serves one model; clones are handles of the same value.
///
/// All ranks of the group have the same batch, and call the same operations in the same order. The
/// random generator is in the same state on all of them: so initial weights and residual dropout
/// are the same, and replicated parameters stay equal. Only the dropout of attention weights draws
/// other numbers on each rank, for the heads that the rank alone has. Data-parallel groups of
/// tensor-parallel ranks seed each group with another number after the model is built.
///
/// Gradients need no averaging over these ranks: a rank has the gradients of its parts, and the
/// whole gradients of replicated parameters. Optimizers that compute each element alone (SGD, Adam,
/// AdamW, RMSprop, Adagrad) update parts as the whole. Lamb, Lars and Muon use norms and products
/// of a whole matrix, which a part does not have. [`teeny_nn::optim::LossScale`] decides by the
/// gradients of one rank, and so may skip a step on some ranks only: use BF16, which needs no
/// scaling.
///
/// # Example
/// One training step and a checkpoint of a [`teeny_nn::Gpt`]. Every rank runs it.
/// ```
/// use std::sync::Arc;
/// use teeny_autograd::{Autograd, Grad};
/// use teeny_core::{Reference, Tensor, random};
/// use teeny_distributed::{TensorParallel, Threads};
/// use teeny_nn::optim::{AdamW, Optimizer};
/// use teeny_nn::state::{Checkpoint, Stateful};
/// use teeny_nn::{GptConfig, Store, loss::cross_entropy};
/// let norms = Threads::run(2, |comm| random::with_seed(7, || {
///     let parallel = TensorParallel::new(Arc::new(comm))?;
///     let mut store = Store::new(&Autograd::new(Reference::new()));
///     let config = GptConfig::new(65, 8, 1, 2, 8);
///     let gpt = parallel.gpt(&store.root(), config)?;
///     let mut optimizer = AdamW::new(store.trainable(), 1e-3);
///
///     let tokens = Tensor::new([[1i32, 2, 3]], store.device())?; // (B, T), the same on all ranks
///     let targets = Tensor::new([2i32, 3, 4], store.device())?; // (B T)
///     let loss = cross_entropy(&gpt.logits(&tokens)?.flatten(0, 1)?, &targets)?; // ()
///     let mut gradients = loss.backward()?;
///     let norm = parallel.clip_grad_norm(&mut gradients, &store.trainable(), 1.0)?;
///     optimizer.step(&gradients)?;
///
///     let mut checkpoint = Checkpoint::new();
///     checkpoint.put("model", &parallel.gather(&store)?)?;
///     checkpoint.put("optimizer", &parallel.gather(&optimizer)?)?;
///     // rank 0 alone writes it: checkpoint.save(path)?
///     store.set_state(&parallel.scatter(checkpoint.part("model")?)?)?;
///     optimizer.set_state(&parallel.scatter(checkpoint.part("optimizer")?)?)?;
///     Ok(norm)
/// })).unwrap();
/// assert_eq!(norms[0], norms[1]);
/// ```
/// Source: Shoeybi et al. 2019, arXiv:1909.08053. Equivalent: Megatron-LM's tensor model
/// parallelism, `torch.distributed.tensor.parallel`.
#[derive(Clone, Debug)]
pub struct TensorParallel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    comm: Arc<dyn Communicator>,
    /// By the name of the parameter.
    shards: Mutex<BTreeMap<String, Shard>>,
}

/// How a parameter is split: `axis` consists of parts of these sizes, and every rank has an equal
/// share of each.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub axis: usize,
    pub parts: Vec<usize>,
}

impl Shard {
    /// The size of the axis in the whole parameter.
    fn size(&self) -> usize {
        self.parts.iter().fold(0, |sum, &part| sum.saturating_add(part))
    }
}

impl TensorParallel {
    /// The ranks of `comm`.
    ///
    /// # Errors
    /// If their random generators are in different states, or a rank fails.
    #[track_caller]
    pub fn new(comm: Arc<dyn Communicator>) -> Result<TensorParallel> {
        let _op = enter("TensorParallel::new");
        let random::Key { seed, draw } = random::state();
        let state = format!("{seed} after {draw} draws");
        comm.require_same("the seed of the random generator", &state)?;
        Ok(TensorParallel(Arc::new(Inner { comm, shards: Mutex::default() })))
    }

    /// The communicator.
    pub fn comm(&self) -> &Arc<dyn Communicator> {
        &self.0.comm
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.0.comm.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.0.comm.size()
    }

    /// `x`, the input of every rank's part of a layer: the gradient is the sum over the ranks.
    ///
    /// # Errors
    /// In the backward pass, as [`Communicator::all_reduce`].
    #[track_caller]
    pub fn copy(&self, x: &Tensor) -> Result<Tensor> {
        copy_to_ranks(&self.0.comm, x)
    }

    /// The sum of every rank's `x`, the output of its part of a layer: each rank has the gradient
    /// of the sum.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    #[track_caller]
    pub fn sum(&self, x: &Tensor) -> Result<Tensor> {
        sum_over_ranks(&self.0.comm, x)
    }

    /// The state of `part`, a [`Store`] or an optimizer, with whole parameters, as if the model
    /// were on one rank. All ranks call it, and all get the whole state.
    ///
    /// # Errors
    /// If a tensor is not this rank's part, or a rank fails.
    #[track_caller]
    pub fn gather(&self, part: &dyn Stateful) -> Result<State> {
        let _op = enter("gather");
        let mut state = part.state()?;
        for (name, tensor) in &mut state.tensors {
            if let Some(shard) = self.shard(name) {
                self.check(name, &tensor.shape()[..], &shard, shard.size() / self.size())?;
                *tensor = self.whole(tensor, &shard)?;
            }
        }
        Ok(state)
    }

    /// This rank's part of a whole `state`: of a [`Store`] or an optimizer, from a checkpoint of
    /// any number of ranks. Sends no messages.
    ///
    /// # Errors
    /// If a tensor that is split has another size than the whole parameter.
    #[track_caller]
    pub fn scatter(&self, state: &State) -> Result<State> {
        let _op = enter("scatter");
        let mut state = state.clone();
        for (name, tensor) in &mut state.tensors {
            if let Some(shard) = self.shard(name) {
                self.check(name, &tensor.shape()[..], &shard, shard.size())?;
                *tensor = self.part(tensor, &shard)?;
            }
        }
        Ok(state)
    }

    /// [`Store::load_from`] for a `source` with whole parameters: this rank loads its parts. Reads
    /// one tensor at a time.
    ///
    /// # Errors
    /// As [`Store::load_from`], with the model's names for unexpected keys; if a tensor that is
    /// split has another size than the whole parameter.
    #[track_caller]
    pub fn load_from(
        &self,
        store: &Store,
        source: &dyn TensorSource,
        mapping: &Mapping,
    ) -> Result<LoadReport> {
        let _op = enter("load_from");
        let whole = mapping.apply(source).map_err(|error| error.named(source.label()))?;
        let part = PartOf { parallel: self, source: &whole };
        for (name, shape) in whole.shapes() {
            if let Some(shard) = part.shard(&name) {
                self.check(&name, &shape, &shard, shard.size())
                    .map_err(|error| error.named(source.label()))?;
            }
        }
        let mut report = store.load_from(&part, &mapping.allowances())?;
        report.skipped.extend_from_slice(whole.skipped());
        Ok(report)
    }

    /// [`teeny_nn::optim::clip_grad_norm`] of the whole model: squares of parts are summed over the
    /// ranks, squares of replicated parameters are counted once. All ranks call it, and all get the
    /// same norm.
    ///
    /// # Errors
    /// As [`teeny_nn::optim::clip_grad_norm`]; if a rank fails.
    #[track_caller]
    pub fn clip_grad_norm(
        &self,
        gradients: &mut Gradients,
        params: &[Param],
        max_norm: f64,
    ) -> Result<f64> {
        let _op = enter("clip_grad_norm");
        clip_grad_norm_by(gradients, params, max_norm, |params, SquaredNorms { values, unit }| {
            let squares = values.into_iter().map(|square| square / unit / unit).collect();
            Ok(SquaredNorms { values: self.sum_squares(params, squares)?, unit: 1.0 })
        })
    }

    /// The squared norms of the whole gradients of `params`; `squares` are this rank's parts.
    pub(super) fn sum_squares(&self, params: &[Param], squares: Vec<f64>) -> Result<Vec<f64>> {
        // rank 0 counts replicated parameters, so that all ranks have the same bits
        let own = params.iter().zip(squares).map(|(param, square)| {
            let counts = self.rank() == 0 || self.shard(param.name()).is_some();
            if counts { square } else { 0.0 }
        });
        self.0.comm.sum_numbers(&own.collect::<Vec<f64>>())
    }

    /// Returns an error on every rank unless the replicated parameters and buffers of `store` are
    /// the same on all ranks to the bit: other seeds, batches or processors make them differ.
    ///
    /// # Errors
    /// The error names the first parameter that differs; if a rank fails.
    #[track_caller]
    pub fn require_replicas(&self, store: &Store) -> Result<()> {
        let _op = enter("require_replicas");
        for param in store.all().iter().filter(|param| self.shard(param.name()).is_none()) {
            let own = detached(&param.stored())?.contiguous()?;
            let first = self.0.comm.broadcast(&own, 0)?;
            let differs = f64::from(u8::from(own.to_bytes()? != first.to_bytes()?));
            let differing = self.0.comm.sum_numbers(&[differs])?;
            if differing != [0.0] {
                return Err(Error::value(format!(
                    "{:?} is replicated, but {} of {} ranks have another value than rank 0",
                    param.name(),
                    differing[0],
                    self.size()
                ))
                .help("seed all ranks of the group alike, and give them the same batches"));
            }
        }
        Ok(())
    }

    /// This rank's part of the new parameter `name`, whose whole has `shape`: it draws the whole,
    /// so that the ranks together have the values that one rank would have.
    pub(super) fn param(
        &self,
        path: &Path,
        name: &str,
        shape: &[usize],
        shard: Shard,
        init: Init,
    ) -> Result<Param> {
        let ranks = self.size();
        if let Some(part) = shard.parts.iter().find(|part| !part.is_multiple_of(ranks)) {
            let (axis, whole) = (shard.axis, teeny_core::IntoShape::shape(shape)?);
            let text = format!(
                "{name} {whole} cannot be split along axis {axis}: {part} is not a multiple of the \
                 {ranks} ranks"
            );
            return Err(Error::shape(text).help(format!(
                "sizes that {ranks} divides, or a number of tensor-parallel ranks that divides \
                 {part}"
            )));
        }
        let mut own = shape.to_vec();
        own[shard.axis] = shard.size() / ranks;
        let whole = teeny_core::IntoShape::shape(shape)?;
        let make = |own: Shape, dtype, device: &DeviceRef| match init {
            Init::Constant(_) => init.tensor(own, dtype, device),
            // the part that this rank has of the values that one rank would draw
            _ => self.part(&init.tensor(whole, dtype, device)?, &shard),
        };
        let param = path.param_with(name, &own[..], &make)?;
        self.shards().insert(param.name().to_string(), shard);
        Ok(param)
    }

    fn shards(&self) -> MutexGuard<'_, BTreeMap<String, Shard>> {
        // after a panic in another thread the map is still whole
        self.0.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the parameter `name` is split, or an optimizer's state `name`: parameter, dot, state.
    fn shard(&self, name: &str) -> Option<Shard> {
        let shards = self.shards();
        let of_state = || name.rsplit_once('.').and_then(|(param, _)| shards.get(param));
        shards.get(name).or_else(of_state).cloned()
    }

    /// Returns an error unless the axis of `shard` has `size`.
    fn check(&self, name: &str, shape: &[usize], shard: &Shard, size: usize) -> Result<()> {
        if shape.get(shard.axis) == Some(&size) {
            return Ok(());
        }
        let text = format!("{name:?} is {shape:?}, but axis {} must have {size}", shard.axis);
        Err(Error::shape(text)
            .help("gather takes the parts of ranks, scatter and load_from take whole parameters"))
    }

    /// This rank's part of a whole tensor, alone in its storage.
    fn part(&self, whole: &Tensor, shard: &Shard) -> Result<Tensor> {
        let (axis, mut start) = (shard.axis as isize, 0);
        let mut own = Vec::with_capacity(shard.parts.len());
        for part in &shard.parts {
            let share = part / self.size();
            let from = start + self.rank() * share;
            own.push(whole.slice(axis, from..from + share)?);
            start += part;
        }
        match &own[..] {
            [one] => one.copy(),
            _ => Tensor::cat(&own, axis),
        }
    }

    /// The whole tensor of all ranks' parts.
    fn whole(&self, own: &Tensor, shard: &Shard) -> Result<Tensor> {
        if self.size() == 1 {
            return Ok(own.clone());
        }
        let all = self.0.comm.all_gather(&detached(own)?.unsqueeze(0)?)?; // (ranks, ..)
        let (axis, mut start) = (shard.axis as isize, 0);
        let mut parts = Vec::with_capacity(shard.parts.len() * self.size());
        for part in &shard.parts {
            let share = part / self.size();
            for rank in 0..self.size() {
                parts.push(all.at(0, rank as isize)?.slice(axis, start..start + share)?);
            }
            start += share;
        }
        Tensor::cat(&parts, axis)
    }
}

/// This rank's part of a source with whole parameters.
struct PartOf<'a> {
    parallel: &'a TensorParallel,
    source: &'a dyn TensorSource,
}

impl PartOf<'_> {
    /// How the parameter `name` is split.
    fn shard(&self, name: &str) -> Option<Shard> {
        self.parallel.shards().get(name).cloned()
    }
}

impl TensorSource for PartOf<'_> {
    fn label(&self) -> String {
        self.source.label()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut shapes = self.source.shapes();
        for (name, shape) in &mut shapes {
            if let Some(shard) = self.shard(name) {
                shape[shard.axis] = shard.size() / self.parallel.size();
            }
        }
        shapes
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        let whole = self.source.read(name, device)?;
        match self.shard(name) {
            Some(shard) => self.parallel.part(&whole, &shard),
            None => Ok(whole),
        }
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        self.source.unreadable()
    }
}
