//! Matrix products: any sizes, batches and strides, every type but bool.

use super::{Case, FLOATS, Family, of_shape, roundings_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use teeny_core::{DType, Op, Result, Shape, Tensor};

pub const FAMILIES: &[Family] = &[Family { name: "matmul", weight: 10, generate: matmul }];

/// Sizes of batch, m, k and n whose product is at most `work`: vectors and skinny matrices are
/// frequent.
pub fn sizes(dice: &mut Dice, work: usize) -> [usize; 4] {
    let mut sizes = [1; 4];
    let mut rest = work;
    for place in dice.order(4) {
        let most = if place == 0 { rest.min(5) } else { rest };
        let size = match dice.below(5) {
            0 if place > 0 => dice.between(1, 8),
            1 if place == 0 => 1,
            _ => dice.size(most),
        };
        sizes[place] = size.min(most);
        rest /= sizes[place].max(1);
    }
    sizes
}

fn matmul(dice: &mut Dice) -> Result<Case> {
    let dtype = match dice.below(4) {
        0 | 1 => DType::F32,
        2 => dice.pick(&FLOATS),
        _ => dice.pick(&DType::ALL[1..]),
    };
    let work = 10 * dice.budget();
    let [batch, m, k, n] = sizes(dice, work);
    let lead: Vec<usize> = match dice.below(3) {
        0 if batch == 1 => vec![],
        1 => vec![batch],
        _ => vec![batch, dice.between(1, 2)],
    };
    let shape = |rows, columns| Shape::new(&[lead.as_slice(), &[rows, columns]].concat());
    let values = if dtype.is_float() { Values::linear(dice) } else { Values::Any };
    let lhs = Operand::new(dice, shape(m, k)?, dtype, values);
    let values = if dtype.is_float() { Values::linear(dice) } else { Values::Any };
    let rhs = Operand::new(dice, shape(k, n)?, dtype, values);
    let out = shape(m, n)?;
    let body = move |x: &[Tensor]| {
        let y = Op::Matmul { lhs: &x[0], rhs: &x[1] }.tensor(x[0].device())?;
        of_shape(y, out)
    };
    let case = Case::new("matmul", vec![lhs, rhs], String::new(), body);
    if !dtype.is_float() {
        return Ok(case);
    }
    Ok(case.scaled(roundings_of(k, dtype), |x| Ok(vec![x[0].abs()?.matmul(&x[1].abs()?)?])))
}
