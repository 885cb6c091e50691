//! Data sets and how they become batches: the IDX format, MNIST, the built-in digits, the loader.

pub mod digits;
pub mod idx;
mod loader;
pub mod mnist;

pub use loader::{DataLoader, Dataset, ImageBatches};
