//! Convolutions and both gradients over random windows, at every level, against `Reference` in f64:
//! sizes are drawn so that every algorithm of `conv/select` and every split of its tasks is met.

use crate::common::bounds::{Random, U, product_bound, within};
use std::sync::Arc;
use teeny_core::{DType, Reference, Tensor, Window};
use teeny_cpu::{Cpu, CpuOptions, FloatMatmul, Level};

/// One convolution: the shapes of x and of the weight.
struct Case {
    x: Vec<usize>,
    weight: Vec<usize>,
    window: Window,
}

/// A size: mostly small.
fn pick<const N: usize>(random: &mut Random, sizes: [usize; N]) -> usize {
    sizes[random.next() as usize % N]
}

fn draw(random: &mut Random) -> Case {
    loop {
        let axes = pick(random, [1, 2, 2, 2, 2, 3]);
        let (groups, inputs, outputs) = match random.next() % 6 {
            0 | 1 => (1, pick(random, [1, 2, 3, 8, 17, 64, 130]), random.size(90)),
            2 => (pick(random, [2, 3, 16, 40]), 1, pick(random, [1, 1, 2, 3])),
            3 => (pick(random, [2, 4]), random.size(9), random.size(20)),
            4 => (1, random.size(70), pick(random, [1, 2, 4, 5, 8])),
            _ => (1, random.size(40), random.size(40)),
        };
        let images = pick(random, [1, 1, 2, 3, 5, 9, 70]);
        let mut list = |sizes: [usize; 8]| -> Vec<i64> {
            (0..axes).map(|_| pick(random, sizes) as i64).collect()
        };
        let (kernel, stride) = (list([1, 2, 3, 3, 3, 4, 5, 7]), list([1, 1, 1, 1, 2, 2, 3, 4]));
        let (dilation, padding) = (list([1, 1, 1, 1, 1, 2, 3, 5]), list([0, 0, 0, 1, 1, 2, 3, 4]));
        let window =
            Window::new(axes).stride(stride).padding(padding).dilation(dilation).groups(groups);
        let sizes = (0..axes).map(|_| pick(random, [1, 2, 3, 4, 5, 7, 9, 14, 17, 20, 33, 70]));
        let x = [&[images, groups * inputs][..], &sizes.collect::<Vec<_>>()].concat();
        let kernel = kernel.iter().map(|&k| k as usize);
        let weight = [&[groups * outputs, inputs][..], &kernel.collect::<Vec<_>>()].concat();
        let mut muls: usize = weight.iter().product::<usize>() * images;
        let fits = (0..axes).all(|a| {
            let reach = window.dilation[a] * (weight[a + 2] - 1) + 1;
            let padded = x[a + 2] + 2 * window.padding[a];
            muls *= padded.saturating_sub(reach) / window.stride[a] + 1;
            reach <= padded
        });
        if fits && muls <= 700_000 {
            return Case { x, weight, window };
        }
    }
}

/// x, weight and g on `device`, and the three operations on them.
fn run(device: &Arc<Cpu>, dtype: DType, case: &Case, random: &mut Random) {
    let Case { x, weight, window } = case;
    // Sums of the largest values are beyond the range of f16.
    let values = |random: &mut Random, shape: &[usize]| match dtype {
        DType::F16 => {
            let n = shape.iter().product();
            let values: Vec<f32> = (0..n).map(|_| random.uniform() as f32 - 0.3).collect();
            Tensor::from_slice(&values, shape, device).unwrap()
        }
        _ => random.tensor(shape, device),
    };
    let cast = |t: &Tensor, dtype| t.cast(dtype).unwrap();
    let (x, w) = (values(random, x), values(random, weight));
    let (x, w) = (cast(&x, dtype), cast(&w, dtype));
    let y = x.conv(&w, window).unwrap();
    let g = cast(&values(random, y.shape()), dtype);
    let reference = Reference::new();
    let exact = |t: &Tensor| cast(t, DType::F64).to(&reference).unwrap();
    let all = |x: &Tensor, w: &Tensor, g: &Tensor| {
        let d_x = g.conv_transpose(w, window, &x.shape()[2..]).unwrap();
        [x.conv(w, window).unwrap(), d_x, g.conv_weight_grad(x, window, w.shape()).unwrap()]
    };
    let want = all(&exact(&x), &exact(&w), &exact(&g));
    let abs = |t: &Tensor| exact(t).abs().unwrap();
    let scale = all(&abs(&x), &abs(&w), &abs(&g));
    let unit = match dtype {
        DType::F64 => U / (1u64 << 29) as f64,
        DType::BF16 => (1 << 16) as f64 * U,
        DType::F16 => (1 << 13) as f64 * U,
        _ => U,
    };
    for (i, got) in all(&x, &w, &g).iter().enumerate() {
        let taps: usize = w.shape()[2..].iter().product();
        let k = match i {
            0 => w.shape()[1] * taps,
            1 => w.shape()[0] / window.groups * taps,
            _ => y.shape()[0] * y.shape()[2..].iter().product::<usize>(),
        };
        let bound = match dtype {
            DType::F64 => product_bound(k) * (unit / U),
            _ => product_bound(k) + unit,
        };
        let what = format!("{i} {dtype} x {:?} w {:?} {window:?} {device:?}", x.shape(), w.shape());
        let got = got.to(&reference).unwrap();
        // Half the distance of subnormal numbers of f16.
        let least = if dtype == DType::F16 { 3e-8 } else { 0.0 };
        let scale = [0, 1, 2].map(|i| scale[i].add(least / bound).unwrap());
        within(&got, &want[i], bound, &scale[i], &what);
    }
}

#[test]
fn random_windows_agree_with_the_oracle_at_every_level() {
    for level in Level::available() {
        let options = CpuOptions::new().with_level(level).with_winograd(false);
        let device = Cpu::with_options(options);
        let mut random = Random(41 + level as u64);
        for case in 0..150 {
            let dtype = match case % 8 {
                0 => DType::F64,
                1 => DType::BF16,
                2 => DType::F16,
                _ => DType::F32,
            };
            run(&device, dtype, &draw(&mut random), &mut random);
        }
    }
}

#[test]
fn random_windows_agree_with_the_oracle_by_the_gemm_crate() {
    let options = CpuOptions::new().with_float_matmul(FloatMatmul::GemmCrate).with_winograd(false);
    let (device, mut random) = (Cpu::with_options(options), Random(43));
    for _ in 0..40 {
        run(&device, DType::F32, &draw(&mut random), &mut random);
    }
}

#[test]
fn results_have_the_same_bits_on_any_number_of_threads() {
    let (device, mut random) = (Cpu::new(), Random(47));
    for _ in 0..60 {
        let Case { x, weight, window } = draw(&mut random);
        let (x, w) = (random.tensor(&x, &device), random.tensor(&weight, &device));
        let g = random.tensor(x.conv(&w, &window).unwrap().shape(), &device);
        let all = || {
            let y = x.conv(&w, &window).unwrap();
            let d_x = g.conv_transpose(&w, &window, &x.shape()[2..]).unwrap();
            let d_w = g.conv_weight_grad(&x, &window, w.shape()).unwrap();
            [y, d_x, d_w].map(|t| t.to_vec::<f32>().unwrap())
        };
        let on = |threads: usize| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(all)
        };
        let (one, four) = (on(1), on(4));
        for (one, four) in one.iter().zip(&four) {
            let same = one.iter().zip(four).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{:?} {:?} {window:?}", x.shape(), w.shape());
        }
    }
}

/// Padding times a NaN weight is NaN, although only that tap sees it.
#[test]
fn padding_times_what_is_not_finite_is_nan() {
    for level in Level::available() {
        let device = Cpu::with_options(CpuOptions::new().with_level(level));
        let (one, reference) = (Tensor::new([1.0f32], &device).unwrap(), Reference::new());
        for (x, w, window) in [
            // A window that sees only padding; one row; depthwise; many channels on one pixel.
            (vec![1, 1, 1], vec![2, 1, 1], Window::new(1).stride(4).padding(1)),
            (vec![1, 4, 1, 15], vec![8, 4, 3, 3], Window::new(2).padding(1)),
            (vec![2, 16, 4, 5], vec![16, 1, 3, 3], Window::new(2).padding(1).groups(16)),
            (vec![2, 64, 1, 1], vec![70, 64, 3, 3], Window::new(2).padding(1)),
        ] {
            let n: usize = w.iter().product();
            let values: Vec<f32> = (0..n).map(|i| if i == 1 { f32::NAN } else { 0.5 }).collect();
            let x = one.reshape(vec![1; x.len()]).unwrap().expand(x).unwrap().copy().unwrap();
            let w = Tensor::from_slice(&values, w, &device).unwrap();
            let [got, want] = [
                x.conv(&w, &window).unwrap(),
                x.to(&reference).unwrap().conv(&w.to(&reference).unwrap(), &window).unwrap(),
            ];
            let nans = |t: &Tensor| -> Vec<bool> {
                t.to_vec::<f32>().unwrap().iter().map(|v| v.is_nan()).collect()
            };
            assert_eq!(nans(&got), nans(&want), "{:?} {window:?} {device:?}", x.shape());
            // The gradient of the input, which pairs no filter with padding.
            let ones = got.ones_like().unwrap();
            let d = ones.conv_transpose(&w, &window, &x.shape()[2..]).unwrap();
            let exact = ones.to(&reference).unwrap();
            let exact =
                exact.conv_transpose(&w.to(&reference).unwrap(), &window, &x.shape()[2..]).unwrap();
            assert_eq!(nans(&d), nans(&exact), "{:?} {window:?} {device:?}", x.shape());
            // The gradient of the filters, of a gradient that is not finite.
            let g = got.mul(f32::INFINITY).unwrap();
            let on_reference = g.to(&reference).unwrap();
            let d = g.conv_weight_grad(&x, &window, w.shape()).unwrap();
            let x = x.to(&reference).unwrap();
            let exact = on_reference.conv_weight_grad(&x, &window, w.shape()).unwrap();
            assert_eq!(nans(&d), nans(&exact), "{:?} {window:?} {device:?}", x.shape());
        }
    }
}
