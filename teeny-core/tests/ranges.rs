//! Sums of squares, variances and quotients where their type has little range or precision left.

use std::sync::Arc;
use teeny_core::{
    Attention, BagMode, DType, Interpolation, Outside, QuantileMethod, Reference, Result, Sampling,
    ScatterReduce, Tensor, Window, map,
};

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

/// An image (2, 2, 3, 4) of the 48 elements, and filters (2, 2, 2, 2) of the first of them.
fn image(x: &Tensor) -> Result<[Tensor; 2]> {
    Ok([x.reshape((2, 2, 3, 4))?, x.reshape(-1)?.slice(0, ..16)?.reshape((2, 2, 2, 2))?])
}

fn transposed(x: &Tensor, window: Window) -> Result<Tensor> {
    let [x, w] = image(x)?;
    x.conv_transpose(&w, &window, &window.transposed_size(x.shape(), w.shape(), 0)?)
}

/// Six of the elements in each of two rows, to be added to a (2, 12) tensor.
fn arrivals(x: &Tensor) -> Result<[Tensor; 3]> {
    let index = Tensor::new([0i64, 1, 1, 1, 0, 1], x)?.expand((2, 6))?;
    Ok([x.slice(0, ..2)?, index, x.slice(0, 2..)?.slice(1, ..6)?])
}

fn reduced(x: &Tensor, by: ScatterReduce) -> Result<Tensor> {
    let [x, index, src] = arrivals(x)?;
    x.scatter_reduce(1, &index, &src, by, true)
}

/// Operations made of several others: definitions of fused ones, and methods of many steps.
const COMPOSED: [Function; 31] = [
    ("conv", |x| image(x).and_then(|[x, w]| x.conv(&w, &Window::new(2).padding((1, 1))))),
    ("conv_transpose", |x| transposed(x, Window::new(2))),
    ("conv_transpose, stride 2", |x| transposed(x, Window::new(2).stride((2, 2)))),
    ("conv_transpose, dilation 2", |x| transposed(x, Window::new(2).dilation((2, 2)))),
    ("conv_weight_grad", |x| {
        let [x, w] = image(x)?;
        let g = x.slice(2, ..2)?.slice(3, ..3)?;
        g.conv_weight_grad(&x, &Window::new(2), w.shape())
    }),
    ("avg_pool", |x| image(x)?[0].avg_pool(&[2, 3], &Window::new(2))),
    ("adaptive_avg_pool", |x| image(x)?[0].adaptive_avg_pool(&[2, 3])),
    ("lp_pool", |x| image(x)?[0].lp_pool(2.0, &[2, 2], &Window::new(2))),
    ("interpolate linear", |x| {
        image(x)?[0].interpolate(&[7, 5], Interpolation::Linear { align_corners: false })
    }),
    ("interpolate cubic", |x| {
        image(x)?[0].interpolate(&[7, 5], Interpolation::Cubic { align_corners: true })
    }),
    ("interpolate antialias", |x| {
        image(x)?[0].interpolate(&[2, 3], Interpolation::AntialiasLinear)
    }),
    ("col2im", |x| {
        let [x, _] = image(x)?;
        x.im2col(&[2, 2], &Window::new(2))?.col2im(&[3, 4], &[2, 2], &Window::new(2))
    }),
    ("grid_sample", |x| {
        let grid =
            Tensor::arange(-8i32, 8, 1, x)?.cast(x.dtype())?.div(8.0)?.reshape((2, 2, 2, 2))?;
        image(x)?[0].grid_sample(&grid, Sampling::Linear, Outside::Zeros, true)
    }),
    ("matmul", |x| x.matmul(&x.t()?)),
    ("einsum", |x| Tensor::einsum("ij,ij->i", &[x, x])),
    ("tensordot", |x| x.tensordot(&x.mul(0.5)?, &[0], &[0])),
    ("cosine_similarity", |x| x.cosine_similarity(&x.flip(0)?, -1, 1e-12)),
    ("normalize", |x| x.normalize(2.0, -1, 1e-12)),
    ("cov", |x| x.cov(1, None, None)),
    ("corrcoef", |x| x.corrcoef()),
    ("cross", |x| x.slice(1, ..3)?.cross(&x.slice(1, 3..6)?, -1)),
    ("quantile", |x| x.quantile(&[0.3], -1, QuantileMethod::Linear)),
    ("cumprod", |x| x.cumprod(-1)),
    ("logcumsumexp", |x| x.logcumsumexp(-1)),
    ("scatter_add", |x| arrivals(x).and_then(|[x, index, src]| x.scatter_add(1, &index, &src))),
    ("index_add", |x| {
        let index = Tensor::new([1i64, 1, 1, 1], x)?;
        x.slice(0, ..2)?.index_add(0, &index, x)
    }),
    ("scatter_reduce mean", |x| reduced(x, ScatterReduce::Mean)),
    ("scatter_reduce product", |x| reduced(x, ScatterReduce::Prod)),
    ("embedding_bag mean", |x| {
        x.embedding_bag(&Tensor::new([[0i64, 1, 2], [3, 3, 1]], x)?, None, BagMode::Mean)
    }),
    ("attention", |x| {
        let q = x.reshape((1, 2, 6, 4))?;
        q.attention(&q.flip(2)?, &q, None, &Attention::causal(0))
    }),
    ("trapezoid by diff", |x| x.diff(-1, 1)),
];

/// Checks that `f` of 16-bit floats equals the rounded `f` of the same numbers in f64: within
/// `units` of the dtype's precision, and infinite only where the f64 result is.
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
            for f in COMPOSED {
                rounds_only_the_result(f, &x, 2.0, &mut misses);
            }
            for f in ELEMENTWISE {
                rounds_only_the_result(f, &x, 2.0, &mut misses);
            }
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}
