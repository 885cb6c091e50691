//! The integration tests of this crate in one program: linking is a large part of the time that a
//! test takes. What needs a process or an allocator of its own is a program beside this one.

#[path = "../../teeny-core/tests/support/awaited.rs"]
mod awaited;
mod common;

mod accumulation;
mod asynchronous;
mod backward;
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
mod recording;
mod second_order;
mod special_points;
mod views;
mod windows;
mod wrappers;
