//! Devices around the CPU pass the suite that the CPU passes: nothing gets lost on the way, and two
//! engines agree on all of it.

use std::sync::Arc;
use teeny_conformance::Suite;
use teeny_core::wrappers::{Checked, Checks, Compare, Trace};
use teeny_core::{DeviceRef, Reference};
use teeny_cpu::Cpu;

/// Wrappers run the first case of each operation and type, and every fourth case of the suite.
const SAMPLE: usize = 4;

#[track_caller]
fn passes(device: &DeviceRef) {
    let report = Suite::new(device).every(SAMPLE).run();
    assert!(report.passed() && SAMPLE * report.cases() > 10_000, "{report}");
}

#[test]
fn a_traced_cpu_passes_the_suite() {
    let trace = Trace::new(Cpu::new());
    passes(&(trace.clone() as DeviceRef));
    assert!(trace.summary().contains("attention"));
}

#[test]
fn a_checked_cpu_passes_the_suite_where_findings_do_not_stop_it() {
    let checked = Checked::with(Cpu::new(), Checks::new().with_stop(false));
    passes(&(checked.clone() as DeviceRef));
    let findings = checked.findings().len();
    assert!(findings > 0, "the suite divides by zero");
}

#[test]
fn the_cpu_and_the_oracle_agree_in_every_operation_of_the_suite() {
    let compare: Arc<Compare> = Compare::new(Cpu::new(), Reference::new());
    // Of random operands the suite knows how exact a result can be, which a comparison does not.
    let suite = Suite::new(&(compare.clone() as DeviceRef)).without("random operation");
    let report = suite.every(SAMPLE).run();
    assert!(report.passed() && SAMPLE * report.cases() > 10_000, "{report}");
    assert!(
        SAMPLE as u64 * compare.compared() > 10_000 && compare.skipped() == 0,
        "{} compared, {} skipped",
        compare.compared(),
        compare.skipped()
    );
}
