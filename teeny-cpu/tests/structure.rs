//! Reductions, scans, sorting, indexing and moving against the `Reference` device, over layouts,
//! types and levels.

use crate::common::*;
use std::sync::Arc;
use teeny_core::{DType, Kernel, SortOrder, Tensor};

#[test]
fn every_reduction_over_every_set_of_axes() {
    let subsets: &[&[isize]] = &[&[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]];
    for device in devices() {
        for dtype in DType::ALL {
            for shape in [[3, 5, 4], [2, 70, 3], [1, 2, 130], [4, 1, 1], [2, 0, 3]] {
                let x = sample(&shape, dtype);
                for (layout, y) in layouts(&x.to(&device).unwrap()) {
                    for axes in subsets {
                        let axes = axes.to_vec();
                        let what = format!("{dtype} {shape:?} {layout} {axes:?}");
                        if dtype == DType::Bool {
                            same(
                                &y.any(axes.clone()).unwrap(),
                                &x.any(axes.clone()).unwrap(),
                                0.0,
                                &what,
                            );
                            same(&y.all(axes.clone()).unwrap(), &x.all(axes).unwrap(), 0.0, &what);
                            continue;
                        }
                        same(
                            &y.sum(axes.clone()).unwrap(),
                            &x.sum(axes.clone()).unwrap(),
                            1.0,
                            &what,
                        );
                        if shape[1] < 10 && shape[2] < 10 {
                            same(
                                &y.prod(axes.clone()).unwrap(),
                                &x.prod(axes.clone()).unwrap(),
                                1.0,
                                &what,
                            );
                        }
                        if x.numel() > 0 {
                            same(
                                &y.max(axes.clone()).unwrap(),
                                &x.max(axes.clone()).unwrap(),
                                0.0,
                                &what,
                            );
                            same(
                                &y.min(axes.clone()).unwrap(),
                                &x.min(axes.clone()).unwrap(),
                                0.0,
                                &what,
                            );
                            if let [axis] = axes[..] {
                                same(
                                    &y.argmax(axis).unwrap(),
                                    &x.argmax(axis).unwrap(),
                                    0.0,
                                    &what,
                                );
                                same(
                                    &y.argmin(axis).unwrap(),
                                    &x.argmin(axis).unwrap(),
                                    0.0,
                                    &what,
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn nan_wins_and_the_first_one_is_found() {
    for device in devices() {
        for n in [3usize, 40, 70, 1000, 70_000, 200_000] {
            for at in [0, n / 3, n - 1] {
                let mut v: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
                v[at] = f32::NAN;
                v[n - 1] = f32::NAN;
                let x = Tensor::from_vec(v, n, &device).unwrap();
                assert!(x.max(0).unwrap().item::<f32>().unwrap().is_nan());
                assert!(x.min(0).unwrap().item::<f32>().unwrap().is_nan());
                assert_eq!(x.argmax(0).unwrap().item::<i32>().unwrap(), at as i32, "n {n}");
                let columns = x.unsqueeze(1).unwrap().expand((n, 3)).unwrap().copy().unwrap();
                assert_eq!(
                    columns.argmin(0).unwrap().to_vec::<i32>().unwrap(),
                    [at as i32; 3],
                    "n {n}"
                );
            }
        }
        let low = Tensor::new([f32::NEG_INFINITY; 100], &device).unwrap();
        assert_eq!(low.argmax(0).unwrap().item::<i32>().unwrap(), 0);
        let x = Tensor::new([2.0f32, f32::NAN, f32::NEG_INFINITY, -0.0, f32::INFINITY], &device)
            .unwrap();
        let (values, positions) = x.sort(0, SortOrder::Ascending).unwrap();
        assert_eq!(positions.to_vec::<i32>().unwrap(), [2, 3, 0, 4, 1]);
        assert!(values.to_vec::<f32>().unwrap()[4].is_nan());
    }
}

#[test]
fn long_sums_are_exact() {
    for device in devices() {
        // 1e8 ones without 400 MB: a row of ones seen many times.
        let ones = Tensor::ones(100_000, DType::F32, &device)
            .unwrap()
            .unsqueeze(0)
            .unwrap()
            .expand((1000, 100_000))
            .unwrap();
        assert_eq!(ones.sum_all().unwrap().item::<f32>().unwrap(), 1e8);
        let tenths = Tensor::full(100_000, 0.1f32, DType::F32, &device)
            .unwrap()
            .unsqueeze(0)
            .unwrap()
            .expand((1000, 100_000))
            .unwrap();
        let mean = f64::from(tenths.mean_all().unwrap().item::<f32>().unwrap());
        assert!((mean / 0.1 - 1.0).abs() < 1e-6);
    }
}

#[test]
fn scans_sorts_gathers_and_scatters_match_the_reference() {
    let reference = oracle();
    for device in devices() {
        for dtype in DType::ALL {
            let x = sample(&[4, 7, 3], dtype);
            let index: Vec<i64> = (0..4 * 7 * 3).map(|i| (i * 5 % 7) as i64 % 3).collect();
            let index = Tensor::from_vec(index, (4, 7, 3), &reference).unwrap();
            for (layout, y) in layouts(&x.to(&device).unwrap()) {
                for axis in 0..3 {
                    let what = format!("{dtype} {layout} axis {axis}");
                    if dtype != DType::Bool {
                        same(&y.cumsum(axis).unwrap(), &x.cumsum(axis).unwrap(), 1.0, &what);
                    }
                    for order in [SortOrder::Ascending, SortOrder::Descending] {
                        let (got, want) =
                            (y.sort(axis, order).unwrap(), x.sort(axis, order).unwrap());
                        same(&got.0, &want.0, 0.0, &what);
                        same(&got.1, &want.1, 0.0, &what);
                    }
                    for (_, i) in layouts(&index.to(&device).unwrap()) {
                        same(
                            &y.gather(axis, &i).unwrap(),
                            &x.gather(axis, &index).unwrap(),
                            0.0,
                            &what,
                        );
                        same(
                            &y.scatter(axis, &i, &y).unwrap(),
                            &x.scatter(axis, &index, &x).unwrap(),
                            0.0,
                            &what,
                        );
                        if dtype != DType::Bool {
                            same(
                                &y.scatter_add(axis, &i, &y).unwrap(),
                                &x.scatter_add(axis, &index, &x).unwrap(),
                                1.0,
                                &what,
                            );
                            same(
                                &y.scatter_max(axis, &i, &y).unwrap(),
                                &x.scatter_max(axis, &index, &x).unwrap(),
                                0.0,
                                &what,
                            );
                            same(
                                &y.scatter_min(axis, &i, &y).unwrap(),
                                &x.scatter_min(axis, &index, &x).unwrap(),
                                0.0,
                                &what,
                            );
                        }
                    }
                }
                let rows = Tensor::new([3i32, 0, 3], &device).unwrap();
                let want =
                    x.index_select(0, &Tensor::new([3i32, 0, 3], &reference).unwrap()).unwrap();
                same(&y.index_select(0, &rows).unwrap(), &want, 0.0, "whole rows");
            }
        }
    }
}

#[test]
fn an_index_outside_is_an_error_that_names_it() {
    let device = teeny_cpu::Cpu::new();
    let x = Tensor::zeros((3, 4), DType::F32, &device).unwrap();
    let index = Tensor::new([[0i32, 1], [2, 3]], &device).unwrap();
    let error = x.gather(0, &index).unwrap_err();
    assert_eq!(error.kind(), teeny_core::ErrorKind::Index);
    assert!(
        error.to_string().contains("index[1, 1] is 3, but axis 0 has size 3 (0..=2)"),
        "{error}"
    );
    for axis in [0, 1] {
        let index = Tensor::new([0i32, 7, 9], &device).unwrap();
        let error = x.index_select(axis, &index).unwrap_err();
        assert!(error.message().starts_with("index[1] is 7, but axis"), "{error}");
    }
}

#[test]
fn copies_of_large_permutations_are_right() {
    for device in devices() {
        for dtype in [DType::F32, DType::U8, DType::F64, DType::F16] {
            let n = 67 * 45 * 53;
            let x = Tensor::arange(0i64, n, 1, &device)
                .unwrap()
                .cast(dtype)
                .unwrap()
                .reshape((67, 45, 53))
                .unwrap();
            for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let view = x.permute(order).unwrap();
                let got = view.copy().unwrap().to_scalars().unwrap();
                let flat = x.to_scalars().unwrap();
                assert!(
                    got.iter().zip(view.layout().positions()).all(|(g, p)| *g == flat[p]),
                    "{dtype} {order:?}"
                );
            }
        }
    }
}

#[test]
fn draws_have_the_reference_bits() {
    let (device, reference) = (teeny_cpu::Cpu::new(), oracle());
    let key = teeny_core::Key { seed: 5, draw: 9 };
    use teeny_core::Distribution::*;
    for (distribution, dtypes) in [
        (Uniform { low: -1.0, high: 3.0 }, &[DType::F16, DType::BF16, DType::F32, DType::F64][..]),
        (Normal { mean: 1.0, std: 2.0 }, &[DType::F32, DType::F64, DType::F16]),
        (Integer { low: -5, high: 100 }, &[DType::I8, DType::I32, DType::I64]),
        (Bernoulli { p: 0.3 }, &[DType::Bool]),
    ] {
        for &dtype in dtypes {
            let [a, b] = [
                Tensor::random(distribution, 40_003, dtype, key, &device).unwrap(),
                Tensor::random(distribution, 40_003, dtype, key, &reference).unwrap(),
            ];
            assert_eq!(a.to_bytes().unwrap(), b.to_bytes().unwrap(), "{distribution:?} {dtype}");
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let device: Arc<_> = devices().pop().unwrap();
    let x = Tensor::randn((1000, 777), DType::F32, &device).unwrap();
    // few threads pack the right operand in each tile, many before all tiles
    let tall = Tensor::randn((1700, 500), DType::F32, &device).unwrap();
    let wide = Tensor::randn((500, 650), DType::F32, &device).unwrap();
    let run = || -> Vec<Vec<u8>> {
        let results = [
            x.sum_all(),
            x.sum(0),
            x.sum(1),
            x.t().unwrap().sum(1),
            x.max(0),
            x.argmax(1),
            x.exp().unwrap().mul(&x),
            x.t().unwrap().matmul(&x),
            x.matmul(&x.t().unwrap()),
            tall.matmul(&wide),
            tall.matmul(&wide.t().unwrap().copy().unwrap().t().unwrap()),
            x.matmul(&x.at(0, 3).unwrap()),
            x.cumsum(0),
            x.t().unwrap().copy(),
            x.softmax(-1),
            x.var(0, 1),
        ];
        results.into_iter().map(|r| r.unwrap().to_bytes().unwrap()).collect()
    };
    let bits: Vec<_> = [1, 2, 3, 16, 64]
        .into_iter()
        .map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(run))
        .collect();
    for other in &bits[1..] {
        for (i, (a, b)) in bits[0].iter().zip(other).enumerate() {
            assert!(a == b, "result {i} differs");
        }
    }
}

#[test]
fn transposed_operands_larger_than_a_panel_meet_straight_ones() {
    for device in devices() {
        for dtype in [DType::U8, DType::I16, DType::BF16, DType::F32, DType::F64] {
            for shape in [vec![70, 600], vec![33, 17, 65], vec![3, 70, 4, 130], vec![9, 1100]] {
                let (x, straight) = (sample(&shape, dtype), sample(&shape, dtype));
                for (a, b) in [(0, shape.len() - 1), (shape.len() - 2, shape.len() - 1)] {
                    // The content of x, its axes a and b swapped in memory.
                    let swapped = x.transpose(a as isize, b as isize).unwrap().copy().unwrap();
                    let transposed =
                        swapped.to(&device).unwrap().transpose(a as isize, b as isize).unwrap();
                    let what = format!("{dtype} {shape:?} axes {a} and {b}");
                    same(
                        &transposed.add(straight.to(&device).unwrap()).unwrap(),
                        &x.add(&straight).unwrap(),
                        0.0,
                        &what,
                    );
                    same(&transposed.mul(&transposed).unwrap(), &x.mul(&x).unwrap(), 0.0, &what);
                    same(&transposed.copy().unwrap(), &x, 0.0, &what);
                }
            }
        }
    }
}

#[test]
fn kernels_read_rows_of_slices_where_they_lie() {
    let kernel = Arc::new(
        Kernel::build([DType::F32; 4], [], |[a, b, c, d], []| {
            [a * b + (c - d).tanh(), (a + d).relu() - b * c]
        })
        .unwrap(),
    );
    for device in devices() {
        for (rows, width) in
            [(1, 128), (3, 127), (40, 128), (33, 200), (70, 256), (9, 1000), (129, 515)]
        {
            let wide = sample(&[2, rows + 3, 4 * width + 7], DType::F32)
                .to(&device)
                .unwrap()
                .div(64.0)
                .unwrap();
            // Gates of rows, a band below another, a row for all, and the same for each of the
            // outer axis.
            let part = |from: usize, first: usize| {
                wide.slice(1, first..first + rows).unwrap().slice(2, from..from + width).unwrap()
            };
            let inputs = [
                part(0, 0),
                part(width + 3, 2),
                part(2 * width, 1).slice(1, 0..1).unwrap(),
                part(3 * width + 7, 0).slice(0, 0..1).unwrap(),
            ];
            let inputs = inputs.map(|x| x.expand([2, rows, width]).unwrap());
            let copies = inputs.each_ref().map(|x| x.contiguous().unwrap());
            let (got, want) = (
                kernel.run(&inputs.each_ref(), &[]).unwrap(),
                kernel.run(&copies.each_ref(), &[]).unwrap(),
            );
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(
                    got.to_vec::<f32>().unwrap(),
                    want.to_vec::<f32>().unwrap(),
                    "({rows}, {width})"
                );
            }
        }
    }
}
