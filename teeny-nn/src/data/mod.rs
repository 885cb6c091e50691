//! Data sets and loaders.
//!
//! | module | contents |
//! |---|---|
//! | here | [`DataLoader`], which makes batches of a [`Dataset`] |
//! | [`mnist`] [`idx`] | MNIST, and the format of its files |
//! | [`digits`] | 1,797 digits that are part of the crate |
//! | [`corpus`] | long texts for language models |
//! | [`names`] | lists of names |
//! | [`generated`] [`sentiment`] | generated data sets |

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
