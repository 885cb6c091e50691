//! Losses and normalisations at kinks, ends of domains and beyond, infinities, NaN and rows of
//! constants against PyTorch's (`golden/special.json`): values, first and second derivatives in f64
//! and f32, on the naive device and the CPU, in reverse and in forward mode.
//!
//! [`ON_PURPOSE`] lists the differences and their reasons; `SPECIAL_POINTS.md` is written from it.

use crate::common;
use crate::common::{f64s, numbers, parse};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use teeny_autograd::{allow_unused, jvp, vjp};
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor, ToDevice};
use teeny_nn::loss::{self, CrossEntropy, Reduction};
use teeny_nn::norm::{BatchNormOptions, GroupNorm, GroupNormOptions, InstanceNorm};
use teeny_nn::{BatchNorm, Module, Store};

const HEAD: &str = "\
# Special points of losses and normalisations

At kinks, ends of domains and beyond, infinities, NaN and rows of constants, values and derivatives of
first and second order agree with PyTorch 2.15, in reverse and in forward mode, except for the
differences below; operands that PyTorch refuses are errors. [teeny-autograd/SPECIAL_POINTS.md](../teeny-autograd/SPECIAL_POINTS.md) is the table of the
functions underneath, `tests/golden/special.json` has the operands and PyTorch's results. This file
is written by `TEENY_BLESS=1 cargo test --release -p teeny-nn --test all special_points`; an ordinary
run compares.

| functions | of | what differs |
|---|---|---|
";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Value,
    First,
    Second,
    /// The first derivative in forward mode.
    Forward,
}
use Part::{First, Forward, Second, Value as Y};

/// A difference: functions, parts, a condition on the operands, and the reason.
struct Difference {
    ops: &'static [&'static str],
    parts: &'static [Part],
    at: fn(&[f64]) -> bool,
    why: &'static str,
}

fn any(x: &[f64], is: fn(f64) -> bool) -> bool {
    x.iter().any(|x| is(*x))
}

const ON_PURPOSE: &[Difference] = &[
    Difference {
        ops: &["l1"],
        parts: &[First, Forward],
        at: |x| (x[0] - x[1]).is_nan(),
        why: "NaN has the slope NaN; PyTorch's sign of it, 0, hides it.",
    },
    Difference {
        ops: &["bce"],
        parts: &[First, Second, Forward],
        at: |x| x[0] < 1e-9 || x[0] > 0.99,
        why: "The slopes of both logarithms are 1 / p and 1 / (1 - p), cut off at 1e12 \
              each: 1 at p = target = 0. PyTorch cuts off 1 / (p (1 - p)), 0 there, and \
              gives the target an infinite gradient; its second derivatives are off by \
              1e-12 / p.",
    },
    Difference {
        ops: &["bce_with_logits"],
        parts: &[Y],
        at: |x| x[0] == f64::NEG_INFINITY,
        why: "An infinite logit that is wrong costs inf; PyTorch's NaN for -inf.",
    },
    Difference {
        ops: &["kl_div"],
        parts: &[First, Second, Forward],
        at: |x| x[1] == 0.0,
        why: "A target of 0 takes part in nothing, so its own gradient is -log q; \
              PyTorch's is NaN.",
    },
    Difference {
        ops: &["hinge"],
        parts: &[Second, Forward],
        at: |x| !x[0].is_finite(),
        why: "Of the flat part nothing is left; PyTorch's 0 * inf is NaN.",
    },
    Difference {
        ops: &["hinge_embedding", "margin_ranking"],
        parts: &[First, Second, Forward],
        at: |x| any(x, |x| !x.is_finite()),
        why: "The slope of the clamp at NaN is 1, so that NaN is not hidden; PyTorch's is 0. \
              Of the flat part nothing is left; PyTorch's 0 * inf is NaN.",
    },
    Difference {
        ops: &["cosine_embedding"],
        parts: &[Forward],
        at: |x| any(x, f64::is_nan),
        why: "The tangent for a target other than 1 and -1 is 0; PyTorch's 0 * NaN is NaN.",
    },
    Difference {
        ops: &["ignored"],
        parts: &[First, Second, Forward],
        at: |_| true,
        why: "The mean of no loss is NaN, along every direction; what is ignored gets the \
              gradient 0 even if it is not finite.",
    },
    Difference {
        ops: &["layer_norm", "batch_norm", "instance_norm"],
        parts: &[Y, First, Second, Forward],
        at: |x| any(x, |x| x == 1e15),
        why: "The mean of equal numbers is that number, so that they are normalised to 0; \
              PyTorch's is a rounding off, divided by sqrt(eps).",
    },
];

#[derive(Default)]
struct Findings {
    texts: RefCell<Vec<String>>,
    met: RefCell<BTreeSet<usize>>,
}

impl Findings {
    fn compare(&self, op: &str, part: Part, dtype: DType, x: &[f64], got: f64, wanted: f64) {
        let (relative, absolute): (f64, f64) =
            if dtype == DType::F64 { (1e-8, 1e-11) } else { (2e-5, 1e-5) };
        let near = got.is_finite()
            && wanted.is_finite()
            && (got - wanted).abs() <= absolute.max(relative * wanted.abs().max(got.abs()));
        if near || got == wanted || (got.is_nan() && wanted.is_nan()) {
            return;
        }
        let excused = |d: &Difference| d.ops.contains(&op) && d.parts.contains(&part) && (d.at)(x);
        if let Some(i) = ON_PURPOSE.iter().position(excused) {
            self.met.borrow_mut().insert(i);
            return;
        }
        self.texts
            .borrow_mut()
            .push(format!("{op} {part:?} {dtype} at {x:?}: {got}, PyTorch {wanted}"));
    }
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(|s| s.to_f64()).collect()
}

fn dtype(case: &Value) -> DType {
    if case["dtype"] == "f32" { DType::F32 } else { DType::F64 }
}

type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// Compares value and derivatives of `f` at `x` with `case`; `at` names the operands of element i.
fn check(
    f: &Function,
    x: &Vec<Tensor>,
    weighted: bool,
    case: &Value,
    at: &dyn Fn(usize) -> Vec<f64>,
    findings: &Findings,
) {
    let (op, dtype) = (case["op"].as_str().unwrap(), dtype(case));
    let weight = |t: &Tensor| {
        let w = (1..=t.numel()).map(|i| if weighted { i as f64 } else { 1.0 }).collect();
        f64s(w, t.shape(), x[0].device()).cast(t.dtype()).unwrap()
    };
    let compare = |part: Part, got: &Tensor, wanted: &Value| {
        let (got, wanted) = (values(got), numbers(wanted));
        assert_eq!(got.len(), wanted.len(), "{op}");
        (0..got.len()).for_each(|i| findings.compare(op, part, dtype, &at(i), got[i], wanted[i]));
    };
    let y = f(x).unwrap_or_else(|e| panic!("{op}: {e}"));
    compare(Y, &y, &case["y"]);
    let (w, v) = (weight(&y), x.iter().map(weight).collect::<Vec<_>>());
    let first = |x: &Vec<Tensor>| allow_unused(|| vjp(|x: &Vec<Tensor>| f(x), x, &w));
    let (_, gradients) = first(x).unwrap();
    let total = |x: &Vec<Tensor>| -> Result<Tensor> {
        let zero = Tensor::zeros((), x[0].dtype(), &x[0])?;
        first(x)?.1.iter().zip(&v).try_fold(zero, |sum, (g, v)| sum.add(&g.mul(v)?.sum_all()?))
    };
    let (_, second) =
        allow_unused(|| vjp(total, x, &Tensor::ones((), dtype, &x[0]).unwrap())).unwrap();
    for (i, gradient) in gradients.iter().enumerate() {
        compare(First, gradient, &case["d"][i]);
        if case["dd"].is_array() {
            compare(Second, &second[i], &case["dd"][i]);
        }
        let alone = |xi: &Tensor| {
            f(&x.iter()
                .enumerate()
                .map(|(j, x)| if j == i { xi.clone() } else { x.clone() })
                .collect::<Vec<_>>())
        };
        let (_, along) = allow_unused(|| jvp(alone, &x[i], &x[i].ones_like().unwrap())).unwrap();
        let wanted = numbers(&case["d"][i]);
        if !weighted {
            compare(Forward, &along, &case["d"][i]);
        } else if wanted.iter().all(|d| d.is_finite()) {
            // one number: the weighted sum of the results along the direction of ones
            let along: f64 =
                values(&along).iter().enumerate().map(|(i, t)| (i + 1) as f64 * t).sum();
            // the terms may cancel
            let scale = wanted.iter().map(|d| d.abs()).sum::<f64>().max(1.0);
            findings.compare(
                op,
                Forward,
                dtype,
                &at(0),
                along / scale,
                wanted.iter().sum::<f64>() / scale,
            );
        }
    }
}

fn losses(device: &DeviceRef, findings: &Findings) {
    for case in parse(include_str!("golden/special.json"))["losses"].as_array().unwrap() {
        let none = Reduction::None;
        let f: Function = match case["op"].as_str().unwrap() {
            "mse" => Box::new(move |x| loss::mse(&x[0], &x[1], none)),
            "l1" => Box::new(move |x| loss::l1(&x[0], &x[1], none)),
            "huber_1" => Box::new(move |x| loss::huber(&x[0], &x[1], 1.0, none)),
            "huber_half" => Box::new(move |x| loss::huber(&x[0], &x[1], 0.5, none)),
            "bce" => Box::new(move |x| loss::bce(&x[0], &x[1], none)),
            "bce_with_logits" => Box::new(move |x| loss::bce_with_logits(&x[0], &x[1], none)),
            "kl_div" => Box::new(move |x| loss::kl_div(&x[0], &x[1], none)),
            "poisson_nll" => Box::new(move |x| loss::poisson_nll(&x[0], &x[1], none)),
            "hinge" => Box::new(move |x| loss::hinge(&x[0], &x[1], none)),
            "soft_margin" => Box::new(move |x| loss::soft_margin(&x[0], &x[1], none)),
            "hinge_embedding" => Box::new(move |x| loss::hinge_embedding(&x[0], &x[1], 1.0, none)),
            "kl_div_log" => Box::new(move |x| loss::kl_div_log(&x[0], &x[1], none)),
            "smooth_l1_half" => Box::new(move |x| loss::smooth_l1(&x[0], &x[1], 0.5, none)),
            "focal" => Box::new(move |x| loss::focal(&x[0], &x[1], 0.25, 2.0, none)),
            "gaussian_nll" => {
                Box::new(move |x| loss::gaussian_nll(&x[0], &x[1], &x[2], 1e-6, none))
            }
            "margin_ranking" => {
                Box::new(move |x| loss::margin_ranking(&x[0], &x[1], &x[2], 0.5, none))
            }
            "cosine_embedding" => Box::new(move |x| {
                let pair = |i: usize| Tensor::stack(&[&x[i], &x[i + 1]], 1);
                loss::cosine_embedding(&pair(0)?, &pair(2)?, &x[4], 0.25, none)
            }),
            other => panic!("no loss {other}"),
        };
        let at: Vec<Vec<f64>> = case["x"].as_array().unwrap().iter().map(numbers).collect();
        let x = at
            .iter()
            .map(|x| f64s(x.clone(), &[x.len()], device).cast(dtype(case)).unwrap())
            .collect();
        check(&f, &x, false, case, &|i| at.iter().map(|x| x[i]).collect(), findings);
    }
}

#[test]
fn losses_refuse_operands_that_pytorch_refuses() {
    for device in [Reference::new().to_device(), common::device()] {
        for case in parse(include_str!("golden/special.json"))["refused"].as_array().unwrap() {
            let x = numbers(&case["x"]);
            let of = |i: usize| f64s(vec![x[i]], &[1], &device);
            let class = || f64s(vec![x[1]], &[1], &device).cast(DType::I64).unwrap();
            let logits = |n: usize| of(0).expand((1, n)).unwrap();
            let mean = Reduction::Mean;
            let loss = match case["op"].as_str().unwrap() {
                "bce" => loss::bce(&of(0), &of(1), mean),
                "gaussian_nll" => loss::gaussian_nll(&of(0), &of(1), &of(2), 1e-6, mean),
                "multi_margin" => loss::multi_margin(&logits(3), &class(), 1.0, 1.0, mean),
                "multilabel_margin" => {
                    loss::multilabel_margin(&logits(1), &class().unsqueeze(0).unwrap(), mean)
                }
                "nll" => loss::nll(&logits(3), &class(), mean),
                other => panic!("no loss {other}"),
            };
            let error = loss.expect_err(&case.to_string()).to_string();
            assert!(error.contains("special_points.rs"), "{error}");
        }
    }
}

fn cross_entropies(device: &DeviceRef, findings: &Findings) {
    for case in parse(include_str!("golden/special.json"))["cross_entropy"].as_array().unwrap() {
        let op = case["op"].as_str().unwrap().to_string();
        let targets = Tensor::new([case["target"].as_i64().unwrap()], device).unwrap();
        let plain = CrossEntropy::new().with_reduction(Reduction::None);
        let f: Function = Box::new(move |x| match op.as_str() {
            "cross_entropy" => plain.loss(&x[0], &targets),
            "smoothed" => plain.clone().with_label_smoothing(0.25).loss(&x[0], &targets),
            "nll" => plain.nll(&x[0], &targets),
            _ => CrossEntropy::new().with_ignore_index(0).loss(&x[0], &targets),
        });
        let at = numbers(&case["x"]);
        let x = vec![f64s(at.clone(), &[1, at.len()], device).cast(dtype(case)).unwrap()];
        check(
            &f,
            &x,
            true,
            case,
            &|_| at.iter().copied().chain([case["target"].as_f64().unwrap()]).collect(),
            findings,
        );
    }
}

fn norms(device: &DeviceRef, findings: &Findings) {
    for case in parse(include_str!("golden/special.json"))["norms"].as_array().unwrap() {
        let at = numbers(&case["x"]);
        let n = at.len();
        let store = Store::new(device);
        let plain = BatchNormOptions::new().with_affine(false).with_track_running_stats(false);
        let f: Function = match case["op"].as_str().unwrap() {
            "layer_norm" => Box::new(|x| x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-5)),
            "rms_norm" => Box::new(|x| x[0].rms_norm(1, Some(&x[1]), 1e-5)),
            "group_norm" => {
                let norm = GroupNorm::with_options(
                    &store.root(),
                    2,
                    n,
                    GroupNormOptions::new().with_affine(false),
                )
                .unwrap();
                Box::new(move |x| norm.forward(&x[0]))
            }
            "batch_norm" => {
                let norm = BatchNorm::with_options(&store.root(), 1, plain).unwrap();
                Box::new(move |x| norm.forward(&x[0].t()?)?.t())
            }
            "instance_norm" => {
                let norm = InstanceNorm::new(&store.root(), 1).unwrap();
                Box::new(move |x| norm.forward(&x[0].reshape((1, 1, n))?)?.reshape((1, n)))
            }
            other => panic!("no normalisation {other}"),
        };
        let make = |values: Vec<f64>, shape: &[usize]| {
            f64s(values, shape, device).cast(dtype(case)).unwrap()
        };
        let x = vec![
            make(at.clone(), &[1, n]),
            make((1..=n).map(|i| i as f64 / 2.0).collect(), &[n]),
            make(vec![0.0; n], &[n]),
        ];
        check(&f, &x, true, case, &|_| at.clone(), findings);
    }
}

fn all() -> Findings {
    let findings = Findings::default();
    for device in [Reference::new().to_device(), common::device()] {
        losses(&device, &findings);
        cross_entropies(&device, &findings);
        norms(&device, &findings);
        findings.texts.borrow_mut().push(format!("on {}", device.info().name));
    }
    findings
}

#[test]
fn losses_and_normalisations_at_special_points_are_as_in_pytorch() {
    let findings = all();
    let texts = findings.texts.borrow();
    assert!(texts.len() == 2, "differences:\n{}", texts.join("\n"));
    let met = findings.met.borrow();
    let unused: Vec<&str> =
        (0..ON_PURPOSE.len()).filter(|i| !met.contains(i)).map(|i| ON_PURPOSE[i].why).collect();
    assert!(unused.is_empty(), "nothing differs here any more: {unused:#?}");
}

#[test]
fn the_table_of_differences_is_up_to_date() {
    let part = |part: &Part| match part {
        Y => "value",
        First => "first derivative",
        Second => "second derivative",
        Forward => "tangent",
    };
    let row = |d: &Difference| {
        let parts: Vec<&str> = d.parts.iter().map(part).collect();
        format!("| `{}` | {} | {} |\n", d.ops.join("` `"), parts.join(", "), d.why)
    };
    let text = format!("{HEAD}{}", ON_PURPOSE.iter().map(row).collect::<String>());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("SPECIAL_POINTS.md");
    if std::env::var_os("TEENY_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|old| old == text),
        "SPECIAL_POINTS.md is out of date: run with TEENY_BLESS=1"
    );
}
