//! Attention and its gradients: any sizes, masks, limits and groups of heads, against its
//! definition in f64.

use super::compare::coarseness;
use super::{Case, FLOATS, Family, roundings_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values, view};
use teeny_core::{Attention, AttentionInputs, DType, Op, Result, Shape, Tensor};

pub const FAMILIES: &[Family] = &[Family { name: "attention", weight: 5, generate: attention }];

fn attention(dice: &mut Dice) -> Result<Case> {
    let work = 4 * dice.budget();
    let dtype = if dice.one_in(2) { DType::F32 } else { dice.pick(&FLOATS) };
    let lead: Vec<usize> =
        (0..dice.below(3)).map(|_| if dice.one_in(30) { 0 } else { dice.between(1, 3) }).collect();
    let heads: usize = lead.iter().product();
    let mut rest = work / heads.max(1);
    let mut side = |dice: &mut Dice, least: usize| {
        let size = dice.size(rest.clamp(1, 300)).max(least);
        rest /= size.max(1);
        size
    };
    let (queries, keys) = (side(dice, 0), side(dice, 0));
    let (hs, hv) = (side(dice, 1), side(dice, 1));
    let shape = |a: usize, b: usize| Shape::new(&[lead.as_slice(), &[a, b]].concat());
    let mut operands = vec![
        Operand::new(dice, shape(queries, hs)?, dtype, Values::Tame),
        Operand::new(dice, shape(keys, hs)?, dtype, Values::Tame),
        Operand::new(dice, shape(keys, hv)?, dtype, Values::Tame),
        Operand::new(dice, shape(queries, hv)?, dtype, Values::Tame),
    ];
    if dice.one_in(2) {
        // Masks mostly repeat along some axis.
        let (layout, len) = view(dice, shape(queries, keys)?);
        let bools = dice.one_in(2);
        let kind = if bools { DType::Bool } else { dtype };
        operands.push(Operand::seen(
            dice,
            layout,
            len,
            kind,
            if bools { Values::Any } else { Values::Tame },
        ));
    }
    let mut options = Attention::full().scale(0.5 / (hs as f64).sqrt());
    if dice.one_in(2) {
        options.causal = Some(dice.pick(&[0, 1, keys.saturating_sub(queries), keys]));
        if dice.one_in(2) {
            options = options.window(dice.between(1, keys.max(1)));
        }
    }
    if dice.one_in(8) {
        options = options.softcap(2.0);
    }
    let needs = dice.pick(&[
        [true; 3],
        [true, false, false],
        [false, true, false],
        [false, false, true],
        [true, true, false],
    ]);
    let backward = dice.one_in(2);
    let rows = Shape::new(&[lead.as_slice(), &[queries]].concat())?;
    let detail = format!(
        "{options:?}, gradients {}",
        if backward { format!("{needs:?}") } else { String::from("none") }
    );
    let body = move |x: &[Tensor]| {
        let inputs = AttentionInputs { q: &x[0], k: &x[1], v: &x[2], mask: x.get(4), options };
        let [y, lse] = Op::Attention { inputs }.tensors(x[0].device())?;
        if !backward {
            return Ok(vec![y, lse]);
        }
        let op = Op::AttentionGrad { inputs, y: &y, lse: &lse, g: &x[3], needs };
        op.tensor_list(x[0].device()).map(Vec::from)
    };
    let terms = roundings_of(keys, dtype) + roundings_of(hs, dtype);
    let case = Case::new("attention", operands, detail, body).wide();
    Ok(case.scaled(1.0, move |x| {
        let inputs = AttentionInputs { q: &x[0], k: &x[1], v: &x[2], mask: x.get(4), options };
        let factor = options.factor(x[0].shape()[x[0].ndim() - 1]);
        let (q, k, v, g) = (x[0].abs()?, x[1].abs()?, x[2].abs()?, x[3].abs()?);
        let scores = q.matmul(&k.t()?)?.mul(factor)?; // (.., T, S)
        let largest = if scores.numel() == 0 { 0.0 } else { scores.max_all()?.item::<f64>()? };
        // An error of a score is a relative error of its weight.
        let loss = 16.0 + terms + 4.0 * terms.sqrt() * (largest + 4.0);
        let p = inputs.weights()?;
        if !backward {
            let y = p.matmul(&v)?.mul(loss)?;
            return Ok(vec![y, Tensor::full(rows, loss + largest, DType::F64, &x[0])?]);
        }
        let d_p = g.matmul(&v.t()?)?;
        let inner = p.mul(&d_p)?.sum_keepdim(-1)?;
        // The backward pass reads y in the operands' type.
        let rounded = coarseness(dtype);
        let d_s = p.mul(&d_p.mul(loss)?.add(&inner.mul(loss + rounded)?)?)?;
        let d_q = d_s.matmul(&k)?.mul(factor)?;
        let d_k = d_s.t()?.matmul(&q)?.mul(factor)?;
        let d_v = p.t()?.matmul(&g)?.mul(loss)?;
        let all = [d_q, d_k, d_v].into_iter().zip(needs);
        Ok(all.filter(|(_, needed)| *needed).map(|(d, _)| d).collect())
    }))
}
