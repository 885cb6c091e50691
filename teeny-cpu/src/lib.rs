//! The CPU engine of teeny: [`Cpu`], a `teeny_core::Device`.
//!
//! ```text
//!   device ─► elementwise  reduce  scan  matmul  conv  pooling  index  sort  random  copy  fused
//!                │           │            │
//!              walk: strided views      threads: chunks on rayon's threads; cost: how many
//!                │                        │
//!              simd, vecmath: vectors   transpose: blocks in registers
//!
//!   loops: operations over elements, by dtype   machine: programs of floats in registers
//!   pool, scratch, storage, os_memory: memory of tensors and of tasks
//!   typed, float, half: raw memory as slices, dtypes as types, 16-bit floats
//! ```
//! The instruction set is chosen at run time ([`Level`]); results do not depend on the number of
//! threads. [`blas`] works on plain slices, without tensors.

pub mod blas;
mod border;
mod bytes;
mod conv;
mod copy;
mod cost;
mod cum_max;
mod device;
mod elementwise;
mod engine;
mod float;
mod fork;
mod fused;
mod guard;
mod half;
mod index;
mod kernel_cache;
mod loops;
mod machine;
mod matmul;
mod os_memory;
mod pool;
mod pooling;
mod processor;
mod quant;
mod random;
mod reduce;
mod reverse;
mod rows;
mod scan;
mod scratch;
mod simd;
mod sort;
mod storage;
mod threads;
mod transpose;
mod typed;
mod vecmath;
mod walk;
mod window;

#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod pool_tests;
#[cfg(test)]
mod vecmath_tests;

pub use device::FloatMatmul;
pub use device::{Cpu, CpuOptions};
pub use pool::PoolStats;
pub use simd::Level;
#[cfg(feature = "simulate")]
pub use threads::simulated::{Report, simulate};
pub use threads::threads;
