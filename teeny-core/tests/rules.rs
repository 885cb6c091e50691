//! The rules between recorded operations: results equal eager execution to the bit, and a `Trace`
//! counts the operations that run on the wrapped device.

use std::sync::{Arc, OnceLock};
use teeny_core::random::{Key, philox};
use teeny_core::wrappers::Trace;
use teeny_core::{
    Capture, DType, Device, DeviceRef, Lazy, LazyOptions, Reference, Result, SortOrder, Tensor,
    ToDevice,
};

struct Lab {
    lazy: Arc<Lazy>,
    trace: Arc<Trace>,
}

/// The device of all eager results.
fn reference() -> &'static DeviceRef {
    static DEVICE: OnceLock<DeviceRef> = OnceLock::new();
    DEVICE.get_or_init(|| Reference::new().to_device())
}

/// A function of tensors with several results.
type Function<'f> = &'f dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>;

impl Lab {
    fn new(reassociate: bool) -> Lab {
        let trace = Trace::new(Reference::new());
        let options = LazyOptions::new().with_reassociate(reassociate);
        Lab { lazy: Lazy::with_options(trace.clone(), options), trace }
    }

    /// The results of `f` and the names of the operations that ran for them.
    fn run(&self, inputs: &[Tensor], f: Function<'_>) -> (Vec<Tensor>, Vec<&'static str>) {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| x.to(&self.lazy).unwrap()).collect();
        self.trace.clear();
        let outputs = f(&inputs).unwrap();
        assert!(self.trace.spans().is_empty(), "recording runs nothing");
        // All results are held when the first one is read.
        let below = outputs.iter().map(|y| y.to(reference()).unwrap()).collect();
        let mut names = Vec::new();
        for span in self.trace.spans() {
            match span.op {
                "download" => {}
                // Both count, whether fused or not.
                "matmul_kernel" => names.extend(["matmul", "kernel"]),
                op => names.push(op),
            }
        }
        (below, names)
    }
}

/// The operations that run for `f` of tensors of these shapes and of many special numbers. Results
/// have the bits of eager ones.
fn ran(dtype: DType, shapes: &[&[usize]], f: Function<'_>) -> Vec<&'static str> {
    let lab = Lab::new(false);
    let mut names = Vec::new();
    for round in 0..20 {
        let inputs: Vec<Tensor> = shapes
            .iter()
            .zip(0..)
            .map(|(shape, i)| numbers(dtype, shape, 10 * round + i))
            .collect();
        let (got, now) = lab.run(&inputs, f);
        let want = f(&inputs).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
            assert_eq!(bits(got), bits(want), "{got} {want}");
        }
        names = now;
    }
    names
}

/// The elements with all their bits, where NaN is one value.
fn bits(x: &Tensor) -> Vec<u64> {
    let all = x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    all.into_iter().map(|v| if v.is_nan() { f64::NAN } else { v }.to_bits()).collect()
}

/// Random numbers, among them NaN, zeros of both signs and infinities.
fn numbers(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let special = [f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0];
    let n = shape.iter().product::<usize>() as u64;
    let value = |i: u64| {
        let word = philox(Key { seed, draw: 0 }, i)[0];
        match special.get(word as usize % 20) {
            Some(value) => *value,
            None => (f64::from(word) / f64::from(u32::MAX) - 0.5) * 8.0,
        }
    };
    let values: Vec<f64> = (0..n).map(value).collect();
    Tensor::new(values, reference()).unwrap().cast(dtype).unwrap().reshape(shape).unwrap()
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn equal_operations_run_once() {
    let s: &[usize] = &[4, 6];
    // Products cannot be fused, so each that runs is counted.
    let twice: Function<'_> = &|t| Ok(vec![t[0].matmul(&t[1])?.add(&t[0].matmul(&t[1])?)?]);
    assert_eq!(ran(DType::F32, &[&[4, 4], &[4, 4]], twice), ["matmul", "kernel"]);
    // Equal operands are found first.
    let deep: Function<'_> = &|t| {
        let f = || t[0].exp()?.matmul(&t[1].neg()?)?.sum(1);
        Ok(vec![f()?.mul(&f()?)?])
    };
    let names = ran(DType::F64, &[s, &[6, 3]], deep);
    assert_eq!(names.iter().filter(|name| **name == "matmul").count(), 1, "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "sum").count(), 1, "{names:?}");
    // Several results of one operation.
    let sorts: Function<'_> = &|t| {
        let ((a, i), (b, j)) =
            (t[0].sort(1, SortOrder::Ascending)?, t[0].sort(1, SortOrder::Ascending)?);
        Ok(vec![a.mul(&b)?, i.add(&j)?])
    };
    let names = ran(DType::F32, &[s], sorts);
    assert_eq!(names.iter().filter(|name| **name == "sort").count(), 1, "{names:?}");
}

#[test]
fn other_operands_axes_or_numbers_are_other_operations() {
    let s: &[usize] = &[4, 4];
    let count = |f| ran(DType::F32, &[s, s], f).iter().filter(|name| **name == "matmul").count();
    assert_eq!(count(&|t| Ok(vec![t[0].matmul(&t[1])?.add(&t[1].matmul(&t[0])?)?])), 2);
    assert_eq!(count(&|t| Ok(vec![t[0].matmul(&t[1])?.add(&t[0].matmul(&t[1].t()?)?)?])), 2);
    let number: Function<'_> = &|t| {
        let f = |k: f64| t[0].add(k)?.sum(1);
        Ok(vec![f(1.0)?, f(2.0)?])
    };
    let names = ran(DType::F32, &[s], number);
    assert_eq!(names.iter().filter(|name| **name == "sum").count(), 2, "{names:?}");
    let axes: Function<'_> = &|t| Ok(vec![t[0].sum(0)?, t[0].sum(1)?]);
    assert_eq!(ran(DType::F32, &[s], axes), ["sum", "sum"]);
}

#[test]
fn equal_results_that_are_held_share_their_elements() {
    let held: Function<'_> = &|t| {
        let f = || t[0].matmul(&t[0]);
        Ok(vec![f()?, f()?, f()?.exp()?, f()?])
    };
    assert_eq!(ran(DType::F32, &[&[3, 3]], held), ["matmul", "kernel"]);
    // One of them is then written to; the other keeps its elements.
    let lab = Lab::new(false);
    let x = Tensor::new([1.0f32, 2.0, 3.0], &lab.lazy).unwrap();
    let (a, b) = (x.exp().unwrap().sum(0).unwrap(), x.exp().unwrap().sum(0).unwrap());
    let (a, b) = (a.unsqueeze(0).unwrap(), b.unsqueeze(0).unwrap());
    lab.lazy.synchronize().unwrap();
    let before = b.to_vec::<f32>().unwrap();
    let a = a.assign(0..1, Tensor::new([7.0f32], &lab.lazy).unwrap()).unwrap();
    assert_eq!(a.to_vec::<f32>().unwrap(), [7.0]);
    assert_eq!(b.to_vec::<f32>().unwrap(), before);
}

#[test]
fn values_that_are_written_to_stay_apart() {
    let writes: Function<'_> = &|t| {
        let (a, b) = (t[0].exp()?, t[0].exp()?);
        let c = a.assign(0..1, t[0].slice(0, 1..2)?)?;
        Ok(vec![c, b.add(1.0)?])
    };
    ran(DType::F32, &[&[4, 3]], writes);
    let copies: Function<'_> = &|t| {
        let old = t[0].copy()?;
        let new = t[0].neg()?.copy()?.assign(1..3, &old.slice(0, 0..2)?)?;
        Ok(vec![new.add(&old)?, old])
    };
    ran(DType::F32, &[&[4, 3]], copies);
}

#[test]
fn random_draws_are_never_one() {
    let lab = Lab::new(false);
    let draw = || Tensor::rand((64,), DType::F32, &lab.lazy).unwrap();
    let (a, b) = (draw(), draw());
    assert_ne!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
}

/// A plan does not depend on parameters, so two operations with equal parameters are not merged.
#[test]
fn a_plan_with_shared_results_serves_other_numbers() {
    let lab = Lab::new(false);
    for k in 0..3 {
        let x = numbers(DType::F64, &[5], 1);
        let y = x.to(&lab.lazy).unwrap();
        let f = |x: &Tensor, k: f64| x.add(k)?.cumsum(0);
        let (a, b) = (f(&y, 1.0).unwrap(), f(&y, 1.0 + f64::from(k)).unwrap());
        assert_eq!(bits(&a.to(reference()).unwrap()), bits(&f(&x, 1.0).unwrap()));
        let want = f(&x, 1.0 + f64::from(k)).unwrap();
        assert_eq!(bits(&b.to(reference()).unwrap()), bits(&want));
    }
}

/// A result far after the last reader of an equal one is computed again, as by checkpoints.
#[test]
fn what_is_computed_again_much_later_is_not_kept() {
    let chain: Function<'_> = &|t| {
        let mut y = t[0].matmul(&t[0])?;
        for _ in 0..60 {
            y = y.cumsum(0)?;
        }
        Ok(vec![y.add(&t[0].matmul(&t[0])?)?])
    };
    let names = ran(DType::I32, &[&[3, 3]], chain);
    assert_eq!(names.iter().filter(|name| **name == "matmul").count(), 2);
}

#[test]
fn a_copy_of_a_row_major_value_is_the_value() {
    let s: &[usize] = &[4, 6];
    let made: Function<'_> = &|t| Ok(vec![t[0].matmul(&t[0])?.copy()?.sum(1)?]);
    assert_eq!(ran(DType::F64, &[&[4, 4]], made), ["matmul", "sum"]);
    let leaf: Function<'_> = &|t| Ok(vec![t[0].copy()?.sum(1)?]);
    assert_eq!(ran(DType::F32, &[s], leaf), ["sum"]);
    // A copy that is held has the storage of the value, if that is a result too.
    let held: Function<'_> = &|t| {
        let y = t[0].matmul(&t[0])?;
        Ok(vec![y.copy()?, y.copy()?.reshape(16)?, y])
    };
    assert_eq!(ran(DType::F32, &[&[4, 4]], held), ["matmul"]);
    let copy: Function<'_> = &|t| Ok(vec![t[0].copy()?]);
    assert_eq!(ran(DType::F32, &[s], copy), ["contiguous"]);
    // Other orders and parts are copied.
    let other: Function<'_> = &|t| {
        let y = t[0].matmul(&t[0])?;
        Ok(vec![y.t()?.copy()?, y.slice(0, 1..3)?.copy()?, y.flip(0)?.copy()?])
    };
    assert_eq!(
        ran(DType::F32, &[&[4, 4]], other),
        ["matmul", "contiguous", "contiguous", "contiguous"]
    );
}

#[test]
fn a_reduction_over_axes_of_one_element_is_no_reduction() {
    let reductions: [Function<'_>; 4] = [
        &|t| Ok(vec![t[0].matmul(&t[1])?.unsqueeze(1)?.sum(1)?.neg()?]),
        &|t| Ok(vec![t[0].matmul(&t[1])?.unsqueeze(1)?.prod(1)?.neg()?]),
        &|t| Ok(vec![t[0].matmul(&t[1])?.unsqueeze(0)?.max(0)?.neg()?]),
        &|t| Ok(vec![t[0].matmul(&t[1])?.unsqueeze(2)?.min(2)?.neg()?]),
    ];
    for f in reductions {
        for dtype in [DType::I64, DType::F32, DType::F64] {
            assert_eq!(ran(dtype, &[&[3, 3], &[3, 3]], f), ["matmul", "kernel"], "{dtype}");
        }
        ran(DType::F16, &[&[3, 3], &[3, 3]], f);
        ran(DType::U8, &[&[3, 3], &[3, 3]], f);
    }
    // Of numbers as they are, with the zeros of both signs; transposed; of several axes.
    for dtype in DType::ALL {
        let max: Function<'_> = &|t| Ok(vec![t[0].max(0)?, t[0].t()?.min(1)?, t[0].max([0, 1])?]);
        ran(dtype, &[&[1, 7]], max);
        let sum: Function<'_> = &|t| Ok(vec![t[0].sum(0)?, t[0].t()?.prod(1)?, t[0].mean(0)?]);
        ran(dtype, &[&[1, 7]], sum);
    }
    let any: Function<'_> = &|t| Ok(vec![t[0].any(0)?, t[0].all(0)?]);
    ran(DType::Bool, &[&[1, 7]], any);
    // A position is not the element.
    let arg: Function<'_> = &|t| Ok(vec![t[0].argmax(0)?, t[0].argmin(0)?]);
    ran(DType::I32, &[&[1, 7]], arg);
}

#[test]
fn slices_of_one_value_joined_in_order_are_one_slice() {
    let s: &[usize] = &[4, 6];
    let cat = |parts: &[Tensor], axis| Tensor::cat(parts, axis);
    for axis in [0usize, 1] {
        let whole: Function<'_> = &|t| {
            let y = t[0].cumsum(0)?;
            Ok(vec![cat(&y.chunk(axis as isize, 2)?, axis as isize)?, y])
        };
        for dtype in FLOATS {
            assert_eq!(ran(dtype, &[s], whole), ["cumsum"], "{dtype}");
        }
    }
    let part: Function<'_> = &|t| {
        let x = [t[0].slice(1, 1..2)?, t[0].slice(1, 2..5)?];
        Ok(vec![cat(&x, 1)?.exp()?])
    };
    assert_eq!(ran(DType::F32, &[s], part), ["exp"]);
    let rows: Function<'_> = &|t| {
        let y = t[0].t()?;
        let rows = (0..6).map(|i| y.slice(0, i..i + 1)).collect::<Result<Vec<_>>>()?;
        Ok(vec![cat(&rows, 0)?.add(1.0)?])
    };
    assert_eq!(ran(DType::F32, &[s], rows), ["add"]);
    let back: Function<'_> = &|t| {
        let rows = [t[0].slice(0, 2..3)?, t[0].slice(0, 1..2)?, t[0].slice(0, 0..1)?];
        Ok(vec![cat(&rows, 0)?.exp()?])
    };
    assert_eq!(ran(DType::F32, &[s], back), ["exp"]);
    // With a gap, in another order, of two values.
    let others: [Function<'_>; 4] = [
        &|t| Ok(vec![cat(&[t[0].slice(0, 0..1)?, t[0].slice(0, 2..4)?], 0)?]),
        &|t| Ok(vec![cat(&[t[0].slice(0, 2..4)?, t[0].slice(0, 0..2)?], 0)?]),
        &|t| Ok(vec![cat(&[t[0].slice(0, 0..2)?, t[1].slice(0, 2..4)?], 0)?]),
        &|t| Ok(vec![cat(&[t[0].slice(0, 0..2)?, t[0].slice(0, 2..4)?.flip(1)?], 0)?]),
    ];
    for f in others {
        assert_eq!(ran(DType::F32, &[s, s], f), ["cat"]);
    }
}

fn softmax(x: &Tensor, axis: isize) -> Result<Tensor> {
    let e = x.sub(&x.max_keepdim(axis)?)?.exp()?;
    e.div(&e.sum_keepdim(axis)?)
}

fn log_softmax(x: &Tensor, axis: isize) -> Result<Tensor> {
    let shifted = x.sub(&x.max_keepdim(axis)?)?;
    shifted.sub(&shifted.exp()?.sum_keepdim(axis)?.log()?)
}

#[test]
fn a_softmax_that_is_written_out_runs_as_one_where_sums_may_be_reordered() {
    let (any_order, exact) = (Lab::new(true), Lab::new(false));
    for shape in [&[4usize, 6][..], &[2, 3, 5], &[7], &[1, 6]] {
        for axis in 0..shape.len() as isize {
            if shape[axis as usize] == 1 {
                continue;
            }
            for dtype in [DType::F32, DType::F64] {
                let x = numbers(dtype, shape, 3);
                let fs: [(Function<'_>, Function<'_>, &str); 2] = [
                    (
                        &|t| Ok(vec![softmax(&t[0], axis)?]),
                        &|t| Ok(vec![t[0].softmax(axis)?]),
                        "softmax",
                    ),
                    (
                        &|t| Ok(vec![log_softmax(&t[0], axis)?]),
                        &|t| Ok(vec![t[0].log_softmax(axis)?]),
                        "log_softmax",
                    ),
                ];
                for (by_hand, fused, name) in fs {
                    let (got, names) = any_order.run(std::slice::from_ref(&x), by_hand);
                    assert_eq!(names, [name], "{shape:?} {axis} {dtype}");
                    let want = fused(std::slice::from_ref(&x)).unwrap();
                    assert_eq!(bits(&got[0]), bits(&want[0]));
                    let (got, names) = exact.run(std::slice::from_ref(&x), by_hand);
                    assert!(names.len() > 1 && !names.contains(&name), "{names:?}");
                    let want = by_hand(std::slice::from_ref(&x)).unwrap();
                    assert_eq!(bits(&got[0]), bits(&want[0]));
                }
            }
        }
    }
}

#[test]
fn a_softmax_in_front_of_and_behind_other_operations_is_found() {
    let lab = Lab::new(true);
    let x = [numbers(DType::F32, &[4, 6], 5), numbers(DType::F32, &[6, 6], 6)];
    let f: Function<'_> = &|t| Ok(vec![softmax(&t[0].matmul(&t[1])?, 1)?.matmul(&t[1])?]);
    let (_, names) = lab.run(&x, f);
    assert_eq!(names, ["matmul", "softmax", "matmul"]);
    let f: Function<'_> = &|t| Ok(vec![softmax(&t[0].mul(0.5)?, 1)?.add(1.0)?]);
    let (_, names) = lab.run(&x, f);
    assert_eq!(names, ["rows"]);
    // The whole in one kernel, as `map` makes it.
    let f: Function<'_> = &|t| {
        let max = t[0].max_keepdim(1)?;
        let e = teeny_core::map([&t[0], &max], |[x, m]| (x - m).exp())?;
        Ok(vec![e.div(&e.sum_keepdim(1)?)?])
    };
    assert_eq!(lab.run(&x, f).1, ["softmax"]);
}

#[test]
fn what_only_resembles_a_softmax_stays() {
    let lab = Lab::new(true);
    let x = [numbers(DType::F32, &[6, 6], 5), numbers(DType::F32, &[6, 6], 6)];
    let others: [Function<'_>; 6] = [
        // A value between is held.
        &|t| {
            let e = t[0].sub(&t[0].max_keepdim(1)?)?.exp()?;
            Ok(vec![e.div(&e.sum_keepdim(1)?)?, e])
        },
        // Another axis, another value, another operation.
        &|t| {
            let e = t[0].sub(&t[0].max_keepdim(0)?)?.exp()?;
            Ok(vec![e.div(&e.sum_keepdim(1)?)?])
        },
        &|t| {
            let e = t[0].sub(&t[1].max_keepdim(1)?)?.exp()?;
            Ok(vec![e.div(&e.sum_keepdim(1)?)?])
        },
        &|t| {
            let e = t[0].sub(&t[0].min_keepdim(1)?)?.exp()?;
            Ok(vec![e.div(&e.sum_keepdim(1)?)?])
        },
        &|t| {
            let e = t[0].sub(&t[0].max_keepdim(1)?)?.exp()?;
            Ok(vec![e.mul(&e.sum_keepdim(1)?)?])
        },
        // The sums of rows divide columns.
        &|t| {
            let e = t[0].sub(&t[0].max_keepdim(1)?)?.exp()?;
            Ok(vec![e.div(&e.sum(1)?)?])
        },
    ];
    for (i, f) in others.into_iter().enumerate() {
        let names = lab.run(&x, f).1;
        assert!(!names.contains(&"softmax"), "{i}: {names:?}");
    }
    // Half precision rounds between the operations.
    let half = [x[0].cast(DType::F16).unwrap()];
    let f: Function<'_> = &|t| Ok(vec![softmax(&t[0], 1)?]);
    assert!(!lab.run(&half, f).1.contains(&"softmax"));
}

#[test]
fn rows_that_are_written_out_are_one_program_in_any_spelling() {
    let (any_order, exact) = (Lab::new(true), Lab::new(false));
    let layer_norm: Function<'_> = &|t| {
        let d = t[0].sub(&t[0].mean_keepdim(-1)?)?;
        let scale = d.square()?.mean_keepdim(-1)?.add(1e-5)?.sqrt()?.recip()?;
        Ok(vec![d.mul(&scale)?.mul(&t[1])?.add(&t[1])?])
    };
    let by_moments: Function<'_> = &|t| {
        let (mean, squares) = (t[0].mean(-1)?, t[0].square()?.mean(-1)?);
        let scale = squares.sub(&mean.square()?)?.add(1e-5)?.rsqrt()?;
        Ok(vec![t[0].sub(&mean.unsqueeze(-1)?)?.mul(&scale.unsqueeze(-1)?)?])
    };
    let unit: Function<'_> = &|t| Ok(vec![t[0].div(&t[0].square()?.sum_keepdim(-1)?.sqrt()?)?]);
    let logsumexp: Function<'_> = &|t| {
        let max = t[0].max_keepdim(-1)?;
        let sum = t[0].sub(&max)?.exp()?.sum(-1)?;
        Ok(vec![sum.log()?.add(&max.squeeze(-1)?)?])
    };
    let by_rank: Function<'_> = &|t| {
        let span = t[0].max(-1)?.sub(&t[0].min(-1)?)?.unsqueeze(-1)?;
        Ok(vec![t[0].sub(&t[0].min_keepdim(-1)?)?.div(&span)?.gt(0.5)?])
    };
    let cosine: Function<'_> = &|t| {
        let other = t[0].flip(0)?;
        let size = |x: &Tensor| x.square()?.sum(-1)?.sqrt();
        Ok(vec![t[0].mul(&other)?.sum(-1)?.div(&size(&t[0])?.mul(&size(&other)?)?)?])
    };
    for shape in [&[6usize, 6][..], &[2, 3, 6], &[5, 1, 6]] {
        for dtype in [DType::F32, DType::F64] {
            let x = [numbers(dtype, shape, 3), numbers(dtype, &[6], 4)];
            for f in [layer_norm, by_moments, unit, logsumexp, by_rank, cosine] {
                let (got, names) = any_order.run(&x, f);
                assert_eq!(names.len(), 1, "{shape:?} {names:?}");
                let want = f(&x).unwrap();
                let [a, b] = [&got[0], &want[0]]
                    .map(|y| y.cast(DType::F64).unwrap().to_vec::<f64>().unwrap());
                let near = |(a, b): (&f64, &f64)| {
                    let close = (a - b).abs() < 1e-5 * (1.0 + b.abs());
                    close || a == b || a.is_nan() && b.is_nan()
                };
                assert!(a.iter().zip(&b).all(near), "{shape:?} {names:?} {a:?} {b:?}");
                // Where sums may not be reordered, all bits equal eager calls.
                let (got, names) = exact.run(&x, f);
                assert!(names.len() > 1, "{names:?}");
                assert_eq!(bits(&got[0]), bits(&want[0]));
            }
        }
    }
    // A value that is read elsewhere is stored, and a held value is a separate result.
    let x = [numbers(DType::F32, &[6, 6], 5), numbers(DType::F32, &[6, 6], 6)];
    let f: Function<'_> = &|t| {
        let e = t[0].mul(&t[1])?.exp()?;
        Ok(vec![e.div(&e.sum_keepdim(1)?)?, e.matmul(&t[1])?])
    };
    let (got, names) = any_order.run(&x, f);
    assert_eq!(names.iter().filter(|name| **name == "rows").count(), 1, "{names:?}");
    assert_eq!(bits(&got[1]), bits(&f(&x).unwrap()[1]));
}

/// Numbers by the position in a sequence.
struct Dice {
    seed: u64,
    at: u64,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.at += 1;
        philox(Key { seed: self.seed, draw: 1 }, self.at)[0] as usize % n
    }
}

/// A random program of what the rules look for: equal operations, copies, reductions over one
/// element, joined slices, assignments; some of its values are results.
fn program(seed: u64, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut dice = Dice { seed, at: 0 };
    let mut values = x.to_vec(); // (4, 4) each
    let mut held = Vec::new();
    for _ in 0..12 {
        let a = values[dice.below(values.len())].clone();
        let b = values[dice.below(values.len())].clone();
        let axis = dice.below(2) as isize;
        let y = match dice.below(12) {
            0 => a.add(&b)?,
            1 => a.matmul(&b)?,
            2 => a.cumsum(axis)?,
            3 => a.copy()?,
            4 => a.t()?.copy()?,
            5 => a.unsqueeze(axis)?.sum(axis)?,
            6 => a.unsqueeze(2)?.max(2)?,
            7 => {
                let parts = a.chunk(axis, 2)?;
                Tensor::cat(&parts, axis)?
            }
            8 => {
                let parts = a.chunk(axis, 4)?;
                Tensor::cat(&[&parts[1], &parts[0], &parts[2], &parts[3]], axis)?
            }
            9 => a.copy()?.assign(1..3, b.slice(0, 0..2)?)?,
            10 => a.t()?,
            _ => a.sub(a.max_keepdim(axis)?)?.abs()?.neg()?,
        };
        if dice.below(3) == 0 {
            held.push(y.clone());
        }
        values.push(y);
        if dice.below(3) == 0 {
            let _ = values.remove(dice.below(values.len()));
        }
    }
    held.extend(values.pop());
    Ok(held)
}

#[test]
fn random_programs_have_the_bits_of_eager_ones() {
    let lab = Lab::new(false);
    for seed in 0..2000 {
        let dtype = [DType::F32, DType::F64, DType::I32, DType::BF16][seed as usize % 4];
        let x = [numbers(dtype, &[4, 4], seed), numbers(dtype, &[4, 4], seed + 1)];
        let (got, _) = lab.run(&x, &|t| program(seed, t));
        let want = program(seed, &x).unwrap();
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
            assert_eq!(bits(got), bits(want), "program {seed}, result {i}");
        }
    }
    assert_eq!(lab.lazy.counters().unfused, 0);
}

#[test]
fn replays_of_a_captured_function_share_results_too() {
    let lab = Lab::new(false);
    let f = |t: &[Tensor]| -> Result<Vec<Tensor>> {
        let y = || t[0].matmul(&t[0]);
        Ok(vec![y()?, y()?.copy()?, y()?.unsqueeze(0)?.sum(0)?.neg()?, y()?.t()?])
    };
    let mut capture = Capture::new(&lab.lazy, f).unwrap();
    for seed in 0..5 {
        let x = numbers(DType::F64, &[3, 3], seed);
        let below = x.to(&lab.lazy).unwrap();
        lab.trace.clear();
        let got = capture.run(vec![below]).unwrap();
        let names: Vec<_> = lab.trace.spans().iter().map(|span| span.op).collect();
        assert_eq!(names.iter().filter(|name| name.starts_with("matmul")).count(), 1, "{names:?}");
        for (got, want) in got.iter().zip(f(&[x]).unwrap()) {
            assert_eq!(bits(&got.to(reference()).unwrap()), bits(&want));
        }
    }
    assert!(capture.is_replaying());
}

#[test]
fn results_that_share_a_failed_operation_have_its_error() {
    let lab = Lab::new(false);
    let x = numbers(DType::F32, &[3, 3], 1).to(&lab.lazy).unwrap();
    let index = Tensor::new([[7i32], [0], [0]], &lab.lazy).unwrap();
    let (a, b) = (x.gather(1, &index).unwrap(), x.gather(1, &index).unwrap());
    let fine = x.neg().unwrap();
    let errors = [&a, &b].map(|y| y.to_vec::<f32>().unwrap_err().to_string());
    assert!(errors.iter().all(|error| error.contains('7')), "{errors:?}");
    fine.to_vec::<f32>().unwrap();
}
