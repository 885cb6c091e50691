//! Reductions, reductions of kernels, and scans.

use super::compare::Tolerance;
use super::elementwise::{Mix, random_kernel};
use super::{Case, FLOATS, Family, of_shape, roundings_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use std::sync::Arc;
use teeny_core::{DType, Extremum, Op, ReduceOp, Result, Scalar, ScanOp, Shape, Tensor};

pub const FAMILIES: &[Family] = &[
    Family { name: "reduce", weight: 12, generate: reduce },
    Family { name: "reduce_kernel", weight: 6, generate: reduce_kernel },
    Family { name: "scan", weight: 4, generate: scan },
    Family { name: "cum_max", weight: 2, generate: cum_max },
];

/// A type that `op` accepts: one of two is a float where there is a choice.
fn dtype_for(dice: &mut Dice, op: ReduceOp) -> DType {
    match op {
        ReduceOp::Any | ReduceOp::All => DType::Bool,
        _ if dice.one_in(3) => DType::F32,
        _ if dice.one_in(3) => dice.pick(&FLOATS),
        ReduceOp::Sum | ReduceOp::Prod => dice.pick(&DType::ALL[1..]),
        _ => dice.pick(&DType::ALL),
    }
}

/// Values of which a product of `n` floats stays in range. Products of integers wrap.
fn factors(dice: &mut Dice, n: usize, dtype: DType) -> Values {
    if !dtype.is_float() && dice.one_in(2) {
        return Values::Any;
    }
    if n <= 60 && dice.one_in(2) { Values::Positive } else { Values::Signs }
}

/// The number of elements that become one.
fn reduced(shape: &Shape, axes: &[usize]) -> usize {
    axes.iter().map(|&a| shape[a]).product()
}

/// The axes that `op` reduces: one for positions.
fn axes_for(dice: &mut Dice, op: ReduceOp, ndim: usize) -> Vec<usize> {
    if op.is_arg() { vec![dice.below(ndim)] } else { dice.axes(ndim) }
}

fn out_shape(shape: &Shape, axes: &[usize]) -> Result<Shape> {
    Shape::new(
        &(0..shape.ndim()).filter(|a| !axes.contains(a)).map(|a| shape[a]).collect::<Vec<_>>(),
    )
}

/// True if `op` has no result for this shape.
fn undefined(op: ReduceOp, shape: &Shape, axes: &[usize]) -> bool {
    matches!(op, ReduceOp::Max | ReduceOp::Min | ReduceOp::ArgMax | ReduceOp::ArgMin)
        && reduced(shape, axes) == 0
}

fn at_least_one_axis(dice: &mut Dice, budget: usize) -> Shape {
    let ndim = dice.ndim().max(1);
    dice.shape_of(ndim, budget)
}

fn reduce(dice: &mut Dice) -> Result<Case> {
    let op = dice.pick(&ReduceOp::ALL);
    let dtype = dtype_for(dice, op);
    let budget = dice.wide_budget();
    let mut shape = at_least_one_axis(dice, budget);
    let mut axes = axes_for(dice, op, shape.ndim());
    if dice.one_in(12) {
        // More results than a block of threads makes.
        (shape, axes) = (Shape::new(&[1020 + dice.below(80), 1 + dice.below(5)])?, vec![1]);
    }
    if undefined(op, &shape, &axes) {
        shape = Shape::new(&shape.iter().map(|&n| n.max(1)).collect::<Vec<_>>())?;
    }
    let n = reduced(&shape, &axes);
    let values = match op {
        ReduceOp::Sum => Values::terms(dice, dtype),
        ReduceOp::Prod => factors(dice, n, dtype),
        _ => Values::exact(dice),
    };
    let operand = Operand::new(dice, shape, dtype, values);
    let out = out_shape(&shape, &axes)?;
    let detail = format!("{op:?} over {axes:?}");
    let list = axes.clone();
    let body = move |x: &[Tensor]| {
        let y = Op::Reduce { op, x: &x[0], axes: &axes }.tensor(x[0].device())?;
        of_shape(y, out)
    };
    let case = Case::new("reduce", vec![operand], detail, body);
    Ok(match op {
        ReduceOp::Sum if dtype.is_float() => {
            let signed: Vec<i64> = list.iter().map(|&a| a as i64).collect();
            case.scaled(roundings_of(n, dtype), move |x| Ok(vec![x[0].abs()?.sum(signed.clone())?]))
        }
        ReduceOp::Prod if dtype.is_float() => case.within(Tolerance::Ulps(n as f64 + 2.0, 0.0)),
        // Either of +0 and -0 may be the extremum.
        ReduceOp::Max | ReduceOp::Min => case,
        _ => case.within(Tolerance::Bits),
    })
}

fn reduce_kernel(dice: &mut Dice) -> Result<Case> {
    let op = dice.pick(&ReduceOp::ALL);
    let wanted = dtype_for(dice, op);
    let budget = dice.budget();
    let mut shape = at_least_one_axis(dice, budget);
    let mut axes = axes_for(dice, op, shape.ndim());
    if dice.one_in(12) {
        (shape, axes) = (Shape::new(&[1 + dice.below(5), 1020 + dice.below(80)])?, vec![0]);
    }
    if undefined(op, &shape, &axes) {
        shape = Shape::new(&shape.iter().map(|&n| n.max(1)).collect::<Vec<_>>())?;
    }
    let n = reduced(&shape, &axes);
    // The definition stores the kernel's values in their type; a kernel that rounds would show the
    // difference.
    let mix = match op {
        ReduceOp::Any | ReduceOp::All => Mix::Predicate,
        ReduceOp::Prod => Mix::Choice,
        _ if wanted.is_half() => Mix::Choice,
        _ => Mix::Tame,
    };
    let made = random_kernel(dice, wanted, mix)?;
    let kernel = Arc::new(made.kernel);
    let dtype = kernel.output_dtype(0);
    let values = match op {
        ReduceOp::Prod => factors(dice, n, wanted),
        _ if wanted.is_int() => Values::whole_range(dice),
        ReduceOp::Sum => dice.pick(&[Values::Tame, Values::Whole]),
        _ if mix == Mix::Choice || mix == Mix::Predicate => Values::exact(dice),
        _ => dice.pick(&[Values::Tame, Values::Whole, Values::Sprinkled]),
    };
    let operands: Vec<Operand> =
        kernel.inputs().iter().map(|&t| Operand::new(dice, shape, t, values)).collect();
    let out = out_shape(&shape, &axes)?;
    let detail =
        format!("{op:?} over {axes:?} of {kernel:?} with {:?}", made.params).replace('\n', " | ");
    let (params, list, program) = (made.params, axes.clone(), kernel.clone());
    let numbers: Vec<Scalar> = params.clone();
    let body = move |x: &[Tensor]| {
        let inputs: Vec<&Tensor> = x.iter().collect();
        let y = Op::ReduceKernel {
            kernel: &kernel,
            inputs: &inputs,
            params: &params,
            shape: &shape,
            op,
            axes: &axes,
        }
        .tensor(x[0].device())?;
        of_shape(y, out)
    };
    let case = Case::new("reduce_kernel", operands, detail, body);
    Ok(match op {
        ReduceOp::Sum if dtype.is_float() => {
            let signed: Vec<i64> = list.iter().map(|&a| a as i64).collect();
            let scale = move |x: &[Tensor]| {
                let narrow = x
                    .iter()
                    .zip(program.inputs())
                    .map(|(x, &t)| x.cast(t))
                    .collect::<Result<Vec<_>>>()?;
                let values = program.run(&narrow.iter().collect::<Vec<_>>(), &numbers)?;
                Ok(vec![values[0].cast(DType::F64)?.abs()?.sum(signed.clone())?])
            };
            case.scaled(roundings_of(n, dtype), scale)
        }
        ReduceOp::Prod if dtype.is_float() => case.within(Tolerance::Ulps(n as f64 + 2.0, 0.0)),
        _ => case,
    })
}

fn cum_max(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let shape = at_least_one_axis(dice, budget);
    let axis = dice.below(shape.ndim());
    let extremum = if dice.one_in(2) { Extremum::Largest } else { Extremum::Smallest };
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    let description = format!("along {axis} {extremum:?}");
    Ok(Case::new("cum_max", vec![x], description, move |x| {
        let [values, positions] = Op::CumMax { x: &x[0], axis, extremum }.tensors(x[0].device())?;
        Ok(vec![values, positions])
    })
    .within(Tolerance::Bits))
}

fn scan(dice: &mut Dice) -> Result<Case> {
    let op = dice.pick(&[ScanOp::Sum, ScanOp::Prod]);
    let dtype = dtype_for(dice, ReduceOp::Sum);
    let budget = dice.budget();
    let shape = at_least_one_axis(dice, budget);
    let axis = dice.below(shape.ndim());
    let n = shape[axis];
    let values = match op {
        ScanOp::Sum => Values::terms(dice, dtype),
        ScanOp::Prod => factors(dice, n, dtype),
    };
    let operand = Operand::new(dice, shape, dtype, values);
    let body = move |x: &[Tensor]| {
        let y = Op::Scan { op, x: &x[0], axis }.tensor(x[0].device())?;
        Ok(vec![y])
    };
    let case = Case::new("scan", vec![operand], format!("{op:?} along {axis}"), body);
    Ok(match op {
        ScanOp::Sum if dtype.is_float() => {
            case.scaled(n as f64 + 8.0, move |x| Ok(vec![x[0].abs()?.cumsum(axis as isize)?]))
        }
        ScanOp::Prod if dtype.is_float() => case.within(Tolerance::Ulps(n as f64 + 2.0, 0.0)),
        _ => case,
    })
}
