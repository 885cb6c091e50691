//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

#[path = "../../teeny-core/tests/support/awaited.rs"]
mod awaited;
mod common;

mod accumulation;
mod asynchronous;
mod backward;
mod batch_members;
mod broadcasting;
mod cache;
mod capstone;
mod causes;
mod cpu;
mod depth;
mod fixtures;
mod forward;
mod function;
mod functions;
mod gradcheck;
mod graph;
mod linalg;
mod mistakes;
mod operators;
mod padded_windows;
mod product_kernels;
mod random_rows;
mod recording;
mod rows;
mod second_order;
mod special_points;
mod torch_functions;
mod views;
mod windows;
mod wrappers;
