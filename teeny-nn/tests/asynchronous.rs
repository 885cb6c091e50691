//! Training on a device that can only be awaited, as a GPU in a browser: losses, metrics,
//! checkpoints and sampled tokens are the same as on a device that waits.

use crate::awaited::{Awaited, run};
use std::collections::BTreeMap;
use teeny_autograd::Autograd;
use teeny_core::{DType, DeviceRef, ErrorKind, Key, Lazy, Reference, Result, Tensor, random};
use teeny_formats::{SafeTensors, State};
use teeny_nn::optim::{Adam, AdamW, LossScale, Optimizer, Sgd, clip_grad_norm_async};
use teeny_nn::prelude::*;
use teeny_nn::state::{Checkpoint, Position, Random, Stateful};
use teeny_nn::train::{Confusion, top_k_accuracy, top_k_accuracy_async};
use teeny_text::Sampler;

/// Layers with a batch norm, whose counter is an integer.
struct Net(Linear, BatchNorm, Linear);

impl Net {
    fn new(store: &Store) -> Result<Net> {
        Ok(Net(
            Linear::new(&store.at("a"), 4, 8)?,
            BatchNorm::new(&store.at("bn"), 8)?,
            Linear::new(&store.at("b"), 8, 3)?,
        ))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.2.forward(&self.1.forward(&self.0.forward(x)?)?.relu()?) // (N, 3)
    }
}

/// Inputs (N, 4) and targets (N) on `device`.
fn batch(device: &DeviceRef) -> Result<(Tensor, Tensor)> {
    let x: Vec<f32> = (0..6 * 4).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0).collect();
    Ok((Tensor::from_vec(x, (6, 4), device)?, Tensor::new([0i32, 1, 2, 0, 1, 2], device)?))
}

/// Losses, the right predictions, the norm of the last gradient, and the file of the parameters.
type Outcome = (Vec<(u64, f64)>, usize, f64, Vec<u8>);

/// Five steps; the program is written for devices that can only be awaited.
fn train(device: &DeviceRef) -> Result<Outcome> {
    let store = Store::new(device);
    let net = Net::new(&store)?;
    let mut optimizer = AdamW::new(store.trainable(), 1e-2);
    let mut losses = Losses::new().every(2);
    let (x, targets) = batch(device)?;
    let mut norm = 0.0;
    for _ in 0..5 {
        let loss = cross_entropy(&net.forward(&x)?, &targets)?; // ()
        let mut gradients = loss.backward()?;
        norm = run(clip_grad_norm_async(&mut gradients, &store.trainable(), 0.5))?;
        optimizer.step(&gradients)?;
        run(losses.push_async(&loss))?;
        run(device.ready_async())?;
    }
    run(losses.read_async())?;
    run(device.synchronize_async())?;
    let correct = run(accuracy_async(&net.forward(&x)?, &targets))?;
    Ok((losses.values().to_vec(), correct, norm, run(store.to_bytes_async())?))
}

#[test]
fn a_device_that_can_only_be_awaited_trains_as_one_that_waits() {
    // other tests of this process draw from the process-wide generator meanwhile
    let train = |device: &DeviceRef| random::with_seed(3, || train(device)).unwrap();
    let expected = train(&(Autograd::new(Reference::new()) as DeviceRef));
    assert_eq!(expected.0.len(), 5);
    let browser: [DeviceRef; 2] =
        [Autograd::new(Awaited::in_browser()), Autograd::new(Lazy::new(Awaited::in_browser()))];
    for device in browser {
        let outcome = train(&device);
        assert_eq!(outcome.0, expected.0, "{}", device.info().name);
        assert_eq!(outcome, expected);
    }
}

#[test]
fn a_read_that_waits_is_an_error_there() {
    let device = Autograd::new(Awaited::in_browser());
    let x = Tensor::new([1.0f32], &device).unwrap(); // (1)
    assert_eq!(x.to_vec::<f32>().unwrap_err().kind(), ErrorKind::WouldBlock);
    let store = Store::new(&device);
    Net::new(&store).unwrap();
    assert_eq!(store.to_bytes().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_checkpoint_of_bytes_is_that_of_a_file() {
    let device: DeviceRef = Autograd::new(Reference::new());
    let path = std::env::temp_dir().join(format!("teeny-async-{}.ckpt", std::process::id()));
    let store = Store::new(&device);
    let net = Net::new(&store).unwrap();
    let mut adam = Adam::new(store.trainable(), 1e-2);
    let (x, targets) = batch(&device).unwrap();
    let step = |adam: &mut Adam| {
        let loss = cross_entropy(&net.forward(&x)?, &targets)?; // ()
        adam.step(&loss.backward()?)?;
        loss.item::<f32>()
    };
    step(&mut adam).unwrap();
    let position = Position { step: 1, epoch: 0, batch: 1 };
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("model", &store).unwrap().put("optimizer", &adam).unwrap();
    checkpoint.put("random", &Random).unwrap().put("position", &position).unwrap();
    checkpoint.save(&path).unwrap();
    let file = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(checkpoint.to_bytes().unwrap(), file);
    assert_eq!(run(checkpoint.to_bytes_async()).unwrap(), file);
    // the run goes on from there, on a device that can only be awaited too
    let after: Vec<f32> = (0..3).map(|_| step(&mut adam).unwrap()).collect();
    let browser: DeviceRef = Autograd::new(Awaited::in_browser());
    let mut again = Store::new(&browser);
    let net = Net::new(&again).unwrap();
    let mut adam = Adam::new(again.trainable(), 1e-2);
    let checkpoint = Checkpoint::from_bytes(file.clone(), &browser).unwrap();
    checkpoint.restore("model", &mut again).unwrap().restore("optimizer", &mut adam).unwrap();
    let (x, targets) = batch(&browser).unwrap();
    for expected in after {
        let loss = cross_entropy(&net.forward(&x).unwrap(), &targets).unwrap(); // ()
        adam.step(&loss.backward().unwrap()).unwrap();
        assert_eq!(run(loss.item_async::<f32>()).unwrap(), expected);
    }
    let error = Checkpoint::from_bytes(&file[..file.len() - 1], &device).unwrap_err().to_string();
    assert!(error.starts_with(&format!("load bytes at {}:", file!())), "{error}");
    for length in [0, 7, 8, 100] {
        assert!(Checkpoint::from_bytes(&file[..length], &device).is_err());
    }
    let error = SafeTensors::from_bytes(*b"PK\x03\x04 and so on").unwrap_err().to_string();
    assert!(error.contains("a zip archive"), "{error}");
}

#[test]
fn the_counter_of_a_batch_norm_has_64_bits_in_files_and_32_on_the_device() {
    let device = Reference::new();
    let store = Store::new(&device);
    let norm = BatchNorm::new(&store.at("bn"), 3).unwrap();
    let _ = norm.forward(&Tensor::ones((4, 3), DType::F32, &device).unwrap()).unwrap();
    let counter = store.get("bn.num_batches_tracked").unwrap();
    assert_eq!(counter.value().item::<i32>().unwrap(), 1);
    let archive = SafeTensors::from_bytes(store.to_bytes().unwrap()).unwrap();
    let stored = archive.tensor("bn.num_batches_tracked", &device).unwrap(); // ()
    assert_eq!(stored.item::<i64>().unwrap(), 1);
    // from a file, and from a state with 64 bits, as a reader of another format returns it
    let other = Store::new(&device);
    BatchNorm::new(&other.at("bn"), 3).unwrap();
    other.load_bytes(store.to_bytes().unwrap()).unwrap();
    let mut state = store.state().unwrap();
    let read =
        |store: &Store| store.get("bn.num_batches_tracked").unwrap().value().item::<i32>().unwrap();
    assert_eq!(read(&other), 1);
    let five = Tensor::new(5i64, &device).unwrap(); // ()
    state.tensors.insert("bn.num_batches_tracked".into(), five);
    other.clone().set_state(&state).unwrap();
    assert_eq!(read(&other), 5);
    // in a part of a checkpoint; another tensor of 64 bits stays as it is
    let mut checkpoint = Checkpoint::new();
    let tensors = BTreeMap::from([("n".into(), Tensor::new(7i64, &device).unwrap())]);
    let own = State { tensors, ..State::default() };
    checkpoint.put("model", &store).unwrap().put("own", &own).unwrap();
    let loaded = Checkpoint::from_bytes(checkpoint.to_bytes().unwrap(), &device).unwrap();
    let tensor = |part: &str, name: &str| loaded.part(part).unwrap().tensors[name].clone();
    assert_eq!(tensor("model", "bn.num_batches_tracked").item::<i32>().unwrap(), 1);
    assert_eq!(tensor("own", "n").item::<i64>().unwrap(), 7);
}

#[test]
fn metrics_that_are_awaited_are_those_that_are_waited_for() {
    let device = Autograd::new(Reference::new());
    let logits =
        Tensor::new([[2.0f32, 1.0, 0.0], [0.5, 3.0, 1.0], [1.0, 0.0, 0.5]], &device).unwrap(); // (3, 3)
    let targets = Tensor::new([0i32, 2, 2], &device).unwrap(); // (3)
    assert_eq!(run(accuracy_async(&logits, &targets)).unwrap(), 1);
    assert_eq!(accuracy(&logits, &targets).unwrap(), 1);
    for (k, expected) in [(1, 1), (2, 3), (3, 3)] {
        assert_eq!(top_k_accuracy(&logits, &targets, k).unwrap(), expected);
        assert_eq!(run(top_k_accuracy_async(&logits, &targets, k)).unwrap(), expected);
    }
    let [mut waited, mut awaited] = [Confusion::new(3), Confusion::new(3)];
    waited.add(&logits, &targets).unwrap();
    run(awaited.add_async(&logits, &targets)).unwrap();
    assert_eq!(waited, awaited);
    let error = run(accuracy_async(&logits, &logits)).unwrap_err();
    assert_eq!(error.op(), Some("accuracy_async"), "{error}");
    let none = Tensor::zeros((0, 3), DType::F32, &device).unwrap(); // (0, 3)
    let no_targets = Tensor::zeros((0,), DType::I32, &device).unwrap(); // (0)
    assert_eq!(accuracy(&none, &no_targets).unwrap(), 0);
    // a mask of more elements than f32 counts one by one
    let n = (1 << 24) + 3;
    let big = Tensor::ones((1,), DType::F32, teeny_cpu::Cpu::new()).unwrap(); // (1)
    let logits = big.expand((n, 1)).unwrap(); // (n, 1)
    let targets = Tensor::zeros((1,), DType::I32, logits.device()).unwrap(); // (1)
    assert_eq!(accuracy(&logits, &targets.expand((n,)).unwrap()).unwrap(), n);
}

#[test]
fn tokens_that_are_awaited_are_those_that_are_waited_for() {
    let device = Reference::new();
    let logits = Tensor::new([[0.0f32, 5.0, 1.0], [2.0, 1.0, 0.0]], &device).unwrap(); // (2, 3)
    let sampler = Sampler::new().temperature(0.8).top_k(2);
    for draw in 0..20 {
        let key = Key { seed: 1, draw };
        let waited = sampler.tokens(&logits, key).unwrap();
        assert_eq!(run(sampler.tokens_async(&logits, key)).unwrap(), waited);
    }
    let nan = logits.mul(f64::NAN).unwrap(); // (2, 3)
    let key = Key { seed: 1, draw: 0 };
    assert!(run(sampler.tokens_async(&nan, key)).unwrap_err().to_string().contains("row 0"));
}

#[test]
fn a_scaled_step_that_is_awaited_is_the_one_that_waits() {
    let outcome = |awaits: bool| {
        let device: DeviceRef = if awaits {
            Autograd::new(Awaited::in_browser())
        } else {
            Autograd::new(Reference::new())
        };
        let store = Store::new(&device);
        let net = random::with_seed(3, || Net::new(&store)).unwrap();
        let mut sgd = Sgd::new(store.trainable(), 0.1);
        let mut scale = LossScale::new().initial_factor(2f64.powi(126));
        let (x, targets) = batch(&device).unwrap();
        let mut stepped = Vec::new();
        for _ in 0..6 {
            let loss = cross_entropy(&net.forward(&x).unwrap(), &targets).unwrap(); // ()
            let loss = loss.mul(100.0).unwrap(); // (), some scaled gradients overflow
            let gradients = scale.apply(&loss).unwrap().backward().unwrap();
            stepped.push(if awaits {
                run(scale.step_async(&mut sgd, &gradients)).unwrap()
            } else {
                scale.step(&mut sgd, &gradients).unwrap()
            });
        }
        (stepped, scale.factor(), run(store.to_bytes_async()).unwrap())
    };
    let waited = outcome(false);
    assert!(waited.0.contains(&true) && waited.0.contains(&false), "{:?}", waited.0);
    assert_eq!(outcome(true), waited);
}
