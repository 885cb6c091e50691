//! Kernels: every function of one, two and three operands, casts, numbers as operands, and programs
//! of several steps and outputs.
//!
//! Bounds: IEEE 754 fixes arithmetic, rounding and square roots; 2 ulp is what a good f32 library
//! reaches for exp, log, sin, cos and tanh; composites may cancel, so theirs are measured against
//! the size of their terms.

use super::memory::SHAPES;
use super::{
    Arrangement, BITS, Case, Domain, EQUAL, Input, Sink, Tolerance, near, numbers, one, pairs, ulps,
};
use std::sync::Arc;
use teeny_core::{DType, FloatFunction, Kernel, Result, Scalar, Tensor, map, map_n};

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;
type Numbered = fn(&Tensor, Scalar) -> Result<Tensor>;

const fn row(
    name: &'static str,
    f: Unary,
    domain: Domain,
    tolerance: Tolerance,
) -> (&'static str, Unary, Domain, Tolerance) {
    (name, f, domain, tolerance)
}

const UNARY: &[(&str, Unary, Domain, Tolerance)] = &[
    row("neg", |x| x.neg(), Domain::Any, BITS),
    row("abs", |x| x.abs(), Domain::Any, BITS),
    row("sign", |x| x.sign(), Domain::Any, EQUAL),
    row("recip", |x| x.recip(), Domain::Any, BITS),
    row("sqrt", |x| x.sqrt(), Domain::Any, BITS),
    row("rsqrt", |x| x.rsqrt(), Domain::Any, ulps(2.0)),
    row("cbrt", |x| x.cbrt(), Domain::Any, ulps(2.0)),
    row("square", |x| x.square(), Domain::Any, BITS),
    row("exp", |x| x.exp(), Domain::Any, ulps(2.0)),
    row("exp2", |x| x.exp2(), Domain::Any, ulps(2.0)),
    row("expm1", |x| x.expm1(), Domain::Any, ulps(4.0)),
    row("log", |x| x.log(), Domain::Any, ulps(2.0)),
    row("log2", |x| x.log2(), Domain::Any, ulps(2.0)),
    row("log10", |x| x.log10(), Domain::Any, ulps(2.0)),
    row("log1p", |x| x.log1p(), Domain::Any, ulps(4.0)),
    row("sin", |x| x.sin(), Domain::Angle, ulps(2.0)),
    row("cos", |x| x.cos(), Domain::Angle, ulps(2.0)),
    row("tan", |x| x.tan(), Domain::Angle, ulps(4.0)),
    row("asin", |x| x.asin(), Domain::Any, near(4.0, 1.0)),
    row("acos", |x| x.acos(), Domain::Any, near(4.0, 1.0)),
    row("atan", |x| x.atan(), Domain::Any, ulps(2.0)),
    row("sinh", |x| x.sinh(), Domain::Any, ulps(8.0)),
    row("cosh", |x| x.cosh(), Domain::Any, ulps(8.0)),
    // The oracle's tanh of f64, the C library's, is itself off by up to 2.
    row("tanh", |x| x.tanh(), Domain::Any, ulps(4.0)),
    row("erf", |x| x.erf(), Domain::Any, ulps(8.0)),
    row("floor", |x| x.floor(), Domain::Any, BITS),
    row("ceil", |x| x.ceil(), Domain::Any, BITS),
    row("round", |x| x.round(), Domain::Any, BITS),
    row("trunc", |x| x.trunc(), Domain::Any, BITS),
    row("not", |x| x.not(), Domain::Any, EQUAL),
    row("is_nan", |x| x.is_nan(), Domain::Any, EQUAL),
    row("is_inf", |x| x.is_inf(), Domain::Any, EQUAL),
    row("is_finite", |x| x.is_finite(), Domain::Any, EQUAL),
    row("sigmoid", |x| x.sigmoid(), Domain::Any, ulps(8.0)),
    row("relu", |x| x.relu(), Domain::Any, EQUAL),
    row("relu6", |x| x.relu6(), Domain::Any, EQUAL),
    row("selu", |x| x.selu(), Domain::Any, ulps(8.0)),
    row("gelu", |x| x.gelu(), Domain::Any, near(8.0, 8.0)),
    row("gelu_tanh", |x| x.gelu_tanh(), Domain::Any, near(8.0, 8.0)),
    row("silu", |x| x.silu(), Domain::Any, ulps(8.0)),
    row("softplus", |x| x.softplus(), Domain::Any, ulps(8.0)),
    row("log_sigmoid", |x| x.log_sigmoid(), Domain::Any, ulps(8.0)),
    row("mish", |x| x.mish(), Domain::Any, ulps(16.0)),
    row("softsign", |x| x.softsign(), Domain::Any, ulps(2.0)),
    row("hardsigmoid", |x| x.hardsigmoid(), Domain::Any, near(2.0, 1.0)),
    row("hardswish", |x| x.hardswish(), Domain::Any, near(4.0, 1.0)),
    row("hardtanh", |x| x.hardtanh(), Domain::Any, EQUAL),
    row(
        "map of four steps",
        |x| map([x], |[x]| (x.tanh() * 2.0 + x).abs().sqrt()),
        Domain::Small,
        near(8.0, 4.0),
    ),
    row(
        "kernel that casts",
        |x| map([x], |[x]| (x.cast(DType::I32) + 1).cast(DType::F32) * 0.5),
        Domain::Small,
        EQUAL,
    ),
];

/// The domain and the tolerance of a function of floats, which its row states.
pub(crate) fn row_of(f: FloatFunction) -> (Domain, Tolerance) {
    let row = UNARY.iter().find(|row| row.0 == f.name());
    let &(_, _, domain, tolerance) =
        row.unwrap_or_else(|| panic!("the suite has no row for {}", f.name()));
    (domain, tolerance)
}

const BINARY: &[(&str, Binary, Domain, Domain, Tolerance)] = &[
    ("add", |a, b| a.add(b), Domain::Any, Domain::Any, BITS),
    ("sub", |a, b| a.sub(b), Domain::Any, Domain::Any, BITS),
    ("mul", |a, b| a.mul(b), Domain::Any, Domain::Any, BITS),
    ("div", |a, b| a.div(b), Domain::Any, Domain::Any, BITS),
    ("pow", |a, b| a.pow(b), Domain::Any, Domain::Small, ulps(4.0)),
    ("pow", |a, b| a.pow(b), Domain::Small, Domain::Any, ulps(4.0)),
    ("rem", |a, b| a.rem(b), Domain::Any, Domain::Any, EQUAL),
    ("floor_div", |a, b| a.floor_div(b), Domain::Any, Domain::Any, EQUAL),
    ("fmod", |a, b| a.fmod(b), Domain::Any, Domain::Any, EQUAL),
    ("div_trunc", |a, b| a.div_trunc(b), Domain::Any, Domain::Any, EQUAL),
    ("heaviside", |a, b| a.heaviside(b), Domain::Any, Domain::Any, EQUAL),
    ("maximum", |a, b| a.maximum(b), Domain::Any, Domain::Any, BITS),
    ("minimum", |a, b| a.minimum(b), Domain::Any, Domain::Any, BITS),
    ("lt", |a, b| a.lt(b), Domain::Close, Domain::Close, EQUAL),
    ("le", |a, b| a.le(b), Domain::Close, Domain::Close, EQUAL),
    ("eq", |a, b| a.eq(b), Domain::Close, Domain::Close, EQUAL),
    ("ne", |a, b| a.ne(b), Domain::Close, Domain::Close, EQUAL),
    ("maximum", |a, b| a.maximum(b), Domain::Close, Domain::Close, BITS),
    ("minimum", |a, b| a.minimum(b), Domain::Close, Domain::Close, BITS),
    ("rem", |a, b| a.rem(b), Domain::Close, Domain::Small, EQUAL),
    ("rem", |a, b| a.rem(b), Domain::Any, Domain::Close, EQUAL),
    ("floor_div", |a, b| a.floor_div(b), Domain::Close, Domain::Close, EQUAL),
    ("xor", |a, b| a.xor(b), Domain::Close, Domain::Close, EQUAL),
    ("where_cond", |a, b| a.gt(0)?.where_cond(a, b), Domain::Close, Domain::Close, BITS),
    (
        "add of a number over its left side",
        |a, _| over(a.add(0.1), || a.abs(), |x| x + 0.1),
        Domain::Any,
        Domain::Any,
        BITS,
    ),
    (
        "add of an integer over its left side",
        |a, _| over(a.add(LARGE), || a.abs(), |x| x + LARGE),
        Domain::Any,
        Domain::Any,
        BITS,
    ),
    (
        "mul by a number over its left side",
        |a, _| over(a.mul(0.1), || a.abs(), |x| x * 0.1),
        Domain::Any,
        Domain::Any,
        BITS,
    ),
    (
        "sub of an integer over its left side",
        |a, _| over(a.sub(LARGE), || a.abs(), |x| x - LARGE),
        Domain::Any,
        Domain::Any,
        BITS,
    ),
    ("floor_div", |a, b| a.floor_div(b), Domain::Close, Domain::Small, EQUAL),
    ("add", |a, b| a.add(b), Domain::Close, Domain::Small, BITS),
    ("mul", |a, b| a.mul(b), Domain::Close, Domain::Small, BITS),
    ("lt", |a, b| a.lt(b), Domain::Any, Domain::Any, EQUAL),
    ("le", |a, b| a.le(b), Domain::Any, Domain::Any, EQUAL),
    ("gt", |a, b| a.gt(b), Domain::Any, Domain::Any, EQUAL),
    ("ge", |a, b| a.ge(b), Domain::Any, Domain::Any, EQUAL),
    ("eq", |a, b| a.eq(b), Domain::Few, Domain::Few, EQUAL),
    ("ne", |a, b| a.ne(b), Domain::Few, Domain::Few, EQUAL),
    ("and", |a, b| a.and(b), Domain::Any, Domain::Any, EQUAL),
    ("or", |a, b| a.or(b), Domain::Any, Domain::Any, EQUAL),
    ("xor", |a, b| a.xor(b), Domain::Any, Domain::Any, EQUAL),
    ("shl", |a, b| a.shl(b), Domain::Any, Domain::Shift, EQUAL),
    ("shr", |a, b| a.shr(b), Domain::Any, Domain::Shift, EQUAL),
    ("where_cond", |a, b| a.where_cond(a, b), Domain::Any, Domain::Any, EQUAL),
    (
        "sub over its left side",
        |a, b| over(a.sub(b), || a.abs(), |x| x - b),
        Domain::Any,
        Domain::Any,
        BITS,
    ),
    (
        "sub over its right side",
        |a, b| over(a.sub(b), || b.abs(), |x| a - x),
        Domain::Any,
        Domain::Any,
        BITS,
    ),
    ("lerp", |a, b| a.lerp(b, 0.25), Domain::Small, Domain::Small, near(2.0, 8.0)),
];

/// An integer that no float of 64 bits or less holds.
pub const LARGE: i64 = (1 << 53) + 1;

/// An operator on an operand that is given away, whose memory a device may take for the result.
/// Operators panic: `like`, the same by methods, gives the error of a device that has no such
/// operation.
fn over(
    like: Result<Tensor>,
    make: impl Fn() -> Result<Tensor>,
    operator: impl Fn(Tensor) -> Tensor,
) -> Result<Tensor> {
    let _ = like?;
    Ok(operator(make()?))
}

const NUMBERED: [(&str, Numbered, Tolerance); 22] = [
    ("add a number", |x, n| x.add(n), BITS),
    ("mul by a number", |x, n| x.mul(n), BITS),
    ("div by a number", |x, n| x.div(n), BITS),
    ("maximum with a number", |x, n| x.maximum(n), EQUAL),
    ("masked_fill", |x, n| x.masked_fill(&x.gt(0)?, n), EQUAL),
    ("leaky_relu", |x, n| x.leaky_relu(n), EQUAL),
    ("sub of a number", |x, n| x.sub(n), BITS),
    ("rem by a number", |x, n| x.rem(n), EQUAL),
    ("floor_div by a number", |x, n| x.floor_div(n), EQUAL),
    ("minimum with a number", |x, n| x.minimum(n), EQUAL),
    ("le of a number", |x, n| x.le(n), EQUAL),
    ("ne to a number", |x, n| x.ne(n), EQUAL),
    ("and with a number", |x, n| x.and(n), EQUAL),
    ("or with a number", |x, n| x.or(n), EQUAL),
    ("xor with a number", |x, n| x.xor(n), EQUAL),
    ("shl by a number", |x, n| x.shl(n), EQUAL),
    ("shr by a number", |x, n| x.shr(n), EQUAL),
    ("lt of a number", |x, n| x.lt(n), EQUAL),
    ("eq to a number", |x, n| x.eq(n), EQUAL),
    ("clamp to numbers", |x, n| x.clamp(n, 100), EQUAL),
    ("where_cond with a number", |x, n| x.gt(0)?.where_cond(n, x), BITS),
    ("assign a number", |x, n| x.clone().assign(x.gt(0)?, n), BITS),
];

/// Whether `op` has a number in its program.
pub fn is_numbered(op: &str) -> bool {
    NUMBERED.iter().any(|(name, ..)| *name == op)
}

pub fn each(sink: Sink<'_>) {
    for dtype in DType::ALL {
        unary(sink, dtype);
        binary(sink, dtype);
        casts(sink, dtype);
        for (op, f, tolerance) in NUMBERED {
            for (i, number) in numbers(dtype).into_iter().enumerate() {
                {
                    let arrangement = [Arrangement::Packed, Arrangement::Stepped][i % 2];
                    let input = Input::new((4, 9), dtype, arrangement, Domain::Any, 11);
                    sink(one(op, dtype, tolerance, vec![input], number.to_string(), move |x| {
                        f(&x[0], number)
                    }));
                }
            }
        }
        programs(sink, dtype);
    }
}

fn unary(sink: Sink<'_>, dtype: DType) {
    for &(op, f, domain, tolerance) in UNARY {
        let shapes = Arrangement::ALL.iter().map(|&a| (&[5usize, 7] as &[usize], a));
        for (shape, arrangement) in shapes.chain(SHAPES.iter().map(|&s| (s, Arrangement::Packed))) {
            let input = Input::new(shape, dtype, arrangement, domain, 6);
            sink(one(op, dtype, tolerance, vec![input], String::new(), move |x| f(&x[0])));
        }
        if dtype == DType::F64 {
            let far = [1e-300, -1e-300, 1e300, -1e300, 1e39, -1e39, 1e-50, -1e-50];
            let input = Input::of(far, 8, dtype, Arrangement::Packed);
            if !matches!(domain, Domain::Angle) {
                let detail = "beyond the range of f32".to_string();
                sink(one(op, dtype, tolerance, vec![input], detail, move |x| f(&x[0])));
            }
        }
    }
}

/// Pairs of shapes that broadcast, aligned from the right.
const BROADCAST: [(&[usize], &[usize]); 8] = [
    (&[4, 5], &[5]),
    (&[3, 1], &[3]),
    (&[], &[2, 3]),
    (&[4, 1, 3], &[5, 1]),
    (&[1, 0], &[3, 1]),
    (&[1037], &[1]),
    (&[2, 65], &[2, 1]),
    (&[], &[]),
];

fn binary(sink: Sink<'_>, dtype: DType) {
    for &(op, f, left, right, tolerance) in BINARY {
        for (a, b) in pairs() {
            let inputs =
                vec![Input::new((5, 7), dtype, a, left, 7), Input::new((5, 7), dtype, b, right, 8)];
            sink(one(op, dtype, tolerance, inputs, String::new(), move |x| f(&x[0], &x[1])));
        }
        for (a, b) in BROADCAST {
            let inputs = vec![
                Input::new(a, dtype, Arrangement::Packed, left, 9),
                Input::new(b, dtype, Arrangement::Sliced, right, 10),
            ];
            sink(one(op, dtype, tolerance, inputs, String::new(), move |x| f(&x[0], &x[1])));
        }
        for other in [DType::Bool, DType::I16, DType::F32] {
            let inputs = vec![
                Input::new((3, 4), dtype, Arrangement::Packed, left, 12),
                Input::new(4, other, Arrangement::Flipped, right, 13),
            ];
            sink(one(op, dtype, tolerance, inputs, format!("promoted with {other}"), move |x| {
                f(&x[0], &x[1])
            }));
        }
    }
}

fn casts(sink: Sink<'_>, from: DType) {
    for to in DType::ALL {
        for (shape, arrangement) in [
            (vec![64], Arrangement::Packed),
            (vec![6, 7], Arrangement::Transposed),
            (vec![1037], Arrangement::Sliced),
        ] {
            let input = Input::new(shape, from, arrangement, Domain::Any, 14);
            sink(one("cast", from, BITS, vec![input], format!("to {to}"), move |x| x[0].cast(to)));
        }
        let limits = limits();
        let input = Input::of(limits.clone(), limits.len(), from, Arrangement::Packed);
        let detail = format!("to {to}, around the limits of types");
        sink(one("cast", from, BITS, vec![input], detail, move |x| x[0].cast(to)));
        let middles = next_to_middles(from);
        if to.is_float() && !middles.is_empty() {
            let input = Input::of(middles.clone(), middles.len(), from, Arrangement::Packed);
            let detail = format!("to {to}, next to the middle between two numbers");
            sink(one("cast", from, BITS, vec![input], detail, move |x| x[0].cast(to)));
        }
    }
}

/// Numbers around the powers of two, with fractions, and those beyond them.
fn limits() -> Vec<Scalar> {
    let powers = (0..64).flat_map(|n| {
        let power = (1u64 << n) as f64;
        [power - 1.0, power - 0.5, power + 1.5, -power - 0.75].map(Scalar::Float)
    });
    let others = [1e-300, 1e39, -1e39, 1e300, 0.1, -0.9, 6e-8, 300.7, f64::NAN, f64::INFINITY];
    powers.chain(others.map(Scalar::Float)).collect()
}

/// Numbers of 64 bits that rounding twice, by way of a type between, rounds to the wrong side.
fn next_to_middles(dtype: DType) -> Vec<Scalar> {
    let sides = [-1i64, 0, 1];
    match dtype {
        DType::I64 => [(62, 38), (61, 37), (62, 54), (30, 6), (40, 32), (53, 29)]
            .into_iter()
            .flat_map(|(high, low)| sides.map(|by| (1i64 << high) + (1 << low) + by))
            .flat_map(|x| [Scalar::Int(x), Scalar::Int(-x)])
            .collect(),
        DType::U64 => [(63, 39), (63, 55), (60, 36)]
            .into_iter()
            .flat_map(|(high, low)| {
                sides.map(|by| ((1u64 << high) + (1 << low)).wrapping_add(by as u64))
            })
            .map(Scalar::UInt)
            .collect(),
        DType::F64 => [-11, -24, -8]
            .into_iter()
            .flat_map(|low| sides.map(|by| 1.0 + 2f64.powi(low) + by as f64 * 2f64.powi(-40)))
            .flat_map(|x| [Scalar::Float(x), Scalar::Float(-1024.0 * x)])
            .collect(),
        _ => Vec::new(),
    }
}

/// Kernels with several inputs and outputs, run-time parameters, and outputs that are inputs.
fn programs(sink: Sink<'_>, dtype: DType) {
    for (a, b) in pairs() {
        let inputs = vec![
            Input::new((4, 33), dtype, a, Domain::Small, 15),
            Input::new((4, 33), dtype, b, Domain::Small, 16),
        ];
        let body = |_: &_, x: &[Tensor]| {
            let [sum, same, more] = map_n([&x[0], &x[1]], |[a, b]| [a + b, b, (a - b).gt(0)])?;
            Ok(vec![sum, same, more])
        };
        sink(Case {
            op: "kernel of three outputs",
            dtype,
            inputs,
            tolerance: EQUAL,
            detail: String::new(),
            body: Box::new(body),
        });
    }
    let eight = || {
        (0..8)
            .map(|i| {
                Input::new((3, 5), dtype, Arrangement::ALL[i % 7], Domain::Small, 20 + i as u64)
            })
            .collect::<Vec<_>>()
    };
    let sum = |x: &[Tensor]| {
        let all: [&Tensor; 8] = std::array::from_fn(|i| &x[i]);
        map(all, |[a, b, c, d, e, f, g, h]| ((a + b) + (c + d)) + ((e + f) + (g + h)))
    };
    sink(one("kernel of eight inputs", dtype, near(4.0, 32.0), eight(), String::new(), sum));
    let body = move |_: &_, x: &[Tensor]| {
        let kernel =
            Kernel::build([dtype, dtype], [DType::F32, DType::F32], |[w, g], [lr, decay]| {
                [w - (g + w * decay) * lr]
            })?;
        Arc::new(kernel).run(&[&x[0], &x[1]], &[Scalar::Float(0.1), Scalar::Float(0.01)])
    };
    let inputs = vec![
        Input::new((6, 9), dtype, Arrangement::Packed, Domain::Small, 17),
        Input::new(9, dtype, Arrangement::Flipped, Domain::Small, 18),
    ];
    sink(Case {
        op: "kernel with parameters",
        dtype,
        inputs,
        tolerance: near(4.0, 8.0),
        detail: String::new(),
        body: Box::new(body),
    });
}
