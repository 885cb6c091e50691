//! Integers at the ends of their types, and floats at points where a function has an exact result,
//! against definitions in 128-bit integers that share no code with a device.
//!
//! The suite compares a device with the oracle; these definitions also check the oracle.

use crate::golden::{Findings, Verdict};
use teeny_core::{DType, DeviceRef, ErrorKind, Result, Scalar, ScatterReduce, Tensor, ToDevice};

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// The low bits of `value` as an integer of type `dtype`.
fn wrap(value: i128, dtype: DType) -> i128 {
    let shift = 128 - 8 * dtype.size();
    match dtype.is_unsigned_int() {
        true => ((value as u128) << shift >> shift) as i128,
        false => value << shift >> shift,
    }
}

fn integer(value: Scalar) -> i128 {
    match value {
        Scalar::Bool(v) => i128::from(v),
        Scalar::Int(v) => i128::from(v),
        Scalar::UInt(v) => i128::from(v),
        Scalar::Float(v) => v as i128,
    }
}

fn scalar(value: i128) -> Scalar {
    i64::try_from(value).map_or(Scalar::UInt(value as u64), Scalar::Int)
}

/// Towards minus infinity; 0 for a zero divisor.
fn floor_div(a: i128, b: i128) -> i128 {
    match b {
        0 => 0,
        b if a % b != 0 && (a < 0) != (b < 0) => a / b - 1,
        b => a / b,
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// `a^b` modulo 2^128, or the truncated quotient of a negative exponent.
fn pow(a: i128, b: i128) -> i128 {
    match (a, b) {
        (_, 0) | (1, _) => 1,
        (-1, b) => 1 - 2 * (b & 1),
        (_, b) if b < 0 => 0,
        (a, b) => {
            let half = pow(a, b / 2);
            let square = half.wrapping_mul(half);
            if b % 2 == 1 { square.wrapping_mul(a) } else { square }
        }
    }
}

/// A name, the operation, and what it gives for exact integers.
type UnaryRow = (&'static str, Unary, fn(i128) -> i128);

const UNARY: &[UnaryRow] = &[
    ("abs", |x| x.abs(), i128::abs),
    ("neg", |x| x.neg(), |x| -x),
    ("sign", |x| x.sign(), i128::signum),
    ("not", |x| x.not(), |x| !x),
    ("square", |x| x.square(), |x| x.wrapping_mul(x)),
    ("relu", |x| x.relu(), |x| x.max(0)),
    ("trunc", |x| x.trunc(), |x| x),
    ("signbit", |x| x.signbit(), |x| i128::from(x < 0)),
    ("is_nan", |x| x.is_nan(), |_| 0),
    ("clamp", |x| x.clamp(2, 100), |x| x.clamp(2, 100)),
    ("add 1", |x| x.add(1), |x| x + 1),
    ("sub 1", |x| x.sub(1), |x| x - 1),
    ("fmod by 3", |x| x.fmod(3), |x| x % 3),
    ("div_trunc by 3", |x| x.div_trunc(3), |x| x / 3),
    ("pow 3", |x| x.pow(3), |x| pow(x, 3)),
];

/// A name, the operation, and what it gives for exact integers.
type BinaryRow = (&'static str, Binary, fn(i128, i128, i128) -> i128);

/// The width of the type is the third operand of a definition.
const BINARY: &[BinaryRow] = &[
    ("add", |a, b| a.add(b), |a, b, _| a + b),
    ("sub", |a, b| a.sub(b), |a, b, _| a - b),
    ("mul", |a, b| a.mul(b), |a, b, _| a.wrapping_mul(b)),
    ("rem", |a, b| a.rem(b), |a, b, _| if b == 0 { 0 } else { a - floor_div(a, b) * b }),
    ("floor_div", |a, b| a.floor_div(b), |a, b, _| floor_div(a, b)),
    ("fmod", |a, b| a.fmod(b), |a, b, _| a.checked_rem(b).unwrap_or(0)),
    ("div_trunc", |a, b| a.div_trunc(b), |a, b, _| a.checked_div(b).unwrap_or(0)),
    ("pow", |a, b| a.pow(b), |a, b, _| pow(a, b)),
    ("maximum", |a, b| a.maximum(b), |a, b, _| a.max(b)),
    ("minimum", |a, b| a.minimum(b), |a, b, _| a.min(b)),
    ("gcd", |a, b| a.gcd(b), |a, b, _| gcd(a, b)),
    ("heaviside", |a, b| a.heaviside(b), |a, b, _| if a == 0 { b } else { i128::from(a > 0) }),
    ("and", |a, b| a.and(b), |a, b, _| a & b),
    ("or", |a, b| a.or(b), |a, b, _| a | b),
    ("xor", |a, b| a.xor(b), |a, b, _| a ^ b),
    ("shl", |a, b| a.shl(b), |a, b, n| if (0..n).contains(&b) { a << b } else { 0 }),
    ("shr", |a, b| a.shr(b), |a, b, n| a >> if (0..n).contains(&b) { b } else { 127 }),
    ("lt", |a, b| a.lt(b), |a, b, _| i128::from(a < b)),
    ("le", |a, b| a.le(b), |a, b, _| i128::from(a <= b)),
    ("eq", |a, b| a.eq(b), |a, b, _| i128::from(a == b)),
    ("ne", |a, b| a.ne(b), |a, b, _| i128::from(a != b)),
    ("where_cond", |a, b| a.where_cond(b, a), |a, b, _| if a == 0 { a } else { b }),
];

type Along = fn(&Tensor) -> Result<Tensor>;

/// A name, the operation, and what it gives for exact integers.
type AlongRow = (&'static str, Along, fn(&[i128]) -> Vec<i128>);

/// Of one axis: the results for its elements, which wrap in the type of the result.
const ALONG: &[AlongRow] = &[
    ("sum", |x| x.sum(0), |x| vec![x.iter().sum()]),
    ("prod", |x| x.prod(0), |x| vec![x.iter().fold(1, |p, x| p.wrapping_mul(*x))]),
    ("max", |x| x.max(0), |x| vec![*x.iter().max().expect("an element")]),
    ("min", |x| x.min(0), |x| vec![*x.iter().min().expect("an element")]),
    ("argmax", |x| x.argmax(0), |x| vec![position(x, *x.iter().max().expect("an element"))]),
    ("argmin", |x| x.argmin(0), |x| vec![position(x, *x.iter().min().expect("an element"))]),
    ("cumsum", |x| x.cumsum(0), |x| scan(x, i128::wrapping_add)),
    ("cumprod", |x| x.cumprod(0), |x| scan(x, i128::wrapping_mul)),
    ("cummax", |x| Ok(x.cummax(0)?.0), |x| scan(x, i128::max)),
    ("cummin", |x| Ok(x.cummin(0)?.0), |x| scan(x, i128::min)),
    ("any", |x| x.any(0), |x| vec![i128::from(x.iter().any(|x| *x != 0))]),
    ("all", |x| x.all(0), |x| vec![i128::from(x.iter().all(|x| *x != 0))]),
    (
        "sort",
        |x| Ok(x.sort(0, teeny_core::SortOrder::Ascending)?.0),
        |x| {
            let mut sorted = x.to_vec();
            sorted.sort_unstable();
            sorted
        },
    ),
    (
        "scatter_reduce amax",
        |x| scatter(x, ScatterReduce::Amax),
        |x| vec![*x.iter().max().expect("an element")],
    ),
    (
        "scatter_reduce amin",
        |x| scatter(x, ScatterReduce::Amin),
        |x| vec![*x.iter().min().expect("an element")],
    ),
    ("scatter_reduce sum", |x| scatter(x, ScatterReduce::Sum), |x| vec![x.iter().sum()]),
    (
        "scatter_reduce prod",
        |x| scatter(x, ScatterReduce::Prod),
        |x| vec![x.iter().fold(1, |p, x| p.wrapping_mul(*x))],
    ),
];

fn position(x: &[i128], value: i128) -> i128 {
    x.iter().position(|x| *x == value).expect("one of the elements") as i128
}

fn scan(x: &[i128], f: fn(i128, i128) -> i128) -> Vec<i128> {
    let later = x[1..].iter().scan(x[0], |sum, x| {
        *sum = f(*sum, *x);
        Some(*sum)
    });
    std::iter::once(x[0]).chain(later).collect()
}

/// All elements reduced to one.
fn scatter(x: &Tensor, reduce: ScatterReduce) -> Result<Tensor> {
    let zero = Tensor::zeros(1, x.dtype(), x.device())?;
    let index = Tensor::zeros(x.shape(), DType::I64, x.device())?;
    zero.scatter_reduce(0, &index, x, reduce, false)
}

/// The ends of `dtype`, their neighbours and halves, and small numbers.
fn ends(dtype: DType) -> Vec<i128> {
    let bits = 8 * dtype.size() as u32;
    let (low, high) = match dtype.is_unsigned_int() {
        true => (0, (1i128 << bits) - 1),
        false => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
    };
    let middle = 1i128 << (bits / 2);
    let own = [low, low + 1, low / 2, high, high - 1, high / 2, middle, -middle, middle - 1];
    let all = own.into_iter().chain(-3..=3).chain([7, -7, 100, i128::from(bits) - 1]);
    let mut values: Vec<i128> = all.filter(|x| (low..=high).contains(x)).collect();
    values.sort_unstable();
    values.dedup();
    // Not in order, so that scans have something to do.
    let n = values.len();
    (0..n).map(|i| values[i * 7 % n]).collect()
}

/// The type and the elements; nothing of a type that the device does not support.
fn read(got: Result<Tensor>) -> std::result::Result<Option<(DType, Vec<Scalar>)>, String> {
    match got.and_then(|y| Ok((y.dtype(), y.to_scalars()?))) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Compares every element with `want`, which wraps in the type of the result.
fn exact(got: Result<Tensor>, want: &[i128]) -> std::result::Result<(), String> {
    let Some((dtype, values)) = read(got)? else { return Ok(()) };
    if values.len() != want.len() {
        return Err(format!("{} elements, not {}", values.len(), want.len()));
    }
    let want = |i: usize| if dtype == DType::Bool { want[i] } else { wrap(want[i], dtype) };
    match (0..values.len()).find(|&i| integer(values[i]) != want(i)) {
        Some(i) => Err(format!("element {i} is {}, not {}", values[i], want(i))),
        None => Ok(()),
    }
}

/// `value` with `digits` significant bits, rounded to nearest, ties to even.
fn rounded(value: i128, digits: u32) -> f64 {
    let size = value.unsigned_abs();
    let drop = (128 - size.leading_zeros()).saturating_sub(digits);
    let (kept, rest) = (size >> drop, size & ((1 << drop) - 1));
    let half = (1u128 << drop) >> 1;
    let up = drop > 0 && (rest > half || rest == half && kept & 1 == 1);
    ((kept + u128::from(up)) << drop) as f64 * value.signum() as f64
}

/// Every operation of integers at the ends of every type, and casts to every type: integers wrap,
/// a quotient by zero is zero.
pub fn integers(device: impl ToDevice) -> Verdict {
    let device = device.to_device();
    let mut findings = Findings::default();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        integers_of(dtype, &device, &mut findings);
    }
    findings.verdict()
}

fn integers_of(dtype: DType, device: &DeviceRef, findings: &mut Findings) {
    let values = ends(dtype);
    let (n, scalars) = (values.len(), values.iter().copied().map(scalar).collect::<Vec<_>>());
    let make = |shape: &[usize]| Tensor::from_scalars(&scalars, shape, dtype, device);
    for (name, run, definition) in UNARY {
        if *name == "neg" && dtype.is_unsigned_int() && make(&[n]).and_then(|x| x.neg()).is_err() {
            continue;
        }
        let want: Vec<i128> = values.iter().map(|&x| definition(x)).collect();
        findings.add(format!("{name} {dtype}"), exact(make(&[n]).and_then(|x| run(&x)), &want));
    }
    for (name, run, definition) in BINARY {
        let bits = 8 * dtype.size() as i128;
        let want: Vec<i128> = values
            .iter()
            .flat_map(|&a| values.iter().map(move |&b| definition(a, b, bits)))
            .collect();
        let got = make(&[n, 1]).and_then(|a| run(&a, &make(&[n])?));
        findings.add(format!("{name} {dtype}"), exact(got, &want));
    }
    // The product wraps before its absolute value is taken, as in PyTorch.
    let lcm = |a, b| match gcd(a, b) {
        0 => 0,
        g => wrap(wrap(a / g, dtype).wrapping_mul(b), dtype).abs(),
    };
    let want: Vec<i128> =
        values.iter().flat_map(|&a| values.iter().map(move |&b| lcm(a, b))).collect();
    let got = make(&[n, 1]).and_then(|a| a.lcm(&make(&[n])?));
    findings.add(format!("lcm {dtype}"), exact(got, &want));
    for (name, run, definition) in ALONG {
        findings.add(
            format!("{name} {dtype}"),
            exact(make(&[n]).and_then(|x| run(&x)), &definition(&values)),
        );
    }
    for to in DType::ALL {
        let got = make(&[n]).and_then(|x| x.cast(to));
        let digits = match to {
            DType::F16 => 11,
            DType::BF16 => 8,
            DType::F32 => 24,
            DType::F64 => 53,
            _ => {
                let truth = |x: i128| if to == DType::Bool { i128::from(x != 0) } else { x };
                let want: Vec<i128> = values.iter().map(|&x| truth(x)).collect();
                findings.add(format!("{dtype} to {to}"), exact(got, &want));
                continue;
            }
        };
        let want: Vec<f64> = values.iter().map(|&x| rounded(x, digits)).collect();
        let most = if to == DType::F16 { 65504.0 } else { f64::INFINITY };
        let want = want.iter().map(|&x| if x.abs() > most { x * f64::INFINITY } else { x });
        findings.add(format!("{dtype} to {to}"), same(got, &want.collect::<Vec<_>>()));
    }
    // The sum of a mean is of floats: its error is relative to the largest term.
    let mean = values.iter().map(|&x| x as f64).sum::<f64>() / n as f64;
    let most = values.iter().map(|&x| (x as f64).abs()).fold(0.0, f64::max);
    let close = |got: Result<Tensor>| -> std::result::Result<(), String> {
        match read(got)?.map(|(_, values)| values[0].to_f64()) {
            Some(got) if (got - mean).abs() > most * 1e-6 => Err(format!("{got}, not {mean}")),
            _ => Ok(()),
        }
    };
    findings.add(format!("mean {dtype}"), close(make(&[n]).and_then(|x| x.mean(0))));
}

/// Compares every element with `want`, zeros of either sign.
fn same(got: Result<Tensor>, want: &[f64]) -> std::result::Result<(), String> {
    let Some((_, got)) = read(got)? else { return Ok(()) };
    let differs = |i: &usize| got[*i].to_f64() != want[*i];
    match (0..want.len()).find(differs) {
        Some(i) => Err(format!("element {i} is {}, not {}", got[i], want[i])),
        None => Ok(()),
    }
}

/// The significant bits, and the exponents of the largest and the smallest normal number.
fn format(float: DType) -> (u32, i32, i32) {
    match float {
        DType::F16 => (11, 15, -14),
        DType::BF16 => (8, 127, -126),
        DType::F32 => (24, 127, -126),
        _ => (53, 1023, -1022),
    }
}

/// Functions at points where the result is a whole number, or a power of the argument that the type
/// holds: logarithms of powers of the base, powers with whole exponents, roots of powers.
pub fn exact_points(device: impl ToDevice, float: DType) -> Verdict {
    let device = device.to_device();
    let (digits, top, bottom) = format(float);
    let mut findings = Findings::default();
    let mut check = |name: &str, run: Unary, points: Vec<(f64, f64)>| {
        let (x, want): (Vec<Scalar>, Vec<f64>) =
            points.into_iter().map(|(x, y)| (Scalar::Float(x), y)).unzip();
        let got = Tensor::from_scalars(&x, x.len(), float, &device).and_then(|x| run(&x));
        let outcome = same(got, &want).map_err(|why| format!("{why} (of {x:?})"));
        findings.add(format!("{name} {float}"), outcome);
    };
    let two = |n: i32| 2f64.powi(n / 2) * 2f64.powi(n - n / 2);
    // The nearest number to each power of ten has a whole logarithm, after rounding.
    let decades = (bottom * 3 / 10).max(-307)..=(f64::from(top) * std::f64::consts::LOG10_2) as i32;
    let tens = decades.map(|n| (format!("1e{n}").parse().expect("a number"), f64::from(n)));
    // A coarse type has other numbers next to a power of ten, with other logarithms.
    let held = |x: &(f64, f64)| digits >= 24 || Scalar::Float(x.0).cast(float).to_f64() == x.0;
    check("log10", |x| x.log10(), tens.filter(held).collect());
    let exponents = || (bottom..=top).map(|n| (two(n), f64::from(n)));
    check("log2", |x| x.log2(), exponents().collect());
    check("exp2", |x| x.exp2(), exponents().map(|(x, n)| (n, x)).collect());
    check("log", |x| x.log(), vec![(1.0, 0.0)]);
    check("log1p", |x| x.log1p(), vec![(0.0, 0.0)]);
    check("exp", |x| x.exp(), vec![(0.0, 1.0)]);
    check("expm1", |x| x.expm1(), vec![(0.0, 0.0)]);
    let whole = |power: i32| {
        let held = move |x: &f64| rounded(x.powi(power) as i128, digits) == x.powi(power);
        let fits = move |x: &f64| x.powi(power) <= two(top) && x.powi(power) < 1e30;
        (1..2000).map(f64::from).take_while(fits).filter(held).map(move |x| (x.powi(power), x))
    };
    check("sqrt", |x| x.sqrt(), whole(2).collect());
    check("pow 0.5", |x| x.pow(0.5), whole(2).collect());
    check("cbrt", |x| x.cbrt(), whole(3).flat_map(|(x, y)| [(x, y), (-x, -y)]).collect());
    let halves = |from: i32, to: i32| (from..=to).map(|n| (two(2 * n), two(-n)));
    check("rsqrt", |x| x.rsqrt(), halves(bottom / 2, top / 2).collect());
    check("recip", |x| x.recip(), (bottom + 1..top).map(|n| (two(n), two(-n))).collect());
    let some = [0.5, 1.0, -1.0, 2.0, 3.0, -3.5, 1.2e-4, 1000.0];
    check("pow 0", |x| x.pow(0.0), some.map(|x| (x, 1.0)).to_vec());
    let held = some.map(|x| Scalar::Float(x).cast(float).to_f64());
    check("pow 1", |x| x.pow(1.0), held.map(|x| (x, x)).to_vec());
    // Exponents as tensors: an engine may have other loops for those that are numbers.
    let pow = |x: &Tensor| x.slice(0, ..1)?.pow(&x.slice(0, 1..)?);
    for base in (2..=30).map(f64::from).chain([-2.0, -3.0, -10.0, 0.5, 1.5, -0.25]) {
        // The power of the numerator over a power of two has to fit into the significant bits.
        let held = |n: &i32| {
            let power = ((base * 4.0) as i128).checked_pow(*n as u32);
            let bits = |p: i128| 128 - p.unsigned_abs().leading_zeros() - p.trailing_zeros();
            let (low, high) = (two(bottom), two(top));
            power.is_some_and(|p| bits(p) <= digits) && (low..high).contains(&base.powi(*n).abs())
        };
        let exponents: Vec<i32> = (0..60).take_while(held).collect();
        let all: Vec<f64> =
            std::iter::once(base).chain(exponents.iter().map(|&n| f64::from(n))).collect();
        let want: Vec<f64> = exponents.iter().map(|&n| base.powi(n)).collect();
        let x: Vec<Scalar> = all.into_iter().map(Scalar::Float).collect();
        let got = Tensor::from_scalars(&x, x.len(), float, &device).and_then(|x| pow(&x));
        findings.add(format!("powers of {base} {float}"), same(got, &want));
    }
    findings.verdict()
}
