//! A resumed run has the same bits as one without interruption, and a process killed while saving
//! leaves a whole checkpoint.

mod common;

use common::*;
use std::process::{Command, Stdio};
use std::time::Duration;
use teeny_autograd::Grad;
use teeny_core::random::{self, Generator};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_formats::State;
use teeny_nn::data::{DataLoader, Dataset, digits};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{
    Adagrad, Adam, AdamW, Ema, Lamb, Lars, LossScale, Muon, Optimizer, RmsProp, Sgd, clip_grad_norm,
};
use teeny_nn::schedule::Plateau;
use teeny_nn::state::{Checkpoint, Position, Random, Stateful};
use teeny_nn::{Activation, Dropout, Linear, Module, Param, Schedule, Sequential, Store};

/// A network with dropout, trained on shuffled digits, with all parts that a run can have.
struct Run<D: Dataset> {
    store: Store,
    model: Sequential,
    optimizer: AdamW,
    ema: Ema,
    scale: LossScale,
    plateau: Plateau,
    loader: DataLoader<D>,
    schedule: Schedule,
    position: Position,
}

impl<D: Dataset<Batch = (Tensor, Tensor)>> Run<D> {
    fn new(seed: u64, device: &DeviceRef, data: D) -> Result<Run<D>> {
        let store = Store::new(device);
        random::manual_seed(seed);
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 784, 16)?)
            .then(Activation::Relu)
            .then(Dropout::new(&store.root(), 0.25)?)
            .then(Linear::new(&store.at("fc2"), 16, 10)?);
        Ok(Run {
            optimizer: AdamW::new(store.trainable(), 0.0).amsgrad(true),
            ema: Ema::new(store.trainable(), 0.9)?,
            scale: LossScale::new().growth_interval(7),
            plateau: Plateau::new(1.0, 0.5, 3)?,
            loader: DataLoader::new(data, 128)?.shuffle(5),
            schedule: Schedule::warmup_cosine(1e-2, 1e-3, 5, 40),
            position: Position::default(),
            store,
            model,
        })
    }

    /// Trains up to step number `end`; returns the bits of each loss.
    fn until(&mut self, end: u64) -> Result<Vec<u32>> {
        let mut losses = Vec::new();
        while self.position.step < end {
            for batch in self.loader.epoch_from(self.position.epoch, self.position.batch) {
                let (x, targets) = batch?; // (B, 784), (B)
                self.optimizer.set_lr(self.schedule.at(self.position.step) * self.plateau.lr());
                let loss = cross_entropy(&self.model.forward(&x)?, &targets)?; // ()
                let mut gradients = self.scale.apply(&loss)?.backward()?;
                clip_grad_norm(&mut gradients, &self.store.trainable(), self.scale.factor())?;
                self.scale.step(&mut self.optimizer, &gradients)?;
                self.ema.update()?;
                self.plateau.observe(loss.item::<f32>()?.into());
                losses.push(loss.item::<f32>()?.to_bits());
                self.position.step += 1;
                self.position.batch += 1;
                if self.position.step == end {
                    return Ok(losses);
                }
            }
            (self.position.epoch, self.position.batch) = (self.position.epoch + 1, 0);
        }
        Ok(losses)
    }

    fn save(&self, path: &std::path::Path) -> Result<()> {
        let mut checkpoint = Checkpoint::new();
        checkpoint
            .put("model", &self.store)?
            .put("optimizer", &self.optimizer)?
            .put("ema", &self.ema)?
            .put("scale", &self.scale)?;
        checkpoint
            .put("plateau", &self.plateau)?
            .put("random", &Random)?
            .put("position", &self.position)?;
        checkpoint.put(
            "run",
            &State::default().with("name", "a \"quoted\" näme\n").with("best", 0.1 + 0.2),
        )?;
        checkpoint.save(path)
    }

    fn load(&mut self, path: &std::path::Path) -> Result<()> {
        let checkpoint = Checkpoint::load(path, self.store.device())?;
        checkpoint
            .restore("model", &mut self.store)?
            .restore("optimizer", &mut self.optimizer)?
            .restore("ema", &mut self.ema)?;
        checkpoint.restore("scale", &mut self.scale)?.restore("plateau", &mut self.plateau)?;
        checkpoint.restore("random", &mut Random)?.restore("position", &mut self.position)?;
        assert_eq!(checkpoint.part("run")?.get::<f64>("best")?, 0.1 + 0.2);
        assert_eq!(checkpoint.part("run")?.get::<String>("name")?, "a \"quoted\" näme\n");
        Ok(())
    }
}

#[test]
fn a_generator_of_plain_numbers_continues_from_a_checkpoint() -> Result<()> {
    let generator = Generator::new(5);
    let _ = [generator.uniform(), generator.uniform()];
    let mut checkpoint = Checkpoint::new();
    let bytes = checkpoint.put("explore", &generator)?.to_bytes()?;
    let mut again = Generator::new(0);
    Checkpoint::from_bytes(bytes, autograd())?.restore("explore", &mut again)?;
    assert_eq!(generator.uniform(), again.uniform());
    assert_eq!(generator.below(1000)?, again.below(1000)?);
    Ok(())
}

#[test]
fn a_resumed_run_equals_the_unbroken_one_bit_for_bit() {
    let folder = Folder::new("resume");
    let path = folder.0.join("run.safetensors");
    let digits = digits::load().unwrap();
    let device = autograd();
    // each in its own scope: the checkpoint must restore the state of the random numbers
    let unbroken = random::with_seed(0, || {
        let mut run = Run::new(1, &device, digits.train.on(&device)).unwrap();
        let losses = run.until(30).unwrap();
        (losses, run.store.state().unwrap(), run.ema.state().unwrap())
    });
    let first = random::with_seed(0, || {
        let mut run = Run::new(1, &device, digits.train.on(&device)).unwrap();
        let losses = run.until(17).unwrap(); // in the middle of the second epoch
        run.save(&path).unwrap();
        run.until(20).unwrap(); // the saved state does not change
        losses
    });
    let (rest, weights, averages) = random::with_seed(0, || {
        let mut run = Run::new(99, &device, digits.train.on(&device)).unwrap();
        run.load(&path).unwrap();
        let losses = run.until(30).unwrap();
        (losses, run.store.state().unwrap(), run.ema.state().unwrap())
    });
    assert_eq!([first, rest].concat(), unbroken.0);
    for (resumed, whole) in [(weights, unbroken.1), (averages, unbroken.2)] {
        assert!(!whole.tensors.is_empty());
        for (name, tensor) in whole.tensors {
            assert_eq!(
                resumed.tensors[&name].to_bytes().unwrap(),
                tensor.to_bytes().unwrap(),
                "{name}"
            );
        }
    }
    assert_eq!(folder.files(), ["run.safetensors"]);
}

/// Two parameters of a bf16 model, so that master weights are part of the state.
fn params(store: &Store) -> Vec<Param> {
    random::with_seed(6, || Linear::new(&store.at("fc"), 4, 3)).unwrap();
    store.trainable()
}

fn every_optimizer(store: &Store) -> Vec<(&'static str, Box<dyn Optimizer>)> {
    let all = || store.trainable();
    vec![
        ("sgd", Box::new(Sgd::new(all(), 0.1))),
        ("momentum", Box::new(Sgd::new(all(), 0.1).momentum(0.9).master_weights(true))),
        ("adam", Box::new(Adam::new(all(), 0.1).master_weights(true))),
        ("amsgrad", Box::new(AdamW::new(all(), 0.1).amsgrad(true))),
        (
            "rmsprop",
            Box::new(RmsProp::new(all(), 0.1).centered(true).momentum(0.9).master_weights(true)),
        ),
        (
            "adagrad",
            Box::new(Adagrad::new(all(), 0.1).initial_accumulator_value(0.1).lr_decay(0.1)),
        ),
        ("lamb", Box::new(Lamb::new(all(), 0.1))),
        ("lars", Box::new(Lars::new(all(), 0.1).master_weights(true))),
        (
            "muon",
            Box::new(
                Muon::new(all().into_iter().filter(|p| p.value().ndim() == 2).collect(), 0.1)
                    .unwrap(),
            ),
        ),
    ]
}

#[test]
fn every_optimizer_continues_where_it_was_saved() {
    let folder = Folder::new("optimizers");
    for dtype in [DType::F32, DType::BF16] {
        let count = every_optimizer(&Store::with_dtype(device(), dtype)).len();
        for i in 0..count {
            let stores = [Store::with_dtype(device(), dtype), Store::with_dtype(device(), dtype)];
            stores.iter().for_each(|store| drop(params(store)));
            let [(name, mut saved), (_, mut resumed)] =
                [0, 1].map(|k| every_optimizer(&stores[k]).swap_remove(i));
            let step = |optimizer: &mut Box<dyn Optimizer>, t: u64| {
                let gradient = |p: &Param| {
                    random::with_seed(t, || {
                        Tensor::randn(*p.value().shape(), DType::F32, p.value())
                    })
                };
                optimizer.step_by(&mut |p| gradient(p)).unwrap();
            };
            (0..5).for_each(|t| step(&mut saved, t));
            saved.set_lr(0.05);
            let path = folder.0.join(format!("{name}-{dtype}"));
            let mut checkpoint = Checkpoint::new();
            checkpoint.put("model", &stores[0]).unwrap().put("optimizer", &saved).unwrap();
            checkpoint.save(&path).unwrap();
            let checkpoint = Checkpoint::load(&path, stores[1].device()).unwrap();
            checkpoint.restore("model", &mut stores[1].clone()).unwrap();
            checkpoint.restore("optimizer", &mut resumed).unwrap();
            assert_eq!(resumed.lr(), 0.05);
            (5..10).for_each(|t| {
                step(&mut saved, t);
                step(&mut resumed, t);
            });
            for (p, q) in stores[0].all().iter().zip(stores[1].all()) {
                assert_eq!(
                    p.value().to_bytes().unwrap(),
                    q.value().to_bytes().unwrap(),
                    "{name} {dtype} {p:?}"
                );
            }
        }
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_lists_everything_and_changes_nothing() {
    let folder = Folder::new("misfit-run");
    let path = folder.0.join("run");
    let build = |names: [&str; 2], outputs: usize| {
        let store = Store::new(device());
        names.iter().for_each(|name| drop(Linear::new(&store.at(name), 4, outputs).unwrap()));
        let adam = Adam::new(store.trainable(), 0.1);
        (store, adam)
    };
    let (store, mut adam) = build(["fc1", "fc2"], 3);
    adam.step_by(&mut |p| Ok(p.value())).unwrap();
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("model", &store).unwrap().put("optimizer", &adam).unwrap();
    checkpoint.save(&path).unwrap();

    let checkpoint = Checkpoint::load(&path, store.device()).unwrap();
    let (mut other, mut other_adam) = build(["fc1", "proj"], 5);
    let before = other.get("fc1.weight").unwrap().value().to_bytes().unwrap();
    let error = checkpoint.restore("model", &mut other).unwrap_err().to_string();
    for part in [
        "part \"model\"",
        "does not match the model: 2 missing keys, 2 unexpected keys, 2 shape mismatches",
        "missing keys: proj.weight (5, 4), proj.bias (5,)",
        "unexpected keys: fc2.bias, fc2.weight",
        "fc1.weight is (3, 4), but should be (5, 4)",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = checkpoint.restore("optimizer", &mut other_adam).unwrap_err().to_string();
    for part in [
        "unexpected keys: fc2.bias.mean, fc2.bias.square, fc2.weight.mean",
        "fc1.weight.mean is (3, 4), but should be (5, 4)",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let mut sgd = Sgd::new(store.trainable(), 0.3).momentum(0.9);
    let error = checkpoint.restore("optimizer", &mut sgd).unwrap_err().to_string();
    assert!(
        error.contains("missing keys: fc1.weight.velocity (3, 4)")
            && error.contains("unexpected keys: fc1.bias.mean"),
        "{error}"
    );
    assert_eq!(
        (sgd.lr(), other.get("fc1.weight").unwrap().value().to_bytes().unwrap()),
        (0.3, before)
    );

    let error = checkpoint.restore("ema", &mut Random).unwrap_err().to_string();
    assert!(error.contains("no part \"ema\"; there are model, optimizer"), "{error}");
    store.save(&path).unwrap();
    let error = Checkpoint::load(&path, store.device()).unwrap_err().to_string();
    assert!(error.contains("not a checkpoint") && error.contains("store.load(path)"), "{error}");
    assert!(Checkpoint::new().put("a/b", &Random).is_err());
}

/// The path at which the child process of the next test saves; unset in the parent.
const CHILD: &str = "TEENY_TEST_SAVES_TO";

/// A store of 4 MB whose values are all `value`.
fn large(value: f64) -> Store {
    let store = Store::new(device());
    for name in ["a", "b", "c", "d"] {
        store.root().param(name, (250_000,), teeny_nn::Init::Constant(value)).unwrap();
    }
    store
}

#[test]
fn killing_a_process_that_saves_never_loses_the_file() {
    if let Ok(path) = std::env::var(CHILD) {
        for i in 0.. {
            let mut checkpoint = Checkpoint::new();
            checkpoint.put("model", &large(f64::from(i % 1000))).unwrap();
            checkpoint.save(&path).unwrap();
        }
    }
    let folder = Folder::new("killed");
    let path = folder.0.join("run.safetensors");
    Checkpoint::new().put("model", &large(-1.0)).unwrap().save(&path).unwrap();
    let mut unfinished = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killing_a_process_that_saves_never_loses_the_file"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(150 + 37 * round));
        child.kill().unwrap(); // SIGKILL: nothing of the child runs after this
        child.wait().unwrap();
        let store = large(-2.0);
        Checkpoint::load(&path, store.device())
            .unwrap()
            .restore("model", &mut store.clone())
            .unwrap();
        let values: Vec<f32> =
            store.all().iter().flat_map(|p| p.value().to_vec::<f32>().unwrap()).collect();
        assert!(
            values[0] >= -1.0 && values.iter().all(|v| *v == values[0]),
            "the file is all of one save"
        );
        let parts: Vec<String> =
            folder.files().into_iter().filter(|name| name.ends_with(".part")).collect();
        unfinished += parts.len();
        parts.iter().for_each(|name| std::fs::remove_file(folder.0.join(name)).unwrap());
    }
    assert!(unfinished > 0, "no kill fell into a save: the test has shown nothing");
}
