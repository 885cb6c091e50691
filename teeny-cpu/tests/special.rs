//! Zeros of either sign, NaN, infinities and subnormals have one meaning on every path: a loop over
//! slices, blocks, tiles, numbers that are folded while a kernel is built, at every level, in core.

use crate::common::{devices, ulps};
use std::sync::Arc;
use teeny_core::kernel::build::{Builder, Expr};
use teeny_core::kernel::{Comparison, FloatFunction, OpCode, SignFunction};
use teeny_core::{DType, Kernel, Reference, Scalar, Tensor};
use teeny_cpu::Cpu;

const VALUES: [f64; 16] = [
    0.0,
    -0.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    -3.0,
    7.0,
    1e-40,
    -1e-40,
];
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Equal bits for zeros, infinities and NaN (of any payload), else within some units in the last
/// place of `dtype`.
fn same(got: Scalar, want: Scalar, dtype: DType) -> bool {
    if !dtype.is_float() {
        return got == want;
    }
    let (got, want) = (got.to_f64(), want.to_f64());
    if want == 0.0 || got == 0.0 {
        return got.to_bits() == want.to_bits();
    }
    ulps(got, want, dtype) <= 4.0
}

/// A function of the kernel's operands.
type Function<'f> = &'f dyn for<'b> Fn(&[Expr<'b>]) -> Expr<'b>;

/// The destination of a result: memory, another loop, or outside the group of loops.
fn endings(value: Expr<'_>) -> Vec<Vec<Expr<'_>>> {
    let mut all = vec![vec![value], vec![value.cast(DType::F64)]];
    if value.dtype().is_float() {
        all.push(vec![value.unary(FloatFunction::Recip)]);
        all.push(vec![value, value.unary(FloatFunction::Recip)]);
        all.push(vec![
            value.unary(FloatFunction::Recip).unary(SignFunction::Neg).unary(FloatFunction::Sqrt),
            value.unary(OpCode::IsNan),
        ]);
    }
    all
}

/// Compares `f` of the columns of `grid` on all paths with core's results.
fn check(what: &str, dtype: DType, grid: &[Vec<Scalar>], f: Function<'_>) {
    let arity = grid[0].len();
    let count = {
        let builder = Builder::new();
        let inputs: Vec<_> = (0..arity).map(|_| builder.input(dtype)).collect();
        endings(f(&inputs)).len()
    };
    for ending in 0..count {
        // Operand `number` is a number of the launch (1) or of the kernel (2) instead of an input.
        let build = |number: usize, kind: usize, value: Scalar| -> Arc<Kernel> {
            let builder = Builder::new();
            let operand = |i| match kind {
                1 if i == number => builder.param(dtype),
                2 if i == number => builder.constant(value, dtype),
                _ => builder.input(dtype),
            };
            let operands: Vec<_> = (0..arity).map(operand).collect();
            Arc::new(builder.finish(&endings(f(&operands))[ending]).unwrap())
        };
        let plain = build(0, 0, Scalar::Bool(false));
        let want: Vec<Vec<Scalar>> = grid.iter().map(|row| plain.eval(row, &[])).collect();
        for device in devices() {
            let compare = |outputs: Vec<Tensor>, rows: &[usize], path: &str| {
                for (o, output) in outputs.iter().enumerate() {
                    let got = output.to_scalars().unwrap();
                    for (&row, &got) in rows.iter().zip(&got) {
                        let want = want[row][o];
                        let stored = plain.output_dtype(o);
                        let dtype = if stored.is_float() { dtype } else { stored };
                        let text =
                            format!("{what} {dtype} ending {ending}.{o}, {path}, {device:?}");
                        assert!(
                            same(got, want, dtype),
                            "{text}: {:?} gives {got}, not {want}",
                            grid[row]
                        );
                    }
                }
            };
            let column = |i: usize, rows: &[usize]| {
                let values: Vec<_> = rows.iter().map(|&row| grid[row][i]).collect();
                Tensor::from_scalars(&values, values.len(), dtype, &device).unwrap()
            };
            let all: Vec<usize> = (0..grid.len()).collect();
            for len in [all.len(), all.len().min(5), 1] {
                let inputs: Vec<_> = (0..arity).map(|i| column(i, &all[..len])).collect();
                let run =
                    |inputs: &[Tensor]| plain.run(&inputs.iter().collect::<Vec<_>>(), &[]).unwrap();
                compare(run(&inputs), &all[..len], "slices");
                let wide: Vec<_> =
                    inputs.iter().map(|x| Tensor::stack(&[x, x, x], 1).unwrap()).collect();
                let stepped: Vec<_> =
                    wide.iter().map(|x| x.slice(1, 1..2).unwrap().squeeze(1).unwrap()).collect();
                compare(run(&stepped), &all[..len], "stepped");
            }
            // One operand the same everywhere: a number, or an element that is expanded.
            for (number, special) in (0..arity).flat_map(|i| VALUES.map(move |value| (i, value))) {
                let special = Scalar::Float(special).cast(dtype);
                let bits = special.to_f64().to_bits();
                let is = |row: &&usize| grid[**row][number].to_f64().to_bits() == bits;
                let rows: Vec<usize> = all.iter().filter(is).copied().collect();
                let columns: Vec<_> = (0..arity).map(|i| column(i, &rows)).collect();
                let one = column(number, &rows[..1]).expand(rows.len()).unwrap();
                let spread: Vec<_> =
                    (0..arity).map(|i| if i == number { &one } else { &columns[i] }).collect();
                compare(plain.run(&spread, &[]).unwrap(), &rows, "expanded");
                if arity > 1 {
                    let rest: Vec<_> =
                        (0..arity).filter(|&i| i != number).map(|i| &columns[i]).collect();
                    let folded = build(number, 2, special);
                    let kept: Vec<_> =
                        if folded.inputs().is_empty() { vec![] } else { rest.clone() };
                    if !kept.is_empty() && folded.inputs().len() == kept.len() {
                        compare(folded.run(&kept, &[]).unwrap(), &rows, "a constant");
                    }
                    compare(
                        build(number, 1, special).run(&rest, &[special]).unwrap(),
                        &rows,
                        "a parameter",
                    );
                }
            }
        }
        // Folded as a whole: constants alone.
        for (row, want) in grid.iter().zip(&want) {
            let builder = Builder::new();
            let operands: Vec<_> =
                row.iter().map(|&value| builder.constant(value, dtype)).collect();
            let kernel = builder.finish(&endings(f(&operands))[ending]).unwrap();
            for (o, (got, want)) in kernel.eval(&[], &[]).into_iter().zip(want).enumerate() {
                let stored = plain.output_dtype(o);
                let dtype = if stored.is_float() { dtype } else { stored };
                assert!(same(got, *want, dtype), "{what} folded: {row:?} gives {got}, not {want}");
            }
        }
    }
}

fn grid(arity: usize, dtype: DType) -> Vec<Vec<Scalar>> {
    let values = VALUES.map(|value| Scalar::Float(value).cast(dtype));
    let pairs = |a: Scalar| values.map(|b| vec![a, b]);
    match arity {
        1 => values.map(|a| vec![a]).to_vec(),
        _ => values.into_iter().flat_map(pairs).collect(),
    }
}

#[test]
fn every_operation_of_one_operand_at_special_values() {
    for dtype in FLOATS {
        for op in OpCode::UNARY.into_iter().filter(|op| op.accepts(dtype)) {
            check(op.name(), dtype, &grid(1, dtype), &|x| x[0].unary(op));
        }
    }
}

#[test]
fn every_operation_of_two_operands_at_special_values() {
    for dtype in FLOATS {
        for op in OpCode::BINARY.into_iter().filter(|op| op.accepts(dtype)) {
            check(op.name(), dtype, &grid(2, dtype), &|x| x[0].binary(op, x[1]));
        }
    }
}

#[test]
fn every_choice_by_a_comparison_at_special_values() {
    for dtype in FLOATS {
        for op in [Comparison::Lt, Comparison::Le, Comparison::Eq, Comparison::Ne] {
            check(op.name(), dtype, &grid(2, dtype), &|x| {
                x[0].binary(op, x[1]).where_cond(x[0], x[1])
            });
        }
    }
}

#[test]
fn clamps_at_special_values() {
    for dtype in FLOATS {
        check("relu", dtype, &grid(1, dtype), &|x| x[0].relu());
        check("clamp", dtype, &grid(1, dtype), &|x| x[0].clamp(-0.0, 0.0));
        check("max of min", dtype, &grid(2, dtype), &|x| x[0].minimum(x[1]).maximum(x[0]));
        check("min of max", dtype, &grid(2, dtype), &|x| x[1].maximum(x[0]).minimum(x[1]));
    }
}

/// The extremes of zeros of both signs are 0 on every path, whichever comes first.
#[test]
fn the_extremes_of_zeros_are_positive() {
    let reference: Arc<Reference> = Reference::new();
    for dtype in FLOATS {
        for n in [1, 2, 3, 31, 33, 63, 64, 65, 129, 1000, 5000] {
            for (seed, low) in [(0, 0.0), (1, -1.0), (2, 1.0)] {
                let sign = |i: usize| if (i * 7 + seed).is_multiple_of(3) { 0.0 } else { -0.0 };
                let value = |i: usize| if i % 5 == 3 && n > 3 { low } else { sign(i) };
                let values: Vec<_> =
                    (0..3 * n).map(|i| Scalar::Float(value(i)).cast(dtype)).collect();
                let on = |x: Tensor| -> Vec<Scalar> {
                    let copies = [x.clone(), x.t().unwrap().copy().unwrap().t().unwrap()];
                    let all = copies.iter().flat_map(|x| {
                        [x.max(0), x.min(0), x.max(1), x.min(1), x.max_all(), x.min_all()]
                    });
                    all.flat_map(|y| y.unwrap().to_scalars().unwrap()).collect()
                };
                let want = on(Tensor::from_scalars(&values, (3, n), dtype, &reference).unwrap());
                for device in devices() {
                    let got = on(Tensor::from_scalars(&values, (3, n), dtype, &device).unwrap());
                    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                        let (got, want) = (got.to_f64(), want.to_f64());
                        assert!(
                            got.to_bits() == want.to_bits(),
                            "{i} of {n} {dtype} {device:?}: {got:?}, not {want:?}"
                        );
                        assert!(
                            got != 0.0 || got.is_sign_positive(),
                            "{i} of {n} {dtype} {device:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn tensors_take_the_second_of_equal_zeros() {
    let device = Cpu::new();
    let zero = |x: f32| Tensor::full(40, x, DType::F32, &device).unwrap();
    let signs = |x: Tensor| x.to_vec::<f32>().unwrap().iter().all(|x| x.is_sign_negative());
    assert!(
        signs(zero(0.0).maximum(zero(-0.0)).unwrap())
            && signs(zero(0.0).minimum(zero(-0.0)).unwrap())
    );
    assert!(
        !signs(zero(-0.0).maximum(zero(0.0)).unwrap())
            && !signs(zero(-0.0).minimum(zero(0.0)).unwrap())
    );
    assert!(!signs(zero(-0.0).relu().unwrap()));
}
