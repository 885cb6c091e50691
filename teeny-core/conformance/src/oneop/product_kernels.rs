//! A kernel after a matrix product or a convolution: any sizes, layouts and types of both. The
//! kernels are such that an error of the product stays as large as it is.

use super::compare::coarseness;
use super::products::sizes;
use super::windows::{Geometry, float, geometry, transforms};
use super::{Case, Family, roundings_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use std::sync::Arc;
use teeny_core::{DType, Error, Kernel, Op, Result, Scalar, Shape, Tensor, Window};

pub const FAMILIES: &[Family] = &[
    Family { name: "matmul_kernel", weight: 8, generate: matmul_kernel },
    Family { name: "conv_kernel", weight: 5, generate: conv_kernel },
];

/// A kernel of the product and one or two operands, the values of its parameters, and its name.
struct After {
    kernel: Arc<Kernel>,
    params: Vec<Scalar>,
    name: &'static str,
}

fn after(dice: &mut Dice, dtype: DType) -> Result<After> {
    let pair = [dtype; 2];
    let names = ["relu", "two", "add", "choice", "cast", "gelu", "tanh", "pass", "scaled"];
    // Functions of integers round.
    let name = names[dice.below(if dtype.is_float() { 9 } else { 5 })];
    let kernel = match name {
        "relu" => Kernel::build(pair, [], |[y, b], []| [(y + b).maximum(0)]),
        "two" => Kernel::build([dtype; 3], [], |[y, b, r], []| [y + b, (y + b) - r]),
        "add" => Kernel::build(pair, [dtype], |[y, b], [p]| [y + b + p]),
        "choice" => {
            Kernel::build([dtype, dtype, DType::Bool], [], |[y, b, c], []| [c.where_cond(y, b)])
        }
        // The target dtype must not be more precise, because the result's dtype sets the tolerance.
        "cast" => {
            let to = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
            Kernel::build(pair, [], |[y, b], []| [(y + b).cast(to)])
        }
        "gelu" => Kernel::build(pair, [], |[y, b], []| [(y + b).gelu()]),
        "tanh" => Kernel::build(pair, [], |[y, b], []| [(y + b).tanh()]),
        "scaled" => Kernel::build(pair, [], |[y, b], []| [(y + b) * -0.7]),
        _ => Kernel::build(pair, [], |[y, b], []| [y, b]),
    }?;
    let params = vec![Scalar::Int(1).cast(dtype.compute()); kernel.params().len()];
    Ok(After { kernel: Arc::new(kernel), params, name })
}

/// The operands of the kernel beside a product of shape `out`: each of that shape, or one that
/// broadcasts to it.
fn others(dice: &mut Dice, kernel: &Kernel, out: Shape) -> Vec<Operand> {
    let types = &kernel.inputs()[1..];
    let floats = dice.pick(&[Values::Tame, Values::Tame, Values::Sprinkled]);
    let one = |&dtype: &DType| {
        let mut shape = out;
        for axis in 0..out.ndim() {
            if dice.one_in(3) {
                shape = shape.with_size(axis, 1);
            }
        }
        let values = if dtype.is_float() { floats } else { Values::Any };
        Operand::new(dice, shape, dtype, values)
    };
    types.iter().map(one).collect()
}

/// The case of a product of `operands` of shape `out`. `terms` bounds the roundings of the product.
fn case(
    op: &'static str,
    [a, b]: [Operand; 2],
    window: Option<Window>,
    (after, others): (After, Vec<Operand>),
    out: Shape,
    (dtype, terms): (DType, f64),
) -> Case {
    let After { kernel, params, name } = after;
    let detail = format!("{name} after {window:?}");
    let abs = window.clone();
    let outputs = kernel.outputs().len();
    let body = move |x: &[Tensor]| {
        let wide = x[2..].iter().map(|x| x.expand(out)).collect::<Result<Vec<_>>>()?;
        let others: &[&Tensor] = &wide.iter().collect::<Vec<_>>();
        let (kernel, params, device) = (&kernel, &params[..], x[0].device());
        let y = match &window {
            Some(window) => {
                Op::ConvKernel { x: &x[0], weight: &x[1], window, kernel, others, params }
            }
            None => Op::MatmulKernel { lhs: &x[0], rhs: &x[1], kernel, others, params },
        }
        .tensor_list(device)?;
        match y.iter().all(|y| *y.shape() == out) {
            true => Ok(y.into()),
            false => Err(Error::internal(format!("a shape is not {out}"))),
        }
    };
    let case = Case::new(op, [a, b].into_iter().chain(others).collect(), detail, body);
    if !dtype.is_float() {
        return case;
    }
    // A product of 16-bit floats is rounded before the kernel, and perhaps to the other neighbour.
    let rounded = if dtype.is_half() { 2.0 * coarseness(dtype) } else { 0.0 };
    case.scaled(2.0 * (terms + rounded) + 32.0, move |x| {
        let (a, b) = (x[0].abs()?, x[1].abs()?);
        let mut sum = match &abs {
            Some(window) => Op::Conv { x: &a, weight: &b, window }.tensor(a.device())?,
            None => Op::Matmul { lhs: &a, rhs: &b }.tensor(a.device())?,
        };
        for x in x[2..].iter().filter(|x| x.dtype().is_float()) {
            // If the kernel chooses an infinite operand or NaN, the result is not finite either.
            sum = sum.add(&x.abs()?.nan_to_num(0.0, Some(0.0), None)?)?;
        }
        sum = sum.add(1.0)?;
        Ok(vec![sum; outputs])
    })
}

fn matmul_kernel(dice: &mut Dice) -> Result<Case> {
    let dtype = match dice.below(4) {
        0 | 1 => DType::F32,
        2 => float(dice),
        _ => dice.pick(&DType::ALL[1..]),
    };
    let work = 10 * dice.budget();
    let [batch, mut m, mut k, n] = sizes(dice, work);
    if dice.one_in(8) && n < 40 {
        (m, k) = (n, n); // both operands have one shape
    }
    let lead: Vec<usize> = match dice.below(3) {
        0 if batch == 1 => vec![],
        1 => vec![batch],
        _ => vec![batch, dice.between(1, 2)],
    };
    let shape = |rows, columns| Shape::new(&[lead.as_slice(), &[rows, columns]].concat());
    let mut operand = |shape| {
        let values = if dtype.is_float() { Values::linear(dice) } else { Values::Any };
        Operand::new(dice, shape, dtype, values)
    };
    let (lhs, rhs) = (operand(shape(m, k)?), operand(shape(k, n)?));
    let (after, out) = (after(dice, dtype)?, shape(m, n)?);
    let others = others(dice, &after.kernel, out);
    let terms = roundings_of(k, dtype);
    Ok(case("matmul_kernel", [lhs, rhs], None, (after, others), out, (dtype, terms)))
}

fn conv_kernel(dice: &mut Dice) -> Result<Case> {
    let work = 8 * dice.budget();
    let Geometry { x, weight, out, window } = geometry(dice, work)?;
    let dtype = float(dice);
    // Of nothing but padding a device makes zeros, whatever they are multiplied by.
    let b = dice.pick(&[Values::Tame, Values::Tame, Values::Gapped]);
    let (a, b) = (Values::linear(dice), if x.numel() == 0 { Values::Tame } else { b });
    let operands = [Operand::new(dice, x, dtype, a), Operand::new(dice, weight, dtype, b)];
    let after = after(dice, dtype)?;
    let others = others(dice, &after.kernel, out);
    let terms = roundings_of(weight[1..].iter().product(), dtype) + transforms(&weight[2..]);
    Ok(case("conv_kernel", operands, Some(window), (after, others), out, (dtype, terms)))
}
