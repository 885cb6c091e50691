//! The cost of an op by its definition: bytes moved at least once, and floating-point operations.

use super::{AttentionInputs, Op};
use crate::error::Result;
use crate::kernel::{Extent, Kernel, OpCode};
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
    /// Those of [`Op::outputs`].
    pub fn cost(&self) -> Result<Cost> {
        let read: usize = self.operands().iter().map(|x| distinct(x) * x.dtype().size()).sum();
        // Of an assignment only the part that is written counts.
        let written: usize = match self {
            Op::CopyInto { src, .. } => src.numel() * src.dtype().size(),
            Op::ElementwiseInPlace { storage, .. } => 2 * storage.len() * storage.dtype().size(),
            _ => self.outputs()?.iter().map(|(shape, dtype)| shape.numel() * dtype.size()).sum(),
        };
        Ok(Cost { bytes: (read + written) as u64, flops: self.flops() })
    }

    fn flops(&self) -> u64 {
        let numel = |x: &Tensor| x.numel() as u64;
        // elements of the first output
        let results = || {
            let specs = self.outputs().ok();
            specs.and_then(|specs| specs.first().map(|(shape, _)| shape.numel())).unwrap_or(0)
                as u64
        };
        // every element of `g` meets a filter: all of the weight but its first axis
        let filters =
            |g: u64, weight: &[usize]| 2 * g * weight[1..].iter().product::<usize>() as u64;
        match *self {
            Op::Random { .. } | Op::Gather { .. } | Op::CopyInto { .. } | Op::Sort { .. } => 0,
            Op::Contiguous { .. } | Op::TopK { .. } | Op::Cat { .. } => 0,
            Op::Pad { .. } | Op::Tri { .. } => 0,
            Op::Positions { indices, .. } => {
                indices.iter().skip(1).map(|index| 2 * numel(index)).sum()
            }
            Op::Elementwise { kernel, shape, .. }
            | Op::ElementwiseInPlace { kernel, shape, .. } => {
                arithmetic(kernel) * shape.numel() as u64
            }
            Op::ElementwiseMany { kernel, shapes, .. } => {
                arithmetic(kernel) * shapes.iter().map(|shape| shape.numel() as u64).sum::<u64>()
            }
            Op::ReduceKernel { kernel, shape, .. } => {
                (arithmetic(kernel) + 1) * shape.numel() as u64
            }
            Op::Rows { program, shape, axes, .. } => {
                let [elements, rows] = of_extents(program);
                let count = shape.reduced(axes, true).numel() as u64;
                elements * shape.numel() as u64 + rows * count
            }
            Op::Reduce { x, .. } | Op::Scan { x, .. } | Op::CumMax { x, .. } => numel(x),
            Op::Scatter { src, .. } => numel(src),
            Op::Matmul { lhs, rhs } => 2 * numel(lhs) * rhs.shape()[rhs.ndim() - 1] as u64,
            Op::MatmulKernel { lhs, rhs, kernel, .. } => {
                Op::Matmul { lhs, rhs }.flops() + arithmetic(kernel) * results()
            }
            Op::Conv { weight, .. } => filters(results(), weight.shape()),
            Op::ConvKernel { weight, kernel, .. } => {
                filters(results(), weight.shape()) + arithmetic(kernel) * results()
            }
            Op::ConvInputGrad { g, weight, .. } => filters(numel(g), weight.shape()),
            Op::ConvWeightGrad { g, weight_shape, .. } => filters(numel(g), weight_shape),
            Op::MaxPool { kernel_size, .. } | Op::AvgPool { kernel_size, .. } => {
                results() * kernel_size.iter().product::<usize>() as u64
            }
            Op::MaxPoolGrad { g, .. } => numel(g),
            Op::Linalg { op, inputs } => op.flops(inputs),
            Op::Attention { ref inputs } => {
                let [.., hs, hv] = inputs.sizes();
                seen(inputs) * (2 * hs as u64 + 2 * hv as u64 + SOFTMAX)
            }
            // scores and their gradient, and the gradients in `needs`
            Op::AttentionGrad { ref inputs, needs: [q, k, v], .. } => {
                let [.., hs, hv] = inputs.sizes();
                let products =
                    (1 + u64::from(q) + u64::from(k)) * hs as u64 + (1 + u64::from(v)) * hv as u64;
                seen(inputs) * (2 * products + SOFTMAX)
            }
        }
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
fn arithmetic(kernel: &Kernel) -> u64 {
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

/// Pairs of query and key that the options allow; the mask is not read.
fn seen(inputs: &AttentionInputs<'_>) -> u64 {
    let [queries, keys, hs, _] = inputs.sizes();
    let heads = inputs.q.numel() / (queries * hs).max(1);
    let pairs: usize = (0..queries).map(|i| inputs.options.keys(i, keys).len()).sum();
    (heads * pairs) as u64
}
