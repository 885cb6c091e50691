//! [`Zero`]: an optimizer whose state is divided among the ranks.

use super::buckets::{Add, Buckets, Division, Reducer, row_size, rows};
use super::collective::Collective;
use super::data_parallel::{DataParallel, Share, backward_each, mean_loss, number, scalar};
use super::fully_shard::FullyShard;
use super::kind::Kind;
use super::shards::{Shards, count_rows, divide};
use super::tensor_parallel::TensorParallel;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use teeny_autograd::{Gradients, detached};
use teeny_core::context::enter;
use teeny_core::{Error, Reference, Result, Tensor};
use teeny_formats::{KeyMismatch, State};
use teeny_nn::Param;
use teeny_nn::optim::{Optimizer, SquaredNorms};
use teeny_nn::state::Stateful;

/// Data-parallel training in which each rank keeps a part of the optimizer's state: of Adam's two
/// moments with n ranks an nth. ZeRO stage 1.
///
/// ```text
/// backward   every rank gets the mean gradient of its rows (reduce_scatter), bucket by bucket
/// step       it updates its rows
///            the rows of all ranks become the parameters of every rank (all_gather)
/// ```
///
/// As many bytes are sent as without it. The parameters are bit-equal to [`DataParallel`] with as
/// many ranks; after [`Zero::clip_grad_norm`] equal to rounding.
///
/// Optimizers that treat elements alike (Adam, SGD, ..) have some rows of each parameter on each
/// rank. Others, such as Lamb and Muon, have whole parameters, the next largest always on the rank
/// that has the fewest elements.
///
/// A checkpoint has the state of the plain optimizer: it can be restored with any number of ranks,
/// also without `Zero`.
///
/// # Example
/// ```
/// use teeny_distributed::{DataParallel, Threads, Zero};
/// use teeny_nn::prelude::*;
/// Threads::run(2, |comm| {
///     let store = Store::new(Autograd::new(device("cpu")?));
///     let model = Linear::new(&store.root(), 4, 6)?;
///     let data = DataParallel::new(&store, comm)?;
///     let mut zero = Zero::new(data, |params| Adam::new(params, 1e-2))?;
///     let x = Tensor::ones((8, 4), DType::F32, store.device())?; // (8, 4)
///     let (_loss, mut gradients) = zero.backward(&model.forward(&x)?.square()?.mean_all()?)?;
///     zero.clip_grad_norm(&mut gradients, 1.0)?;
///     zero.step(&gradients)?;
///     assert_eq!(zero.state_elements()?, 2 * (3 * 4 + 3)); // mean and square of half the rows
///     Ok(())
/// })
/// .unwrap();
/// ```
/// Source: Rajbhandari et al. 2019, arXiv:1910.02054. Equivalent:
/// `torch.distributed.optim.ZeroRedundancyOptimizer`.
#[doc(alias = "ZeroRedundancyOptimizer")]
pub struct Zero<O> {
    data: Arc<DataParallel>,
    plan: Arc<Buckets>,
    /// [`Store::changes`] when the plan was made.
    changes: u64,
    optimizer: O,
    /// The ranks that share this one's model.
    parallel: Option<TensorParallel>,
    /// The rows of this rank, by parameter; `None` where it has none.
    pieces: Vec<Option<Param>>,
    /// The parameters that are whole on every rank.
    whole: Shards,
    /// The values that their pieces are rows of.
    known: Vec<Tensor>,
}

/// The mean gradients of the rows of this rank; from [`Zero::backward`].
#[derive(Clone, Debug)]
pub struct ShardGradients {
    /// By parameter: `None` without a gradient on any rank.
    rows: Vec<Option<Tensor>>,
    /// Whether there is a gradient, by parameter.
    present: Vec<bool>,
}

impl<O: Optimizer> Zero<O> {
    /// Training by `data` with the optimizer that `make` returns for the parameters it is given:
    /// rows of the trainable parameters of the store, under their names and with their number of
    /// axes.
    ///
    /// # Errors
    /// If the optimizer needs whole parameters and a unit of [`FullyShard`] has some; if the device
    /// fails, or a rank.
    #[track_caller]
    pub fn new(
        data: impl Into<Arc<DataParallel>>,
        make: impl Fn(Vec<Param>) -> O,
    ) -> Result<Zero<O>> {
        let _op = enter("Zero::new");
        let data: Arc<DataParallel> = data.into();
        let (params, comm, store) = (data.store().trainable(), data.comm(), data.store());
        let piece = |param: &Param| data.shards()?.piece(param.name());
        let sharded: Vec<_> = params.iter().map(piece).collect();
        let divided = if make(Vec::new()).is_elementwise() {
            params.iter().map(|param| divide(param, comm.size())).collect()
        } else if sharded.iter().any(Option::is_some) {
            return Err(Error::value("this optimizer needs whole parameters, a unit has rows")
                .help("Adam, AdamW, Sgd, .. update each element alone"));
        } else {
            assign(&params, comm.size())
        };
        comm.require_same("the kind of the optimizer", &std::any::type_name::<O>())?;
        let rest = params.iter().cloned().zip(divided.iter().cloned()).zip(&sharded);
        let (whole, rows) = rest.filter(|(_, piece)| piece.is_none()).map(|(rest, _)| rest).unzip();
        let whole = Shards::new(whole, rows, data.bucket(), store, comm.rank())?;
        let mut rest = whole.pieces.iter().cloned();
        let piece = |piece: Option<_>| piece.unwrap_or_else(|| rest.next().flatten());
        let pieces: Vec<Option<Param>> = sharded.into_iter().map(piece).collect();
        let optimizer = make(pieces.iter().flatten().cloned().collect());
        let changes = store.changes();
        let plan = Buckets::new(params, Division::Rows(divided), data.bucket(), store);
        let known = whole.plan.params.iter().map(Param::value).collect();
        let plan = Arc::new(plan);
        Ok(Zero { data, plan, changes, optimizer, parallel: None, pieces, whole, known })
    }

    /// Sets the ranks that share this one's model: the norm of gradients then covers the whole
    /// model.
    pub fn tensor_parallel(mut self, parallel: &TensorParallel) -> Zero<O> {
        self.parallel = Some(parallel.clone());
        self
    }

    /// The optimizer of this rank's rows.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// The data-parallel training that this one is a part of.
    pub fn data(&self) -> &DataParallel {
        &self.data
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.optimizer.lr()
    }

    /// Sets the learning rate of the next steps.
    pub fn set_lr(&mut self, lr: f64) {
        self.optimizer.set_lr(lr);
    }

    /// The elements of the state tensors of this rank.
    ///
    /// # Errors
    /// If reading the optimizer's state fails.
    pub fn state_elements(&self) -> Result<usize> {
        Ok(self.optimizer.state()?.tensors.values().map(Tensor::numel).sum())
    }

    /// The mean loss () of all ranks, and the gradients of this rank's rows; see
    /// [`DataParallel::backward`].
    ///
    /// # Errors
    /// As [`DataParallel::backward`]; if parameters were added or frozen since.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<(Tensor, ShardGradients)> {
        let _op = enter("Zero::backward");
        self.run(loss, 1.0)
    }

    /// [`Zero::backward`] where the ranks have unequal numbers of items; see
    /// [`DataParallel::share`].
    ///
    /// # Errors
    /// As [`DataParallel::backward_of`].
    #[track_caller]
    pub fn backward_of(&self, loss: &Tensor, share: Share) -> Result<(Tensor, ShardGradients)> {
        let _op = enter("Zero::backward");
        self.run(loss, share.weight()?)
    }

    /// The gradients of this rank's rows, averaged over the ranks, of `gradients` that several
    /// backward passes have accumulated; and the mean of the ranks' losses.
    ///
    /// # Errors
    /// As [`Zero::backward`].
    #[track_caller]
    pub fn average(
        &self,
        loss: &Tensor,
        gradients: &Gradients,
    ) -> Result<(Tensor, ShardGradients)> {
        let _op = enter("Zero::average");
        self.require_current()?;
        let mut reducer = Reducer::new(&self.plan, self.data.comm());
        reducer.add_all(gradients)?;
        self.finish(reducer, loss, 1.0)
    }

    fn run(&self, loss: &Tensor, weight: f64) -> Result<(Tensor, ShardGradients)> {
        self.require_current()?;
        let mut reducer = Reducer::new(&self.plan, self.data.comm());
        let run = |add: &mut Add<'_>| backward_each(&self.plan, loss, weight, add);
        match self.data.shards() {
            Some(shards) => reducer = shards.collect(reducer, run)?,
            None => _ = run(&mut |i, g| reducer.add(i, g))?,
        }
        self.finish(reducer, loss, weight)
    }

    /// Returns an error if the plan was made for other parameters than the present ones.
    fn require_current(&self) -> Result<()> {
        if self.changes == self.data.store().changes() {
            return Ok(());
        }
        Err(Error::value("parameters were added or frozen after Zero was made")
            .help("make Zero after the last layer"))
    }

    /// Waits for `reducer`: the mean loss, and the gradients of this rank's rows.
    fn finish(
        &self,
        reducer: Reducer,
        loss: &Tensor,
        weight: f64,
    ) -> Result<(Tensor, ShardGradients)> {
        let own = number(loss)? * weight;
        let check = self.data.checks_finite();
        let reduced = reducer.finish(own, check, &mut self.data.traffic())?;
        let mean = mean_loss(&reduced.losses, check)?;
        let mut gradients =
            ShardGradients { rows: vec![None; self.plan.params.len()], present: reduced.present };
        for (bucket, flat) in reduced.buckets.iter().enumerate() {
            for (i, g) in self.plan.unpack(bucket, flat, self.data.comm().rank())? {
                gradients.rows[i] = gradients.present[i].then_some(g);
            }
        }
        Ok((scalar(mean, loss)?, gradients))
    }

    /// Scales the gradients so that the norm of the whole model's is at most `max_norm`; returns
    /// the norm before that. See [`teeny_nn::optim::clip_grad_norm`], whose norm is rounded
    /// otherwise: it sums each gradient at once, and not by rows of ranks.
    ///
    /// # Errors
    /// If `max_norm` is not above 0, the norm is not finite, or a rank fails.
    #[track_caller]
    pub fn clip_grad_norm(&self, gradients: &mut ShardGradients, max_norm: f64) -> Result<f64> {
        let _op = enter("clip_grad_norm");
        let mut squares = Vec::with_capacity(gradients.rows.len());
        for g in &gradients.rows {
            squares.push(match g {
                Some(g) => {
                    let SquaredNorms { values, unit } = SquaredNorms::of(std::slice::from_ref(g))?;
                    values[0] / unit / unit
                }
                None => 0.0,
            });
        }
        let mut squares = self.data.comm().sum_numbers(&squares)?;
        if let Some(parallel) = &self.parallel {
            squares = parallel.sum_squares(&self.plan.params, squares)?;
        }
        let squares = SquaredNorms { values: squares, unit: 1.0 };
        let (norm, factor) = squares.clip_factor(&self.plan.params, max_norm)?;
        if factor < 1.0 {
            let scaled = |g: &Option<Tensor>| g.as_ref().map(|g| g.mul(factor)).transpose();
            gradients.rows = gradients.rows.iter().map(scaled).collect::<Result<_>>()?;
        }
        Ok(norm)
    }

    /// Updates the rows of this rank and gathers the rows of all ranks: every rank has the new
    /// parameters.
    ///
    /// # Errors
    /// As [`Optimizer::step`]; if a trainable parameter has no gradient, also with `skip_missing`;
    /// if a rank fails.
    #[track_caller]
    pub fn step(&mut self, gradients: &ShardGradients) -> Result<()> {
        let _op = enter("step");
        // on every rank, also on one that has no rows of this parameter
        if let Some(i) = gradients.present.iter().position(|present| !present) {
            let text = format!("parameter {:?} has no gradient", self.plan.params[i].name());
            return Err(Error::gradient(text)
                .help("was its layer called? if not: param.set_trainable(false)?"));
        }
        self.refresh()?;
        let by_name: BTreeMap<&str, &Tensor> = self
            .pieces
            .iter()
            .zip(&gradients.rows)
            .filter_map(|(piece, g)| Some((piece.as_ref()?.name(), g.as_ref()?)))
            .collect();
        // a rank without rows only gathers
        if self.pieces.iter().any(Option::is_some) {
            self.optimizer.step_by(&mut |param| {
                by_name
                    .get(param.name())
                    .map(|g| (*g).clone())
                    .ok_or_else(|| Error::internal("rows without a gradient"))
            })?;
        }
        self.gather()
    }

    /// Reads the rows of whole parameters that were set since the last step.
    fn refresh(&mut self) -> Result<()> {
        let (own, whole) = (self.data.comm().rank(), &self.whole);
        for (i, param) in whole.plan.params.iter().enumerate() {
            let value = param.value();
            if let Some(piece) = &whole.pieces[i]
                && !value.same_storage(&self.known[i])
            {
                piece.set(&rows(&detached(&value)?, &whole.plan.divided(i)[own])?)?;
            }
            self.known[i] = value;
        }
        Ok(())
    }

    /// Every rank's whole parameters from the rows of all.
    fn gather(&mut self) -> Result<()> {
        let (data, plan) = (&self.data, &self.whole.plan);
        data.shards().into_iter().for_each(FullyShard::discard);
        let gathering = self.whole.start(&**data.comm(), &plan.device)?;
        let values = self.whole.finish(gathering, &mut data.traffic())?;
        Param::set_all(plan.params.iter().zip(&values))?;
        self.known = plan.params.iter().map(Param::value).collect();
        Ok(())
    }
}

/// The state of the plain optimizer. Every rank takes part; rank 0 has the tensors, in the memory
/// of the host.
impl<O: Optimizer> Stateful for Zero<O> {
    fn state(&self) -> Result<State> {
        let own = self.optimizer.state()?;
        let (rank, comm, host) = (self.data.comm().rank(), self.data.comm(), Reference::new());
        let mut state = State::default();
        state.set("lr", self.lr());
        let mut names = self.optimizer.state_names().to_vec();
        names.push("master");
        for (i, param) in self.plan.params.iter().enumerate() {
            let divided = self.plan.divided(i);
            let key = format!("{}.steps", param.name());
            let mine = own.values.get(&key).cloned().unwrap_or_default();
            // a rank without rows has no count
            let steps = comm.gather_bytes(mine.into_bytes())?;
            if let Some(steps) = steps.iter().find(|steps| !steps.is_empty()) {
                state.set(&key, String::from_utf8_lossy(steps));
            }
            for name in &names {
                let key = format!("{}.{name}", param.name());
                let part = own.tensors.get(&key);
                let has = comm.gather_bytes(vec![u8::from(part.is_some())])?;
                if has.iter().all(|has| *has == [0]) {
                    continue;
                }
                let value = param.value();
                let part = match part {
                    Some(part) => part.to(&host)?,
                    None => Tensor::zeros(0, value.dtype().compute(), &host)?,
                };
                let shares = divided.iter().map(|rows| rows.len() * row_size(&value)).collect();
                let all = comm.start(Collective::of(Kind::AllGather, &part, shares)?).wait()?;
                if rank == 0 {
                    state.tensors.insert(key, all.into_tensor()?.reshape(*value.shape())?);
                }
            }
        }
        Ok(state)
    }

    /// Restores the state of a plain optimizer, of which each rank keeps its rows. Restore the
    /// model first: the rows of the parameters are read again.
    fn set_state(&mut self, state: &State) -> Result<()> {
        let rank = self.data.comm().rank();
        let mut own = State::default();
        own.set("lr", state.get::<f64>("lr")?);
        let mut mismatch = KeyMismatch::default();
        let mut unexpected: Vec<&String> = state.tensors.keys().collect();
        let mut names = self.optimizer.state_names().to_vec();
        names.push("master");
        for (i, param) in self.plan.params.iter().enumerate() {
            let mine = &self.plan.divided(i)[rank];
            for name in &names {
                let key = format!("{}.{name}", param.name());
                let Some(whole) = state.tensors.get(&key) else { continue };
                unexpected.retain(|known| **known != key);
                if *whole.shape() != param.shape() {
                    mismatch.shape(&key, &whole.shape()[..], &param.shape());
                } else if !mine.is_empty() {
                    let mine = rows(&detached(whole)?, mine)?.to(&self.plan.device)?;
                    own.tensors.insert(key, mine.copy()?);
                }
            }
            let key = format!("{}.steps", param.name());
            if let (Some(steps), false) = (state.values.get(&key), mine.is_empty()) {
                own.set(&key, steps);
            }
        }
        unexpected.into_iter().for_each(|key| mismatch.unexpected(key));
        mismatch.check("the optimizer")?;
        self.refresh()?;
        self.optimizer.set_state(&own)
    }
}

/// Whole parameters: the next largest one goes to the rank with the fewest elements.
fn assign(params: &[Param], ranks: usize) -> Vec<Vec<Range<usize>>> {
    let mut order: Vec<usize> = (0..params.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(params[i].shape().numel()));
    let mut filled = vec![0usize; ranks];
    let mut divided = vec![Vec::new(); params.len()];
    for i in order {
        let owner = (0..ranks).min_by_key(|&rank| filled[rank]).unwrap_or(0);
        filled[owner] += params[i].shape().numel();
        let n = count_rows(&params[i]);
        divided[i] = (0..ranks).map(|rank| if rank == owner { 0..n } else { 0..0 }).collect();
    }
    divided
}
