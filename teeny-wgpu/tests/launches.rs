//! The launches of a training step on this engine: eager, recorded and captured.
//!
//! `TEENY_DEBUG=1` prints each launch with its operation and shapes.

use crate::common;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Error, Lazy, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{
    Adagrad, AdamW, Optimizer, ParamGroup, ParamStates, RmsProp, Sgd, clip_grad_norm,
};
use teeny_nn::{Activation, Captured, Gpt, GptConfig, Init, Linear, Module, Sequential, Store};
use teeny_wgpu::Wgpu;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    /// 784-128-10 with plain SGD and a batch of 64: the perceptron of the bench.
    Mlp,
    /// Four blocks of 64 channels with AdamW and clipped gradients: the model of gpt_char.
    Gpt,
}

type Loss = Box<dyn FnMut(&[Tensor]) -> Result<Tensor>>;

fn unused(_: &[Tensor]) -> Result<Tensor> {
    Err(Error::internal("the loss is captured"))
}

/// The launches of the third step of training, and its loss.
fn third_step(
    gpu: &Wgpu,
    device: &DeviceRef,
    network: Network,
    is_captured: bool,
) -> Result<(u64, f32)> {
    let store = Store::new(Autograd::new(device.clone()));
    let on = store.device();
    let integers = |shape: &[usize], limit: i32| {
        Tensor::rand(shape, DType::F32, on)?.mul(f64::from(limit))?.floor()?.cast(DType::I32)
    };
    let (mut loss, batch, mut optimizer): (Loss, _, Box<dyn Optimizer>) = match network {
        Network::Mlp => {
            let path = store.root();
            let net = Sequential::new()
                .then(Linear::new(&path.at("fc1"), 784, 128)?)
                .then(Activation::Relu)
                .then(Linear::new(&path.at("fc2"), 128, 10)?);
            let batch = vec![Tensor::randn((64, 784), DType::F32, on)?, integers(&[64], 10)?];
            let sgd = Sgd::new(store.trainable(), 0.01).check_finite(0);
            (Box::new(move |x| cross_entropy(&net.forward(&x[0])?, &x[1])), batch, Box::new(sgd))
        }
        Network::Gpt => {
            let gpt = Gpt::new(&store.root(), GptConfig::new(65, 64, 4, 4, 128).with_bias(false))?;
            let batch = vec![integers(&[2, 64], 65)?, integers(&[128], 65)?];
            let adam = AdamW::new(store.trainable(), 1e-3).weight_decay(0.1).check_finite(0);
            let loss = move |x: &[Tensor]| cross_entropy(&gpt.logits(&x[0])?.flatten(0, 1)?, &x[1]);
            (Box::new(loss), batch, Box::new(adam))
        }
    };
    let mut captured = match is_captured {
        true => Some(Captured::new(&store, std::mem::replace(&mut loss, Box::new(unused)))?),
        false => None,
    };
    let mut last = (0, 0.0);
    for _ in 0..3 {
        on.synchronize()?;
        if std::env::var("TEENY_DEBUG").is_ok() {
            eprintln!("step of {network:?}, captured {is_captured}");
        }
        let before = gpu.counters().dispatches;
        let (loss, mut gradients) = match &mut captured {
            Some(step) => step.run(batch.clone())?,
            None => {
                let loss = loss(&batch)?;
                (loss.detach()?, loss.backward()?)
            }
        };
        if network == Network::Gpt {
            clip_grad_norm(&mut gradients, &store.trainable(), 1.0)?;
        }
        optimizer.step(&gradients)?;
        drop(gradients);
        on.synchronize()?;
        last = (gpu.counters().dispatches - before, loss.item::<f32>()?);
    }
    Ok(last)
}

#[test]
fn a_training_step_takes_few_launches() {
    // The largest numbers: eager, recorded, captured.
    for (network, limits) in [(Network::Mlp, [18, 14, 14]), (Network::Gpt, [219, 206, 206])] {
        let Some(gpu) = common::gpu() else { return };
        let lazy: DeviceRef = Lazy::new(gpu.clone());
        let eager: DeviceRef = gpu.clone();
        let ways = [(&eager, false), (&lazy, false), (&lazy, true)];
        let steps = ways.map(|(device, is_captured)| {
            random::with_seed(7, || third_step(&gpu, device, network, is_captured)).unwrap()
        });
        println!("{network:?}: launches and loss of a step {steps:?}");
        for ((launches, loss), limit) in steps.into_iter().zip(limits) {
            assert!(launches <= limit, "{network:?}: {steps:?}");
            assert!((loss - steps[0].1).abs() <= 1e-3, "{network:?}: {steps:?}");
        }
    }
}

/// An optimizer that updates its parameters one by one.
struct OneByOne(Box<dyn Optimizer>);

impl Optimizer for OneByOne {
    fn states(&self) -> &ParamStates {
        self.0.states()
    }
    fn states_mut(&mut self) -> &mut ParamStates {
        self.0.states_mut()
    }
    fn state_names(&self) -> &'static [&'static str] {
        self.0.state_names()
    }
    fn update(&mut self, i: usize, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
        self.0.update(i, value, gradient)
    }
}

/// The bits of the parameters after three steps, together or one by one. One parameter is larger
/// than those that share a launch, some decay differently.
fn trained(device: &DeviceRef, kind: usize, one_by_one: bool) -> Result<Vec<Vec<u32>>> {
    let store = Store::new(Autograd::new(device.clone()));
    let shapes: [&[usize]; 6] = [&[300, 7], &[7], &[1], &[600, 600], &[33, 3], &[]];
    for (i, shape) in shapes.iter().enumerate() {
        store.root().param(&format!("p{i}"), *shape, Init::Normal { mean: 0.0, std: 1.0 })?;
    }
    let params = store.trainable();
    let group = ParamGroup::new().weight_decay(0.0);
    let is_small = |p: &teeny_nn::Param| p.value().ndim() < 2;
    let optimizer: Box<dyn Optimizer> = match kind {
        0 => Box::new(Sgd::new(params, 0.1).momentum(0.9).nesterov(true)),
        1 => Box::new(AdamW::new(params, 0.01).weight_decay(0.1).group(is_small, group)),
        2 => Box::new(RmsProp::new(params, 0.01).centered(true).momentum(0.5)),
        _ => Box::new(Adagrad::new(params, 0.1).weight_decay(0.1).group(is_small, group)),
    };
    let mut optimizer = if one_by_one { Box::new(OneByOne(optimizer)) } else { optimizer };
    for step in 1..4 {
        let by = f64::from(step);
        optimizer.step_by(&mut |param| param.value().detach()?.mul(by)?.cos())?;
    }
    let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect();
    store.trainable().iter().map(|p| Ok(bits(p.value().detach()?.to_vec()?))).collect()
}

#[test]
fn updates_in_one_launch_have_the_bits_of_one_launch_each() {
    let Some(gpu) = common::gpu() else { return };
    let cpu: DeviceRef = Cpu::new();
    let devices: [DeviceRef; 3] = [gpu.clone(), Lazy::new(gpu), cpu];
    for device in devices {
        for kind in 0..4 {
            let run = |one_by_one| random::with_seed(3, || trained(&device, kind, one_by_one));
            let (together, apart) = (run(false).unwrap(), run(true).unwrap());
            assert!(together == apart, "optimizer {kind} on {}", device.info().name);
        }
    }
}

#[test]
fn parts_of_a_shared_buffer_are_storages_of_their_own() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let device: DeviceRef = gpu;
    let double = Arc::new(teeny_core::Kernel::build([DType::F32], [], |[x], []| [x * 2.0])?);
    let x = Tensor::arange(0.0f32, 6.0, 1.0, &device)?; // (6)
    let y = Tensor::arange(0.0f32, 5.0, 1.0, &device)?; // (5)
    let [x, y] = double.run_many(&[(&[&x], &[]), (&[&y], &[])])?.try_into().unwrap();
    let (x, y) = (x.into_iter().next().unwrap(), y.into_iter().next().unwrap());
    assert_eq!(x.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    // One is written into the other, which is the only handle of its part.
    let z = x.slice_assign(0, 1..6, &y)?;
    assert_eq!(z.to_vec::<f32>()?, [0.0, 0.0, 2.0, 4.0, 6.0, 8.0]);
    let all = Tensor::cat(&[&y, &z.flip(0)?, &y.slice(0, 1..3)?], 0)?;
    assert_eq!(
        all.to_vec::<f32>()?,
        [0.0, 2.0, 4.0, 6.0, 8.0, 8.0, 6.0, 4.0, 2.0, 0.0, 0.0, 2.0, 4.0]
    );
    Ok(())
}

#[test]
fn a_product_of_small_types_in_whole_groups_of_four_is_one_launch() -> Result<()> {
    let Some(gpu) = common::gpu() else { return Ok(()) };
    let device = gpu.clone() as DeviceRef;
    let cpu = Cpu::new() as DeviceRef;
    for dtype in [DType::F16, DType::BF16, DType::I16, DType::U8] {
        // rows of 126 end within a word: in the accumulation type, and a cast
        for (n, launches) in [(128, 1), (132, 1), (126, 2)] {
            let run = |device: &DeviceRef| {
                let draw = |shape: [usize; 3]| {
                    Tensor::randint(0, 5, &shape[..], DType::I32, device)?.cast(dtype)
                };
                let (x, y) = random::with_seed(5, || {
                    Ok::<_, Error>((draw([2, 70, 40])?, draw([2, 40, n])?))
                })?;
                device.synchronize()?;
                let before = gpu.counters().dispatches;
                let product = x.matmul(&y)?; // (2, 70, n)
                let launched = gpu.counters().dispatches - before;
                Ok::<_, Error>((launched, product.cast(DType::F32)?.to_vec::<f32>()?))
            };
            let ((launched, got), (_, want)) = (run(&device)?, run(&cpu)?);
            assert_eq!(launched, launches, "{dtype} {n}");
            assert!(got == want, "{dtype} {n}");
        }
    }
    Ok(())
}
