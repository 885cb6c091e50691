//! Convolution and pooling with their gradients, over any windows that fit.

use super::{Case, FLOATS, Family, of_shape, roundings_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use teeny_core::validate::{conv_shape, pool_shape};
use teeny_core::{DType, Op, Result, Shape, Tensor, Window};

pub const FAMILIES: &[Family] = &[
    Family { name: "conv", weight: 6, generate: conv },
    Family { name: "conv_input_grad", weight: 4, generate: conv_input_grad },
    Family { name: "conv_weight_grad", weight: 4, generate: conv_weight_grad },
    Family { name: "max_pool", weight: 4, generate: max_pool },
    Family { name: "avg_pool", weight: 3, generate: avg_pool },
];

/// A window's geometry: plain most of the time, with strides beyond the kernel and padding beyond
/// it too.
fn window(dice: &mut Dice, ndim: usize) -> Window {
    let plain = dice.one_in(3);
    let mut each = |most: usize, least: usize| -> Vec<usize> {
        (0..ndim)
            .map(|_| if plain || dice.one_in(2) { least } else { dice.between(least, most) })
            .collect()
    };
    let (stride, dilation) = (each(5, 1), each(3, 1));
    let same = dice.one_in(3);
    let padding = (0..ndim)
        .map(|_| {
            if same {
                1
            } else if dice.one_in(2) {
                0
            } else {
                dice.below(7)
            }
        })
        .collect();
    Window { stride, padding, dilation, groups: 1 }
}

/// Sizes of windows that fit into `spatial`.
fn kernel(dice: &mut Dice, spatial: &[usize], window: &Window) -> Vec<usize> {
    let three = dice.one_in(3);
    spatial
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            let most =
                ((n + 2 * window.padding[i]).saturating_sub(1) / window.dilation[i] + 1).max(1);
            (if three { 3 } else { dice.between(1, 6) }).min(most)
        })
        .collect()
}

/// The operands' shapes of a convolution, and its window; at most about `work` multiplications.
pub struct Geometry {
    pub x: Shape,
    pub weight: Shape,
    pub out: Shape,
    pub window: Window,
}

pub fn geometry(dice: &mut Dice, work: usize) -> Result<Geometry> {
    loop {
        let ndim = dice.pick(&[1, 2, 2, 2, 3]);
        let mut window = window(dice, ndim);
        let spatial: Vec<usize> = match ndim {
            1 => vec![dice.size(work / 4)],
            _ => (0..ndim).map(|_| if dice.one_in(30) { 0 } else { dice.between(1, 34) }).collect(),
        };
        let kernel = kernel(dice, &spatial, &window);
        let groups = dice.pick(&[1, 1, 1, 2, 3]);
        let (each_in, each_out) =
            (dice.pick(&[1, 1, 2, 3, 4, 8, 17]), dice.pick(&[1, 1, 2, 3, 5, 8, 16, 33]));
        window.groups = groups;
        let batch = if dice.one_in(40) { 0 } else { dice.between(1, 3) };
        let x = Shape::new(&[&[batch, groups * each_in], spatial.as_slice()].concat())?;
        let weight = Shape::new(&[&[groups * each_out, each_in], kernel.as_slice()].concat())?;
        let Ok(out) = conv_shape(&x, &weight, &window) else { continue };
        let multiplications = out.numel() * weight.numel() / (groups * each_out);
        if multiplications <= work && x.numel() <= 2 * work && weight.numel() <= work {
            return Ok(Geometry { x, weight, out, window });
        }
    }
}

pub fn float(dice: &mut Dice) -> DType {
    if dice.one_in(2) { DType::F32 } else { dice.pick(&FLOATS) }
}

/// Further roundings of windows that Winograd's transforms apply to: they add and subtract
/// neighbours before they multiply.
pub fn transforms(kernel: &[usize]) -> f64 {
    if kernel.iter().all(|&k| k == 3) { 300.0 } else { 0.0 }
}

/// Values to multiply with `x`. A window of padding alone must give zero, whatever the padding is
/// multiplied by.
fn beside(dice: &mut Dice, x: &Shape) -> Values {
    if x.numel() == 0 { Values::Tame } else { Values::linear(dice) }
}

fn conv(dice: &mut Dice) -> Result<Case> {
    let work = 8 * dice.budget();
    let Geometry { x, weight, out, window } = geometry(dice, work)?;
    let dtype = float(dice);
    let (a, b) = (Values::linear(dice), beside(dice, &x));
    let operands = vec![Operand::new(dice, x, dtype, a), Operand::new(dice, weight, dtype, b)];
    let detail = format!("{window:?}");
    let terms = weight[1..].iter().product();
    let abs = window.clone();
    let body = move |x: &[Tensor]| {
        let y = Op::Conv { x: &x[0], weight: &x[1], window: &window }.tensor(x[0].device())?;
        of_shape(y, out)
    };
    let factor = roundings_of(terms, dtype) + transforms(&weight[2..]);
    let scale = move |x: &[Tensor]| {
        let y = Op::Conv { x: &x[0].abs()?, weight: &x[1].abs()?, window: &abs }
            .tensor(x[0].device())?;
        Ok(vec![y])
    };
    Ok(Case::new("conv", operands, detail, body).scaled(factor, scale))
}

/// Values of a gradient's terms, now and then with NaN among them.
fn terms(dice: &mut Dice) -> Values {
    if dice.one_in(5) { Values::Gapped } else { Values::linear(dice) }
}

fn conv_input_grad(dice: &mut Dice) -> Result<Case> {
    let work = 6 * dice.budget();
    let Geometry { x, weight, out, window } = geometry(dice, work)?;
    let dtype = float(dice);
    let (a, b) = (terms(dice), terms(dice));
    let operands = vec![Operand::new(dice, out, dtype, a), Operand::new(dice, weight, dtype, b)];
    let detail = format!("{window:?} for {x}");
    let terms = weight.numel() / weight[1].max(1);
    let abs = window.clone();
    let body = move |t: &[Tensor]| {
        let y = Op::ConvInputGrad { g: &t[0], weight: &t[1], window: &window, x_shape: &x }
            .tensor(t[0].device())?;
        of_shape(y, x)
    };
    let factor = roundings_of(terms, dtype) + transforms(&weight[2..]);
    let scale = move |t: &[Tensor]| {
        let y =
            Op::ConvInputGrad { g: &t[0].abs()?, weight: &t[1].abs()?, window: &abs, x_shape: &x }
                .tensor(t[0].device())?;
        Ok(vec![y])
    };
    Ok(Case::new("conv_input_grad", operands, detail, body).wide().scaled(factor, scale))
}

fn conv_weight_grad(dice: &mut Dice) -> Result<Case> {
    let work = 8 * dice.budget();
    let Geometry { x, weight, out, window } = geometry(dice, work)?;
    let dtype = float(dice);
    let (a, b) = (beside(dice, &x), terms(dice));
    let operands = vec![Operand::new(dice, out, dtype, a), Operand::new(dice, x, dtype, b)];
    let detail = format!("{window:?} for {weight}");
    let terms = out.numel() / out[1].max(1);
    let abs = window.clone();
    let body = move |t: &[Tensor]| {
        let y = Op::ConvWeightGrad { g: &t[0], x: &t[1], window: &window, weight_shape: &weight }
            .tensor(t[0].device())?;
        of_shape(y, weight)
    };
    let further = transforms(&weight[2..]);
    let (factor, mixed) = (roundings_of(terms, dtype) + further, further > 0.0);
    let scale = move |t: &[Tensor]| {
        let y = Op::ConvWeightGrad {
            g: &t[0].abs()?,
            x: &t[1].abs()?,
            window: &abs,
            weight_shape: &weight,
        }
        .tensor(t[0].device())?; // (C_out, C_in, window..)
        // Winograd's transforms mix the terms of all weights of a window: one may see only the
        // small ones.
        if !mixed {
            return Ok(vec![y]);
        }
        let finite = y.is_finite()?;
        let window: Vec<usize> = (2..weight.ndim()).collect();
        let largest = finite.where_cond(&y, 0.0)?.max_keepdim(window)?.expand(weight)?;
        Ok(vec![finite.where_cond(&largest, &y)?])
    };
    Ok(Case::new("conv_weight_grad", operands, detail, body).scaled(factor, scale))
}

/// A shape to pool, the sizes of its windows, the window and the result's shape.
fn pooled(dice: &mut Dice) -> Result<(Shape, Vec<usize>, Window, Shape)> {
    let budget = if dice.one_in(6) { 5_000 } else { dice.budget() };
    loop {
        let ndim = dice.pick(&[1, 2, 2, 2, 3]);
        let window = window(dice, ndim);
        let mut spatial: Vec<usize> =
            (0..ndim).map(|_| if dice.one_in(30) { 0 } else { dice.between(1, 40) }).collect();
        if ndim == 1 {
            spatial = vec![dice.size(budget)];
        }
        let size = kernel(dice, &spatial, &window);
        let lead: Vec<usize> =
            (0..dice.below(3)).map(|_| dice.pick(&[0, 1, 1, 1, 2, 2, 2, 3, 3, 4])).collect();
        let shape = Shape::new(&[lead, spatial].concat())?;
        let Ok(out) = pool_shape(&shape, &size, &window) else { continue };
        if out.numel() * size.iter().product::<usize>() <= 3 * budget && shape.numel() <= 3 * budget
        {
            return Ok((shape, size, window, out));
        }
    }
}

/// The largest of every window, its position, and the gradient through both.
fn max_pool(dice: &mut Dice) -> Result<Case> {
    let (shape, size, window, out) = pooled(dice)?;
    let dtype = if dice.one_in(2) { float(dice) } else { dice.pick(&DType::ALL[1..]) };
    let values = Values::exact(dice);
    let g = Values::linear(dice);
    let operands =
        vec![Operand::new(dice, shape, dtype, values), Operand::new(dice, out, dtype, g)];
    let detail = format!("{size:?} {window:?}");
    let (terms, spatial) = (size.iter().product(), size.len());
    let exact = super::Tolerance::Equal;
    let last = out.ndim() - 1;
    let how = if last > 0 { dice.below(4) } else { 2 };
    let (size_too, window_too) = (size.clone(), window.clone());
    let body = move |x: &[Tensor]| {
        let [y, positions] =
            Op::MaxPool { x: &x[0], kernel_size: &size, window: &window }.tensors(x[0].device())?;
        if !dtype.is_float() {
            return Ok(vec![y, positions]);
        }
        // The same positions, seen through a view.
        let seen = match how {
            0 => positions.flip(-1)?.t()?.copy()?.t()?.flip(-1)?,
            1 => {
                Tensor::cat(&[&positions.mul(0)?, &positions], -1)?.slice(-1, out[last] as i64..)?
            }
            _ => positions.clone(),
        };
        let back = Op::MaxPoolGrad { g: &x[1], positions: &seen, x_shape: &shape, spatial }
            .tensor(x[1].device())?;
        Ok(vec![y, positions, back])
    };
    let scale = move |x: &[Tensor]| {
        let [_, positions] = Op::MaxPool { x: &x[0], kernel_size: &size_too, window: &window_too }
            .tensors(x[0].device())?;
        let back =
            Op::MaxPoolGrad { g: &x[1].abs()?, positions: &positions, x_shape: &shape, spatial }
                .tensor(x[1].device())?;
        Ok(vec![x[1].clone(), positions, back])
    };
    let case = Case::new("max_pool", operands, detail, body);
    if !dtype.is_float() {
        return Ok(case);
    }
    let factor = roundings_of(terms, dtype);
    Ok(case.scaled(factor, scale).each_within(vec![exact, exact, super::Tolerance::Scaled(factor)]))
}

fn avg_pool(dice: &mut Dice) -> Result<Case> {
    let (shape, size, window, out) = pooled(dice)?;
    let dtype = float(dice);
    let values = Values::linear(dice);
    let operands = vec![Operand::new(dice, shape, dtype, values)];
    let detail = format!("{size:?} {window:?}");
    let terms = size.iter().product();
    let (size_too, window_too) = (size.clone(), window.clone());
    let body = move |x: &[Tensor]| {
        let y =
            Op::AvgPool { x: &x[0], kernel_size: &size, window: &window }.tensor(x[0].device())?;
        of_shape(y, out)
    };
    let scale = move |x: &[Tensor]| {
        let y = Op::AvgPool { x: &x[0].abs()?, kernel_size: &size_too, window: &window_too }
            .tensor(x[0].device())?;
        Ok(vec![y])
    };
    Ok(Case::new("avg_pool", operands, detail, body)
        .wide()
        .scaled(roundings_of(terms, dtype), scale))
}
