//! The integration tests of this crate in one program: linking is a large part of the time that a
//! test takes. What needs a process or an allocator of its own is a program beside this one.

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
mod ranks;
mod recording;
mod scatter;
mod training;
