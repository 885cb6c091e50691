//! The library of the example programs: help and exit codes ([`Program`]), the options that all of
//! them have ([`Common`]), the parts of a training program besides the training ([`Run`]), steps
//! that may be replayed ([`Step`]), data ([`locate`]), and models and workloads ([`digits`], [`makemore`], [`mod@bench`]).
#![forbid(unsafe_code)]

mod bar;
pub mod bench;
pub mod digits;
#[cfg(feature = "download")]
mod download;
mod graph;
#[cfg(feature = "download")]
mod http;
pub mod locate;
pub mod makemore;
pub mod options;
mod program;
mod step;
pub mod training;

pub use bar::Bar;
pub use options::{Common, Parsed};
pub use program::Program;
pub use step::Step;
pub use training::Run;
