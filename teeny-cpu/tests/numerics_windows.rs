//! Rounding errors of convolutions and attention against f64, at every level: each bound that the
//! documentation of `Tensor` states.

use crate::common::bounds::{Random, U, product_bound, to_f64, within};
use crate::common::devices;
use std::sync::Arc;
use teeny_core::{Attention, DType, Tensor, Window};
use teeny_cpu::{Cpu, CpuOptions};

/// x (n, inputs, h, w) with windows (outputs, inputs, 3, 3) padded by 1, and the gradient for the
/// input of `conv`.
fn three_by_three(x: &Tensor, w: &Tensor) -> [Tensor; 2] {
    let window = Window::new(2).padding(1);
    let y = x.conv(w, &window).unwrap();
    let back = w.transpose(0, 1).unwrap().copy().unwrap();
    let gradient = x.conv_transpose(&back, &window, &x.shape()[2..]).unwrap();
    [y, gradient]
}

/// `Σ |w|` of an output's windows times the largest `Σ_c |x|` that each window sees.
fn seen(x: &Tensor, w: &Tensor) -> Tensor {
    let sizes = to_f64(x).abs().unwrap().sum_keepdim(1).unwrap();
    let seen = sizes.max_pool(&[3, 3], &Window::new(2).padding(1)).unwrap();
    let weights =
        to_f64(w).abs().unwrap().max([1, 2, 3]).unwrap().reshape((1, w.shape()[0], 1, 1)).unwrap();
    seen.mul(&weights).unwrap()
}

#[test]
fn a_large_pixel_disturbs_only_windows_that_see_it() {
    for device in devices() {
        let x = Tensor::randn((2, 16, 32, 32), DType::F32, &device).unwrap();
        let w = Tensor::randn((16, 16, 3, 3), DType::F32, &device).unwrap();
        let at = |value: f32| {
            let mut values = x.to_vec::<f32>().unwrap();
            values[(16 + 3) * 1024 + 13 * 32 + 14] = value;
            Tensor::from_slice(&values, (2, 16, 32, 32), &device).unwrap()
        };
        for value in [1e6, 1e30, f32::INFINITY, f32::NAN] {
            let (odd, even) = (at(value), at(0.0));
            for (direction, (odd, even)) in
                three_by_three(&odd, &w).into_iter().zip(three_by_three(&even, &w)).enumerate()
            {
                let (odd, even) = (odd.to_vec::<f32>().unwrap(), even.to_vec::<f32>().unwrap());
                let mut spoilt = 0;
                for (i, (odd, even)) in odd.iter().zip(&even).enumerate() {
                    let (image, row, column) = (i / 16384, i / 32 % 32, i % 32);
                    if image == 1 && (12..=14).contains(&row) && (13..=15).contains(&column) {
                        spoilt += usize::from(!odd.is_finite());
                    } else {
                        assert!(
                            (odd - even).abs() <= 4e-4,
                            "{value} {direction} {device:?}: element {i} is {odd}, not {even}"
                        );
                    }
                }
                assert_eq!(
                    spoilt,
                    if value.is_finite() { 0 } else { 9 * 16 },
                    "{value} {direction} {device:?}"
                );
            }
        }
    }
}

#[test]
fn three_by_three_convolutions_within_what_their_windows_see() {
    let mut random = Random(23);
    let exact = Cpu::with_options(CpuOptions::new().with_winograd(false));
    for device in devices() {
        for case in 0..12 {
            let (inputs, outputs) = (12 + random.size(40), 12 + random.size(40));
            let (height, width) = (1 + random.size(30), 1 + random.size(40));
            let shape = [1 + case % 2, inputs, height, width];
            let mut x = random.tensor(&shape, &device);
            // Patches of zeros and of other sizes.
            let scale: Vec<f32> = (0..height * width)
                .map(|i| match (i / width / 7 + i % width / 5 + case) % 4 {
                    0 => 0.0,
                    1 => 1e-3,
                    2 => 300.0,
                    _ => 1.0,
                })
                .collect();
            if case % 3 > 0 {
                x = x
                    .mul(Tensor::from_slice(&scale, (1, 1, height, width), &device).unwrap())
                    .unwrap();
            }
            let w = Tensor::randn((outputs, inputs, 3, 3), DType::F32, &device).unwrap();
            let bound = seen(&x, &w);
            let want =
                three_by_three(&to_f64(&x).to(&exact).unwrap(), &to_f64(&w).to(&exact).unwrap());
            for (direction, (got, want)) in three_by_three(&x, &w).iter().zip(&want).enumerate() {
                let what = format!("case {case}.{direction} {shape:?} to {outputs} {device:?}");
                // conv_transpose uses the windows rotated, whose largest tap is the same.
                within(&got.to(&exact).unwrap(), want, 6e-4, &bound.to(&exact).unwrap(), &what);
            }
        }
    }
}

#[test]
fn convolutions_by_columns_and_gradients_of_windows() {
    let mut random = Random(29);
    for device in devices() {
        for case in 0..10 {
            let (inputs, outputs) = (1 + random.size(40), 1 + random.size(30));
            let (height, width) = (6 + random.size(30), 6 + random.size(60));
            let images = 1 + random.size(12);
            let side = 2 + random.size(3);
            let window = Window::new(2).padding(1).stride(1 + case % 2);
            let x = random.tensor(&[images, inputs, height, width], &device);
            let w = random.tensor(&[outputs, inputs, side, side], &device);
            let what = format!("case {case} {:?} {:?} {device:?}", x.shape(), w.shape());
            let (y, want) =
                (x.conv(&w, &window).unwrap(), to_f64(&x).conv(&to_f64(&w), &window).unwrap());
            let sizes = [&x, &w].map(|t| to_f64(t).abs().unwrap());
            let scale = sizes[0].conv(&sizes[1], &window).unwrap();
            if side != 3 || case % 2 == 1 {
                within(&y, &want, product_bound(inputs * side * side), &scale, &what);
            }
            let g = random.tensor(y.shape(), &device);
            let got = g.conv_weight_grad(&x, &window, w.shape()).unwrap();
            let want = to_f64(&g).conv_weight_grad(&to_f64(&x), &window, w.shape()).unwrap();
            let scale =
                to_f64(&g).abs().unwrap().conv_weight_grad(&sizes[0], &window, w.shape()).unwrap();
            // Winograd's is relative to the largest of a window's taps.
            let scale = if side == 3 { scale.max_keepdim([2, 3]).unwrap() } else { scale };
            let terms = images * y.shape()[2] * y.shape()[3];
            within(&got, &want, product_bound(terms) + 4e-5, &scale, &format!("windows {what}"));
        }
    }
}

#[test]
fn a_window_gradient_keeps_infinities_where_they_are() {
    let exact = Cpu::with_options(CpuOptions::new().with_winograd(false));
    let mut x =
        Tensor::randn((1, 16, 12, 12), DType::F32, &exact).unwrap().to_vec::<f32>().unwrap();
    x[5 * 144] = f32::INFINITY; // a corner, which only some taps see
    let g = Tensor::ones((1, 16, 12, 12), DType::F32, &exact).unwrap();
    let x = Tensor::from_slice(&x, (1, 16, 12, 12), &exact).unwrap();
    let w = Tensor::ones((16, 16, 3, 3), DType::F32, &exact).unwrap();
    let window = Window::new(2).padding(1);
    let infinite = |device: &Arc<Cpu>| {
        let [g, x] = [&g, &x].map(|t| t.to(device).unwrap());
        let y = g.conv_weight_grad(&x, &window, w.shape()).unwrap().to_vec::<f32>().unwrap();
        y.iter().map(|y| (y.is_infinite(), y.is_nan())).collect::<Vec<_>>()
    };
    for device in devices() {
        assert_eq!(infinite(&device), infinite(&exact), "{device:?}");
    }
    let mut odd =
        Tensor::randn((16, 16, 3, 3), DType::F32, &exact).unwrap().to_vec::<f32>().unwrap();
    odd[100] = f32::NEG_INFINITY;
    let odd = Tensor::from_slice(&odd, (16, 16, 3, 3), &exact).unwrap();
    let want = three_by_three(&g, &odd).map(|y| y.to_vec::<f32>().unwrap());
    for device in devices() {
        let [g, odd] = [&g, &odd].map(|t| t.to(&device).unwrap());
        for (got, want) in three_by_three(&g, &odd).iter().zip(&want) {
            let got = got.to_vec::<f32>().unwrap();
            assert!(
                got.iter()
                    .zip(want)
                    .all(|(a, b)| a.is_finite() == b.is_finite() && a.is_nan() == b.is_nan()),
                "{device:?}"
            );
        }
    }
}

#[test]
fn attention_over_many_keys() {
    let mut random = Random(31);
    for device in devices() {
        for (t, s, hs, hv) in [(1, 100_000, 16, 8), (3, 5_000, 64, 32), (40, 700, 20, 7)] {
            let q = Tensor::randn((1, t, hs), DType::F32, &device).unwrap();
            let k = Tensor::randn((1, s, hs), DType::F32, &device).unwrap().mul(0.3f32).unwrap();
            let v = random.tensor(&[1, s, hv], &device);
            let options = Attention::full();
            let got = q.attention(&k, &v, None, &options).unwrap();
            let want = to_f64(&q).attention(&to_f64(&k), &to_f64(&v), None, &options).unwrap();
            let scale = to_f64(&q)
                .attention(&to_f64(&k), &to_f64(&v).abs().unwrap(), None, &options)
                .unwrap();
            let sizes = to_f64(&q)
                .abs()
                .unwrap()
                .matmul(&to_f64(&k).abs().unwrap().transpose(1, 2).unwrap())
                .unwrap();
            let largest = sizes.max_all().unwrap().item::<f64>().unwrap() / (hs as f64).sqrt();
            let bound = (2.0 * (hs as f64 + 8.0) * largest + 600.0 + s as f64 / 192.0) * U;
            within(&got, &want, bound, &scale, &format!("{t} {s} {hs} {hv} {device:?}"));
        }
    }
}
