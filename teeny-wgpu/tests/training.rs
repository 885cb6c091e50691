//! Training 784-128-10 on the built-in digits: the CPU's losses, no growth of memory, nothing compiled after the first steps, few submissions.

mod common;

use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{Device, DeviceRef, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::data::{DataLoader, digits};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::{Activation, Linear, Module, Sequential, Store};

/// Runs `steps` steps of batch 64; `after` sees each step's number and loss, which it may read or not.
fn train(device: DeviceRef, steps: usize, mut after: impl FnMut(usize, &Tensor) -> Result<()>) -> Result<()> {
    let data = digits::load()?;
    let store = Store::new(&Autograd::new(device));
    let model = random::with_seed(3, || {
        Ok::<_, teeny_core::Error>(Sequential::new().then(Linear::new(&store.at("fc1"), 784, 128)?).then(Activation::Relu).then(Linear::new(
            &store.at("fc2"),
            128,
            10,
        )?))
    })?;
    let loader = DataLoader::new(data.train.on(store.device()), 64)?.shuffle(3).drop_last();
    let mut sgd = Sgd::new(store.trainable(), 0.2);
    let mut step = 0;
    for epoch in 0.. {
        for batch in loader.epoch(epoch) {
            if step == steps {
                return Ok(());
            }
            let (x, targets) = batch?; // (B, 784), (B)
            let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
            sgd.step(&loss.backward()?)?;
            after(step, &loss)?;
            step += 1;
        }
    }
    Ok(())
}

#[test]
fn a60_losses_equal_those_of_the_cpu() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let losses = |device: DeviceRef| -> Result<Vec<f32>> {
        let mut losses = Vec::new();
        train(device, 60, |_, loss| {
            losses.push(loss.item::<f32>()?);
            Ok(())
        })?;
        Ok(losses)
    };
    let (got, expected) = (losses(gpu)?, losses(Cpu::new())?);
    assert!(expected[59] < 0.5 * expected[0], "the CPU learns: {} to {}", expected[0], expected[59]);
    for (step, (a, b)) in got.iter().zip(&expected).enumerate() {
        assert!((a - b).abs() <= 1e-4 * b.max(1.0), "step {step}: {a} and {b}");
    }
    Ok(())
}

#[test]
fn a42_memory_does_not_grow_and_a_step_takes_few_submissions() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let watched = Arc::clone(&gpu);
    let (mut early, mut late) = (None, None);
    train(gpu, 201, |step, loss| {
        // A loss read in each step, as a progress bar would.
        loss.item::<f32>()?;
        let state = (watched.stats(), watched.counters());
        match step {
            20 => early = Some(state),
            200 => late = Some(state),
            _ => {}
        }
        Ok(())
    })?;
    let ((a, before), (b, after)) = (early.expect("step 20"), late.expect("step 200"));
    assert_eq!(a.live_bytes, b.live_bytes, "live bytes after steps 20 and 200");
    assert_eq!(a.os_allocations, b.os_allocations, "buffers asked of the driver after step 20");
    assert_eq!(before.compiles, after.compiles, "shaders compiled after step 20");
    let per_step = |a: u64, b: u64| (b - a) as f64 / 180.0;
    let (submissions, dispatches) = (per_step(before.submissions, after.submissions), per_step(before.dispatches, after.dispatches));
    println!("{submissions:.2} submissions and {dispatches:.1} dispatches a step, {} live bytes", b.live_bytes);
    assert!(submissions <= 2.0, "{submissions} submissions a step");
    Ok(())
}
