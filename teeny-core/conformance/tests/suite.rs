//! The suite on the oracle itself: every case must be legal, quick, and agree with its own
//! repetition.

use crate::awaited;
use crate::awaited::Awaited;
use std::cell::Cell as Counter;
use std::time::{Duration, Instant};
use teeny_conformance::{Cell, Suite, every};
use teeny_core::{Lazy, Reference};

#[test]
fn the_oracle_agrees_with_itself_in_every_case() {
    let report = Suite::new(Reference::new()).every(every(4)).run();
    println!("{report}");
    assert!(report.passed() && report.cases() > 10_000, "{}", report.cases());
    let defined = |op: &str| {
        report
            .rows()
            .iter()
            .find(|(name, _)| *name == op)
            .map(|(_, cells)| cells.iter().filter(|c| **c != Cell::Undefined).count())
    };
    assert_eq!(defined("cast"), Some(13));
    assert_eq!(defined("add"), Some(13));
    assert_eq!(defined("softmax"), Some(4));
}

#[test]
fn a_sample_touches_every_family_and_ends_in_time() {
    let start = Instant::now();
    let report = Suite::new(Reference::new()).within(Duration::from_secs(1)).run();
    assert!(report.passed() && start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    assert!(report.cases() > 50 && report.cases() < 100_000, "{}", report.cases());
    for op in ["sum", "matmul", "gather"] {
        assert!(report.rows().iter().any(|(name, _)| name.contains(op)), "{report}");
    }
    let all = Suite::new(Reference::new()).only("matmul");
    let (sample, all) = (
        Suite::new(Reference::new()).only("matmul").within(Duration::from_secs(600)).run(),
        all.run(),
    );
    assert_eq!(sample.cases(), all.cases(), "with time enough a sample is the whole");
}

#[test]
fn a_device_that_can_only_be_awaited_is_held_against_the_oracle() {
    let pauses = Counter::new(0);
    let pause = || async { pauses.set(pauses.get() + 1) };
    let device = Awaited::in_browser();
    let suite = Suite::new(&device).only("matmul");
    let report = awaited::run(suite.run_async(pause));
    let waited = Suite::new(Reference::new()).only("matmul").run();
    assert!(report.passed(), "{report}");
    assert_eq!((report.cases(), report.rows().len()), (waited.cases(), waited.rows().len()));
    assert!(pauses.get() >= report.cases(), "{} pauses", pauses.get());
    // a result that cannot be read is a failure
    device.fail();
    let report = awaited::run(suite.run_async(|| async {}));
    assert_eq!(report.failures().len(), 1, "{report}");
    assert!(report.failures()[0].contains("the device was lost"), "{report}");
}

#[test]
fn ten_thousand_random_graphs_agree_with_themselves() {
    teeny_conformance::fuzz(Reference::new(), 10_000, 1).unwrap();
}

/// Positions outside an axis are found when a result is read.
#[test]
fn the_recording_device_agrees_with_what_it_records_for() {
    let n = every(8);
    let report = Suite::new(Lazy::new(Reference::new())).every(n).trusts_indices().run();
    assert!(report.passed() && n * report.cases() > 10_000, "{report}");
    teeny_conformance::fuzz(Lazy::new(Reference::new()), 10_000, 2).unwrap();
}
