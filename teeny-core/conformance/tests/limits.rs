//! The ends of integer types on the oracle and the recording device.

use teeny_conformance::golden::Verdict;
use teeny_conformance::limits::integers;
use teeny_core::{Lazy, Reference};

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
