//! One kernel on tensors of several shapes, of any sizes, layouts and types.

use super::{Case, Family};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use std::sync::Arc;
use teeny_core::{DType, Kernel, Op, Result, Scalar, Shape, Tensor};

pub const FAMILIES: &[Family] =
    &[Family { name: "elementwise_many", weight: 4, generate: elementwise_many }];

/// Larger ones and smaller ones of two operands, and a choice between parameter and operand: exact
/// in every type.
fn elementwise_many(dice: &mut Dice) -> Result<Case> {
    let dtype = dice.pick(&DType::ALL[1..]);
    let count = dice.between(1, 12);
    let mut operands = Vec::with_capacity(2 * count);
    let mut params = Vec::with_capacity(count);
    let values = Values::exact(dice);
    for i in 0..count {
        let [rows, columns] = [dice.between(0, 9), dice.between(1, 40)];
        let sizes = [rows, columns];
        let shape = Shape::new(if dice.one_in(3) { &sizes } else { &sizes[1..] })?;
        operands.push(Operand::new(dice, shape, dtype, values));
        operands.push(Operand::new(dice, shape, dtype, values));
        params.push(Scalar::Int(1 + (i as i64) % 2).cast(dtype.compute()));
    }
    let body = move |x: &[Tensor]| {
        let kernel = Kernel::build([dtype; 2], [dtype], |[a, b], [p]| {
            [a.maximum(b), a.lt(b).where_cond(p, a.minimum(b))]
        })
        .map(Arc::new)?;
        let inputs: Vec<&Tensor> = x.iter().collect();
        let shapes: Vec<Shape> = x.iter().step_by(2).map(|x| *x.shape()).collect();
        let (inputs, params, shapes) = (&inputs[..], &params[..], &shapes[..]);
        let op = Op::ElementwiseMany { kernel: &kernel, inputs, params, shapes };
        op.tensor_list(x[0].device()).map(Vec::from)
    };
    Ok(Case::new("elementwise_many", operands, format!("{count} shapes"), body))
}
