//! Rounding errors of products, reductions and rows against f64, at every level: each bound that the
//! documentation of `Tensor` states, on generated cases whose sizes reach 1e6 and whose values
//! differ by many powers of ten, and on rows of one number, whose errors do not cancel.

use crate::common::bounds::{Random, U, f64s, product_bound, to_f64, within};
use crate::common::devices;
use teeny_core::{DType, RowFunction, Scalar, Tensor};

#[test]
fn a_long_row_times_a_matrix() {
    for device in devices() {
        let (a, b) = (
            Tensor::full((1, 1_000_000), 0.1f32, DType::F32, &device),
            Tensor::full((1_000_000, 32), 0.1f32, DType::F32, &device),
        );
        let y = a.unwrap().matmul(&b.unwrap()).unwrap();
        let want = 1e6 * f64::from(0.1f32) * f64::from(0.1f32);
        for y in f64s(&y) {
            assert!((y - want).abs() <= 258.0 * U * want, "{y}, not {want}, on {device:?}");
        }
    }
}

#[test]
fn vectors_without_runs() {
    let mut random = Random(23);
    for device in devices() {
        for k in [511, 513, 65_535] {
            let a = random.tensor(&[1, 1], &device).expand((1, k)).unwrap();
            let b = random.tensor(&[k, 2], &device).slice(1, 1..2).unwrap();
            let many = random.tensor(&[k, 6], &device).slice_step(1, .., 2).unwrap();
            for (lhs, rhs) in [(&a, &b), (&a, &many), (&many.t().unwrap(), &b)] {
                let want = to_f64(lhs).matmul(&to_f64(rhs)).unwrap();
                let scale = to_f64(lhs).abs().unwrap().matmul(&to_f64(rhs).abs().unwrap()).unwrap();
                let what = format!("{} @ {} {device:?}", lhs.shape(), rhs.shape());
                within(&lhs.matmul(rhs).unwrap(), &want, product_bound(k), &scale, &what);
            }
        }
    }
}

#[test]
fn a_row_keeps_infinities_and_nan() {
    for device in devices() {
        let mut a = vec![1.0f32; 2000];
        a[700] = f32::INFINITY;
        let a = Tensor::from_slice(&a, (1, 2000), &device).unwrap();
        let mut b = vec![1.0f32; 2000 * 3];
        (b[700 * 3 + 1], b[1500 * 3 + 2]) = (0.0, f32::NEG_INFINITY);
        let b = Tensor::from_slice(&b, (2000, 3), &device).unwrap();
        let y = a.matmul(&b).unwrap().to_vec::<f32>().unwrap();
        assert!(y[0] == f32::INFINITY && y[1].is_nan() && y[2].is_nan(), "{y:?}");
    }
}

#[test]
fn products_of_any_size() {
    let mut random = Random(17);
    for device in devices() {
        for case in 0..60 {
            let k = random.size(1_000_000);
            let m = if case % 3 == 0 { 1 } else { random.size((4_000_000 / k).clamp(1, 70)) };
            let n = if case % 3 == 1 { 1 } else { random.size((8_000_000 / k / m).clamp(1, 70)) };
            let (a, b) = (random.tensor(&[m, k], &device), random.tensor(&[k, n], &device));
            let a = if random.next().is_multiple_of(2) {
                a
            } else {
                a.t().unwrap().copy().unwrap().t().unwrap()
            };
            let b = if random.next().is_multiple_of(2) {
                b
            } else {
                b.t().unwrap().copy().unwrap().t().unwrap()
            };
            let want = to_f64(&a).matmul(&to_f64(&b)).unwrap();
            let scale = to_f64(&a).abs().unwrap().matmul(&to_f64(&b).abs().unwrap()).unwrap();
            let what = format!("case {case} ({m}, {k}) @ ({k}, {n}) {device:?}");
            within(&a.matmul(&b).unwrap(), &want, product_bound(k), &scale, &what);
            if case % 4 == 0 {
                let (a, b) = (a.cast(DType::BF16).unwrap(), b.cast(DType::BF16).unwrap());
                let want = to_f64(&a).matmul(&to_f64(&b)).unwrap();
                let rounded =
                    want.abs().unwrap().mul(1.0 / 256.0 / (product_bound(k) + 1e-30)).unwrap();
                let scale = to_f64(&a)
                    .abs()
                    .unwrap()
                    .matmul(&to_f64(&b).abs().unwrap())
                    .unwrap()
                    .add(&rounded)
                    .unwrap();
                within(&a.matmul(&b).unwrap(), &want, product_bound(k), &scale, &what);
            }
        }
    }
}

#[test]
fn reductions_of_any_size() {
    let mut random = Random(5);
    for device in devices() {
        for case in 0..60 {
            let n = random.size(1_000_000);
            let m = random.size((2_000_000 / n).clamp(1, 50));
            let mut x = random.tensor(&[m, n], &device);
            let mut axis = 1;
            if random.next().is_multiple_of(2) {
                (x, axis) = (x.t().unwrap().copy().unwrap(), 0);
            }
            let what = format!("case {case} ({m}, {n}) axis {axis} {device:?}");
            let (y, size) = (to_f64(&x), to_f64(&x).abs().unwrap());
            let sizes = size.sum(axis).unwrap();
            within(
                &x.sum(axis).unwrap(),
                &y.sum(axis).unwrap(),
                2e-6,
                &sizes,
                &format!("sum {what}"),
            );
            let mean = y.mean(axis).unwrap();
            within(
                &x.mean(axis).unwrap(),
                &mean,
                3e-6,
                &size.mean(axis).unwrap(),
                &format!("mean {what}"),
            );
            let spread = y.var(axis, 0).unwrap();
            // The mean is within 3e-6 of the mean magnitude; its error is subtracted.
            let off = size.mean(axis).unwrap().mul(3e-6).unwrap();
            let scale = spread.add(off.mul(&off).unwrap()).unwrap();
            within(&x.var(axis, 0).unwrap(), &spread, 4e-6, &scale, &format!("var {what}"));
            within(
                &x.cumsum(axis).unwrap(),
                &y.cumsum(axis).unwrap(),
                1e-9,
                &sizes.max_all().unwrap(),
                &format!("cumsum {what}"),
            );
            let norm = y.vector_norm(2.0, axis).unwrap();
            within(&x.vector_norm(2.0, axis).unwrap(), &norm, 3e-6, &norm, &format!("norm {what}"));
            let lse = y.logsumexp(axis).unwrap();
            within(
                &x.logsumexp(axis).unwrap(),
                &lse,
                4e-6,
                &lse.abs().unwrap().add(1.0).unwrap(),
                &format!("logsumexp {what}"),
            );
            let near_one = y
                .div(size.max_all().unwrap().add(1.0).unwrap())
                .unwrap()
                .div(n as f64)
                .unwrap()
                .add(1.0)
                .unwrap();
            let near_one = near_one.cast(DType::F32).unwrap();
            let product = to_f64(&near_one).prod(axis).unwrap();
            within(
                &near_one.prod(axis).unwrap(),
                &product,
                1e-9,
                &product,
                &format!("prod {what}"),
            );
        }
    }
}

#[test]
fn sums_beyond_the_range_of_f32_on_the_way() {
    for device in devices() {
        for n in [4, 64, 100, 1000, 70_000] {
            let values: Vec<f32> = (0..n).map(|i| if i < n / 2 { 3e38 } else { -3e38 }).collect();
            let x = Tensor::from_slice(&values, n, &device).unwrap();
            assert_eq!(x.sum_all().unwrap().item::<f32>().unwrap(), 0.0, "{n} {device:?}");
            let columns = x.unsqueeze(1).unwrap().expand((n, 20)).unwrap();
            for columns in [columns.copy().unwrap(), columns] {
                assert_eq!(
                    columns.sum(0).unwrap().to_vec::<f32>().unwrap(),
                    [0.0; 20],
                    "{n} {device:?}"
                );
                let rows = columns.t().unwrap().copy().unwrap();
                assert_eq!(
                    rows.sum(1).unwrap().to_vec::<f32>().unwrap(),
                    [0.0; 20],
                    "{n} {device:?}"
                );
            }
            let up = x.abs().unwrap();
            assert_eq!(up.sum_all().unwrap().item::<f32>().unwrap(), f32::INFINITY);
            assert!(
                up.sub(f32::INFINITY)
                    .unwrap()
                    .add(up.mul(f32::INFINITY).unwrap())
                    .unwrap()
                    .sum_all()
                    .unwrap()
                    .item::<f32>()
                    .unwrap()
                    .is_nan()
            );
        }
    }
}

#[test]
fn rows_of_softmax_sum_to_one() {
    let mut random = Random(3);
    for device in devices() {
        for n in [10, 1024, 50_257, 1_000_000] {
            for kind in 0..4 {
                let x = match kind {
                    0 => Tensor::zeros((1, n), DType::F32, &device).unwrap(),
                    1 => random.tensor(&[1, n], &device),
                    2 => Tensor::randn((1, n), DType::F32, &device).unwrap(),
                    _ => Tensor::linspace(-3.0, 0.0, n, DType::F32, &device)
                        .unwrap()
                        .unsqueeze(0)
                        .unwrap(),
                };
                let what = format!("{n} of kind {kind} on {device:?}");
                let total = |x: &Tensor| to_f64(x).sum_all().unwrap().item::<f64>().unwrap();
                let y = x.softmax(1).unwrap();
                assert!((total(&y) - 1.0).abs() <= 1e-6, "softmax {what}: {}", total(&y));
                let log = x.log_softmax(1).unwrap();
                let off = total(&to_f64(&log).exp().unwrap()) - 1.0;
                assert!(off.abs() <= 1.2e-6, "log_softmax {what}: {off}");
                let want = to_f64(&x).softmax(1).unwrap();
                let scale = want
                    .add(
                        x.abs()
                            .unwrap()
                            .max_all()
                            .unwrap()
                            .cast(DType::F64)
                            .unwrap()
                            .mul(&want)
                            .unwrap(),
                    )
                    .unwrap();
                within(&y, &want, 1.5e-6, &scale, &format!("softmax {what}"));
                // The gradients' rows sum to 0.
                let g = Tensor::ones((1, n), DType::F32, &device).unwrap();
                let slope = RowFunction::SoftmaxGrad.run(&[&y, &g], &[], &[1]).unwrap();
                assert!(total(&slope.abs().unwrap()) <= 2e-6, "softmax_grad {what}");
                let slope = RowFunction::LogSoftmaxGrad.run(&[&log, &g], &[], &[1]).unwrap();
                assert!(total(&slope).abs() <= 2e-6 * n as f64, "log_softmax_grad {what}");
                let target = Tensor::new([n as i64 / 2], &device).unwrap();
                let loss = to_f64(&x.cross_entropy(&target, None).unwrap());
                let want = to_f64(&x).cross_entropy(&target, None).unwrap();
                within(
                    &loss,
                    &want,
                    2e-6,
                    &want.abs().unwrap().add(1.0).unwrap(),
                    &format!("cross_entropy {what}"),
                );
                let one = Tensor::ones(1, DType::F32, &device).unwrap();
                let (target, one) = (target.unsqueeze(1).unwrap(), one.unsqueeze(1).unwrap());
                let operands = [&x, &target, &one];
                let slope = RowFunction::CrossEntropyGrad.run(&operands, &[], &[1]).unwrap();
                assert!(
                    total(&slope).abs() <= 1e-6,
                    "cross_entropy_grad {what}: {}",
                    total(&slope)
                );
            }
        }
    }
}

/// Layer and root mean square normalisation of rows of all sizes of numbers, and their gradients,
/// against f64.
#[test]
fn norms_of_large_and_small_numbers() {
    let mut random = Random(11);
    for device in devices() {
        for n in [3, 16, 100, 768, 5000, 200_000] {
            for (power, eps) in [
                (1.0, 1e-5),
                (1e30, 1e-5),
                (1e37, 1e-5),
                (1e-12, 0.0),
                (1e-30, 0.0),
                (1e-18, 1e-40),
                (1e15, 1e-5),
            ] {
                let values: Vec<f32> =
                    (0..2 * n).map(|_| ((random.uniform() * 2.0 - 1.0) * power) as f32).collect();
                let x = Tensor::from_slice(&values, (2, n), &device).unwrap();
                let w = random
                    .tensor(&[n], &device)
                    .abs()
                    .unwrap()
                    .minimum(2.0)
                    .unwrap()
                    .add(0.5)
                    .unwrap();
                let b = Tensor::randn(n, DType::F32, &device).unwrap();
                let what = format!("{n} of {power:e}, eps {eps:e}, {device:?}");
                let one = Tensor::full(1, 1.0, DType::F64, &device).unwrap();
                let want =
                    to_f64(&x).layer_norm(1, Some(&to_f64(&w)), Some(&to_f64(&b)), eps).unwrap();
                let scale = want.abs().unwrap().max_all().unwrap().add(&one).unwrap();
                within(
                    &x.layer_norm(1, Some(&w), Some(&b), eps).unwrap(),
                    &want,
                    6e-6,
                    &scale,
                    &format!("layer_norm {what}"),
                );
                let want = to_f64(&x).rms_norm(1, Some(&to_f64(&w)), eps).unwrap();
                let scale = want.abs().unwrap().max_all().unwrap().add(&one).unwrap();
                within(
                    &x.rms_norm(1, Some(&w), eps).unwrap(),
                    &want,
                    6e-6,
                    &scale,
                    &format!("rms_norm {what}"),
                );
                let g = Tensor::randn((2, n), DType::F32, &device).unwrap();
                for norm in [RowFunction::LayerNormGrad, RowFunction::RmsNormGrad] {
                    let gradient = |x: &Tensor, w: &Tensor, g: &Tensor| {
                        norm.run(&[x, w, g], &[Scalar::Float(eps)], &[1]).unwrap()
                    };
                    let got = gradient(&x, &w, &g);
                    let want = gradient(&to_f64(&x), &to_f64(&w), &to_f64(&g));
                    // In units of the divisor of the gradient.
                    let largest = want.abs().unwrap().max_all().unwrap();
                    within(&got, &want, 2e-5, &largest, &format!("gradient of {norm:?} {what}"));
                }
            }
        }
        for odd in [f32::NAN, f32::INFINITY] {
            let mut values = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
            values[5] = odd;
            let x = Tensor::from_slice(&values, (1, 8), &device).unwrap();
            let y = x.layer_norm(1, None, None, 1e-5).unwrap().to_vec::<f32>().unwrap();
            assert!(y.iter().all(|y| y.is_nan()), "{odd}: {y:?}");
            let y = x.rms_norm(1, None, 1e-5).unwrap().to_vec::<f32>().unwrap();
            assert!(y[5].is_nan(), "{odd}: {y:?}");
        }
    }
}
