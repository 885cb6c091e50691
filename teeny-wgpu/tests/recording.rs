//! The recording device over this engine: the suite, random graphs, and the launches of a step.

use crate::common;
use teeny_autograd::{Autograd, Grad};
use teeny_conformance::{Suite, fuzz};
use teeny_core::{DType, DeviceRef, Lazy, Result, Tensor, random};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::{Captured, Gpt, GptConfig, Linear, Module, Store};
use teeny_wgpu::Wgpu;

#[test]
fn the_suite_passes_on_a_recording_device() {
    let Some(gpu) = common::gpu() else { return };
    let suite = Suite::new(Lazy::new(gpu))
        .flushes_subnormals()
        .loses_zero_signs()
        .multiplies_padding()
        .simplifies_programs();
    // Positions outside an axis are found when a result is read.
    let report = suite.trusts_indices().dtypes(&[DType::F32, DType::I32]).run();
    assert!(report.passed(), "{report}");
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let Some(gpu) = common::gpu() else { return };
    let graphs = std::env::var("TEENY_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(300);
    fuzz(Lazy::new(gpu), graphs, 22).unwrap_or_else(|failure| panic!("{failure}"));
}

type Model = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// Launches, submissions and the loss of the tenth step of training: eager, recorded or captured.
fn tenth_step(gpu: &Wgpu, device: &DeviceRef, captured: bool, gpt: bool) -> (u64, u64, f32) {
    random::with_seed(7, || {
        let store = Store::new(Autograd::new(device.clone()));
        let on = store.device();
        let (shape, classes): (&[usize], _) = if gpt { (&[2, 16], 13) } else { (&[32, 20], 5) };
        let model: Model = if gpt {
            let gpt = Gpt::new(&store.root(), GptConfig::new(13, 16, 2, 2, 24))?;
            Box::new(move |x| gpt.logits(x)?.at(1, -1))
        } else {
            let fc1 = Linear::new(&store.at("fc1"), 20, 32)?;
            let fc2 = Linear::new(&store.at("fc2"), 32, 5)?;
            Box::new(move |x| fc2.forward(&fc1.forward(x)?.gelu()?))
        };
        let x = Tensor::randn(shape, DType::F32, on)?;
        let x = if gpt { x.abs()?.mul(5.0)?.cast(DType::I32)?.rem(13)? } else { x };
        let targets = Tensor::arange(0i32, shape[0] as i32, 1, on)?.rem(classes)?;
        let mut adam = AdamW::new(store.trainable(), 0.01).check_finite(0);
        let mut loss_of = |x: &[Tensor]| cross_entropy(&model(&x[0])?, &x[1]);
        let mut step = captured.then(|| Captured::new(&store, &mut loss_of)).transpose()?;
        let mut last = (0, 0, 0.0);
        for _ in 0..10 {
            let before = gpu.counters();
            let (loss, gradients) = match &mut step {
                Some(step) => step.run(vec![x.clone(), targets.clone()])?,
                None => {
                    let loss = cross_entropy(&model(&x)?, &targets)?;
                    (loss.detach()?, loss.backward()?)
                }
            };
            adam.step(&gradients)?;
            drop(gradients);
            on.synchronize()?;
            let after = gpu.counters();
            let launches = after.dispatches - before.dispatches;
            last = (launches, after.submissions - before.submissions, loss.item::<f32>()?);
        }
        Ok::<_, teeny_core::Error>(last)
    })
    .unwrap()
}

#[test]
fn a_recorded_step_launches_less_and_trains_alike() {
    for gpt in [false, true] {
        let Some(gpu) = common::gpu() else { return };
        let eager: DeviceRef = gpu.clone();
        let lazy: DeviceRef = Lazy::new(gpu.clone());
        let want = tenth_step(&gpu, &eager, false, gpt);
        for captured in [false, true] {
            let got = tenth_step(&gpu, &lazy, captured, gpt);
            println!("gpt {gpt}, captured {captured}: {want:?} eager, {got:?}");
            assert!(got.0 < want.0 && got.1 <= want.1 + u64::from(captured), "{got:?} {want:?}");
            assert!((got.2 - want.2).abs() <= 1e-3 * want.2.abs().max(1.0), "{got:?} {want:?}");
        }
    }
}
