//! [`FullyShard`]: parameters that are whole only while their layer computes.
//!
//! ```text
//! forward    gather unit 1 │ gather unit 2   │ gather unit 3   │
//!                          │ compute unit 1  │ compute unit 2  │ compute unit 3
//! backward   the same from the last unit to the first: each is gathered and computed again
//! ```
//!
//! A unit runs as a checkpoint, so nothing keeps its whole parameters. The gradients go to the
//! buckets of [`Zero`](super::Zero), which leave each rank the mean gradient of its rows.

use super::broadcast::broadcast;
use super::buckets::{Add, Reducer, rows};
use super::communicator::{Communicator, IntoCommunicator};
use super::released::{is_sharded, release};
use super::shards::{Gathering, Shards, divide};
use super::traffic::Traffic;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use teeny_autograd::{Function, Gradients, Saved, apply, checkpoint, detached, is_recomputing};
use teeny_core::context::enter;
use teeny_core::device::common;
use teeny_core::{Error, Reference, Result, Tensor, ToDevice};
use teeny_formats::{KeyMismatch, State};
use teeny_nn::state::Stateful;
use teeny_nn::store::Role;
use teeny_nn::{Init, Module, Param, Path, Store};

/// Training in which each rank keeps a part of the parameters, their gradients and the optimizer's
/// state: with n ranks an nth. ZeRO stage 3, fully sharded data parallelism.
///
/// The model consists of units, such as the blocks of a transformer. A unit gathers its whole
/// parameters from all ranks, computes, and frees them. While it computes, the ranks gather the
/// parameters of the next unit, in the order in which the units were made. The backward pass
/// gathers and computes each unit again ([`teeny_autograd::checkpoint`]). Beside its rows a rank
/// holds about two units, and the gradients of one.
///
/// [`Zero`](super::Zero) with [`FullyShard::data_parallel`] trains it. Parameters outside units,
/// such as embeddings that are tied to a head, are whole on every rank; `Zero` divides their
/// optimizer state. Buffers and quantised weights stay whole. Parameters are bit-equal to
/// [`DataParallel`](super::DataParallel) with as many ranks. All ranks run the same units in the
/// same order, each at most once for a loss. Outside its unit a parameter has no elements: reading
/// them is an error. Freeze parameters in the function that makes the unit.
///
/// As [`Stateful`] it is the state of the plain model, which can be restored with any number of
/// ranks, also without it. Every rank takes part; rank 0 has the tensors, in the memory of the
/// host.
///
/// # Example
/// ```
/// use teeny_distributed::{FullyShard, Threads, Zero};
/// use teeny_nn::prelude::*;
/// Threads::run(2, |comm| {
///     let store = Store::new(Autograd::new(device("cpu")?));
///     let shards = FullyShard::new(&store, comm)?;
///     let fc1 = shards.unit(&store.at("fc1"), |path| Linear::new(path, 4, 6))?;
///     let fc2 = shards.unit(&store.at("fc2"), |path| Linear::new(path, 6, 2))?;
///     let mut zero = Zero::new(shards.data_parallel()?, |params| Adam::new(params, 1e-2))?;
///     let x = Tensor::ones((8, 4), DType::F32, store.device())?; // (8, 4)
///     let y = fc2.forward(&fc1.forward(&x)?.tanh()?)?; // (8, 2)
///     let (_loss, gradients) = zero.backward(&y.square()?.mean_all()?)?;
///     zero.step(&gradients)?;
///     // mean and square of half the rows
///     assert_eq!(zero.state_elements()?, 2 * (3 * 4 + 3 + 6 + 1));
///     Ok(())
/// })
/// .unwrap();
/// ```
/// Source: Rajbhandari et al. 2019, arXiv:1910.02054; Zhao et al. 2023, arXiv:2304.11277.
/// Equivalent: `torch.distributed.fsdp.fully_shard`.
#[doc(alias = "FSDP")]
#[doc(alias = "FullyShardedDataParallel")]
#[derive(Clone, Debug)]
pub struct FullyShard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    comm: Arc<dyn Communicator>,
    units: Mutex<Vec<Arc<Shards>>>,
    /// The unit that is gathered ahead.
    ahead: Mutex<Option<(usize, Gathering)>>,
    /// The gradients of the backward pass that runs.
    pass: Mutex<Option<Reducer>>,
    traffic: Arc<Mutex<Traffic>>,
    /// A leaf, so that the operations of units are recorded.
    leaf: Param,
}

impl FullyShard {
    /// A model without units yet, whose parameters will be in `store`.
    ///
    /// # Errors
    /// If the device fails.
    #[track_caller]
    pub fn new(store: &Store, comm: impl IntoCommunicator) -> Result<FullyShard> {
        let _op = enter("FullyShard::new");
        let leaf = Store::new(store.device()).root().param("units", (), Init::ZEROS)?;
        let (store, comm) = (store.clone(), comm.into_communicator());
        let (units, ahead, pass, traffic) = Default::default();
        Ok(FullyShard(Arc::new(Inner { store, comm, units, ahead, pass, traffic, leaf })))
    }

    /// The next unit: `make` makes its module at `path`, and the parameters below `path` are
    /// divided among the ranks, with the values of rank 0. So a rank holds at most one whole unit
    /// while the model is made.
    ///
    /// # Errors
    /// The errors of `make`; if a parameter is in another unit, the ranks have other parameters, or
    /// a rank fails.
    #[track_caller]
    pub fn unit<M>(&self, path: &Path, make: impl FnOnce(&Path) -> Result<M>) -> Result<Unit<M>> {
        let _op = enter("FullyShard::unit");
        let (module, inner) = (make(path)?, &self.0);
        let divides = |param: &Param| param.role() != Role::Buffer && param.quantized().is_none();
        let params: Vec<Param> = path.all().into_iter().filter(divides).collect();
        if let Some(param) = params.iter().find(|param| is_sharded(param)) {
            return Err(Error::value(format!("{:?} is in another unit", param.name()))
                .help("the paths of units do not contain each other"));
        }
        broadcast(&params, &inner.store, &*inner.comm)?;
        let divided = params.iter().map(|param| divide(param, inner.comm.size())).collect();
        let rank = inner.comm.rank();
        let shards = Shards::new(params, divided, usize::MAX, &inner.store, rank)?;
        shards.plan.params.iter().try_for_each(release)?;
        let mut units = lock(&inner.units);
        units.push(Arc::new(shards));
        Ok(Unit { module: Arc::new(module), shards: self.clone(), index: units.len() - 1 })
    }

    /// The parameters.
    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    /// The ranks.
    pub(super) fn comm(&self) -> Arc<dyn Communicator> {
        self.0.comm.clone()
    }

    /// The exchanges, of gradients too.
    pub(super) fn traffic(&self) -> Arc<Mutex<Traffic>> {
        self.0.traffic.clone()
    }

    /// The rows of this rank of a parameter that is in a unit.
    pub(super) fn piece(&self, name: &str) -> Option<Option<Param>> {
        lock(&self.0.units).iter().find_map(|unit| {
            let i = unit.plan.params.iter().position(|param| param.name() == name)?;
            Some(unit.pieces[i].clone())
        })
    }

    /// Drops what is gathered ahead: the pieces change, or a pass is over.
    pub(super) fn discard(&self) {
        *lock(&self.0.ahead) = None;
    }

    /// Passes the gradients of the backward pass `run` to `reducer`.
    pub(super) fn collect(
        &self,
        reducer: Reducer,
        run: impl FnOnce(&mut Add<'_>) -> Result<Gradients>,
    ) -> Result<Reducer> {
        *lock(&self.0.pass) = Some(reducer);
        let result = run(&mut |i, g| self.with_pass(|pass| pass.add(i, g)));
        let reducer = lock(&self.0.pass).take();
        self.discard();
        result?;
        reducer.ok_or_else(|| Error::internal("another pass took the gradients"))
    }

    /// Calls `add` with the gradients of the backward pass that runs.
    fn with_pass(&self, add: impl FnOnce(&mut Reducer) -> Result<()>) -> Result<()> {
        add(lock(&self.0.pass).as_mut().ok_or_else(|| {
            Error::gradient("only Zero::backward takes the gradients of units")
                .help("zero.backward(&loss)?")
        })?)
    }

    /// Runs `body` with the whole parameters of unit `i`, and starts to gather those of the next unit.
    fn with_unit<T>(&self, i: usize, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let inner = &*self.0;
        let units = lock(&inner.units).clone();
        let start = |i: usize| units[i].start(&*inner.comm, &units[i].plan.device);
        let ahead = lock(&inner.ahead).take().filter(|(unit, _)| *unit == i);
        let gathering = ahead.map_or_else(|| start(i), |(_, gathering)| Ok(gathering))?;
        let whole = units[i].finish(gathering, &mut lock(&inner.traffic))?;
        let next = if is_recomputing() { i.checked_sub(1) } else { Some(i + 1) };
        if let Some(next) = next.filter(|&next| next < units.len()) {
            *lock(&inner.ahead) = Some((next, start(next)?));
        }
        let params = &units[i].plan.params;
        let value = |(param, value): (&Param, Tensor)| {
            if !param.is_trainable() {
                return value.to(inner.store.device());
            }
            let (shards, name) = (self.clone(), param.name().to_string());
            apply(Gathered { shards, name, value }, &[&inner.leaf.value()])
        };
        let values = params.iter().zip(whole).map(value).collect::<Result<Vec<_>>>()?;
        inner.store.with_values(params.iter().map(Param::name).zip(&values), body)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // after a panic in another thread the value is still whole
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part of a model that runs on gathered parameters; from [`FullyShard::unit`].
#[derive(Debug)]
pub struct Unit<M> {
    module: Arc<M>,
    shards: FullyShard,
    index: usize,
}

impl<M: Send + Sync + 'static> Unit<M> {
    /// The module. Its parameters have no elements outside [`Unit::run`].
    pub fn module(&self) -> &M {
        &self.module
    }

    /// `body` of the module and `inputs`, with whole parameters. The backward pass runs it again:
    /// see [`teeny_autograd::checkpoint`].
    ///
    /// # Errors
    /// If `inputs` is empty, `body` fails, or a rank.
    #[track_caller]
    pub fn run(
        &self,
        inputs: &[&Tensor],
        body: impl Fn(&M, &[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        let (module, shards, i) = (self.module.clone(), self.shards.clone(), self.index);
        let device = self.shards.0.store.device();
        let to_device = |x: &&Tensor| x.to(&common(device, x.device())?);
        let inputs = inputs.iter().map(to_device).collect::<Result<Vec<_>>>()?;
        let body = move |x: &[Tensor]| shards.with_unit(i, || body(&module, x));
        checkpoint(body, &inputs.iter().collect::<Vec<_>>())
    }
}

impl<M: Module + 'static> Module for Unit<M> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(&[x], |module, x| module.forward(&x[0]))
    }

    fn describe(&self) -> String {
        self.module.describe()
    }
}

/// A whole parameter, whose gradient goes to the backward pass that runs.
struct Gathered {
    shards: FullyShard,
    name: String,
    value: Tensor,
}

impl Function for Gathered {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn forward(&self, _inputs: &[&Tensor], _saved: &mut Saved) -> Result<Tensor> {
        Ok(self.value.clone())
    }

    fn backward(&self, _saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        self.shards.with_pass(|pass| pass.add(pass.index(&self.name)?, g))?;
        Ok(vec![None])
    }
}

impl Stateful for FullyShard {
    fn state(&self) -> Result<State> {
        let (inner, host, mut state) = (&*self.0, Reference::new().to_device(), State::default());
        let mut keep = |name: &str, value: Tensor| {
            if inner.comm.rank() == 0 {
                state.tensors.insert(name.to_string(), value);
            }
        };
        for unit in lock(&inner.units).iter() {
            let gathering = unit.start(&*inner.comm, &host)?;
            let whole = unit.finish(gathering, &mut Traffic::default())?;
            unit.plan.params.iter().zip(whole).for_each(|(param, x)| keep(param.name(), x));
        }
        for param in inner.store.all().iter().filter(|param| !is_sharded(param)) {
            keep(param.name(), detached(&param.stored())?);
        }
        Ok(state)
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let (inner, mut mismatch) = (&*self.0, KeyMismatch::default());
        let mut unexpected: BTreeSet<&String> = state.tensors.keys().collect();
        let mut new = Vec::new();
        for param in inner.store.all() {
            let name = param.name();
            unexpected.remove(&name.to_string());
            match (state.tensors.get(name), self.piece(name)) {
                (None, _) => mismatch.missing(name, &param.shape()),
                (Some(whole), _) if *whole.shape() != param.shape() => {
                    mismatch.shape(name, &whole.shape()[..], &param.shape());
                }
                (Some(whole), None) => new.push((param, whole.clone())),
                (Some(_), Some(None)) => {}
                (Some(whole), Some(Some(piece))) => {
                    let mine = &divide(&param, inner.comm.size())[inner.comm.rank()];
                    let mine = rows(&detached(whole)?, mine)?.to(piece.stored().device())?;
                    new.push((piece, mine.copy()?));
                }
            }
        }
        unexpected.into_iter().for_each(|key| mismatch.unexpected(key));
        mismatch.check("the model")?;
        self.discard();
        Param::set_all(new.iter().map(|(param, value)| (param, value)))
    }
}
