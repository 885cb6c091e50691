//! Recurrent layers of padded sequences: each sequence has the outputs, states and gradients that
//! it has alone.

use crate::common::*;
use crate::recurrent::weighted;
use teeny_autograd::{Autograd, Check, Grad, gradcheck, gradgradcheck, no_grad};
use teeny_core::{Capture, DType, DeviceRef, Lazy, Reference, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::recurrent::{Lengths, RecurrentOptions, RnnNonlinearity, SequenceLayout};
use teeny_nn::{Captured, Gru, Lstm, Rnn, Store};

/// One of the layers, with its states as a list.
enum Layer {
    Rnn(Rnn),
    Gru(Gru),
    Lstm(Lstm),
}

impl Layer {
    /// Rnn with tanh and with ReLU, Gru and Lstm, by number.
    fn new(kind: usize, store: &Store, options: RecurrentOptions) -> Layer {
        let (path, [inputs, hidden]) = (store.root(), [3, 4]);
        match kind {
            0 => Layer::Rnn(Rnn::with_options(&path, inputs, hidden, options).unwrap()),
            1 => {
                let rnn = Rnn::with_options(&path, inputs, hidden, options).unwrap();
                Layer::Rnn(rnn.with_nonlinearity(RnnNonlinearity::Relu))
            }
            2 => Layer::Gru(Gru::with_options(&path, inputs, hidden, options).unwrap()),
            _ => Layer::Lstm(Lstm::with_options(&path, inputs, hidden, options).unwrap()),
        }
    }

    /// y and the final states.
    fn run(&self, x: &Tensor, lengths: Option<Lengths>, start: &[Tensor]) -> Result<Vec<Tensor>> {
        let one = |(y, h): (Tensor, Tensor)| vec![y, h];
        let h = start.first();
        Ok(match (self, lengths) {
            (Layer::Rnn(rnn), None) => one(rnn.forward_with(x, h)?),
            (Layer::Rnn(rnn), Some(lengths)) => one(rnn.forward_lengths(x, lengths, h)?),
            (Layer::Gru(gru), None) => one(gru.forward_with(x, h)?),
            (Layer::Gru(gru), Some(lengths)) => one(gru.forward_lengths(x, lengths, h)?),
            (Layer::Lstm(lstm), lengths) => {
                let state = h.map(|h| (h, &start[1]));
                let (y, (h, c)) = match lengths {
                    None => lstm.forward_with(x, state)?,
                    Some(lengths) => lstm.forward_lengths(x, lengths, state)?,
                };
                vec![y, h, c]
            }
        })
    }
}

/// `Σ weighted(v)` over the results.
fn total(results: &[Tensor]) -> Tensor {
    let sums: Vec<Tensor> =
        results.iter().map(|v| weighted(&v.cast(DType::F64).unwrap())).collect();
    Tensor::stack(&sums, 0).unwrap().sum_all().unwrap()
}

/// A padded batch with NaN for padding has the outputs, states and gradients of its sequences, each
/// run alone.
fn check_lengths(below: DeviceRef, dtype: DType, rng: &mut Dice, exact: bool, tolerance: f64) {
    let device: DeviceRef = Autograd::new(below);
    let (kind, steps, batch) = (rng.below(4), 1 + rng.below(6), 1 + rng.below(4));
    let lengths: Vec<usize> = (0..batch).map(|_| 1 + rng.below(steps)).collect();
    let (layers, both) = (1 + rng.below(2), rng.below(2) == 1);
    let time_first = rng.below(2) == 1;
    let layout = if time_first { SequenceLayout::TimeFirst } else { SequenceLayout::BatchFirst };
    let options = RecurrentOptions::new()
        .with_num_layers(layers)
        .with_bidirectional(both)
        .with_bias(rng.below(2) == 1)
        .with_layout(layout);
    let what = format!("kind {kind}, {lengths:?} of {steps}, {options:?}, {dtype}");
    let store = Store::with_dtype(&device, dtype);
    let layer = Layer::new(kind, &store, options);
    let draw = |shape: &[usize]| Tensor::randn(shape, dtype, &device).unwrap();
    let leaf = |x: &Tensor| x.copy().unwrap().requires_grad().unwrap();
    let directions = 1 + both as usize;
    let n = if rng.below(2) == 1 { 1 + (kind == 3) as usize } else { 0 };
    // (layers directions, B, H) each
    let start: Vec<Tensor> =
        (0..n).map(|_| leaf(&draw(&[layers * directions, batch, 4]))).collect();
    let mut x = draw(&[batch, steps, 3]); // (B, T, C)
    for (i, &length) in lengths.iter().enumerate() {
        let nan = Tensor::full((), f64::NAN, dtype, &device).unwrap();
        x = x.assign((i, length..), &nan).unwrap();
    }
    let order = |x: &Tensor| if time_first { x.transpose(0, 1).unwrap() } else { x.clone() };
    let x = leaf(&order(&x));
    let together = layer.run(&x, Some((&lengths).into()), &start).unwrap();

    let mut alone: Vec<Vec<Tensor>> = vec![Vec::new(); together.len()];
    for (i, &length) in lengths.iter().enumerate() {
        let part = order(&x).slice(0, i..i + 1).unwrap().slice(1, ..length).unwrap(); // (1, T_i, C)
        let start: Vec<Tensor> = start.iter().map(|s| s.slice(1, i..i + 1).unwrap()).collect();
        let results = layer.run(&order(&part), None, &start).unwrap();
        let y = order(&results[0]).pad(&[(0, 0), (0, (steps - length) as isize), (0, 0)], 0.0);
        alone[0].push(y.unwrap()); // (1, T, directions H)
        (1..results.len()).for_each(|k| alone[k].push(results[k].clone()));
    }
    let alone: Vec<Tensor> =
        (0..alone.len()).map(|k| Tensor::cat(&alone[k], (k > 0) as isize).unwrap()).collect();
    let alone: Vec<Tensor> =
        alone.iter().enumerate().map(|(k, v)| if k == 0 { order(v) } else { v.clone() }).collect();
    for (got, want) in together.iter().zip(&alone) {
        assert_eq!(got.shape(), want.shape(), "{what}");
        if exact {
            assert_eq!(values(got), values(want), "{what}");
        }
        assert_close(&values(got), &values(want), tolerance, &what);
    }
    let grads = [&together, &alone].map(|results| total(results).backward().unwrap());
    let params: Vec<Tensor> = store.trainable().iter().map(|p| p.value()).collect();
    for leaf in [&x].into_iter().chain(&start).chain(&params) {
        let [got, want] = [0, 1].map(|i| values(grads[i].get(leaf).unwrap()));
        assert_close(&got, &want, tolerance, &what);
    }
}

#[test]
fn padded_sequences_are_those_that_run_alone() {
    let mut rng = Dice(11);
    random::with_seed(12, || {
        for _ in 0..60 * fuzz_times() {
            // Rows of Reference's products do not depend on each other; gradients of weights are
            // sums in another order.
            check_lengths(Reference::new(), DType::F64, &mut rng, true, 1e-12);
        }
        for _ in 0..30 * fuzz_times() {
            // products of other sizes have other kernels
            check_lengths(Cpu::new(), DType::F32, &mut rng, false, 2e-5);
            check_lengths(Lazy::new(Cpu::new()), DType::F32, &mut rng, false, 2e-5);
            check_lengths(Cpu::new(), DType::F16, &mut rng, false, 2e-2);
            check_lengths(Cpu::new(), DType::BF16, &mut rng, false, 2e-1);
        }
    });
}

#[test]
fn whole_lengths_are_the_bits_of_none() {
    for device in [device(), Cpu::new()] {
        for kind in 0..4 {
            let store = Store::new(&device);
            let options = RecurrentOptions::new().with_bidirectional(true).with_num_layers(2);
            let layer = Layer::new(kind, &store, options);
            let x = Tensor::randn((3, 5, 3), DType::F32, &device).unwrap(); // (3, 5, 3)
            let plain = layer.run(&x, None, &[]).unwrap();
            let whole = layer.run(&x, Some((&[5; 3]).into()), &[]).unwrap();
            for (a, b) in plain.iter().zip(&whole) {
                assert_eq!(values(a), values(b), "kind {kind}");
            }
        }
    }
}

#[test]
fn padded_sequences_pass_gradcheck_twice() {
    let device = Reference::new();
    let draw = |shape: &[usize]| Tensor::uniform(-1.0, 1.0, shape, DType::F64, &device).unwrap();
    random::with_seed(4, || {
        let inputs = [draw(&[2, 3, 3]), draw(&[2, 2, 4]), draw(&[2, 2, 4])];
        for kind in [0, 2, 3] {
            let f = |inputs: &[Tensor]| {
                let store = Store::with_dtype(inputs[0].device(), DType::F64);
                let both = RecurrentOptions::new().with_bidirectional(true);
                let layer = random::with_seed(7, || Layer::new(kind, &store, both));
                let start = &inputs[1..if kind == 3 { 3 } else { 2 }];
                Ok(total(&layer.run(&inputs[0], Some((&[1, 3]).into()), start)?))
            };
            let inputs = &inputs[..if kind == 3 { 3 } else { 2 }];
            gradcheck(f, inputs, &Check::default()).unwrap();
            gradgradcheck(f, inputs, &Check::default()).unwrap();
        }
    });
}

#[test]
fn states_stay_finite_in_padding() {
    let store = Store::new(autograd());
    let options = RecurrentOptions::new().with_bidirectional(true);
    let layer = Layer::new(1, &store, options); // h' = relu(..) is 3 times as large in each step
    for param in store.trainable() {
        param.set(&Tensor::ones_like(&param.value()).unwrap()).unwrap();
    }
    let x = Tensor::ones((2, 200, 3), DType::F32, store.device()).unwrap(); // (2, 200, 3)
    let x = x.requires_grad().unwrap();
    let results = layer.run(&x, Some((&[2, 1]).into()), &[]).unwrap();
    let grads = total(&results).backward().unwrap();
    for param in store.trainable() {
        let grad = values(grads.get(&param.value()).unwrap());
        assert!(grad.iter().all(|g| g.is_finite() && g.abs() > 0.0), "{} {grad:?}", param.name());
    }
    let grad = values(grads.get(&x).unwrap());
    assert!(
        grad.iter().enumerate().all(|(i, &g)| (g != 0.0) == (i < 6 || (600..603).contains(&i)))
    );
}

#[test]
fn lengths_are_inputs_of_a_captured_step_or_its_constants() {
    let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
    let store = Store::new(&device);
    let options = RecurrentOptions::new().with_bidirectional(true).with_num_layers(2);
    let lstm = Lstm::with_options(&store.root(), 3, 4, options).unwrap();
    let loss = |x: &Tensor, lengths: Lengths| {
        let (y, (h, _)) = lstm.forward_lengths(x, lengths, None)?;
        y.square()?.mean_all()?.add(h.sum_all()?)
    };
    let draw = || Tensor::randn((3, 5, 3), DType::F32, &device).unwrap(); // (3, 5, 3)
    let mut step = Captured::new(&store, |x| loss(&x[0], Lengths::Tensor(&x[1]))).unwrap();
    for lengths in [[5, 1, 3], [2, 2, 2], [1, 5, 4], [3, 1, 5]] {
        let (x, n) = (draw(), lengths.map(|n| n as i64));
        let (got, grads) = step.run(vec![x.clone(), Tensor::new(n, &device).unwrap()]).unwrap();
        let want = loss(&x, (&lengths).into()).unwrap();
        assert_eq!(values(&got), values(&want), "{lengths:?}");
        let eager = want.backward().unwrap();
        for param in store.trainable() {
            let [got, want] = [&grads, &eager].map(|g| values(g.get(&param.value()).unwrap()));
            assert_eq!(got, want, "{lengths:?} {}", param.name());
        }
    }
    assert!(step.is_replaying());

    let mut constant =
        Capture::new(&device, |x| Ok(vec![no_grad(|| loss(&x[0], (&[5, 1, 3]).into()))?])).unwrap();
    for _ in 0..4 {
        let x = draw();
        let want = no_grad(|| loss(&x, (&[5, 1, 3]).into())).unwrap();
        assert_eq!(values(&constant.run(vec![x]).unwrap()[0]), values(&want));
    }
    assert!(constant.is_replaying());
    let mut lengths = [5, 1, 3];
    let mut changing = Capture::new(&device, |x| {
        lengths[1] += 1;
        Ok(vec![no_grad(|| loss(&x[0], (&lengths).into()))?])
    })
    .unwrap();
    let _ = changing.run(vec![draw()]).unwrap();
    let error = changing.run(vec![draw()]).unwrap_err().to_string();
    assert!(
        error.contains("a tensor that lstm at") && error.contains("pass it to the function as"),
        "{error}"
    );
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let store = Store::new(device());
    let gru = Gru::new(&store.root(), 3, 4).unwrap();
    let x = Tensor::zeros((2, 5, 3), DType::F32, store.device()).unwrap(); // (2, 5, 3)
    let tensor = |lengths: &[i32]| Tensor::from_slice(lengths, lengths.len(), &x).unwrap();
    let fails = |lengths: Lengths, text: &str, help: &str| {
        let error = gru.forward_lengths(&x, lengths, None).unwrap_err().to_string();
        assert!(error.starts_with("gru at ") && error.contains("sequence_lengths.rs"), "{error}");
        assert!(error.contains(text) && error.contains(help), "{error}");
    };
    fails((&[5]).into(), "lengths (1,) of i32 do not fit 2 sequences", "its number of real steps");
    fails((&[5, 0]).into(), "lengths[1] is 0, but x has 5 steps (1..=5)", "pad to the longest");
    fails((&[6, 5]).into(), "lengths[0] is 6, but x has 5 steps (1..=5)", "pad to the longest");
    let floats = x.sum([1, 2]).unwrap(); // (2)
    fails(
        Lengths::Tensor(&tensor(&[5])),
        "lengths (1,) of i32 do not fit 2 sequences",
        "an integer",
    );
    fails(Lengths::Tensor(&floats), "lengths (2,) of f32 do not fit 2 sequences", "an integer");
    fails(Lengths::Tensor(&tensor(&[5, 0])), "[0, 1] is -1, but", "lengths are 1 to T");
    fails(Lengths::Tensor(&tensor(&[6, 5])), "[0, 0] is 5, but", "lengths are 1 to T");
    let empty = Tensor::zeros((0, 5, 3), DType::F32, store.device()).unwrap(); // (0, 5, 3)
    assert_eq!(gru.forward_lengths(&empty, &[], None).unwrap().0.shape()[..], [0, 5, 4]);
}
