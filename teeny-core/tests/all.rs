//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

#[path = "support/awaited.rs"]
mod awaited;
#[path = "wrappers/broken.rs"]
mod broken;
#[cfg(feature = "conformance")]
#[path = "op/counter.rs"]
mod counter;
#[cfg(feature = "conformance")]
#[path = "op/matmul_only.rs"]
mod matmul_only;
#[cfg(feature = "conformance")]
#[path = "op/samples.rs"]
mod samples;
mod support;

mod arrangements;
mod asynchronous;
mod attention;
mod capture;
mod conformance;
mod conformance_finds;
mod display;
mod error_texts;
mod errors;
mod features;
mod files;
mod fusion;
mod golden;
mod groups;
mod index;
mod kernel;
mod lazy;
mod modules;
mod npy;
mod oneop;
mod op;
mod parts;
mod quant;
mod random;
mod ranges;
mod reference;
mod regressions;
mod rows;
mod rules;
mod structure;
#[path = "third_party/main.rs"]
mod third_party;
mod views;
mod wrappers;
