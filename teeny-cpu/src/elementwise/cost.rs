//! The cost of a kernel per element, and the ranges of elements that threads share.

use super::tiles::TILE;
use crate::cost::Cost;
use crate::loops::{self, FloatLoop};
use crate::threads;
use teeny_core::DType;
use teeny_core::kernel::{Arithmetic, FloatFunction, Kernel, OpCode};

/// Elements per range of a loop over `n` elements: what its cost asks for, at most four ranges for
/// each thread, whole tiles.
pub(crate) fn range_len(n: usize, cost: Cost) -> usize {
    if !cost.is_shared(n) {
        return n.max(1);
    }
    let threads = threads::threads();
    if threads == 1 {
        return n;
    }
    n.div_ceil(4 * threads).max(cost.range(n)).next_multiple_of(TILE / 4)
}

/// The cost of an element of this kernel, as its nodes and the memory of its operands take it.
pub(super) fn cost_of(kernel: &Kernel) -> Cost {
    let outputs = (0..kernel.outputs().len()).map(|i| kernel.output_dtype(i));
    let bytes = kernel.inputs().iter().copied().chain(outputs).map(DType::size).sum();
    kernel
        .nodes()
        .iter()
        .fold(Cost::bytes(bytes), |cost, node| cost_with(cost, node.op, node.dtype))
}

/// `cost` plus one operation on values of `dtype`.
pub(super) fn cost_with(cost: Cost, op: OpCode, dtype: DType) -> Cost {
    use Arithmetic::{Div, FloorDiv, Pow, Rem};
    use FloatFunction::{Recip, Rsqrt, Sqrt};
    let words = dtype.compute().size().div_ceil(4);
    match op {
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => cost,
        OpCode::At | OpCode::Index | OpCode::Length => cost,
        OpCode::Fold(_) => cost.arithmetic(words),
        OpCode::Float(Recip | Sqrt | Rsqrt) => cost.divisions(words),
        OpCode::Float(f) => match loops::float_function(f) {
            FloatLoop::Vectors(_) => cost.functions(2 * words - 1),
            FloatLoop::Calls(_) => cost.calls(1),
        },
        OpCode::Arithmetic(Pow) if dtype.is_float() => cost.functions(3 * words),
        OpCode::Arithmetic(Pow | Rem | FloorDiv) => cost.steps(words),
        OpCode::Arithmetic(Div) => cost.divisions(words),
        OpCode::Cast | OpCode::Round(_) | OpCode::Sign(_) | OpCode::Not | OpCode::IsNan => {
            cost.arithmetic(words)
        }
        OpCode::Arithmetic(_) | OpCode::Compare(_) | OpCode::Bitwise(_) | OpCode::Where => {
            cost.arithmetic(words)
        }
    }
}
