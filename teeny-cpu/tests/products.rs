//! Matrix products against the `Reference` device and against products of integers, over layouts,
//! types and levels.

use crate::common::*;
use teeny_core::{DType, Device, Reference, Tensor};
use teeny_cpu::Cpu;

#[test]
fn products_of_every_type_and_layout() {
    for device in devices() {
        for dtype in DType::ALL.into_iter().filter(|&t| t != DType::Bool) {
            for (m, k, n) in
                [(1, 1, 1), (3, 5, 4), (1, 17, 33), (17, 40, 1), (0, 3, 2), (3, 0, 2), (70, 65, 66)]
            {
                let (a, b) = (sample(&[2, m, k], dtype), sample(&[k, n], dtype));
                let want = a.matmul(&b).unwrap();
                for (la, x) in layouts(&a.to(&device).unwrap()) {
                    for (lb, y) in layouts(&b.to(&device).unwrap()) {
                        let what = format!("{dtype} {m}x{k}x{n} {la} {lb} {device:?}");
                        same(&x.matmul(&y).unwrap(), &want, 4.0, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_transposed_operand_is_not_copied() {
    let device = devices().pop().unwrap();
    let (a, b) = (
        sample(&[96, 80], DType::F32).to(&device).unwrap(),
        sample(&[64, 80], DType::F32).to(&device).unwrap(),
    );
    let before = device.stats();
    let c = a.matmul(&b.t().unwrap()).unwrap();
    let after = device.stats();
    assert_eq!(after.allocations - before.allocations, 1, "only the result is allocated");
    assert_eq!(c.shape(), &[96, 64]);
}

#[test]
fn large_products_are_right_in_every_tile() {
    for device in devices() {
        let sizes = [
            (250, 130, 700),
            (1, 3000, 900),
            (900, 3000, 1),
            (500, 64, 513),
            (32, 500, 300),
            (33, 1000, 70),
            (7, 390, 4100),
            (530, 400, 70),
        ];
        for (m, k, n) in sizes {
            let (a, b) = (
                sample(&[m, k], DType::F32).to(&device).unwrap(),
                sample(&[k, n], DType::F32).to(&device).unwrap(),
            );
            let exact = a
                .cast(DType::I64)
                .unwrap()
                .matmul(&b.cast(DType::I64).unwrap())
                .unwrap()
                .cast(DType::F32)
                .unwrap();
            same(&a.matmul(&b).unwrap(), &exact, 0.0, "small integers are exact");
            same(
                &a.t().unwrap().copy().unwrap().t().unwrap().matmul(&b).unwrap(),
                &exact,
                0.0,
                "transposed",
            );
            same(
                &a.matmul(&b.t().unwrap().copy().unwrap().t().unwrap()).unwrap(),
                &exact,
                0.0,
                "right side transposed",
            );
            let (a, b) = (a.cast(DType::F64).unwrap(), b.cast(DType::F64).unwrap());
            same(&a.matmul(&b).unwrap(), &exact.cast(DType::F64).unwrap(), 0.0, "f64");
        }
    }
}

/// A vector meets the rows of a large matrix one by one, the rows of a small one four by four:
/// sizes on both sides of that, and rows that end within a vector.
#[test]
fn a_vector_times_matrices_of_any_size() {
    let oracle = Reference::new();
    for device in devices() {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            for (n, k) in [(37, 130), (260, 1027), (513, 517), (900, 301), (131, 4099)] {
                let make = |shape: (usize, usize)| {
                    Tensor::randn(shape, DType::F32, &device).unwrap().cast(dtype).unwrap()
                };
                let (x, rows) = (make((1, k)), make((n, k)));
                let (x64, rows64) = (x.to(&oracle).unwrap(), rows.to(&oracle).unwrap());
                let (x64, rows64) =
                    (x64.cast(DType::F64).unwrap(), rows64.cast(DType::F64).unwrap());
                let want = x64.matmul(&rows64.t().unwrap()).unwrap().to_scalars().unwrap();
                let got = x.matmul(&rows.t().unwrap()).unwrap().to_scalars().unwrap();
                let turned = rows.matmul(&x.t().unwrap()).unwrap().to_scalars().unwrap();
                let relative = match dtype {
                    DType::BF16 => 1.0 / 256.0,
                    DType::F16 => 1.0 / 2048.0,
                    _ => 0.0,
                };
                // Sums of k products of about 1.
                let unit = if dtype == DType::F64 { 4e-16 } else { 1e-7 };
                for (values, side) in [(got, "left"), (turned, "right")] {
                    for (got, want) in values.iter().zip(&want) {
                        let (got, want) = (got.to_f64(), want.to_f64());
                        let bound = want.abs() * relative + unit * k as f64;
                        let what = format!("{dtype} ({n}, {k}) {side} at {device:?}");
                        assert!((got - want).abs() <= bound, "{what}: {got} is not {want}");
                    }
                }
            }
        }
    }
}

/// Decoding with a model of 16-bit weights: rows are converted block by block, so sizes
/// around a block and leading axes of 1 matter.
#[test]
fn a_vector_times_16_bit_weights() {
    let oracle = Reference::new();
    for device in devices() {
        for dtype in [DType::BF16, DType::F16] {
            for k in [1, 7, 511, 512, 513, 1300] {
                let make = |shape: &[usize]| {
                    Tensor::randn(shape, DType::F32, &device).unwrap().cast(dtype).unwrap()
                };
                let (x, weight) = (make(&[1, 1, k]), make(&[37, k]));
                let to_f64 = |t: &Tensor| t.to(&oracle).unwrap().cast(DType::F64).unwrap();
                let want = to_f64(&x)
                    .matmul(&to_f64(&weight).t().unwrap())
                    .unwrap()
                    .cast(dtype)
                    .unwrap()
                    .to_scalars()
                    .unwrap();
                // a sum of k products in f32 strays by less than a rounding to 16 bits, but where
                // it nearly cancels
                let near = |got: &Tensor| {
                    for (got, want) in got.to_scalars().unwrap().iter().zip(&want) {
                        let (got, want) = (got.to_f64(), want.to_f64());
                        assert!(
                            (got - want).abs() <= want.abs() / 128.0 + 1e-4 * k as f64,
                            "{dtype} {k}: {got} is not {want}"
                        );
                    }
                };
                let y = x.matmul(&weight.t().unwrap()).unwrap();
                assert_eq!((y.shape()[..].to_vec(), y.dtype()), (vec![1, 1, 37], dtype));
                near(&y);
                // and from the other side, with gaps between the rows
                let gaps =
                    Tensor::cat(&[&weight, &weight], 1).unwrap().slice(1, k as isize..).unwrap();
                near(&gaps.matmul(&x.reshape((k, 1)).unwrap()).unwrap());
            }
        }
    }
}

/// Random products of 16-bit floats, of every order of strides: whole numbers of tiles, panels and
/// pairs or not, and numbers so small that pairs of bf16 may not be multiplied as such.
#[test]
fn products_of_16_bit_floats_round_once() {
    let mut random = bounds::Random(11);
    for device in devices() {
        for case in 0..160 {
            let dtype = [DType::BF16, DType::F16][case % 2];
            let few = case % 3 == 0;
            let (m, k, n) = match few {
                true => (random.size(12), random.size(1500), random.size(300)),
                false => (random.size(90), random.size(700), random.size(200)),
            };
            // Products of about 1, of numbers that are subnormal in part.
            let tiny = dtype == DType::BF16 && case % 5 == 0;
            let mut operand = |shape: &[usize], scale: f64| {
                let x = Tensor::randn(shape, DType::F64, &device).unwrap();
                let x = x.mul(scale).unwrap().cast(dtype).unwrap();
                match random.next() % 4 {
                    0 => x.t().unwrap().copy().unwrap().t().unwrap(),
                    1 => {
                        let twice = Tensor::cat(&[&x, &x], 1).unwrap();
                        twice.slice(1, 1..1 + x.shape()[1] as isize).unwrap()
                    }
                    2 if few => {
                        let pairs = Tensor::stack(&[&x, &x], 2).unwrap();
                        pairs.slice(2, ..1).unwrap().squeeze(2).unwrap()
                    }
                    _ => x,
                }
            };
            let small = if tiny { 2f64.powi(-124) } else { 1.0 };
            let (a, b) = (operand(&[m, k], small), operand(&[k, n], 1.0 / small));
            let (x, y) = (bounds::to_f64(&a), bounds::to_f64(&b));
            let want = x.matmul(&y).unwrap();
            let scale = x.abs().unwrap().matmul(&y.abs().unwrap()).unwrap();
            let got = a.matmul(&b).unwrap();
            assert_eq!((got.dtype(), got.shape()), (dtype, want.shape()));
            let unit = if dtype == DType::BF16 { 2f64.powi(-8) } else { 2f64.powi(-11) };
            let [got, want, scale] = [&got, &want, &scale].map(bounds::f64s);
            for i in 0..want.len() {
                let most = unit * want[i].abs() + bounds::product_bound(k) * scale[i] + 1e-7;
                let off = (got[i] - want[i]).abs();
                assert!(
                    off <= most,
                    "{dtype} {m}x{k}x{n} case {case}: element {i} is {}, not {} {device:?}",
                    got[i],
                    want[i]
                );
            }
        }
    }
}

#[test]
fn bits_of_16_bit_products_do_not_depend_on_the_threads() {
    let device = Cpu::new();
    for dtype in [DType::BF16, DType::F16] {
        for (m, k, n) in [(3, 700, 900), (70, 300, 800), (2, 4000, 500), (600, 1, 900)] {
            let x = |shape: &[usize]| {
                Tensor::randn(shape, DType::F32, &device).unwrap().cast(dtype).unwrap()
            };
            let (a, b, w) = (x(&[m, k]), x(&[k, n]), x(&[n, k]));
            let bits = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    [a.matmul(&b).unwrap(), a.matmul(&w.t().unwrap()).unwrap()]
                        .map(|y| bounds::f64s(&y))
                })
            };
            let one = bits(1);
            assert!(one == bits(2) && one == bits(5), "{dtype} {m} {k} {n}");
        }
    }
}
