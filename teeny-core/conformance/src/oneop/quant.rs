//! Products with quantised weights, and their rows.

use super::index::index_dtype;
use super::{Case, Family};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use teeny_core::quant::{Part, packed_parts};
use teeny_core::{DType, Op, QuantTensor, QuantType, Result, Shape};

pub const FAMILIES: &[Family] = &[
    Family { name: "quant_matmul", weight: 4, generate: product },
    Family { name: "quant_rows", weight: 2, generate: rows },
];

/// Bytes below this are scales that are finite: the exponent of a 16-bit float ends at 0x7c00.
const FINITE: usize = 0x3c;

/// Parts, the number of columns, and the bytes. More rows than a 16-bit float counts, or than a
/// block of threads makes, if
/// `tall` is not 0.
fn weight(dice: &mut Dice, tall: usize) -> Result<(Vec<Part>, usize, Operand)> {
    let columns = match dice.below(3) {
        _ if tall > 0 => 32,
        0 => 256 * dice.between(1, 2),
        _ => 32 * dice.between(1, 9),
    };
    let kinds: Vec<QuantType> = QuantType::ALL
        .into_iter()
        .filter(|kind| columns.is_multiple_of(kind.block_elements()))
        .collect();
    let mut parts: Vec<Part> = (0..dice.between(1, 3))
        .map(|_| Part { kind: dice.pick(&kinds), rows: dice.below(20) })
        .collect();
    if tall > 0 {
        parts[0].rows = tall + dice.below(40);
    }
    let [_, bytes] = packed_parts(&parts, columns)?;
    let blocks = Operand::new(dice, Shape::new(&[bytes])?, DType::U8, Values::Below(FINITE));
    Ok((parts, columns, blocks))
}

fn product(dice: &mut Dice) -> Result<Case> {
    let tall = if dice.one_in(8) { 1030 } else { 0 };
    let (parts, columns, blocks) = weight(dice, tall)?;
    let m = if dice.one_in(8) { dice.below(140) } else { dice.below(9) };
    let lead = [vec![m], vec![1, m], vec![]][dice.below(3)].clone();
    let exact = dice.one_in(3);
    let mut values = dice.pick(&[Values::Tame, Values::Whole, Values::Wide]);
    if exact && dice.one_in(3) {
        values = Values::Sprinkled;
    }
    let x = Operand::new(dice, Shape::new(&[lead, vec![columns]].concat())?, DType::F32, values);
    let detail = format!("{parts:?}{}", if exact { ", exact" } else { "" });
    let own = parts.clone();
    let case = Case::new("quant_matmul", vec![x, blocks], detail, move |x| {
        let (x, blocks) = (&x[0], &x[1].contiguous()?);
        Ok(vec![Op::QuantMatmul { x, blocks, parts: &parts, exact }.tensor(x.device())?])
    });
    // An element of x is off by at most half of a step of 1/127 of the largest of its block.
    let factor = if exact { 64.0 + columns as f64 } else { 2f64.powi(24) / 250.0 };
    Ok(case.scaled(factor, move |x| {
        // the operands are f64 here, bytes too
        let (x, blocks) = (&x[0].cast(DType::F32)?, x[1].cast(DType::U8)?);
        let weight = QuantTensor::from_packed(&blocks, &own, columns)?.dequantize()?.abs()?;
        // MXFP4's two least scales are subnormal: a GPU may take all of such a block as 0
        let weight = weight.cast(DType::F64)?.add(2f64.powi(-100))?;
        let lead = x.shape()[..x.ndim() - 1].to_vec();
        let by_block = x.abs()?.unflatten(-1, [columns / 32, 32])?;
        let most = by_block.max_keepdim(-1)?.expand([&lead[..], &[columns / 32, 32]].concat())?;
        let most = most.flatten(-2, -1)?.cast(DType::F64)?;
        Ok(vec![most.matmul(&weight.t()?)?])
    }))
}

fn rows(dice: &mut Dice) -> Result<Case> {
    let tall = if dice.one_in(2) { 4_000 } else { 0 };
    let (parts, columns, blocks) = weight(dice, tall)?;
    let [rows, _] = packed_parts(&parts, columns)?;
    let shape = match dice.below(3) {
        _ if tall > 0 => vec![40],
        0 => vec![dice.below(20)],
        1 => vec![2, 3],
        _ => vec![],
    };
    let values = if dice.one_in(4) { Values::Around(rows) } else { Values::Below(rows) };
    let kind = index_dtype(dice, rows);
    let index = Operand::new(dice, Shape::new(&shape)?, kind, values);
    let detail = format!("{parts:?}, {columns} columns");
    Ok(Case::new("quant_rows", vec![blocks, index], detail, move |x| {
        let blocks = &x[0].contiguous()?;
        let op = Op::QuantRows { blocks, index: &x[1], parts: &parts, columns };
        Ok(vec![op.tensor(blocks.device())?])
    })
    .within(super::Tolerance::Ulps(2.0, 1.0)))
}
