//! Core's conformance suite and its random graphs, at every instruction level.

mod common;
use teeny_core::conformance;

#[test]
fn the_suite_passes_at_every_level() {
    for device in common::devices() {
        conformance::run(&device).unwrap_or_else(|report| panic!("{device:?}\n{report}"));
    }
}

#[test]
fn random_graphs_agree_with_the_oracle_at_every_level() {
    for (seed, device) in common::devices().into_iter().enumerate() {
        conformance::fuzz(&device, 2000, seed as u64)
            .unwrap_or_else(|failure| panic!("{device:?}\n{failure}"));
    }
}
