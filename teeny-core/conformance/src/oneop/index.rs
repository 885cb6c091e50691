//! Gathering, scattering and sorting.

use super::compare::coarseness;
use super::{Case, Family};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use teeny_core::{DType, Extremum, Op, Result, Scalar, ScatterMode, Shape, SortOrder};

pub const FAMILIES: &[Family] = &[
    Family { name: "gather", weight: 4, generate: gather },
    Family { name: "scatter", weight: 6, generate: scatter },
    Family { name: "sort", weight: 4, generate: sort },
    Family { name: "topk", weight: 4, generate: topk },
    Family { name: "index_select", weight: 2, generate: index_select },
    Family { name: "positions", weight: 2, generate: positions },
];

/// Types of indices that can name every place of an axis of `size`.
pub fn index_dtype(dice: &mut Dice, size: usize) -> DType {
    let all = [
        DType::I64,
        DType::I32,
        DType::U32,
        DType::U64,
        DType::I16,
        DType::U16,
        DType::U8,
        DType::I8,
    ];
    let most = [u64::MAX, 1 << 31, 1 << 32, u64::MAX, 1 << 15, 1 << 16, 1 << 8, 1 << 7];
    let fits = all.into_iter().zip(most).filter(|&(_, most)| size as u64 <= most);
    let fits: Vec<DType> = fits.map(|(dtype, _)| dtype).collect();
    let narrow = dice.pick(&[DType::I16, DType::U16]);
    if size > 128 && fits.contains(&narrow) && dice.one_in(2) {
        return narrow; // positions that 8 bits do not hold
    }
    dice.pick(&fits)
}

/// A shape with at least one axis, an axis, and a shape of indices along it: as long or shorter on
/// the other axes.
fn places(dice: &mut Dice) -> (Shape, usize, Shape) {
    let mut budget = dice.budget();
    let mut ndim = dice.ndim().max(1);
    let mut x = dice.shape_of(ndim, budget);
    let mut axis = dice.below(ndim);
    if dice.one_in(8) {
        // Positions that a 16-bit float does not hold.
        (budget, ndim, axis) = (3_000, 1, 0);
        x = Shape::new(&[2100 + dice.below(900)]).expect("a legal shape");
    }
    let mut index = x;
    for other in 0..ndim {
        if other != axis && dice.one_in(4) {
            index = index.with_size(other, dice.below(x[other] + 1));
        }
    }
    let rest: usize = (0..ndim).filter(|&a| a != axis).map(|a| index[a]).product();
    let count = dice.size(budget / rest.max(1));
    (x, axis, index.with_size(axis, count))
}

/// Places of an axis; one in four operands may hold one outside.
fn index_values(dice: &mut Dice, size: usize) -> Values {
    if dice.one_in(4) { Values::Around(size) } else { Values::Below(size) }
}

fn gather(dice: &mut Dice) -> Result<Case> {
    let (shape, axis, out) = places(dice);
    let (dtype, kind) = (dice.pick(&DType::ALL), index_dtype(dice, shape[axis]));
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    let values = index_values(dice, shape[axis]);
    let index = Operand::new(dice, out, kind, values);
    Ok(Case::new("gather", vec![x, index], format!("along {axis}"), move |x| {
        let y = Op::Gather { x: &x[0], axis, index: &x[1] }.tensor(x[0].device())?;
        Ok(vec![y])
    })
    .within(super::Tolerance::Bits))
}

fn positions(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let shape = dice.shape(budget);
    let sizes: Vec<usize> = (0..dice.between(1, 4)).map(|_| dice.size(200)).collect();
    let indices: Vec<Operand> = sizes
        .iter()
        .map(|&size| {
            let kind = index_dtype(dice, size);
            let values = match dice.below(4) {
                0 => Values::Any,
                1 => Values::Tame,
                _ => index_values(dice, size),
            };
            Operand::new(dice, shape, kind, values)
        })
        .collect();
    let description = format!("{sizes:?}");
    Ok(Case::new("positions", indices, description, move |x| {
        let indices: Vec<_> = x.iter().collect();
        let y = Op::Positions { indices: &indices, sizes: &sizes }.tensor(x[0].device())?;
        Ok(vec![y])
    })
    .within(super::Tolerance::Bits))
}

fn index_select(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    let axis = dice.below(ndim);
    let (dtype, kind) = (dice.pick(&DType::ALL), index_dtype(dice, shape[axis]));
    let rest: usize =
        shape.iter().enumerate().filter(|&(a, _)| a != axis).map(|(_, &size)| size).product();
    let count = dice.size(budget / rest.max(1));
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    let values = index_values(dice, shape[axis]);
    let index = Operand::new(dice, Shape::new(&[count])?, kind, values);
    Ok(Case::new("index_select", vec![x, index], format!("along {axis}"), move |x| {
        Ok(vec![x[0].index_select(axis as isize, &x[1])?])
    })
    .within(super::Tolerance::Bits))
}

fn scatter(dice: &mut Dice) -> Result<Case> {
    let modes = [ScatterMode::Set, ScatterMode::Add, ScatterMode::Max, ScatterMode::Min];
    let mode = dice.pick(&modes);
    let (shape, axis, arrivals) = places(dice);
    let dtype =
        if mode == ScatterMode::Set { dice.pick(&DType::ALL) } else { dice.pick(&DType::ALL[1..]) };
    let mut kind = index_dtype(dice, shape[axis]);
    let mut arrivals = arrivals;
    if dtype.is_int() && Scalar::UInt(shape[axis] as u64).fits(dtype) && dice.one_in(3) {
        (kind, arrivals) = (dtype, shape); // all operands have one type and one shape
    }
    let add = mode == ScatterMode::Add;
    let values =
        |dice: &mut Dice| if add { Values::terms(dice, dtype) } else { Values::exact(dice) };
    let drawn = values(dice);
    let x = Operand::new(dice, shape, dtype, drawn);
    let drawn = values(dice);
    let src = Operand::new(dice, arrivals, dtype, drawn);
    let drawn = index_values(dice, shape[axis]);
    let index = Operand::new(dice, arrivals, kind, drawn);
    let case =
        Case::new("scatter", vec![x, index, src], format!("{mode:?} along {axis}"), move |x| {
            let y = Op::Scatter { mode, x: &x[0], axis, index: &x[1], src: &x[2] }
                .tensor(x[0].device())?;
            Ok(vec![y])
        });
    if !add || !dtype.is_float() {
        return Ok(case);
    }
    // A place may receive every arrival of its line, one after another; 16-bit sums may be rounded
    // at each.
    Ok(case.scaled((arrivals[axis] as f64 + 4.0) * coarseness(dtype), move |x| {
        Ok(vec![x[0].abs()?.scatter_add(axis as isize, &x[1], &x[2].abs()?)?])
    }))
}

fn topk(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    let axis = dice.below(ndim);
    let extremum = if dice.one_in(2) { Extremum::Largest } else { Extremum::Smallest };
    // Often few of many.
    let most = if dice.one_in(2) { shape[axis] } else { shape[axis].min(7) };
    let k = dice.below(most + 1);
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    Ok(Case::new("topk", vec![x], format!("{k} along {axis} {extremum:?}"), move |x| {
        let [values, positions] =
            Op::TopK { x: &x[0], axis, k, extremum }.tensors(x[0].device())?;
        Ok(vec![values, positions])
    })
    .within(super::Tolerance::Bits))
}

fn sort(dice: &mut Dice) -> Result<Case> {
    let budget = dice.budget();
    let ndim = dice.ndim().max(1);
    let shape = dice.shape_of(ndim, budget);
    let axis = dice.below(ndim);
    let order = if dice.one_in(2) { SortOrder::Descending } else { SortOrder::Ascending };
    let dtype = dice.pick(&DType::ALL);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, dtype, values);
    Ok(Case::new("sort", vec![x], format!("along {axis} {order:?}"), move |x| {
        let [values, positions] = Op::Sort { x: &x[0], axis, order }.tensors(x[0].device())?;
        Ok(vec![values, positions])
    })
    .within(super::Tolerance::Bits))
}
