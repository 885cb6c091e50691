//! The cost of an op by its definition: bytes moved at least once, and floating-point operations.

use super::{AttentionInputs, Op};
use crate::error::Result;
use crate::kernel::{Extent, Kernel, OpCode};
use crate::quant::Part;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Operations of a softmax per score: subtract, exponentiate, sum, divide.
const SOFTMAX: u64 = 4;

/// The cost of an op by its definition, independent of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes of the operands, each element counted once even if a view repeats it, and of the
    /// outputs.
    pub bytes: u64,
    /// Floating-point operations: a multiplication and an addition are two, a function like `exp`
    /// is one; operations on integers count as those on floats. Copying, selecting and sorting
    /// count as 0.
    pub flops: u64,
}

impl Op<'_> {
    /// The op's cost.
    ///
    /// # Errors
    /// As [`Op::outputs`].
    pub fn cost(&self) -> Result<Cost> {
        let read: usize = self.operands().iter().map(|x| distinct(x) * x.dtype().size()).sum();
        // Only the written part of an assignment counts.
        let written: usize = match self {
            Op::CopyInto { src, .. } => src.numel() * src.dtype().size(),
            Op::ElementwiseInPlace { storage, .. } => 2 * storage.len() * storage.dtype().size(),
            _ => self.outputs()?.iter().map(|(shape, dtype)| shape.numel() * dtype.size()).sum(),
        };
        Ok(Cost { bytes: (read + written) as u64, flops: self.flops() })
    }
}

/// The number of distinct elements of storage that `x` reads.
fn distinct(x: &Tensor) -> usize {
    x.shape()
        .iter()
        .zip(x.strides())
        .map(|(&size, &stride)| if stride == 0 { size.min(1) } else { size })
        .product()
}

/// Nodes of a kernel that compute floats.
pub(super) fn arithmetic(kernel: &Kernel) -> u64 {
    let counts = |op: OpCode| op.arity() > 0 && !matches!(op, OpCode::Cast | OpCode::Where);
    kernel.nodes().iter().filter(|node| counts(node.op) && node.dtype.is_float()).count() as u64
}

/// [`arithmetic`] at each element and for each row. A fold takes an operation an element.
fn of_extents(program: &Kernel) -> [u64; 2] {
    let mut counts = [0, 0];
    for (node, extent) in program.nodes().iter().zip(program.extents()) {
        let counted = node.op.arity() > 0 && node.dtype.is_float();
        let free = matches!(node.op, OpCode::Cast | OpCode::Where | OpCode::At);
        let each = extent == Extent::Element || matches!(node.op, OpCode::Fold(_));
        counts[usize::from(!each)] += u64::from(counted && !free);
    }
    counts
}

/// The operations of a row program on the rows of `shape` along `axes`.
pub(super) fn of_rows(program: &Kernel, shape: &Shape, axes: &[usize]) -> u64 {
    let [elements, rows] = of_extents(program);
    elements * shape.numel() as u64 + rows * shape.reduced(axes, true).numel() as u64
}

/// The elements of `x`.
pub(super) fn numel(x: &Tensor) -> u64 {
    x.numel() as u64
}

/// The elements of the first output of `op`.
pub(super) fn results(op: &Op<'_>) -> u64 {
    let specs = op.outputs().ok();
    specs.and_then(|specs| specs.first().map(|(shape, _)| shape.numel())).unwrap_or(0) as u64
}

/// The product of matrices: every element of `lhs` meets a row of `rhs`.
pub(super) fn product(lhs: &Tensor, rhs: &Tensor) -> u64 {
    2 * numel(lhs) * rhs.shape()[rhs.ndim() - 1] as u64
}

/// The rows of a quantised weight.
pub(super) fn rows_of(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.rows as u64).sum()
}

/// `g` elements that each meet a filter: all of `weight`, a shape, but its first axis.
pub(super) fn filters(g: u64, weight: &[usize]) -> u64 {
    2 * g * weight[1..].iter().product::<usize>() as u64
}

/// The operations of attention.
pub(super) fn attention(inputs: &AttentionInputs<'_>) -> u64 {
    let [.., hs, hv] = inputs.sizes();
    seen(inputs) * (2 * hs as u64 + 2 * hv as u64 + SOFTMAX)
}

/// The scores and their gradient, and the gradients that are needed of q, k and v.
pub(super) fn attention_grad(inputs: &AttentionInputs<'_>, [q, k, v]: [bool; 3]) -> u64 {
    let [.., hs, hv] = inputs.sizes();
    let products = (1 + u64::from(q) + u64::from(k)) * hs as u64 + (1 + u64::from(v)) * hv as u64;
    seen(inputs) * (2 * products + SOFTMAX)
}

/// Pairs of query and key that the options allow; the mask is not read.
fn seen(inputs: &AttentionInputs<'_>) -> u64 {
    let [queries, keys, hs, _] = inputs.sizes();
    let heads = inputs.q.numel() / (queries * hs).max(1);
    let pairs: usize = (0..queries).map(|i| inputs.options.keys(i, keys).len()).sum();
    (heads * pairs) as u64
}
