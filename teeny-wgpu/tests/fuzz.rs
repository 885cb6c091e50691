//! Random graphs of operations, on the GPU and on the oracle.

mod common;

use teeny_core::conformance::fuzz;

#[test]
fn a39_random_graphs_agree_with_the_oracle() {
    let Some(gpu) = common::gpu() else { return };
    let graphs = std::env::var("TEENY_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(2000);
    if let Err(report) = fuzz(&gpu, graphs, 20) {
        panic!("{report}");
    }
    println!("{:?}", gpu.counters());
}
