//! Functions of one, two and three operands, promotion and casts.

use super::{Findings, Value, Verdict, agree, dtype, list, name, parse, scalar, scalars, tensor};
use teeny_core::{DType, DeviceRef, Error, Result, Scalar, Tensor, ToDevice};

/// The method of this library for PyTorch's `op`, if it has one.
fn function(op: &str, x: &Tensor) -> Option<Result<Tensor>> {
    Some(match op {
        "neg" => x.neg(),
        "abs" => x.abs(),
        "sign" => x.sign(),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "expm1" => x.expm1(),
        "log" => x.log(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "log1p" => x.log1p(),
        "sqrt" => x.sqrt(),
        "rsqrt" => x.rsqrt(),
        "recip" => x.recip(),
        "square" => x.square(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "sigmoid" => x.sigmoid(),
        "erf" => x.erf(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round" => x.round(),
        "trunc" => x.trunc(),
        "relu" => x.relu(),
        "relu6" => x.relu6(),
        "leaky_relu" => x.leaky_relu(0.01),
        "elu" => x.elu(1.0),
        "selu" => x.selu(),
        "gelu" => x.gelu(),
        "gelu_tanh" => x.gelu_tanh(),
        "silu" => x.silu(),
        "softplus" => x.softplus(),
        "mish" => x.mish(),
        "hardswish" => x.hardswish(),
        "hardsigmoid" => x.hardsigmoid(),
        "hardtanh" => x.hardtanh(),
        "softsign" => x.softsign(),
        "logsigmoid" => x.log_sigmoid(),
        "isnan" => x.is_nan(),
        "isinf" => x.is_inf(),
        "isfinite" => x.is_finite(),
        "logical_not" => x.cast(DType::Bool).and_then(|x| x.not()),
        _ => return None,
    })
}

/// How many last places a function may be off, and the size of the terms that may cancel in it.
fn bound(op: &str) -> (f64, f64) {
    match op {
        "neg" | "abs" | "sign" | "floor" | "ceil" | "round" | "trunc" | "relu" | "relu6"
        | "hardtanh" => (0.0, 0.0),
        "gelu" | "gelu_tanh" | "hardswish" => (4.0, 8.0),
        "acos" | "hardsigmoid" => (4.0, 1.0),
        // exp(-x) overflows where the result is subnormal or nearly so: there they give 0.
        "silu" | "mish" => (8.0, 1e-30),
        _ => (8.0, 0.0),
    }
}

/// `unary.json`: functions and predicates at points that every float type holds, and for wide types
/// at large, small and subnormal ones.
pub fn unary(device: impl ToDevice, float: DType) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/unary.json")));
    let mut findings = Findings::default();
    let wide = matches!(float, DType::F32 | DType::F64);
    for case in list(&file["cases"]).iter().chain(list(&file["predicates"])) {
        for points in ["points", "wide"] {
            if case[points].is_null() || points == "wide" && !wide {
                continue;
            }
            let op = name(&case["op"]);
            // The file's answers are for numbers that f32 can hold.
            let x: Vec<Scalar> =
                scalars(&file[points]).into_iter().map(|v| v.cast(DType::F32)).collect();
            let mut want = scalars(&case[points]);
            if op == "sign" {
                // NOTE: torch's sign of NaN is 0; here NaN stays NaN, as in NumPy.
                want = want
                    .into_iter()
                    .zip(&x)
                    .map(|(w, x)| if x.to_f64().is_nan() { *x } else { w })
                    .collect();
            }
            let Some(got) = Tensor::from_scalars(&x, x.len(), float, &device)
                .map(|x| function(op, &x))
                .transpose()
            else {
                continue;
            };
            let (places, floor) = bound(op);
            findings.add(
                format!("{op} {float} {points}"),
                agree(got.and_then(|r| r), &want, places, floor),
            );
        }
    }
    findings.verdict()
}

fn operation(op: &str, a: &Tensor, b: &Tensor) -> Option<Result<Tensor>> {
    Some(match op {
        "add" => a.add(b),
        "sub" => a.sub(b),
        "mul" => a.mul(b),
        "div" => a.div(b),
        "pow" => a.pow(b),
        "maximum" => a.maximum(b),
        "minimum" => a.minimum(b),
        "remainder" => a.rem(b),
        "floor_divide" => a.floor_div(b),
        "eq" => a.eq(b),
        "ne" => a.ne(b),
        "lt" => a.lt(b),
        "le" => a.le(b),
        "gt" => a.gt(b),
        "ge" => a.ge(b),
        "bitwise_and" => a.and(b),
        "bitwise_or" => a.or(b),
        "bitwise_xor" => a.xor(b),
        "logical_and" => a.cast(DType::Bool).and_then(|a| a.and(&b.cast(DType::Bool)?)),
        "logical_or" => a.cast(DType::Bool).and_then(|a| a.or(&b.cast(DType::Bool)?)),
        "logical_xor" => a.cast(DType::Bool).and_then(|a| a.xor(&b.cast(DType::Bool)?)),
        "shl_0_to_6" => a.shl(b),
        "shr_0_to_6" => a.shr(b),
        "pow_0_to_3" => a.pow(b),
        _ => return None,
    })
}

/// `binary.json`: every pair of special numbers, integers that overflow, fifty pairs of shapes, and
/// functions of three operands.
pub fn binary(device: impl ToDevice, float: DType) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/binary.json")));
    let mut findings = Findings::default();
    let special = scalars(&file["special"]);
    let column =
        |n: usize, values: &[Scalar], dtype| Tensor::from_scalars(values, [n, 1], dtype, &device);
    for case in list(&file["grid"]).iter().chain(list(&file["compare"])) {
        let op = name(&case["op"]);
        let run = || -> Result<Option<Tensor>> {
            operation(
                op,
                &column(14, &special, float)?,
                &Tensor::from_scalars(&special, [14], float, &device)?,
            )
            .transpose()
        };
        if let Some(got) = run().transpose() {
            let places = if op == "pow" { 4.0 } else { 0.0 };
            findings.add(
                format!("{op} {float} grid"),
                agree(got, &scalars(&case["data"]), places, 0.0),
            );
        }
    }
    for case in list(&file["integers"]) {
        integers(case, &device, &mut findings);
    }
    for case in list(&file["broadcast"]) {
        let got = tensor(&case["lhs"], float, &device).and_then(|a| {
            operation(name(&case["op"]), &a, &tensor(&case["rhs"], float, &device)?).transpose()
        });
        let got = got.and_then(|r| r.ok_or_else(|| Error::internal("an unknown operation")));
        let outcome = match (&case["result"], got) {
            (Value::String(_), Err(_)) => Ok(()),
            (Value::String(_), Ok(x)) => Err(format!("gave {}, torch refuses", x.shape())),
            // The file was computed in f32: its operands and results are rounded to it.
            (want, got) => super::agree_in(
                got,
                &want["shape"],
                &want["data"],
                if float == DType::F64 { 2f64.powi(31) } else { 2.0 },
                1.0,
            ),
        };
        findings.add(
            format!("{} {} {}", case["op"], case["lhs"]["shape"], case["rhs"]["shape"]),
            outcome,
        );
    }
    for case in list(&file["ternary"]) {
        let run = || -> Result<Tensor> {
            let make = |key: &str, shape: &[usize]| {
                Tensor::from_scalars(&scalars(&case[key]), shape, float, &device)
            };
            match name(&case["op"]) {
                "where" => Tensor::from_scalars(
                    &scalars(&case["condition"]),
                    [2, 1],
                    DType::Bool,
                    &device,
                )?
                .where_cond(&make("lhs", &[2, 3])?, &make("rhs", &[3])?),
                "lerp" => {
                    make("lhs", &[2, 3])?.lerp(&make("rhs", &[2, 3])?, scalar(&case["weight"]))
                }
                _ => Tensor::from_scalars(&special, [14], float, &device)?
                    .clamp(scalar(&case["min"]), scalar(&case["max"])),
            }
        };
        // NOTE: torch clamps to `max` where min > max; here such bounds are an error, because they
        // are always a mistake.
        let reversed = case["min"].as_f64() > case["max"].as_f64() && !case["min"].is_null();
        let want = if case["data"].is_null() { &case["points"] } else { &case["data"] };
        let outcome = if reversed {
            run().err().map(|_| ()).ok_or_else(|| "accepted min > max".to_string())
        } else {
            agree(run(), &scalars(want), if float == DType::F64 { 2f64.powi(31) } else { 4.0 }, 1.0)
        };
        findings.add(format!("{} {float}", case["op"]), outcome);
    }
    findings.verdict()
}

fn integers(case: &Value, device: &DeviceRef, findings: &mut Findings) {
    let (values, dtype) = (scalars(&case["values"]), dtype(&case["dtype"]));
    let n = values.len();
    for (op, want) in case["ops"].as_object().expect("operations") {
        let count = list(want).len() / n;
        let right: Vec<Scalar> = if op.contains("_to_") {
            (0..count).map(Scalar::from).collect()
        } else {
            values.clone()
        };
        let run = || -> Result<Option<Tensor>> {
            operation(
                op,
                &Tensor::from_scalars(&values, [n, 1], dtype, device)?,
                &Tensor::from_scalars(&right, [count], dtype, device)?,
            )
            .transpose()
        };
        let Some(got) = run().transpose() else { continue };
        // NOTE: torch refuses integer division by 0 (null in the file); here it gives 0, as no
        // device can stop halfway.
        let want: Vec<Scalar> = list(want)
            .iter()
            .map(|v| if v.is_null() { Scalar::Int(0) } else { scalar(v) })
            .collect();
        findings.add(format!("{op} {dtype}"), agree(got, &want, 0.0, 0.0));
    }
}

/// `promotion.json`: the type of `a + b` for every pair of types, of tensor and number, and of true
/// division.
///
/// Where PyTorch refuses a pair (unsigned types wider than 8 bits), the smallest type that holds
/// both is expected; a tensor without axes promotes like any other, so that a type never depends on
/// a shape: the file's `tensor_zero_dim` is not followed.
pub fn promotion() -> Verdict {
    let file = parse(include_str!("../../golden/promotion.json"));
    let mut findings = Findings::default();
    let equal = |got: DType, want: &Value| {
        if want == "error" || got == dtype(want) {
            Ok(())
        } else {
            Err(format!("{got}, not {want}"))
        }
    };
    for a in DType::ALL {
        for b in DType::ALL {
            findings.add(
                format!("{a} + {b}"),
                equal(a.promote(b), &file["tensor_tensor"][a.name()][b.name()]),
            );
        }
        for (kind, number) in [("bool", DType::Bool), ("int", DType::I64), ("float", DType::F64)] {
            findings.add(
                format!("{a} + a {kind}"),
                equal(a.promote_scalar(number), &file["tensor_python_scalar"][a.name()][kind]),
            );
        }
        findings.add(format!("{a} / {a}"), equal(a.to_float(), &file["true_division"][a.name()]));
    }
    findings.verdict()
}

/// `cast.json`: every type to every type, with fractions, NaN, infinities and what does not fit.
pub fn cast(device: impl ToDevice) -> Verdict {
    let (device, file) = (device.to_device(), parse(include_str!("../../golden/cast.json")));
    let mut findings = Findings::default();
    for case in list(&file["cases"]) {
        let (from, values) = (dtype(&case["from"]), scalars(&case["values"]));
        for to in DType::ALL {
            let want: Vec<Scalar> = list(&case["to"][to.name()])
                .iter()
                .zip(&values)
                // What C leaves undefined saturates here, NaN becomes 0: `Scalar::cast`.
                .map(|(v, &x)| if v.is_null() { x.cast(from).cast(to) } else { scalar(v) })
                .collect();
            let got = Tensor::from_scalars(&values, [values.len()], from, &device)
                .and_then(|x| x.cast(to));
            findings.add(format!("{from} to {to}"), agree(got, &want, 0.0, 0.0));
        }
    }
    findings.verdict()
}
