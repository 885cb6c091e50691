//! Data sets and loaders.
//!
//! | module | contents |
//! |---|---|
//! | here | [`DataLoader`]; a [`Dataset`] of tensors, or [`Subset`], [`Concat`], [`Map`] |
//! | here | [`Table`] and [`TableEncoder`]: CSV files; [`SeriesWindows`]: time series |
//! | [`csv`] | the records of CSV and TSV |
//! | [`images`] | transforms, folders of images (feature `image`) |
//! | [`mnist`] [`idx`] | MNIST, and the format of its files |
//! | [`digits`] | 1,797 digits that are part of the crate |
//! | [`corpus`] | long texts for language models |
//! | [`generated`] [`sentiment`] | generated data sets |

pub mod corpus;
pub mod csv;
mod dataset;
pub mod digits;
pub mod generated;
pub mod idx;
pub mod images;
mod loader;
pub mod mnist;
pub mod sentiment;
mod series;
mod shard;
mod table;

pub use corpus::Corpus;
pub use dataset::{Collate, Concat, Dataset, Map, Portion, Subset, require_items};
pub use loader::{DataLoader, Prefetch};
pub use mnist::ImageBatches;
pub use series::SeriesWindows;
pub use table::{Table, TableEncoder};
