//! Data-parallel training: gradients, weights and states of several ranks equal one rank's.

use crate::common;
use crate::common::Folder;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::random::{Key, with_seed};
use teeny_core::{DType, DeviceRef, Error, Result, Tensor};
use teeny_distributed::{Communicator, DataParallel, Reduce, SingleRank, Threads, Zero};
use teeny_nn::data::{Corpus, DataLoader, digits};
use teeny_nn::loss::cross_entropy;
use teeny_nn::norm::BatchNorm;
use teeny_nn::optim::{Adagrad, Adam, AdamW, Lamb, Lars, Optimizer, RmsProp, Sgd, clip_grad_norm};
use teeny_nn::state::{Checkpoint, Stateful};
use teeny_nn::train::{Confusion, Mean};
use teeny_nn::{Conv2d, Gpt, GptConfig, Linear, Module, Param, Store};

fn device() -> DeviceRef {
    Autograd::new(common::device())
}

/// A small network with parameters of odd sizes.
struct Net {
    store: Store,
    conv: Conv2d,
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new() -> Result<Net> {
        let store = Store::new(device());
        Ok(Net {
            conv: Conv2d::new(&store.at("conv"), 1, 5, 3)?,
            hidden: Linear::new(&store.at("hidden"), 5 * 26 * 26, 13)?,
            out: Linear::new(&store.at("out"), 13, 10)?,
            store,
        })
    }

    /// The mean loss of pixels (B, 784) and labels (B).
    fn loss(&self, (x, y): &(Tensor, Tensor)) -> Result<Tensor> {
        let x = self.conv.forward(&x.reshape([-1, 1, 28, 28])?)?.relu()?; // (B, 5, 26, 26)
        let x = self.hidden.forward(&x.flatten(1, -1)?)?.tanh()?; // (B, 13)
        cross_entropy(&self.out.forward(&x)?, y)
    }
}

fn values(store: &Store) -> Result<Vec<Vec<f32>>> {
    store.all().iter().map(|param| param.value().to_vec::<f32>()).collect()
}

/// The largest difference, relative to the largest value of the tensor.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let of = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        assert_eq!(a.len(), b.len());
        let scale = a.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
        a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs())) / scale
    };
    a.iter().zip(b).map(of).fold(0.0, f32::max)
}

/// Gradients and mean loss of the first batch of `batch` digits.
fn first_gradients(
    comm: impl Communicator + 'static,
    batch: usize,
    bytes: usize,
) -> Result<(f32, Vec<Vec<f32>>)> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let net = with_seed(7 + rank as u64, Net::new)?; // rank 0's weights are used
    let data = DataParallel::new(&net.store, comm)?.bucket_bytes(bytes);
    let digits = digits::load()?;
    let loader = DataLoader::new(digits.train.on(net.store.device()), batch)?
        .shuffle(3)
        .shard(rank, ranks)?;
    let batch = loader.epoch(0).next().unwrap()?;
    let share = data.share(batch.1.numel());
    let (loss, gradients) = data.backward_of(&net.loss(&batch)?, share)?;
    let all = net.store.trainable();
    let all = all.iter().map(|p| gradients.get(&p.value())?.to_vec::<f32>());
    Ok((loss.item()?, all.collect::<Result<_>>()?))
}

#[test]
fn gradients_are_those_of_the_joint_batch() {
    // also batches that the ranks cannot divide evenly, and buckets of one parameter or all
    for (batch, bytes) in [(60, 1 << 20), (61, 1), (7, 300), (30, 2000)] {
        let (loss, one) = first_gradients(SingleRank, batch, bytes).unwrap();
        for ranks in 2..=4 {
            let all = Threads::run(ranks, |comm| first_gradients(comm, batch, bytes)).unwrap();
            for (theirs, gradients) in &all {
                assert!((theirs - loss).abs() < 1e-6 * loss.abs(), "{theirs} {loss}");
                let difference = difference(&one, gradients);
                assert!(difference < 1e-6, "{ranks} ranks, {batch} items: {difference}");
                assert_eq!(gradients, &all[0].1, "all ranks have the same bits");
            }
        }
    }
}

/// The weights after `steps` steps.
fn train(comm: Threads, steps: usize, how: &str) -> Result<Vec<Vec<f32>>> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let net = with_seed(1, Net::new)?;
    let digits = digits::load()?;
    let loader =
        DataLoader::new(digits.train.on(net.store.device()), 32)?.shuffle(3).shard(rank, ranks)?;
    let data = DataParallel::new(&net.store, comm)?.bucket_bytes(900);
    let batches = (0..).flat_map(|epoch| loader.epoch(epoch)).take(steps);
    if how == "zero" {
        let mut zero = Zero::new(data, |params| AdamW::new(params, 1e-2))?;
        for batch in batches {
            let batch = batch?;
            let share = zero.data().share(batch.1.numel());
            let (_, mut gradients) = zero.backward_of(&net.loss(&batch)?, share)?;
            zero.clip_grad_norm(&mut gradients, 100.0)?;
            zero.step(&gradients)?;
        }
    } else {
        let mut adam = AdamW::new(net.store.trainable(), 1e-2);
        for batch in batches {
            let batch = batch?;
            let share = data.share(batch.1.numel());
            let (_, mut gradients) = data.backward_of(&net.loss(&batch)?, share)?;
            clip_grad_norm(&mut gradients, &net.store.trainable(), 100.0)?;
            adam.step(&gradients)?;
        }
    }
    values(&net.store)
}

#[test]
fn trained_weights_are_the_same_bits_in_every_run_on_every_rank_and_with_zero() {
    let alone = Threads::run(1, |comm| train(comm, 8, "whole")).unwrap();
    for ranks in 2..=4 {
        let first = Threads::run(ranks, |comm| train(comm, 8, "whole")).unwrap();
        assert!(difference(&alone[0], &first[0]) < 1e-3);
        for how in ["whole", "whole", "zero"] {
            let again = Threads::run(ranks, |comm| train(comm, 8, how)).unwrap();
            assert!(again.iter().all(|weights| *weights == first[0]), "{ranks} ranks, {how}");
        }
    }
}

type Make = fn(Vec<Param>) -> Box<dyn Optimizer>;

const OPTIMIZERS: [(&str, Make); 8] = [
    ("sgd", |p| Box::new(Sgd::new(p, 0.05).momentum(0.9))),
    ("adam", |p| Box::new(Adam::new(p, 1e-2).amsgrad(true))),
    ("adamw", |p| Box::new(AdamW::new(p, 1e-2))),
    ("rmsprop", |p| Box::new(RmsProp::new(p, 1e-3))),
    ("adagrad", |p| Box::new(Adagrad::new(p, 1e-2))),
    ("lamb", |p| Box::new(Lamb::new(p, 1e-2))),
    ("lars", |p| Box::new(Lars::new(p, 1e-2))),
    ("master", |p| Box::new(Adam::new(p, 1e-2).master_weights(true))),
];

/// Two steps of a model on gradients that depend on step and parameter alone; parameters and state.
fn two_steps(net: &Store, mut step: impl FnMut(&Tensor) -> Result<()>) -> Result<()> {
    for i in 0..2 {
        let sum = net
            .trainable()
            .iter()
            .enumerate()
            .map(|(k, p)| {
                let scale = 0.3 + i as f64 + k as f64;
                p.value().cast(DType::F32)?.mul(scale)?.sin()?.sum_all()
            })
            .reduce(|a, b| a?.add(&b?))
            .unwrap()?;
        step(&sum)?;
    }
    Ok(())
}

fn odd_store(dtype: DType) -> Result<Store> {
    let store = Store::with_dtype(device(), dtype);
    with_seed(5, || {
        Linear::new(&store.at("a"), 7, 5)?;
        Linear::new(&store.at("b"), 3, 1)?;
        store.root().param("scalar", (), teeny_nn::Init::Uniform { low: 0.1, high: 1.0 })
    })?;
    Ok(store)
}

fn bytes(state: &teeny_formats::State) -> Result<Vec<(String, Vec<u8>)>> {
    state.tensors.iter().map(|(name, x)| Ok((name.clone(), x.to_bytes()?))).collect()
}

#[test]
fn every_optimizer_is_the_same_with_divided_state_and_checkpoints_fit_all_numbers_of_ranks() {
    let folder = Folder::new("zero");
    for (name, make) in OPTIMIZERS {
        let dtype = if name == "master" { DType::BF16 } else { DType::F32 };
        // plain training: four steps, and its state after two
        let store = odd_store(dtype).unwrap();
        let mut plain = make(store.trainable());
        let run = |store: &Store, plain: &mut Box<dyn Optimizer>| {
            two_steps(store, |loss| plain.step(&loss.backward()?)).unwrap();
        };
        run(&store, &mut plain);
        let half = plain.state().unwrap();
        let path = folder.0.join(format!("{name}.ckpt"));
        let mut checkpoint = Checkpoint::new();
        checkpoint.put("model", &store).unwrap().put("optimizer", &plain).unwrap();
        checkpoint.save(&path).unwrap();
        run(&store, &mut plain);
        let end: Vec<Vec<u8>> = store.all().iter().map(|p| p.value().to_bytes().unwrap()).collect();
        let end_state = bytes(&plain.state().unwrap()).unwrap();
        // of 2 and 4 equal gradients the mean is exact
        for ranks in [1, 2, 4] {
            Threads::run(ranks, |comm| {
                let store = odd_store(dtype)?;
                let rank = comm.rank();
                let data = DataParallel::new(&store, comm)?;
                let mut zero = Zero::new(data, make)?;
                two_steps(&store, |loss| {
                    let (_, gradients) = zero.backward(loss)?;
                    zero.step(&gradients)
                })?;
                let state = zero.state()?;
                if rank == 0 {
                    assert_eq!(bytes(&state)?, bytes(&half)?, "{name}, {ranks} ranks");
                    assert_eq!(state.values, half.values, "{name}");
                }
                // from the checkpoint of one rank on
                let loaded = Checkpoint::load(&path, store.device())?;
                loaded.restore("model", &mut store.clone())?.restore("optimizer", &mut zero)?;
                two_steps(&store, |loss| {
                    let (_, gradients) = zero.backward(loss)?;
                    zero.step(&gradients)
                })?;
                for (param, end) in store.all().iter().zip(&end) {
                    let what = format!("{name}, {ranks} ranks, {}", param.name());
                    assert_eq!(param.value().to_bytes()?, *end, "{what}");
                }
                let state = zero.state()?;
                if rank == 0 {
                    assert_eq!(bytes(&state)?, end_state, "{name}, {ranks} ranks");
                }
                let all = zero.data().comm().sum_numbers(&[zero.state_elements()? as f64])?[0];
                let whole: usize = half.tensors.values().map(Tensor::numel).sum();
                assert_eq!(all as usize, whole, "every element is on one rank");
                Ok(())
            })
            .unwrap();
        }
    }
}

#[test]
fn a_step_after_a_parameter_was_set_starts_from_the_new_value() {
    Threads::run(2, |comm| {
        let store = odd_store(DType::F32)?;
        let mut zero = Zero::new(DataParallel::new(&store, comm)?, |p| Sgd::new(p, 0.0))?;
        let weight = store.get("a.weight")?;
        weight.set(&Tensor::full((5, 7), 3.0, DType::F32, store.device())?)?;
        two_steps(&store, |loss| {
            let (_, gradients) = zero.backward(loss)?;
            zero.step(&gradients)
        })?;
        assert_eq!(weight.value().to_vec::<f32>()?, [3.0; 35]);
        Linear::new(&store.at("late"), 2, 2)?;
        let loss = store.get("late.weight")?.value().sum_all()?;
        let error = zero.backward(&loss).unwrap_err();
        assert!(error.message().contains("added or frozen after Zero"), "{error}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn memory_of_adam_is_divided_by_the_number_of_ranks() {
    for ranks in 1..=4 {
        let elements = Threads::run(ranks, |comm| {
            let store = Store::new(device());
            let gpt = Gpt::new(&store.root(), GptConfig::new(65, 16, 2, 4, 32))?;
            let mut zero = Zero::new(DataParallel::new(&store, comm)?, |p| Adam::new(p, 1e-3))?;
            let tokens = Tensor::new([[1i32, 2, 3]], store.device())?;
            let (_, gradients) = zero.backward(&gpt.logits(&tokens)?.square()?.mean_all()?)?;
            zero.step(&gradients)?;
            Ok((zero.state_elements()?, store.count()))
        })
        .unwrap();
        for (elements, params) in elements {
            let share = 2.0 * params as f64 / ranks as f64;
            assert!((elements as f64 / share - 1.0).abs() < 0.05, "{ranks}: {elements} {share}");
        }
    }
}

#[test]
fn gradients_are_accumulated_without_communication_and_averaged_once() {
    let run = |comm: Threads, parts: usize, divided: bool| {
        let net = with_seed(1, Net::new)?;
        let (rank, ranks) = (comm.rank(), comm.size());
        let data = Arc::new(DataParallel::new(&net.store, comm)?);
        let digits = digits::load()?;
        let images = digits.train.on(net.store.device());
        let loader = DataLoader::new(images, 24 * ranks / parts)?.shard(rank, ranks)?;
        let mut all: Option<teeny_autograd::Gradients> = None;
        let mut loss = None;
        for batch in loader.epoch(0).take(parts) {
            let part = net.loss(&batch?)?.div(parts as f64)?;
            let gradients = part.backward()?;
            match &mut all {
                Some(all) => all.accumulate(&gradients)?,
                None => all = Some(gradients),
            }
            loss = Some(part);
        }
        let (mut all, loss) = (all.unwrap(), loss.unwrap());
        if divided {
            let mut zero = Zero::new(data, |params| Sgd::new(params, 1.0))?;
            let (_, gradients) = zero.average(&loss, &all)?;
            zero.step(&gradients)?;
        } else {
            let _ = data.average(&loss, &mut all)?;
            Sgd::new(net.store.trainable(), 1.0).step(&all)?;
        }
        values(&net.store)
    };
    let one = Threads::run(2, |comm| run(comm, 1, false)).unwrap();
    let four = Threads::run(2, |comm| run(comm, 4, false)).unwrap();
    assert!(difference(&one[0], &four[0]) < 2e-6);
    assert_eq!(Threads::run(2, |comm| run(comm, 4, true)).unwrap(), four);
}

#[test]
fn buffers_of_rank_zero_are_copied_on_request() {
    Threads::run(3, |comm| {
        let store = Store::new(device());
        let norm = BatchNorm::new(&store.at("norm"), 2)?;
        let data = DataParallel::new(&store, comm.clone())?;
        let x = Tensor::new([[1.0f32, 2.0], [comm.rank() as f32, 5.0]], store.device())?;
        let _ = norm.forward(&x)?;
        let mean = || store.get("norm.running_mean")?.value().to_vec::<f32>();
        assert_eq!(mean()?[0], 0.1 * (1.0 + comm.rank() as f32) / 2.0);
        data.broadcast_buffers()?;
        assert_eq!(mean()?[0], 0.05);
        Ok(())
    })
    .unwrap();
}

#[test]
fn traffic_keeps_the_names_of_buckets_that_are_no_more() {
    Threads::run(2, |comm| {
        let net = with_seed(1, Net::new)?;
        let data = DataParallel::new(&net.store, comm)?.bucket_bytes(64);
        let x = Tensor::ones((2, 784), DType::F32, net.store.device())?;
        let y = Tensor::new([3i32, 4], net.store.device())?;
        let _ = data.backward(&net.loss(&(x.clone(), y.clone()))?)?;
        for param in net.store.all().iter().filter(|param| !param.name().starts_with("out")) {
            param.set_trainable(false)?;
        }
        let _ = data.backward(&net.loss(&(x, y))?)?;
        let names: Vec<String> = data.spans().iter().map(|span| span.name.to_string()).collect();
        assert_eq!(names.iter().filter(|name| name.contains("conv.weight")).count(), 1);
        assert_eq!(names.iter().filter(|name| name.contains("out.weight")).count(), 2);
        assert!(data.traffic_table().contains("conv.weight"));
        Ok(())
    })
    .unwrap();
}

#[test]
fn corpora_are_sharded_by_example() {
    let device = common::device();
    let tokens: Vec<u32> = (0..500).map(|i| i * i % 61).collect();
    let corpus = Corpus::new(&tokens, &device).unwrap();
    let key = Key { seed: 3, draw: 9 };
    let (x, _) = corpus.batch(10, 8, key).unwrap();
    for ranks in 1..=4 {
        let parts: Vec<Tensor> = (0..ranks)
            .map(|rank| corpus.shard(rank, ranks).unwrap().batch(10, 8, key).unwrap().0)
            .collect();
        let joined = Tensor::cat(&parts, 0).unwrap();
        assert_eq!(joined.to_vec::<i32>().unwrap(), x.to_vec::<i32>().unwrap());
    }
    assert!(corpus.shard(0, 4).unwrap().batch(3, 8, key).is_err(), "no example for a rank");
}

#[test]
fn metrics_are_those_of_all_ranks() {
    Threads::run(3, |comm| {
        let rank = comm.rank();
        let mut mean = Mean::new();
        mean.add(rank as f64, 1.0 + rank as f64);
        assert_eq!(mean.all_reduce(&comm)?.value(), (2.0 + 6.0) / 6.0);
        let mut confusion = Confusion::new(2);
        let logits = Tensor::new([[0.0f32, 1.0]], common::device())?;
        confusion.add(&logits, &Tensor::new([i32::from(rank > 0)], common::device())?)?;
        let all = confusion.all_reduce(&comm)?;
        assert_eq!((all.count(1, 1), all.count(0, 1), all.accuracy()), (2, 1, 2.0 / 3.0));
        Ok(())
    })
    .unwrap();
}

/// The error of rank 0.
fn error_of(ranks: usize, body: impl Fn(Threads) -> Result<()> + Sync) -> String {
    Threads::run(ranks, |comm| Ok(body(comm).err().map(|e: Error| e.message().to_string())))
        .unwrap()
        .into_iter()
        .enumerate()
        .map(|(rank, error)| error.unwrap_or_else(|| panic!("no error on rank {rank}")))
        .next()
        .unwrap()
}

#[test]
fn models_that_differ_are_errors_before_the_first_step() {
    let error = error_of(3, |comm| {
        let store = Store::new(device());
        Linear::new(&store.at("fc"), 3, 4 + comm.rank() / 2)?;
        DataParallel::new(&store, comm).map(|_| ())
    });
    assert_eq!(
        error,
        "rank 0 has parameter \"fc.weight\" f32 (4, 3), \
         but rank 2 has parameter \"fc.weight\" f32 (5, 3)"
    );
    let error = error_of(2, |comm| {
        let dtype = if comm.rank() == 1 { DType::BF16 } else { DType::F32 };
        let store = Store::with_dtype(device(), dtype);
        Linear::new(&store.at("fc"), 3, 4)?;
        DataParallel::new(&store, comm).map(|_| ())
    });
    assert!(error.contains("but rank 1 has parameter \"fc.weight\" bf16"), "{error}");
    let error = error_of(2, |comm| {
        let store = Store::new(device());
        (0..=comm.rank()).try_for_each(|i| Linear::new(&store.at(i), 3, 4).map(|_| ()))?;
        DataParallel::new(&store, comm).map(|_| ())
    });
    assert!(error.contains("rank 0 has nothing more, but rank 1 has parameter"), "{error}");
    let error = error_of(2, |comm| {
        teeny_core::manual_seed(comm.rank() as u64);
        DataParallel::new(&Store::new(device()), comm).map(|_| ())
    });
    assert_eq!(error, "rank 0 has seed 0, but rank 1 has 1");
}

#[test]
fn a_loss_or_gradient_that_is_not_finite_names_the_rank() {
    let run = |bad_loss: bool| {
        error_of(3, move |comm| {
            let rank = comm.rank();
            let store = Store::new(device());
            let layer = Linear::new(&store.at("fc"), 2, 1)?;
            let data = DataParallel::new(&store, comm)?;
            let before = values(&store)?;
            let x = Tensor::ones((4, 2), DType::F32, store.device())?;
            let y = layer.forward(&x)?;
            let loss = match (rank, bad_loss) {
                (2, true) => y.mul(f64::NAN)?.mean_all()?,
                // finite, but its derivative at 0 is infinite
                (2, false) => y.sub(&y.detach()?)?.sqrt()?.mean_all()?,
                _ => y.mean_all()?,
            };
            let error = data.backward(&loss).unwrap_err();
            assert_eq!(values(&store)?, before);
            Err(error)
        })
    };
    let error = run(true);
    assert!(error.contains("has NaN or infinite elements on rank 2"), "{error}");
    let error = run(false);
    assert!(error.starts_with("the gradient of \"fc."), "{error}");
    assert!(error.ends_with("has NaN or infinite elements on rank 2"), "{error}");
}

#[test]
fn a_gradient_of_divided_rows_that_is_not_finite_is_an_error_on_every_rank() {
    for row in 0..5 {
        let error = error_of(3, |comm| {
            let rank = comm.rank();
            let store = Store::new(device());
            let layer = Linear::new(&store.at("fc"), 2, 5)?;
            let zero = Zero::new(DataParallel::new(&store, comm)?, |p| Sgd::new(p, 0.1))?;
            let x = Tensor::ones((4, 2), DType::F32, store.device())?;
            let y = layer.forward(&x)?;
            // infinite for one row of the weight only
            let bad = y.slice(1, row..row + 1)?;
            let bad = bad.sub(&bad.detach()?)?.sqrt()?.mean_all()?;
            let loss = if rank == 1 { y.mean_all()?.add(&bad)? } else { y.mean_all()? };
            zero.backward(&loss).map(|_| ())
        });
        assert!(error.starts_with("the gradient of \"fc."), "{error}");
        assert!(error.ends_with("has NaN or infinite elements on rank 1"), "{error}");
    }
}

#[test]
fn a_gradient_on_some_ranks_only_is_an_error_and_on_none_is_missing() {
    let error = error_of(3, |comm| {
        let rank = comm.rank();
        let store = Store::new(device());
        let (a, b) = (Linear::new(&store.at("a"), 2, 1)?, Linear::new(&store.at("b"), 2, 1)?);
        let data = DataParallel::new(&store, comm)?;
        let x = Tensor::ones((4, 2), DType::F32, store.device())?;
        let layer = if rank == 1 { &b } else { &a };
        data.backward(&layer.forward(&x)?.mean_all()?).map(|_| ())
    });
    assert!(
        error.contains("\"b.bias\" has a gradient on rank 1, but none on rank 0")
            || error.contains("\"b.weight\" has a gradient on rank 1, but none on rank 0"),
        "{error}"
    );
    Threads::run(2, |comm| {
        let store = Store::new(device());
        let (a, b) = (Linear::new(&store.at("a"), 2, 1)?, Linear::new(&store.at("b"), 2, 1)?);
        let data = DataParallel::new(&store, comm)?;
        let x = Tensor::ones((4, 2), DType::F32, store.device())?;
        let (_, gradients) = data.backward(&a.forward(&x)?.mean_all()?)?;
        assert!(gradients.contains(&a.weight.value()) && !gradients.contains(&b.weight.value()));
        Ok(())
    })
    .unwrap();
}

#[test]
fn ranks_draw_random_numbers_of_their_own_and_share_rank_zeros_parameters() {
    let all = Threads::run(3, |comm| {
        let store = Store::new(device());
        let rank = comm.rank();
        with_seed(rank as u64, || Linear::new(&store.at("fc"), 3, 4))?;
        let data = DataParallel::new(&store, comm)?;
        let noise = Tensor::rand((4,), DType::F32, store.device())?.to_vec::<f32>()?;
        assert_eq!(data.is_first(), rank == 0);
        let state = teeny_core::random::state();
        DataParallel::new(&store, data.comm())?;
        assert_eq!(teeny_core::random::state(), state, "a second model keeps the generators");
        let same = data.comm().all_reduce(&store.get("fc.weight")?.value(), Reduce::Max)?;
        assert_eq!(same.to_vec::<f32>()?, store.get("fc.weight")?.value().to_vec::<f32>()?);
        Ok((noise, values(&store)?))
    })
    .unwrap();
    assert!(all[0].0 != all[1].0 && all[1].0 != all[2].0 && all[0].0 != all[2].0);
    assert!(all.iter().all(|(_, weights)| *weights == all[0].1));
}
