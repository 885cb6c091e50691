//! Row programs: results equal the same formula in tensor operations.

use std::sync::{Arc, LazyLock};
use teeny_core::kernel::Extent;
use teeny_core::{
    Builder, DType, DeviceRef, ErrorKind, Expr, Kernel, Op, Reference, Result, Scalar, Tensor,
    ToDevice, manual_seed, map, map_rows,
};

fn random(shape: &[usize], dtype: DType) -> Tensor {
    static DEVICE: LazyLock<DeviceRef> = LazyLock::new(|| Reference::new().to_device());
    Tensor::randn(shape, DType::F64, &*DEVICE).unwrap().mul(3.0).unwrap().cast(dtype).unwrap()
}

fn assert_close(actual: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(actual.shape(), expected.shape());
    assert_eq!(actual.dtype(), expected.dtype());
    let [a, b] = [actual, expected].map(|x| x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap());
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let near =
            (a - b).abs() <= tolerance * (1.0 + b.abs()) || a == b || a.is_nan() && b.is_nan();
        assert!(near, "element {i}: {a} is not {b}");
    }
}

#[test]
fn a_formula_gives_what_tensor_operations_give() -> Result<()> {
    manual_seed(1);
    for (shape, axes) in [(&[4, 7][..], &[1isize][..]), (&[3, 5, 2], &[1]), (&[2, 3, 4], &[0, 2])] {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let x = random(shape, dtype);
            let wide = x.cast(dtype.compute())?;
            let close = |y: Tensor, formula: Tensor| {
                let digits = [1e-14, 1e-6, 1e-3, 1e-2];
                let i = [DType::F64, DType::F32, DType::F16, DType::BF16];
                let i = i.iter().position(|t| *t == dtype).unwrap();
                assert_close(&y, &formula.cast(dtype).unwrap(), digits[i]);
            };
            let e = wide.sub(&wide.max_keepdim(axes)?)?.exp()?;
            close(map_rows([&x], axes, |[x]| x.softmax())?, e.div(&e.sum_keepdim(axes)?)?);
            let y = map_rows([&x], axes, |[x]| (x - x.mean()) * (x.var(0) + 1e-5).rsqrt())?;
            let d = wide.sub(&wide.mean_keepdim(axes)?)?;
            close(y, d.mul(&d.square()?.mean_keepdim(axes)?.add(1e-5)?.rsqrt()?)?);
            let y = map_rows([&x], axes, |[x]| x.logsumexp())?;
            let lse = wide.logsumexp(axes)?.reshape(*wide.max_keepdim(axes)?.shape())?;
            close(y, lse);
            let y = map_rows([&x], axes, |[x]| x.square().prod() + x.min() * x.length())?;
            let count: usize = axes.iter().map(|&a| x.shape()[a as usize]).product();
            let product = wide.square()?.prod(axes)?.reshape(*wide.max_keepdim(axes)?.shape())?;
            close(y, product.add(&wide.min_keepdim(axes)?.mul(count as f64)?)?);
        }
    }
    Ok(())
}

#[test]
fn integers_and_bools_are_reduced() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[3i32, -1, 4], [0, 5, -9]], &device)?; // (2, 3)
    let y = map_rows([&x], 1, |[x]| x.sum() - x.max() + x.index().max())?;
    assert_eq!((y.dtype(), y.to_vec::<i64>()?), (DType::I64, vec![4, -7]));
    let y = map_rows([&x], 1, |[x]| x.all().where_cond(x, x + 1))?;
    assert_eq!(y.to_vec::<i32>()?, [3, -1, 4, 1, 6, -8]);
    let y = map_rows([&x], 1, |[x]| x.lt(0).any())?;
    assert_eq!(y.to_vec::<bool>()?, [true, true]);
    let one_hot = map_rows([&x, &Tensor::new([[1i64], [2]], &device)?], 1, |[x, t]| {
        x.index().eq(t).where_cond(x.like(1), 0)
    })?;
    assert_eq!(one_hot.to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
    Ok(())
}

#[test]
fn a_position_is_read_and_one_outside_its_row_is_an_error() -> Result<()> {
    let device = Reference::new();
    for shape in [[2, 3], [2, 1]] {
        let x =
            Tensor::arange(0.0f32, (shape[0] * shape[1]) as f32, 1.0, &device)?.reshape(shape)?;
        let last = shape[1] as i64 - 1;
        let t = Tensor::new([[last], [0]], &device)?; // (2, 1)
        let y = map_rows([&x, &t], -1, |[x, t]| (x * 2.0 + x.index()).at(t) - x.max())?;
        let of = |row: usize, column: i64| {
            let value = (row * shape[1]) as f32 + column as f32;
            value * 2.0 + column as f32 - ((row + 1) * shape[1] - 1) as f32
        };
        assert_eq!(y.to_vec::<f32>()?, [of(0, last), of(1, 0)]);
        for outside in [-1, last + 1] {
            let t = Tensor::new([[0], [outside]], &device)?; // (2, 1)
            let error = map_rows([&x, &t], -1, |[x, t]| x.at(t)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Index, "{error}");
            assert!(error.to_string().contains(&outside.to_string()), "{error}");
        }
    }
    // Two axes: a position counts through both.
    let x = Tensor::arange(0i32, 24, 1, &device)?.reshape((2, 3, 4))?;
    let t = Tensor::new([5i32, 0, 3], &device)?.reshape((1, 3, 1))?;
    let y = map_rows([&x, &t], [0, 2], |[x, t]| x.at(t))?;
    assert_eq!((y.shape().to_vec(), y.to_vec::<i32>()?), (vec![1, 3, 1], vec![13, 4, 11]));
    let y = map_rows([&x, &t], [0, 2], |[x, t]| x.min() + t.at(7))?;
    assert_eq!(y.to_vec::<i32>()?, [5, 4, 11]);
    assert!(map_rows([&x, &t], [0, 2], |[x, t]| x.sum() + t.at(8)).is_err());
    let y = map_rows([&x], [0, 2], |[x]| x.at(1) * 100 + x.index())?;
    assert_eq!(y.slice(0, 1..)?.slice(1, ..1)?.to_vec::<i32>()?, [104, 105, 106, 107]);
    Ok(())
}

#[test]
fn rows_without_elements_have_the_values_of_reductions() -> Result<()> {
    let x = Tensor::zeros((2, 0), DType::F32, Reference::new())?;
    assert_eq!(map_rows([&x], 1, |[x]| x.sum())?.to_vec::<f32>()?, [0.0, 0.0]);
    assert_eq!(map_rows([&x], 1, |[x]| x.softmax())?.shape()[..], [2, 0]);
    let error = map_rows([&x], 1, |[x]| x.max()).unwrap_err();
    assert!(error.to_string().contains("there is nothing to compare"), "{error}");
    assert!(map_rows([&x], 1, |[x]| x.at(0)).is_err());
    let x = Tensor::zeros((0, 3), DType::F32, Reference::new())?;
    assert_eq!(map_rows([&x], 1, |[x]| x.max())?.shape()[..], [0, 1]);
    Ok(())
}

#[test]
fn what_is_no_row_program_is_refused_with_help() -> Result<()> {
    let x = random(&[2, 3], DType::F32);
    for (error, words) in [
        (map([&x], |[x]| x / x.sum()).unwrap_err(), ["works on rows", "map_rows"]),
        (map_rows([&x], 1, |[x]| x + 1.0).unwrap_err(), ["does not reduce rows", "map("]),
        (map_rows([&x], 2, |[x]| x.sum()).unwrap_err(), ["axis 2", ""]),
        (map_rows([&x], [1, 1], |[x]| x.sum()).unwrap_err(), ["twice", ""]),
        (
            map_rows([&x], 1, |[x]| x.at(x.index())).unwrap_err(),
            ["differs along the row", "gather"],
        ),
        (map_rows([&x], 1, |[x]| x.at(x.max())).unwrap_err(), ["f32", "gather"]),
        (
            map_rows([&x], 1, |[x]| x.fold(teeny_core::kernel::Fold::Any)).unwrap_err(),
            ["any", "bool"],
        ),
    ] {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    }
    let program = Kernel::build([DType::F32], [], |[x], []| [x.sum()])?;
    let program = std::sync::Arc::new(program);
    assert!(program.run(&[&x], &[]).is_err());
    // One input too few, another dtype, another shape, axes in another order.
    let y = random(&[2, 3], DType::F64);
    let (shape, t) = (*x.shape(), x.t()?);
    let run = |inputs: &[&Tensor], params: &[Scalar], axes: &[usize]| {
        let program = &program;
        Op::Rows { program, inputs, params, shape: &shape, axes }.tensor(x.device())
    };
    assert!(run(&[&x], &[], &[1]).is_ok());
    assert!(run(&[], &[], &[1]).is_err());
    assert!(run(&[&x], &[Scalar::Int(1)], &[1]).is_err());
    assert!(run(&[&y], &[], &[1]).is_err());
    assert!(run(&[&t], &[], &[1]).is_err());
    assert!(run(&[&x], &[], &[1, 0]).is_err());
    assert!(run(&[&x], &[], &[]).is_err());
    Ok(())
}

#[test]
fn a_program_that_reads_more_than_a_kernel_runs_operation_by_operation() -> Result<()> {
    let inputs: Vec<Tensor> = (0..8).map(|_| random(&[3, 5], DType::F64)).collect();
    let [a, b, c, d, e, f, g, h] = inputs.iter().collect::<Vec<_>>()[..] else { panic!() };
    fn formula<'b>(x: [Expr<'b>; 8]) -> Expr<'b> {
        let all = x.into_iter().map(|x| x * x.max()).reduce(|a, b| a + b).unwrap();
        all - x[0].sum()
    }
    let y = map_rows([a, b, c, d, e, f, g, h], 1, formula)?;
    let mut expected = a.sum_keepdim(1)?.neg()?;
    for x in &inputs {
        expected = expected.add(&x.mul(&x.max_keepdim(1)?)?)?;
    }
    assert_close(&y, &expected, 1e-13);
    Ok(())
}

#[test]
fn a_parameter_of_each_type_is_reduced() -> Result<()> {
    let device: DeviceRef = Reference::new();
    for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
        let builder = Builder::new();
        let (x, p) = (builder.input(dtype), builder.param(dtype));
        // It is not rounded to 16 bits: 1024 times the nearest ones to 0.1 are 102.5 and 102.375.
        let outputs = [x * (p.min() + 1.0) + p.max(), p.max() * 1024.0 - 102.0];
        let program = Arc::new(builder.finish(&outputs)?);
        let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?.cast(dtype)?;
        let run = |p: f64| -> Result<[Vec<f32>; 2]> {
            let (inputs, params, shape) = (&[&x][..], &[Scalar::Float(p)][..], x.shape());
            let op = Op::Rows { program: &program, inputs, params, shape, axes: &[1] };
            let [y, z] = op.tensors(&device)?;
            Ok([y.cast(DType::F32)?.to_vec()?, z.cast(DType::F32)?.to_vec()?])
        };
        assert_eq!(run(0.5)?[0], [2.0, 3.5, 5.0, 6.5], "{dtype}");
        let [_, z] = run(0.1)?;
        assert!(z.iter().all(|z| (z - 0.4).abs() < 1e-3), "{z:?} {dtype}");
    }
    Ok(())
}

#[test]
fn extents_and_levels_follow_from_the_program() -> Result<()> {
    let builder = Builder::new();
    let (x, t) = (builder.input(DType::F32), builder.input_of(DType::F32, Extent::Row));
    let exp = (x - x.max()).exp();
    let program = builder.finish(&[exp / exp.sum(), t + x.min()])?;
    assert_eq!(program.input_extent(0), Extent::Element);
    assert_eq!(program.input_extent(1), Extent::Row);
    assert_eq!(program.output_extent(0), Extent::Element);
    assert_eq!(program.output_extent(1), Extent::Row);
    assert!(!program.is_pointwise());
    let level = |o: usize| program.levels()[program.outputs()[o] as usize];
    assert_eq!([level(0), level(1)], [2, 1]);
    assert_eq!(program.expression(), "t0 = exp(x0 - max(x0)); t0 / sum(t0), x1 + min(x0)");
    Ok(())
}

type Formula = for<'b> fn(Expr<'b>) -> Expr<'b>;

/// A product that integers simplify to a constant, and floats, which may be NaN, do not.
fn zero(x: Expr<'_>) -> Expr<'_> {
    x * x.like(0)
}

#[test]
fn the_shape_of_a_result_follows_from_the_formula_and_not_from_its_simplification() -> Result<()> {
    let formulas: [(usize, Formula); 12] = [
        (3, |x| zero(x) + x.max()),
        (1, |x| zero(x.max())),
        (3, |x| zero(x.max()) + x),
        (3, |x| x.sum().gt(0).or(x.gt(0).or(true))),
        (3, |x| x.like(1).gt(0).where_cond(x.max(), x)),
        (3, |x| x.gt(x.min()).where_cond(x.like(2), x.like(2))),
        (3, |x| zero(x.index()) + x.length() - x.length()),
        (1, |x| zero(x).sum()),
        (1, |x| zero(x).max()),
        (1, |x| zero(x.at(1))),
        (3, |x| zero(x).softmax()),
        (1, |x| zero(x.max()) + 7),
    ];
    for (number, (length, formula)) in formulas.into_iter().enumerate() {
        let mut expected = None;
        for dtype in DType::ALL.into_iter().filter(|&t| t != DType::Bool) {
            if number == 10 && !dtype.is_float() {
                continue;
            }
            let x = Tensor::new([1i64, 4, 2], Reference::new())?.cast(dtype)?;
            let y = map_rows([&x], 0, |[x]| formula(x))?;
            assert_eq!(y.shape()[..], [length], "formula {number} of {dtype}");
            let values = y.cast(DType::F64)?;
            assert_close(&values, expected.get_or_insert(values.clone()), 1e-3);
        }
    }
    Ok(())
}

#[test]
fn the_length_of_a_row_fits_its_type() -> Result<()> {
    for dtype in DType::ALL {
        let x = Tensor::ones((2, 300), DType::F32, Reference::new())?.cast(dtype)?;
        let y = map_rows([&x], 1, |[x]| x.length() * x.max())?; // (2, 1)
        assert_eq!(y.cast(DType::F64)?.to_vec::<f64>()?, [300.0; 2], "{dtype}");
        let y = map_rows([&x], 1, |[x]| x.like(2).sum())?; // (2, 1)
        let twice = if dtype == DType::Bool { 300.0 } else { 600.0 };
        assert_eq!(y.cast(DType::F64)?.to_vec::<f64>()?, [twice; 2], "{dtype}");
    }
    Ok(())
}

#[test]
fn reductions_of_rows_take_the_types_that_reductions_of_tensors_take() -> Result<()> {
    type Reduction = fn(&Tensor) -> Result<Tensor>;
    let both: [(&str, Formula, Reduction); 11] = [
        ("sum", |x| x.sum(), |x| x.sum_keepdim(1)),
        ("prod", |x| x.prod(), |x| x.prod(1)?.unsqueeze(1)),
        ("max", |x| x.max(), |x| x.max_keepdim(1)),
        ("min", |x| x.min(), |x| x.min(1)?.unsqueeze(1)),
        ("any", |x| x.any(), |x| x.any(1)?.unsqueeze(1)),
        ("all", |x| x.all(), |x| x.all(1)?.unsqueeze(1)),
        ("mean", |x| x.mean(), |x| x.mean_keepdim(1)),
        ("var", |x| x.var(1), |x| x.var(1, 1)?.unsqueeze(1)),
        ("logsumexp", |x| x.logsumexp(), |x| x.logsumexp(1)?.unsqueeze(1)),
        ("softmax", |x| x.softmax(), |x| x.softmax(1)),
        ("log_softmax", |x| x.log_softmax(), |x| x.log_softmax(1)),
    ];
    for dtype in DType::ALL {
        let x = Tensor::new([[1i64, 0, 3], [0, 0, 0]], Reference::new())?.cast(dtype)?;
        for (name, of_rows, of_tensors) in both {
            if let Ok(want) = of_tensors(&x) {
                let y = map_rows([&x], 1, |[x]| of_rows(x));
                let y = y.unwrap_or_else(|error| panic!("{name} of {dtype}: {error}"));
                assert_close(&y, &want, if dtype.is_half() { 1e-2 } else { 1e-6 });
            }
        }
    }
    Ok(())
}
