//! Data-parallel training on this engine: gradients pass through host memory.

use crate::common;
use teeny_autograd::Autograd;
use teeny_core::{DType, DeviceRef, Result, Tensor, manual_seed};
use teeny_cpu::Cpu;
use teeny_distributed::{Communicator, DataParallel, Reduce, Threads, Zero};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::{Activation, Linear, Module, Sequential, Store};

/// The losses of some steps, and the weights, of `ranks` ranks on `device`.
fn train(device: &DeviceRef, ranks: usize, divided: bool) -> Result<(Vec<f32>, Vec<f32>)> {
    let all = Threads::run(ranks, |comm| {
        manual_seed(3);
        let store = Store::new(&(Autograd::new(device.clone()) as DeviceRef));
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 9, 16)?)
            .then(Activation::Tanh)
            .then(Linear::new(&store.at("fc2"), 16, 5)?);
        let data = DataParallel::new(&store, comm.clone())?.bucket_bytes(400);
        let data = std::sync::Arc::new(data);
        let mut adam = AdamW::new(store.trainable(), 0.01);
        let mut zero = Zero::new(data.clone(), |params| AdamW::new(params, 0.01))?;
        let mut losses = Vec::new();
        for step in 0..6 {
            let x: Vec<f32> = (0..36)
                .map(|i| ((i * 7 + step * 5 + comm.rank() * 3) % 11) as f32 / 11.0)
                .collect();
            let x = Tensor::from_vec(x, (4, 9), store.device())?; // (B, 9)
            let targets = Tensor::new([0i32, 1, 3, 4], store.device())?; // (B)
            let loss = cross_entropy(&model.forward(&x)?, &targets)?; // ()
            let loss = if divided {
                let (loss, gradients) = zero.backward(&loss)?;
                zero.step(&gradients)?;
                loss
            } else {
                let (loss, gradients) = data.backward(&loss)?;
                adam.step(&gradients)?;
                loss
            };
            losses.push(loss.item::<f32>()?);
        }
        let weights = store.trainable().into_iter().map(|p| p.value().to_vec::<f32>());
        Ok((losses, weights.collect::<Result<Vec<_>>>()?.concat()))
    })?;
    assert!(all.iter().all(|rank| *rank == all[0]), "the ranks have the same bits");
    Ok(all[0].clone())
}

#[test]
fn ranks_train_as_on_the_cpu_with_and_without_divided_state() {
    let Some(gpu) = common::gpu() else { return };
    let gpu: DeviceRef = gpu.clone();
    for ranks in [2, 3] {
        let (losses, weights) = train(&gpu, ranks, false).unwrap();
        let (cpu_losses, cpu_weights) = train(&(Cpu::new() as DeviceRef), ranks, false).unwrap();
        for (a, b) in losses.iter().zip(&cpu_losses).chain(weights.iter().zip(&cpu_weights)) {
            assert!((a - b).abs() < 1e-4, "{ranks} ranks: {a} {b}");
        }
        assert_eq!(train(&gpu, ranks, true).unwrap(), (losses, weights), "{ranks} ranks");
    }
}

#[test]
fn collectives_return_tensors_on_the_device_of_the_operand() {
    let Some(gpu) = common::gpu() else { return };
    let gpu: DeviceRef = gpu.clone();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8] {
        Threads::run(3, |comm| {
            let x = Tensor::arange(0i32, 12, 1, &gpu)?.cast(dtype)?.reshape((3, 4))?.t()?; // (4, 3)
            let sum = comm.all_reduce(&x, Reduce::Sum)?;
            assert_eq!(sum.device().info().name, gpu.info().name);
            let want: Vec<f64> =
                x.to_scalars()?.into_iter().map(|value| 3.0 * value.to_f64()).collect();
            let have: Vec<f64> =
                sum.to_scalars()?.into_iter().map(|value| value.to_f64()).collect();
            assert_eq!(have, want, "{dtype}");
            Ok(())
        })
        .unwrap();
    }
}
