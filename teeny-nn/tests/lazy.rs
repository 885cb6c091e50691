//! Training on a recording device: every optimizer gives the bits that it gives without recording,
//! and a step is one list.

use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Lazy, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{Adagrad, Adam, AdamW, Lamb, Lars, Muon, Optimizer, RmsProp, Sgd};
use teeny_nn::{
    Activation, BatchNorm, Captured, Dropout, LayerNorm, Linear, Lstm, Module, Param, Sequential,
    Store,
};

type Make = fn(Vec<Param>) -> Result<Box<dyn Optimizer>>;

const OPTIMIZERS: [(&str, Make); 8] = [
    ("sgd", |p| Ok(Box::new(Sgd::new(p, 0.1).momentum(0.9)))),
    ("adam", |p| Ok(Box::new(Adam::new(p, 0.01)))),
    ("adamw", |p| Ok(Box::new(AdamW::new(p, 0.01)))),
    ("rmsprop", |p| Ok(Box::new(RmsProp::new(p, 0.01)))),
    ("adagrad", |p| Ok(Box::new(Adagrad::new(p, 0.1)))),
    ("lamb", |p| Ok(Box::new(Lamb::new(p, 0.01)))),
    ("lars", |p| Ok(Box::new(Lars::new(p, 0.1)))),
    ("muon", |p| {
        let matrices = p.into_iter().filter(|p| p.value().ndim() == 2).collect();
        Ok(Box::new(Muon::new(matrices, 0.02)?.partial(true)))
    }),
];

/// Losses, parameters and buffers after 12 steps of a network with dropout, norms and a recurrent
/// layer, as bits.
fn train(device: &DeviceRef, make: Make) -> Result<Vec<u32>> {
    random::with_seed(3, || {
        let store = Store::new(device);
        let lstm = Lstm::new(&store.at("lstm"), 6, 10)?;
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 10, 16)?)
            .then(BatchNorm::new(&store.at("bn"), 16)?)
            .then(Activation::Gelu)
            .then(Dropout::new(&store.at("drop"), 0.2)?)
            .then(LayerNorm::new(&store.at("ln"), 16)?)
            .then(Linear::new(&store.at("fc2"), 16, 5)?);
        let mut optimizer = make(store.trainable())?;
        let mut values = Vec::new();
        for step in 0..12 {
            let x = Tensor::randn((8, 4, 6), DType::F32, device)?; // (8, 4, 6)
            let targets = Tensor::arange(0i64, 8, 1, device)?.rem(5)?; // (8)
            let h = lstm.forward(&x)?.at(1, -1)?; // (8, 10)
            let loss = cross_entropy(&model.forward(&h)?, &targets)?; // ()
            if step % 3 == 0 {
                values.push(loss.item::<f32>()?);
            }
            optimizer.step(&loss.backward()?)?;
        }
        for param in store.all() {
            values.extend(param.value().cast(DType::F32)?.to_vec::<f32>()?);
        }
        Ok(values.into_iter().map(f32::to_bits).collect())
    })
}

#[test]
fn every_optimizer_gives_the_bits_of_eager_steps() {
    for (name, make) in OPTIMIZERS {
        let eager: DeviceRef = Autograd::new(Cpu::new());
        let lazy: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
        let want = train(&eager, make).unwrap();
        let got = train(&lazy, make).unwrap();
        assert!(want.len() > 500, "{}", want.len());
        assert!(got == want, "{name}: trained differently when recorded");
    }
}

/// A step that reads nothing ends at the first operation of the next one; the gradients that the
/// optimizer has used are not held any more.
#[test]
fn a_step_of_training_is_one_list() {
    let lazy = Lazy::new(Cpu::new());
    let device: DeviceRef = Autograd::new(lazy.clone());
    let store = Store::new(&device);
    let model = Linear::new(&store.root(), 8, 3).unwrap();
    let mut sgd = Sgd::new(store.trainable(), 0.1).check_finite(0);
    let x = Tensor::ones((4, 8), DType::F32, &device).unwrap();
    let targets = Tensor::new([0i64, 1, 2, 0], &device).unwrap();
    let mut step = || {
        let loss = cross_entropy(&model.forward(&x).unwrap(), &targets).unwrap();
        sgd.step(&loss.backward().unwrap()).unwrap();
    };
    step();
    step(); // runs what the first one recorded
    let before = lazy.counters();
    for _ in 0..10 {
        step();
    }
    let after = lazy.counters();
    assert_eq!(after.boundaries - before.boundaries, 10);
    assert_eq!((after.reads, after.limits), (before.reads, before.limits));
}

/// The most scratch memory that a product of the network below takes: what is alive at its peak
/// beside its operands and its result.
fn scratch_of_products() -> u64 {
    let scratch = |[m, k, n]: [usize; 3]| {
        let cpu: DeviceRef = Cpu::new();
        let a = Tensor::randn((m, k), DType::F32, &cpu).unwrap();
        let b = Tensor::randn((k, n), DType::F32, &cpu).unwrap();
        let before = cpu.stats().live_bytes + (4 * m * n) as u64;
        cpu.clear_cache();
        let _ = a.matmul(&b).unwrap();
        cpu.stats().peak_bytes - before
    };
    // forward and the gradient of the input, the gradient of the weight
    [[128, 64, 64], [64, 128, 64]].map(scratch).into_iter().max().unwrap()
}

/// The plan of a step of a network of 20 layers keeps at most 0.6 of what eager operations store
/// alive at once, and the device allocates what is planned, except size classes and the scratch
/// memory of products. On one thread: every other thread would add its own scratch memory.
#[test]
fn a_planned_step_needs_less_memory_than_its_results() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(twenty_layers);
}

fn twenty_layers() {
    let lazy = Lazy::new(Cpu::new());
    let device: DeviceRef = Autograd::new(lazy.clone());
    let store = Store::new(&device);
    let mut model = Sequential::new();
    for i in 0..20 {
        let linear = Linear::new(&store.at(format!("fc{i}")), 64, 64).unwrap();
        model = model.then(linear).then(Activation::Gelu);
    }
    let mut sgd = Sgd::new(store.trainable(), 0.01).check_finite(0);
    let x = Tensor::randn((128, 64), DType::F32, &device).unwrap();
    let targets = Tensor::zeros((128,), DType::I64, &device).unwrap();
    device.synchronize().unwrap();
    for _ in 0..3 {
        let before = device.stats().live_bytes;
        device.clear_cache();
        let loss = cross_entropy(&model.forward(&x).unwrap(), &targets).unwrap();
        sgd.step(&loss.backward().unwrap()).unwrap();
        drop(loss);
        device.synchronize().unwrap();
        let counters = lazy.counters();
        let (peak, all) = (counters.peak_bytes as f64, counters.recorded_bytes as f64);
        assert!(peak <= 0.6 * all, "{peak} of {all} bytes");
        let measured = (device.stats().peak_bytes - before) as f64;
        let allowed = 1.15 * peak + scratch_of_products() as f64;
        assert!(measured <= allowed, "{measured} bytes, {peak} planned, {allowed} allowed");
    }
}

/// As `teeny-cpu/tests/memory.rs` has it for eager steps: once warm, a hundred recorded or captured
/// steps take their memory from the pool. A second thread asks for its scratch memory when it first
/// takes part, so a few rounds may pass before that.
#[test]
fn a_hundred_recorded_steps_ask_the_system_for_nothing() {
    for is_captured in [false, true] {
        let cpu = Cpu::new();
        let device: DeviceRef = Autograd::new(Lazy::new(cpu.clone()));
        let store = Store::new(&device);
        let model = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 20, 64).unwrap())
            .then(Activation::Gelu)
            .then(Linear::new(&store.at("fc2"), 64, 5).unwrap());
        let mut adam = AdamW::new(store.trainable(), 0.01);
        let x = Tensor::randn((32, 20), DType::F32, &device).unwrap();
        let targets = Tensor::arange(0i64, 32, 1, &device).unwrap().rem(5).unwrap();
        let loss = |x: &[Tensor]| cross_entropy(&model.forward(&x[0])?, &x[1]);
        let mut captured = Captured::new(&store, loss).unwrap();
        let mut step = || {
            let inputs = vec![x.clone(), targets.clone()];
            let (loss, gradients) = if is_captured {
                captured.run(inputs).unwrap()
            } else {
                let loss = loss(&inputs).unwrap();
                let gradients = loss.backward().unwrap();
                (loss, gradients)
            };
            adam.step(&gradients).unwrap();
            drop((loss, gradients));
            device.synchronize().unwrap();
        };
        (0..5).for_each(|_| step());
        let quiet = (0..20).any(|_| {
            let warm = cpu.pool_stats();
            (0..100).for_each(|_| step());
            let after = cpu.pool_stats();
            let (requests, hits) = (after.requests - warm.requests, after.hits - warm.hits);
            assert!(hits as f64 > 0.99 * requests as f64 && requests > 500, "{warm:?} {after:?}");
            assert_eq!(after.live_bytes, warm.live_bytes, "nothing leaks");
            after.os_allocations == warm.os_allocations
        });
        assert!(quiet, "captured {is_captured}: {:?}", cpu.pool_stats());
    }
}
