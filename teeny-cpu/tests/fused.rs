//! The fused ops of the device against the reference device, which runs their definitions.

use crate::common::{self, *};
use std::sync::{Arc, OnceLock};
use teeny_core::{DType, Op, Reference, RowFunction, Tensor, Window};

fn oracle() -> Arc<Reference> {
    static ORACLE: OnceLock<Arc<Reference>> = OnceLock::new();
    ORACLE.get_or_init(Reference::new).clone()
}

fn sample(shape: &[usize], dtype: DType, seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> =
        (0..n).map(|i| ((i * 7919 + seed * 131) % 101) as f32 / 16.0 - 3.0).collect();
    Tensor::from_slice(&values, shape, oracle()).unwrap().cast(dtype).unwrap()
}

/// Largest difference relative to the largest value.
fn near(got: &Tensor, want: &Tensor, what: &str) {
    let tolerance = match want.dtype() {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    };
    common::near(got, want, tolerance, what);
}

fn input_grad(g: &Tensor, weight: &Tensor, window: &Window, x: &Tensor) -> Tensor {
    Op::ConvInputGrad { g, weight, window, x_shape: x.shape() }.tensor(g.device()).unwrap()
}

fn weight_grad(g: &Tensor, x: &Tensor, window: &Window, weight: &Tensor) -> Tensor {
    Op::ConvWeightGrad { g, x, window, weight_shape: weight.shape() }.tensor(g.device()).unwrap()
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn softmax_and_its_relatives_along_every_axis() {
    for device in devices() {
        for dtype in FLOATS {
            // Among them narrow rows: more than a block, with a part of one at the end.
            let narrow = [[5, 13, 40], [3, 230, 1], [2, 9, 129]];
            for shape in [[3, 5, 4], [2, 3, 259], [1, 1, 1], [2, 64, 3]].into_iter().chain(narrow) {
                let x = sample(&shape, dtype, 1);
                let g = sample(&shape, dtype, 2);
                for (layout, y) in layouts(&x.to(&device).unwrap()) {
                    for axis in 0..3 {
                        let what = format!("{dtype} {shape:?} {layout} axis {axis} {device:?}");
                        near(&y.softmax(axis).unwrap(), &x.softmax(axis).unwrap(), &what);
                        near(&y.log_softmax(axis).unwrap(), &x.log_softmax(axis).unwrap(), &what);
                        let gd = g.to(&device).unwrap();
                        let axis = axis as usize;
                        let gradient = |y: &Tensor, g: &Tensor| {
                            RowFunction::SoftmaxGrad.run(&[y, g], &[], &[axis]).unwrap()
                        };
                        near(&gradient(&y, &gd), &gradient(&x, &g), &what);
                        let gradient = |y: &Tensor, g: &Tensor| {
                            RowFunction::LogSoftmaxGrad.run(&[y, g], &[], &[axis]).unwrap()
                        };
                        near(&gradient(&y, &gd), &gradient(&x, &g), &what);
                    }
                }
            }
        }
        let x = Tensor::new([[f32::NEG_INFINITY; 20], [f32::NAN; 20], [1000.0; 20]], &device)
            .unwrap()
            .softmax(-1)
            .unwrap();
        let x = x.to_vec::<f32>().unwrap();
        assert!(x[..40].iter().all(|v| v.is_nan()) && x[40..].iter().all(|&v| v == 0.05));
    }
}

fn windows() -> Vec<(Vec<usize>, Vec<usize>, Window)> {
    // Spatial input, kernel, window.
    vec![
        (vec![7, 9], vec![3, 3], Window::new(2)),
        (vec![7, 9], vec![3, 3], Window::new(2).padding(1)),
        (vec![8, 6], vec![3, 2], Window::new(2).stride(2).padding(1)),
        (vec![9, 11], vec![2, 3], Window::new(2).dilation(2).padding(1)),
        (vec![10, 13], vec![3, 4], Window::new(2).stride(3).dilation(2)),
        (vec![1, 1], vec![1, 1], Window::new(2)),
        (vec![12], vec![5], Window::new(1).stride(2).padding(2)),
        (vec![4, 5, 6], vec![2, 3, 2], Window::new(3).stride(2).padding(1)),
    ]
}

#[test]
fn convolutions_and_their_gradients() {
    for device in devices() {
        for dtype in FLOATS {
            // Core's definition views windows on nine axes in three dimensions, which is one too
            // many; see the test below.
            for (input, kernel, window) in
                windows().into_iter().filter(|(input, ..)| input.len() < 3)
            {
                for groups in [1, 2] {
                    let mut window = window.clone();
                    window.groups = groups;
                    let x = sample(&[&[3, 4], &input[..]].concat(), dtype, 3);
                    let w = sample(&[&[6, 4 / groups], &kernel[..]].concat(), dtype, 4);
                    let (xd, wd) = (x.to(&device).unwrap(), w.to(&device).unwrap());
                    let want = x.conv(&w, &window).unwrap();
                    let what = format!("{dtype} {input:?} {kernel:?} {window:?}");
                    near(&xd.conv(&wd, &window).unwrap(), &want, &what);
                    let flipped = xd.flip([2]).unwrap().copy().unwrap().flip([2]).unwrap();
                    near(&flipped.conv(&wd, &window).unwrap(), &want, &what);

                    let g = sample(want.shape(), dtype, 5);
                    let gd = g.to(&device).unwrap();
                    if dtype.size() >= 4 {
                        // The definition rounds 16-bit sums at every window position, so only
                        // wide types compare closely.
                        let want = input_grad(&g, &w, &window, &x);
                        near(&input_grad(&gd, &wd, &window, &xd), &want, &what);
                    }
                    let want = weight_grad(&g, &x, &window, &w);
                    near(&weight_grad(&gd, &xd, &window, &wd), &want, &what);
                }
            }
        }
    }
}

#[test]
fn windows_of_three_by_three_take_winograds_way_to_the_same_values() {
    use teeny_cpu::{Cpu, CpuOptions};
    let exactly = Cpu::with_options(CpuOptions::new().with_winograd(false));
    for device in devices() {
        // images, channels in and out of a group, groups, height and width, padding
        let cases = [
            (1, 12, 12, 1, [3, 3], [0, 0]),
            (2, 16, 32, 1, [8, 8], [1, 1]),
            (3, 20, 17, 1, [5, 13], [2, 0]),
            (2, 13, 16, 2, [4, 27], [0, 2]),
            (1, 33, 12, 1, [1, 2], [1, 2]),
            (5, 64, 48, 1, [29, 30], [1, 1]),
            (1, 16, 16, 1, [6, 6], [3, 3]),
        ];
        for (images, inputs, outputs, groups, size, padding) in cases {
            let what = format!(
                "{images} images, {groups} x {inputs} to {outputs}, {size:?} padded by {padding:?} on {device:?}"
            );
            let window = Window {
                stride: vec![1; 2],
                padding: padding.to_vec(),
                dilation: vec![1; 2],
                groups,
            };
            let x =
                Tensor::randn((images, groups * inputs, size[0], size[1]), DType::F32, &exactly)
                    .unwrap();
            let w = Tensor::randn((groups * outputs, inputs, 3, 3), DType::F32, &exactly).unwrap();
            let want = x.conv(&w, &window).unwrap();
            let g = Tensor::randn(want.shape(), DType::F32, &exactly).unwrap();
            let [xd, wd, gd] = [&x, &w, &g].map(|t| t.to(&device).unwrap());
            near(&xd.conv(&wd, &window).unwrap(), &want, &what);
            let want = input_grad(&g, &w, &window, &x);
            near(&input_grad(&gd, &wd, &window, &xd), &want, &what);
            let want = weight_grad(&g, &x, &window, &w);
            near(&weight_grad(&gd, &xd, &window, &wd), &want, &what);
        }
    }
}

#[test]
fn a_convolution_in_three_dimensions() {
    let device = teeny_cpu::Cpu::new();
    let (x, w) = (sample(&[2, 2, 4, 5, 6], DType::F64, 8), sample(&[3, 2, 2, 3, 2], DType::F64, 9));
    let window = Window::new(3).stride(2).padding(1);
    let y = x.to(&device).unwrap().conv(&w.to(&device).unwrap(), &window).unwrap();
    let (xs, ws) = (x.to_vec::<f64>().unwrap(), w.to_vec::<f64>().unwrap());
    let [depth, height, width] = [y.shape()[2], y.shape()[3], y.shape()[4]];
    for (i, got) in y.to_vec::<f64>().unwrap().into_iter().enumerate() {
        let (n, o) = (i / (3 * depth * height * width), i / (depth * height * width) % 3);
        let (a, b, c) = (i / (height * width) % depth, i / width % height, i % width);
        let mut want = 0.0;
        for k in 0..2 * 2 * 3 * 2 {
            let (ch, ka, kb, kc) = (k / 12, k / 6 % 2, k / 2 % 3, k % 2);
            let (p, q, r) = (2 * a + ka, 2 * b + kb, 2 * c + kc);
            if (1..=4).contains(&p) && (1..=5).contains(&q) && (1..=6).contains(&r) {
                want += xs[(((n * 2 + ch) * 4 + p - 1) * 5 + q - 1) * 6 + r - 1] * ws[o * 24 + k];
            }
        }
        assert!((got - want).abs() < 1e-12, "element {i}: {got} not {want}");
    }
}

#[test]
fn pooling_and_its_gradient() {
    for device in devices() {
        for dtype in [DType::F16, DType::F32, DType::F64, DType::I32, DType::U8] {
            for (input, kernel, window) in windows() {
                if kernel.iter().zip(&window.padding).any(|(k, p)| p * 2 > *k) {
                    continue;
                }
                let x = sample(&[&[2, 3], &input[..]].concat(), DType::F32, 6).cast(dtype).unwrap();
                let xd = x.to(&device).unwrap();
                let what = format!("{dtype} {input:?} {kernel:?} {window:?}");
                let (want, got) = (
                    x.max_pool_indices(&kernel, &window).unwrap(),
                    xd.max_pool_indices(&kernel, &window).unwrap(),
                );
                near(&got.0, &want.0, &what);
                close(
                    &got.1.to_scalars().unwrap(),
                    &want.1.to_scalars().unwrap(),
                    DType::I32,
                    0.0,
                    &what,
                );
                if dtype.is_float() {
                    near(
                        &xd.avg_pool(&kernel, &window).unwrap(),
                        &x.avg_pool(&kernel, &window).unwrap(),
                        &what,
                    );
                    let g = sample(want.0.shape(), dtype, 7);
                    let gradient = |g: &Tensor, positions: &Tensor| {
                        let (x_shape, spatial) = (x.shape(), input.len());
                        let op = Op::MaxPoolGrad { g, positions, x_shape, spatial };
                        op.tensor(g.device()).unwrap()
                    };
                    let got = gradient(&g.to(&device).unwrap(), &got.1);
                    near(&got, &gradient(&g, &want.1), &what);
                }
            }
        }
        let x = Tensor::new([[[1f32, f32::NAN, 3.0, f32::NAN]]], &device).unwrap();
        let (values, positions) = x.max_pool_indices(&[4], &Window::new(1)).unwrap();
        assert!(values.item::<f32>().unwrap().is_nan());
        assert_eq!(positions.item::<i32>().unwrap(), 1);
    }
}
