//! What a call costs by its definition: bytes moved at least once, and floating-point operations.

use super::call::Call;
use crate::attention::AttentionInputs;
use crate::error::Result;
use crate::kernel::{Kernel, OpCode};
use crate::tensor::Tensor;

/// Operations per element of what is more than one: subtract, exponentiate, sum, divide.
const SOFTMAX: u64 = 4;
/// Mean (1), variance (3), the quotient (2), weight and bias (2).
const NORM: u64 = 8;
/// The normalised values again (6), two means (3), and the formula (5).
const NORM_GRAD: u64 = 14;

impl Call<'_> {
    /// Bytes of the operands, each element once however often a view repeats it, and of the
    /// results.
    ///
    /// # Errors
    /// None for calls that core has checked.
    pub fn bytes(&self) -> Result<u64> {
        let read: usize = self.operands().iter().map(|(_, x)| distinct(x) * x.dtype().size()).sum();
        let written: usize = self
            .results()?
            .iter()
            .flatten()
            .map(|(shape, dtype)| shape.numel() * dtype.size())
            .sum();
        Ok((read + written) as u64)
    }

    /// Floating-point operations: a multiplication and an addition are two, a function like `exp`
    /// is one; of integers, as if they were floats. Copying, selecting and sorting are none.
    pub fn flops(&self) -> u64 {
        let numel = |x: &Tensor| x.numel() as u64;
        // every element of `g` meets a filter: all of the weight but its first axis
        let filters =
            |g: u64, weight: &[usize]| 2 * g * weight[1..].iter().product::<usize>() as u64;
        match *self {
            Call::Upload { .. }
            | Call::Random { .. }
            | Call::Gather { .. }
            | Call::CopyInto { .. }
            | Call::Sort { .. } => 0,
            Call::Contiguous { .. } | Call::Cat { .. } => 0,
            Call::Elementwise { kernel, shape, .. } => arithmetic(kernel) * shape.numel() as u64,
            Call::ReduceKernel { kernel, shape, .. } => {
                (arithmetic(kernel) + 1) * shape.numel() as u64
            }
            Call::Reduce { x, .. } | Call::Scan { x, .. } => numel(x),
            Call::Scatter { src, .. } => numel(src),
            Call::Matmul { lhs, rhs } => 2 * numel(lhs) * rhs.shape()[rhs.ndim() - 1] as u64,
            Call::Softmax { x, .. } | Call::LogSoftmax { x, .. } => SOFTMAX * numel(x),
            Call::CrossEntropy { x, .. } | Call::CrossEntropyGrad { x, .. } => SOFTMAX * numel(x),
            Call::SoftmaxGrad { y, .. } | Call::LogSoftmaxGrad { y, .. } => SOFTMAX * numel(y),
            Call::Norm { x, .. } => NORM * numel(x),
            Call::NormGrad { x, .. } => NORM_GRAD * numel(x),
            Call::Conv { weight, .. } => {
                let places = self
                    .results()
                    .ok()
                    .and_then(|results| results[0])
                    .map_or(0, |(shape, _)| shape.numel());
                filters(places as u64, weight.shape())
            }
            Call::ConvInputGrad { g, weight, .. } => filters(numel(g), weight.shape()),
            Call::ConvWeightGrad { g, weight_shape, .. } => filters(numel(g), weight_shape),
            Call::MaxPool { size, .. } | Call::AvgPool { size, .. } => {
                let places = self
                    .results()
                    .ok()
                    .and_then(|results| results[0])
                    .map_or(0, |(shape, _)| shape.numel());
                (places * size.iter().product::<usize>()) as u64
            }
            Call::MaxPoolGrad { g, .. } => numel(g),
            Call::Linalg { op, inputs } => op.flops(inputs),
            Call::Attention { inputs } => {
                let [.., hs, hv] = inputs.sizes();
                seen(inputs) * (2 * hs as u64 + 2 * hv as u64 + SOFTMAX)
            }
            // scores and their gradient, and the gradients that are asked for
            Call::AttentionGrad { inputs, needs: [q, k, v], .. } => {
                let [.., hs, hv] = inputs.sizes();
                let products =
                    (1 + u64::from(q) + u64::from(k)) * hs as u64 + (1 + u64::from(v)) * hv as u64;
                seen(inputs) * (2 * products + SOFTMAX)
            }
        }
    }
}

/// How many elements of its storage `x` looks at.
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

/// Pairs of query and key that the options let meet; a mask is not looked into.
fn seen(inputs: &AttentionInputs<'_>) -> u64 {
    let [queries, keys, hs, _] = inputs.sizes();
    let heads = inputs.q.numel() / (queries * hs).max(1);
    let pairs: usize = (0..queries).map(|i| inputs.options.keys(i, keys).len()).sum();
    (heads * pairs) as u64
}
