//! Normalisation and embedding: results, gradients and buffers against PyTorch
//! (`golden/norms.json`), finite differences, and errors.

use crate::common::*;
use serde_json::Value;
use teeny_autograd::Grad;
use teeny_core::{DType, Result, Tensor};
use teeny_nn::norm::{
    self, BatchNormOptions, GroupNorm, GroupNormOptions, InstanceNorm, InstanceNormOptions,
    LayerNormOptions, RmsNorm, RmsNormOptions,
};
use teeny_nn::{BatchNorm, Embedding, EmbeddingOptions, LayerNorm, Module, Store};

fn golden() -> Vec<Value> {
    parse(include_str!("golden/norms.json"))["cases"].as_array().unwrap().clone()
}

/// The options of a case; those it does not name are the defaults.
macro_rules! options {
    ($case:expr, $type:ident) => {{
        let (case, mut options) = ($case, $type::new());
        let flag = |name: &str, default: bool| {
            case.get(name).map_or(default, |v: &Value| v.as_bool().unwrap())
        };
        options.eps = case.get("eps").map_or(options.eps, number);
        options.momentum = case.get("momentum").map_or(options.momentum, Value::as_f64);
        options.affine = flag("affine", options.affine);
        options.track_running_stats = flag("track_running_stats", options.track_running_stats);
        options.channels_last = flag("channels_last", false);
        options
    }};
}

/// The layer of a case with PyTorch's initial weights or the weights of the case.
fn layer(case: &Value, store: &Store) -> Result<Box<dyn Module>> {
    let path = store.root();
    let size = |name: &str| case[name].as_u64().unwrap() as usize;
    Ok(match case["layer"].as_str().unwrap() {
        "batch" => Box::new(BatchNorm::with_options(
            &path,
            size("channels"),
            options!(case, BatchNormOptions),
        )?),
        "instance" => Box::new(InstanceNorm::with_options(
            &path,
            size("channels"),
            options!(case, InstanceNormOptions),
        )?),
        "group" => {
            let options = GroupNormOptions::new().with_affine(case["affine"] != false);
            Box::new(GroupNorm::with_options(&path, size("groups"), size("channels"), options)?)
        }
        "layer" => {
            let sizes = sizes(&case["sizes"]);
            let options = LayerNormOptions::new();
            let options = match case["form"].as_str().unwrap() {
                "full" => options,
                "weight" => options.with_bias(false),
                _ => options.with_elementwise_affine(false),
            };
            Box::new(LayerNorm::with_options(&path, sizes, options)?)
        }
        "rms" => {
            let sizes = sizes(&case["sizes"]);
            let mut options = RmsNormOptions::new().with_elementwise_affine(case["form"] != "none");
            options.eps = case["eps"].as_f64();
            Box::new(RmsNorm::with_options(&path, sizes, options)?)
        }
        "embedding" => {
            let mut options = EmbeddingOptions::new();
            options.padding_idx = case["padding"].as_u64().map(|id| id as usize);
            Box::new(Embedding::with_options(&path, 5, 3, options)?)
        }
        other => panic!("{other}"),
    })
}

#[test]
fn norms_and_embedding_agree_with_pytorch_in_result_gradients_buffers_and_use() {
    for case in golden() {
        let store = Store::with_dtype(autograd(), DType::F64);
        let layer = layer(&case, &store).unwrap();
        let device = store.device();
        let names: Vec<String> = store.all().iter().map(|p| p.name().to_string()).collect();
        assert_eq!(names.len(), case["state"].as_object().unwrap().len(), "{names:?}: {case}");
        for name in &names {
            store.get(name).unwrap().set(&tensor(&case["state"][name], device)).unwrap();
        }
        let x = tensor(&case["x"], device);
        let x = if x.dtype().is_float() { x.requires_grad().unwrap() } else { x };
        let y = layer.forward(&x).unwrap();
        assert_eq!(y.shape()[..], sizes(&case["result"]["shape"]), "{case}");
        assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-12, &case);
        if y.is_tracked() {
            let grads = backward(&y);
            if x.dtype().is_float() {
                assert_close(
                    &values(grads.get(&x).unwrap()),
                    &numbers(&case["grad_x"]),
                    1e-10,
                    &case,
                );
            }
            for param in store.trainable() {
                assert_close(
                    &values(grads.get(&param.value()).unwrap()),
                    &numbers(&case["grads"][param.name()]),
                    1e-10,
                    &case,
                );
            }
        }
        for (name, after) in case["after"].as_object().unwrap() {
            let buffer = store.get(name).unwrap().value();
            // the counter has 64 bits in files only: GPUs may lack wider integers
            let in_file = after["dtype"].as_str().unwrap();
            let dtype = if name.ends_with("num_batches_tracked") { "i32" } else { in_file };
            assert_eq!(
                (buffer.dtype().name(), &buffer.shape()[..]),
                (dtype, &sizes(&after["shape"])[..]),
                "{name}: {case}"
            );
            assert_close(&values(&buffer), &numbers(&after["data"]), 1e-12, &case);
        }
        store.set_training(false);
        assert_close(&values(&layer.forward(&x).unwrap()), &numbers(&case["use"]), 1e-10, &case);
    }
}

#[test]
fn an_empty_batch_has_gradients_of_zeros() {
    type Make = fn(&Store) -> Result<Box<dyn Module>>;
    let layers: [(&[usize], Make); 6] = [
        (&[0, 4, 3], |s| Ok(Box::new(GroupNorm::new(&s.root(), 2, 4)?))),
        (&[0, 4], |s| Ok(Box::new(GroupNorm::new(&s.root(), 4, 4)?))),
        (&[2, 4, 0], |s| Ok(Box::new(GroupNorm::new(&s.root(), 2, 4)?))),
        (&[0, 4], |s| Ok(Box::new(LayerNorm::new(&s.root(), 4)?))),
        (&[3, 0, 4], |s| Ok(Box::new(RmsNorm::new(&s.root(), 4)?))),
        (&[0, 4, 3], |s| {
            let options = InstanceNormOptions::new().with_affine(true);
            Ok(Box::new(InstanceNorm::with_options(&s.root(), 4, options)?))
        }),
    ];
    for (shape, make) in layers {
        let store = Store::with_dtype(autograd(), DType::F64);
        let layer = make(&store).unwrap();
        let x = Tensor::zeros(shape, DType::F64, store.device()).unwrap().requires_grad().unwrap();
        let grads = layer.forward(&x).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(grads.get(&x).unwrap().shape()[..], *shape, "{}", layer.describe());
        for param in store.trainable() {
            let zeros = vec![0.0; param.value().numel()];
            assert_eq!(values(grads.get(&param.value()).unwrap()), zeros, "{}", layer.describe());
        }
    }
}

#[test]
fn norms_of_views_are_those_of_their_copies() {
    let store = Store::with_dtype(autograd(), DType::F64);
    let path = store.root();
    let layers: [Box<dyn Module>; 5] = [
        Box::new(BatchNorm::new(&path.at("b"), 4).unwrap()),
        Box::new(InstanceNorm::new(&path.at("i"), 4).unwrap()),
        Box::new(GroupNorm::new(&path.at("g"), 2, 4).unwrap()),
        Box::new(LayerNorm::new(&path.at("l"), 3).unwrap()),
        Box::new(RmsNorm::new(&path.at("r"), 3).unwrap()),
    ];
    let base = Tensor::randn((3, 6, 4), DType::F64, store.device()).unwrap(); // (3, 6, 4)
    let turned = base.permute([1, 2, 0]).unwrap(); // (6, 4, 3)
    let views = [
        turned.flip(0).unwrap(),
        turned.slice_step(0, 1.., 2).unwrap(),
        base.slice(1, 2..3).unwrap().expand((3, 6, 4)).unwrap().permute([1, 2, 0]).unwrap(),
    ];
    for layer in &layers {
        for view in &views {
            let copy = values(&layer.forward(&view.copy().unwrap()).unwrap());
            assert_close(&values(&layer.forward(view).unwrap()), &copy, 1e-13, &layer.describe());
        }
    }
}

#[test]
fn norms_pass_gradcheck_twice() {
    type Make = fn(&Store) -> Result<Box<dyn Module>>;
    let makes: [(Make, &[usize]); 8] = [
        (|s| Ok(Box::new(BatchNorm::new(&s.root(), 3)?)), &[4, 3]),
        (|s| Ok(Box::new(BatchNorm::new(&s.root(), 3)?)), &[2, 3, 2, 2]),
        (
            |s| {
                Ok(Box::new(BatchNorm::with_options(
                    &s.root(),
                    3,
                    BatchNormOptions::new().with_channels_last(true),
                )?))
            },
            &[2, 4, 3],
        ),
        (
            |s| {
                Ok(Box::new(InstanceNorm::with_options(
                    &s.root(),
                    3,
                    InstanceNormOptions::new().with_affine(true),
                )?))
            },
            &[2, 3, 4],
        ),
        (|s| Ok(Box::new(GroupNorm::new(&s.root(), 2, 4)?)), &[2, 4, 3]),
        (
            |s| {
                Ok(Box::new(GroupNorm::with_options(
                    &s.root(),
                    1,
                    4,
                    GroupNormOptions::new().with_affine(false),
                )?))
            },
            &[2, 4, 3],
        ),
        (|s| Ok(Box::new(LayerNorm::new(&s.root(), [2, 3])?)), &[3, 2, 3]),
        (
            |s| {
                Ok(Box::new(RmsNorm::with_options(
                    &s.root(),
                    3,
                    RmsNormOptions::new().with_eps(1e-3),
                )?))
            },
            &[4, 3],
        ),
    ];
    for (make, shape) in makes {
        check_module(make, shape);
    }
}

/// A known mistake averages over the batch only and so has statistics for every step.
#[test]
fn batch_norm_on_b_t_c_averages_batch_and_time() {
    let store = Store::with_dtype(device(), DType::F64);
    // (4, 5, 3)
    let x = Tensor::randn((4, 5, 3), DType::F64, store.device())
        .unwrap()
        .mul(2.0)
        .unwrap()
        .add(1.0)
        .unwrap();
    let last = BatchNorm::with_options(
        &store.at("last"),
        3,
        BatchNormOptions::new().with_channels_last(true),
    )
    .unwrap();
    let y = last.forward(&x).unwrap(); // (4, 5, 3)
    // (20, 3)
    let flat = BatchNorm::new(&store.at("flat"), 3)
        .unwrap()
        .forward(&x.reshape((20, 3)).unwrap())
        .unwrap();
    assert_close(&values(&y), &values(&flat), 1e-14, &"the same 20 values share a mean");
    for name in ["running_mean", "running_var"] {
        let [a, b] =
            ["last", "flat"].map(|layer| store.get(&format!("{layer}.{name}")).unwrap().value());
        assert_eq!(a.shape()[..], [3]);
        assert_close(&values(&a), &values(&b), 1e-14, &name);
    }
}

#[test]
fn a_norm_in_use_passes_gradients_on() {
    let make = |store: &Store| -> Result<Box<dyn Module>> {
        store.set_training(false);
        Ok(Box::new(BatchNorm::new(&store.root(), 3)?))
    };
    check_module(make, &[2, 3, 2]);
}

#[test]
fn half_precision_keeps_its_type_and_its_statistics() {
    let store = Store::with_dtype(autograd(), DType::BF16);
    let norm = BatchNorm::new(&store.root(), 2).unwrap();
    // 4096 values of 100 and 102: a sum or a square in 16 bits would be far off
    let column = Tensor::full((2048, 1), 100.0, DType::BF16, store.device()).unwrap(); // (2048, 1)
    // (4096, 2)
    let x = Tensor::cat(&[&column, &column.add(2.0).unwrap()], 0)
        .unwrap()
        .expand((4096, 2))
        .unwrap()
        .requires_grad()
        .unwrap();
    let y = norm.forward(&x).unwrap(); // (4096, 2)
    assert_eq!(y.dtype(), DType::BF16);
    assert!(values(&y).iter().all(|v| v.abs() == 1.0));
    assert_eq!(backward(&y).get(&x).unwrap().dtype(), DType::BF16);
}

#[test]
fn a_padding_vector_starts_as_zeros_and_stays_so() {
    let store = Store::new(autograd());
    let layer =
        Embedding::with_options(&store.root(), 4, 2, EmbeddingOptions::new().with_padding_idx(3))
            .unwrap();
    let ids = Tensor::new([3i64, 0, 3], store.device()).unwrap(); // (3)
    let y = layer.forward(&ids).unwrap(); // (3, 2)
    assert_eq!(values(&y)[..2], [0.0, 0.0]);
    let grads = y.sum_all().unwrap().backward().unwrap();
    assert_eq!(
        values(grads.get(&layer.weight.value()).unwrap()),
        [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
}

#[test]
fn norms_and_embedding_say_what_does_not_fit() {
    let store = Store::new(device());
    let (path, device) = (store.root(), store.device());
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, device).unwrap();
    let fails = |layer: &dyn Module, x: &Tensor, text: &str| {
        let error = layer.forward(x).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("norms.rs"), "{error}");
    };
    let batch = BatchNorm::new(&path.at("b"), 3).unwrap();
    fails(
        &batch,
        &zeros(&[2, 4]),
        "the layer has 3 channels, so its input must be (N, 3) or (N, 3, ..), not (2, 4)",
    );
    fails(
        &batch,
        &zeros(&[2, 5, 3]),
        "BatchNormOptions::with_channels_last(true) has the channels on the last axis",
    );
    fails(
        &batch,
        &zeros(&[1, 3]),
        "training needs more than one value per channel, and (1, 3) has 1",
    );
    fails(&batch, &zeros(&[0, 3]), "and (0, 3) has 0");
    fails(&batch, &Tensor::zeros((2, 3), DType::I32, device).unwrap(), "needs floats, not i32");
    store.set_training(false);
    assert_eq!(batch.forward(&zeros(&[1, 3])).unwrap().shape()[..], [1, 3]);
    store.set_training(true);
    fails(
        &InstanceNorm::new(&path, 3).unwrap(),
        &zeros(&[2, 3]),
        "its input must be (N, 3, ..), not (2, 3)",
    );
    assert!(
        GroupNorm::new(&path.at("g"), 2, 3)
            .unwrap_err()
            .to_string()
            .contains("2 groups do not divide 3 channels")
    );
    fails(
        &LayerNorm::new(&path.at("l"), 4).unwrap(),
        &zeros(&[2, 3]),
        "the layer normalises (4,), so its input must be (.., 4), not (2, 3)",
    );
    assert!(
        LayerNorm::new(&path.at("l"), ()).unwrap_err().to_string().contains("at least one axis")
    );
    let embedding = Embedding::new(&path.at("wte"), 3, 2).unwrap();
    fails(&embedding, &Tensor::new([0i32, 3], device).unwrap(), "wte.weight is (3, 2)");
    fails(&embedding, &zeros(&[1]), "embedding");
    assert!(
        Embedding::with_options(&path.at("p"), 3, 2, EmbeddingOptions::new().with_padding_idx(3))
            .unwrap_err()
            .to_string()
            .contains("padding_idx is 3, but there are 3")
    );
}

#[test]
fn norms_without_a_layer_equal_torch() {
    let device = autograd();
    let golden = parse(include_str!("golden/margins.json"));
    let inputs = golden["norm_inputs"].as_array().unwrap().iter();
    let x: Vec<Tensor> = inputs.map(|v| tensor(v, &device).requires_grad().unwrap()).collect();
    let affine = Some((&x[1], &x[2]));
    for case in golden["norms"].as_array().unwrap() {
        let got = match case["norm"].as_str().unwrap() {
            "batch_norm" => norm::batch_norm(&x[0], None, affine, 1e-5),
            "batch_norm running" => norm::batch_norm(&x[0], Some((&x[3], &x[4])), affine, 1e-5),
            "batch_norm plain" => norm::batch_norm(&x[0], None, None, 1e-5),
            "instance_norm" => norm::instance_norm(&x[0], affine, 1e-5),
            "group_norm" => norm::group_norm(&x[0], 2, affine, 1e-5),
            other => panic!("no test for {other}"),
        }
        .unwrap();
        assert_close(&values(&got), &numbers(&case["result"]), 1e-11, case);
        let grads = backward(&got);
        for (leaf, want) in x.iter().zip(case["grads"].as_array().unwrap()) {
            if !want.is_null() {
                assert_close(&values(grads.get(leaf).unwrap()), &numbers(want), 1e-10, case);
            }
        }
    }
    let error = norm::group_norm(&x[0], 3, None, 1e-5).unwrap_err().to_string();
    assert!(error.contains("3 groups do not divide 4 channels"), "{error}");
}
