//! The CPU engine of teeny.
mod os_memory;
mod pool;
#[cfg(test)]
mod pool_tests;
mod simd;
mod threads;
#[cfg(test)]
mod threads_tests;
mod vecmath;
#[cfg(test)]
mod vecmath_tests;
pub use simd::Level;
