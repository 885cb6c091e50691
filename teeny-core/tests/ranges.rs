//! Sums of squares, variances and quotients where their type has little range or precision left.

use std::sync::Arc;
use teeny_core::{DType, Reference, Result, Tensor, map};

fn tensor(values: &[f64], dtype: DType, device: &Arc<Reference>) -> Tensor {
    Tensor::from_slice(values, values.len(), device).unwrap().cast(dtype).unwrap()
}

fn number(x: Tensor) -> f64 {
    x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap()[0]
}

fn near(got: f64, want: f64, error: f64) {
    assert!((got - want).abs() <= error * want.abs(), "{got} is not {want}");
}

#[test]
fn a_variance_far_from_zero_has_no_error_of_the_mean() {
    let device = Reference::new();
    for far in [1e4, -3e5, 100.0] {
        let x: Vec<f32> = (0..4).map(|i| (far + 1e-3 * f64::from(i)) as f32).collect();
        let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let mean = exact.iter().sum::<f64>() / 4.0;
        let squares: f64 = exact.iter().map(|x| (x - mean).powi(2)).sum();
        let x = tensor(&exact, DType::F32, &device);
        near(number(x.var(0, 1).unwrap()), squares / 3.0, 1e-6);
        near(number(x.std(0, 0).unwrap()), (squares / 4.0).sqrt(), 1e-6);
        let y = x.layer_norm(1, None, None, 1e-12).unwrap().to_vec::<f32>().unwrap();
        let deviation = (squares / 4.0 + 1e-12).sqrt();
        for (y, x) in y.iter().zip(exact) {
            let want = (x - mean) / deviation;
            assert!((f64::from(*y) - want).abs() < 1e-5, "{y} is not {want} at {far}");
        }
    }
}

#[test]
fn a_variance_of_equal_elements_is_zero() {
    let device = Reference::new();
    let x = tensor(&[0.1; 7], DType::F32, &device);
    assert_eq!(number(x.var(0, 1).unwrap()), 0.0);
    assert_eq!(number(x.std(0, 0).unwrap()), 0.0);
    assert!(number(tensor(&[3.0], DType::F32, &device).var(0, 1).unwrap()).is_nan());
}

#[test]
fn norms_and_deviations_of_half_floats_leave_their_range_only_as_results() {
    let device = Reference::new();
    for p in [2.0, 3.0, 1.5] {
        let x = tensor(&[300.0], DType::F16, &device);
        near(number(x.vector_norm(p, 0).unwrap()), 300.0, 1e-3);
    }
    let x = tensor(&[1e-4, 1e-4], DType::F16, &device);
    near(number(x.vector_norm(2.0, 0).unwrap()), 1.4142e-4, 2e-3);
    let x = tensor(&[-1000.0, 1000.0], DType::F16, &device);
    near(number(x.std(0, 1).unwrap()), 1414.2, 1e-3);
    assert_eq!(x.std(0, 1).unwrap().dtype(), DType::F16);
}

#[test]
fn norms_of_numbers_whose_powers_leave_the_range_are_exact() {
    let device = Reference::new();
    for (value, dtype) in [
        (1e20, DType::F32),
        (1e38, DType::F32),
        (1e-25, DType::F32),
        (1e-38, DType::F32),
        (1e30, DType::BF16),
        (1e-30, DType::BF16),
        (1e200, DType::F64),
        (1e-200, DType::F64),
    ] {
        let error = if dtype == DType::BF16 { 8e-3 } else { 1e-6 };
        for p in [2.0, 3.0, 10.0, 0.5] {
            let x = tensor(&[3.0 * value, -1.5 * value, 0.0], dtype, &device);
            let want = value * (3f64.powf(p) + 1.5f64.powf(p)).powf(1.0 / p);
            if want < 3e38 || dtype == DType::F64 {
                near(number(x.vector_norm(p, 0).unwrap()), want, error);
            }
        }
    }
    let x = tensor(&[0.0, 0.0], DType::F32, &device);
    assert_eq!(number(x.vector_norm(2.0, 0).unwrap()), 0.0);
    let x = tensor(&[f64::INFINITY, 1.0], DType::F32, &device);
    assert_eq!(number(x.vector_norm(2.0, 0).unwrap()), f64::INFINITY);
    let x = tensor(&[f64::NAN, 1.0], DType::F32, &device);
    assert!(number(x.vector_norm(2.0, 0).unwrap()).is_nan());
    let none = Tensor::zeros((2, 0), DType::F32, &device).unwrap();
    assert_eq!(none.vector_norm(2.0, 1).unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
}

#[test]
fn a_quotient_has_the_promoted_float_type() {
    let device = Reference::new();
    use DType::{BF16, Bool, F16, F32, F64, I32, I64, U8};
    for float in [F16, BF16, F32, F64] {
        let x = tensor(&[1.0, 3.0], float, &device);
        for other in [Bool, U8, I32, I64] {
            let y = tensor(&[1.0, 1.0], other, &device);
            assert_eq!(x.div(&y).unwrap().dtype(), float, "{float} / {other}");
            assert_eq!(y.div(&x).unwrap().dtype(), float, "{other} / {float}");
        }
    }
    let integers = tensor(&[1.0, 3.0], I32, &device);
    assert_eq!(integers.div(&integers).unwrap().dtype(), F32);
    let scalar = tensor(&[2.0], F16, &device).reshape(()).unwrap();
    assert_eq!(integers.div(&scalar).unwrap().dtype(), F16);
}

#[test]
fn a_conversion_rounds_once() {
    let device = Reference::new();
    let long = (1i64 << 62) + (1 << 38) + 1;
    let want = 4_611_686_568_183_201_792.0;
    let x = Tensor::from_slice(&[long, -long], 2, &device).unwrap();
    let y = x.cast(DType::F32).unwrap().cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(y, [want, -want]);
    assert_eq!(number(Tensor::full(1, long, DType::F32, &device).unwrap()), want);
    assert_eq!(number(Tensor::from_scalars(&[long.into()], 1, DType::F32, &device).unwrap()), want);
    let double = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    let want = 1.0 + 2f64.powi(-10);
    assert_eq!(number(tensor(&[double], DType::F16, &device)), want);
    assert_eq!(number(Tensor::full(1, double, DType::F16, &device).unwrap()), want);
}

/// Functions of one tensor (rows, n), along the last axis where they have one.
type Function = (&'static str, fn(&Tensor) -> Result<Tensor>);

const ALONG_ROWS: [Function; 17] = [
    ("sum", |x| x.sum(-1)),
    ("mean", |x| x.mean(-1)),
    ("prod", |x| x.prod(-1)),
    ("var", |x| x.var(-1, 1)),
    ("std", |x| x.std(-1, 1)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("softmax", |x| x.softmax(-1)),
    ("log_softmax", |x| x.log_softmax(-1)),
    ("layer_norm", |x| x.layer_norm(1, None, None, 1e-9)),
    ("rms_norm", |x| x.rms_norm(1, None, 1e-9)),
    ("1-norm", |x| x.vector_norm(1.0, -1)),
    ("2-norm", |x| x.vector_norm(2.0, -1)),
    ("3-norm", |x| x.vector_norm(3.0, -1)),
    ("half-norm", |x| x.vector_norm(0.5, -1)),
    ("cdist", |x| x.cdist(&x.mul(-0.5)?, 2.0)),
    ("cdist of p = 3", |x| x.cdist(&x.mul(-0.5)?, 3.0)),
    ("cumsum", |x| x.cumsum(-1)),
];

const ELEMENTWISE: [Function; 24] = [
    ("sinh", |x| x.sinh()),
    ("cosh", |x| x.cosh()),
    ("tanh", |x| x.tanh()),
    ("sigmoid", |x| x.sigmoid()),
    ("silu", |x| x.silu()),
    ("gelu", |x| x.gelu()),
    ("gelu_tanh", |x| x.gelu_tanh()),
    ("mish", |x| x.mish()),
    ("softplus", |x| x.softplus()),
    ("softsign", |x| x.softsign()),
    ("log_sigmoid", |x| x.log_sigmoid()),
    ("hardswish", |x| x.hardswish()),
    ("hardsigmoid", |x| x.hardsigmoid()),
    ("selu", |x| x.selu()),
    ("elu", |x| x.elu(2.0)),
    ("expm1", |x| x.expm1()),
    ("square, halved", |x| map([x], |[x]| x.square() * (1.0 / 65536.0))),
    ("asin", |x| x.asin()),
    ("atan", |x| x.atan()),
    ("rsqrt", |x| x.rsqrt()),
    ("recip", |x| x.recip()),
    ("cbrt", |x| x.cbrt()),
    ("lerp", |x| x.neg()?.lerp(x, 0.25)),
    ("leaky_relu", |x| x.leaky_relu(0.01)),
];

/// That `f` of 16-bit floats is that of the same numbers in f64, rounded: within `units` of the
/// type's precision, and infinite only where that is.
fn rounds_only_the_result((name, f): Function, x: &Tensor, units: f64, misses: &mut Vec<String>) {
    let dtype = x.dtype();
    let got = f(x).unwrap();
    assert_eq!(got.dtype(), dtype, "{name}");
    let got = got.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let exact = f(&x.cast(DType::F64).unwrap()).unwrap();
    let want = exact.cast(dtype).unwrap().cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let unit = if dtype == DType::F16 { 2f64.powi(-11) } else { 2f64.powi(-8) };
    let least = 2f64.powi(-24);
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= units * (unit * want.abs() + least);
        if !(near || *got == want || got.is_nan() && want.is_nan()) {
            misses.push(format!("{name} of {dtype}, element {i}: {got} is not {want}"));
            return;
        }
    }
}

#[test]
fn functions_of_half_floats_round_only_their_result() {
    let device = Reference::new();
    let mut misses = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for (seed, scale) in [1e-7, 1e-4, 0.01, 1.0, 300.0, 3e4].into_iter().enumerate() {
            let values: Vec<f64> = (0..48)
                .map(|i| ((i * 7919 + seed * 31) % 101) as f64 / 50.0 - 1.0)
                .map(|x| x * scale)
                .collect();
            let x = Tensor::from_slice(&values, (4, 12), &device).unwrap().cast(dtype).unwrap();
            for f in ALONG_ROWS {
                rounds_only_the_result(f, &x, 2.0, &mut misses);
            }
            for f in ELEMENTWISE {
                rounds_only_the_result(f, &x, 2.0, &mut misses);
            }
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}
