//! Whole runs on a device that fails its k-th request, for every k: the run ends in an error,
//! nothing leaks, the device still works, and the checkpoint on disk is the last one saved.

#![cfg(feature = "cpu")] // whose memory is counted

use crate::common::Folder;
use std::path::Path;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad, no_grad};
use teeny_core::wrappers::{Faulty, Lasting, Request};
use teeny_core::{DType, Device, DeviceRef, ErrorKind, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Adam, AdamW, Optimizer};
use teeny_nn::schedule::Plateau;
use teeny_nn::state::{Checkpoint, Position, Random};
use teeny_nn::train::Losses;
use teeny_nn::{
    Activation, BatchNorm, Conv2d, Dropout, Flatten, Gpt, GptConfig, Linear, MaxPool2d, Module,
    Schedule, Sequential, Store,
};

/// Runs `work` with the k-th request of each of `kinds` failing, for all k, once and from then on;
/// after each, the device has no more live memory than before.
fn campaign(
    what: &str,
    kinds: &[Request],
    kind: ErrorKind,
    work: impl Fn(&DeviceRef) -> Result<()>,
    after: impl Fn(),
) {
    let cpu = Cpu::new();
    let faulty: Arc<Faulty> = Faulty::new(cpu.clone());
    let device: DeviceRef = Autograd::new(faulty.clone());
    let work = || random::with_seed(7, || work(&device));
    faulty.fail(Request::Any, u64::MAX, kind, Lasting::Once);
    work().unwrap_or_else(|e| panic!("{what}, undisturbed: {e}"));
    after();
    let base = cpu.stats().live_bytes; // a compiled kernel may keep a constant
    for &request in kinds {
        faulty.fail(request, u64::MAX, kind, Lasting::Once);
        work().unwrap();
        after();
        let requests = faulty.requests(request);
        for (k, lasting) in (0..requests).flat_map(|k| [(k, Lasting::Once), (k, Lasting::Forever)])
        {
            faulty.fail(request, k, kind, lasting);
            let error = work().expect_err(what);
            assert_eq!(error.kind(), kind, "{what}, {request:?} {k}: {error}");
            faulty.heal();
            assert_eq!(
                cpu.stats().live_bytes,
                base,
                "{what}, {request:?} {k}: memory is still in use after the error"
            );
            assert_eq!(
                Tensor::ones(3, DType::F32, &device)
                    .unwrap()
                    .sum_all()
                    .unwrap()
                    .item::<f32>()
                    .unwrap(),
                3.0
            );
            after();
        }
        assert!(requests > 0, "{what} never asks for {request:?}");
    }
    work().unwrap();
    assert_eq!(cpu.stats().live_bytes, base);
}

#[test]
fn a_perceptron() {
    let work = |device: &DeviceRef| {
        let store = Store::new(device);
        let net = Sequential::new()
            .then(Linear::new(&store.at("a"), 6, 5)?)
            .then(Activation::Relu)
            .then(Dropout::new(&store.root(), 0.3)?)
            .then(Linear::new(&store.at("b"), 5, 3)?);
        let mut adam = Adam::new(store.trainable(), 0.01);
        let mut losses = Losses::new().every(2);
        let targets = Tensor::new([0i32, 2, 1, 0], device)?; // (4)
        for _ in 0..2 {
            // ()
            let loss = cross_entropy(
                &net.forward(&Tensor::randn((4, 6), DType::F32, device)?)?,
                &targets,
            )?;
            adam.step(&loss.backward()?)?;
            losses.push(&loss)?;
        }
        device.synchronize()
    };
    for kind in [ErrorKind::OutOfMemory, ErrorKind::Device] {
        campaign("a perceptron", &Request::ALL, kind, work, || ());
    }
}

/// A convolutional network with all parts of a run. Saves after each of three steps.
fn convolutional(device: &DeviceRef, path: &Path, told: &dyn Fn(u64)) -> Result<()> {
    let mut store = Store::new(device);
    let net = Sequential::new()
        .then(Conv2d::new(&store.at("conv"), 1, 2, 3)?)
        .then(BatchNorm::new(&store.at("bn"), 2)?)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Dropout::new(&store.root(), 0.3)?)
        .then(Linear::new(&store.at("fc"), 8, 3)?);
    let mut adam = AdamW::new(store.trainable(), 0.01);
    let (schedule, mut plateau, mut position) = (
        Schedule::warmup_cosine(1e-2, 1e-3, 1, 3),
        Plateau::new(1.0, 0.5, 0).unwrap(),
        Position::default(),
    );
    let targets = Tensor::new([0i32, 2, 1, 0], device)?; // (4)
    if path.exists() {
        let checkpoint = Checkpoint::load(path, device)?;
        checkpoint
            .restore("model", &mut store)?
            .restore("optimizer", &mut adam)?
            .restore("plateau", &mut plateau)?;
        checkpoint.restore("random", &mut Random)?.restore("position", &mut position)?;
    }
    while position.step < 3 {
        adam.set_lr(schedule.at(position.step) * plateau.lr());
        // ()
        let loss = cross_entropy(
            &net.forward(&Tensor::randn((4, 1, 6, 6), DType::F32, device)?)?,
            &targets,
        )?;
        adam.step(&loss.backward()?)?;
        plateau.observe(loss.item::<f32>()?.into());
        position.step += 1;
        let mut checkpoint = Checkpoint::new();
        checkpoint.put("model", &store)?.put("optimizer", &adam)?.put("plateau", &plateau)?;
        checkpoint.put("random", &Random)?.put("position", &position)?;
        checkpoint.save(path)?;
        told(position.step);
    }
    device.synchronize()
}

#[test]
fn a_convolutional_network_with_checkpoints() {
    let folder = Folder::new("faults-cnn");
    let path = folder.0.join("run");
    // the bytes of the checkpoint after each step of a run without failures
    let steps = std::cell::RefCell::new(Vec::new());
    let plain: DeviceRef = Autograd::new(Cpu::new());
    random::with_seed(7, || {
        convolutional(&plain, &path, &|_| steps.borrow_mut().push(std::fs::read(&path).unwrap()))
    })
    .unwrap();
    let steps = steps.into_inner();
    assert_eq!(steps.len(), 3);

    let saved = std::cell::Cell::new(0);
    let work = |device: &DeviceRef| {
        let _ = std::fs::remove_file(&path);
        saved.set(0);
        convolutional(device, &path, &|step| saved.set(step as usize))
    };
    let resumed = std::cell::Cell::new(0);
    let after = || {
        assert_eq!(folder.files().iter().filter(|name| name.ends_with(".part")).count(), 0);
        match saved.get() {
            0 => assert!(!path.exists()),
            n => {
                assert!(
                    std::fs::read(&path).unwrap() == steps[n - 1],
                    "the file is the checkpoint of step {n}"
                );
                // for some k, the rest of the run too
                if n < 3 && resumed.replace(resumed.get() + 1) % 16 == 0 {
                    let device: DeviceRef = Autograd::new(Cpu::new());
                    random::with_seed(99, || convolutional(&device, &path, &|_| ())).unwrap();
                    assert!(
                        std::fs::read(&path).unwrap() == steps[2],
                        "the resumed run ends like the undisturbed one"
                    );
                }
            }
        }
    };
    campaign("a convolutional network", &[Request::Any], ErrorKind::OutOfMemory, work, after);
    assert!(resumed.get() > 16);
}

#[test]
fn a_small_gpt_that_is_trained_and_generates() {
    let work = |device: &DeviceRef| {
        let store = Store::new(device);
        let gpt = Gpt::new(&store.root(), GptConfig::new(7, 8, 2, 2, 8).with_dropout(0.1))?;
        let mut adam = AdamW::new(store.trainable(), 1e-3);
        let tokens = Tensor::new([[1i32, 2, 3, 4], [4, 3, 2, 1]], device)?; // (2, 4)
        // ()
        let loss = cross_entropy(&gpt.logits(&tokens)?.flatten(0, 1)?, &tokens.flatten(0, 1)?)?;
        adam.step(&loss.backward()?)?;
        store.set_training(false);
        // beyond the context, where every step makes new caches
        let longer = no_grad(|| gpt.generate(&tokens, 6, |logits| logits.argmax(-1)))?; // (2, 10)
        longer.to_vec::<i32>()?;
        device.synchronize()
    };
    campaign("a small GPT", &[Request::Any], ErrorKind::OutOfMemory, work, || ());
}
