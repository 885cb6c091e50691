//! Training steps of small models on a fixed batch; prefill and decode of GPT-2.

use super::ops::integers;
use super::{Bench, Work};
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Error, Result, Tensor};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Adam, AdamW, Optimizer, Sgd};
use teeny_nn::{
    Activation, Captured, Conv2d, Embedding, Flatten, Gpt, GptConfig, Linear, Lstm, MaxPool2d,
    Module, Sequential, Store,
};

/// Loss of a batch.
type Loss = Box<dyn FnMut(&[Tensor]) -> Result<Tensor>>;

/// A model, its batch and its optimizer; without one, a step ends with the gradients.
struct Training {
    loss: Loss,
    batch: Vec<Tensor>,
    optimizer: Option<Box<dyn Optimizer>>,
}

impl Training {
    /// A classifier of random images or rows of ten classes.
    fn on_random(
        net: impl Module + 'static,
        store: &Store,
        optimizer: impl Optimizer + 'static,
        shape: &[usize],
    ) -> Result<Training> {
        let x = Tensor::randn(shape, DType::F32, store.device())?;
        let y = integers(&shape[..1], 10, store.device())?;
        Ok(Training {
            loss: Box::new(move |batch| cross_entropy(&net.forward(&batch[0])?, &batch[1])),
            batch: vec![x, y],
            optimizer: Some(Box::new(optimizer)),
        })
    }
}

/// The time of a step of the model that `make` builds: eager, recorded and captured.
fn time(
    b: &Bench,
    name: &str,
    work: Work,
    make: impl Fn(&Store) -> Result<Training>,
) -> Result<()> {
    b.time_recorded(name, work, |device, is_captured| {
        let store = Store::new(Autograd::new(device.clone()));
        let Training { mut loss, batch, mut optimizer } = make(&store)?;
        let mut captured = None;
        if is_captured {
            captured = Some(Captured::new(&store, std::mem::replace(&mut loss, Box::new(unused)))?);
        }
        Ok(move || {
            let (loss, gradients) = match &mut captured {
                Some(step) => step.run(batch.clone())?,
                None => {
                    let loss = loss(&batch)?; // ()
                    let gradients = loss.backward()?;
                    (loss.detach()?, gradients)
                }
            };
            match &mut optimizer {
                Some(optimizer) => optimizer.step(&gradients).map(|()| (loss, None)),
                None => Ok((loss, Some(gradients))),
            }
        })
    })
}

fn unused(_: &[Tensor]) -> Result<Tensor> {
    Err(Error::internal("the loss is captured"))
}

/// Steps of a perceptron, a convolutional network, makemore's network, a small GPT and an LSTM.
///
/// # Errors
/// If the device fails.
pub fn training(b: &Bench) -> Result<()> {
    for (name, batch, hidden) in [("mnist_mlp/step", 64, 128), ("mnist_mlp/step512", 512, 512)] {
        time(b, name, Work::Step, |store| {
            let path = store.root();
            let net = Sequential::new()
                .then(Linear::new(&path.at("fc1"), 784, hidden)?)
                .then(Activation::Relu)
                .then(Linear::new(&path.at("fc2"), hidden, 10)?);
            Training::on_random(net, store, Sgd::new(store.trainable(), 0.01), &[batch, 784])
        })?;
    }
    time(b, "mnist_cnn/step", Work::Step, |store| {
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
        Training::on_random(net, store, Adam::new(store.trainable(), 1e-3), &[128, 1, 28, 28])
    })?;
    time(b, "makemore_mlp/step", Work::Step, |store| {
        let path = store.root();
        let net = Sequential::new()
            .then(Embedding::new(&path.at("wte"), 27, 10)?) // (32, 3, 10)
            .then(Flatten) // (32, 30)
            .then(Linear::new(&path.at("fc1"), 30, 200)?)
            .then(Activation::Tanh)
            .then(Linear::new(&path.at("fc2"), 200, 27)?); // (32, 27)
        let batch =
            vec![integers(&[32, 3], 27, store.device())?, integers(&[32], 27, store.device())?];
        Ok(Training {
            loss: Box::new(move |batch| cross_entropy(&net.forward(&batch[0])?, &batch[1])),
            batch,
            optimizer: Some(Box::new(Sgd::new(store.trainable(), 0.1))),
        })
    })?;
    time(b, "gpt_char/step", Work::Tokens(768.0), |store| {
        let gpt = Gpt::new(&store.root(), GptConfig::new(65, 64, 4, 4, 128).with_bias(false))?;
        let adam = AdamW::new(store.trainable(), 1e-3).betas(0.9, 0.99).weight_decay(0.1);
        let batch =
            vec![integers(&[12, 64], 65, store.device())?, integers(&[768], 65, store.device())?];
        Ok(Training {
            loss: Box::new(move |batch| {
                cross_entropy(&gpt.logits(&batch[0])?.flatten(0, 1)?, &batch[1])
            }),
            batch,
            optimizer: Some(Box::new(adam)),
        })
    })?;
    time(b, "lstm/step", Work::Step, |store| {
        let lstm = Lstm::new(&store.root(), 64, 256)?;
        let x = Tensor::randn((32, 64, 64), DType::F32, store.device())?; // (B, T, C)
        Ok(Training {
            loss: Box::new(move |batch| lstm.forward(&batch[0])?.square()?.sum_all()?.mul(0.5)),
            batch: vec![x],
            optimizer: None,
        })
    })
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
    b.time("gpt2/prefill128", Work::Tokens(128.0), |device| {
        let (gpt, prompt, _) = make(device)?;
        Ok(move || gpt.next(&prompt, &mut gpt.caches()))
    })?;
    b.time("gpt2/decode", Work::Tokens(1.0), |device| {
        let (gpt, prompt, next) = make(device)?;
        let mut caches = gpt.caches();
        let _ = gpt.next(&prompt, &mut caches)?;
        Ok(move || {
            let logits = gpt.next(&next, &mut caches)?; // (1, V)
            caches.iter_mut().for_each(|cache| cache.truncate(128));
            Ok(logits)
        })
    })
}
