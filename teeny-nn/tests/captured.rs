//! Captured training steps: the bits of eager ones.

use std::cell::RefCell;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad, checkpoint, no_grad};
use teeny_core::{DType, DeviceRef, Lazy, Result, Tensor, ToDevice, random};
use teeny_cpu::Cpu;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, LossScale, Optimizer, Sgd, clip_grad_norm};
use teeny_nn::{
    Activation, BatchNorm, Captured, Conv2d, Dropout, Flatten, Gpt, GptConfig, LayerNorm, Linear,
    Lstm, MaxPool2d, Module, Sequential, Store,
};

/// A model as the function of its input that gives logits.
type Model = Box<dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync>;
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
        let _ = step.run(batch(8)).unwrap();
    }
    let text = step.run(batch(5)).unwrap_err().to_string();
    assert!(
        text.contains("input 0") && text.contains("(5, 4)") && text.contains("(8, 4)"),
        "{text}"
    );
    let _ = step.run(batch(8)).unwrap();
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let error = Captured::new(&Store::new(&eager), |x| Ok(x[0].clone())).unwrap_err();
    assert!(error.to_string().contains("does not record"), "{error}");
}

/// Losses and parameters after steps in which something changes, captured and not, must be equal.
fn same_when_captured(run: impl Fn(&DeviceRef, bool) -> Result<Vec<f32>>) {
    let lazy = || -> DeviceRef { Autograd::new(Lazy::new(Cpu::new())) };
    let want = random::with_seed(3, || run(&Autograd::new(Cpu::new()).to_device(), false)).unwrap();
    for captured in [false, true] {
        let got = random::with_seed(3, || run(&lazy(), captured)).unwrap();
        assert_eq!(got, want, "captured {captured}");
    }
}

#[test]
fn a_captured_step_follows_the_training_mode() {
    same_when_captured(|device, captured| {
        let store = Store::new(device);
        let model = mlp(&store)?;
        let mut loss_of = |x: &[Tensor]| cross_entropy(&model(&x[0])?, &x[1]);
        let mut step = captured.then(|| Captured::new(&store, &mut loss_of)).transpose()?;
        let mut seen = Vec::new();
        for i in 0..12 {
            store.set_training(!(4..6).contains(&i) && i != 9);
            let x = Tensor::randn((8, 10), DType::F32, device)?; // (8, 10)
            let targets = Tensor::arange(0i64, 8, 1, device)?.rem(5)?; // (8)
            seen.push(match &mut step {
                Some(step) => step.run(vec![x, targets])?.0.item()?,
                None => cross_entropy(&model(&x)?, &targets)?.item()?,
            });
        }
        for name in ["bn.running_mean", "bn.running_var"] {
            seen.extend(store.get(name)?.value().to_vec::<f32>()?);
        }
        Ok(seen)
    });
}

#[test]
fn a_captured_step_reads_the_present_loss_scale() {
    same_when_captured(|device, captured| {
        let store = Store::new(device);
        let model = Linear::new(&store.root(), 4, 1)?;
        let scale = RefCell::new(LossScale::new().initial_factor(4.0).growth_interval(1));
        let mut loss_of = |x: &[Tensor]| {
            scale.borrow().apply(&model.forward(&x[0])?.sub(&x[1])?.square()?.mean_all()?)
        };
        let mut sgd = Sgd::new(store.trainable(), 0.05);
        let mut step = captured.then(|| Captured::new(&store, &mut loss_of)).transpose()?;
        let mut seen = Vec::new();
        for i in 0..10 {
            let x = Tensor::randn((8, 4), DType::F32, device)?; // (8, 4)
            let y =
                Tensor::full((8, 1), if i == 6 { f32::INFINITY } else { 3.0 }, DType::F32, device)?;
            let gradients = match &mut step {
                Some(step) => step.run(vec![x, y])?.1,
                None => {
                    let loss = model.forward(&x)?.sub(&y)?.square()?.mean_all()?;
                    scale.borrow().apply(&loss)?.backward()?
                }
            };
            let stepped = scale.borrow_mut().step(&mut sgd, &gradients)?;
            assert_eq!(stepped, i != 6);
            seen.extend(store.get("weight")?.value().to_vec::<f32>()?);
        }
        assert_eq!(scale.borrow().factor(), 4.0 * 2f64.powi(8));
        Ok(seen)
    });
}

/// A parameter that is not an input of the function, and one that is frozen between calls.
#[test]
fn a_captured_function_follows_parameters_that_are_set_or_frozen() {
    same_when_captured(|device, captured| {
        let (store, other) = (Store::new(device), Store::new(device));
        let model = Linear::new(&store.root(), 3, 2)?;
        let teacher = Linear::new(&other.root(), 3, 2)?;
        let loss =
            |x: &Tensor| model.forward(x)?.sub(teacher.forward(x)?.detach()?)?.square()?.mean_all();
        let mut step = captured.then(|| Captured::new(&store, |x| loss(&x[0]))).transpose()?;
        let mut seen = Vec::new();
        for i in 0..14 {
            if i == 5 {
                let weight = Tensor::ones((3, 2), DType::F32, device)?.t()?; // (2, 3)
                other.get("weight")?.set(&weight)?;
                store.get("weight")?.set(&weight)?;
            }
            if i == 9 || i == 11 {
                store.get("weight")?.set_trainable(i == 11)?;
            }
            let x = Tensor::randn((4, 3), DType::F32, device)?; // (4, 3)
            let (value, gradients) = match &mut step {
                Some(step) => step.run(vec![x])?,
                None => {
                    let value = loss(&x)?;
                    (value.detach()?, value.backward()?)
                }
            };
            seen.push(value.item()?);
            for param in store.all() {
                match gradients.contains(&param.value()) {
                    true => seen.extend(gradients.get(&param.value())?.to_vec::<f32>()?),
                    false => seen.push(f32::INFINITY),
                }
            }
        }
        Ok(seen)
    });
}

/// Recomputation draws the dropout of the first pass again, and does not count a batch twice.
#[test]
fn checkpoints_draw_the_same_and_leave_running_statistics_alone() {
    same_when_captured(|device, captured| {
        let store = Store::new(device);
        let model: Arc<Model> = Arc::new(mlp(&store)?);
        let loss_of = |x: &[Tensor], saved: bool| {
            let body = model.clone();
            let y = match saved {
                true => checkpoint(move |x| body(&x[0]), &[&x[0]])?,
                false => model(&x[0])?,
            };
            cross_entropy(&y, &x[1])
        };
        let mut step = captured.then(|| Captured::new(&store, |x| loss_of(x, true))).transpose()?;
        let mut seen = Vec::new();
        for i in 0..6 {
            let x = Tensor::randn((8, 10), DType::F32, device)?; // (8, 10)
            let targets = Tensor::arange(0i64, 8, 1, device)?.rem(5)?; // (8)
            let (loss, gradients) = match &mut step {
                Some(step) => step.run(vec![x, targets])?,
                // Every other call without the checkpoint, whose numbers are the same.
                None => {
                    let loss = loss_of(&[x, targets], i % 2 == 0)?;
                    (loss.detach()?, loss.backward()?)
                }
            };
            seen.push(loss.item()?);
            seen.extend(gradients.get(&store.get("fc1.weight")?.value())?.to_vec::<f32>()?);
            seen.extend(store.get("bn.running_mean")?.value().to_vec::<f32>()?);
        }
        let counted: i32 = store.get("bn.num_batches_tracked")?.value().item()?;
        assert_eq!(counted, 6);
        Ok(seen)
    });
}

#[test]
fn a_captured_step_without_gradients_fails_as_a_call_does() {
    let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
    let store = Store::new(&device);
    let model = Linear::new(&store.root(), 4, 1).unwrap();
    let mut step = Captured::new(&store, |x| model.forward(&x[0])?.square()?.mean_all()).unwrap();
    let batch = || vec![Tensor::ones((2, 4), DType::F32, &device).unwrap()];
    for _ in 0..3 {
        let _ = step.run(batch()).unwrap();
    }
    let text = no_grad(|| step.run(batch())).unwrap_err().to_string();
    assert!(text.contains("no_grad"), "{text}");
    (0..3).for_each(|_| drop(step.run(batch()).unwrap()));
    assert!(step.is_replaying());
}
