//! The CPU engine of teeny: [`Cpu`], a `teeny_core::Device`.
//!
//! ```text
//!   device ──► elementwise  reduce  scan  matmul  index  sort  random  copy        one room per kind of work
//!                  │           │              │
//!                walk: views to tiles       gemm, microkernel: tiles of a product
//!                  │                          │
//!                simd, vecmath              threads: chunks on rayon's threads       pool, os_memory: where storages live
//! ```
//! The instruction set is chosen at run time ([`Level`]); results do not depend on the number of
//! threads. [`blas`] works on plain slices, without tensors.

pub mod blas;
mod conv;
mod copy;
mod device;
mod elementwise;
mod fork;
mod fused;
mod gemm;
mod guard;
mod half;
mod index;
mod matmul;
mod microkernel;
mod os_memory;
mod pool;
mod pool2d;
mod random;
mod reduce;
mod scan;
mod scratch;
mod simd;
mod sort;
mod storage;
mod thin;
mod threads;
mod transpose;
mod vecmath;
mod walk;
mod window;

#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod threads_tests;
#[cfg(test)]
mod vecmath_tests;

pub use device::{Cpu, CpuOptions};
pub use pool::PoolStats;
pub use simd::Level;
