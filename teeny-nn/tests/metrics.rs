//! Metrics against scikit-learn (`golden/metrics.json`), and their errors.

use crate::awaited::run;
use crate::common::*;
use serde_json::Value;
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, ToDevice};
use teeny_nn::train::{
    Confusion, accuracy, accuracy_async, average_precision, calibration_error, r2_score, roc_auc,
    top_k_accuracy, top_k_accuracy_async,
};

fn golden() -> Value {
    parse(include_str!("golden/metrics.json"))
}

fn vector(v: &Value, device: &DeviceRef) -> Tensor {
    let values = numbers(v);
    f64s(values.clone(), &[values.len()], device)
}

fn near(a: f64, b: &Value, what: &str) {
    assert!((a - number(b)).abs() < 1e-12, "{what}: {a} {b}");
}

#[test]
fn areas_and_scores_of_binary_classifiers_are_those_of_scikit_learn() {
    let device = device();
    for case in golden()["binary"].as_array().unwrap() {
        let (scores, targets) =
            (vector(&case["scores"], &device), vector(&case["targets"], &device));
        near(roc_auc(&scores, &targets).unwrap(), &case["auc"], "auc");
        let flags = targets.cast(DType::Bool).unwrap();
        near(average_precision(&scores, &flags).unwrap(), &case["ap"], "ap");
        let mut confusion = Confusion::new(2);
        confusion
            .add_binary(&scores.unsqueeze(1).unwrap(), &targets.unsqueeze(1).unwrap())
            .unwrap();
        for class in 0..2 {
            let zero = |x: f64| if x.is_nan() { 0.0 } else { x };
            near(zero(confusion.precision(class)), &case["precision"][class], "precision");
            near(zero(confusion.recall(class)), &case["recall"][class], "recall");
            near(zero(confusion.f1(class)), &case["f1"][class], "f1");
        }
    }
}

#[test]
fn averages_and_calibration_of_classes_are_those_of_scikit_learn() {
    let device = device();
    for case in golden()["classes"].as_array().unwrap() {
        let (n, c) = (case["targets"].as_array().unwrap().len(), number(&case["classes"]) as usize);
        let logits = f64s(flat(&case["logits"]), &[n, c], &device);
        let targets = ints(&case["targets"], &[n], &device);
        let mut confusion = Confusion::new(c);
        confusion.add(&logits, &targets).unwrap();
        let mean = confusion.macro_average();
        for (i, value) in [mean.precision, mean.recall, mean.f1].into_iter().enumerate() {
            near(value, &case["macro"][i], "macro");
            near(confusion.accuracy(), &case["micro"][i], "micro");
        }
        for (bins, value) in case["ece"].as_object().unwrap() {
            let error = calibration_error(&logits, &targets, bins.parse().unwrap()).unwrap();
            near(error, value, "calibration");
        }
    }
    assert!(Confusion::new(3).macro_average().f1.is_nan() && Confusion::new(3).f1(0).is_nan());
}

#[test]
fn scores_of_pixels_are_those_of_scikit_learn_without_the_ignored_ones() {
    let device = device();
    for case in golden()["pixels"].as_array().unwrap() {
        let sizes = sizes(&case["shape"]);
        let (c, ignored) = (number(&case["classes"]) as usize, number(&case["ignored"]) as i64);
        let logits_shape = [&sizes[..1], &[c], &sizes[1..]].concat();
        let logits = f64s(numbers(&case["logits"]), &logits_shape, &device);
        let targets = f64s(numbers(&case["targets"]), &sizes, &device).cast(DType::I64).unwrap();
        let mut confusion = Confusion::new(c).with_ignore_index(ignored);
        confusion.add(&logits, &targets).unwrap();
        near(confusion.accuracy(), &case["accuracy"], "accuracy");
        near(confusion.macro_average().iou, &case["mean_iou"], "mean iou");
        for class in 0..c {
            let zero = |x: f64| if x.is_nan() { 0.0 } else { x };
            near(zero(confusion.iou(class)), &case["iou"][class], "iou");
            near(zero(confusion.f1(class)), &case["f1"][class], "dice");
        }
        assert!(confusion.iou(c - 1).is_nan(), "a class that does not occur");
        near(accuracy(&logits, &targets).unwrap() as f64, &case["right"], "accuracy");
        let right = top_k_accuracy(&logits, &targets, 2).unwrap();
        near(right as f64, &case["right_of_2"], "top k");
        // as futures, and as rows of logits (N, C)
        let mut again = Confusion::new(c).with_ignore_index(ignored);
        run(again.add_async(&logits, &targets)).unwrap();
        assert_eq!(again, confusion);
        assert_eq!(run(accuracy_async(&logits, &targets)).unwrap() as f64, number(&case["right"]));
        assert_eq!(run(top_k_accuracy_async(&logits, &targets, 2)).unwrap(), right);
        let rows = logits.movedim(1, -1).unwrap().reshape((-1, c as isize)).unwrap();
        let mut rowwise = Confusion::new(c).with_ignore_index(ignored);
        rowwise.add(&rows, &targets.reshape(-1).unwrap()).unwrap();
        assert_eq!(rowwise, confusion);
        assert_eq!(
            calibration_error(&rows, &targets.reshape(-1).unwrap(), 5).unwrap(),
            calibration_error(&logits, &targets, 5).unwrap()
        );
    }
    // the item of logits (C)
    let one = f64s(vec![0.0, 2.0, 1.0], &[3], &device);
    let target = Tensor::new(1i32, &device).unwrap();
    assert_eq!(accuracy(&one, &target).unwrap(), 1);
}

#[test]
fn pixels_that_do_not_fit_are_refused_with_a_remedy() {
    let device = device();
    let logits = f64s(vec![0.0; 16], &[1, 2, 2, 4], &device);
    let mask = Tensor::new([[[0u8, 1, 1, 0], [1, 0, 255, 7]]], &device).unwrap(); // (1, 2, 4)
    let text = |mask: &Tensor| Confusion::new(2).add(&logits, mask).unwrap_err().to_string();
    let error = text(&mask);
    assert!(error.contains("targets[0, 1, 2] is 255, but there are 2 classes"), "{error}");
    assert!(error.contains("help: Confusion::new(2).with_ignore_index(255)"), "{error}");
    let mut confusion = Confusion::new(2).with_ignore_index(255);
    let error = confusion.add(&logits, &mask).unwrap_err().to_string();
    assert!(error.contains("targets[0, 1, 3] is 7"), "{error}");
    assert_eq!(confusion, Confusion::new(2).with_ignore_index(255), "nothing is counted");
    let error = text(&mask.unsqueeze(1).unwrap());
    assert!(error.contains("logits (1, 2, 2, 4) need targets (1, 2, 4), not (1, 1, 2, 4)"));
    assert!(error.contains("help: targets.squeeze(1)?"), "{error}");
    let error = text(&mask.unsqueeze(1).unwrap().expand((1, 2, 2, 4)).unwrap());
    assert!(error.contains("help: targets.argmax(1)? of one-hot rows"), "{error}");
    let error = text(&mask.slice(2, ..3).unwrap());
    assert!(
        error.contains("help: one class for each item or pixel: logits (N, C, d..)"),
        "{error}"
    );
    assert!(accuracy(&Tensor::new(1.0f32, &device).unwrap(), &mask).is_err());
    // the logits of a binary mask
    let logits = f64s(vec![1.0, 1.0, -1.0, -1.0], &[1, 2, 2], &device);
    let flags = f64s(vec![1.0, 0.0, 255.0, 0.0], &[1, 2, 2], &device);
    let mut confusion = Confusion::new(2).with_ignore_index(255);
    confusion.add_binary(&logits, &flags).unwrap();
    assert_eq!([confusion.count(0, 0), confusion.count(0, 1), confusion.count(1, 1)], [1; 3]);
    assert_eq!(confusion.count(1, 0), 0);
    let error = Confusion::new(2).add_binary(&logits, &flags).unwrap_err().to_string();
    assert!(error.contains("targets[2] is 255, but must be 0 or 1\n"), "{error}");
}

#[test]
fn r2_is_that_of_scikit_learn() {
    let device = device();
    for case in golden()["numbers"].as_array().unwrap() {
        let (p, y) = (vector(&case["predictions"], &device), vector(&case["targets"], &device));
        near(r2_score(&p, &y).unwrap(), &case["r2"], "r2");
    }
}

#[test]
fn what_has_no_value_is_an_error() {
    let device = device();
    let of = |values: &[f64]| f64s(values.to_vec(), &[values.len()], &device);
    let (scores, ones) = (of(&[0.0, 1.0]), of(&[1.0, 1.0]));
    let text = |result: teeny_core::Result<f64>| result.unwrap_err().to_string();
    assert!(text(roc_auc(&scores, &ones)).contains("all 2 targets are 1"));
    assert!(text(roc_auc(&of(&[]), &of(&[]))).contains("all 0 targets"));
    assert!(text(average_precision(&scores, &of(&[0.0, 0.0]))).contains("none of 2 targets is 1"));
    assert!(text(roc_auc(&scores, &of(&[0.0, 0.5]))).contains("targets[1] is 0.5"));
    assert!(text(roc_auc(&of(&[0.0, f64::NAN]), &of(&[0.0, 1.0]))).contains("scores[1] is NaN"));
    assert!(text(roc_auc(&scores, &of(&[1.0]))).contains("scores are (2,), targets (1,)"));
    assert_eq!(roc_auc(&of(&[-0.0, 0.0]), &of(&[0.0, 1.0])).unwrap(), 0.5);
    assert!(text(r2_score(&of(&[1.0]), &of(&[1.0]))).contains("R² of 1 elements"));
    let logits = f64s(vec![0.0, f64::NAN], &[1, 2], &device);
    let target = Tensor::new([0i32], &device).unwrap();
    assert!(text(calibration_error(&logits, &target, 5)).contains("logits[0] have no softmax"));
    assert!(text(calibration_error(&logits, &target, 0)).contains("1 items in 0 bins"));
    let mut confusion = Confusion::new(3);
    let error = confusion.add_binary(&scores, &ones).unwrap_err().to_string();
    assert!(error.contains("one logit tells 2 classes apart, not 3"), "{error}");
}

#[test]
fn float_targets_of_classes_are_refused_with_a_cast() -> Result<()> {
    let device = device();
    let logits = Tensor::new([[2.0f32, 1.0], [0.0, 3.0]], &device)?; // (2, 2)
    let targets = Tensor::new([0.7f32, 1.0], &device)?; // (2)
    let errors = [
        accuracy(&logits, &targets).unwrap_err(),
        top_k_accuracy(&logits, &targets, 1).unwrap_err(),
        Confusion::new(2).add(&logits, &targets).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("integers, not f32") && text.contains("cast(DType::I64)"), "{text}");
    }
    let classes = Tensor::new([false, true], &device)?; // (2)
    assert_eq!(accuracy(&logits, &classes)?, 2);
    Ok(())
}

#[test]
fn logits_with_nan_have_no_prediction() {
    for device in [device(), Reference::new().to_device()] {
        // each place of NaN among the classes, for rows and for pixels
        for (item, class) in (0..6).flat_map(|item| (0..3).map(move |class| (item, class))) {
            let mut x: Vec<f64> = (0..18).map(|i| f64::from(i * 5 % 7)).collect();
            x[item * 3 + class] = f64::NAN;
            let rows = f64s(x, &[6, 3], &device).cast(DType::F32).unwrap();
            let pixels = rows.reshape((2, 3, 3)).unwrap().transpose(1, 2).unwrap(); // (2, 3, 3)
            let classes = Tensor::new([0i64, 1, 2, 0, 1, 2], &device).unwrap();
            for (logits, shape, at) in [
                (&rows, vec![6], format!("logits[{item}] have")),
                (&pixels, vec![2, 3], format!("logits[{}, {}] have", item / 3, item % 3)),
            ] {
                let targets = classes.reshape(&shape[..]).unwrap();
                let mut confusion = Confusion::new(3);
                let errors = [
                    accuracy(logits, &targets).unwrap_err(),
                    run(accuracy_async(logits, &targets)).unwrap_err(),
                    top_k_accuracy(logits, &targets, 2).unwrap_err(),
                    run(top_k_accuracy_async(logits, &targets, 3)).unwrap_err(),
                    calibration_error(logits, &targets, 5).unwrap_err(),
                    confusion.add(logits, &targets).unwrap_err(),
                    run(confusion.add_async(logits, &targets)).unwrap_err(),
                ];
                assert_eq!(confusion, Confusion::new(3), "nothing is counted");
                for error in errors.map(|error| error.to_string()) {
                    assert!(error.contains(&at) && error.contains("help: "), "{at}: {error}");
                }
                // an item that is left out may have NaN
                let mut left: Vec<i64> = classes.to_vec().unwrap();
                left[item] = -100;
                let left = Tensor::from_vec(left, &shape[..], &device).unwrap();
                assert!(accuracy(logits, &left).unwrap() <= 5);
                assert!(top_k_accuracy(logits, &left, 2).unwrap() <= 5);
                assert_eq!(top_k_accuracy(logits, &left, 3).unwrap(), 5);
                let mut confusion = Confusion::new(3).with_ignore_index(-100);
                confusion.add(logits, &left).unwrap();
            }
        }
        let of = |x: [f64; 3]| f64s(x.to_vec(), &[3], &device);
        let (x, flags) = (of([0.5, f64::NAN, -1.0]), of([1.0, 0.0, 1.0]));
        let mut confusion = Confusion::new(2);
        let error = confusion.add_binary(&x, &flags).unwrap_err().to_string();
        assert!(error.contains("logits[1] is NaN"), "{error}");
        assert_eq!(confusion, Confusion::new(2), "nothing is counted");
        let mut confusion = Confusion::new(2).with_ignore_index(0);
        confusion.add_binary(&x, &flags).unwrap();
        for (p, y, says) in [
            (x.clone(), of([2.0; 3]), "predictions[1] is NaN"),
            (flags.clone(), of([1.0, 2.0, f64::INFINITY]), "targets[2] is inf"),
        ] {
            let error = r2_score(&p, &y).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // of no items
        let none = Tensor::zeros((0, 3), DType::F32, &device).unwrap();
        let no_target = Tensor::zeros((0,), DType::I64, &device).unwrap();
        assert_eq!(accuracy(&none, &no_target).unwrap(), 0);
    }
}
