//! A third party's device passes the suite.
#![cfg(feature = "conformance")]

mod device;

use device::Bytewise;
use std::sync::Arc;
use teeny_core::conformance::{self, Suite, every};

#[test]
fn a_device_of_five_methods_passes_the_suite() {
    let n = every(8);
    let report = Suite::new(&Arc::new(Bytewise)).every(n).run();
    assert!(report.passed() && n * report.cases() > 10_000, "{report}");
}

#[test]
fn a_device_of_five_methods_agrees_on_random_graphs() {
    conformance::fuzz(&Arc::new(Bytewise), 2_000, 41).unwrap();
}
