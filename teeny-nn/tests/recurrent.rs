//! Recurrent layers: states, final states and all gradients against PyTorch
//! (`golden/recurrent.json`), also of sequences of several lengths, whose other tests are in
//! `sequence_lengths`; finite differences, and errors.

use crate::common::*;
use serde_json::Value;
use teeny_autograd::{Autograd, Check, Grad, gradcheck, gradgradcheck, no_grad};
use teeny_core::{DType, DeviceRef, Reference, Tensor, random};
use teeny_nn::recurrent::{
    GruCell, LstmCell, RecurrentOptions, RnnCell, RnnNonlinearity, SequenceLayout,
};
use teeny_nn::{Gru, Lstm, Module, Rnn, Store};

fn golden() -> Value {
    parse(include_str!("golden/recurrent.json"))
}

/// `Σ y w` with `w = 1, 2, 3, .. / numel`.
pub fn weighted(y: &Tensor) -> Tensor {
    let n = y.numel();
    let w = f64s((1..=n).map(|i| i as f64 / n as f64).collect(), y.shape(), y.device());
    y.mul(&w).unwrap().sum_all().unwrap()
}

fn fill(store: &Store, state: &Value) {
    assert_eq!(store.all().len(), state.as_object().unwrap().len(), "{store:?}");
    for (name, value) in state.as_object().unwrap() {
        store.get(name).unwrap().set(&tensor(value, store.device())).unwrap();
    }
}

fn check_params(store: &Store, grads: &teeny_autograd::Gradients, case: &Value) {
    for param in store.trainable() {
        assert_close(
            &values(grads.get(&param.value()).unwrap()),
            &numbers(&case["grads"][param.name()]),
            1e-10,
            case,
        );
    }
}

#[test]
fn recurrent_stacks_agree_with_pytorch_in_states_and_gradients() {
    for case in golden()["cases"].as_array().unwrap() {
        let store = Store::with_dtype(autograd(), DType::F64);
        let (path, device) = (store.root(), store.device());
        let size = |name: &str| case[name].as_u64().unwrap() as usize;
        let flag = |name: &str| case[name] == true;
        let layout = if flag("batch_first") {
            SequenceLayout::BatchFirst
        } else {
            SequenceLayout::TimeFirst
        };
        let options = RecurrentOptions::new()
            .with_num_layers(size("layers"))
            .with_bias(flag("bias"))
            .with_layout(layout)
            .with_bidirectional(flag("bidirectional"));
        let (inputs, hidden) = (size("inputs"), size("hidden"));
        let leaf = |v: &Value| tensor(v, device).requires_grad().unwrap();
        let x = leaf(&case["x"]);
        let lengths = case["lengths"].as_array().map(|_| sizes(&case["lengths"]));
        let start: Vec<Tensor> =
            case["start"].as_array().map_or(Vec::new(), |all| all.iter().map(leaf).collect());
        let (y, last) = match case["kind"].as_str().unwrap() {
            "rnn" => {
                let rnn = Rnn::with_options(&path, inputs, hidden, options).unwrap();
                let rnn =
                    if flag("relu") { rnn.with_nonlinearity(RnnNonlinearity::Relu) } else { rnn };
                fill(&store, &case["state"]);
                let (y, h) = match &lengths {
                    Some(lengths) => rnn.forward_lengths(&x, lengths, start.first()).unwrap(),
                    None => rnn.forward_with(&x, start.first()).unwrap(),
                };
                (y, vec![h])
            }
            "gru" => {
                let gru = Gru::with_options(&path, inputs, hidden, options).unwrap();
                fill(&store, &case["state"]);
                let (y, h) = match &lengths {
                    Some(lengths) => gru.forward_lengths(&x, lengths, start.first()).unwrap(),
                    None => gru.forward_with(&x, start.first()).unwrap(),
                };
                (y, vec![h])
            }
            _ => {
                let lstm = Lstm::with_options(&path, inputs, hidden, options).unwrap();
                fill(&store, &case["state"]);
                let state = start.first().map(|h| (h, &start[1]));
                let (y, (h, c)) = match &lengths {
                    Some(lengths) => lstm.forward_lengths(&x, lengths, state).unwrap(),
                    None => lstm.forward_with(&x, state).unwrap(),
                };
                (y, vec![h, c])
            }
        };
        assert_eq!(y.shape()[..], sizes(&case["y"]["shape"]), "{case}");
        assert_close(&values(&y), &numbers(&case["y"]["data"]), 1e-12, case);
        let mut loss = weighted(&y);
        for (last, wanted) in last.iter().zip(case["last"].as_array().unwrap()) {
            assert_eq!(last.shape()[..], sizes(&wanted["shape"]), "{case}");
            assert_close(&values(last), &numbers(&wanted["data"]), 1e-12, case);
            loss = loss.add(weighted(last)).unwrap();
        }
        let grads = loss.backward().unwrap();
        assert_close(&values(grads.get(&x).unwrap()), &numbers(&case["grad_x"]), 1e-10, case);
        for (start, wanted) in start.iter().zip(case["grad_start"].as_array().unwrap()) {
            assert_close(&values(grads.get(start).unwrap()), &numbers(wanted), 1e-10, case);
        }
        check_params(&store, &grads, case);
    }
}

#[test]
fn recurrent_cells_agree_with_pytorch() {
    for case in golden()["cells"].as_array().unwrap() {
        let store = Store::with_dtype(autograd(), DType::F64);
        let (path, device) = (store.root(), store.device());
        let [x, h, c] = ["x", "h", "c"].map(|name| tensor(&case[name], device));
        let rnn = |relu: bool| {
            let cell = RnnCell::new(&path, 2, 3).unwrap();
            fill(&store, &case["state"]);
            vec![
                if relu { cell.with_nonlinearity(RnnNonlinearity::Relu) } else { cell }
                    .step(&x, &h)
                    .unwrap(),
            ]
        };
        let result = match case["kind"].as_str().unwrap() {
            "rnn" => rnn(false),
            "relu" => rnn(true),
            "gru" => {
                let cell = GruCell::new(&path, 2, 3).unwrap();
                fill(&store, &case["state"]);
                vec![cell.step(&x, &h).unwrap()]
            }
            _ => {
                let cell = LstmCell::new(&path, 2, 3).unwrap();
                fill(&store, &case["state"]);
                let (h, c) = cell.step(&x, &h, &c).unwrap();
                vec![h, c]
            }
        };
        let mut loss = Tensor::zeros((), DType::F64, device).unwrap();
        for (y, wanted) in result.iter().zip(case["result"].as_array().unwrap()) {
            assert_close(&values(y), &numbers(&wanted["data"]), 1e-12, case);
            loss = loss.add(weighted(y)).unwrap();
        }
        check_params(&store, &loss.backward().unwrap(), case);
    }
}

#[test]
fn recurrent_layers_pass_gradcheck_twice() {
    let both = RecurrentOptions::new().with_bidirectional(true);
    check_module(|s| Ok(Box::new(Rnn::with_options(&s.root(), 2, 2, both)?)), &[2, 3, 2]);
    check_module(|s| Ok(Box::new(Gru::with_options(&s.root(), 2, 2, both)?)), &[2, 3, 2]);
    check_module(|s| Ok(Box::new(Lstm::with_options(&s.root(), 2, 2, both)?)), &[2, 3, 2]);
    check_module(
        |s| Ok(Box::new(Lstm::with_options(&s.root(), 2, 2, both.with_num_layers(2))?)),
        &[1, 1, 2],
    );
}

#[test]
fn the_last_state_passes_gradcheck_by_the_first() {
    let device = Reference::new();
    let draw = |shape: &[usize]| Tensor::uniform(-1.0, 1.0, shape, DType::F64, &device).unwrap();
    random::with_seed(4, || {
        let (x, h, c) = (draw(&[1, 3, 2]), draw(&[1, 1, 2]), draw(&[1, 1, 2]));
        let f = |inputs: &[Tensor]| {
            let store = Store::with_dtype(inputs[0].device(), DType::F64);
            let lstm = random::with_seed(7, || Lstm::new(&store.root(), 2, 2))?;
            let (_, (h, c)) = lstm.forward_with(&inputs[0], Some((&inputs[1], &inputs[2])))?;
            h.add(&c)
        };
        gradcheck(f, &[x.clone(), h.clone(), c.clone()], &Check::default()).unwrap();
        gradgradcheck(f, &[x, h, c], &Check::default()).unwrap();
    });
}

#[test]
fn shuffling_early_tokens_changes_an_rnn_output_and_the_gradient_reaches_step_1() {
    type Make = fn(&Store) -> Box<dyn Module>;
    let rnn: Make = |s| Box::new(Rnn::new(&s.root(), 3, 4).unwrap());
    let gru: Make = |s| Box::new(Gru::new(&s.root(), 3, 4).unwrap());
    let lstm: Make = |s| Box::new(Lstm::new(&s.root(), 3, 4).unwrap());
    for layer in [rnn, gru, lstm] {
        let store = Store::new(autograd());
        // (1, 6, 3)
        let (layer, x) = random::with_seed(2, || {
            (layer(&store), Tensor::randn((1, 6, 3), DType::F32, store.device()).unwrap())
        });
        let last = |x: &Tensor| layer.forward(x).unwrap().at(1, -1).unwrap(); // (1, 4)
        let order = Tensor::new([1i64, 0, 2, 3, 4, 5], store.device()).unwrap(); // (6)
        let moved = last(&x.index_select(1, &order).unwrap())
            .sub(last(&x))
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .item::<f32>()
            .unwrap();
        assert!(
            moved > 1e-4,
            "{}: the order of the first two steps moves the end by {moved}",
            layer.describe()
        );
        let x = x.requires_grad().unwrap();
        let grads = last(&x).sum_all().unwrap().backward().unwrap();
        let first = grads
            .get(&x)
            .unwrap()
            .at(1, 0)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .item::<f32>()
            .unwrap();
        assert!(first > 1e-6, "{}: the gradient at step 1 is {first}", layer.describe());
    }
}

#[test]
fn a_sequence_in_two_parts_is_the_sequence() {
    let store = Store::with_dtype(device(), DType::F64);
    let options = RecurrentOptions::new().with_num_layers(2);
    let x = Tensor::randn((2, 7, 3), DType::F64, store.device()).unwrap(); // (2, 7, 3)
    // (2, 4, 3), (2, 3, 3)
    let [early, late] = [x.slice(1, ..4).unwrap(), x.slice(1, 4..).unwrap()];
    let joined = |a: &Tensor, b: &Tensor| values(&Tensor::cat(&[a, b], 1).unwrap());

    let lstm = Lstm::with_options(&store.at("lstm"), 3, 4, options).unwrap();
    let (first, (h, c)) = lstm.forward_with(&early, None).unwrap();
    let (second, _) = lstm.forward_with(&late, Some((&h, &c))).unwrap();
    assert_close(&joined(&first, &second), &values(&lstm.forward(&x).unwrap()), 1e-14, &"lstm");
    let gru = Gru::with_options(&store.at("gru"), 3, 4, options).unwrap();
    let (first, h) = gru.forward_with(&early, None).unwrap();
    let (second, _) = gru.forward_with(&late, Some(&h)).unwrap();
    assert_close(&joined(&first, &second), &values(&gru.forward(&x).unwrap()), 1e-14, &"gru");
}

#[test]
fn dropout_lies_between_recurrent_layers_in_training() {
    let store = Store::new(device());
    let options = RecurrentOptions::new().with_num_layers(2).with_dropout(0.5);
    let rnn = Rnn::with_options(&store.root(), 3, 8, options).unwrap();
    let x = Tensor::randn((2, 4, 3), DType::F32, store.device()).unwrap(); // (2, 4, 3)
    let twice = || [(); 2].map(|()| values(&rnn.forward(&x).unwrap()));
    let [a, b] = twice();
    assert_ne!(a, b);
    store.set_training(false);
    let [a, b] = twice();
    assert_eq!(a, b);
}

#[test]
fn recurrent_layers_record_nothing_without_gradients() {
    let device: DeviceRef = Autograd::new(Reference::new());
    let store = Store::new(&device);
    let x = Tensor::ones((1, 4, 2), DType::F32, &device).unwrap(); // (1, 4, 2)
    let layers: [Box<dyn Module>; 3] = [
        Box::new(Rnn::new(&store.at("rnn"), 2, 3).unwrap()),
        Box::new(Gru::new(&store.at("gru"), 2, 3).unwrap()),
        Box::new(Lstm::new(&store.at("lstm"), 2, 3).unwrap()),
    ];
    for layer in layers {
        let (tracked, plain) = (layer.forward(&x).unwrap(), no_grad(|| layer.forward(&x)).unwrap());
        assert!(tracked.is_tracked() && !plain.is_tracked());
        assert_eq!(values(&tracked), values(&plain), "other kernels, the same bits");
    }
}

#[test]
fn recurrent_layers_say_what_does_not_fit() {
    let store = Store::new(device());
    let path = store.root();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, store.device()).unwrap();
    let lstm = Lstm::new(&path, 3, 4).unwrap();
    let fails = |x: &Tensor, state: Option<(&Tensor, &Tensor)>, text: &str| {
        let error = lstm.forward_with(x, state).unwrap_err().to_string();
        assert!(
            error.starts_with("lstm at ") && error.contains("recurrent.rs") && error.contains(text),
            "{error}"
        );
    };
    fails(&zeros(&[2, 5, 4]), None, "the input must be (B, T, 3), not (2, 5, 4)");
    fails(&zeros(&[5, 3]), None, "x.unsqueeze(0)? is a batch of one");
    fails(&zeros(&[2, 0, 3]), None, "at least one step");
    let h = zeros(&[1, 2, 4]);
    fails(
        &zeros(&[2, 5, 3]),
        Some((&h, &zeros(&[1, 3, 4]))),
        "an initial state must be (layers directions, B, H) = [1, 2, 4], not (1, 3, 4)",
    );
    assert_eq!(lstm.forward(&zeros(&[0, 5, 3])).unwrap().shape()[..], [0, 5, 4]);
    let none = RecurrentOptions::new().with_num_layers(0);
    assert!(
        Rnn::with_options(&path.at("r"), 3, 4, none)
            .unwrap_err()
            .to_string()
            .contains("0 layers of 4 hidden values")
    );
    let cell = GruCell::new(&path.at("cell"), 3, 4).unwrap();
    assert!(
        cell.step(&zeros(&[2, 3]), &zeros(&[1, 4]))
            .unwrap_err()
            .to_string()
            .contains("a state must be (2, 4), not (1, 4)")
    );
    assert!(
        cell.step(&zeros(&[2, 4]), &zeros(&[2, 4]))
            .unwrap_err()
            .to_string()
            .contains("the input must be (B, 3), not (2, 4)")
    );
}
