//! Operations along an axis, on random shapes, axes, views and dtypes: against the `Reference`
//! device at every level, and with the same bits on one thread and on several.

use crate::common::*;
use std::sync::Arc;
use teeny_core::{DType, Extremum, Op, ReduceOp, Result, Tensor};
use teeny_cpu::Cpu;

impl Draw {
    /// Up to four axes of at most `most` elements in all.
    fn shape(&mut self, most: usize) -> Vec<usize> {
        let mut left = most;
        (0..1 + self.below(4))
            .map(|_| {
                let most = self.one_of(&[3, 20, 70, 1000]);
                let size = 1 + self.below(left.min(most));
                left = (left / size).max(1);
                size
            })
            .collect()
    }

    /// Whole numbers from -9 to 13, or from 0, some of them special.
    fn tensor(&mut self, shape: &[usize], dtype: DType, special: bool) -> Tensor {
        let low = if dtype.is_unsigned_int() || dtype == DType::Bool { 0.0 } else { 9.0 };
        let mut values: Vec<f32> =
            (0..shape.iter().product()).map(|_| self.below(23) as f32 - low).collect();
        if special && dtype.is_float() {
            for _ in 0..1 + self.below(4) {
                let at = self.below(values.len());
                values[at] = self.one_of(&[f32::NAN, f32::INFINITY, -f32::INFINITY, -0.0, 3e38]);
            }
        }
        let x = Tensor::from_slice(&values, shape, oracle()).unwrap();
        if dtype == DType::Bool { x.gt(11.0).unwrap() } else { x.cast(dtype).unwrap() }
    }

    /// The same content on `device`: packed, permuted, with gaps, flipped or repeated.
    fn view(&mut self, x: &Tensor, device: &Arc<Cpu>) -> Tensor {
        let x = x.to(device).unwrap();
        let axis = self.below(x.ndim()) as isize;
        match self.below(5) {
            0 => x,
            1 => {
                let mut order: Vec<usize> = (0..x.ndim()).collect();
                for i in 0..x.ndim() {
                    order.swap(i, self.below(x.ndim()));
                }
                let mut back = vec![0; x.ndim()];
                order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
                x.permute(order).unwrap().copy().unwrap().permute(back).unwrap()
            }
            2 => {
                let n = x.shape()[axis as usize] as isize;
                Tensor::cat(&[&x, &x], axis).unwrap().slice(axis, n..2 * n).unwrap()
            }
            3 => x.flip([axis]).unwrap().copy().unwrap().flip([axis]).unwrap(),
            _ => {
                Tensor::stack(&[&x, &x], -1).unwrap().slice(-1, 1..2).unwrap().squeeze(-1).unwrap()
            }
        }
    }
}

/// Panics unless `run` gives the same bits on one thread and on three.
fn same_bits_for_any_thread_count(what: &str, run: impl Fn() -> Result<Vec<Tensor>> + Sync) {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run().unwrap().iter().map(|x| x.to_bytes().unwrap()).collect::<Vec<_>>())
    };
    assert!(on(1) == on(3), "{what}");
}

/// The tensors of `run` on every device and on the reference device, for views of `inputs`.
fn against_reference(
    draw: &mut Draw,
    inputs: &[&Tensor],
    bound: f64,
    what: &str,
    run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Sync,
) {
    let want = run(&inputs.iter().map(|&x| x.clone()).collect::<Vec<_>>()).unwrap();
    for device in devices() {
        let views: Vec<Tensor> = inputs.iter().map(|x| draw.view(x, &device)).collect();
        let layouts: Vec<_> = views.iter().map(|x| x.layout().strides().to_vec()).collect();
        let what = format!("{what}, strides {layouts:?} on {device:?}");
        for (got, want) in run(&views).unwrap().iter().zip(&want) {
            same(got, want, bound, &what);
        }
        same_bits_for_any_thread_count(&what, || run(&views));
    }
}

#[test]
fn sums_of_few_rows_and_of_squares() {
    let mut draw = Draw(11);
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for rows in [1, 2, 8, 9, 32, 33] {
            for columns in [3, 70, 1030] {
                let x = draw.tensor(&[rows, columns], dtype, false);
                let what = format!("{dtype} ({rows}, {columns})");
                against_reference(&mut draw, &[&x], 1.0, &what, |x| {
                    let x = &x[0];
                    Ok(vec![x.sum(0)?, x.vector_norm(2.0, 0)?, x.vector_norm(2.0, 1)?])
                });
            }
        }
    }
    // The sum of the first two rows is beyond f32, the sum of all is not.
    for device in devices() {
        let x = Tensor::new([[3e38f32, 1.0], [3e38, 2.0], [-3e38, 3.0]], &device).unwrap();
        assert_eq!(x.sum(0).unwrap().to_vec::<f32>().unwrap(), [3e38, 6.0]);
    }
}

#[test]
fn reductions_of_blocks_of_few_rows() {
    let mut draw = Draw(12);
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for rows in [1, 2, 3, 8, 9, 32, 33, 41] {
            for (blocks, columns) in [(1, 70), (1, 1030), (5, 1), (40, 6), (7, 36)] {
                let special = draw.below(2) == 0;
                let x = draw.tensor(&[blocks, rows, columns], dtype, special);
                let what = format!("{dtype} ({blocks}, {rows}, {columns})");
                // Products that are powers of two of every type.
                let most = if dtype == DType::F16 { rows.min(15) } else { rows } as isize;
                against_reference(&mut draw, &[&x], 1.0, &what, |x| {
                    let product = x[0].slice(1, ..most)?.clamp(-2, 2)?.prod(1)?;
                    Ok(vec![x[0].max(1)?, x[0].min(1)?, product])
                });
            }
        }
    }
}

#[test]
fn sums_of_the_smallest_and_largest_bytes() {
    for device in devices() {
        for (dtype, value) in [(DType::I8, -128), (DType::I8, 127), (DType::U8, 255)] {
            for n in [1usize, 31, 1000, 1024, 70_001] {
                let x = Tensor::full([n], value, dtype, &device).unwrap();
                let sum = x.sum_all().unwrap().to_vec::<i64>().unwrap();
                assert_eq!(sum, [value * n as i64], "{n} of {dtype} on {device:?}");
            }
        }
    }
}

#[test]
fn reductions_of_random_views() {
    let mut draw = Draw(7);
    for case in 0..300 {
        let op = draw.one_of(&ReduceOp::ALL);
        let dtype = match op {
            ReduceOp::Any | ReduceOp::All => DType::Bool,
            _ => draw.one_of(&DType::ALL[..]),
        };
        if dtype == DType::Bool && !matches!(op, ReduceOp::Any | ReduceOp::All | ReduceOp::Sum) {
            continue;
        }
        let most = draw.one_of(&[300, 5_000, 30_000]);
        let shape = draw.shape(if op == ReduceOp::Prod { 300 } else { most });
        let mut axes: Vec<usize> = (0..shape.len()).filter(|_| draw.below(2) == 0).collect();
        if axes.is_empty() || matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin) {
            axes = vec![draw.below(shape.len())];
        }
        let special = op != ReduceOp::Prod && draw.below(4) == 0;
        let x = draw.tensor(&shape, dtype, special);
        let x = if op == ReduceOp::Prod { x.clamp(0, 2).unwrap() } else { x };
        let what = format!("case {case}: {op:?} of {dtype} {shape:?} over {axes:?}");
        let list: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
        against_reference(&mut draw, &[&x], 1.0, &what, |x| {
            let x = &x[0];
            Ok(vec![match op {
                ReduceOp::Sum => x.sum(&list[..])?,
                ReduceOp::Prod => x.prod(&list[..])?,
                ReduceOp::Max => x.max(&list[..])?,
                ReduceOp::Min => x.min(&list[..])?,
                ReduceOp::Any | ReduceOp::All => {
                    Op::Reduce { op, x, axes: &axes }.tensor(x.device())?
                }
                ReduceOp::ArgMax => x.argmax(list[0])?,
                ReduceOp::ArgMin => x.argmin(list[0])?,
            }])
        });
    }
}

/// Sums on the way that are too large for f32, in every form of the loop.
#[test]
fn sums_of_huge_numbers_are_finite() {
    for device in devices() {
        for shape in [[3, 40], [40, 3], [70, 70], [2, 5000], [5000, 2], [300, 20]] {
            let x = Tensor::full(shape, 3e38f32, DType::F32, &device).unwrap();
            let signs = Tensor::arange(0i32, shape[0] * shape[1], 1, &device).unwrap();
            let signs = signs.reshape(shape).unwrap();
            for axis in [0, 1] {
                // Half of the terms are negative, after all the positive ones.
                let rank = if axis == 0 { signs.div(shape[1]) } else { signs.rem(shape[1]) };
                let sign = rank.unwrap().ge(shape[axis] / 2).unwrap();
                let count = shape[axis] - 2 * (shape[axis] / 2);
                let y =
                    sign.where_cond(x.neg().unwrap(), &x).unwrap().sum([axis as isize]).unwrap();
                let want = -3e38 * count as f32;
                assert!(y.to_vec::<f32>().unwrap().iter().all(|&y| y == want), "{shape:?} {axis}");
            }
        }
    }
}

#[test]
fn sorts_and_selections_of_random_views() {
    let mut draw = Draw(11);
    for case in 0..200 {
        let dtype = draw.one_of(&DType::ALL[..]);
        let most = draw.one_of(&[50, 3_000, 20_000]);
        let mut shape = draw.shape(most);
        if draw.below(4) == 0 {
            shape = vec![1 + draw.below(3), most];
        }
        let special = draw.below(3) == 0;
        let x = draw.tensor(&shape, dtype, special);
        // Numbers far apart, so that no byte of the keys is the same.
        let x = match dtype {
            DType::I32 | DType::I64 => x.mul(&x).unwrap().mul(&x).unwrap().mul(12_345).unwrap(),
            _ => x,
        };
        let axis = draw.below(shape.len());
        let extremum = draw.one_of(&[Extremum::Largest, Extremum::Smallest]);
        let n = shape[axis];
        let k = draw.one_of(&[0, 1, 3, n / 20, n / 3, n - 1, n]).min(n);
        let what = format!("case {case}: {dtype} {shape:?} along {axis}, {k}, {extremum:?}");
        against_reference(&mut draw, &[&x], 0.0, &what, |x| {
            let (values, positions) = x[0].sort(axis as isize, extremum.order())?;
            let (first, places) = x[0].topk(k, axis as isize, extremum)?;
            Ok(vec![values, positions, first, places])
        });
    }
}

/// Rows long enough that several threads select from one, and sort one.
#[test]
fn long_rows_are_sorted_and_selected_from_in_pieces() {
    let n = 300_000;
    let values: Vec<f32> = (0..n).map(|i| (i * 7919 % 100_003) as f32 - 5e4).collect();
    for device in devices() {
        let x = Tensor::from_slice(&values, [n], &device).unwrap();
        for (k, extremum) in
            [(1, Extremum::Largest), (1000, Extremum::Smallest), (4000, Extremum::Largest)]
        {
            let run = || {
                let (all, places) = x.sort(0, extremum.order())?;
                let (first, positions) = x.topk(k, 0, extremum)?;
                Ok(vec![all, places, first, positions])
            };
            let got = run().unwrap();
            let mut order: Vec<i32> = (0..n).collect();
            let sign = if extremum == Extremum::Largest { -1.0 } else { 1.0 };
            let key = |i: &i32| values[*i as usize] * sign;
            order.sort_by(|a, b| key(a).total_cmp(&key(b)));
            let sorted: Vec<f32> = order.iter().map(|&i| values[i as usize]).collect();
            assert!(
                got[0].to_vec::<f32>().unwrap() == sorted
                    && got[1].to_vec::<i32>().unwrap() == order
            );
            assert!(got[2].to_vec::<f32>().unwrap() == sorted[..k], "{k} values");
            assert!(got[3].to_vec::<i32>().unwrap() == order[..k], "{k} positions");
            same_bits_for_any_thread_count("long rows", run);
        }
    }
}

#[test]
fn scans_of_random_views() {
    let mut draw = Draw(13);
    for case in 0..150 {
        let dtype = draw.one_of(&DType::ALL[1..]);
        let most = draw.one_of(&[60, 3_000, 12_000]);
        let mut shape = draw.shape(most);
        if draw.below(4) == 0 {
            shape = draw.one_of(&[[1, 9000], [9000, 1], [3, 5000], [5000, 3], [40, 300]]).to_vec();
        }
        let special = draw.below(4) == 0;
        let x = draw.tensor(&shape, dtype, special);
        let axis = draw.below(shape.len());
        let what = format!("case {case}: {dtype} {shape:?} along {axis}");
        // Products of 0, 1 and 2 stay exact as long as they are finite.
        let small = x.clamp(0, 2).unwrap();
        let half = dtype.is_float() && dtype.size() == 2;
        let bound = if half { 1.0 } else { 0.0 };
        against_reference(&mut draw, &[&x, &small], bound, &what, |x| {
            Ok(vec![x[0].cumsum(axis as isize)?, x[1].cumprod(axis as isize)?])
        });
    }
}

#[test]
fn gathers_and_scatters_of_random_views() {
    let mut draw = Draw(17);
    for case in 0..200 {
        let dtype = draw.one_of(&DType::ALL[1..]);
        let most = draw.one_of(&[60, 2_000, 40_000]);
        let shape = draw.shape(most);
        let axis = draw.below(shape.len());
        let special = draw.below(4) == 0;
        let x = draw.tensor(&shape, dtype, special);
        // Few destinations are met by many sources; other axes may be shorter.
        let mut sizes = shape.clone();
        sizes[axis] = 1 + draw.below(70);
        if draw.below(4) == 0 {
            let other = draw.below(shape.len());
            sizes[other] = sizes[other].div_ceil(2);
        }
        let count: usize = sizes.iter().product();
        let kind = draw.one_of(&[DType::I64, DType::I32, DType::U8]);
        let high = shape[axis].min(200);
        let of = |draw: &mut Draw, sizes: &[usize]| {
            let n = sizes.iter().product();
            let values: Vec<i64> = (0..n).map(|_| draw.below(high) as i64).collect();
            Tensor::from_slice(&values, sizes, oracle()).unwrap().cast(kind).unwrap()
        };
        // One index for an element, for a row, for all outer axes, or both.
        let (rows, lists) = (draw.below(2) == 0, draw.below(2) == 0);
        let mut own = sizes.clone();
        own[axis + 1..].iter_mut().filter(|_| rows).for_each(|size| *size = 1);
        own[..axis].iter_mut().filter(|_| lists).for_each(|size| *size = 1);
        let index = of(&mut draw, &own);
        let src = draw.tensor(&sizes, dtype, special && count > 0);
        let what =
            format!("case {case}: {dtype} {shape:?} along {axis}, {kind} {own:?} as {sizes:?}");
        against_reference(&mut draw, &[&x, &index, &src], 1.0, &what, |x| {
            let (axis, index) = (axis as isize, x[1].expand(sizes.clone())?);
            Ok(vec![
                x[0].gather(axis, &index)?,
                x[0].scatter(axis, &index, &x[2])?,
                x[0].scatter_add(axis, &index, &x[2])?,
                x[0].scatter_max(axis, &index, &x[2])?,
                x[0].scatter_min(axis, &index, &x[2])?,
            ])
        });
    }
}
