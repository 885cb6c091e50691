//! Data sets and how they become batches: the IDX format, MNIST, the built-in digits, names, long
//! texts, made-up data, the loader.

pub mod corpus;
pub mod digits;
pub mod generated;
pub mod idx;
mod loader;
pub mod mnist;
pub mod names;
pub mod sentiment;

pub use corpus::Corpus;
pub use loader::{DataLoader, Dataset, ImageBatches};
pub use names::Names;
