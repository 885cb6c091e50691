//! PyTorch's answers against the oracle, in every float type: rows A06 and A10 to A18.

use teeny_conformance::golden::{self, Verdict};
use teeny_core::{DType, Reference};

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

#[track_caller]
fn at_least(cases: usize, verdict: Verdict) {
    match verdict {
        Ok(count) => assert!(count >= cases, "only {count} cases"),
        Err(failures) => panic!("{failures}"),
    }
}

#[test]
fn reshape_and_view_agree_with_torch_on_two_hundred_layouts() {
    at_least(200, golden::views(Reference::new()));
}

#[test]
fn promotion_is_that_of_torch_for_every_pair_of_types() {
    at_least(13 * 13 + 13 * 4, golden::promotion());
}

#[test]
fn casts_between_all_types_agree_with_torch() {
    at_least(13 * 13, golden::cast(Reference::new()));
}

#[test]
fn functions_of_one_operand_agree_with_torch() {
    FLOATS.iter().for_each(|&t| at_least(45, golden::unary(Reference::new(), t)));
}

#[test]
fn functions_of_two_operands_broadcast_and_agree_with_torch() {
    // The file's operands are f32: halves cannot hold them.
    [DType::F64, DType::F32]
        .iter()
        .for_each(|&t| at_least(110, golden::binary(Reference::new(), t)));
}

#[test]
fn reductions_agree_with_torch() {
    [DType::F64, DType::F32]
        .iter()
        .for_each(|&t| at_least(180, golden::reduce(Reference::new(), t)));
}

#[test]
fn matrix_products_agree_with_torch() {
    [DType::F64, DType::F32]
        .iter()
        .for_each(|&t| at_least(26, golden::matmul(Reference::new(), t)));
}

#[test]
fn softmax_and_logsumexp_of_extreme_rows_agree_with_torch() {
    [DType::F64, DType::F32]
        .iter()
        .for_each(|&t| at_least(21, golden::softmax(Reference::new(), t)));
}

#[test]
fn convolution_and_pooling_agree_with_torch() {
    [DType::F64, DType::F32].iter().for_each(|&t| at_least(25, golden::conv(Reference::new(), t)));
}
