//! The suite that every device must pass, with shaders checked and trusted, and random graphs of operations.

mod common;

use std::sync::Arc;
use teeny_core::DType;
use teeny_core::conformance::{Report, Suite};
use teeny_wgpu::{Options, Shaders, Wgpu};

/// What GPUs are forgiven, with reasons.
fn suite(gpu: &Arc<Wgpu>) -> Suite {
    let twice = "the oracle rounds f64 to bf16 and f16 by way of its upper 32 bits, which is twice";
    Suite::new(gpu).flushes_subnormals().loses_zero_signs().allow("cast", DType::U64, 2.0, twice)
}

fn run(shaders: Shaders) -> Option<Report> {
    common::gpu()?;
    let gpu = Wgpu::with_options(&Options { shaders, ..Options::default() }).unwrap();
    let mut suite = suite(&gpu);
    // The types of the second run stand for their classes: packed, whole, rounded.
    suite = match shaders {
        Shaders::Trusted => suite.trusts_indices(),
        Shaders::Checked => suite.dtypes(&[DType::Bool, DType::I8, DType::U32, DType::F16, DType::F32]),
    };
    if let Ok(op) = std::env::var("TEENY_ONLY") {
        suite = suite.only(&op);
    }
    let report = suite.run();
    println!("{}", report.markdown());
    println!("{:?}", gpu.counters());
    Some(report)
}

#[test]
fn a46_the_suite_passes_with_trusted_shaders() {
    let Some(report) = run(Shaders::Trusted) else { return };
    assert!(report.passed(), "{report}");
}

#[test]
fn a46_the_suite_passes_with_checked_shaders() {
    let Some(report) = run(Shaders::Checked) else { return };
    assert!(report.passed(), "{report}");
}
