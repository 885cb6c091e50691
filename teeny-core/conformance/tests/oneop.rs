//! The fuzzer of single operations on the oracle and on devices with one fault each.

use crate::broken::{Broken, Fault};
use teeny_conformance::oneop::{Rules, Site, check, generate, names};
use teeny_core::{DeviceRef, Lazy, Reference};

struct Only(DeviceRef);

impl Site for Only {
    fn device(&self) -> &DeviceRef {
        &self.0
    }
}

/// The first finding of `cases` cases on `device`.
fn first_finding(device: DeviceRef, cases: u64, only: Option<&str>) -> Option<String> {
    let site = Only(device);
    let rules = Rules { rounds_each_step: true, ..Rules::default() };
    (0..cases).find_map(|number| {
        let case = generate(1, number, only).unwrap();
        check(&case, &[&site], rules).err().map(|why| format!("{why}: {}", case.describe()))
    })
}

#[test]
fn the_oracle_agrees_with_itself() {
    assert_eq!(first_finding(Reference::new(), 3_000, None), None);
}

#[test]
fn the_recording_device_agrees_with_what_it_records_for() {
    assert_eq!(first_finding(Lazy::new(Reference::new()), 3_000, None), None);
}

#[test]
fn a_case_depends_on_its_seed_and_number_alone() {
    for name in names() {
        let describe = |seed| generate(seed, 5, Some(name)).unwrap().describe();
        assert_eq!(describe(3), describe(3));
        assert_ne!(describe(3), describe(4));
    }
    assert!(generate(1, 0, Some("no such operation")).is_err());
}

#[test]
fn faults_are_found() {
    let faults = [
        (Fault::Matmul, "matmul"),
        (Fault::ArgMaxTies, "reduce"),
        (Fault::SortTies, "sort"),
        (Fault::Random, "random"),
        (Fault::Copy, "slice_assign"),
        (Fault::Upload, "download"),
        (Fault::Fails, "scan"),
    ];
    for (fault, family) in faults {
        let finding = first_finding(Broken::new(fault), 500, Some(family));
        assert!(finding.is_some(), "{fault:?}");
    }
}

#[test]
fn what_is_not_wrong_is_no_finding() {
    for fault in [Fault::SumBackwards, Fault::NoF64] {
        assert_eq!(first_finding(Broken::new(fault), 1_000, Some("reduce")), None, "{fault:?}");
    }
}

#[test]
fn a_site_with_other_bits_is_a_finding() {
    let sites = [Only(Reference::new()), Only(Broken::new(Fault::Random))];
    let found = (0..200).any(|number| {
        let case = generate(2, number, Some("random")).unwrap();
        check(&case, &[&sites[0], &sites[1]], Rules::default()).is_err()
    });
    assert!(found);
}
