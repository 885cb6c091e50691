//! Softmax, cross-entropy and normalisation with their gradients, against their definitions in f64.
//!
//! Scales say what an f32 computation can lose: an exponential passes on the relative error of its
//! argument times the argument, a difference keeps the absolute errors of its terms.

use super::{Case, FLOATS, Family, roundings_of};
use crate::cases::fused::cross_entropy_grad;
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use teeny_core::{DType, Result, RowFunction, Scalar, Shape, Tensor, map};

pub const FAMILIES: &[Family] = &[
    Family { name: "softmax", weight: 4, generate: softmax },
    Family { name: "softmax_grad", weight: 3, generate: softmax_grad },
    Family { name: "cross_entropy", weight: 4, generate: cross_entropy },
    Family { name: "norm", weight: 4, generate: norm },
    Family { name: "norm_grad", weight: 3, generate: norm_grad },
];

fn float(dice: &mut Dice) -> DType {
    if dice.one_in(2) { DType::F32 } else { dice.pick(&FLOATS) }
}

fn lined(dice: &mut Dice) -> (Shape, usize) {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    (dice.shape_of(ndim, budget), dice.below(ndim))
}

/// `p (16 + 2 |log p|)`, what a softmax's relative errors come to; 0 where p is 0.
fn softmax_scale(x: &Tensor, axis: usize) -> Result<Tensor> {
    let axis = axis as isize;
    map([&x.softmax(axis)?, &x.log_softmax(axis)?], |[p, l]| {
        let finite = l.maximum(-1e4);
        p * (finite.abs() * 2.0 + 16.0)
    })
}

fn softmax(dice: &mut Dice) -> Result<Case> {
    let (shape, axis) = lined(dice);
    let (dtype, log) = (float(dice), dice.one_in(2));
    let values = dice.pick(&[
        Values::Tame,
        Values::Tame,
        Values::Sprinkled,
        Values::Any,
        Values::Wide,
        Values::Same(0.1),
    ]);
    let x = Operand::new(dice, shape, dtype, values);
    let body = move |x: &[Tensor]| {
        let function = if log { RowFunction::LogSoftmax } else { RowFunction::Softmax };
        Ok(vec![function.run(&[&x[0]], &[], &[axis])?])
    };
    let terms = roundings_of(shape[axis], dtype);
    let case = Case::new("softmax", vec![x], format!("along {axis}, log {log}"), body).wide();
    Ok(case.scaled(1.0, move |x| {
        let scale = if log {
            x[0].log_softmax(axis as isize)?.abs()?.mul(2.0)?.add(16.0 + terms)?
        } else {
            softmax_scale(&x[0], axis)?.mul(1.0 + terms / 16.0)?
        };
        Ok(vec![scale])
    }))
}

fn softmax_grad(dice: &mut Dice) -> Result<Case> {
    let (shape, axis) = lined(dice);
    let (dtype, log) = (float(dice), dice.one_in(2));
    let values = Values::linear(dice);
    let y = gapped(dice, if log { Values::Tame } else { Values::Positive });
    let operands =
        vec![Operand::new(dice, shape, dtype, y), Operand::new(dice, shape, dtype, values)];
    let body = move |x: &[Tensor]| {
        let function = if log { RowFunction::LogSoftmaxGrad } else { RowFunction::SoftmaxGrad };
        Ok(vec![function.run(&[&x[0], &x[1]], &[], &[axis])?])
    };
    let terms = roundings_of(shape[axis], dtype);
    let case = Case::new("softmax_grad", operands, format!("along {axis}, log {log}"), body).wide();
    Ok(case.scaled(1.0, move |x| {
        let (y, g) = (&x[0], x[1].abs()?);
        let scale = if log {
            let sum = g.sum_keepdim(axis as i64)?;
            map([&g, y, &sum], |[g, y, s]| g * 4.0 + y.exp() * (y.abs() * 2.0 + 16.0 + terms) * s)?
        } else {
            let y = y.abs()?;
            let sum = y.mul(&g)?.sum_keepdim(axis as i64)?;
            map([&g, &y, &sum], |[g, y, s]| y * (g * 8.0 + s * (8.0 + terms)))?
        };
        Ok(vec![scale])
    }))
}

fn cross_entropy(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let shape = dice.shape_of(2, budget);
    let (n, classes) = (shape[0], shape[1].max(1));
    let shape = shape.with_size(1, classes);
    let (dtype, grad) = (float(dice), dice.one_in(2));
    let fits = |most: usize| classes <= most;
    let kinds = [
        (DType::I64, usize::MAX),
        (DType::I32, usize::MAX),
        (DType::U32, usize::MAX),
        (DType::U8, 256),
        (DType::I8, 128),
        (DType::I16, 1 << 15),
    ];
    let kinds: Vec<DType> =
        kinds.into_iter().filter(|&(_, most)| fits(most)).map(|(t, _)| t).collect();
    let kind = dice.pick(&kinds);
    let far = dice.bits() as i64 >> dice.below(64); // outside the classes mostly
    let last = Some(classes as i64 - 1);
    let ignored = dice.pick(&[None, None, Some(-100), Some(0), last, Some(far), Some(far)]);
    let outside = dice.one_in(10);
    let targets: Vec<Scalar> = (0..n.max(1))
        .map(|_| match ignored {
            Some(ignored) if Scalar::Int(ignored).fits(kind) && dice.one_in(4) => {
                Scalar::Int(ignored).cast(kind)
            }
            _ if outside && dice.one_in(8) => Scalar::Int(classes as i64).cast(kind),
            _ => Scalar::Int(dice.below(classes) as i64).cast(kind),
        })
        .collect();
    let values =
        dice.pick(&[Values::Tame, Values::Tame, Values::Sprinkled, Values::Same(0.1), Values::Any]);
    let rows = Shape::new(&[n])?;
    let mut operands =
        vec![Operand::new(dice, shape, dtype, values), Operand::of(dice, rows, kind, &targets)];
    if grad {
        // Finite: p - 1 times an infinity is NaN or not by the last place of p.
        let values = dice.pick(&[Values::Tame, Values::Wide, Values::Whole, Values::Same(0.1)]);
        let values = gapped(dice, values);
        operands.push(Operand::new(dice, rows, dtype, values));
    }
    let body = move |x: &[Tensor]| {
        let y =
            if grad { cross_entropy_grad(x, ignored) } else { x[0].cross_entropy(&x[1], ignored) };
        Ok(vec![y?])
    };
    let terms = roundings_of(classes, dtype);
    let case =
        Case::new("cross_entropy", operands, format!("ignored {ignored:?}, gradient {grad}"), body)
            .wide();
    Ok(case.scaled(1.0, move |x| {
        if grad {
            let g = x[2].abs()?.unsqueeze(1)?;
            // p - 1 at the target keeps the absolute error of p.
            let p = softmax_scale(&x[0], 1)?.mul(1.0 + terms / 16.0)?;
            let d = cross_entropy_grad(x, ignored)?.abs()?;
            let scale = map([&p, &g, &d], |[p, g, d]| (p + 1e-30) * g + d * 4.0)?;
            // The target's own place: errors relative to 1.
            let one = map([&g], |[g]| g * (16.0 + terms))?.expand(shape)?;
            let at_target = map([&scale, &one], |[s, o]| s.maximum(o))?;
            return Ok(vec![at_target]);
        }
        let losses = x[0].cross_entropy(&x[1], ignored)?;
        Ok(vec![losses.abs()?.mul(2.0)?.add(16.0 + terms)?])
    }))
}

/// The tensors that scale the error bound of normalised values: (h, scale of h, reciprocal
/// deviation).
fn standard(kind: RowFunction, x: &Tensor, eps: f64) -> Result<(Tensor, Tensor, Tensor)> {
    let centred = match kind {
        RowFunction::LayerNorm | RowFunction::LayerNormGrad => x.sub(&x.mean_keepdim(-1)?)?,
        _ => x.clone(),
    };
    let r = centred.square()?.mean_keepdim(-1)?.add(eps)?.rsqrt()?;
    let h = centred.mul(&r)?;
    let largest = x.abs()?.max_keepdim(-1)?.mul(&r)?;
    // The mean's error moves every value, and the deviation's follows the value.
    let loss = map([&h, &largest], |[h, l]| (h.abs() + 1.0) * (l + 4.0))?;
    Ok((h, loss, r))
}

fn rows(dice: &mut Dice) -> Shape {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    shape.with_size(ndim - 1, shape[ndim - 1].max(1))
}

fn normal_values(dice: &mut Dice) -> Values {
    dice.pick(&[
        Values::Tame,
        Values::Tame,
        Values::Sprinkled,
        Values::Same(0.1),
        Values::Positive,
        Values::Wide,
    ])
}

/// `values`, now and then with NaN among them.
fn gapped(dice: &mut Dice, values: Values) -> Values {
    if dice.one_in(6) { Values::Gapped } else { values }
}

fn norm(dice: &mut Dice) -> Result<Case> {
    let shape = rows(dice);
    let n = shape[shape.ndim() - 1];
    let (dtype, kind) = (float(dice), dice.pick(&[RowFunction::LayerNorm, RowFunction::RmsNorm]));
    let eps = dice.pick(&[1e-5, 1e-3, 1.0]);
    let values = normal_values(dice);
    let extra = dice.below(3);
    let line = Shape::new(&[n])?;
    let mut operands = vec![Operand::new(dice, shape, dtype, values)];
    for _ in 0..extra {
        let values = gapped(dice, Values::Tame);
        operands.push(Operand::new(dice, line, dtype, values));
    }
    let body = move |x: &[Tensor]| {
        let inputs: Vec<&Tensor> = x.iter().collect();
        Ok(vec![kind.run(&inputs, &[Scalar::Float(eps)], &[x[0].ndim() - 1])?])
    };
    let terms = roundings_of(n, dtype);
    let case = Case::new("norm", operands, format!("{kind:?} eps {eps}"), body).wide();
    Ok(case.scaled(terms, move |x| {
        let (_, mut scale, _) = standard(kind, &x[0], eps)?;
        if let Some(w) = x.get(1) {
            scale = scale.mul(&w.abs()?)?;
        }
        if let Some(b) = x.get(2) {
            scale = scale.add(&b.abs()?)?;
        }
        Ok(vec![scale])
    }))
}

fn norm_grad(dice: &mut Dice) -> Result<Case> {
    let shape = rows(dice);
    let n = shape[shape.ndim() - 1];
    let (dtype, kind) =
        (float(dice), dice.pick(&[RowFunction::LayerNormGrad, RowFunction::RmsNormGrad]));
    let eps = dice.pick(&[1e-5, 1e-3, 1.0]);
    let values = dice.pick(&[Values::Tame, Values::Tame, Values::Same(0.1), Values::Positive]);
    let of = [gapped(dice, values), gapped(dice, Values::Tame), gapped(dice, Values::Tame)];
    let mut operands =
        vec![Operand::new(dice, shape, dtype, of[0]), Operand::new(dice, shape, dtype, of[1])];
    if dice.one_in(2) {
        operands.push(Operand::new(dice, Shape::new(&[n])?, dtype, of[2]));
    }
    let body = move |x: &[Tensor]| {
        let inputs: Vec<&Tensor> =
            [Some(&x[0]), x.get(2), Some(&x[1])].into_iter().flatten().collect();
        Ok(vec![kind.run(&inputs, &[Scalar::Float(eps)], &[x[0].ndim() - 1])?])
    };
    let terms = roundings_of(n, dtype);
    let case = Case::new("norm_grad", operands, format!("{kind:?} eps {eps}"), body).wide();
    Ok(case.scaled(terms, move |x| {
        let (_, loss, r) = standard(kind, &x[0], eps)?;
        let u = x.get(2).map_or(Ok(x[1].clone()), |w| x[1].mul(w))?.abs()?;
        let along = u.mul(&loss)?.mean_keepdim(-1)?;
        Ok(vec![map([&u, &along, &loss, &r], |[u, a, loss, r]| r * (u * loss + loss * a))?])
    }))
}
