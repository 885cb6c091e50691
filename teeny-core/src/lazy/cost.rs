//! Whether a value is stored or computed again by each of its readers.

use crate::kernel::{Arithmetic, FloatFunction, Kernel, OpCode};

/// A value that is read more than once, by several readers or by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The cost of the program for one element: see [`weight`].
    pub(super) weight: usize,
    /// Elements of the value.
    pub(super) elements: usize,
    /// Elements that are read, by all readers.
    pub(super) reads: usize,
    /// Bytes of an element.
    pub(super) size: usize,
    /// Bytes that are read to compute all elements once.
    pub(super) input_bytes: usize,
}

/// Bytes that one thread moves in a nanosecond, from the second-level cache and from memory.
const CACHE_SPEED: f64 = 200.0;
const MEMORY_SPEED: f64 = 50.0;
/// Capacity of the second-level cache, in bytes.
const CACHE: usize = 512 << 10;
/// Elements that one thread takes through an operation of weight 1 in a nanosecond.
const ELEMENTS: f64 = 100.0;
/// Fixed cost of an operation, in nanoseconds.
const OPERATION: f64 = 300.0;

impl Candidate {
    /// Whether computing the value for each reader takes no longer than storing and reading it.
    pub(super) fn is_cheap(self) -> bool {
        let Candidate { weight, elements, reads, size, input_bytes } = self;
        let bytes = elements as f64 * size as f64;
        let speed = if bytes <= CACHE as f64 { CACHE_SPEED } else { MEMORY_SPEED };
        let compute = |n: usize| n as f64 * weight as f64 / ELEMENTS;
        let per_element = input_bytes as f64 / elements.max(1) as f64;
        let store = OPERATION
            + compute(elements)
            + (input_bytes as f64 + bytes + reads as f64 * size as f64) / speed;
        let again = compute(reads) + reads as f64 * per_element / speed;
        again <= store
    }
}

/// The cost of a kernel per element: the sum over its operations, 1 for an arithmetic one.
pub(super) fn weight(kernel: &Kernel) -> usize {
    kernel.nodes().iter().map(|node| operation(node.op)).sum()
}

fn operation(op: OpCode) -> usize {
    match op {
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => 0,
        OpCode::At | OpCode::Index | OpCode::Length => 0,
        OpCode::Float(FloatFunction::Sqrt) => 2,
        OpCode::Float(_) => 8,
        OpCode::Arithmetic(Arithmetic::Div) => 2,
        OpCode::Arithmetic(Arithmetic::Pow) => 16,
        OpCode::Arithmetic(_)
        | OpCode::Cast
        | OpCode::Fold(_)
        | OpCode::Round(_)
        | OpCode::Sign(_)
        | OpCode::Not
        | OpCode::IsNan
        | OpCode::Compare(_)
        | OpCode::Bitwise(_)
        | OpCode::Where => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two readers of 1 M floats, computed from as many: four and sixteen arithmetic operations are
    /// computed again, a function is not; repeated over rows, neither.
    #[test]
    fn few_operations_are_computed_again_and_functions_are_not() {
        let of = |elements: usize, weight, reads| Candidate {
            weight,
            elements,
            reads,
            size: 4,
            input_bytes: elements * 4,
        };
        for (n, weight, reads, cheap) in [
            (16 << 10, 0, 2 * (16 << 10), true),
            (16 << 10, 2, 2 * (16 << 10), true),
            (16 << 10, 8, 2 * (16 << 10), false),
            (1 << 20, 8, 2 << 20, true),
            (1 << 20, 40, 2 << 20, false),
            (128, 1, 128 * 64, true),
            (128, 8, 128 * 64, false),
            (128, 0, 128 * 64, true),
        ] {
            assert_eq!(of(n, weight, reads).is_cheap(), cheap, "{n} {weight} {reads}");
        }
    }
}
