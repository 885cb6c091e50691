//! The valid requests of the conformance suite with the answers that they must give, by hand.

use teeny_core::DType::{self, F32, I32, I64};
use teeny_core::{DeviceRef, Op, Result};

/// A valid op, and its name, operands and outputs by hand.
pub struct Sample<'a> {
    pub variant: &'static str,
    pub name: &'static str,
    pub operands: &'static [&'static str],
    pub outputs: &'static [(&'static [usize], DType)],
    pub op: Op<'a>,
}

/// Variant, name, operands and outputs.
type Answer = (&'static str, &'static str, Names, &'static [(&'static [usize], DType)]);
type Names = &'static [&'static str];

const PAIR: Names = &["input 0", "input 1"];
const MASKED: Names = &["q", "k", "v", "mask", "y", "lse", "g"];
const PLAIN: &[(&[usize], DType)] = &[(&[2, 3], F32)];
const COLUMN: &[(&[usize], DType)] = &[(&[2, 1], F32)];
const POOLED: &[(&[usize], DType)] = &[(&[1, 2, 2, 2], F32)];

#[rustfmt::skip]
const ANSWERS: &[Answer] = &[
    ("Elementwise", "add", PAIR, PLAIN),
    ("Elementwise", "kernel", PAIR, &[(&[2, 3], F32), (&[2, 3], F32)]),
    ("Elementwise", "mul", &["input 0"], PLAIN),
    ("ElementwiseInPlace", "add", &["other"], &[]),
    ("ElementwiseInPlace", "exp", &[], &[]),
    ("ElementwiseMany", "elementwise_many", &["input", "input", "input", "input"],
        &[(&[2, 3], F32), (&[2, 3], F32), (&[3], F32), (&[3], F32)]),
    ("ReduceKernel", "reduce_kernel", PAIR, &[(&[3], F32)]),
    ("Reduce", "argmax", &["x"], &[(&[2, 3], I32)]),
    ("Reduce", "sum", &["x"], &[(&[2], F32)]),
    ("Scan", "cumsum", &["x"], PLAIN),
    ("Matmul", "matmul", &["lhs", "rhs"], &[(&[2, 4, 5], F32)]),
    ("MatmulKernel", "matmul_kernel", &["lhs", "rhs", "input 1"],
        &[(&[2, 4, 5], F32), (&[2, 4, 5], F32)]),
    ("Gather", "gather", &["x", "index"], &[(&[1, 3], F32)]),
    ("Scatter", "scatter", &["x", "index", "src"], PLAIN),
    ("Gather", "gather", &["x", "index"], &[(&[1, 3], F32)]),
    ("Scatter", "scatter", &["x", "index", "src"], PLAIN),
    ("Gather", "gather", &["x", "index"], &[(&[4], F32)]),
    ("CopyInto", "copy_into", &["src"], &[(&[6], F32)]),
    ("CumMax", "cummax", &["x"], &[(&[2, 3], F32), (&[2, 3], I32)]),
    ("Sort", "sort", &["x"], &[(&[2, 3], F32), (&[2, 3], I32)]),
    ("TopK", "topk", &["x"], &[(&[2, 2], F32), (&[2, 2], I32)]),
    ("Pad", "pad", &["x"], &[(&[3, 5], F32)]),
    ("Tri", "tril", &["x"], PLAIN),
    ("Tri", "triu", &["x"], PLAIN),
    ("Contiguous", "contiguous", &["x"], PLAIN),
    ("Positions", "positions", &["index", "index"], &[(&[1, 3], I64)]),
    ("Random", "random", &[], PLAIN),
    ("Cat", "cat", &["tensor", "tensor", "tensor"], &[(&[6, 3], F32)]),
    ("Rows", "softmax", &["x"], PLAIN),
    ("Rows", "log_softmax", &["x"], PLAIN),
    ("Rows", "softmax_grad", &["y", "g"], PLAIN),
    ("Rows", "log_softmax_grad", &["y", "g"], PLAIN),
    ("Rows", "cross_entropy", &["x", "targets"], COLUMN),
    ("Rows", "cross_entropy_grad", &["x", "targets", "g"], PLAIN),
    ("Rows", "cross_entropy", &["x", "targets"], COLUMN),
    ("Rows", "cross_entropy_grad", &["x", "targets", "g"], PLAIN),
    ("Rows", "layer_norm", &["x"], PLAIN),
    ("Rows", "layer_norm", &["x", "weight"], PLAIN),
    ("Rows", "layer_norm", &["x", "weight", "bias"], PLAIN),
    ("Rows", "rms_norm_grad", &["x", "g"], PLAIN),
    ("Rows", "rms_norm_grad", &["x", "weight", "g"], PLAIN),
    ("Rows", "rows", PAIR, &[(&[2, 3], F32), (&[2, 1], F32)]),
    ("Rows", "rows", PAIR, &[(&[2, 3], F32), (&[1, 3], F32)]),
    ("Rows", "rows", PAIR, &[(&[2, 3], F32), (&[1, 1], F32)]),
    ("Conv", "conv", &["x", "weight"], &[(&[1, 4, 3, 3], F32)]),
    ("ConvKernel", "conv_kernel", &["x", "weight", "input 1"], &[(&[1, 4, 3, 3], F32)]),
    ("ConvInputGrad", "conv_input_grad", &["g", "weight"], &[(&[1, 2, 5, 5], F32)]),
    ("ConvWeightGrad", "conv_weight_grad", &["g", "x"], &[(&[4, 1, 3, 3], F32)]),
    ("MaxPool", "max_pool", &["x"], &[(&[1, 2, 2, 2], F32), (&[1, 2, 2, 2], I32)]),
    ("MaxPoolGrad", "max_pool_grad", &["g", "positions"], &[(&[1, 2, 5, 5], F32)]),
    ("AvgPool", "avg_pool", &["x"], POOLED),
    ("Conv", "conv", &["x", "weight"], &[(&[1, 2, 2, 2, 1, 2], F32)]),
    ("MaxPool", "max_pool", &["x"],
        &[(&[1, 2, 2, 2, 1, 2], F32), (&[1, 2, 2, 2, 1, 2], I32)]),
    ("AvgPool", "avg_pool", &["x"], &[(&[1, 2, 2, 2, 1, 2], F32)]),
    ("Attention", "attention", &["q", "k", "v"], &[(&[2, 2, 2], F32), (&[2, 2], F32)]),
    ("AttentionGrad", "attention_grad", &["q", "k", "v", "y", "lse", "g"],
        &[(&[2, 2, 3], F32), (&[2, 4, 2], F32)]),
    ("Attention", "attention", &["q", "k", "v", "mask"], &[(&[2, 2, 2], F32), (&[2, 2], F32)]),
    ("AttentionGrad", "attention_grad", MASKED, &[(&[2, 2, 3], F32), (&[2, 4, 2], F32)]),
    ("QuantMatmul", "quant_matmul", &["x", "blocks"], &[(&[2, 20], F32)]),
    ("QuantRows", "quant_rows", &["blocks", "index"], &[(&[2, 2, 64], F32)]),
    ("Linalg", "solve", &["a", "b"], &[(&[2, 2], F32)]),
    ("Linalg", "svd", &["a"], &[(&[2, 2], F32), (&[2], F32), (&[2, 2], F32)]),
];

/// Calls `visit` with valid ops of every variant, on new operands.
pub fn valid(device: &DeviceRef, mut visit: impl FnMut(Sample<'_>)) -> Result<()> {
    let mut answers = ANSWERS.iter();
    teeny_conformance::valid_requests(device, |variant, op| {
        let &(known, name, operands, outputs) = answers.next().expect("an answer for every op");
        assert_eq!(variant, known);
        visit(Sample { variant, name, operands, outputs, op });
    })?;
    assert!(answers.next().is_none(), "an op for every answer");
    Ok(())
}
