//! Losses against PyTorch (`golden/losses.json`), and their errors.

use crate::common::*;
use serde_json::Value;
use teeny_autograd::{Autograd, Check, Grad, gradcheck, gradgradcheck};
use teeny_core::{DType, DeviceRef, Tensor, random};
use teeny_nn::loss::{self, CrossEntropy, Reduction, cross_entropy};

fn golden() -> Value {
    parse(include_str!("golden/losses.json"))
}

fn reduction(case: &Value) -> Reduction {
    match case["reduction"].as_str() {
        Some("mean") => Reduction::Mean,
        Some("sum") => Reduction::Sum,
        _ => Reduction::None,
    }
}

#[test]
fn cross_entropy_in_every_variant() {
    let device = autograd();
    for case in golden()["cross_entropy"].as_array().unwrap() {
        let logits = tensor(&case["x"], &device);
        let targets = if case["targets"].is_array() {
            let shape = match logits.shape()[..] {
                [_] => vec![],
                [n, _, ref rest @ ..] => [&[n], rest].concat(),
                [] => unreachable!("logits have classes"),
            };
            ints(&case["targets"], &shape, &device)
        } else {
            f64s(numbers(&case["probabilities"]), logits.shape(), &device)
        };
        let mut options = CrossEntropy::new()
            .with_label_smoothing(case["label_smoothing"].as_f64().unwrap_or(0.0))
            .with_reduction(reduction(case));
        options.weight =
            case["weight"].as_array().map(|_| f64s(numbers(&case["weight"]), &[5], &device));
        if case["targets"].is_array() {
            // PyTorch's default is -100
            options.ignore_index = Some(case["ignore_index"].as_i64().unwrap_or(-100));
        }
        let logits = logits.requires_grad().unwrap();
        let got = options.loss(&logits, &targets).unwrap();
        assert_eq!(got.shape()[..], sizes(&case["result"]["shape"]), "{case}");
        assert_close(&values(&got), &numbers(&case["result"]["data"]), 1e-12, case);
        assert_close(
            &values(backward(&got).get(&logits).unwrap()),
            &numbers(&case["grad"]),
            1e-12,
            case,
        );
    }
}

#[test]
fn nll_of_log_probabilities_is_cross_entropy_of_logits_in_every_variant() {
    let device = autograd();
    let logits = f64s((0..20).map(|i| (i * 7 % 11) as f64 / 3.0).collect(), &[4, 5], &device);
    let targets = Tensor::new([1i64, 4, -1, 0], &device).unwrap();
    let weight = f64s(vec![0.5, 1.0, 2.0, 0.25, 3.0], &[5], &device);
    for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
        for weight in [None, Some(weight.clone())] {
            let mut variant = CrossEntropy::new().with_ignore_index(-1).with_reduction(reduction);
            variant.weight = weight;
            let log_p = logits.log_softmax(1).unwrap(); // (4, 5)
            let (a, b) =
                (variant.nll(&log_p, &targets).unwrap(), variant.loss(&logits, &targets).unwrap());
            assert_eq!(values(&a), values(&b), "{variant:?}");
        }
    }
    let error = CrossEntropy::default().nll(&logits, &targets).unwrap_err().to_string();
    assert!(error.starts_with("nll at ") && error.contains("targets[2] is -1"), "{error}");
}

#[test]
fn simple_losses() {
    let device = autograd();
    for case in golden()["simple"].as_array().unwrap() {
        let (x, target) = (tensor(&case["x"], &device), tensor(&case["target"], &device));
        let x = x.requires_grad().unwrap();
        let (x, t, r) = (&x, &target, reduction(case));
        let got = match case["loss"].as_str().unwrap() {
            "mse" => loss::mse(x, t, r),
            "l1" => loss::l1(x, t, r),
            "huber" | "smooth_l1" => loss::huber(x, t, 1.0, r),
            "bce_with_logits" => loss::bce_with_logits(x, t, r),
            "bce" => loss::bce(x, t, r),
            "nll" => loss::nll(x, t, r),
            "kl_div" => loss::kl_div(x, t, r),
            other => panic!("no test for {other}"),
        }
        .unwrap();
        assert_close(&values(&got), &numbers(&case["result"]["data"]), 1e-12, case);
        assert_close(&values(backward(&got).get(x).unwrap()), &numbers(&case["grad"]), 1e-12, case);
    }
}

#[test]
fn cross_entropy_fixtures_and_extremes() {
    let device = device();
    let of = |logits: Tensor, targets: Vec<i32>| {
        let n = targets.len();
        cross_entropy(&logits, &Tensor::from_vec(targets, (n,), &device).unwrap())
            .unwrap()
            .item::<f64>()
            .unwrap()
    };
    let fixture = Tensor::new([[-1.0, 2.0, -3.0], [1.0, -2.0, 3.0]], &device).unwrap();
    assert!((of(fixture, vec![1, 2]) - 0.0939152346).abs() < 1e-10);
    assert!(
        (of(Tensor::zeros((1, 10), DType::F64, &device).unwrap(), vec![3]) - 10f64.ln()).abs()
            < 1e-14
    );
    let large = Tensor::new([[1e4, 0.0, -1e4], [-1e4, 1e4, 0.0]], &device).unwrap();
    assert_eq!(of(large.clone(), vec![0, 1]), 0.0);
    assert_eq!(of(large, vec![2, 0]), 2e4);
    let masked = Tensor::new([[0.0, f64::NEG_INFINITY, 0.0]], &device).unwrap();
    assert!((of(masked, vec![0]) - 2f64.ln()).abs() < 1e-15);
}

#[test]
fn a_target_that_is_no_class_is_named() {
    let device = device();
    let logits = Tensor::zeros((64, 10), DType::F32, &device).unwrap();
    let with = |i: usize, target: i32| {
        let mut targets = vec![0; 64];
        targets[i] = target;
        Tensor::from_vec(targets, (64,), &device).unwrap()
    };
    let error = cross_entropy(&logits, &with(17, 10)).unwrap_err().to_string();
    assert!(error.starts_with("cross_entropy at ") && error.contains("losses.rs"), "{error}");
    assert!(error.contains(": targets[17] is 10, but logits have 10 classes (0..=9)"), "{error}");
    let error = cross_entropy(&logits, &with(3, -1)).unwrap_err().to_string();
    assert!(error.contains("targets[3] is -1, but"), "{error}");
    let ignoring = CrossEntropy::new().with_ignore_index(-1);
    assert!(ignoring.loss(&logits, &with(3, -1)).is_ok());
    let error = ignoring.loss(&logits, &with(3, 12)).unwrap_err().to_string();
    assert!(error.contains("targets[3] is 12, but"), "{error}");
}

#[test]
fn losses_say_which_shapes_they_need() {
    let device = device();
    let logits = Tensor::zeros((64, 10), DType::F32, &device).unwrap();
    let refusal = |shape: &[usize], dtype| {
        cross_entropy(&logits, &Tensor::zeros(shape, dtype, &device).unwrap())
            .unwrap_err()
            .to_string()
    };
    assert!(
        refusal(&[63], DType::I32).contains("logits (64, 10) need targets (64,), not (63,)"),
        "{}",
        refusal(&[63], DType::I32)
    );
    assert!(
        refusal(&[64], DType::F32).contains("target probabilities of that shape, not (64,)"),
        "{}",
        refusal(&[64], DType::F32)
    );
    assert!(refusal(&[64], DType::Bool).contains("not bool"), "{}", refusal(&[64], DType::Bool));
    let x = Tensor::zeros((3, 1), DType::F32, &device).unwrap();
    let error = loss::mse(&x, &x.t().unwrap(), Reduction::Mean).unwrap_err().to_string();
    assert!(
        error.contains("mse at ")
            && error.contains("predictions (3, 1) and targets (1, 3) must have the same shape"),
        "{error}"
    );
}

#[test]
fn poisson_loss_is_least_where_the_mean_is_the_count() {
    let device = autograd();
    let x = f64s(vec![-1.0, 0.0, 0.5, 2.0], &[4], &device).requires_grad().unwrap();
    let t = f64s(vec![0.0, 1.0, 3.0, 7.0], &[4], &device);
    // torch 2.15: poisson_nll_loss(x, t, reduction='none'), and the gradient of its mean
    let expected = [0.36787944117144233, 1.0, 0.1487212707001282, -6.61094390106935];
    assert_close(
        &values(&loss::poisson_nll(&x, &t, Reduction::None).unwrap()),
        &expected,
        1e-14,
        &"losses",
    );
    let gradient = [0.09196986029286058, 0.0, -0.33781968232496795, 0.0972640247326626];
    let mean = loss::poisson_nll(&x, &t, Reduction::Mean).unwrap();
    assert_close(&values(backward(&mean).get(&x).unwrap()), &gradient, 1e-14, &"gradient");
}

#[test]
fn binary_cross_entropy_has_a_slope_where_a_model_of_zeros_starts() {
    let device = autograd();
    let x = f64s(vec![0.0, 0.0, 0.0], &[3], &device).requires_grad().unwrap();
    let t = f64s(vec![0.0, 1.0, 0.25], &[3], &device);
    let sum = loss::bce_with_logits(&x, &t, Reduction::Sum).unwrap();
    assert_close(&values(&sum), &[3.0 * 2f64.ln()], 1e-14, &"loss");
    // sigmoid(0) - t
    assert_close(&values(backward(&sum).get(&x).unwrap()), &[0.5, -0.5, 0.25], 1e-14, &"gradient");
    // small losses are exact too
    let far = loss::bce_with_logits(
        &f64s(vec![50.0, -50.0], &[2], &device),
        &f64s(vec![1.0, 0.0], &[2], &device),
        Reduction::None,
    )
    .unwrap();
    assert_close(&values(&far), &[(-50f64).exp(); 2], 1e-30, &"far");
}

#[test]
fn a_target_of_a_narrow_type_is_not_ignored_for_its_low_bits() {
    let device = autograd();
    let logits = Tensor::arange(0i32, 400, 1, &device)
        .unwrap()
        .cast(DType::F32)
        .unwrap()
        .mul(0.01)
        .unwrap()
        .reshape((2, 200))
        .unwrap();
    let wide = Tensor::new([156i64, 3], &device).unwrap();
    for label_smoothing in [0.0, 0.1] {
        let options =
            CrossEntropy::new().with_label_smoothing(label_smoothing).with_ignore_index(-100);
        let loss =
            |targets: &Tensor| options.loss(&logits, targets).unwrap().item::<f32>().unwrap();
        assert_eq!(loss(&wide.cast(DType::U8).unwrap()), loss(&wide), "{label_smoothing}");
    }
}

#[test]
fn losses_of_margins_labels_and_sequences() {
    let device = autograd();
    let golden = parse(include_str!("golden/margins.json"));
    for case in golden["cases"].as_array().unwrap() {
        let name = case["loss"].as_str().unwrap();
        let inputs = case["inputs"].as_array().unwrap().iter();
        let x: Vec<Tensor> = inputs
            .map(|v| match v["dtype"] == "i64" {
                true => ints(&v["data"], &sizes(&v["shape"]), &device),
                false => tensor(v, &device).requires_grad().unwrap(),
            })
            .collect();
        let r = reduction(case);
        let log_p = || x[0].log_softmax(2).unwrap();
        let got = match name {
            "soft_margin" => loss::soft_margin(&x[0], &x[1], r),
            "hinge_embedding" => loss::hinge_embedding(&x[0], &x[1], 1.0, r),
            "focal" => loss::focal(&x[0], &x[1], 0.25, 2.0, r),
            "kl_div_log" => loss::kl_div_log(&x[0], &x[1], r),
            "smooth_l1" => loss::smooth_l1(&x[0], &x[1], 0.7, r),
            "smooth_l1 0" => loss::smooth_l1(&x[0], &x[1], 0.0, r),
            "bce_with_logits_weighted" => {
                let positive = f64s(vec![0.5, 1.0, 2.0, 3.0], &[4], &device);
                loss::bce_with_logits_weighted(&x[0], &x[1], &positive, r)
            }
            "margin_ranking" => loss::margin_ranking(&x[0], &x[1], &x[2], 0.3, r),
            "cosine_embedding" => loss::cosine_embedding(&x[0], &x[1], &x[2], 0.1, r),
            "triplet_margin" => loss::triplet_margin(&x[0], &x[1], &x[2], 0.8, 2.0, r),
            "multi_margin" => loss::multi_margin(&x[0], &x[1], 1.0, 1.0, r),
            "multi_margin 2" => loss::multi_margin(&x[0], &x[1], 2.0, 0.6, r),
            "multilabel_margin" => loss::multilabel_margin(&x[0], &x[1], r),
            "multilabel_soft_margin" => loss::multilabel_soft_margin(&x[0], &x[1], r),
            "gaussian_nll" => loss::gaussian_nll(&x[0], &x[1], &x[2], 1e-6, r),
            "multiple_negatives_ranking" => {
                loss::multiple_negatives_ranking(&x[0], &x[1], x.get(2), 20.0, r)
            }
            "ctc" => loss::ctc(&log_p(), &x[1], &[6, 5, 4], &[3, 2, 0], 0, false, r),
            "ctc zero_infinity" => loss::ctc(&log_p(), &x[1], &[6, 2, 4], &[3, 2, 1], 0, true, r),
            "ctc infinity" => loss::ctc(&log_p(), &x[1], &[6, 2, 4], &[3, 2, 1], 0, false, r),
            other => panic!("no test for {other}"),
        }
        .unwrap_or_else(|error| panic!("{name}: {error}"));
        let what = format!("{name} {r:?}");
        assert_eq!(got.shape()[..], sizes(&case["result"]["shape"]), "{what}");
        assert_close(&values(&got), &numbers(&case["result"]["data"]), 1e-11, &what);
        if case["grads"].is_null() {
            continue;
        }
        let grads = backward(&got);
        for (leaf, want) in x.iter().zip(case["grads"].as_array().unwrap()) {
            if !want.is_null() {
                assert_close(&values(grads.get(leaf).unwrap()), &numbers(want), 1e-10, &what);
            }
        }
    }
}

#[test]
fn contrastive_losses_have_gradients_and_say_what_does_not_fit() {
    let plain = device();
    let draw = |rows: usize, seed: u64| {
        random::with_seed(seed, || Tensor::randn((rows, 3), DType::F64, &plain)).unwrap()
    };
    let (anchors, positives, negatives) = (draw(4, 1), draw(4, 2), draw(2, 3));
    let of = |x: &[Tensor]| {
        loss::multiple_negatives_ranking(&x[0], &x[1], x.get(2), 5.0, Reduction::Mean)
    };
    for inputs in [
        vec![anchors.clone(), positives.clone(), negatives.clone()],
        vec![anchors.clone(), positives.clone()],
    ] {
        gradcheck(of, &inputs, &Check::default()).unwrap();
        gradgradcheck(of, &inputs, &Check::default()).unwrap();
    }
    // a row of zeros has the cosine 0 with all others, and a gradient that is finite
    let device: DeviceRef = Autograd::new(plain.clone());
    let zeros = Tensor::zeros((2, 3), DType::F64, &device).unwrap().requires_grad().unwrap();
    let others = draw(2, 4).to(&device).unwrap();
    let loss = of(&[zeros.clone(), others]).unwrap();
    assert!((values(&loss)[0] - 2f64.ln()).abs() < 1e-12);
    let grads = loss.backward().unwrap();
    assert!(values(grads.get(&zeros).unwrap()).iter().all(|g| g.is_finite()));
    // 16-bit embeddings are compared in f32
    let half = |x: &Tensor| x.cast(DType::BF16).unwrap();
    let got = of(&[half(&anchors), half(&positives)]).unwrap();
    assert_eq!(got.dtype(), DType::BF16);
    let want = values(&of(&[anchors.clone(), positives.clone()]).unwrap())[0];
    assert!((values(&got)[0] - want).abs() < 0.05 * want);

    let error = |inputs: &[Tensor]| of(inputs).unwrap_err().to_string();
    let three = draw(3, 5);
    for (inputs, says) in [
        (vec![anchors.clone(), three], "anchors are (4, 3), positives (3, 3)"),
        (
            vec![anchors.clone(), positives.clone(), draw(1, 6).t().unwrap()],
            "negatives must be (M, 3)",
        ),
        (vec![anchors.at(0, 0).unwrap(), positives.clone()], "anchors are (N, E), not (3,)"),
        (vec![draw(0, 1), draw(0, 1)], "at least one"),
        (
            vec![anchors.clone(), half(&positives)],
            "anchors are f64, but the other embeddings are bf16",
        ),
    ] {
        let error = error(&inputs);
        assert!(error.contains(says) && error.contains("losses.rs"), "{error}");
    }
    let zero = loss::multiple_negatives_ranking(&anchors, &positives, None, 0.0, Reduction::Sum);
    assert!(zero.unwrap_err().to_string().contains("scale must be positive"));
}

#[test]
fn padding_of_labels_and_steps_may_be_anything() {
    let device = autograd();
    let (steps, n, classes, room) = (5usize, 6usize, 4usize, 3usize);
    for seed in 0..20 {
        let draw = |low: i64, high: i64, count: usize, at: u64| -> Vec<usize> {
            let of = || Tensor::uniform(0.0, 1.0, count, DType::F64, &device).unwrap();
            let drawn = values(&random::with_seed(seed * 100 + at, of));
            drawn.iter().map(|u| (low as f64 + u * (high - low + 1) as f64) as usize).collect()
        };
        let (input, target) = (draw(0, 5, n, 1), draw(0, 3, n, 2));
        let labels = draw(1, 3, n * room, 3);
        let junk: Vec<i64> = (0..n * room)
            .map(|i| match i % room < target[i / room] {
                true => labels[i] as i64,
                false => [-1, i64::MIN, 4, 1 << 40][i % 4],
            })
            .collect();
        let scores = random::with_seed(seed, || {
            Tensor::randn((steps, n, classes), DType::F64, &device).unwrap()
        });
        let clean = values(&scores.log_softmax(2).unwrap());
        let x = (0..steps * n * classes).map(|i| {
            let (step, row) = (i / (n * classes), i / classes % n);
            if step < input[row] { clean[i] } else { f64::NAN }
        });
        let x = f64s(x.collect(), &[steps, n, classes], &device).requires_grad().unwrap();
        let of = |t: &[i64]| Tensor::from_vec(t.to_vec(), (n, room), &device).unwrap();
        let all = loss::ctc(&x, &of(&junk), &input, &target, 0, true, Reduction::None).unwrap();
        let g = values(backward(&all.sum_all().unwrap()).get(&x).unwrap());
        assert!(g.iter().all(|g| g.is_finite()), "{seed}");
        for row in 0..n {
            let (t, s) = (input[row], target[row]);
            let got = values(&all)[row];
            if t == 0 {
                assert_eq!(got.abs(), 0.0, "without steps: no label costs 0, others are infinite");
                continue;
            }
            let own = (0..t).flat_map(|step| {
                let at = (step * n + row) * classes;
                clean[at..at + classes].to_vec()
            });
            let own = f64s(own.collect(), &[t, 1, classes], &device).requires_grad().unwrap();
            let label = labels[row * room..row * room + s].iter().map(|&l| l as i64).collect();
            let label = Tensor::from_vec::<i64>(label, (1, s), &device).unwrap();
            let alone = loss::ctc(&own, &label, &[t], &[s], 0, true, Reduction::None).unwrap();
            assert_close(&values(&alone), &[got], 1e-12, &format!("{seed}: row {row}"));
            let wanted = values(backward(&alone.sum_all().unwrap()).get(&own).unwrap());
            let parts = (0..t).flat_map(|step| {
                let at = (step * n + row) * classes;
                g[at..at + classes].to_vec()
            });
            assert_close(&parts.collect::<Vec<_>>(), &wanted, 1e-12, &format!("{seed}: {row}"));
        }
    }
    // torch 2.15
    let log_p = Tensor::zeros((4, 2, 3), DType::F64, &device).unwrap().log_softmax(2).unwrap();
    let targets = Tensor::new([[1i64, 2], [1, -1]], &device).unwrap();
    let of = |input: &[usize], target: &[usize]| {
        values(&loss::ctc(&log_p, &targets, input, target, 0, false, Reduction::None).unwrap())
    };
    assert_close(&of(&[4, 4], &[2, 1]), &[1.68639895, 2.09186406], 1e-8, &"ctc");
    assert_eq!(of(&[0, 0], &[2, 0]), [f64::INFINITY, 0.0]);
    let error = loss::ctc(&log_p, &targets, &[4, 4], &[2, 2], 0, false, Reduction::None);
    assert!(error.unwrap_err().to_string().contains("is -1"), "a label that counts");
    // a negative label ends a row of `multilabel_margin`; an ignored target is in no class
    let x = f64s(vec![0.3, -0.2, 0.7, 0.1], &[1, 4], &device);
    let labels = |row: [i64; 4]| {
        let row = Tensor::new([row], &device).unwrap();
        values(&loss::multilabel_margin(&x, &row, Reduction::None).unwrap())
    };
    assert_eq!(labels([2, -1, -1, -1]), labels([2, i64::MIN, 9, 1]));
}

#[test]
fn an_element_outside_the_domain_of_a_loss_is_named() {
    for device in [device(), autograd()] {
        let of = |x: [f64; 4]| f64s(x.to_vec(), &[2, 2], &device);
        let (p, t) = (of([0.5, 0.1, 0.0, 1.0]), of([1.0, 0.0, 1.0, 1.0]));
        for reduction in [Reduction::Mean, Reduction::None] {
            let text = |loss: teeny_core::Result<Tensor>| loss.unwrap_err().to_string();
            let error = text(loss::bce(&of([0.5, 0.1, 1.5, -1.0]), &t, reduction));
            assert!(error.contains("p[1, 0] is 1.5, but must be within 0..=1"), "{error}");
            let error = text(loss::bce(&p, &of([0.0, f64::NAN, 1.0, 1.0]), reduction));
            assert!(error.contains("targets[0, 1] is NaN, but"), "{error}");
            let variance = f64s(vec![1.0, -1e-9], &[2], &device);
            let error = text(loss::gaussian_nll(&p, &t, &variance, 1e-6, reduction));
            assert!(error.contains("var[1] is -1e-9, but must be 0 or more"), "{error}");
            assert!(error.starts_with("gaussian_nll at ") && error.contains("losses.rs"));
            let shape = loss::bce(&p, &t, reduction).unwrap();
            assert_eq!(shape.ndim(), if reduction == Reduction::None { 2 } else { 0 });
        }
        let empty = Tensor::zeros((0, 2), DType::F64, &device).unwrap();
        assert!(values(&loss::bce(&empty, &empty, Reduction::Mean).unwrap())[0].is_nan());
        assert_eq!(values(&loss::bce(&empty, &empty, Reduction::Sum).unwrap()), [0.0]);
    }
}

#[test]
fn a_target_that_is_no_class_is_called_a_target() {
    let device = device();
    let x = Tensor::zeros((2, 3), DType::F32, &device).unwrap();
    let target = Tensor::new([1i32, 3], &device).unwrap();
    let labels = Tensor::new([[0i32, -1, -1], [2, 7, -1]], &device).unwrap();
    for error in [
        loss::multi_margin(&x, &target, 1.0, 1.0, Reduction::Mean).unwrap_err(),
        loss::multilabel_margin(&x, &labels, Reduction::Mean).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("target[1, ") && text.contains("axis 1 has size 3"), "{text}");
        assert!(!text.contains("index["), "{text}");
    }
}
