//! A third party's device passes the suite.

mod device;

use device::Bytewise;
use std::sync::Arc;
use teeny_conformance::Suite;

#[test]
fn a_device_of_five_methods_passes_the_suite() {
    let n = 4; // each case of an operation goes the same way
    let report = Suite::new(Arc::new(Bytewise)).every(n).run();
    assert!(report.passed() && n * report.cases() > 10_000, "{report}");
}

#[test]
fn a_device_of_five_methods_agrees_on_random_graphs() {
    teeny_conformance::fuzz(Arc::new(Bytewise), 2_000, 41).unwrap();
}
