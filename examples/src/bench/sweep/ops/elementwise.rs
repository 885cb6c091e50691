//! Elementwise operations, casts, random numbers.

use super::{ALL, Drawn, FLOATS, INTEGERS, NUMBERS, SweepOp};
use crate::bench::sweep::case::Fill;
use crate::bench::sweep::draw::Draw;
use teeny_core::{DType, DeviceRef, Result, Scalar, Tensor, map};

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;
type WithNumber = fn(&Tensor, Scalar) -> Result<Tensor>;

/// Activations and functions that models use often, and the others.
const COMMON: &[(&str, Unary, Fill)] = &[
    ("exp", Tensor::exp, Fill::Normal),
    ("tanh", Tensor::tanh, Fill::Normal),
    ("sigmoid", Tensor::sigmoid, Fill::Normal),
    ("relu", Tensor::relu, Fill::Normal),
    ("gelu", Tensor::gelu, Fill::Normal),
    ("gelu_tanh", Tensor::gelu_tanh, Fill::Normal),
    ("silu", Tensor::silu, Fill::Normal),
    ("sqrt", Tensor::sqrt, Fill::Positive),
    ("rsqrt", Tensor::rsqrt, Fill::Positive),
    ("square", Tensor::square, Fill::Normal),
    ("log", Tensor::log, Fill::Positive),
];
const FUNCTIONS: &[(&str, Unary, Fill)] = &[
    ("recip", Tensor::recip, Fill::Positive),
    ("exp2", Tensor::exp2, Fill::Normal),
    ("expm1", Tensor::expm1, Fill::Normal),
    ("log2", Tensor::log2, Fill::Positive),
    ("log1p", Tensor::log1p, Fill::Positive),
    ("sin", Tensor::sin, Fill::Normal),
    ("cos", Tensor::cos, Fill::Normal),
    ("tan", Tensor::tan, Fill::Normal),
    ("atan", Tensor::atan, Fill::Normal),
    ("asin", Tensor::asin, Fill::Unit),
    ("acos", Tensor::acos, Fill::Unit),
    ("sinh", Tensor::sinh, Fill::Normal),
    ("cosh", Tensor::cosh, Fill::Normal),
    ("erf", Tensor::erf, Fill::Normal),
    ("relu6", Tensor::relu6, Fill::Normal),
    ("selu", Tensor::selu, Fill::Normal),
    ("softplus", Tensor::softplus, Fill::Normal),
    ("log_sigmoid", Tensor::log_sigmoid, Fill::Normal),
    ("mish", Tensor::mish, Fill::Normal),
    ("softsign", Tensor::softsign, Fill::Normal),
    ("hardsigmoid", Tensor::hardsigmoid, Fill::Normal),
    ("hardswish", Tensor::hardswish, Fill::Normal),
    ("hardtanh", Tensor::hardtanh, Fill::Normal),
];
const ROUNDING: &[(&str, Unary)] = &[
    ("floor", Tensor::floor),
    ("ceil", Tensor::ceil),
    ("round", Tensor::round),
    ("trunc", Tensor::trunc),
    ("is_nan", Tensor::is_nan),
    ("is_inf", Tensor::is_inf),
    ("is_finite", Tensor::is_finite),
];
const SIGNS: &[(&str, Unary)] = &[("abs", Tensor::abs), ("sign", Tensor::sign)];

const ARITHMETIC: &[(&str, usize, Binary, WithNumber)] = &[
    ("add", 14, |x, y| x.add(y), |x, n| x.add(n)),
    ("mul", 14, |x, y| x.mul(y), |x, n| x.mul(n)),
    ("sub", 6, |x, y| x.sub(y), |x, n| x.sub(n)),
    ("maximum", 2, |x, y| x.maximum(y), |x, n| x.maximum(n)),
    ("minimum", 2, |x, y| x.minimum(y), |x, n| x.minimum(n)),
];
const DIVISION: &[(&str, Binary, WithNumber)] = &[
    ("rem", |x, y| x.rem(y), |x, n| x.rem(n)),
    ("floor_div", |x, y| x.floor_div(y), |x, n| x.floor_div(n)),
];
const COMPARISONS: &[(&str, Binary, WithNumber)] = &[
    ("lt", |x, y| x.lt(y), |x, n| x.lt(n)),
    ("le", |x, y| x.le(y), |x, n| x.le(n)),
    ("gt", |x, y| x.gt(y), |x, n| x.gt(n)),
    ("ge", |x, y| x.ge(y), |x, n| x.ge(n)),
    ("eq", |x, y| x.eq(y), |x, n| x.eq(n)),
    ("ne", |x, y| x.ne(y), |x, n| x.ne(n)),
];
const BITWISE: &[(&str, Binary)] =
    &[("and", |x, y| x.and(y)), ("or", |x, y| x.or(y)), ("xor", |x, y| x.xor(y))];
const EXPONENTS: &[f64] = &[2.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.5, 4.0, 2.2, 0.75];

/// The number of a binary operation: whole for integers, whose type it keeps.
fn number(draw: &mut Draw, dtype: DType) -> (Scalar, String) {
    if dtype.is_float() {
        let n = draw.pick(&[0.5, 2.0, -1.5, 0.1]);
        (Scalar::from(n), n.to_string())
    } else {
        let n = draw.pick(&[1i64, 2, 3]);
        (Scalar::from(n), n.to_string())
    }
}

/// The shape of an operand that broadcasts against `shape`: equal, a row, channels, a column.
fn partner(draw: &mut Draw, shape: &[usize]) -> Vec<usize> {
    let last = shape.len() - 1;
    match draw.below(10) {
        0 | 1 => vec![shape[last]],
        2 if shape.len() > 2 => {
            let mut channels = vec![1; last];
            channels[0] = shape[1];
            channels
        }
        3 if shape.len() > 1 => {
            let mut column = shape.to_vec();
            column[last] = 1;
            column
        }
        _ => shape.to_vec(),
    }
}

/// A case of two operands, or of one and a number.
fn binary(
    draw: &mut Draw,
    dtype: DType,
    fills: [Fill; 2],
    f: Binary,
    with_number: WithNumber,
) -> Drawn {
    let shape = draw.activation();
    if draw.chance(0.25) {
        let (n, text) = number(draw, dtype);
        let mut drawn = Drawn::one(shape, fills[0], move |x| with_number(x, n));
        drawn.args.push(text);
        return drawn;
    }
    let y = partner(draw, &shape);
    Drawn::of(vec![(shape, fills[0]), (y, fills[1])], move |x| f(&x[0], &x[1]))
}

pub(super) fn rows(rows: &mut Vec<SweepOp>) {
    for (weight, list) in [(5, COMMON), (1, FUNCTIONS)] {
        for &(name, f, fill) in list {
            let draw = move |draw: &mut Draw, _| Drawn::one(draw.activation(), fill, f);
            rows.push(SweepOp::new(name, weight, FLOATS, draw).strided());
        }
    }
    for &(name, f) in ROUNDING {
        let draw = move |draw: &mut Draw, _| Drawn::one(draw.activation(), Fill::Normal, f);
        rows.push(SweepOp::new(name, 1, FLOATS, draw).strided().without_grad());
    }
    for &(name, f) in SIGNS {
        let draw = move |draw: &mut Draw, _| Drawn::one(draw.activation(), Fill::Normal, f);
        rows.push(SweepOp::new(name, 1, NUMBERS, draw).strided());
    }
    let negate = |draw: &mut Draw, _| Drawn::one(draw.activation(), Fill::Normal, Tensor::neg);
    rows.push(SweepOp::new("neg", 2, NUMBERS, negate).strided());
    for &(name, weight, f, with_number) in ARITHMETIC {
        let draw =
            move |draw: &mut Draw, dtype| binary(draw, dtype, [Fill::Normal; 2], f, with_number);
        rows.push(SweepOp::new(name, weight, NUMBERS, draw).strided());
    }
    let divide = |draw: &mut Draw, dtype| {
        binary(draw, dtype, [Fill::Normal, Fill::Positive], |x, y| x.div(y), |x, n| x.div(n))
    };
    rows.push(SweepOp::new("div", 6, FLOATS, divide).strided());
    for &(name, f, with_number) in DIVISION {
        let fills = [Fill::Normal, Fill::Positive];
        let draw = move |draw: &mut Draw, dtype| binary(draw, dtype, fills, f, with_number);
        rows.push(SweepOp::new(name, 1, NUMBERS, draw).strided().without_grad());
    }
    for &(name, f, with_number) in COMPARISONS {
        let fills = [Fill::Normal; 2];
        let draw = move |draw: &mut Draw, dtype| binary(draw, dtype, fills, f, with_number);
        rows.push(SweepOp::new(name, 1, NUMBERS, draw).strided().without_grad());
    }
    const BITS: &[DType] = &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::Bool];
    for &(name, f) in BITWISE {
        let draw = move |draw: &mut Draw, _| {
            let shape = draw.activation();
            Drawn::of(vec![(shape.clone(), Fill::Normal), (shape, Fill::Normal)], move |x| {
                f(&x[0], &x[1])
            })
        };
        rows.push(SweepOp::new(name, 2, BITS, draw).strided().without_grad());
    }
    let not = |draw: &mut Draw, _| Drawn::one(draw.activation(), Fill::Normal, Tensor::not);
    rows.push(SweepOp::new("not", 1, BITS, not).strided().without_grad());
    for (name, f) in [("shl", (|x, y| x.shl(y)) as Binary), ("shr", |x, y| x.shr(y))] {
        let draw = move |draw: &mut Draw, _| {
            let shape = draw.activation();
            Drawn::of(vec![(shape.clone(), Fill::Normal), (shape, Fill::Positive)], move |x| {
                f(&x[0], &x[1])
            })
        };
        rows.push(SweepOp::new(name, 1, INTEGERS, draw).without_grad());
    }
    composed(rows);
}

/// Powers, interpolation, selection, casts, chains, random numbers.
fn composed(rows: &mut Vec<SweepOp>) {
    rows.push(
        SweepOp::new("pow", 5, FLOATS, |draw, _| {
            let (shape, n) = (draw.activation(), draw.pick(EXPONENTS));
            if draw.chance(0.2) {
                let inputs = vec![(shape.clone(), Fill::Positive), (shape, Fill::Normal)];
                return Drawn::of(inputs, |x| x[0].pow(&x[1]));
            }
            Drawn::one(shape, Fill::Positive, move |x| x.pow(n)).arg(n)
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("leaky_relu", 2, FLOATS, |draw, _| {
            Drawn::one(draw.activation(), Fill::Normal, |x| x.leaky_relu(0.1)).arg(0.1)
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("elu", 1, FLOATS, |draw, _| {
            Drawn::one(draw.activation(), Fill::Normal, |x| x.elu(1.0)).arg(1.0)
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("clamp", 2, FLOATS, |draw, _| {
            Drawn::one(draw.activation(), Fill::Normal, |x| x.clamp(-0.5, 0.5)).arg(-0.5).arg(0.5)
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("lerp", 1, FLOATS, |draw, _| {
            let shape = draw.activation();
            let inputs = vec![(shape.clone(), Fill::Normal), (shape, Fill::Normal)];
            Drawn::of(inputs, |x| x[0].lerp(&x[1], 0.1)).arg(0.1)
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("where_cond", 3, ALL, |draw, _| {
            let shape = draw.activation();
            let inputs = vec![
                (shape.clone(), Fill::Mask),
                (shape.clone(), Fill::Normal),
                (shape, Fill::Normal),
            ];
            Drawn::of(inputs, |x| x[0].where_cond(&x[1], &x[2]))
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("masked_fill", 2, FLOATS, |draw, _| {
            let shape = draw.activation();
            let mask = shape[shape.len().saturating_sub(2)..].to_vec();
            let inputs = vec![(shape, Fill::Normal), (mask, Fill::Mask)];
            Drawn::of(inputs, |x| x[0].masked_fill(&x[1], f64::NEG_INFINITY))
        })
        .strided(),
    );
    rows.push(
        SweepOp::new("cast", 5, ALL, |draw, dtype| {
            let others: Vec<DType> = ALL.iter().copied().filter(|&d| d != dtype).collect();
            let to = draw.pick(&others);
            Drawn::one(draw.activation(), Fill::Normal, move |x| x.cast(to)).arg(to.name())
        })
        .strided()
        .without_grad(),
    );
    rows.push(SweepOp::new("chain", 3, FLOATS, |draw, _| {
        let shape = draw.activation();
        let row = vec![shape[shape.len() - 1]];
        let inputs = vec![(shape, Fill::Normal), (row.clone(), Fill::Normal), (row, Fill::Normal)];
        Drawn::of(inputs, |x| {
            map([&x[0], &x[1], &x[2]], |[x, scale, shift]| (x * scale + shift).relu())
        })
    }));
    type Random = fn(Vec<usize>, DType, &DeviceRef) -> Result<Tensor>;
    let random: [(&'static str, Random); 3] = [
        ("uniform", |shape, dtype, device| Tensor::uniform(0.0, 1.0, &shape[..], dtype, device)),
        ("normal", |shape, dtype, device| Tensor::normal(0.0, 1.0, &shape[..], dtype, device)),
        ("bernoulli", |shape, _, device| Tensor::bernoulli(0.5, &shape[..], device)),
    ];
    let randint = |draw: &mut Draw, dtype| {
        let shape = draw.activation();
        let arg = shape.clone();
        let call = Box::new(move |device: &DeviceRef, _: &[Tensor]| {
            Tensor::randint(0, 100, &shape[..], dtype, device)
        });
        Drawn { inputs: vec![], args: vec![], call }.arg(arg)
    };
    rows.push(SweepOp::new("randint", 1, &[DType::I32, DType::I64], randint).without_grad());
    let full = |draw: &mut Draw, dtype| {
        let shape = draw.activation();
        let arg = shape.clone();
        let call = Box::new(move |device: &DeviceRef, _: &[Tensor]| {
            Tensor::full(&shape[..], 1i64, dtype, device)
        });
        Drawn { inputs: vec![], args: vec![], call }.arg(arg)
    };
    rows.push(SweepOp::new("full", 1, NUMBERS, full).without_grad());
    for (name, f) in random {
        let draw = move |draw: &mut Draw, dtype| {
            let shape = draw.activation();
            let arg = shape.clone();
            let call =
                Box::new(move |device: &DeviceRef, _: &[Tensor]| f(shape.clone(), dtype, device));
            Drawn { inputs: vec![], args: vec![], call }.arg(arg)
        };
        rows.push(SweepOp::new(name, 1, FLOATS, draw).without_grad());
    }
}
