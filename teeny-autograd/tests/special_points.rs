//! Values, first and second derivatives at kinks, zeros, ends of domains, infinities, NaN, huge and
//! tiny magnitudes, ties and empties against PyTorch's (`golden/special.json`): in f64 and f32, on
//! the naive device and the CPU, in reverse and in forward mode.
//!
//! [`ON_PURPOSE`] is the list of what differs, with the reasons; `SPECIAL_POINTS.md` is written
//! from it.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use teeny_autograd::{allow_unused, jvp, vjp};
use teeny_core::{
    DType, DeviceRef, Extremum, Reference, Result, Scalar, SortOrder, Tensor, ToDevice, Window,
};
use teeny_cpu::Cpu;

const HEAD: &str = "\
# Special points

At kinks, zeros, ends of domains, infinities, NaN, huge and tiny magnitudes and ties, values and
derivatives of first and second order agree with PyTorch 2.15, in reverse and in forward mode,
except for the differences below. `src/derivative.rs` has the conventions at kinks,
`tests/golden/special.json` the operands and PyTorch's results. This file is written by
`TEENY_BLESS=1 cargo test --release -p teeny-autograd --test all special_points`; an ordinary run
compares.

| functions | of | what differs |
|---|---|---|
";

const TAIL: &str = "
For a singular matrix, `inv` and `solve` are errors, and so is the backward pass of `slogdet`, as in
PyTorch.
";

/// The compared quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Value,
    First,
    Second,
    /// The first derivative in forward mode.
    Forward,
}
use Part::{First, Forward, Second, Value as Y};

/// One place where a result may differ: functions, parts, whether that is so for these operands,
/// and why.
struct Difference {
    ops: &'static [&'static str],
    parts: &'static [Part],
    at: fn(&[f64]) -> bool,
    why: &'static str,
}

/// Zero, or so small that its square underflows.
fn is_tiny(x: f64) -> bool {
    x.abs() < 1e-37
}

/// So large that its square overflows, or infinite.
fn is_huge(x: f64) -> bool {
    x.abs() >= 1e20
}

/// A whole number that is not positive, or a negative number that is nearly zero: a pole of the
/// gamma function, and where its slope overflows.
fn is_pole(x: f64) -> bool {
    x <= 0.0 && (x == x.round() || is_tiny(x))
}

fn any(x: &[f64], is: fn(f64) -> bool) -> bool {
    x.iter().any(|x| is(*x))
}

const ON_PURPOSE: &[Difference] = &[
    Difference {
        ops: &["sign"],
        parts: &[Y],
        at: |x| x[0].is_nan(),
        why: "The sign of NaN is NaN; PyTorch's is 0.",
    },
    Difference {
        ops: &["abs", "norm_1.0"],
        parts: &[First, Forward],
        at: |x| any(x, f64::is_nan),
        why: "NaN has the slope NaN; PyTorch's sign of it, 0, hides it.",
    },
    Difference {
        ops: &["relu6", "hardtanh", "hardsigmoid", "hardswish"],
        parts: &[First, Forward],
        at: |x| x[0].is_nan(),
        why: "The slope at NaN is that inside the bounds, as for relu; PyTorch's is 0, 1 or NaN, \
              depending on type and instruction set.",
    },
    Difference {
        ops: &["hardshrink", "softshrink"],
        parts: &[First, Forward],
        at: |x| x[0].is_nan(),
        why: "The slope at NaN is that outside of the bounds; PyTorch's is 0 or 1, depending on \
              type.",
    },
    Difference {
        ops: &["elu", "selu", "celu"],
        parts: &[First, Second, Forward],
        at: |x| x[0].is_nan(),
        why: "NaN has the slope NaN; PyTorch takes it for a positive number.",
    },
    Difference {
        ops: &["elu", "selu", "celu"],
        parts: &[Second],
        at: |x| x[0] == 0.0,
        why: "The first and second derivative at 0 come from the exponential; PyTorch's second \
              one is 0.",
    },
    Difference {
        ops: &["hardsigmoid"],
        parts: &[First, Forward],
        at: |x| x[0].abs() < 3.0,
        why: "1/6 in f64 is 1/6; PyTorch rounds it to f32.",
    },
    Difference {
        ops: &["softplus"],
        parts: &[Second],
        at: |x| x[0] == 20.0,
        why: "softplus is a curve everywhere; PyTorch's is a straight line from 20 on.",
    },
    Difference {
        ops: &["erf", "erfc", "asinh", "atanh", "gelu", "mish"],
        parts: &[Second],
        at: |x| x[0].abs() > 80.0,
        why: "0, the limit, where PyTorch multiplies it with an overflow and gives NaN.",
    },
    Difference {
        ops: &["gelu"],
        parts: &[Y],
        at: |x| x[0] == -3.0 || x[0] == f64::INFINITY,
        why: "PyTorch's f32 gelu of -3 is 1e-4 off, and gelu of infinity is NaN.",
    },
    Difference {
        ops: &["gelu", "hardswish"],
        parts: &[Y],
        at: |x| x[0] >= 3e38 && x[0].is_finite(),
        why: "Finite as the argument is; PyTorch's overflows on the way.",
    },
    Difference {
        ops: &["pow_half"],
        parts: &[Y, First, Forward],
        at: |x| x[0] == f64::NEG_INFINITY,
        why: "A power of -inf is inf by IEEE 754; PyTorch takes a square root.",
    },
    Difference {
        ops: &["pow_half"],
        parts: &[First, Forward],
        at: |x| x[0] == 0.0,
        why: "A power of -0 has the slope inf; a square root has -inf.",
    },
    Difference {
        ops: &["pow"],
        parts: &[Second],
        at: |x| is_tiny(x[0]) || x[0] == f64::INFINITY,
        why: "The second derivative of a power of 0 is finite where the limit is; \
              PyTorch's is NaN.",
    },
    Difference {
        ops: &["sinh", "cosh"],
        parts: &[Y, First, Second, Forward],
        at: |x| x[0].abs() == 710.4,
        why: "Finite up to 710.47; PyTorch's f64 is infinite there, depending on the place in a \
              vector.",
    },
    Difference {
        ops: &["sinc"],
        parts: &[Y],
        at: |x| x[0].abs() >= 3.0,
        why: "The sine is of an angle within one turn; PyTorch's of a product that is rounded.",
    },
    Difference {
        ops: &["sinc"],
        parts: &[First, Second, Forward],
        at: |x| x[0].abs() <= 1e-7 || is_huge(x[0]),
        why: "Near 0 the derivatives use the series, and far away they are 0; PyTorch's \
              cancel, are 0 or NaN.",
    },
    Difference {
        ops: &["tanhshrink"],
        parts: &[Y],
        at: |x| x[0].abs() <= 1e-7,
        why: "A third of the cube; PyTorch's difference is 0.",
    },
    Difference {
        ops: &["digamma", "lgamma"],
        parts: &[First, Second, Forward],
        at: |x| is_pole(x[0]) || x[0] == f64::INFINITY,
        why: "At a pole, and next to 0, derivatives are NaN or infinite; PyTorch's depend on the \
              rounding of π. At infinity they are 0.",
    },
    Difference {
        ops: &["logit"],
        parts: &[Second],
        at: |x| x[0] < 0.0 && x[0] > -1e-10,
        why: "Below 0, the slope is NaN everywhere, and does not change; PyTorch's second \
              derivative is NaN, too.",
    },
    Difference {
        ops: &["rem", "fmod"],
        parts: &[Y, First, Forward],
        at: |x| is_tiny(x[1]) || x[0].abs() >= 3e38,
        why: "The remainder is exact where the quotient overflows, and where it is NaN its \
              slopes are NaN; PyTorch's remainder is NaN, and its slope the quotient.",
    },
    Difference {
        ops: &["atan2"],
        parts: &[First, Second, Forward],
        at: |x| x.iter().all(|x| is_tiny(*x)) || any(x, is_huge),
        why: "Next to the origin the slope overflows to infinity, and far from it it vanishes; \
              PyTorch has 0 where squares underflow and NaN where they overflow.",
    },
    Difference {
        ops: &["length"],
        parts: &[First, Second, Forward],
        at: |x| any(x, is_tiny) || any(x, is_huge),
        why: "The sides are scaled before they are squared; PyTorch's derivatives overflow or are \
              NaN.",
    },
    Difference {
        ops: &["hypot"],
        parts: &[Forward],
        at: |x| any(x, is_huge),
        why: "A root of squares, whose overflow forward mode multiplies with 0; `Tensor::hypot` \
              has none.",
    },
    Difference {
        ops: &["copysign"],
        parts: &[First, Second, Forward],
        at: |x| !x[0].is_finite() || is_tiny(x[0]) || is_huge(x[0]),
        why: "1 or -1 at infinities, and 0 to second order; PyTorch divides by the first operand.",
    },
    Difference {
        ops: &["logaddexp", "logaddexp2"],
        parts: &[First, Second, Forward],
        at: |x| any(x, is_huge),
        why: "The larger of two numbers that are far apart has the slope 1, and no second \
              derivative; PyTorch's are NaN, as are all of two infinities.",
    },
    Difference {
        ops: &["logaddexp2"],
        parts: &[Y],
        at: |x| x == [-1.0, -1.0],
        why: "Exactly 0; PyTorch's sum is rounded.",
    },
    Difference {
        ops: &["xlogy"],
        parts: &[First, Second, Forward],
        at: |x| x[0] == 0.0,
        why: "0 where the first operand is 0, and flat if the logarithm is not finite; PyTorch's \
              derivatives there come from the product, or are NaN.",
    },
    Difference {
        ops: &["xlogy"],
        parts: &[Forward],
        at: |x| is_tiny(x[1]),
        why: "Forward mode divides by the second operand before it multiplies with the first.",
    },
    Difference {
        ops: &["prod", "cumprod"],
        parts: &[First, Second],
        at: |x| any(x, |x| !x.is_finite()),
        why: "The gradient is the product of the other elements; PyTorch divides by the \
              element, and inf / inf is NaN.",
    },
    Difference {
        ops: &["prod", "cumprod"],
        parts: &[Second],
        at: |x| any(x, |x| x == 1e-30),
        why: "The same for elements whose product underflows: PyTorch's second derivative \
              is 0.",
    },
    Difference {
        ops: &["var", "var_0"],
        parts: &[First],
        at: |x| any(x, f64::is_infinite),
        why: "The variance beside an infinity is NaN, and so are all of its slopes.",
    },
    Difference {
        ops: &["norm_0.5", "norm_1.5", "norm_2.0", "norm_-1.0"],
        parts: &[Second],
        at: |x| any(x, |x| x == 0.0 || x.is_infinite() || x == 1e-30),
        why: "A norm counts as flat at its zeros in second derivatives too; PyTorch's are \
              NaN there.",
    },
    Difference {
        ops: &["norm_1.5", "norm_2.0", "norm_3.0", "norm_4.0"],
        parts: &[Y, First, Second, Forward],
        at: |x| any(x, |x| x == 1e-30),
        why: "Elements are scaled, so that no power of them underflows; PyTorch's norm is 0.",
    },
    Difference {
        ops: &["norm_-1.0"],
        parts: &[First],
        at: |x| any(x, f64::is_infinite),
        why: "1 / inf is 0, with the slope 0; PyTorch's is NaN.",
    },
    Difference {
        ops: &["norm_inf", "norm_-inf"],
        parts: &[First, Forward],
        at: |x| any(x, f64::is_nan),
        why: "The slope of an extremum that is NaN is NaN for all that it was chosen from.",
    },
    Difference {
        ops: &["det"],
        parts: &[Second],
        at: |x| x.iter().all(|x| *x == 0.0),
        why: "The determinant is a polynomial, so its second derivative at zeros is finite; \
              PyTorch's is NaN.",
    },
    Difference {
        ops: &["cdist_0.0", "cdist_inf"],
        parts: &[Y],
        at: |x| any(x, f64::is_nan),
        why: "NaN differs from every number, and the largest difference to it is NaN; \
              PyTorch says the opposite of both.",
    },
    Difference {
        ops: &["cdist_inf"],
        parts: &[First],
        at: |x| any(x, f64::is_infinite),
        why: "The slope of the largest difference is 1 or -1 if it is infinite too; \
              PyTorch's is NaN.",
    },
];

fn number(v: &Value) -> f64 {
    match v {
        Value::String(s) => s.parse().expect("nan or inf"),
        other => other.as_f64().expect("a number"),
    }
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(number).collect()
}

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/special.json")).expect("JSON")
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(|s| s.to_f64()).collect()
}

fn dtype(case: &Value) -> DType {
    if case["dtype"] == "f32" { DType::F32 } else { DType::F64 }
}

type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// The differences from the golden file, and the intended differences that occurred.
#[derive(Default)]
struct Findings {
    texts: RefCell<Vec<String>>,
    met: RefCell<BTreeSet<usize>>,
}

impl Findings {
    /// Compares one number.
    fn compare(&self, op: &str, part: Part, dtype: DType, x: &[f64], got: f64, wanted: f64) {
        // Values have as many digits as they have, tiny ones too; terms of a derivative may cancel.
        let (relative, absolute): (f64, f64) = match (dtype, part) {
            (DType::F64, Y) => (1e-9, 1e-320),
            (DType::F64, _) => (1e-9, 1e-12),
            (_, Y) => (2e-5, 1e-43),
            (_, _) => (2e-5, 1e-6),
        };
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
        self.say(format!("{op} {part:?} {dtype} at {x:?}: {got}, PyTorch {wanted}"));
    }

    fn say(&self, text: String) {
        self.texts.borrow_mut().push(text);
    }
}

/// The value of `f`, the gradient of the sum of `y w`, and the gradient of the sum of all
/// gradients, times `v`.
#[allow(clippy::type_complexity)]
fn derivatives(
    f: &Function,
    x: &Vec<Tensor>,
    weighted: bool,
) -> Result<(Tensor, Vec<Tensor>, Vec<Tensor>)> {
    let weight = |t: &Tensor| -> Result<Tensor> {
        let w: Vec<f64> = (1..=t.numel()).map(|i| if weighted { i as f64 } else { 1.0 }).collect();
        Tensor::from_vec(w, t.shape(), &x[0])?.cast(t.dtype())
    };
    let y = f(x)?;
    let (w, v) = (weight(&y)?, x.iter().map(weight).collect::<Result<Vec<_>>>()?);
    let (_, first) = vjp(|x: &Vec<Tensor>| f(x), x, &w)?;
    let total = |x: &Vec<Tensor>| -> Result<Tensor> {
        let (_, first) = vjp(|x: &Vec<Tensor>| f(x), x, &w)?;
        let mut sum = Tensor::zeros((), x[0].dtype(), &x[0])?;
        for (g, v) in first.iter().zip(&v) {
            sum = sum.add(&g.mul(v)?.sum_all()?)?;
        }
        Ok(sum)
    };
    let (_, second) = vjp(total, x, &Tensor::ones((), x[0].dtype(), &x[0])?)?;
    Ok((y, first, second))
}

fn elementwise_function(op: &str) -> Function {
    macro_rules! named {
        ($($name:ident)*) => { match op { $(stringify!($name) => return Box::new(|x| x[0].$name()),)* _ => {} } };
    }
    named! {
        abs sign recip sqrt rsqrt square exp exp2 expm1 log log2 log1p sin cos tan asin acos atan sinh cosh tanh erf floor round sigmoid relu relu6 selu
        gelu gelu_tanh silu softplus log_sigmoid mish softsign hardsigmoid hardswish hardtanh log10 logit sinc asinh acosh atanh erfc erfinv lgamma
        digamma frac tanhshrink
    }
    if let Some(weight) = op.strip_prefix("lerp_") {
        let weight: f64 = weight.parse().expect("a weight");
        return Box::new(move |x| x[0].lerp(&x[1], weight));
    }
    match op {
        "leaky_relu" => Box::new(|x| x[0].leaky_relu(0.5)),
        "elu" => Box::new(|x| x[0].elu(0.5)),
        "celu" => Box::new(|x| x[0].celu(0.5)),
        "hardshrink" => Box::new(|x| x[0].hardshrink(0.5)),
        "softshrink" => Box::new(|x| x[0].softshrink(0.5)),
        "clamp" => Box::new(|x| x[0].clamp(-1.0, 3.0)),
        "max_1" => Box::new(|x| x[0].maximum(1.0)),
        "where_0" => Box::new(|x| x[0].gt(0.0)?.where_cond(&x[0], &x[0].mul(0.5)?)),
        "pow_0" => Box::new(|x| x[0].pow(0.0)),
        "pow_1" => Box::new(|x| x[0].pow(1.0)),
        "pow_2" => Box::new(|x| x[0].pow(2.0)),
        "pow_3" => Box::new(|x| x[0].pow(3.0)),
        "pow_half" => Box::new(|x| x[0].pow(0.5)),
        "pow_less" => Box::new(|x| x[0].pow(-1.0)),
        "add" => Box::new(|x| x[0].add(&x[1])),
        "mul" => Box::new(|x| x[0].mul(&x[1])),
        "div" => Box::new(|x| x[0].div(&x[1])),
        "pow" => Box::new(|x| x[0].pow(&x[1])),
        "maximum" => Box::new(|x| x[0].maximum(&x[1])),
        "minimum" => Box::new(|x| x[0].minimum(&x[1])),
        "rem" => Box::new(|x| x[0].rem(&x[1])),
        "hypot" => Box::new(|x| x[0].square()?.add(&x[1].square()?)?.sqrt()),
        "length" => Box::new(|x| x[0].hypot(&x[1])),
        "atan2" => Box::new(|x| x[0].atan2(&x[1])),
        "logaddexp" => Box::new(|x| x[0].logaddexp(&x[1])),
        "logaddexp2" => Box::new(|x| x[0].logaddexp2(&x[1])),
        "xlogy" => Box::new(|x| x[0].xlogy(&x[1])),
        "fmod" => Box::new(|x| x[0].fmod(&x[1])),
        "copysign" => Box::new(|x| x[0].copysign(&x[1])),
        "lerp" => Box::new(|x| x[0].lerp(&x[1], &x[2])),
        other => panic!("no function {other}"),
    }
}

fn reduction(op: &str) -> Function {
    if let Some(p) = op.strip_prefix("norm_") {
        let p: f64 = p.parse().expect("a norm");
        return Box::new(move |x| x[0].vector_norm(p, 0));
    }
    if let Some(p) = op.strip_prefix("cdist_") {
        let p: f64 = p.parse().expect("a norm");
        return Box::new(move |x| {
            let others = Tensor::from_vec(vec![0.0f64, 1.0], (2, 1), &x[0])?.cast(x[0].dtype())?;
            x[0].reshape((x[0].numel(), 1))?.cdist(&others, p)
        });
    }
    if let Some(p) = op.strip_prefix("lp_pool_") {
        let p: f64 = p.parse().expect("a norm");
        return Box::new(move |x| {
            x[0].reshape((1, 1, x[0].numel()))?.lp_pool(p, &[2], &Window::new(1).stride(2))
        });
    }
    match op {
        "sum" => Box::new(|x| x[0].sum(0)),
        "mean" => Box::new(|x| x[0].mean(0)),
        "prod" => Box::new(|x| x[0].prod(0)),
        "max" => Box::new(|x| x[0].max(0)),
        "min" => Box::new(|x| x[0].min(0)),
        "var" => Box::new(|x| x[0].var(0, 1)),
        "var_0" => Box::new(|x| x[0].var(0, 0)),
        "std" => Box::new(|x| x[0].std(0, 1)),
        "std_0" => Box::new(|x| x[0].std(0, 0)),
        "logsumexp" => Box::new(|x| x[0].logsumexp(0)),
        "cumsum" => Box::new(|x| x[0].cumsum(0)),
        "cumprod" => Box::new(|x| x[0].cumprod(0)),
        "cummax" => Box::new(|x| Ok(x[0].cummax(0)?.0)),
        "cummin" => Box::new(|x| Ok(x[0].cummin(0)?.0)),
        "max_pool_2" => {
            Box::new(|x| x[0].reshape((1, 1, x[0].numel()))?.max_pool(&[2], &Window::new(1)))
        }
        "softmax" => Box::new(|x| x[0].softmax(0)),
        "log_softmax" => Box::new(|x| x[0].log_softmax(0)),
        "sort" => Box::new(|x| Ok(x[0].sort(0, SortOrder::Ascending)?.0)),
        "top_2" => Box::new(|x| Ok(x[0].topk(x[0].numel().min(2), 0, Extremum::Largest)?.0)),
        "det" => Box::new(|x| x[0].det()),
        "slogdet" => Box::new(|x| Ok(x[0].slogdet()?.1)),
        "inv" => Box::new(|x| x[0].inv()),
        other => panic!("no function {other}"),
    }
}

fn operands(at: &Value, kind: &str, dtype: DType) -> Vec<Vec<f64>> {
    let list = |name: &str| numbers(&at[name]);
    match kind {
        "points" => {
            let mut points = list("points");
            if dtype == DType::F64 {
                points.extend(list("wide"));
            }
            vec![points]
        }
        "pairs" => {
            let mut pairs = list("pairs");
            if dtype == DType::F64 {
                pairs.extend(list("wide_pairs"));
            }
            let all = |pick: fn(f64, f64) -> f64| {
                pairs.iter().flat_map(|&a| pairs.iter().map(move |&b| pick(a, b))).collect()
            };
            vec![all(|a, _| a), all(|_, b| b)]
        }
        _ => {
            let rows: Vec<Vec<f64>> =
                at["triples"].as_array().expect("a list").iter().map(numbers).collect();
            (0..3).map(|i| rows.iter().map(|row| row[i]).collect()).collect()
        }
    }
}

fn elementwise(device: &DeviceRef, findings: &Findings) {
    let golden = golden();
    for case in golden["elementwise"].as_array().expect("a list") {
        let (op, dtype) = (case["op"].as_str().expect("a name"), dtype(case));
        let at = operands(&golden["at"], case["x"].as_str().expect("a name"), dtype);
        let x: Vec<Tensor> = at
            .iter()
            .map(|x| Tensor::from_vec(x.clone(), x.len(), device).unwrap().cast(dtype).unwrap())
            .collect();
        let f = elementwise_function(op);
        let (y, first, second) =
            allow_unused(|| derivatives(&f, &x, false)).unwrap_or_else(|e| panic!("{op}: {e}"));
        let place = |i: usize| at.iter().map(|x| x[i]).collect::<Vec<_>>();
        let check = |part: Part, got: &Tensor, wanted: &Value| {
            let (got, wanted) = (values(got), numbers(wanted));
            assert_eq!(got.len(), wanted.len(), "{op}");
            (0..got.len())
                .for_each(|i| findings.compare(op, part, dtype, &place(i), got[i], wanted[i]));
        };
        check(Y, &y, &case["y"]);
        for (i, first) in first.iter().enumerate() {
            check(First, first, &case["d"][i]);
            if case["dd"].is_array() {
                check(Second, &second[i], &case["dd"][i]);
            }
            let alone = |xi: &Tensor| {
                f(&x.iter()
                    .enumerate()
                    .map(|(j, x)| if j == i { xi.clone() } else { x.clone() })
                    .collect::<Vec<_>>())
            };
            let (_, along) = allow_unused(|| jvp(alone, &x[i], &x[i].ones_like().unwrap()))
                .unwrap_or_else(|e| panic!("{op}: {e}"));
            check(Forward, &along, &case["d"][i]);
        }
    }
}

fn reductions(device: &DeviceRef, findings: &Findings) {
    for case in golden()["reductions"].as_array().expect("a list") {
        let (op, dtype) = (case["op"].as_str().expect("a name"), dtype(case));
        let at = numbers(&case["x"]);
        let shape: Vec<usize> = case["n"].as_u64().map_or(vec![at.len()], |n| vec![n as usize; 2]);
        let x = vec![Tensor::from_vec(at.clone(), shape, device).unwrap().cast(dtype).unwrap()];
        let check = |part: Part, got: &Tensor, wanted: &Value| {
            let (got, wanted) = (values(got), numbers(wanted));
            assert_eq!(got.len(), wanted.len(), "{op} {part:?} of {at:?}");
            got.iter()
                .zip(&wanted)
                .for_each(|(got, wanted)| findings.compare(op, part, dtype, &at, *got, *wanted));
        };
        let f = reduction(op);
        if op == "slogdet" {
            let (sign, log) = x[0].slogdet().unwrap();
            check(Y, &Tensor::stack(&[&sign, &log], 0).unwrap(), &case["y"]);
        }
        let result = derivatives(&f, &x, true);
        let (y, first, second) = match result {
            Ok(result) if case["d"].is_array() => result,
            Ok(_) => {
                findings.say(format!("{op} of {at:?} has a derivative, which PyTorch refuses"));
                continue;
            }
            Err(error) if case["d"].is_array() => {
                findings.say(format!("{op} of {at:?}: {error}"));
                continue;
            }
            Err(_) => continue,
        };
        if op != "slogdet" {
            check(Y, &y, &case["y"]);
        }
        check(First, &first[0], &case["d"][0]);
        if case["dd"].is_array() {
            check(Second, &second[0], &case["dd"][0]);
        }
        // One number along one direction: what the gradient says, where it is a number everywhere.
        let wanted = numbers(&case["d"][0]);
        if !wanted.is_empty() && wanted.iter().all(|d| d.is_finite()) {
            let v: Vec<f64> = (0..wanted.len()).map(|i| 0.5 + (i % 3) as f64).collect();
            let direction =
                Tensor::from_vec(v.clone(), x[0].shape(), device).unwrap().cast(dtype).unwrap();
            let (_, along) = jvp(|x: &Tensor| f(std::slice::from_ref(x)), &x[0], &direction)
                .unwrap_or_else(|e| panic!("{op}: {e}"));
            let along: f64 =
                values(&along).iter().enumerate().map(|(i, t)| (i + 1) as f64 * t).sum();
            findings.compare(
                op,
                Forward,
                dtype,
                &at,
                along,
                wanted.iter().zip(&v).map(|(d, v)| d * v).sum(),
            );
        }
    }
}

fn devices() -> [DeviceRef; 2] {
    [Reference::new().to_device(), Cpu::new().to_device()]
}

/// Everything on both devices.
fn findings() -> Findings {
    let findings = Findings::default();
    for device in devices() {
        let before = findings.texts.borrow().len();
        elementwise(&device, &findings);
        reductions(&device, &findings);
        if findings.texts.borrow().len() > before {
            findings.say(format!("on {}", device.info().name));
        }
    }
    findings
}

#[test]
fn functions_at_special_points_are_as_in_pytorch() {
    let findings = findings();
    let texts = findings.texts.borrow();
    assert!(texts.is_empty(), "differences:\n{}", texts.join("\n"));
    let met = findings.met.borrow();
    let unused: Vec<&str> =
        (0..ON_PURPOSE.len()).filter(|i| !met.contains(i)).map(|i| ON_PURPOSE[i].why).collect();
    assert!(unused.is_empty(), "nothing differs here any more: {unused:#?}");
}

/// Compares functions of 16-bit floats at the ends of their types with f32 at the same points. A
/// value equals the rounded f32 value, and a derivative is a number where the rounded f32 one is.
#[test]
fn functions_of_halves_at_the_ends_of_their_types_are_those_of_f32() {
    let golden = golden();
    let mut found = Vec::new();
    for (device, dtype) in devices().iter().flat_map(|d| [(d, DType::F16), (d, DType::BF16)]) {
        let [least, normal, largest] = match dtype {
            DType::F16 => [2f64.powi(-24), 2f64.powi(-14), 65504.0],
            _ => [2f64.powi(-133), 2f64.powi(-126), 255.0 * 2f64.powi(120)],
        };
        let ends: Vec<f64> = [0.0, least, 3.0 * least, normal, 0.5, 1.0, 3.0, largest]
            .into_iter()
            .flat_map(|x| [x, -x])
            .collect();
        let pairs: (Vec<f64>, Vec<f64>) =
            ends.iter().flat_map(|&a| ends.iter().map(move |&b| (a, b))).unzip();
        for case in golden["elementwise"].as_array().expect("a list") {
            if case["dtype"] != "f32" || case["x"] == "triples" {
                continue;
            }
            let op = case["op"].as_str().expect("a name");
            // Several operations, each of which rounds.
            if op == "hypot" {
                continue;
            }
            let at = if case["x"] == "points" {
                vec![ends.clone()]
            } else {
                vec![pairs.0.clone(), pairs.1.clone()]
            };
            let f = elementwise_function(op);
            let run = |dtype: DType| {
                let x =
                    at.iter().map(|x| Tensor::from_vec(x.clone(), x.len(), device)?.cast(dtype));
                let (y, first, _) =
                    allow_unused(|| derivatives(&f, &x.collect::<Result<Vec<_>>>()?, false))?;
                let all: Vec<Tensor> = std::iter::once(y).chain(first).collect();
                all.iter().map(|t| Ok(values(t))).collect::<Result<Vec<_>>>()
            };
            let (half, single) = (run(dtype).unwrap(), run(DType::F32).unwrap());
            let place = if dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
            for (part, (half, single)) in half.iter().zip(&single).enumerate() {
                for (i, (&got, &exact)) in half.iter().zip(single).enumerate() {
                    let want = Scalar::Float(exact).cast(dtype).to_f64();
                    let near = (got - want).abs() <= place * want.abs() + 2.0 * least;
                    let agrees =
                        if part == 0 { near } else { !want.is_finite() || got.is_finite() };
                    if !(agrees || got == want || got.is_nan() && want.is_nan()) {
                        let at: Vec<f64> = at.iter().map(|x| x[i]).collect();
                        found.push(format!("{op} {part} {dtype} at {at:?}: {got}, f32 {exact}"));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
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
    let text = format!("{HEAD}{}{TAIL}", ON_PURPOSE.iter().map(row).collect::<String>());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("SPECIAL_POINTS.md");
    if std::env::var_os("TEENY_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|old| old == text),
        "SPECIAL_POINTS.md is out of date: run with TEENY_BLESS=1"
    );
}
