//! The operations of the roofline: their operands, and the run that uses them.

use crate::bench::ops::{integers, normal};
use std::hint::black_box;
use teeny_autograd::Autograd;
use teeny_core::{Attention, DType, DeviceRef, QuantTensor, QuantType, Result, Tensor, Window};
use teeny_nn::optim::{Adam, Optimizer};
use teeny_nn::{Linear, Store};

/// One run.
pub type Run = Box<dyn FnMut() -> Result<()>>;

/// The name of a workload, and its preparation.
pub type Workload = (&'static str, fn(&DeviceRef) -> Result<Run>);

/// All workloads.
pub const ALL: [Workload; 27] = [
    ("matmul/512", |device| {
        let (x, y) = (normal(&[512, 512], device)?, normal(&[512, 512], device)?);
        run(move || x.matmul(&y))
    }),
    ("matmul/512_f16", |device| {
        let [x, y] = [(); 2].map(|()| normal(&[512, 512], device)?.cast(DType::F16));
        let (x, y) = (x?, y?);
        run(move || x.matmul(&y))
    }),
    ("matmul/skinny", |device| {
        let (x, y) = (normal(&[8, 2048], device)?, normal(&[2048, 2048], device)?);
        run(move || x.matmul(&y))
    }),
    ("matvec/f32", |device| floats(DType::F32, device)),
    ("matvec/bf16", |device| floats(DType::BF16, device)),
    ("matvec/q8_0", |device| quantized(QuantType::Q8_0, device)),
    ("matvec/q6_k", |device| quantized(QuantType::Q6K, device)),
    ("matvec/q5_k", |device| quantized(QuantType::Q5K, device)),
    ("matvec/q5_1", |device| quantized(QuantType::Q5_1, device)),
    ("matvec/q5_0", |device| quantized(QuantType::Q5_0, device)),
    ("matvec/q4_k", |device| quantized(QuantType::Q4K, device)),
    ("matvec/q4_1", |device| quantized(QuantType::Q4_1, device)),
    ("matvec/q4_0", |device| quantized(QuantType::Q4_0, device)),
    ("conv/3x3", |device| {
        let (x, w) = (normal(&[2, 32, 56, 56], device)?, normal(&[64, 32, 3, 3], device)?);
        run(move || x.conv(&w, &Window::new(2).padding(1)))
    }),
    ("attention/causal", |device| {
        let [q, k, v] = [(); 3].map(|()| normal(&[1, 8, 256, 64], device));
        let (q, k, v) = (q?, k?, v?);
        run(move || q.attention(&k, &v, None, &Attention::causal(0)))
    }),
    ("softmax/4096x1024", |device| {
        let x = normal(&[4096, 1024], device)?;
        run(move || x.softmax(1))
    }),
    ("layernorm/4096x1024", |device| {
        let (x, w, bias) =
            (normal(&[4096, 1024], device)?, normal(&[1024], device)?, normal(&[1024], device)?);
        run(move || x.layer_norm(1, Some(&w), Some(&bias), 1e-5))
    }),
    ("cross_entropy/1024x4096", |device| {
        let (x, targets) = (normal(&[1024, 4096], device)?, integers(&[1024], 4096, device)?);
        run(move || x.cross_entropy(&targets, None))
    }),
    ("sum/rows", |device| {
        let x = normal(&[2048, 2048], device)?;
        run(move || x.sum(1))
    }),
    ("sum/columns", |device| {
        let x = normal(&[2048, 2048], device)?;
        run(move || x.sum(0))
    }),
    ("copy/transposed", |device| {
        let x = normal(&[2048, 2048], device)?.t()?;
        run(move || x.copy())
    }),
    ("add/4M", |device| {
        let (x, y) = (normal(&[1 << 22], device)?, normal(&[1 << 22], device)?);
        run(move || x.add(&y))
    }),
    ("gelu/4M", |device| {
        let x = normal(&[1 << 22], device)?;
        run(move || x.gelu_tanh())
    }),
    ("gelu/4M_f16", |device| {
        let x = normal(&[1 << 22], device)?.cast(DType::F16)?;
        run(move || x.gelu_tanh())
    }),
    ("gather/rows", |device| {
        let (weight, ids) = (normal(&[8192, 512], device)?, integers(&[8192], 8192, device)?);
        run(move || weight.index_select(0, &ids))
    }),
    ("cumsum/rows", |device| {
        let x = normal(&[2048, 2048], device)?;
        run(move || x.cumsum(1))
    }),
    ("adam/16x64K", adam),
];

/// An optimizer's update of 16 weights of 2^16 elements and their biases.
fn adam(device: &DeviceRef) -> Result<Run> {
    let store = Store::new(Autograd::new(device.clone()));
    for i in 0..16 {
        Linear::new(&store.root().at(format!("fc{i}")), 256, 256)?;
    }
    let (weight, bias) = (normal(&[256, 256], device)?, normal(&[256], device)?); // gradients
    let mut optimizer = Adam::new(store.trainable(), 1e-3);
    Ok(Box::new(move || {
        optimizer.step_by(&mut |param| {
            Ok(if param.value().ndim() == 2 { weight.clone() } else { bias.clone() })
        })
    }))
}

/// Runs `work` and drops its result.
fn run<T>(mut work: impl FnMut() -> Result<T> + 'static) -> Result<Run> {
    Ok(Box::new(move || {
        drop(black_box(work()?));
        Ok(())
    }))
}

/// The rows and columns of the weight of `matvec/..`: of each type it is beyond the caches.
const WEIGHT: [usize; 2] = [32_768, 4096];

/// The product of a row with a matrix of floats.
fn floats(dtype: DType, device: &DeviceRef) -> Result<Run> {
    let (x, weight) = (normal(&[1, WEIGHT[1]], device)?, Tensor::ones(WEIGHT, dtype, device)?);
    let x = x.cast(dtype)?;
    run(move || x.matmul(&weight.t()?))
}

/// The product of a row with a quantised matrix, whose rows repeat: quantising takes its time.
fn quantized(kind: QuantType, device: &DeviceRef) -> Result<Run> {
    let (x, rows) = (normal(&[1, WEIGHT[1]], device)?, normal(&[1024, WEIGHT[1]], device)?);
    let rows = QuantTensor::quantize(&rows, kind)?;
    let weight = QuantTensor::join(&vec![&rows; WEIGHT[0] / 1024])?;
    run(move || weight.linear(&x))
}
