//! Views, reductions, scans, matrix products, softmax, convolution and pooling.

use super::{
    Findings, Value, Verdict, agree, agree_in, dtype, list, name, parse, scalars, sizes, tensor,
};
use teeny_core::{DType, Error, Layout, Result, Tensor, ToDevice, Window};

fn integers(v: &Value) -> Vec<i64> {
    list(v).iter().map(|n| n.as_i64().expect("an integer")).collect()
}

/// `views.json`: which (shape, strides, target) can be viewed, with which strides, and what reshape
/// gives.
pub fn views(device: impl ToDevice) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/views.json")));
    let mut findings = Findings::default();
    for case in list(&file["cases"]) {
        let check = || -> Result<std::result::Result<(), String>> {
            let len = case["storage"].as_u64().expect("a size") as i32;
            let strides: Vec<isize> =
                integers(&case["strides"]).iter().map(|&s| s as isize).collect();
            let offset = case["offset"].as_u64().expect("an offset") as usize;
            let x = Tensor::arange(0i32, len, 1, &device)?.as_strided(
                sizes(&case["shape"]),
                &strides,
                offset,
            )?;
            let target = integers(&case["target"]);
            if case["reshape"] == "error" {
                let refused = x.reshape(&target).is_err() && x.view(&target).is_err();
                return Ok(if refused { Ok(()) } else { Err("torch refuses".to_string()) });
            }
            let (shape, strides) = (
                x.reshape(&target)?.shape().to_vec(),
                x.view(&target).ok().map(|v| v.strides().to_vec()),
            );
            if shape != sizes(&case["result_shape"]) {
                return Ok(Err(format!("shape {shape:?}")));
            }
            let want = (!case["view_strides"].is_null()).then(|| {
                integers(&case["view_strides"]).iter().map(|&s| s as isize).collect::<Vec<_>>()
            });
            // Strides of axes of size 1 and of empty views are never used: any will do.
            let same = match (&strides, &want) {
                (Some(a), Some(b)) => {
                    x.numel() == 0
                        || a.iter().zip(b).zip(&shape).all(|((a, b), &n)| n == 1 || a == b)
                }
                (a, b) => a.is_none() == b.is_none(),
            };
            if !same {
                return Ok(Err(format!("view strides {strides:?}, not {want:?}")));
            }
            Ok(agree(x.reshape(&target), &scalars(&case["data"]), 0.0, 0.0))
        };
        findings.add(case, check().unwrap_or_else(|e| Err(e.to_string())));
    }
    findings.verdict()
}

fn reduced(op: &str, x: &Tensor, axes: &[i64], keepdim: bool) -> Result<Tensor> {
    let y = match op {
        "sum" => x.sum(axes),
        "mean" => x.mean(axes),
        "amax" => x.max(axes),
        "amin" => x.min(axes),
        "logsumexp" => x.logsumexp(axes),
        "var" => x.var(axes, 1),
        "var_biased" => x.var(axes, 0),
        "std" => x.std(axes, 1),
        "std_biased" => x.std(axes, 0),
        "prod" => x.prod(axes),
        "argmax" => x.argmax(axes[0] as isize),
        "argmin" => x.argmin(axes[0] as isize),
        "any" => x.gt(1.0)?.any(axes),
        "all" => x.gt(-1.5)?.all(axes),
        other => Err(Error::internal(format!("no reduction is called {other}"))),
    }?;
    if !keepdim {
        return Ok(y);
    }
    use teeny_core::IntoAxes;
    axes.axes(x.shape())?.into_iter().try_fold(y, |y, axis| y.unsqueeze(axis as isize))
}

/// `reduce.json`: reductions over every axis list, scans, ties, nothing, NaN and infinities, and
/// the types of results.
pub fn reduce(device: impl ToDevice, float: DType) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/reduce.json")));
    let mut findings = Findings::default();
    // 24 numbers of size 2, rounded to the type first.
    let (places, floor) = (16.0, 4.0);
    let x = || tensor(&file["x"], float, &device);
    for case in list(&file["many"]).iter().chain(list(&file["single"])) {
        let axes = if case["axes"].is_null() {
            vec![case["axis"].as_i64().expect("an axis")]
        } else {
            integers(&case["axes"])
        };
        let keepdim = case["keepdim"].as_bool().expect("a flag");
        let got = x().and_then(|x| reduced(name(&case["op"]), &x, &axes, keepdim));
        findings.add(
            format!("{} {axes:?} {float}", case["op"]),
            agree_in(got, &case["shape"], &case["data"], places, floor),
        );
    }
    for case in list(&file["scan"]) {
        let axis = case["axis"].as_i64().expect("an axis") as isize;
        let got =
            x().and_then(|x| if case["op"] == "cumsum" { x.cumsum(axis) } else { x.cumprod(axis) });
        findings.add(
            format!("{} {axis} {float}", case["op"]),
            agree(got, &scalars(&case["data"]), places, floor),
        );
    }
    for (cases, x) in [("tie", "tie_x"), ("special", "special_x")] {
        for case in list(&file[cases]) {
            let got = tensor(&file[x], float, &device).and_then(|x| {
                if case["op"] == "cumprod" {
                    x.cumprod(1)
                } else {
                    reduced(name(&case["op"]), &x, &[1], false)
                }
            });
            findings.add(
                format!("{} {cases} {float}", case["op"]),
                agree(got, &scalars(&case["data"]), places, floor),
            );
        }
    }
    for case in list(&file["empty"]) {
        let axis = case["axis"].as_i64().expect("an axis");
        let got = Tensor::zeros((0, 3), float, &device)
            .and_then(|x| reduced(name(&case["op"]), &x, &[axis], false));
        let outcome = match (&case["result"], got) {
            (Value::String(_), Err(_)) => Ok(()),
            (Value::String(_), Ok(y)) => Err(format!("gave {}, torch refuses", y.shape())),
            (want, got) => agree_in(got, &want["shape"], &want["data"], 0.0, 0.0),
        };
        findings.add(format!("{} of nothing, axis {axis}", case["op"]), outcome);
    }
    for case in list(&file["dtypes"]) {
        for op in ["sum", "prod", "cumsum"] {
            let run = || -> Result<Tensor> {
                let x = Tensor::ones(
                    case["ones"].as_u64().expect("a count") as usize,
                    dtype(&case["of"]),
                    &device,
                )?;
                match op {
                    "sum" => x.sum_all(),
                    "prod" => x.prod(..),
                    _ => x.cumsum(0)?.at(0, -1),
                }
            };
            let right = |y: &Tensor| y.dtype() == dtype(&case[op]["dtype"]);
            let outcome = match run() {
                Ok(y) if !right(&y) => Err(format!("{}, not {}", y.dtype(), case[op]["dtype"])),
                got => agree(got, &[super::scalar(&case[op]["value"])], 1.0, 0.0),
            };
            findings.add(format!("type of {op} of {}", case["of"]), outcome);
        }
    }
    findings.verdict()
}

/// `matmul.json`: every pair of ranks, and pairs that do not fit.
pub fn matmul(device: impl ToDevice, float: DType) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/matmul.json")));
    let mut findings = Findings::default();
    for case in list(&file["cases"]) {
        let got = tensor(&case["lhs"], float, &device)
            .and_then(|a| a.matmul(&tensor(&case["rhs"], float, &device)?));
        let outcome = match (&case["result"], got) {
            (Value::String(_), Err(_)) => Ok(()),
            (Value::String(_), Ok(y)) => Err(format!("gave {}, torch refuses", y.shape())),
            (want, got) => agree_in(got, &want["shape"], &want["data"], 8.0, 8.0),
        };
        findings
            .add(format!("{} @ {} {float}", case["lhs"]["shape"], case["rhs"]["shape"]), outcome);
    }
    findings.verdict()
}

/// `softmax.json`: softmax, log_softmax and logsumexp of plain, huge, masked and infinite rows.
pub fn softmax(device: impl ToDevice, float: DType) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/softmax.json")));
    let mut findings = Findings::default();
    for case in list(&file["cases"]) {
        let axis = case["axis"].as_i64().expect("an axis") as isize;
        let got = tensor(&case["x"], float, &device).and_then(|x| match name(&case["op"]) {
            "softmax" => x.softmax(axis),
            "log_softmax" => x.log_softmax(axis),
            _ => x.logsumexp(axis as i64),
        });
        findings.add(
            format!("{} {} {float}", case["op"], case["name"]),
            agree(got, &scalars(&case["data"]), 8.0, 4.0),
        );
    }
    findings.verdict()
}

/// One number for all spatial axes, or one each.
fn per_axis(v: &Value, ndim: usize) -> Vec<usize> {
    match v {
        Value::Array(_) => sizes(v),
        v => vec![v.as_u64().expect("a size") as usize; ndim],
    }
}

/// `conv.json`: convolutions with strides, padding, dilation and groups, and pooling; bias is a
/// layer's business.
pub fn conv(device: impl ToDevice, float: DType) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/conv.json")));
    let mut findings = Findings::default();
    for case in list(&file["cases"]) {
        let run = || -> Result<Tensor> {
            let (x, w) =
                (tensor(&case["x"], float, &device)?, tensor(&case["weight"], float, &device)?);
            let of = |key: &str| per_axis(&case[key], w.ndim() - 2);
            let groups = case["groups"].as_u64().expect("a count") as usize;
            let y = x.conv(
                &w,
                &Window {
                    stride: of("stride"),
                    padding: of("padding"),
                    dilation: of("dilation"),
                    groups,
                },
            )?;
            if case["bias"].is_null() {
                return Ok(y);
            }
            let bias = scalars(&case["bias"]);
            y.add(
                &Tensor::from_scalars(&bias, [bias.len()], float, &device)?
                    .reshape(bias_shape(&y))?,
            )
        };
        findings.add(
            format!("{} {}", case["op"], case["x"]["shape"]),
            agree_in(run(), &case["result"]["shape"], &case["result"]["data"], 16.0, 16.0),
        );
    }
    for case in list(&file["pool"]) {
        let ndim = if name(&case["op"]).ends_with("1d") { 1 } else { 2 };
        let pool = name(&case["op"]).trim_end_matches(['1', '2', 'd']).to_string();
        if !["max_pool", "avg_pool"].contains(&pool.as_str())
            || case["count_include_pad"] == false
            || case["ceil_mode"] == true
        {
            continue;
        }
        let run = || -> Result<Tensor> {
            let (x, of) =
                (tensor(&case["x"], float, &device)?, |key: &str| per_axis(&case[key], ndim));
            let dilation = if case["dilation"].is_null() { vec![1; ndim] } else { of("dilation") };
            let window =
                Window { stride: of("stride"), padding: of("padding"), dilation, groups: 1 };
            if pool == "max_pool" {
                x.max_pool(&of("kernel"), &window)
            } else {
                x.avg_pool(&of("kernel"), &window)
            }
        };
        findings.add(
            format!("{} {}", case["op"], case["x"]["shape"]),
            agree_in(run(), &case["result"]["shape"], &case["result"]["data"], 8.0, 2.0),
        );
    }
    findings.verdict()
}

/// (1, C, 1, ..): a bias per channel.
fn bias_shape(y: &Tensor) -> Vec<usize> {
    let layout: &Layout = y.layout();
    (0..y.ndim()).map(|a| if a == 1 { layout.shape()[1] } else { 1 }).collect()
}
