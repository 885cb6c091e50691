//! Norms far from zero, losses of 16-bit floats, and norms of gradients whose squares leave the
//! range of their type.

use crate::common;
use crate::common::*;
use teeny_autograd::{Grad, Gradients};
use teeny_core::{DType, Reference, Tensor, ToDevice};
use teeny_nn::loss::{Reduction, huber, mse};
use teeny_nn::norm::{self, GroupNorm, InstanceNorm};
use teeny_nn::optim::clip_grad_norm;
use teeny_nn::{BatchNorm, Init, LayerNorm, Module, Store};

#[test]
fn norms_of_values_far_from_zero_are_as_accurate_as_near_it() {
    for far in [100.0, 1e4] {
        // (N, C, L), normalised over all of 16 elements a channel or an item
        let values: Vec<f64> = (0..32)
            .map(|i| f64::from((far + f64::from(i * 7919 % 101) * far * 1e-6) as f32))
            .collect();
        let store = Store::new(autograd());
        let at = |name: &str| store.at(name);
        let layers: [(&str, Box<dyn Module>, [usize; 3]); 4] = [
            ("batch", Box::new(BatchNorm::new(&at("batch"), 1).unwrap()), [4, 1, 8]),
            ("instance", Box::new(InstanceNorm::new(&at("instance"), 1).unwrap()), [1, 1, 32]),
            ("group", Box::new(GroupNorm::new(&at("group"), 1, 4).unwrap()), [1, 4, 8]),
            ("layer", Box::new(LayerNorm::new(&at("layer"), 32).unwrap()), [1, 1, 32]),
        ];
        let mean = values.iter().sum::<f64>() / 32.0;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 32.0;
        let want: Vec<f64> = values.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect();
        for (name, layer, shape) in layers {
            let x = f64s(values.clone(), &shape, store.device()).cast(DType::F32).unwrap();
            let y = layer.forward(&x).unwrap();
            assert_close(&common::values(&y), &want, 1e-5, &format!("{name} at {far}"));
        }
        let running = store.all();
        let running = running.iter().find(|p| p.name() == "batch.running_var").unwrap();
        let want = 0.9 + 0.1 * variance * 32.0 / 31.0;
        assert_close(&common::values(&running.value()), &[want], 1e-6, &"running variance");
    }
}

#[test]
fn losses_of_half_floats_leave_their_range_only_as_results() {
    let device = device();
    let of = |x: Vec<f64>| {
        let n = x.len();
        f64s(x, &[n], &device).cast(DType::F16).unwrap()
    };
    let (x, t) = (of(vec![300.0, 0.0, 0.0, 0.0]), of(vec![0.0; 4]));
    let loss = mse(&x, &t, Reduction::Mean).unwrap();
    assert_eq!((loss.dtype(), values(&loss)), (DType::F16, vec![22_496.0])); // of 22,500
    let loss = huber(&x, &t, 1000.0, Reduction::Mean).unwrap();
    assert_eq!(values(&loss), [11_248.0]); // of 11,250
    let loss = mse(&x, &t, Reduction::None).unwrap();
    assert_eq!(values(&loss)[0], f64::INFINITY);
}

fn sum_backward(y: &Tensor) -> Gradients {
    y.sum_all().unwrap().backward().unwrap()
}

/// The norm of gradients of [`clip_grad_norm`], and these gradients after it.
fn clipped(gradients: &[f64], dtype: DType) -> (f64, Vec<f64>) {
    let store = Store::with_dtype(autograd(), dtype);
    let param = store.root().param("w", gradients.len(), Init::ZEROS).unwrap();
    let factor = f64s(gradients.to_vec(), &[gradients.len()], store.device()).cast(dtype).unwrap();
    let mut gradients = sum_backward(&param.value().mul(&factor).unwrap());
    let norm = clip_grad_norm(&mut gradients, &store.trainable(), 1.0).unwrap();
    (norm, values(gradients.get(&param.value()).unwrap()))
}

#[test]
fn gradients_are_clipped_by_norms_whose_squares_leave_the_range() {
    for dtype in [DType::F32, DType::BF16] {
        let error = if dtype == DType::BF16 { 8e-3 } else { 1e-6 };
        for size in [1e20, 3e37, 1e-25, 1e-38] {
            let (norm, clipped) = clipped(&[size, size], dtype);
            let want = 2f64.sqrt() * size;
            assert!((norm - want).abs() < error * want, "{norm} of {size}");
            let want = if size > 1.0 { 0.5f64.sqrt() } else { size };
            for x in clipped {
                assert!((x - want).abs() < error * want, "{x} of {size}");
            }
        }
    }
    assert_eq!(clipped(&[0.0, 0.0], DType::F32).0, 0.0);
}

#[test]
fn gradients_that_are_not_finite_are_still_refused() {
    for value in [f64::INFINITY, f64::NAN] {
        let store = Store::new(autograd());
        let param = store.root().param("w", 2, Init::ZEROS).unwrap();
        let factor = f64s(vec![value, 1.0], &[2], store.device()).cast(DType::F32).unwrap();
        let mut gradients = sum_backward(&param.value().mul(&factor).unwrap());
        let error = clip_grad_norm(&mut gradients, &store.trainable(), 1.0).unwrap_err();
        assert!(error.to_string().contains("the first gradient that is not finite"), "{error}");
    }
}

#[test]
fn norms_of_the_gradients_of_norms_have_gradients() {
    let device = autograd();
    let x = f64s(vec![3e20, 4e20], &[2], &device).cast(DType::F32).unwrap();
    let x = x.requires_grad().unwrap();
    let y: Tensor = x.vector_norm(2.0, ..).unwrap();
    let gradient = values(sum_backward(&y).get(&x).unwrap());
    assert_close(&gradient, &[0.6, 0.8], 1e-6, &"gradient of a norm");
}

#[test]
fn deviations_whose_squares_leave_the_range_are_normalised() {
    let spread = [1.0, 2.0, 4.0, 8.0, -3.0, 0.0, 5.0, 7.0];
    let mean = spread.iter().sum::<f64>() / 8.0;
    let variance = spread.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 8.0;
    for device in [device(), Reference::new().to_device()] {
        for (dtype, size, tolerance) in [
            (DType::F32, 1e30, 1e-6),
            (DType::F32, 1e18, 1e-6),
            (DType::F32, 1.0, 1e-6),
            (DType::F32, 1e-30, 1e-6),
            (DType::F64, 1e160, 1e-14),
            (DType::F64, 1.0, 1e-14),
            (DType::F64, 1e-160, 1e-14),
        ] {
            let what = format!("{dtype} {size}");
            let x = f64s(spread.iter().map(|x| x * size).collect(), &[8], &device);
            let x = x.cast(dtype).unwrap();
            let std = values(&x.std(.., 0).unwrap())[0];
            assert_close(&[std / size], &[variance.sqrt()], tolerance, &what);
            let var = values(&x.var(.., 0).unwrap())[0];
            let range = if dtype == DType::F32 { f64::from(f32::MAX) } else { f64::MAX };
            match variance * size * size > range {
                true => assert_eq!(var, f64::INFINITY, "{what}"),
                false => {
                    let least = if dtype == DType::F32 { 1e-38 } else { 1e-300 };
                    let error = (var - variance * size * size).abs();
                    assert!(error <= 1e-6 * var + least, "{what}: {var}");
                }
            }
            let root = (variance + 1e-5 / size / size).sqrt();
            let want: Vec<f64> = spread.iter().map(|x| (x - mean) / root).collect();
            let rows = x.reshape((1, 4, 2)).unwrap();
            let got = [
                ("batch", norm::batch_norm(&x.unsqueeze(1).unwrap(), None, None, 1e-5)),
                ("group", norm::group_norm(&rows, 1, None, 1e-5)),
                ("instance", norm::instance_norm(&x.reshape((1, 1, 8)).unwrap(), None, 1e-5)),
            ];
            for (name, y) in got {
                assert_close(&values(&y.unwrap()), &want, tolerance, &format!("{name} {what}"));
            }
            if size >= 1.0 {
                // the gradient of a linear function of the result is orthogonal to the result
                let store = Store::with_dtype(autograd(), dtype);
                let layer = BatchNorm::new(&store.at("b"), 1).unwrap();
                let x = x.to(store.device()).unwrap().unsqueeze(1).unwrap();
                let x = x.requires_grad().unwrap();
                let y = layer.forward(&x).unwrap();
                let g = sum_backward(&y.mul(&y).unwrap().mul(&y).unwrap());
                let g = values(g.get(&x).unwrap());
                let largest = g.iter().fold(0f64, |most, g| most.max(g.abs())) * size;
                assert!(largest > 0.1 && largest < 10.0, "{what}: {largest}");
                let dot: f64 = g.iter().zip(&want).map(|(g, y)| g * y).sum();
                assert!(dot.abs() * size < 1e-4, "{what}: {dot}");
            }
        }
    }
}

#[test]
fn gradients_of_f64_are_clipped_by_norms_whose_squares_leave_the_range() {
    for (values, norm) in [
        ([3e160, 4e160], 5e160),
        ([3e300, 4e300], 5e300),
        ([3e160, 1.0], 3e160),
        ([0.3, 0.4], 0.5),
        ([3e-170, 4e-170], 0.0),
    ] {
        let (got, clipped) = clipped(&values, DType::F64);
        assert!((got - norm).abs() <= 1e-14 * norm, "{got} {norm}");
        let by = 1f64.min(1.0 / norm);
        let want = values.map(|value| value * by);
        assert_close(&clipped, &want, 1e-5, &norm);
    }
}
