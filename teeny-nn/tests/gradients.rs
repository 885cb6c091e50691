//! Parameter groups, gradient clipping, accumulation, averages, and loss scaling.

use crate::common::*;
use teeny_autograd::{Grad, Gradients};
use teeny_core::{DType, Error, Result, Tensor, random};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{
    Adam, AdamW, Ema, LossScale, Optimizer, ParamGroup, Sgd, clip_grad_norm, clip_grad_value,
};
use teeny_nn::state::Stateful;
use teeny_nn::{
    Activation, Embedding, Init, Linear, LinearOptions, Module, Param, Sequential, Store,
};

/// A parameter with these values, on an autograd device.
fn param(store: &Store, name: &str, values: &[f64]) -> Param {
    let param = store.root().param(name, (values.len(),), Init::ZEROS).unwrap();
    param.set(&f64s(values.to_vec(), &[values.len()], &device())).unwrap();
    param
}

/// A loss whose gradient with respect to `p` is `g`.
fn loss_with(terms: &[(&Param, &[f64])]) -> Tensor {
    let term = |(p, g): &(&Param, &[f64])| {
        let p = p.value().cast(DType::F32).unwrap();
        let g = f64s(g.to_vec(), &[g.len()], p.device()).cast(DType::F32).unwrap();
        p.mul(&g).unwrap().sum_all().unwrap()
    };
    terms.iter().map(term).reduce(|a, b| a.add(&b).unwrap()).expect("a term")
}

fn gradient(gradients: &Gradients, p: &Param) -> Vec<f64> {
    values(gradients.get(&p.value()).unwrap())
}

#[test]
fn only_parameters_of_two_axes_decay_as_in_nano_gpt() {
    let store = Store::new(device());
    Linear::new(&store.at("fc"), 3, 2).unwrap();
    store.at("ln").param("weight", (3,), Init::ONES).unwrap();
    store.all().iter().for_each(|p| {
        p.set(&Tensor::ones(*p.value().shape(), DType::F32, store.device()).unwrap()).unwrap()
    });
    let none = ParamGroup::new().weight_decay(0.0);
    let mut adam =
        AdamW::new(store.trainable(), 0.1).weight_decay(0.5).group(|p| p.value().ndim() < 2, none);
    adam.step_by(&mut |p| Tensor::zeros(*p.value().shape(), DType::F32, p.value())).unwrap();
    for p in store.all() {
        let want = if p.name() == "fc.weight" { 0.95f32 } else { 1.0 };
        assert!(p.value().to_vec::<f32>().unwrap().iter().all(|&v| v == want), "{p:?}");
    }
}

#[test]
fn a_group_by_name_learns_at_its_own_rate_under_any_schedule() {
    let store = Store::new(device());
    let params = ["body.w", "head.w"].map(|name| param(&store, name, &[1.0]));
    let scaled = ParamGroup::new().lr_scale(10.0);
    let mut sgd = Sgd::new(params.to_vec(), 0.01)
        .group(|p| p.name().starts_with("head."), scaled)
        .group(|_| true, ParamGroup::new().weight_decay(1.0));
    for lr in [0.01, 0.02] {
        sgd.set_lr(lr);
        sgd.step_by(&mut |p| Tensor::ones(*p.value().shape(), DType::F32, p.value())).unwrap();
    }
    // w ← w - lr (1 + w), by hand
    let by_hand = |scale: f64| [0.01, 0.02].iter().fold(1.0, |w, lr| w - lr * scale * (1.0 + w));
    assert_close(&values(&params[0].value()), &[by_hand(1.0)], 1e-6, &"body");
    assert_close(&values(&params[1].value()), &[by_hand(10.0)], 1e-6, &"head");
}

#[test]
fn clipping_by_norm_scales_all_gradients_and_reports_their_norm() {
    let store = Store::new(autograd());
    let (a, b) = (param(&store, "a", &[1.0, 1.0]), param(&store, "b", &[1.0]));
    let mut gradients = loss_with(&[(&a, &[3.0, 0.0]), (&b, &[-4.0])]).backward().unwrap();
    assert_eq!(clip_grad_norm(&mut gradients, &store.trainable(), 10.0).unwrap(), 5.0);
    assert_eq!(
        (gradient(&gradients, &a), gradient(&gradients, &b)),
        (vec![3.0, 0.0], vec![-4.0]),
        "short enough"
    );
    assert_eq!(clip_grad_norm(&mut gradients, &store.trainable(), 1.0).unwrap(), 5.0);
    // torch: max_norm / (norm + 1e-6)
    let factor = 1.0 / (5.0 + 1e-6);
    assert_close(&gradient(&gradients, &a), &[3.0 * factor, 0.0], 1e-6, &"a");
    assert_close(&gradient(&gradients, &b), &[-4.0 * factor], 1e-6, &"b");
    let again = clip_grad_norm(&mut gradients, &store.trainable(), 1.0).unwrap();
    assert!((again - 1.0).abs() < 1e-6);
    // frozen parameters do not count
    a.set_trainable(false).unwrap();
    assert!((clip_grad_norm(&mut gradients, &store.all(), 9.0).unwrap() - 0.8).abs() < 1e-6);
    assert!(
        clip_grad_norm(&mut gradients, &[], 9.0).unwrap() == 0.0
            && clip_grad_norm(&mut gradients, &store.all(), 0.0).is_err()
    );
}

#[test]
fn a_norm_that_is_not_finite_names_the_parameter_and_changes_nothing() {
    let store = Store::new(autograd());
    let (a, b) = (param(&store, "a", &[1.0]), param(&store, "b", &[1.0]));
    for bad in [f64::NAN, f64::INFINITY] {
        let mut gradients = loss_with(&[(&a, &[3.0]), (&b, &[bad])]).backward().unwrap();
        let error =
            clip_grad_norm(&mut gradients, &store.trainable(), 1.0).unwrap_err().to_string();
        assert!(error.contains("the first gradient that is not finite: \"b\""), "{error}");
        assert_eq!(gradient(&gradients, &a), [3.0]);
    }
}

#[test]
fn clipping_by_value_limits_each_element() {
    let store = Store::new(autograd());
    let a = param(&store, "a", &[1.0; 4]);
    let mut gradients =
        loss_with(&[(&a, &[3.0, -0.25, f64::NEG_INFINITY, f64::NAN])]).backward().unwrap();
    clip_grad_value(&mut gradients, &store.trainable(), 0.5).unwrap();
    let got = gradient(&gradients, &a);
    assert!(got[..3] == [0.5, -0.25, -0.5] && got[3].is_nan(), "{got:?}");
    assert!(clip_grad_value(&mut gradients, &store.trainable(), -1.0).is_err());
}

fn network(store: &Store) -> Sequential {
    random::with_seed(3, || {
        let chain = Sequential::new()
            .then(Linear::new(&store.at("fc1"), 5, 16).unwrap())
            .then(Activation::Tanh);
        chain.then(Linear::new(&store.at("fc2"), 16, 4).unwrap())
    })
}

/// 32 points with labels.
fn points(store: &Store) -> (Tensor, Tensor) {
    // (32, 5)
    let x = random::with_seed(4, || Tensor::randn((32, 5), DType::F32, store.device())).unwrap();
    let targets: Vec<i64> = (0..32).map(|i| i % 4).collect();
    (x, Tensor::from_vec(targets, (32,), store.device()).unwrap())
}

#[test]
fn four_micro_batches_are_one_batch() {
    let (whole, parts) = (Store::new(autograd()), Store::new(autograd()));
    let models = [network(&whole), network(&parts)];
    let mut optimizers = [Adam::new(whole.trainable(), 0.01), Adam::new(parts.trainable(), 0.01)];
    for _ in 0..5 {
        let (x, targets) = points(&whole);
        let at_once =
            cross_entropy(&models[0].forward(&x).unwrap(), &targets).unwrap().backward().unwrap();
        let (x, targets) = points(&parts);
        let mut sum: Option<Gradients> = None;
        for i in 0..4 {
            // (8, 5), (8)
            let (x, targets) = (
                x.slice(0, 8 * i..8 * (i + 1)).unwrap(),
                targets.slice(0, 8 * i..8 * (i + 1)).unwrap(),
            );
            let loss =
                cross_entropy(&models[1].forward(&x).unwrap(), &targets).unwrap().div(4.0).unwrap();
            let gradients = loss.backward().unwrap();
            match &mut sum {
                Some(sum) => sum.accumulate(&gradients).unwrap(),
                None => sum = Some(gradients),
            }
        }
        let sum = sum.unwrap();
        for (p, q) in whole.all().iter().zip(parts.all()) {
            assert_close(&gradient(&at_once, p), &gradient(&sum, &q), 1e-6, &p.name());
        }
        // both step with the same gradients, so that the test compares accumulation and not Adam's
        // amplification of rounding errors
        let given: Vec<Tensor> =
            whole.all().iter().map(|p| at_once.get(&p.value()).unwrap().clone()).collect();
        optimizers[0].step(&at_once).unwrap();
        let mut given = given.iter();
        optimizers[1]
            .step_by(&mut |q| given.next().unwrap().to(q.value().device().inner().unwrap()))
            .unwrap();
    }
}

#[test]
fn averages_follow_the_parameters_and_change_places_with_them() {
    let store = Store::new(autograd());
    let p = param(&store, "w", &[0.0, 8.0]);
    let mut ema = Ema::new(store.trainable(), 0.75).unwrap();
    for (value, average) in [(4.0, 1.0), (4.0, 1.75), (0.0, 1.3125)] {
        p.set(&f64s(vec![value, 8.0], &[2], &device())).unwrap();
        ema.update().unwrap();
        assert_eq!(values(&ema.averages()[0]), [average, 8.0]);
    }
    assert_eq!(values(&p.value()), [0.0, 8.0]);
    assert_eq!(ema.applied(|| Ok(values(&p.value()))).unwrap(), [1.3125, 8.0]);
    let failed: Result<()> = ema.applied(|| Err(Error::value("no")));
    assert!(
        failed.is_err() && values(&p.value()) == [0.0, 8.0],
        "an error inside puts the parameters back"
    );
    ema.swap().unwrap();
    assert_eq!(
        (values(&p.value()), values(&ema.averages()[0])),
        (vec![1.3125, 8.0], vec![0.0, 8.0])
    );
    let mut other = Ema::new(store.trainable(), 0.75).unwrap();
    other.set_state(&ema.state().unwrap()).unwrap();
    assert_eq!(values(&other.averages()[0]), [0.0, 8.0]);
    assert!(Ema::new(store.trainable(), 1.5).is_err());
}

#[test]
fn sixteen_bit_averages_are_kept_in_f32() {
    let store = Store::with_dtype(device(), DType::BF16);
    let p = param(&store, "w", &[1.0]);
    let mut ema = Ema::new(store.trainable(), 0.999).unwrap();
    p.set(&f64s(vec![2.0], &[1], &device())).unwrap();
    for _ in 0..100 {
        ema.update().unwrap();
    }
    // in bf16 every step of 0.001 would be lost
    assert_close(&values(&ema.averages()[0]), &[2.0 - 0.999f64.powi(100)], 1e-5, &"");
}

#[test]
fn the_loss_scale_halves_on_overflow_skips_the_step_and_recovers() {
    let store = Store::with_dtype(autograd(), DType::F16);
    let p = param(&store, "w", &[1.0]);
    let mut scale = LossScale::new().initial_factor(131_072.0).growth_interval(3);
    let mut sgd = Sgd::new(store.trainable(), 1.0);
    let mut history = Vec::new();
    for _ in 0..8 {
        // a gradient of 0.75: times 131,072 it is above the largest f16, 65,504
        let gradients = scale.apply(&loss_with(&[(&p, &[0.75])])).unwrap().backward().unwrap();
        let before = values(&p.value())[0];
        let stepped = scale.step(&mut sgd, &gradients).unwrap();
        assert_eq!(values(&p.value())[0], if stepped { before - 0.75 } else { before });
        history.push((stepped, scale.factor()));
    }
    let (low, high) = (65_536.0, 131_072.0);
    assert_eq!(
        history,
        [
            (false, low),
            (true, low),
            (true, low),
            (true, high),
            (false, low),
            (true, low),
            (true, low),
            (true, high)
        ]
    );
    let mut resumed = LossScale::new().growth_interval(3);
    resumed.set_state(&scale.state().unwrap()).unwrap();
    assert_eq!(resumed, scale);
}

#[test]
fn scaled_gradients_keep_what_f16_would_lose() {
    let store = Store::with_dtype(autograd(), DType::F16);
    let p = param(&store, "w", &[1.0]);
    let tiny = 2f64.powi(-30); // below the smallest f16, 2^-24
    let mut sgd = Sgd::new(store.trainable(), 2f64.powi(28));
    let mut scale = LossScale::new();
    let factor = f64s(vec![tiny], &[1], store.device()).cast(DType::F32).unwrap();
    let loss =
        |p: &Param| p.value().cast(DType::F32).unwrap().mul(&factor).unwrap().sum_all().unwrap();
    let unscaled = loss(&p).backward().unwrap();
    assert_eq!(gradient(&unscaled, &p), [0.0]);
    let gradients = scale.apply(&loss(&p)).unwrap().backward().unwrap();
    assert!(scale.step(&mut sgd, &gradients).unwrap());
    assert_eq!(values(&p.value()), [0.75]);
}

#[test]
fn a_loss_that_is_never_finite_becomes_an_error() {
    let store = Store::new(autograd());
    let p = param(&store, "w", &[1.0]);
    let mut scale = LossScale::new();
    let mut sgd = Sgd::new(store.trainable(), 1.0);
    let gradients = loss_with(&[(&p, &[f64::NAN])]).backward().unwrap();
    let error = (0..100)
        .find_map(|_| scale.step(&mut sgd, &gradients).err())
        .expect("an error")
        .to_string();
    assert!(
        error.contains("gradients are not finite even where the loss is multiplied by"),
        "{error}"
    );
}

#[test]
fn a_scaled_step_clips_the_gradients_without_their_factor() {
    // squares that f32 does not have, a norm of 5 above and below the limit, and zeros
    for (slopes, max_norm) in
        [([3e20, 4e20], 1.0), ([3.0, 4.0], 1.0), ([3.0, 4.0], 6.0), ([0.0, 0.0], 1.0)]
    {
        let stepped = |scaled: bool| {
            let store = Store::new(autograd());
            let p = param(&store, "w", &[0.0, 0.0]);
            let (loss, mut sgd) = (loss_with(&[(&p, &slopes)]), Sgd::new(store.trainable(), 1.0));
            if scaled {
                let mut scale = LossScale::new().initial_factor(1024.0).max_norm(max_norm);
                let gradients = scale.apply(&loss).unwrap().backward().unwrap();
                assert!(scale.step(&mut sgd, &gradients).unwrap());
            } else {
                let mut gradients = loss.backward().unwrap();
                clip_grad_norm(&mut gradients, &store.trainable(), max_norm).unwrap();
                sgd.step(&gradients).unwrap();
            }
            values(&p.value())
        };
        let (with, without) = (stepped(true), stepped(false));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
        assert!(with.iter().zip(&without).all(near), "{slopes:?}: {with:?} {without:?}");
    }
    // an overflow is a skipped step, not an error
    let store = Store::new(autograd());
    let p = param(&store, "w", &[1.0]);
    let (mut sgd, mut scale) = (Sgd::new(store.trainable(), 1.0), LossScale::new().max_norm(1.0));
    let gradients = loss_with(&[(&p, &[f64::INFINITY])]).backward().unwrap();
    assert!(!scale.step(&mut sgd, &gradients).unwrap());
    assert_eq!((values(&p.value()), scale.factor()), (vec![1.0], 32_768.0));
    let gradients = loss_with(&[(&p, &[1.0])]).backward().unwrap();
    let error = LossScale::new().max_norm(0.0).step(&mut sgd, &gradients).unwrap_err().to_string();
    assert!(error.contains("cannot be clipped to a norm of 0"), "{error}");
}

#[test]
fn a_tied_weight_is_one_parameter_with_the_gradients_of_both_uses() {
    let store = Store::new(autograd());
    let words = Embedding::new(&store.at("words"), 5, 3).unwrap();
    let head = Linear { weight: words.weight.clone(), bias: None };
    assert_eq!((store.all().len(), store.count()), (1, 15));
    assert_eq!(store.at("words").all().len() + store.at("word").all().len(), 1);
    let ids = Tensor::new([1i64, 4], store.device()).unwrap(); // (2)
    let gradients_of = |first: &Embedding, second: &Linear, ids: &Tensor| {
        let y = second.forward(&first.forward(ids).unwrap()).unwrap(); // (2, 5)
        y.square().unwrap().sum_all().unwrap().backward().unwrap()
    };
    let tied = gradient(&gradients_of(&words, &head, &ids), &words.weight);
    // the same values as two parameters
    let apart = Store::new(autograd());
    let first = Embedding::new(&apart.at("words"), 5, 3).unwrap();
    let second =
        Linear::with_options(&apart.at("head"), 3, 5, LinearOptions::new().with_bias(false));
    let second = second.unwrap();
    let value = words.weight.value().detach().unwrap();
    for param in [&first.weight, &second.weight] {
        param.set(&value.to(apart.device()).unwrap()).unwrap();
    }
    let both = gradients_of(&first, &second, &ids.to(apart.device()).unwrap());
    let parts = [&first.weight, &second.weight].map(|p| gradient(&both, p));
    for (i, g) in tied.iter().enumerate() {
        let sum = parts[0][i] + parts[1][i];
        assert!((g - sum).abs() < 1e-5 * sum.abs().max(1.0), "{i}: {g} {sum}");
    }
}

#[test]
fn unscaled_gradients_are_clipped_before_the_step_or_the_step_is_skipped() {
    // an overflow, a norm of 5 above and below the limit, in both types
    for dtype in [DType::F32, DType::F16] {
        for (slopes, max_norm) in [
            ([3.0, f64::INFINITY], 1.0),
            ([f64::NAN, 1.0], 1.0),
            ([3.0, 4.0], 1.0),
            ([3.0, 4.0], 6.0),
        ] {
            let store = Store::with_dtype(autograd(), dtype);
            let p = param(&store, "w", &[0.0, 0.0]);
            let mut sgd = Sgd::new(store.trainable(), 1.0);
            let mut scale = LossScale::new().initial_factor(256.0).growth_interval(1);
            let loss = scale.apply(&loss_with(&[(&p, &slopes)])).unwrap();
            let mut gradients = loss.backward().unwrap();
            let before = gradient(&gradients, &p);
            let finite = slopes.iter().all(|slope| slope.is_finite());
            assert_eq!(scale.unscale(&mut sgd, &mut gradients).unwrap(), finite);
            if !finite {
                let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
                assert!(before.iter().zip(&gradient(&gradients, &p)).all(same));
                assert_eq!((values(&p.value()), scale.factor()), (vec![0.0; 2], 128.0));
                continue;
            }
            assert_eq!((gradient(&gradients, &p), scale.factor()), (slopes.to_vec(), 512.0));
            let norm = clip_grad_norm(&mut gradients, &store.trainable(), max_norm).unwrap();
            assert_eq!(norm, 5.0);
            sgd.step(&gradients).unwrap();
            let by = (max_norm / 5.0).min(1.0);
            let tolerance = if dtype == DType::F32 { 1e-6 } else { 1e-3 };
            assert_close(&values(&p.value()), &[-3.0 * by, -4.0 * by], tolerance, &dtype);
        }
    }
    // gradients that f16 would lose stay f32 on their way to the step
    let store = Store::with_dtype(autograd(), DType::F16);
    let p = param(&store, "w", &[1.0]);
    let mut sgd = Sgd::new(store.trainable(), 2f64.powi(28));
    let mut scale = LossScale::new();
    let tiny = f64s(vec![2f64.powi(-30)], &[1], store.device()).cast(DType::F32).unwrap();
    let loss = p.value().cast(DType::F32).unwrap().mul(&tiny).unwrap().sum_all().unwrap();
    let mut gradients = scale.apply(&loss).unwrap().backward().unwrap();
    assert!(scale.unscale(&mut sgd, &mut gradients).unwrap());
    assert_eq!(gradient(&gradients, &p), [2f64.powi(-30)]);
    sgd.step(&gradients).unwrap();
    assert_eq!(values(&p.value()), [0.75]);
}
