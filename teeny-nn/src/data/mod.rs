//! Data sets and how they become batches: the IDX format, MNIST, the built-in digits.

pub mod digits;
pub mod idx;
pub mod mnist;
