//! The ends of integer types and exact results on the oracle and the recording device.

use teeny_conformance::golden::Verdict;
use teeny_conformance::limits::{exact_points, integers};
use teeny_core::{DType, Lazy, Reference};

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

#[track_caller]
fn at_least(cases: usize, verdict: Verdict) {
    match verdict {
        Ok(count) => assert!(count >= cases, "only {count} cases"),
        Err(failures) => panic!("{failures}"),
    }
}

#[test]
fn integers_wrap_at_the_ends_of_their_types() {
    at_least(500, integers(Reference::new()));
    at_least(500, integers(Lazy::new(Reference::new())));
}

#[test]
fn functions_with_an_exact_result_return_it() {
    for dtype in FLOATS {
        at_least(45, exact_points(Reference::new(), dtype));
        at_least(45, exact_points(Lazy::new(Reference::new()), dtype));
    }
}
