//! A hundred steps of every optimizer against PyTorch's (`golden/optim.json`).

use crate::common::*;
use serde_json::Value;
use teeny_autograd::Grad;
use teeny_core::{DType, Result, Tensor};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{
    Adagrad, Adam, AdamW, Lamb, Lars, Muon, Optimizer, RmsProp, Sgd, newton_schulz,
};
use teeny_nn::{Init, Param, Store};

fn golden() -> Value {
    parse(include_str!("golden/optim.json"))
}

/// The optimizers of a golden run; for Muon also the AdamW of the parameters that are not matrices.
fn optimizers(run: &Value, params: Vec<Param>) -> Vec<Box<dyn Optimizer>> {
    let options = &run["options"];
    let or = |name: &str, default: f64| options[name].as_f64().unwrap_or(default);
    let is = |name: &str| options[name] == true;
    let betas =
        options["betas"].as_array().map_or(vec![0.9, 0.999], |_| numbers(&options["betas"]));
    let lr = or("lr", f64::NAN);
    let one: Box<dyn Optimizer> = match run["optimizer"].as_str().expect("a name") {
        "sgd" => {
            let sgd =
                Sgd::new(params, lr).momentum(or("momentum", 0.0)).dampening(or("dampening", 0.0));
            Box::new(
                sgd.weight_decay(or("weight_decay", 0.0))
                    .nesterov(is("nesterov"))
                    .maximize(is("maximize")),
            )
        }
        name @ ("adam" | "adamw") => {
            macro_rules! boxed {
                ($type:ident, $decay:expr) => {
                    Box::new(
                        $type::new(params, lr)
                            .betas(betas[0], betas[1])
                            .eps(or("eps", 1e-8))
                            .weight_decay(or("weight_decay", $decay))
                            .amsgrad(is("amsgrad")),
                    )
                };
            }
            if name == "adam" { boxed!(Adam, 0.0) } else { boxed!(AdamW, 0.01) }
        }
        "rmsprop" => {
            let rms = RmsProp::new(params, lr)
                .alpha(or("alpha", 0.99))
                .eps(or("eps", 1e-8))
                .momentum(or("momentum", 0.0));
            Box::new(rms.centered(is("centered")).weight_decay(or("weight_decay", 0.0)))
        }
        "adagrad" => {
            let adagrad = Adagrad::new(params, lr)
                .lr_decay(or("lr_decay", 0.0))
                .initial_accumulator_value(or("initial_accumulator_value", 0.0));
            Box::new(adagrad.eps(or("eps", 1e-10)).weight_decay(or("weight_decay", 0.0)))
        }
        "lamb" => Box::new(
            Lamb::new(params, lr)
                .betas(betas[0], betas[1])
                .eps(or("eps", 1e-6))
                .weight_decay(or("weight_decay", 0.01)),
        ),
        "lars" => {
            let lars = Lars::new(params, lr)
                .momentum(or("momentum", 0.9))
                .trust_coefficient(or("coefficient", 0.001));
            Box::new(lars.weight_decay(or("weight_decay", 0.0)))
        }
        "muon" => {
            let (matrices, rest): (Vec<_>, Vec<_>) =
                params.into_iter().partition(|p| p.value().ndim() == 2);
            let muon = Muon::new(matrices, lr)
                .unwrap()
                .momentum(or("momentum", 0.95))
                .weight_decay(or("weight_decay", 0.1));
            let muon =
                muon.nesterov(options["nesterov"] != false).ns_steps(or("ns_steps", 5.0) as usize);
            if rest.is_empty() {
                return vec![Box::new(muon)];
            }
            return vec![Box::new(muon), Box::new(AdamW::new(rest, lr / 5.0))];
        }
        other => panic!("no optimizer {other}"),
    };
    vec![one]
}

/// Parameters p0, p1, .. with these values.
fn params(store: &Store, values: &[Tensor]) -> Vec<Param> {
    let make = |(i, value): (usize, &Tensor)| {
        let param = store.root().param(&format!("p{i}"), *value.shape(), Init::ZEROS).unwrap();
        param.set(value).unwrap();
        param
    };
    values.iter().enumerate().map(make).collect()
}

/// Checks a trajectory: `step` takes a step and returns the loss before it.
fn follow(
    what: &Value,
    wanted: &Value,
    params: &[Param],
    tolerance: f64,
    mut step: impl FnMut() -> Result<f64>,
) {
    let losses = numbers(&wanted["losses"]);
    for (i, loss) in losses.iter().enumerate() {
        let got = step().unwrap();
        assert_close(
            &[got],
            &[*loss],
            tolerance,
            &format!("loss before step {}: {} {}", i + 1, what["optimizer"], what["options"]),
        );
        if let Some(after) = wanted["parameters_after"][(i + 1).to_string()].as_array() {
            for (param, want) in params.iter().zip(after) {
                assert_close(
                    &values(&param.value()),
                    &numbers(want),
                    tolerance,
                    &format!(
                        "{param:?} after step {}: {} {}",
                        i + 1,
                        what["optimizer"],
                        what["options"]
                    ),
                );
            }
        }
    }
}

#[test]
fn a_hundred_steps_on_a_quadratic() {
    let golden = golden();
    // f64 follows PyTorch to the last digits; f32 must stay within the acceptance threshold of 1e-5
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        for run in golden["runs"].as_array().unwrap() {
            let store = Store::with_dtype(device(), dtype);
            let vector = |name: &str| {
                f64s(numbers(&golden[name]), &sizes(&run["shape"]), store.device())
                    .cast(dtype)
                    .unwrap()
            };
            let (curvature, goal) = (vector("curvature"), vector("goal"));
            let params = params(&store, &[vector("start")]);
            let mut optimizers = optimizers(run, params.clone());
            follow(run, &run["quadratic"], &params, tolerance, || {
                let distance = params[0].value().sub(&goal)?;
                let loss = distance.square()?.mul(&curvature)?.sum_all()?.mul(0.5)?;
                let gradient = distance.mul(&curvature)?;
                optimizers.iter_mut().try_for_each(|o| o.step_by(&mut |_| Ok(gradient.clone())))?;
                Ok(values(&loss)[0])
            });
        }
    }
}

#[test]
fn a_hundred_steps_on_a_network() {
    let golden = golden();
    for (dtype, tolerance) in [(DType::F64, 1e-11), (DType::F32, 1e-5)] {
        for run in golden["runs"].as_array().unwrap() {
            let store = Store::with_dtype(autograd(), dtype);
            let given = |name: &str| tensor(&golden[name], store.device()).cast(dtype).unwrap();
            let x = given("x");
            let targets = ints(&golden["targets"], &[8], store.device());
            let params = params(&store, &["w1", "b1", "w2", "b2"].map(given));
            let mut optimizers = optimizers(run, params.clone());
            // with a small beta2 the divisor becomes rounding noise, and f32 deviates by
            // thousandths, depending on the order of sums: PyTorch's own run in f32 ends
            // 1.8e-4 (loss) and 2.8e-3 (parameters) from its run in f64
            let forgets = dtype == DType::F32
                && run["optimizer"].as_str().is_some_and(|o| o.starts_with("adam"))
                && run["options"]["eps"] == 1e-6;
            follow(run, &run["mlp"], &params, if forgets { 8e-3 } else { tolerance }, || {
                let [w1, b1, w2, b2] = [0, 1, 2, 3].map(|i| params[i].value());
                let h = x.matmul(&w1.t()?)?.add(&b1)?.tanh()?; // (8, 5)
                let loss = cross_entropy(&h.matmul(&w2.t()?)?.add(&b2)?, &targets)?; // ()
                let gradients = loss.backward()?;
                optimizers.iter_mut().try_for_each(|o| o.step(&gradients))?;
                Ok(values(&loss)[0])
            });
        }
    }
}

#[test]
fn a_parameter_the_loss_does_not_use_is_named() {
    let store = Store::new(autograd());
    let ones = Tensor::ones((2,), DType::F32, store.device()).unwrap();
    let params = params(&store, &[ones.clone(), ones]);
    let loss = params[0].value().sum_all().unwrap();
    let error = Sgd::new(params, 0.5).step(&loss.backward().unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("no gradient reaches `p1`") && error.contains("set_trainable(false)"),
        "{error}"
    );
}

#[test]
fn plain_sgd_is_the_hand_written_loop_bit_for_bit() {
    let store = Store::new(device());
    let start: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
    let gradient: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.73).cos()).collect();
    let tensor = |v: &[f32]| Tensor::from_slice(v, (v.len(),), store.device()).unwrap();
    let params = params(&store, &[tensor(&start)]);
    let mut sgd = Sgd::new(params.clone(), 0.1);
    let mut by_hand = start;
    for _ in 0..50 {
        sgd.step_by(&mut |_| Ok(tensor(&gradient))).unwrap();
        by_hand.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= g * 0.1);
    }
    assert_eq!(params[0].value().to_vec::<f32>().unwrap(), by_hand);
}

#[test]
fn sixteen_bit_parameters_keep_their_state_in_f32() {
    for dtype in [DType::BF16, DType::F16] {
        let store = Store::with_dtype(device(), dtype);
        let params = params(&store, &[Tensor::ones((3,), DType::F32, store.device()).unwrap()]);
        let small = Tensor::full((3,), 1e-3, dtype, store.device()).unwrap();
        let optimizers: [Box<dyn Optimizer>; 2] = [
            Box::new(Sgd::new(params.clone(), 1.0).momentum(0.9)),
            Box::new(Adam::new(params.clone(), 0.01)),
        ];
        for mut optimizer in optimizers {
            let before = values(&params[0].value())[0];
            for _ in 0..10 {
                optimizer.step_by(&mut |_| Ok(small.clone())).unwrap();
            }
            let after = params[0].value();
            assert_eq!(after.dtype(), dtype);
            // a velocity of 0.001 (1 + 0.9 + ..) and ten steps of 0.01: both are far above the
            // resolution of 16 bits
            assert!(
                (0.02..0.15).contains(&(before - values(&after)[0])),
                "{dtype}: {before} to {after}"
            );
        }
    }
}

#[test]
fn a_missing_gradient_changes_nothing_and_is_named() {
    let store = Store::new(device());
    let ones = Tensor::ones((2,), DType::F32, store.device()).unwrap();
    let params = params(&store, &[ones.clone(), ones.clone()]);
    let mut sgd = Sgd::new(params.clone(), 0.5);
    let mut only_first = |p: &Param| {
        if p.name() == "p0" {
            Ok(ones.clone())
        } else {
            Err(teeny_core::Error::gradient("there is none"))
        }
    };
    let error = sgd.step_by(&mut only_first).unwrap_err().to_string();
    assert!(
        error.contains("parameter \"p1\"") && error.contains("set_trainable(false)"),
        "{error}"
    );
    assert_eq!(values(&params[0].value()), [1.0, 1.0]);
    params[1].set_trainable(false).unwrap();
    sgd.step_by(&mut only_first).unwrap();
    assert_eq!(
        (values(&params[0].value()), values(&params[1].value())),
        (vec![0.5, 0.5], vec![1.0, 1.0])
    );
}

#[test]
fn newton_schulz_is_pytorchs_without_its_rounding() {
    for dtype in [DType::F64, DType::F32] {
        for case in golden()["newton_schulz"].as_array().unwrap() {
            let x = tensor(&case["x"], &device()).cast(dtype).unwrap();
            let got = newton_schulz(&x, case["steps"].as_u64().unwrap() as usize).unwrap();
            let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
            assert_close(&values(&got), &numbers(&case["y"]["data"]), tolerance, &x.shape());
        }
    }
    let vector = Tensor::ones((3,), DType::F32, device()).unwrap();
    assert!(
        newton_schulz(&vector, 5).unwrap_err().to_string().contains("needs a matrix, not (3,)")
    );
    assert!(newton_schulz(&Tensor::ones((3, 3), DType::I32, device()).unwrap(), 5).is_err());
    let zero = Tensor::zeros((3, 2), DType::F32, device()).unwrap();
    assert_eq!(values(&newton_schulz(&zero, 5).unwrap()), [0.0; 6]);
}

#[test]
fn newton_schulz_brings_singular_values_near_one() {
    let x = Tensor::randn((20, 12), DType::F64, device()).unwrap();
    let y = newton_schulz(&x, 5).unwrap();
    // five steps leave singular values between about 0.68 and 1.14 (Jordan 2024), so y'y is within
    // 0.6 of the identity in every direction
    let gram = y.t().unwrap().matmul(&y).unwrap(); // (12, 12)
    for probe in 0..20 {
        let v = teeny_core::random::with_seed(probe, || Tensor::randn((12, 1), DType::F64, &gram))
            .unwrap();
        let ratio = values(&gram.matmul(&v).unwrap().mul(&v).unwrap().sum_all().unwrap())[0]
            / values(&v.square().unwrap().sum_all().unwrap())[0];
        assert!((0.4..1.4).contains(&ratio), "{ratio}");
    }
}

#[test]
fn muon_refuses_what_is_no_matrix_by_name() {
    let store = Store::new(device());
    let tensors = [
        Tensor::ones((2, 2), DType::F32, store.device()).unwrap(),
        Tensor::ones((2,), DType::F32, store.device()).unwrap(),
    ];
    let error = Muon::new(params(&store, &tensors), 0.1).err().expect("an error").to_string();
    assert!(
        error.starts_with("Muon::new at teeny-nn/tests/optim.rs:")
            && error.contains("these parameters are not matrices: p1"),
        "{error}"
    );
}

#[test]
fn master_weights_add_up_steps_that_16_bits_lose() {
    for (masters, moved) in [(false, 0.0), (true, 0.1)] {
        let store = Store::with_dtype(device(), DType::BF16);
        let params = params(&store, &[Tensor::ones((3,), DType::F32, store.device()).unwrap()]);
        let mut sgd = Sgd::new(params.clone(), 1e-3).master_weights(masters);
        let one = Tensor::ones((3,), DType::BF16, store.device()).unwrap();
        for _ in 0..100 {
            sgd.step_by(&mut |_| Ok(one.clone())).unwrap();
        }
        // 0.001 is below half the distance of bf16 numbers under 1 (0.002)
        assert_close(&values(&params[0].value()), &[1.0 - moved; 3], 4e-3, &masters);
        // a value set from outside replaces the f32 copy
        params[0].set(&Tensor::full((3,), 5.0, DType::F32, store.device()).unwrap()).unwrap();
        sgd.set_lr(1.0);
        sgd.step_by(&mut |_| Ok(one.clone())).unwrap();
        assert_eq!(values(&params[0].value()), [4.0; 3]);
    }
}
