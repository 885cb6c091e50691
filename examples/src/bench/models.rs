//! Training steps of small models on a fixed batch; prefill and decode of GPT-2.

use super::ops::integers;
use super::{Bench, Work};
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Adam, AdamW, Optimizer, Sgd};
use teeny_nn::{
    Activation, Conv2d, Embedding, Flatten, Gpt, GptConfig, Linear, Lstm, MaxPool2d, Module,
    Sequential, Store,
};

/// A model, its optimizer and its batch.
struct Training<M, O> {
    net: M,
    optimizer: O,
    x: Tensor,
    y: Tensor,
}

impl<M: Module, O: Optimizer> Training<M, O> {
    /// Forward, backward, update.
    fn step(&mut self) -> Result<Tensor> {
        let logits = self.net.forward(&self.x)?; // (B, C)
        let loss = cross_entropy(&logits, &self.y)?; // ()
        self.optimizer.step(&loss.backward()?)?;
        loss.detach()
    }
}

/// Steps of a perceptron, a convolutional network, makemore's network, a small GPT and an LSTM.
///
/// # Errors
/// If the device fails.
pub fn training(b: &Bench) -> Result<()> {
    for (name, batch, hidden) in [("mnist_mlp/step", 64, 128), ("mnist_mlp/step512", 512, 512)] {
        b.time_recorded(name, Work::Step, |device| {
            let store = Store::new(Autograd::new(device.clone()));
            let path = store.root();
            let net = Sequential::new()
                .then(Linear::new(&path.at("fc1"), 784, hidden)?)
                .then(Activation::Relu)
                .then(Linear::new(&path.at("fc2"), hidden, 10)?);
            let mut run = on_random(net, &store, Sgd::new(store.trainable(), 0.01), &[batch, 784])?;
            Ok(move || run.step())
        })?;
    }
    b.time_recorded("mnist_cnn/step", Work::Step, |device| {
        let store = Store::new(Autograd::new(device.clone()));
        let path = store.root();
        let net = Sequential::new()
            .then(Conv2d::new(&path.at("conv1"), 1, 32, 3)?) // (128, 32, 26, 26)
            .then(Activation::Relu)
            .then(Conv2d::new(&path.at("conv2"), 32, 64, 3)?) // (128, 64, 24, 24)
            .then(Activation::Relu)
            .then(MaxPool2d::new(2)) // (128, 64, 12, 12)
            .then(Flatten) // (128, 9216)
            .then(Linear::new(&path.at("fc1"), 9216, 128)?)
            .then(Activation::Relu)
            .then(Linear::new(&path.at("fc2"), 128, 10)?);
        let mut run =
            on_random(net, &store, Adam::new(store.trainable(), 1e-3), &[128, 1, 28, 28])?;
        Ok(move || run.step())
    })?;
    b.time_recorded("makemore_mlp/step", Work::Step, |device| {
        let store = Store::new(Autograd::new(device.clone()));
        let path = store.root();
        let net = Sequential::new()
            .then(Embedding::new(&path.at("wte"), 27, 10)?) // (32, 3, 10)
            .then(Flatten) // (32, 30)
            .then(Linear::new(&path.at("fc1"), 30, 200)?)
            .then(Activation::Tanh)
            .then(Linear::new(&path.at("fc2"), 200, 27)?); // (32, 27)
        let (x, y) =
            (integers(&[32, 3], 27, store.device())?, integers(&[32], 27, store.device())?);
        let mut run = Training { net, optimizer: Sgd::new(store.trainable(), 0.1), x, y };
        Ok(move || run.step())
    })?;
    b.time_recorded("gpt_char/step", Work::Tokens(768.0), |device| {
        let store = Store::new(Autograd::new(device.clone()));
        let gpt = Gpt::new(&store.root(), GptConfig::new(65, 64, 4, 4, 128).with_bias(false))?;
        let mut adam = AdamW::new(store.trainable(), 1e-3).betas(0.9, 0.99).weight_decay(0.1);
        let (x, y) =
            (integers(&[12, 64], 65, store.device())?, integers(&[768], 65, store.device())?);
        Ok(move || {
            let loss = cross_entropy(&gpt.logits(&x)?.flatten(0, 1)?, &y)?;
            adam.step(&loss.backward()?)?;
            loss.detach()
        })
    })?;
    b.time_recorded("lstm/step", Work::Step, |device| {
        let store = Store::new(Autograd::new(device.clone()));
        let lstm = Lstm::new(&store.root(), 64, 256)?;
        let x = Tensor::randn((32, 64, 64), DType::F32, store.device())?; // (B, T, C)
        Ok(move || lstm.forward(&x)?.square()?.sum_all()?.mul(0.5)?.backward())
    })
}

/// Training on random images or rows of ten classes.
fn on_random<M, O>(net: M, store: &Store, optimizer: O, shape: &[usize]) -> Result<Training<M, O>> {
    let (x, y) = (
        Tensor::randn(shape, DType::F32, store.device())?,
        integers(&shape[..1], 10, store.device())?,
    );
    Ok(Training { net, optimizer, x, y })
}

/// GPT-2 with 124 million random weights: prefill of 128 tokens, and decode of one more.
///
/// # Errors
/// If the device fails.
pub fn gpt2(b: &Bench) -> Result<()> {
    let make = |device: &DeviceRef| -> Result<(Gpt, Tensor, Tensor)> {
        let store = Store::new(device);
        let gpt = Gpt::new(&store.root(), GptConfig::gpt2())?;
        store.set_training(false);
        Ok((gpt, integers(&[1, 128], 50257, device)?, integers(&[1, 1], 50257, device)?))
    };
    b.time_recorded("gpt2/prefill128", Work::Tokens(128.0), |device| {
        let (gpt, prompt, _) = make(device)?;
        Ok(move || gpt.next(&prompt, &mut gpt.caches()))
    })?;
    b.time_recorded("gpt2/decode", Work::Tokens(1.0), |device| {
        let (gpt, prompt, next) = make(device)?;
        let mut caches = gpt.caches();
        gpt.next(&prompt, &mut caches)?;
        Ok(move || {
            let logits = gpt.next(&next, &mut caches)?; // (1, V)
            caches.iter_mut().for_each(|cache| cache.truncate(128));
            Ok(logits)
        })
    })
}
