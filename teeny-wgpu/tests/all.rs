//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

mod common;

mod asynchronous;
mod basics;
mod conformance;
mod conv;
mod cooperative;
mod edges;
mod fuzz;
mod gradients;
mod large;
mod launches;
mod limits;
mod matmul;
#[path = "precision/main.rs"]
mod precision;
mod quant;
mod ranks;
mod recording;
mod scatter;
mod training;
