//! A device that accelerates matmul only, on top of the CPU engine: it passes the conformance suite
//! and random graphs.

#[path = "../../teeny-core/conformance/tests/op/matmul_only.rs"]
mod device;

use std::sync::Arc;
use teeny_conformance::Suite;
use teeny_core::DeviceRef;
use teeny_cpu::Cpu;

#[test]
fn a_device_that_accelerates_matmul_only_on_top_of_the_cpu_passes_the_suite() {
    assert!(
        include_str!("../../teeny-core/conformance/tests/op/matmul_only.rs").lines().count() < 40
    );
    let device: DeviceRef = Arc::new(device::MatmulOnly(Cpu::new()));
    let report = Suite::new(&device).every(8).run();
    assert!(report.passed(), "{report}");
    teeny_conformance::fuzz(&device, 2_000, 18).unwrap_or_else(|failure| panic!("{failure}"));
}
