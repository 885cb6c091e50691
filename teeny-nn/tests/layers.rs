//! Layers: forward and backward against PyTorch (`golden/layers.json`, `golden/activations.json`),
//! initial weights, dropout, chains.

use crate::common::*;
use serde_json::Value;
use teeny_autograd::Grad;
use teeny_core::{DType, Tensor, random};
use teeny_nn::conv::Conv2dOptions;
use teeny_nn::data::{Dataset, digits};
use teeny_nn::init::{Nonlinearity, calculate_gain};
use teeny_nn::loss::cross_entropy;
use teeny_nn::{
    Activation, Conv2d, Dropout, Flatten, Init, Linear, LinearOptions, MaxPool2d, Module, PRelu,
    PReluOptions, Sequential, Store,
};

fn golden() -> Value {
    parse(include_str!("golden/layers.json"))
}

/// The layer of a case with its weights, in f64.
fn layer(case: &Value, store: &Store) -> Box<dyn Module> {
    let device = store.device().clone();
    let weight = tensor(&case["weight"], &device);
    let bias = case["bias"].as_array().map(|_| numbers(&case["bias"]));
    let (path, shape) = (store.root(), weight.shape());
    let layer: Box<dyn Module> = if case["layer"] == "linear" {
        Box::new(
            Linear::with_options(
                &path,
                shape[1],
                shape[0],
                LinearOptions::new()
                    .with_weight_init(Init::ZEROS)
                    .with_bias(bias.is_some())
                    .with_bias_init(Init::ZEROS),
            )
            .unwrap(),
        )
    } else {
        let number = |name: &str| case[name].as_u64().unwrap() as usize;
        let options = Conv2dOptions::new()
            .with_stride(number("stride"))
            .with_padding(number("padding"))
            .with_groups(number("groups"))
            .with_bias(bias.is_some());
        Box::new(
            Conv2d::with_options(
                &path,
                shape[1] * number("groups"),
                shape[0],
                [shape[2], shape[3]],
                options,
            )
            .unwrap(),
        )
    };
    store.get("weight").unwrap().set(&weight).unwrap();
    if let Some(bias) = bias {
        store.get("bias").unwrap().set(&f64s(bias, &[shape[0]], &device)).unwrap();
    }
    layer
}

#[test]
fn linear_and_conv2d_forward_and_backward() {
    for case in golden()["cases"].as_array().unwrap() {
        let store = Store::with_dtype(autograd(), DType::F64);
        let x = tensor(&case["x"], store.device()).requires_grad().unwrap();
        let y = layer(case, &store).forward(&x).unwrap();
        assert_eq!(y.shape()[..], sizes(&case["result"]["shape"]), "{case}");
        assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-12, case);
        let grads = backward(&y);
        assert_close(&values(grads.get(&x).unwrap()), &numbers(&case["grad_x"]), 1e-12, case);
        for param in store.all() {
            let wanted = numbers(&case[format!("grad_{}", param.name())]);
            assert_close(&values(grads.get(&param.value()).unwrap()), &wanted, 1e-12, case);
        }
    }
}

#[test]
fn initialisers_have_the_bounds_and_moments_they_promise() {
    random::with_seed(1, || {
        let device = device();
        for case in golden()["bounds"].as_array().unwrap() {
            let shape = sizes(&case["shape"]);
            let draw = |init: Init| {
                let shape = teeny_core::IntoShape::shape(&shape).unwrap();
                // small weights are drawn several times, to have enough numbers for statistics
                let times = 20_000usize.div_ceil(shape.numel());
                (0..times)
                    .flat_map(|_| values(&init.tensor(shape, DType::F64, &device).unwrap()))
                    .collect::<Vec<f64>>()
            };
            let uniform = |init: Init, bound: f64| {
                let draws = draw(init);
                let largest = draws.iter().fold(0f64, |m, v| m.max(v.abs()));
                assert!(
                    largest <= bound && largest > 0.995 * bound,
                    "{init:?} reaches {largest}, bound {bound}: {case}"
                );
            };
            let normal = |init: Init, std: f64| {
                let draws = draw(init);
                let n = draws.len() as f64;
                let mean = draws.iter().sum::<f64>() / n;
                let found = (draws.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
                // five standard errors
                assert!(
                    (found / std - 1.0).abs() < 5.0 / (2.0 * n).sqrt(),
                    "{init:?} has deviation {found}, wanted {std}: {case}"
                );
                assert!(mean.abs() < 5.0 * std / n.sqrt(), "{init:?} has mean {mean}");
            };
            let of = |name: &str| number(&case[name]);
            uniform(
                Init::KaimingUniform { gain: calculate_gain(Nonlinearity::Relu) },
                of("kaiming_uniform_relu"),
            );
            uniform(Init::TORCH, of("kaiming_uniform_sqrt5"));
            uniform(Init::torch_bias(case["fan_in"].as_u64().unwrap() as usize), of("bias"));
            uniform(Init::XavierUniform { gain: 1.0 }, of("xavier_uniform"));
            normal(
                Init::KaimingNormal { gain: calculate_gain(Nonlinearity::Relu) },
                of("kaiming_normal_relu_std"),
            );
            normal(Init::XavierNormal { gain: 1.0 }, of("xavier_normal_std"));
            normal(Init::GPT2, 0.02);
            normal(Init::scaled_residual(24), 0.02 / 24f64.sqrt());
        }
        let gains = golden()["gains"].clone();
        for (name, after) in [
            ("linear", Nonlinearity::Linear),
            ("tanh", Nonlinearity::Tanh),
            ("relu", Nonlinearity::Relu),
            ("selu", Nonlinearity::Selu),
        ] {
            assert_eq!(calculate_gain(after), number(&gains[name]), "{name}");
        }
        assert!(
            Init::KaimingNormal { gain: 1.0 }
                .tensor(teeny_core::Shape::new(&[3]).unwrap(), DType::F32, &device)
                .is_err()
        );
    });
}

/// Initial weights with standard deviation 1 make wrong predictions with high confidence, those
/// with 0.02 almost uniform ones.
#[test]
fn std_1_mnist_watch_out_shows_first_loss_above_20() {
    let images = digits::load().unwrap().train;
    let batch: Vec<usize> = (0..256).collect();
    let first_loss = |std: f64| {
        let store = Store::new(device());
        let init = Init::Normal { mean: 0.0, std };
        let layer = |name: &str, inputs, outputs| {
            Linear::with_options(
                &store.at(name),
                inputs,
                outputs,
                LinearOptions::new().with_weight_init(init).with_bias_init(Init::ZEROS),
            )
            .unwrap()
        };
        random::with_seed(1, || {
            let model = Sequential::new()
                .then(layer("fc1", images.area(), 128))
                .then(Activation::Relu)
                .then(layer("fc2", 128, 10));
            // (256, H W), (256)
            let (x, targets) = images.on(store.device()).batch(&batch, 0).unwrap();
            cross_entropy(&model.forward(&x).unwrap(), &targets).unwrap().item::<f32>().unwrap()
        })
    };
    let (large, small) = (first_loss(1.0), first_loss(0.02));
    assert!(large > 20.0, "{large}");
    assert!((small - 10f32.ln()).abs() < 0.02, "{small}");
}

#[test]
fn the_same_seed_gives_the_same_layer() {
    let layer = || {
        random::with_seed(5, || {
            Linear::new(&Store::new(device()).at("fc"), 7, 3)
                .unwrap()
                .weight
                .value()
                .to_vec::<f32>()
                .unwrap()
        })
    };
    assert_eq!(layer(), layer());
}

#[test]
fn prelu_agrees_with_pytorch_in_result_gradients_and_state() {
    let cases = parse(include_str!("golden/activations.json"));
    for case in cases["cases"].as_array().unwrap() {
        let store = Store::with_dtype(autograd(), DType::F64);
        let slopes = case["slopes"].as_u64().unwrap() as usize;
        let options = PReluOptions::new().with_num_parameters(slopes);
        let layer = PRelu::with_options(&store.root(), options).unwrap();
        assert_eq!(values(&layer.weight.value()), vec![0.25; slopes]);
        let names: Vec<String> = store.all().iter().map(|p| p.name().to_string()).collect();
        assert!(names.iter().eq(case["state"].as_object().unwrap().keys()), "{names:?}");
        layer.weight.set(&tensor(&case["state"]["weight"], store.device())).unwrap();
        let x = tensor(&case["x"], store.device()).requires_grad().unwrap();
        let y = layer.forward(&x).unwrap();
        assert_eq!(y.shape(), x.shape(), "{case}");
        assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-15, case);
        let grads = backward(&y);
        assert_close(&values(grads.get(&x).unwrap()), &numbers(&case["grad_x"]), 1e-15, case);
        let slope_grad = values(grads.get(&layer.weight.value()).unwrap());
        assert_close(&slope_grad, &numbers(&case["grads"]["weight"]), 1e-14, case);
    }
}

#[test]
fn prelu_passes_gradcheck_twice_and_has_gradients_of_empty_batches() {
    let slopes = |n: usize| PReluOptions::new().with_num_parameters(n);
    for (n, shape) in [(1, &[][..]), (1, &[5]), (3, &[2, 3, 4])] {
        check_module(|s| Ok(Box::new(PRelu::with_options(&s.root(), slopes(n))?)), shape);
    }
    let store = Store::new(autograd());
    let layer = PRelu::with_options(&store.root(), slopes(3)).unwrap();
    let x = Tensor::zeros((0, 3), DType::F32, store.device()).unwrap().requires_grad().unwrap();
    let grads = layer.forward(&x).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(values(grads.get(&layer.weight.value()).unwrap()), [0.0; 3]);
}

#[test]
fn dropout_drops_in_training_and_not_in_use() {
    let store = Store::new(device());
    let drop = Dropout::new(&store.root(), 0.25).unwrap();
    let x = Tensor::ones((100, 1000), DType::F32, store.device()).unwrap();
    let y = random::with_seed(3, || drop.forward(&x)).unwrap().to_vec::<f32>().unwrap();
    let dropped = y.iter().filter(|v| **v == 0.0).count();
    assert!(y.iter().all(|v| *v == 0.0 || *v == 1.0 / 0.75));
    // 100,000 trials: five standard errors are 685
    assert!((dropped as i64 - 25_000).abs() < 685, "{dropped}");
    store.set_training(false);
    assert!(drop.forward(&x).unwrap().same_storage(&x));
    store.set_training(true);
    let all = Dropout::new(&store.root(), 1.0).unwrap().forward(&x).unwrap();
    assert_eq!(all.sum_all().unwrap().item::<f32>().unwrap(), 0.0);
    assert!(
        Dropout::new(&store.root(), 1.5)
            .unwrap_err()
            .to_string()
            .contains("a probability must be within 0..=1")
    );
}

#[test]
fn a_chain_says_where_a_shape_does_not_fit() {
    let store = Store::new(device());
    let model = Sequential::new()
        .then(Conv2d::new(&store.at("conv"), 1, 8, 3).unwrap())
        .then(Activation::Relu)
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Linear::new(&store.at("fc"), 8 * 13 * 13, 10).unwrap());
    let x = Tensor::zeros((2, 1, 28, 28), DType::F32, store.device()).unwrap();
    assert_eq!(model.forward(&x).unwrap().shape()[..], [2, 10]);
    assert_eq!(store.count(), 8 * 9 + 8 + 8 * 169 * 10 + 10);
    let x = Tensor::zeros((2, 1, 30, 30), DType::F32, store.device()).unwrap();
    let error = model.forward(&x).unwrap_err().to_string();
    assert!(error.starts_with("sequential at ") && error.contains("layers.rs"), "{error}");
    assert!(
        error.contains("fc.weight is (10, 1352), so its input must be (.., 1352), not (2, 1568)"),
        "{error}"
    );
    assert!(
        error.contains("in module 4 of the chain: Linear(1352 -> 10), given (2, 1568)"),
        "{error}"
    );
}

#[test]
fn the_capstone_has_101_770_parameters() {
    let store = Store::new(device());
    Linear::new(&store.at("fc1"), 784, 128).unwrap();
    Linear::new(&store.at("fc2"), 128, 10).unwrap();
    assert_eq!(store.count(), 101_770);
}
