//! The library of the example programs: help and exit codes ([`Program`]), their common options
//! ([`Common`]), the parts of a training program besides the training ([`Run`]), steps that may be
//! replayed or run on several ranks ([`Step`], [`Update`], [`Ranks`]), data ([`locate`]),
//! pretrained models (`pretrained`), and models and workloads ([`digits`], [`makemore`],
//! [`mod@bench`], `cost`).
#![forbid(unsafe_code)]

// before the modules that use its macros
#[macro_use]
pub mod output;

pub mod bench;
#[cfg(feature = "distributed")]
pub mod cost;
pub mod digits;
#[cfg(feature = "download")]
mod download;
mod graph;
pub mod locate;
pub mod makemore;
pub mod options;
#[cfg(feature = "pretrained")]
pub mod pretrained;
mod program;
pub mod ranks;
mod step;
pub mod training;
#[cfg(feature = "pretrained")]
pub mod tuning;
mod update;

pub use options::{Common, Opt, Parsed, opt};
pub use program::Program;
pub use ranks::Ranks;
pub use step::Step;
pub use training::Run;
pub use update::Update;
