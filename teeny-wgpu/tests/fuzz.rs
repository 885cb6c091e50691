//! Random graphs of operations, on the GPU and on the oracle: 2,000 in all, or `TEENY_FUZZ`. In two
//! halves, since each spends its time compiling shaders on one thread: about 2,000 kernels, which a
//! software driver without a shader cache translates at 30 ms each.

use crate::common;
use teeny_conformance::fuzz;

fn half(seed: u64) {
    let Some(gpu) = common::gpu() else { return };
    let graphs: usize =
        std::env::var("TEENY_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(2000);
    if let Err(report) = fuzz(&gpu, graphs.div_ceil(2), seed) {
        panic!("{report}");
    }
    println!("{:?}", gpu.counters());
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    half(20);
}

#[test]
fn other_random_graphs_agree_with_the_oracle() {
    half(21);
}
