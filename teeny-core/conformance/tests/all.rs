//! The integration tests of this crate in one program: the suite and the fuzzers pass on the oracle
//! and on small devices, and notice faults.

#[path = "../../tests/support/awaited.rs"]
mod awaited;
#[allow(dead_code)] // shared with the tests of wrappers
#[path = "../../tests/wrappers/broken.rs"]
mod broken;
#[path = "op/counter.rs"]
mod counter;
#[path = "op/matmul_only.rs"]
mod matmul_only;
#[path = "op/samples.rs"]
mod samples;

mod finds;
mod golden;
mod limits;
mod mutants;
mod oneop;
mod op;
mod suite;
#[path = "third_party/main.rs"]
mod third_party;
