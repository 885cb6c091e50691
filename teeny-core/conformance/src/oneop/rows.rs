//! Random row programs. Their reductions are exact (extrema, bools, integers) at any place, and sums
//! of floats at the end, so that any number of levels agrees with the oracle.

use super::compare::Tolerance;
use super::elementwise::{Mix, far, step};
use super::{Case, Family, roundings_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use std::sync::Arc;
use teeny_core::kernel::{Extent, Fold, MAX_INPUTS, MAX_OUTPUTS};
use teeny_core::{Builder, DType, Expr, Kernel, Op, Result, Scalar, Shape, Tensor};

pub const FAMILIES: &[Family] = &[
    Family { name: "rows", weight: 10, generate: rows },
    Family { name: "row_sums", weight: 4, generate: sums },
];

/// A shape with rows, and their axes.
fn lined(dice: &mut Dice) -> (Shape, Vec<usize>) {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    (shape, if dice.one_in(4) { dice.axes(ndim) } else { vec![dice.below(ndim)] })
}

/// A random program on inputs of which the first has type `dtype`: its values, last the deepest.
fn program<'b>(
    dice: &mut Dice,
    builder: &'b Builder,
    dtype: DType,
    mix: Mix,
    params: &mut Vec<Scalar>,
) -> Vec<Expr<'b>> {
    let mut nodes = vec![builder.input(dtype)];
    if mix == Mix::Full && dice.one_in(2) {
        let number = far(dice).cast(dtype.compute());
        params.push(number);
        nodes.push(builder.param(dtype));
    }
    let most = if dice.one_in(6) { MAX_INPUTS } else { 3 };
    for _ in 1..dice.between(1, most) {
        let extent = dice.pick(&[Extent::Element, Extent::Element, Extent::Row]);
        let full = mix == Mix::Full && dice.one_in(3);
        nodes.push(builder.input_of(if full { dice.pick(&DType::ALL) } else { dtype }, extent));
    }
    for _ in 0..dice.between(1, 14) {
        if dice.below(4) > 0 {
            nodes.extend(step(dice, &nodes, mix));
            continue;
        }
        let recent = &nodes[nodes.len().saturating_sub(4)..];
        let x = dice.pick(recent);
        let value = match (x.dtype(), dice.below(6)) {
            (_, 0) => x.index(),
            (DType::Bool, 1 | 2) => x.any(),
            (DType::Bool, _) => x.all(),
            (t, 1) if t.is_int() => x.fold(Fold::Sum),
            (t, 2) if t.is_int() => x.fold(Fold::Prod),
            // Either of +0 and -0 may be the extremum.
            (t, n) if t.is_float() => (if n % 2 == 0 { x.max() } else { x.min() }) + 0.0,
            (_, n) => {
                if n % 2 == 0 {
                    x.max()
                } else {
                    x.min()
                }
            }
        };
        nodes.push(if mix == Mix::Full { value } else { value.cast(dtype) });
    }
    nodes
}

/// A case that runs `program` on operands of its inputs' shapes.
fn run(
    dice: &mut Dice,
    op: &'static str,
    program: Kernel,
    (shape, axes): (Shape, Vec<usize>),
    (values, params): (&[Values], Vec<Scalar>),
) -> Case {
    let one = shape.reduced(&axes, true);
    let of = move |extent| if extent == Extent::Element { shape } else { one };
    let operands: Vec<Operand> = (0..program.inputs().len())
        .map(|i| {
            let (shape, dtype) = (of(program.input_extent(i)), program.inputs()[i]);
            Operand::new(dice, shape, dtype, values[i % values.len()])
        })
        .collect();
    let detail = format!("along {axes:?}: {program:?} with {params:?}").replace('\n', " | ");
    let program = Arc::new(program);
    let body = move |x: &[Tensor]| {
        let inputs: Vec<&Tensor> = x.iter().collect();
        let (program, inputs, axes) = (&program, &inputs[..], &axes[..]);
        Op::Rows { program, inputs, params: &params, shape: &shape, axes }
            .tensor_list(x[0].device())
            .map(Vec::from)
    };
    Case::new(op, operands, detail, body)
}

fn rows(dice: &mut Dice) -> Result<Case> {
    let dtype = if dice.one_in(2) { DType::F32 } else { dice.pick(&DType::ALL) };
    let builder = Builder::new();
    let mut params = Vec::new();
    let nodes = program(dice, &builder, dtype, Mix::Full, &mut params);
    let mut outputs = vec![nodes[nodes.len() - 1]];
    for _ in 1..dice.between(1, MAX_OUTPUTS) {
        outputs.push(dice.pick(&nodes));
    }
    let program = builder.finish(&outputs)?;
    let values = [Values::exact(dice), Values::exact(dice), Values::exact(dice)];
    let (mut shape, axes) = lined(dice);
    if shape.numel() == 0 {
        // an extremum of nothing is an error, of which `request` has cases
        shape = Shape::new(&shape.iter().map(|&n| n.max(1)).collect::<Vec<_>>())?;
    }
    Ok(run(dice, "rows", program, (shape, axes), (&values, params)).within(Tolerance::Bits))
}

/// The sum of a random value, one a row, and a value less its mean.
fn sums(dice: &mut Dice) -> Result<Case> {
    let dtype = dice.pick(&[DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16]);
    let builder = Builder::new();
    let mix = if dtype.is_half() { Mix::Choice } else { Mix::Tame };
    let nodes = program(dice, &builder, dtype, mix, &mut Vec::new());
    let mut of_type = nodes.iter().copied().filter(|n| n.dtype() == dtype);
    let x = of_type.next_back().unwrap_or(nodes[0]);
    let values = dice.pick(&[Values::Tame, Values::Whole]);
    let (shape, axes) = lined(dice);
    let shape = Shape::new(&shape.iter().map(|&n| n.max(1)).collect::<Vec<_>>())?;
    let n: usize = axes.iter().map(|&axis| shape[axis]).product();
    let kernel = builder.finish(&[x.sum(), x - x.mean()])?;
    // The magnitude that errors are relative to.
    let size = x.abs();
    let scale = Arc::new(builder.finish(&[size.sum(), size + size.mean()])?);
    let list = axes.clone();
    let case = run(dice, "row_sums", kernel, (shape, axes), (&[values], Vec::new()));
    Ok(case.scaled(roundings_of(n, dtype) + 4.0, move |x| {
        let narrow = x.iter().zip(scale.inputs()).map(|(x, &t)| x.cast(t));
        let narrow = narrow.collect::<Result<Vec<_>>>()?;
        let inputs: Vec<&Tensor> = narrow.iter().collect();
        let (program, inputs, axes) = (&scale, &inputs[..], &list[..]);
        let op = Op::Rows { program, inputs, params: &[], shape: &shape, axes };
        let scales = { op }.tensor_list(x[0].device())?;
        scales.iter().map(|x| x.cast(DType::F64)).collect()
    }))
}
