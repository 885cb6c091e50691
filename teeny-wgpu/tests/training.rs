//! Training the 784-128-10 network on the built-in digits: the launches of a step, level memory, no
//! compilation after the first steps, and the losses of the CPU.

use crate::common;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, Device, DeviceRef, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::data::{DataLoader, digits};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::{Activation, Init, Linear, LinearOptions, Module, Sequential, Store};

/// Trains `steps` steps with batches of 64 and calls `after` with each step's number, from 1, and
/// its loss, which is not read yet.
fn train(
    device: &DeviceRef,
    steps: usize,
    mut after: impl FnMut(usize, Tensor) -> Result<()>,
) -> Result<()> {
    let data = digits::load()?;
    let store = Store::new(&(Autograd::new(device.clone()) as DeviceRef));
    let small = Init::Normal { mean: 0.0, std: 0.02 };
    let options = LinearOptions::new().with_weight_init(small).with_bias_init(Init::ZEROS);
    let model = random::with_seed(1, || -> Result<_> {
        Ok(Sequential::new()
            .then(Linear::with_options(&store.at("fc1"), 784, 128, options)?)
            .then(Activation::Relu)
            .then(Linear::with_options(&store.at("fc2"), 128, 10, options)?))
    })?;
    let loader = DataLoader::new(data.train.on(store.device()), 64)?.shuffle(1).drop_last()?;
    let mut sgd = Sgd::new(store.trainable(), 0.2);
    for (step, batch) in (1..=steps).zip((0..).flat_map(|epoch| loader.epoch(epoch))) {
        let (x, targets) = batch?; // (64, 784), (64)
        let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
        sgd.step(&loss.backward()?)?;
        after(step, loss.detach()?)?;
    }
    Ok(())
}

#[test]
fn a_training_step_with_its_loss_costs_one_submission_and_keeps_nothing() {
    let Some(gpu) = common::gpu() else { return };
    let device: DeviceRef = gpu.clone();
    let mut marks = Vec::new();
    train(&device, 200, |step, loss| {
        assert!(loss.item::<f32>()?.is_finite()); // the step's one read-back
        drop(loss);
        if [2, 20, 200].contains(&step) {
            marks.push((gpu.counters(), gpu.stats()));
        }
        Ok(())
    })
    .unwrap();
    let [(second, _), (early, early_memory), (late, late_memory)] = marks[..] else {
        panic!("{marks:?}")
    };
    println!("{late:?} {late_memory:?}");
    assert_eq!(late.compiles, second.compiles, "everything is compiled in the first steps");
    assert_eq!(late_memory.live_bytes, early_memory.live_bytes);
    assert_eq!(
        late_memory.os_allocations, early_memory.os_allocations,
        "the pool serves every allocation"
    );
    let per_step = |n: u64| n as f64 / 180.0;
    let (dispatches, submissions) = (
        per_step(late.dispatches - early.dispatches),
        per_step(late.submissions - early.submissions),
    );
    println!(
        "a step: {dispatches} launches, {submissions} submissions, {} allocations",
        per_step(late_memory.allocations - early_memory.allocations)
    );
    // Every hundredth step also reads whether its gradients are finite.
    assert!(submissions <= 1.0 + 2.0 / 180.0, "{submissions} submissions a step");
    assert!(dispatches <= 64.0, "{dispatches} launches a step");
}

#[test]
fn losses_that_are_read_late_cost_less_than_a_submission_a_step() {
    let Some(gpu) = common::gpu() else { return };
    let device: DeviceRef = gpu.clone();
    let mut losses = Vec::new();
    let mut before = 0;
    train(&device, 100, |step, loss| {
        if step == 20 {
            before = gpu.counters().submissions;
        }
        losses.push(loss);
        Ok(())
    })
    .unwrap();
    let values = Tensor::stack(&losses, 0).unwrap().to_vec::<f32>().unwrap();
    assert!(values[99] < 0.5 * values[0], "{values:?}");
    let submissions = (gpu.counters().submissions - before) as f64 / 80.0;
    println!("{submissions} submissions a step");
    assert!(submissions <= 1.0, "{submissions}");
}

#[test]
fn the_losses_of_three_epochs_are_those_of_the_cpu() {
    let Some(gpu) = common::gpu() else { return };
    let run = |device: &DeviceRef| {
        let mut losses = Vec::new();
        train(device, 60, |_, loss| loss.item::<f32>().map(|l| losses.push(l))).unwrap();
        losses
    };
    // 22 batches an epoch
    let (on_gpu, on_cpu) = (run(&(gpu as Arc<dyn Device>)), run(&(Cpu::new() as DeviceRef)));
    for (step, (a, b)) in on_gpu.iter().zip(&on_cpu).enumerate() {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "step {step}: {a} and {b}");
    }
}

/// The check multiplies gradients by 0, which a driver may take for 0 for any gradient.
#[test]
fn a_gradient_that_is_not_finite_is_an_error_of_the_step() {
    let Some(gpu) = common::gpu() else { return };
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let store = Store::new(&(Autograd::new(gpu.clone()) as DeviceRef));
        Linear::new(&store.at("fc"), 3, 2).unwrap();
        let before = store.get("fc.weight").unwrap().value().to_vec::<f32>().unwrap();
        let mut sgd = Sgd::new(store.trainable(), 0.1);
        let error = sgd.step_by(&mut |param| {
            let value = if param.name() == "fc.bias" { value } else { 1.0 };
            Tensor::full(*param.value().shape(), value, DType::F32, &gpu)
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the gradient of \"fc.bias\" has NaN or infinite"), "{error}");
        assert_eq!(store.get("fc.weight").unwrap().value().to_vec::<f32>().unwrap(), before);
    }
}
