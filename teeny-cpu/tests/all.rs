//! The integration tests of this crate in one program: linking is a large part of the time that a
//! test takes. What needs a process or an allocator of its own is a program beside this one.

mod common;

mod attention;
mod blas;
mod conformance;
mod convolutions;
mod door;
mod door_generated;
mod elementwise;
mod fused;
mod matmul_only;
mod memory;
mod numerics;
mod numerics_windows;
mod pooling;
mod product_kernels;
mod products;
mod row_loops;
mod rows;
mod special;
mod structure;
mod windows;
mod wrappers;
