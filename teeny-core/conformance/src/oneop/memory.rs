//! Operations that move elements: reading views, copies, assignment, concatenation, random draws.

use super::compare::Tolerance;
use super::{Case, FLOATS, Family, of_shape};
use crate::dice::Dice;
use crate::operand::{Operand, Values, view};
use teeny_core::{DType, Distribution, Key, Layout, Op, Result, Scalar, Shape, Tensor};

pub const FAMILIES: &[Family] = &[
    Family { name: "download", weight: 2, generate: download },
    Family { name: "contiguous", weight: 4, generate: contiguous },
    Family { name: "copy_into", weight: 4, generate: copy_into },
    Family { name: "slice_assign", weight: 2, generate: slice_assign },
    Family { name: "cat", weight: 3, generate: cat },
    Family { name: "pad", weight: 2, generate: pad },
    Family { name: "tri", weight: 2, generate: tri },
    Family { name: "random", weight: 1, generate: random },
];

fn any(dice: &mut Dice) -> Operand {
    let budget = dice.wide_budget();
    let shape = dice.shape(budget);
    let (dtype, values) = (dice.pick(&DType::ALL), Values::exact(dice));
    Operand::new(dice, shape, dtype, values)
}

fn download(dice: &mut Dice) -> Result<Case> {
    Ok(Case::new("download", vec![any(dice)], String::new(), |x| Ok(vec![x[0].clone()]))
        .within(Tolerance::Bits))
}

fn contiguous(dice: &mut Dice) -> Result<Case> {
    let body = |x: &[Tensor]| {
        let y = Op::Contiguous { x: &x[0] }.tensor(x[0].device())?;
        Ok(vec![y])
    };
    Ok(Case::new("contiguous", vec![any(dice)], String::new(), body).within(Tolerance::Bits))
}

/// `copy_into` a storage with one owner, or with a second owner who must not see a change.
fn copy_into(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let shape = dice.shape(budget);
    let dtype = dice.pick(&DType::ALL);
    let (mut layout, mut len) = view(dice, shape);
    if !layout.is_injective() {
        (layout, len) = (Layout::contiguous(shape), shape.numel());
    }
    let values = Values::exact(dice);
    let dst = Operand::packed(dice, Shape::new(&[len])?, dtype, values);
    let src = Operand::new(dice, shape, dtype, values);
    let shared = dice.one_in(2);
    let body = move |x: &[Tensor]| {
        let whole = Shape::new(&[len])?;
        let kept = Op::Contiguous { x: &x[0] }.tensor(x[0].device())?.reshape(whole)?;
        let mut results = Vec::new();
        let storage = if shared { kept.storage().clone() } else { kept.clone().into_parts().0 };
        if shared {
            results.push(kept);
        } else {
            drop(kept);
        }
        let changed =
            Op::CopyInto { dst: Some(storage), view: &layout, src: &x[1] }.tensor(x[0].device())?;
        results.push(changed);
        Ok(results)
    };
    let detail = format!("into {layout:?}, shared {shared}");
    Ok(Case::new("copy_into", vec![dst, src], detail, body).within(Tolerance::Bits))
}

fn slice_assign(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    let axis = dice.below(ndim);
    let start = dice.below(shape[axis] + 1);
    let end = start + dice.below(shape[axis] - start + 1);
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    let src = Operand::new(dice, shape.with_size(axis, end - start), dtype, values);
    let body = move |x: &[Tensor]| {
        Ok(vec![x[0].clone().slice_assign(axis as isize, start..end, &x[1])?])
    };
    Ok(Case::new("slice_assign", vec![x, src], format!("{start}..{end} of axis {axis}"), body)
        .within(Tolerance::Bits))
}

fn cat(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    let axis = dice.below(ndim);
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let mut total = 0;
    let parts: Vec<Operand> = (0..dice.between(1, 5))
        .map(|_| {
            let size =
                if dice.one_in(3) { shape[axis] } else { dice.below(shape[axis].min(80) + 1) };
            total += size;
            Operand::new(dice, shape.with_size(axis, size), dtype, values)
        })
        .collect();
    let out = shape.with_size(axis, total);
    let body = move |x: &[Tensor]| {
        let parts: Vec<&Tensor> = x.iter().collect();
        let y = Op::Cat { tensors: &parts, axis }.tensor(x[0].device())?;
        of_shape(y, out)
    };
    Ok(Case::new("cat", parts, format!("along {axis}"), body).within(Tolerance::Bits))
}

fn pad(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let shape = dice.shape(budget);
    let mut widths = vec![(0, 0); shape.ndim()];
    for widths in &mut widths {
        if dice.one_in(2) {
            *widths = (dice.below(5), dice.below(12));
        }
    }
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    let description = format!("{widths:?}");
    let body = move |x: &[Tensor]| {
        let op = Op::Pad { x: &x[0], widths: &widths, value: Scalar::Float(7.0) };
        Ok(vec![op.tensor(x[0].device())?])
    };
    Ok(Case::new("pad", vec![x], description, body).within(Tolerance::Bits))
}

fn tri(dice: &mut Dice) -> Result<Case> {
    let budget = dice.wide_budget();
    let ndim = dice.ndim().max(2);
    let shape = dice.shape_of(ndim, budget);
    let (diagonal, upper) = (dice.below(40) as i32 - 20, dice.one_in(2));
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    let body = move |x: &[Tensor]| {
        let y = Op::Tri { x: &x[0], diagonal, upper }.tensor(x[0].device())?;
        Ok(vec![y])
    };
    let description = format!("diagonal {diagonal} upper {upper}");
    Ok(Case::new("tri", vec![x], description, body).within(Tolerance::Bits))
}

fn random(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let shape = dice.shape(budget);
    let key = Key { seed: dice.bits(), draw: dice.bits() };
    let (distribution, dtype, tolerance) = match dice.below(4) {
        0 => {
            let (low, high) = dice.pick(&[(0.0, 1.0), (-2.5, 7.0), (3.0, 3.0)]);
            (Distribution::Uniform { low, high }, dice.pick(&FLOATS), Tolerance::Ulps(1.0, 4.0))
        }
        1 => {
            let (mean, std) = dice.pick(&[(0.0, 1.0), (-3.0, 0.5), (1.0, 0.0)]);
            (Distribution::Normal { mean, std }, dice.pick(&FLOATS), Tolerance::Ulps(4.0, 8.0))
        }
        2 => {
            let dtype = dice.pick(&DType::ALL[1..9]);
            let (mut low, mut high) = if dtype.is_unsigned_int() { (0, 100) } else { (-100, 27) };
            if dice.one_in(2) {
                // Most of the type's range, as far as i64 counts it.
                let most = i64::MAX >> (64 - 8 * dtype.size());
                (low, high) = (if dtype.is_unsigned_int() { 5 } else { -most / 3 }, most);
            }
            (Distribution::Integer { low, high }, dtype, Tolerance::Bits)
        }
        _ => (
            Distribution::Bernoulli { p: dice.pick(&[0.0, 0.3, 1.0]) },
            DType::Bool,
            Tolerance::Bits,
        ),
    };
    let like = Operand::packed(dice, Shape::SCALAR, DType::F32, Values::Tame);
    let body = move |x: &[Tensor]| {
        let y = Op::Random { distribution, shape: &shape, dtype, key }.tensor(x[0].device())?;
        Ok(vec![y])
    };
    Ok(Case::new("random", vec![like], format!("{distribution:?} {dtype} {shape} {key:?}"), body)
        .within(tolerance))
}
