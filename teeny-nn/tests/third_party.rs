//! A network trains on a third-party device, with the same autograd, layers and optimizer as on the
//! CPU.

use crate::device::Bytewise;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DeviceRef, Result, Tensor, random};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::{Activation, Linear, Module, Sequential, Store};

/// Losses of a few steps on points labelled by the quadrant they lie in.
fn losses(device: &DeviceRef) -> Result<Vec<f32>> {
    random::with_seed(41, || {
        let store = Store::new(device);
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 2, 16)?)
            .then(Activation::Relu)
            .then(Linear::new(&store.at("fc2"), 16, 4)?);
        let x = Tensor::uniform(-1.0, 1.0, (64, 2), teeny_core::DType::F32, device)?; // (64, 2)
        let side = |axis| x.at(1, axis)?.gt(0.0)?.cast(teeny_core::DType::I64);
        let targets = side(0)?.mul(2)?.add(&side(1)?)?; // (64)
        let mut sgd = Sgd::new(store.trainable(), 0.5);
        (0..30)
            .map(|_| {
                let loss = cross_entropy(&model.forward(&x)?, &targets)?;
                sgd.step(&loss.backward()?)?;
                loss.item::<f32>()
            })
            .collect()
    })
}

#[test]
fn a_third_party_device_trains_the_mlp_like_the_cpu() -> Result<()> {
    let theirs = losses(&(Autograd::new(Arc::new(Bytewise)) as DeviceRef))?;
    let ours = losses(&(Autograd::new(teeny_cpu::Cpu::new()) as DeviceRef))?;
    assert!(theirs[29] < 0.5 * theirs[0], "{theirs:?}");
    for (a, b) in theirs.iter().zip(&ours) {
        assert!((a - b).abs() < 1e-4, "{a} there, {b} on the CPU");
    }
    Ok(())
}
