//! The suite on the oracle itself: every case must be legal, quick, and agree with its own repetition.
#![cfg(feature = "conformance")]

use teeny_core::Reference;
use teeny_core::conformance::{self, Cell};

#[test]
fn the_oracle_agrees_with_itself_in_every_case() {
    let report = conformance::run(&Reference::new()).unwrap();
    println!("{report}");
    assert!(report.cases() > 10_000, "{}", report.cases());
    let defined =
        |op: &str| report.rows().iter().find(|(name, _)| *name == op).map(|(_, cells)| cells.iter().filter(|c| **c != Cell::Undefined).count());
    assert_eq!(defined("cast"), Some(13));
    assert_eq!(defined("add"), Some(13));
    assert_eq!(defined("softmax"), Some(4));
}

#[test]
fn ten_thousand_random_graphs_agree_with_themselves() {
    conformance::fuzz(&Reference::new(), 10_000, 1).unwrap();
}
