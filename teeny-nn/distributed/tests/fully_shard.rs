//! Fully sharded training: the same bits as with whole parameters, in a part of the memory.

use crate::common;
use crate::common::Folder;
use std::sync::{Arc, Mutex};
use teeny_autograd::{Autograd, Grad};
use teeny_core::random::with_seed;
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Reference, Result, Tensor};
use teeny_cpu::{Cpu, CpuOptions};
use teeny_distributed::{
    Collective, Communicator, DataParallel, FullyShard, Pending, SingleRank, SumOverRanks, Threads,
    Unit, Zero,
};
use teeny_nn::norm::BatchNorm;
use teeny_nn::optim::{Adam, AdamW, Lamb, Optimizer, Sgd};
use teeny_nn::state::{Checkpoint, Stateful};
use teeny_nn::{Init, LayerNorm, Linear, Module, Param, Path, Sequential, Store};

fn device() -> DeviceRef {
    Autograd::new(common::device())
}

/// A residual block with parameters of odd sizes, fewer rows than ranks, and a scalar.
struct Block {
    norm: LayerNorm,
    up: Linear,
    down: Linear,
    scale: Param,
}

const WIDTH: usize = 5;

impl Block {
    fn new(path: &Path) -> Result<Block> {
        Ok(Block {
            norm: LayerNorm::new(&path.at("norm"), WIDTH)?,
            up: Linear::new(&path.at("up"), WIDTH, 7)?,
            down: Linear::new(&path.at("down"), 7, WIDTH)?,
            scale: path.param("scale", (), Init::Uniform { low: 0.5, high: 1.0 })?,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.up.forward(&self.norm.forward(x)?)?.tanh()?; // (B, 7)
        x.add(&self.down.forward(&h)?.mul(self.scale.value())?)
    }
}

/// A layer outside units, two blocks, and a head with fewer rows than ranks.
fn model(store: &Store, shards: Option<&FullyShard>, freeze: bool) -> Result<Sequential> {
    let mut chain = Sequential::new().then(Linear::new(&store.at("first"), 3, WIDTH)?);
    let block = |path: &Path| {
        let block = Block::new(path)?;
        block.up.weight.set_trainable(!freeze)?;
        Ok(block)
    };
    for i in 0..2 {
        let path = store.at("h").at(i);
        chain = match shards {
            Some(shards) => chain.then(shards.unit(&path, block)?),
            None => chain.then(block(&path)?),
        };
    }
    let path = store.at("head");
    let head = |path: &Path| Linear::new(path, WIDTH, 2);
    Ok(match shards {
        Some(shards) => chain.then(shards.unit(&path, head)?),
        None => chain.then(head(&path)?),
    })
}

/// The loss of step `step` on `rank`.
fn loss(model: &Sequential, store: &Store, step: usize, rank: usize) -> Result<Tensor> {
    let x: Vec<f32> = (0..12).map(|i| ((i * 7 + step * 5 + rank * 3) as f32).sin()).collect();
    let x = Tensor::from_vec(x, (4, 3), store.device())?.cast(store.dtype())?; // (B, 3)
    model.forward(&x)?.cast(DType::F32)?.sub(0.3)?.square()?.mean_all()
}

type Bits = (Vec<f32>, Vec<(String, Vec<u8>)>);

fn bits(state: &teeny_formats::State) -> Result<Vec<(String, Vec<u8>)>> {
    state.tensors.iter().map(|(name, x)| Ok((name.clone(), x.to_bytes()?))).collect()
}

fn adam(dtype: DType) -> impl Fn(Vec<Param>) -> Adam {
    move |params| Adam::new(params, 1e-2).master_weights(dtype != DType::F32)
}

/// Losses and parameters of `steps` steps of plain or data-parallel training.
fn whole(comm: Option<Threads>, dtype: DType, freeze: bool, steps: usize) -> Result<Bits> {
    let store = Store::with_dtype(device(), dtype);
    let model = with_seed(3, || model(&store, None, freeze))?;
    let mut losses = Vec::new();
    let rank = comm.as_ref().map_or(0, Communicator::rank);
    let data = comm.map(|comm| DataParallel::new(&store, comm)).transpose()?;
    let mut optimizer = adam(dtype)(store.trainable());
    for step in 0..steps {
        let loss = loss(&model, &store, step, rank)?;
        let (loss, gradients) = match &data {
            Some(data) => data.backward(&loss)?,
            None => (loss.clone(), loss.backward()?),
        };
        losses.push(loss.item::<f32>()?);
        optimizer.step(&gradients)?;
    }
    Ok((losses, bits(&store.state()?)?))
}

/// The same with units; the parameters on rank 0.
fn sharded(comm: Threads, dtype: DType, freeze: bool, steps: usize) -> Result<Bits> {
    let (rank, store) = (comm.rank(), Store::with_dtype(device(), dtype));
    let shards = FullyShard::new(&store, comm)?;
    // the values of rank 0 are used
    let model = with_seed(3 + rank as u64, || model(&store, Some(&shards), freeze))?;
    let mut zero = Zero::new(shards.data_parallel()?, adam(dtype))?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let (loss, gradients) = zero.backward(&loss(&model, &store, step, rank)?)?;
        losses.push(loss.item::<f32>()?);
        zero.step(&gradients)?;
    }
    Ok((losses, bits(&shards.state()?)?))
}

#[test]
fn losses_and_parameters_are_the_same_bits_as_with_whole_parameters() {
    for (dtype, freeze) in [(DType::F32, false), (DType::F32, true), (DType::BF16, false)] {
        let alone = whole(None, dtype, freeze, 4).unwrap();
        for ranks in 1..=4 {
            let own = Threads::run(ranks, |comm| sharded(comm, dtype, freeze, 4)).unwrap();
            let all = Threads::run(ranks, |comm| whole(Some(comm), dtype, freeze, 4)).unwrap();
            assert_eq!(own[0], all[0], "{ranks} ranks, {dtype}");
            assert!(own.iter().all(|(losses, _)| *losses == all[0].0));
            if ranks == 1 {
                assert_eq!(own[0], alone, "{dtype}");
            }
        }
    }
}

#[test]
fn a_checkpoint_of_units_fits_every_number_of_ranks_and_the_plain_model() {
    let folder = Folder::new("fully_shard");
    let path = |ranks: usize| folder.0.join(format!("{ranks}.ckpt"));
    let run = |comm: Threads, from: usize, to: usize| {
        let (rank, store) = (comm.rank(), Store::new(device()));
        let mut shards = FullyShard::new(&store, comm)?;
        let model = with_seed(3, || model(&store, Some(&shards), false))?;
        let mut zero = Zero::new(shards.data_parallel()?, |params| AdamW::new(params, 1e-2))?;
        if from > 0 {
            let loaded = Checkpoint::load(path(from), Reference::new())?;
            loaded.restore("model", &mut shards)?.restore("optimizer", &mut zero)?;
        }
        for step in 0..2 {
            // the same items on all ranks: the mean of 2 and 4 gradients is exact
            let (_, mut gradients) = zero.backward(&loss(&model, &store, step, 0)?)?;
            zero.clip_grad_norm(&mut gradients, 1e3)?;
            zero.step(&gradients)?;
        }
        let (model, optimizer) = (shards.state()?, zero.state()?);
        let mut checkpoint = Checkpoint::new();
        checkpoint.put("model", &shards)?.put("optimizer", &zero)?;
        if rank == 0 {
            checkpoint.save(path(to))?;
        }
        Ok((bits(&model)?, bits(&optimizer)?))
    };
    let plain = |from: usize| -> Result<_> {
        let mut store = Store::new(device());
        let model = with_seed(3, || model(&store, None, false))?;
        let mut adam = AdamW::new(store.trainable(), 1e-2);
        if from > 0 {
            let loaded = Checkpoint::load(path(from), store.device())?;
            loaded.restore("model", &mut store)?.restore("optimizer", &mut adam)?;
        }
        for step in 0..2 {
            adam.step(&loss(&model, &store, step, 0)?.backward()?)?;
        }
        Ok((bits(&store.state()?)?, bits(&adam.state()?)?))
    };
    let half = plain(0).unwrap();
    for ranks in [1, 2, 4] {
        let all = Threads::run(ranks, |comm| run(comm, 0, ranks)).unwrap();
        assert_eq!(all[0], half, "{ranks} ranks");
        assert!(all[1..].iter().all(|(model, state)| model.is_empty() && state.is_empty()));
    }
    let end = plain(4).unwrap();
    for (from, ranks) in [(1, 4), (4, 2), (2, 1), (4, 4)] {
        let all = Threads::run(ranks, |comm| run(comm, from, 9)).unwrap();
        assert_eq!(all[0], end, "from {from} to {ranks} ranks");
    }
    assert_eq!(plain(1).unwrap(), end);
}

const LAYERS: usize = 16;
const SIZE: usize = 96;
/// Bytes of a layer's weight and bias.
const LAYER: usize = 4 * SIZE * (SIZE + 1);

/// Two steps of Adam on 16 layers of 96 x 96: the largest number of live bytes until the end of the
/// first backward pass and of the steps, and the number after them.
fn train_within(comm: Threads, limit: Option<usize>) -> Result<[usize; 3]> {
    let options = CpuOptions::default();
    let cpu = Cpu::with_options(match limit {
        Some(limit) => options.with_memory_limit(Some(limit)),
        None => options,
    });
    let store = Store::new(Autograd::new(&cpu));
    let shards = FullyShard::new(&store, comm)?;
    let mut model = Sequential::new();
    for i in 0..LAYERS {
        model = model.then(shards.unit(&store.at(i), |path| Linear::new(path, SIZE, SIZE))?);
    }
    let data = shards.data_parallel()?.bucket_bytes(LAYER);
    let mut zero = Zero::new(data, |params| Adam::new(params, 1e-3))?;
    let mut passes = Vec::new();
    for _ in 0..2 {
        let x = Tensor::ones((2, SIZE), DType::F32, store.device())?; // (2, SIZE)
        let (_, gradients) = zero.backward(&model.forward(&x)?.square()?.mean_all()?)?;
        passes.push(cpu.pool_stats().peak_live_bytes);
        zero.step(&gradients)?;
    }
    let stats = cpu.pool_stats();
    Ok([passes[0], stats.peak_live_bytes, stats.live_bytes])
}

#[test]
fn memory_of_a_rank_is_divided_by_the_number_of_ranks() {
    let model = LAYERS * LAYER;
    println!("parameters {model} bytes; with gradients and two moments {}", 4 * model);
    for ranks in [1, 2, 4] {
        let all = Threads::run(ranks, |comm| train_within(comm, None)).unwrap();
        for (rank, [pass, peak, live]) in all.into_iter().enumerate() {
            println!(
                "{ranks} ranks, rank {rank}: {pass} bytes in a pass, {peak} in a step, {live} after"
            );
            let units = 8 * LAYER;
            // parameters and gradients
            assert!(pass < 2 * model / ranks + units, "{ranks} ranks: {pass}");
            // a step makes new parameters and moments beside the old ones
            assert!(peak < 8 * model / ranks + units, "{ranks} ranks: {peak}");
            // parameters and two moments
            assert!(live < 3 * model / ranks + units, "{ranks} ranks: {live}");
        }
    }
}

#[test]
fn a_model_that_one_rank_refuses_trains_on_four() {
    let limit = Some(LAYERS * LAYER * 2);
    let error = Threads::run(1, |comm| train_within(comm, limit)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    Threads::run(4, |comm| train_within(comm, limit)).unwrap();
}

#[test]
fn a_step_without_memory_changes_nothing() {
    let cpu = Cpu::new();
    let store = Store::new(Autograd::new(&cpu));
    let shards = FullyShard::new(&store, SingleRank).unwrap();
    let layer = shards.unit(&store.at("fc"), |path| Linear::new(path, 64, 64)).unwrap();
    let mut zero =
        Zero::new(shards.data_parallel().unwrap(), |params| Adam::new(params, 0.1)).unwrap();
    let x = Tensor::ones((2, 64), DType::F32, store.device()).unwrap();
    let mut step = || -> Result<()> {
        let (_, gradients) = zero.backward(&layer.forward(&x)?.square()?.mean_all()?)?;
        zero.step(&gradients)
    };
    let before = bits(&shards.state().unwrap()).unwrap();
    cpu.set_memory_limit(Some(cpu.pool_stats().live_bytes + 20_000));
    assert_eq!(step().unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(bits(&shards.state().unwrap()).unwrap(), before);
    cpu.set_memory_limit(None);
    step().unwrap();
    assert_ne!(bits(&shards.state().unwrap()).unwrap(), before);
}

/// Logs the operations that one rank starts.
#[derive(Clone, Debug)]
struct Logged(Arc<Mutex<Vec<String>>>);

impl Communicator for Logged {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn start(&self, collective: Collective) -> Pending {
        let text = format!("{collective:?}");
        let shares = text.split_once("shares: [").unwrap().1.split(']').next().unwrap();
        if text.contains("kind: AllGather") && shares != "0" {
            self.0.lock().unwrap().push(format!("gather {shares}"));
        }
        SingleRank.start(collective)
    }
    fn split(&self, group: usize) -> Result<Arc<dyn Communicator>> {
        SingleRank.split(group)
    }
    fn abort(&self, _: &Error) {}
}

impl SumOverRanks for Logged {
    fn sum_with_count(&self, x: &Tensor, count: usize) -> Result<(Tensor, usize)> {
        SingleRank.sum_with_count(x, count)
    }
    fn sum_of_numbers(&self, numbers: &[f64]) -> Result<Vec<f64>> {
        SingleRank.sum_of_numbers(numbers)
    }
}

#[test]
fn the_next_unit_is_gathered_before_this_one_computes() {
    let log = Logged(Arc::default());
    let store = Store::new(device());
    let shards = FullyShard::new(&store, log.clone()).unwrap();
    let units: Vec<Unit<Linear>> = (0..3)
        .map(|i| shards.unit(&store.at(i), |path| Linear::new(path, 4 + i, 5 + i)).unwrap())
        .collect();
    let zero = Zero::new(shards.data_parallel().unwrap(), |params| Sgd::new(params, 0.1)).unwrap();
    log.0.lock().unwrap().clear();
    let mut x = Tensor::ones((2, 4), DType::F32, store.device()).unwrap();
    for (i, unit) in units.iter().enumerate() {
        let log = log.0.clone();
        let body = move |layer: &Linear, x: &[Tensor]| {
            log.lock().unwrap().push(format!("compute {i}"));
            layer.forward(&x[0])
        };
        x = unit.run(&[&x], body).unwrap();
    }
    let _ = zero.backward(&x.mean_all().unwrap()).unwrap();
    let sizes = [5 * 4 + 5, 6 * 5 + 6, 7 * 6 + 7].map(|n| format!("gather {n}"));
    let compute = [0, 1, 2].map(|i| format!("compute {i}"));
    let forward = [&sizes[0], &sizes[1], &compute[0], &sizes[2], &compute[1], &compute[2]];
    let backward = [&sizes[2], &sizes[1], &compute[2], &sizes[0], &compute[1], &compute[0]];
    let expected: Vec<String> = forward.into_iter().chain(backward).cloned().collect();
    assert_eq!(*log.0.lock().unwrap(), expected);
    let spans = zero.data().spans();
    assert!(spans.iter().any(|span| span.name.starts_with("values of 1.bias")), "{spans:?}");
}

/// The error of each rank.
fn errors(ranks: usize, body: impl Fn(Threads) -> Result<()> + Sync) -> Vec<String> {
    Threads::run(ranks, |comm| {
        let result = body(comm.clone());
        let _ = result.as_ref().map_err(|error| comm.abort(error));
        Ok(result.err().map_or(String::new(), |error| error.to_string()))
    })
    .unwrap()
}

#[test]
fn a_rank_that_fails_inside_a_unit_is_an_error_on_every_rank() {
    for backward in [false, true] {
        let errors = errors(3, |comm| {
            let (rank, store) = (comm.rank(), Store::new(device()));
            let shards = FullyShard::new(&store, comm)?;
            let a = shards.unit(&store.at("a"), |path| Linear::new(path, 2, 2))?;
            let b = shards.unit(&store.at("b"), |path| Linear::new(path, 2, 2))?;
            let zero = Zero::new(shards.data_parallel()?, |params| Sgd::new(params, 0.1))?;
            let x = Tensor::ones((4, 2), DType::F32, store.device())?;
            let y = a.run(&[&x], move |layer, x| {
                let now = teeny_autograd::is_recomputing() == backward;
                if rank == 1 && now { Err(Error::value("bad item")) } else { layer.forward(&x[0]) }
            })?;
            zero.backward(&b.forward(&y)?.mean_all()?).map(|_| ())
        });
        assert!(errors.iter().all(|error| error.contains("bad item")), "{errors:?}");
    }
}

#[test]
fn misuse_is_an_error_that_names_the_parameter() {
    let store = Store::new(device());
    let mut shards = FullyShard::new(&store, SingleRank).unwrap();
    let fc = shards.unit(&store.at("fc"), |path| Linear::new(path, 2, 2)).unwrap();
    let zero = Zero::new(shards.data_parallel().unwrap(), |p| Sgd::new(p, 0.1)).unwrap();
    let x = Tensor::ones((1, 2), DType::F32, store.device()).unwrap();
    let run = || fc.forward(&x).unwrap();
    // outside the unit, and what would save parameters without elements
    let error = fc.module().forward(&x).unwrap_err().to_string();
    assert!(error.contains("fc.weight"), "{error}");
    let error = store.to_bytes().unwrap_err().to_string();
    assert!(error.contains("\"fc.weight\" has no elements here"), "{error}");
    let error = fc.module().weight.set_trainable(false).unwrap_err().to_string();
    assert!(error.contains("\"fc.weight\" has no elements here"), "{error}");
    // a weight that is tied to a layer of another unit
    let tied = shards.unit(&store.at("tied"), |_| Ok(fc.module().clone())).unwrap();
    let error = tied.forward(&x).unwrap_err().to_string();
    assert!(error.contains("fc.weight"), "{error}");
    let error = shards.unit(&store.root(), |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("\"fc.weight\" is in another unit"), "{error}");
    // gradients
    let error = run().mean_all().unwrap().backward().unwrap_err().to_string();
    assert!(error.contains("Zero::backward"), "{error}");
    let twice = fc.forward(&run()).unwrap().mean_all().unwrap();
    let error = zero.backward(&twice).unwrap_err().to_string();
    assert!(error.contains("ran twice for one loss"), "{error}");
    let lamb = Zero::new(shards.data_parallel().unwrap(), |p| Lamb::new(p, 0.1));
    let error = lamb.err().unwrap().to_string();
    assert!(error.contains("needs whole parameters"), "{error}");
    // a state that does not fit
    let before = bits(&shards.state().unwrap()).unwrap();
    let mut state = shards.state().unwrap();
    let weight = state.tensors.remove("fc.weight").unwrap();
    state.tensors.insert("fc.bias".into(), weight.clone());
    state.tensors.insert("other".into(), weight);
    let error = shards.set_state(&state).unwrap_err().to_string();
    for name in ["fc.weight", "fc.bias", "other"] {
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(bits(&shards.state().unwrap()).unwrap(), before);
    // the model still runs after all of this
    let _ = zero.backward(&run().mean_all().unwrap()).unwrap();
}

#[test]
fn buffers_and_a_gradient_that_is_not_finite() {
    let all = errors(3, |comm| {
        let (rank, store) = (comm.rank(), Store::new(device()));
        let shards = FullyShard::new(&store, comm)?;
        let norm = shards.unit(&store.at("norm"), |path| BatchNorm::new(path, 2))?;
        let zero = Zero::new(shards.data_parallel()?, |p| Sgd::new(p, 0.1))?;
        let x = Tensor::new([[1f32, 2.0], [rank as f32, 5.0]], store.device())?; // (2, 2)
        let y = norm.forward(&x)?;
        let _ = zero.backward(&y.square()?.mean_all()?)?;
        let mean = store.get("norm.running_mean")?.value().to_vec::<f32>()?;
        assert_eq!(mean[0], 0.1 * (1.0 + rank as f32) / 2.0, "computed once");
        zero.data().broadcast_buffers()?;
        let y = norm.forward(&x)?;
        let bad = if rank == 1 { y.mul(f64::NAN)? } else { y };
        zero.backward(&bad.mean_all()?).map(|_| ())
    });
    assert!(all.iter().all(|error| error.contains("NaN or infinite")), "{all:?}");
}
