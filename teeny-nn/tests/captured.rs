//! Captured training steps: the bits of eager ones.

use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Lazy, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer, clip_grad_norm};
use teeny_nn::{
    Activation, BatchNorm, Captured, Conv2d, Dropout, Flatten, Gpt, GptConfig, LayerNorm, Linear,
    Lstm, MaxPool2d, Module, Sequential, Store,
};

/// A model as the function of its input that gives logits.
type Model = Box<dyn Fn(&Tensor) -> Result<Tensor>>;
/// Makes a model; the shape of a batch, and the number of classes.
type Case = (&'static str, fn(&Store) -> Result<Model>, &'static [usize], usize);

const CASES: [Case; 4] = [
    ("mlp with dropout and norms", mlp, &[8, 10], 5),
    ("convolutions", cnn, &[4, 1, 12, 12], 3),
    ("lstm", lstm, &[5, 7, 6], 4),
    ("gpt", gpt, &[3, 16], 13),
];

fn mlp(store: &Store) -> Result<Model> {
    let net = Sequential::new()
        .then(Linear::new(&store.at("fc1"), 10, 16)?)
        .then(BatchNorm::new(&store.at("bn"), 16)?)
        .then(Activation::Gelu)
        .then(Dropout::new(&store.at("drop"), 0.3)?)
        .then(LayerNorm::new(&store.at("ln"), 16)?)
        .then(Linear::new(&store.at("fc2"), 16, 5)?);
    Ok(Box::new(move |x| net.forward(x)))
}

fn cnn(store: &Store) -> Result<Model> {
    let net = Sequential::new()
        .then(Conv2d::new(&store.at("conv"), 1, 4, 3)?) // (4, 4, 10, 10)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2)) // (4, 4, 5, 5)
        .then(Flatten)
        .then(Linear::new(&store.at("fc"), 100, 3)?);
    Ok(Box::new(move |x| net.forward(x)))
}

fn lstm(store: &Store) -> Result<Model> {
    let (lstm, fc) = (Lstm::new(&store.at("lstm"), 6, 9)?, Linear::new(&store.at("fc"), 9, 4)?);
    Ok(Box::new(move |x| fc.forward(&lstm.forward(x)?.at(1, -1)?)))
}

fn gpt(store: &Store) -> Result<Model> {
    let gpt = Gpt::new(&store.root(), GptConfig::new(13, 16, 2, 2, 24).with_dropout(0.1))?;
    Ok(Box::new(move |x| {
        let tokens = x.abs()?.mul(5.0)?.cast(DType::I64)?.rem(13)?; // (3, 16)
        gpt.logits(&tokens)?.at(1, -1) // (3, 13)
    }))
}

/// The losses of eight steps and the parameters and buffers after them, as bits.
fn train(device: &DeviceRef, case: &Case, captured: bool) -> Result<Vec<u32>> {
    let (_, make, shape, classes) = case;
    random::with_seed(5, || {
        let store = Store::new(device);
        let model = make(&store)?;
        let mut optimizer = AdamW::new(store.trainable(), 0.01);
        let mut loss_of = |x: &[Tensor]| cross_entropy(&model(&x[0])?, &x[1]);
        let mut step = captured.then(|| Captured::new(&store, &mut loss_of)).transpose()?;
        let mut losses = Vec::new();
        for i in 0..8 {
            let x = Tensor::randn(*shape, DType::F32, device)?;
            let targets =
                Tensor::arange(0i64, shape[0] as i64, 1, device)?.add(i)?.rem(*classes as i64)?;
            let (loss, mut gradients) = match &mut step {
                Some(step) => step.run(vec![x, targets])?,
                None => {
                    let loss = cross_entropy(&model(&x)?, &targets)?;
                    (loss.detach()?, loss.backward()?)
                }
            };
            clip_grad_norm(&mut gradients, &store.trainable(), 1.0)?;
            optimizer.step(&gradients)?;
            losses.push(loss);
        }
        assert!(step.is_none_or(|step| step.is_replaying()));
        let mut values = losses.iter().map(|l| l.item::<f32>()).collect::<Result<Vec<_>>>()?;
        for param in store.all() {
            values.extend(param.value().cast(DType::F32)?.to_vec::<f32>()?);
        }
        Ok(values.into_iter().map(f32::to_bits).collect())
    })
}

#[test]
fn captured_steps_have_the_bits_of_eager_ones() {
    for case in &CASES {
        let eager: DeviceRef = Autograd::new(Cpu::new());
        let lazy: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
        let want = train(&eager, case, false).unwrap();
        for (captured, how) in [(false, "recorded"), (true, "captured")] {
            let got = train(&lazy, case, captured).unwrap_or_else(|e| panic!("{}: {e}", case.0));
            assert!(got == want, "{}: trained differently when {how}", case.0);
        }
    }
}

#[test]
fn a_batch_of_another_shape_is_refused_and_the_step_goes_on() {
    let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
    let store = Store::new(&device);
    let model = Linear::new(&store.root(), 4, 1).unwrap();
    let mut step = Captured::new(&store, |x| model.forward(&x[0])?.square()?.mean_all()).unwrap();
    let batch = |n: usize| vec![Tensor::ones((n, 4), DType::F32, &device).unwrap()];
    for _ in 0..3 {
        step.run(batch(8)).unwrap();
    }
    let text = step.run(batch(5)).unwrap_err().to_string();
    assert!(
        text.contains("input 0") && text.contains("(5, 4)") && text.contains("(8, 4)"),
        "{text}"
    );
    step.run(batch(8)).unwrap();
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let error = Captured::new(&Store::new(&eager), |x| Ok(x[0].clone())).unwrap_err();
    assert!(error.to_string().contains("does not record"), "{error}");
}
