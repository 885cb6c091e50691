//! The integration tests of this crate in one program, since linking takes much of a test's time.
//! Tests that need a separate process or allocator are separate programs.

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
mod quant;
mod row_loops;
mod row_programs;
mod rows;
mod special;
mod structure;
mod uploads;
mod windows;
mod wrappers;
