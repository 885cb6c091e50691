//! The door of the device: any [`Op`] that a caller constructs, however wrong, is an error or has
//! outputs of the right size. No op accesses memory outside its operands. In a separate test binary,
//! and so in a separate process.

use crate::common::ops::*;
use std::sync::Arc;
use teeny_core::storage::Storage;
use teeny_core::{
    Attention, AttentionInputs, DType, Device, Distribution, Error, ErrorKind, Kernel, Key, Layout,
    LinalgOp, Op, ReduceOp, Reference, RowFunction, Scalar, ScanOp, ScatterMode, Shape, SortOrder,
    StorageRef, Tensor, Window,
};
use teeny_cpu::Cpu;

fn zeros(sizes: &[usize], dtype: DType, device: &Arc<Cpu>) -> Tensor {
    Tensor::zeros(sizes, dtype, device).unwrap()
}

/// Asserts that executing `op` is an error.
fn refused(cpu: &Cpu, case: &str, mut op: Op<'_>) {
    assert!(cpu.execute(&mut op).is_err(), "{case} was accepted");
}

fn in_place<'a>(
    kernel: &'a Arc<Kernel>,
    storage: &'a mut StorageRef,
    input_index: usize,
    other: Option<&'a Tensor>,
    shape: &'a Shape,
) -> Op<'a> {
    Op::ElementwiseInPlace { kernel, storage, input_index, other, params: &[], shape }
}

fn sum_kernel<'a>(
    kernel: &'a Arc<Kernel>,
    inputs: &'a [&'a Tensor],
    shape: &'a Shape,
    axes: &'a [usize],
) -> Op<'a> {
    Op::ReduceKernel { kernel, inputs, params: &[], shape, op: ReduceOp::Sum, axes }
}

fn reduce<'a>(op: ReduceOp, x: &'a Tensor, axes: &'a [usize]) -> Op<'a> {
    Op::Reduce { op, x, axes }
}

fn gather<'a>(x: &'a Tensor, axis: usize, index: &'a Tensor) -> Op<'a> {
    Op::Gather { x, axis, index }
}

fn scatter<'a>(
    mode: ScatterMode,
    x: &'a Tensor,
    axis: usize,
    index: &'a Tensor,
    src: &'a Tensor,
) -> Op<'a> {
    Op::Scatter { mode, x, axis, index, src }
}

#[test]
fn programs_over_operands_that_they_are_not_for() {
    let cpu = Cpu::new();
    let x = zeros(&[4], DType::F32, &cpu);
    let (long, ints) = (zeros(&[1000], DType::F32, &cpu), zeros(&[4], DType::I64, &cpu));
    let elsewhere = Tensor::zeros(4, DType::F32, Reference::new()).unwrap();
    let (wide, four, far) = (shape(&[1 << 20]), shape(&[4]), too_large(&[1 << 62, 1 << 62]));
    refused(&cpu, "a larger shape", elementwise(&add(), &[&x, &x], &[], &wide));
    refused(&cpu, "a shape that wraps", elementwise(&add(), &[&x, &x], &[], &far));
    refused(&cpu, "too few inputs", elementwise(&add(), &[&x], &[], &four));
    refused(&cpu, "too many inputs", elementwise(&add(), &[&x, &x, &x], &[], &four));
    refused(&cpu, "inputs of two shapes", elementwise(&add(), &[&long, &x], &[], &shape(&[1000])));
    refused(&cpu, "an input of another type", elementwise(&add(), &[&x, &ints], &[], &four));
    refused(&cpu, "an input of another device", elementwise(&add(), &[&x, &elsewhere], &[], &four));
    refused(&cpu, "no parameter", elementwise(&scaled(), &[&x], &[], &four));
    refused(&cpu, "two parameters", elementwise(&scaled(), &[&x], &[Scalar::Float(1.0); 2], &four));
    for axes in [&[][..], &[1], &[0, 0], &[usize::MAX]] {
        refused(&cpu, "axes", reduce(ReduceOp::Sum, &x, axes));
        refused(&cpu, "axes", sum_kernel(&add(), &[&x, &x], &four, axes));
    }
    refused(&cpu, "a larger shape", sum_kernel(&add(), &[&x, &x], &wide, &[0]));
    refused(&cpu, "a shape that wraps", sum_kernel(&add(), &[&x, &x], &far, &[0]));
    refused(&cpu, "too few inputs", sum_kernel(&add(), &[&x], &four, &[0]));
    refused(&cpu, "no inputs", sum_kernel(&add(), &[], &four, &[0]));
    refused(&cpu, "any of floats", reduce(ReduceOp::Any, &x, &[0]));
    refused(
        &cpu,
        "the largest of nothing",
        reduce(ReduceOp::Max, &zeros(&[0, 3], DType::F32, &cpu), &[0]),
    );
    refused(
        &cpu,
        "two axes of positions",
        reduce(ReduceOp::ArgMax, &zeros(&[2, 3], DType::F32, &cpu), &[0, 1]),
    );
    let bytes = zeros(&[1], DType::U8, &cpu).expand((1usize << 31) + 8).unwrap();
    refused(&cpu, "positions beyond i32", reduce(ReduceOp::ArgMax, &bytes, &[0]));
    refused(
        &cpu,
        "positions beyond i32",
        Op::Sort { x: &bytes, axis: 0, order: SortOrder::Ascending },
    );
}

#[test]
fn writing_over_operands_that_are_not_the_result() {
    let cpu = Cpu::new();
    let own = |n: usize, dtype: DType| zeros(&[n], dtype, &cpu).into_parts().0;
    let (x, four) = (zeros(&[4], DType::F32, &cpu), shape(&[4]));
    let (ints, three) = (zeros(&[4], DType::I32, &cpu), zeros(&[3], DType::F32, &cpu));
    let million = shape(&[1 << 20]);
    for (case, mut storage, input_index, other, shape) in [
        ("a shorter storage", own(2, DType::F32), 0, Some(&x), &four),
        ("a longer shape", own(4, DType::F32), 0, Some(&x), &million),
        ("a storage of another type", own(4, DType::F64), 0, Some(&x), &four),
        ("a missing input", own(4, DType::F32), 0, None, &four),
        ("a third input", own(4, DType::F32), 2, Some(&x), &four),
        ("an input of another shape", own(4, DType::F32), 1, Some(&three), &four),
        ("an input of another type", own(4, DType::F32), 1, Some(&ints), &four),
    ] {
        let storage = &mut storage;
        refused(&cpu, case, in_place(&add(), storage, input_index, other, shape));
    }
    let mut storage = own(4, DType::F32);
    assert_eq!(
        run(&x.device().clone(), in_place(&add(), &mut storage, 0, Some(&x), &four)).unwrap(),
        []
    );
    assert_eq!(storage.len(), 4);
}

#[test]
fn assignments_outside_and_twice() {
    let cpu = Cpu::new();
    let own = |n: usize, dtype: DType| zeros(&[n], dtype, &cpu).into_parts().0;
    let src = zeros(&[2, 3], DType::F32, &cpu);
    let view = |strides: &[isize], offset| {
        Layout::strided(shape(&[2, 3]), strides, offset, 1 << 20).unwrap()
    };
    refused(&cpu, "beyond the end", copy_into(own(6, DType::F32), &view(&[3, 1], 1), &src));
    refused(&cpu, "far beyond the end", copy_into(own(6, DType::F32), &view(&[1000, 1], 0), &src));
    refused(&cpu, "places named twice", copy_into(own(6, DType::F32), &view(&[0, 1], 0), &src));
    refused(&cpu, "places that overlap", copy_into(own(6, DType::F32), &view(&[1, 1], 0), &src));
    refused(&cpu, "a smaller type", copy_into(own(6, DType::U8), &view(&[3, 1], 0), &src));
    refused(
        &cpu,
        "another shape",
        copy_into(own(6, DType::F32), &Layout::contiguous(shape(&[3, 2])), &src),
    );
    let elsewhere = Tensor::zeros(6, DType::F32, Reference::new()).unwrap().into_parts().0;
    refused(&cpu, "another device's storage", copy_into(elsewhere, &view(&[3, 1], 0), &src));
    refused(&cpu, "no storage", Op::CopyInto { dst: None, view: &view(&[3, 1], 0), src: &src });
    let whole = run(src.device(), copy_into(own(6, DType::F32), &view(&[3, 1], 0), &src)).unwrap();
    assert_eq!(whole, [(6, DType::F32)]);
}

#[test]
fn products_indices_and_rows_that_do_not_fit() {
    let cpu = Cpu::new();
    let z = |sizes: &[usize], dtype| zeros(sizes, dtype, &cpu);
    let f = |sizes: &[usize]| z(sizes, DType::F32);
    for (a, b) in [
        (&[2, 3][..], &[4, 5][..]),
        (&[3], &[3, 2]),
        (&[], &[]),
        (&[2, 2, 3], &[3, 3, 2]),
        (&[2, 3], &[2, 3, 4]),
    ] {
        refused(&cpu, "a product", Op::Matmul { lhs: &f(a), rhs: &f(b) });
    }
    refused(
        &cpu,
        "a product of two types",
        Op::Matmul { lhs: &f(&[2, 3]), rhs: &z(&[3, 2], DType::F64) },
    );
    refused(
        &cpu,
        "a product of bools",
        Op::Matmul { lhs: &z(&[2, 2], DType::Bool), rhs: &z(&[2, 2], DType::Bool) },
    );
    let (x, index) = (f(&[3, 4]), z(&[3, 4], DType::I64));
    refused(&cpu, "no such axis", gather(&x, 2, &index));
    refused(&cpu, "an index of floats", gather(&x, 0, &x));
    refused(&cpu, "an index of fewer axes", gather(&x, 0, &z(&[4], DType::I64)));
    refused(&cpu, "a longer index", gather(&x, 0, &z(&[3, 400], DType::I64)));
    refused(
        &cpu,
        "a position outside",
        gather(&x, 0, &Tensor::full((3, 4), 3, DType::I64, &cpu).unwrap()),
    );
    for (axis, index, src) in [
        (2, &index, &x),
        (0, &z(&[3, 400], DType::I64), &f(&[3, 400])),
        (0, &index, &f(&[3, 5])),
        (0, &index, &z(&[3, 4], DType::F64)),
    ] {
        refused(&cpu, "a scatter", scatter(ScatterMode::Add, &x, axis, index, src));
    }
    refused(
        &cpu,
        "a sum of bools",
        scatter(ScatterMode::Add, &z(&[3, 4], DType::Bool), 0, &index, &z(&[3, 4], DType::Bool)),
    );
    refused(&cpu, "no such axis", Op::Sort { x: &x, axis: 2, order: SortOrder::Descending });
    refused(&cpu, "no such axis", Op::Scan { op: ScanOp::Sum, x: &x, axis: 2 });
    refused(&cpu, "bools", Op::Scan { op: ScanOp::Sum, x: &z(&[3], DType::Bool), axis: 0 });
    let softmax = program(RowFunction::Softmax, 1, 0);
    for axes in [&[2][..], &[], &[1, 0], &[0, 0], &[usize::MAX]] {
        refused(&cpu, "axes", rows(softmax, &[&x], &[], x.shape(), axes));
    }
    let (scalar, wide) = (f(&[]), shape(&[3, 1 << 20]));
    refused(&cpu, "a scalar", rows(softmax, &[&scalar], &[], scalar.shape(), &[0]));
    refused(&cpu, "integers", rows(softmax, &[&index], &[], x.shape(), &[0]));
    refused(&cpu, "a larger shape", rows(softmax, &[&x], &[], &wide, &[1]));
    refused(&cpu, "no input", rows(softmax, &[], &[], x.shape(), &[1]));
    refused(&cpu, "two inputs", rows(softmax, &[&x, &x], &[], x.shape(), &[1]));
    refused(&cpu, "a parameter", rows(softmax, &[&x], &[Scalar::Float(1.0)], x.shape(), &[1]));
    let eps = &[Scalar::Float(1e-5)][..];
    for (function, params) in [
        (RowFunction::SoftmaxGrad, &[][..]),
        (RowFunction::LogSoftmaxGrad, &[]),
        (RowFunction::LayerNorm, eps),
        (RowFunction::RmsNormGrad, eps),
    ] {
        let two = program(function, 2, params.len());
        for g in [&f(&[3, 3]), &f(&[4]), &f(&[1, 4]), &z(&[3, 4], DType::F64)] {
            refused(&cpu, "another operand", rows(two, &[&x, g], params, x.shape(), &[1]));
        }
    }
    let targets = z(&[3, 1], DType::I64);
    let (loss, grad) =
        (program(RowFunction::CrossEntropy, 2, 0), program(RowFunction::CrossEntropyGrad, 3, 0));
    for (x, targets) in [
        (&x, &z(&[2, 1], DType::I64)),
        (&x, &z(&[3], DType::I64)),
        (&x, &f(&[3, 1])),
        (&f(&[3, 1]), &targets),
        (&index, &targets),
    ] {
        refused(&cpu, "classes", rows(loss, &[x, targets], &[], &shape(&[3, 4]), &[1]));
        let g = f(&[3, 1]);
        refused(&cpu, "classes", rows(grad, &[x, targets, &g], &[], &shape(&[3, 4]), &[1]));
    }
    for g in [&f(&[2, 1]), &f(&[3]), &z(&[3, 1], DType::F64)] {
        refused(&cpu, "a gradient", rows(grad, &[&x, &targets, g], &[], x.shape(), &[1]));
    }
    for outside in [-1, 4, i64::MIN, i64::MAX] {
        let targets = Tensor::new([[0], [outside], [3]], &cpu).unwrap();
        refused(&cpu, "a class outside", rows(loss, &[&x, &targets], &[], x.shape(), &[1]));
    }
    refused(&cpu, "parts of another shape", Op::Cat { tensors: &[&x, &f(&[3, 5])], axis: 0 });
    refused(
        &cpu,
        "parts of two types",
        Op::Cat { tensors: &[&x, &z(&[3, 4], DType::U8)], axis: 0 },
    );
    refused(&cpu, "no parts", Op::Cat { tensors: &[], axis: 0 });
    let far = too_large(&[1 << 62, 8]);
    refused(
        &cpu,
        "more draws than memory",
        Op::Random {
            distribution: Distribution::Uniform { low: 0.0, high: 1.0 },
            shape: &far,
            dtype: DType::F32,
            key: Key { seed: 0, draw: 0 },
        },
    );
    refused(
        &cpu,
        "normal integers",
        Op::Random {
            distribution: Distribution::Normal { mean: 0.0, std: 1.0 },
            shape: &shape(&[3]),
            dtype: DType::I32,
            key: Key { seed: 0, draw: 0 },
        },
    );
    assert!(cpu.upload(&[0; 7], DType::F32).is_err(), "half an element");
    assert!(cpu.upload(&[1, 2], DType::Bool).is_err(), "a bool of 2");
    refused(&cpu, "one matrix", Op::Linalg { op: LinalgOp::Solve, inputs: &[&f(&[2, 2])] });
    refused(&cpu, "a vector", Op::Linalg { op: LinalgOp::Det, inputs: &[&f(&[2])] });
    refused(&cpu, "no square", Op::Linalg { op: LinalgOp::Cholesky, inputs: &[&f(&[2, 3])] });
}

#[test]
fn windows_that_do_not_fit() {
    let cpu = Cpu::new();
    let f = |sizes: &[usize]| zeros(sizes, DType::F32, &cpu);
    let (x, w, g) = (f(&[1, 2, 5, 5]), f(&[3, 2, 3, 3]), f(&[1, 3, 3, 3]));
    let plain = Window::new(2);
    let mut windows = vec![Window::new(1), Window::new(3)];
    for big in [0, usize::MAX, usize::MAX / 2, 1 << 63, (1 << 62) + 1] {
        windows.extend([
            Window { stride: vec![big; 2], ..plain.clone() },
            Window { dilation: vec![big; 2], ..plain.clone() },
        ]);
        windows.push(Window { groups: big, ..plain.clone() });
        if big > 0 {
            windows.push(Window { padding: vec![big; 2], ..plain.clone() });
        }
    }
    for window in &windows {
        let case = format!("{window:?}");
        // A huge stride leaves one window, at the beginning. This is allowed, and the output is
        // smaller than `g`. Beyond isize::MAX a stride is a negative number that wrapped.
        let legal = window.stride.len() == 2
            && (2..=isize::MAX as usize).contains(&window.stride[0])
            && window.groups == 1;
        if legal {
            let lengths = |op| run(x.device(), op).unwrap().iter().map(|x| x.0).collect::<Vec<_>>();
            assert_eq!(lengths(conv(&x, &w, window)), [3], "{case}");
            assert_eq!(lengths(max_pool(&x, &[3, 3], window)), [2, 2], "{case}");
            assert_eq!(lengths(avg_pool(&x, &[3, 3], window)), [2], "{case}");
        } else {
            refused(&cpu, &case, conv(&x, &w, window));
            if window.groups == 1 {
                refused(&cpu, &case, max_pool(&x, &[3, 3], window));
                refused(&cpu, &case, avg_pool(&x, &[3, 3], window));
            }
        }
        refused(&cpu, &case, Op::ConvInputGrad { g: &g, weight: &w, window, x_shape: x.shape() });
        refused(&cpu, &case, Op::ConvWeightGrad { g: &g, x: &x, window, weight_shape: w.shape() });
    }
    refused(&cpu, "no window", max_pool(&x, &[0, 3], &plain));
    refused(&cpu, "no sizes", max_pool(&x, &[], &Window::new(0)));
    refused(&cpu, "a larger window", max_pool(&x, &[6, 3], &plain));
    refused(&cpu, "more axes than x has", avg_pool(&x, &[1; 5], &Window::new(5)));
    refused(&cpu, "bools", max_pool(&zeros(&[4], DType::Bool, &cpu), &[2], &Window::new(1)));
    refused(&cpu, "integers", avg_pool(&zeros(&[4], DType::I32, &cpu), &[2], &Window::new(1)));
    refused(&cpu, "channels", conv(&x, &f(&[3, 3, 3, 3]), &plain));
    refused(
        &cpu,
        "a weight of another type",
        conv(&x, &zeros(&[3, 2, 3, 3], DType::F64, &cpu), &plain),
    );
    refused(&cpu, "fewer axes", conv(&f(&[1, 2, 5]), &w, &plain));
    for x_shape in [
        shape(&[1, 2, 6, 6]),
        shape(&[2, 2, 5, 5]),
        shape(&[1, 2, 5]),
        too_large(&[1 << 62, 2, 5, 5]),
    ] {
        refused(
            &cpu,
            "an input of another shape",
            Op::ConvInputGrad { g: &g, weight: &w, window: &plain, x_shape: &x_shape },
        );
    }
    for w_shape in [
        shape(&[3, 2, 4, 4]),
        shape(&[4, 2, 3, 3]),
        shape(&[3, 2, 3]),
        too_large(&[3, 1 << 62, 3, 3]),
    ] {
        refused(
            &cpu,
            "a weight of another shape",
            Op::ConvWeightGrad { g: &g, x: &x, window: &plain, weight_shape: &w_shape },
        );
    }
    let at = |value: i32| Tensor::full((2, 3), value, DType::I32, &cpu).unwrap();
    let g = f(&[2, 3]);
    for (positions, x_shape, spatial) in [
        (at(5), shape(&[2, 5]), 1),
        (at(-2), shape(&[2, 5]), 1),
        (at(i32::MAX), shape(&[2, 5]), 1),
        (at(0), shape(&[3, 5]), 1),
        (at(0), shape(&[2, 5]), 0),
        (at(0), shape(&[2, 5]), 3),
        (at(0), too_large(&[2, 1 << 63]), 1),
        (zeros(&[2, 3], DType::I64, &cpu), shape(&[2, 5]), 1),
        (zeros(&[2, 2], DType::I32, &cpu), shape(&[2, 5]), 1),
    ] {
        refused(
            &cpu,
            "positions",
            Op::MaxPoolGrad { g: &g, positions: &positions, x_shape: &x_shape, spatial },
        );
    }
}

#[test]
fn attention_over_operands_that_do_not_fit() {
    let cpu = Cpu::new();
    let f = |sizes: &[usize]| zeros(sizes, DType::F32, &cpu);
    let (q, k, v) = (f(&[2, 9, 8]), f(&[2, 7, 8]), f(&[2, 7, 6]));
    let (y, lse) = (f(&[2, 9, 6]), f(&[2, 9]));
    let full = Attention::full();
    let wrong: Vec<[Tensor; 3]> = vec![
        [f(&[2, 9, 4]), k.clone(), v.clone()],
        [q.clone(), f(&[2, 70, 8]), v.clone()],
        [q.clone(), k.clone(), f(&[1, 7, 6])],
        [f(&[9, 8]), k.clone(), v.clone()],
        [q.clone(), k.clone(), zeros(&[2, 7, 6], DType::F64, &cpu)],
        [f(&[]), f(&[]), f(&[])],
    ];
    for [q, k, v] in &wrong {
        let inputs = AttentionInputs { q, k, v, mask: None, options: full };
        refused(&cpu, "attention", Op::Attention { inputs });
        refused(&cpu, "attention", attention_grad(inputs, &y, &lse, &y));
    }
    for mask in [
        f(&[2, 9, 6]),
        f(&[9, 7]),
        zeros(&[2, 9, 7], DType::I32, &cpu),
        zeros(&[2, 9, 7], DType::F64, &cpu),
        zeros(&[2, 7, 9], DType::Bool, &cpu),
    ] {
        refused(
            &cpu,
            "a mask",
            Op::Attention {
                inputs: AttentionInputs { q: &q, k: &k, v: &v, mask: Some(&mask), options: full },
            },
        );
    }
    let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options: full };
    refused(
        &cpu,
        "a window of 0",
        Op::Attention {
            inputs: AttentionInputs { options: Attention::causal(0).window(0), ..inputs },
        },
    );
    for (y, lse, g) in [
        (&q, &lse, &y),
        (&y, &f(&[2, 8]), &y),
        (&y, &zeros(&[2, 9], DType::F64, &cpu), &y),
        (&y, &lse, &q),
        (&y, &lse, &f(&[2, 9])),
    ] {
        refused(&cpu, "a gradient of attention", attention_grad(inputs, y, lse, g));
    }
    let nothing = Op::AttentionGrad { inputs, y: &y, lse: &lse, g: &y, needs: [false; 3] };
    refused(&cpu, "no gradient of attention", nothing);
    assert_eq!(
        run(q.device(), Op::Attention { inputs }).unwrap(),
        [(2 * 9 * 6, DType::F32), (2 * 9, DType::F32)]
    );
}

/// Storage of another device, which claims a length that it does not have.
struct Foreign(usize, DType);

impl Storage for Foreign {
    fn len(&self) -> usize {
        self.0
    }
    fn dtype(&self) -> DType {
        self.1
    }
}

#[test]
fn storages_of_something_else() {
    let cpu = Cpu::new();
    let foreign = |n: usize, dtype: DType| -> StorageRef { Arc::new(Foreign(n, dtype)) };
    let tensor = |sizes: &[usize], dtype: DType| {
        Tensor::from_parts(
            foreign(1 << 40, dtype),
            Layout::contiguous(shape(sizes)),
            dtype,
            cpu.clone(),
        )
        .unwrap()
    };
    let (x, index) = (tensor(&[64, 64], DType::F32), tensor(&[64, 64], DType::I32));
    let kind = |error: Option<Error>| error.map(|error| error.kind());
    assert_eq!(kind(cpu.download(&x).err()), Some(ErrorKind::Internal));
    let (own, whole) = (zeros(&[64, 64], DType::F32, &cpu), Layout::contiguous(shape(&[64, 64])));
    let mut storage = foreign(64 * 64, DType::F32);
    for op in [
        Op::Contiguous { x: &x },
        elementwise(&add(), &[&x, &x], &[], x.shape()),
        in_place(&add(), &mut storage, 0, Some(&own), own.shape()),
        reduce(ReduceOp::Sum, &x, &[0]),
        Op::Scan { op: ScanOp::Sum, x: &x, axis: 0 },
        Op::Matmul { lhs: &x, rhs: &x },
        gather(&x, 0, &index),
        scatter(ScatterMode::Set, &x, 0, &index, &x),
        Op::Sort { x: &x, axis: 0, order: SortOrder::Ascending },
        rows(program(RowFunction::Softmax, 1, 0), &[&x], &[], x.shape(), &[0]),
        rows(program(RowFunction::LayerNorm, 1, 1), &[&x], &[Scalar::Float(1.0)], x.shape(), &[1]),
        max_pool(&x, &[2], &Window::new(1)),
        copy_into(own.storage().clone(), &whole, &x),
        copy_into(foreign(64 * 64, DType::F32), &whole, &own),
    ] {
        let case = format!("{op:?}");
        assert_eq!(kind(run(own.device(), op).err()), Some(ErrorKind::Internal), "{case}");
    }
}
