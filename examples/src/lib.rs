//! What the example programs share: their surroundings ([`Program`]), the options all of them have ([`Common`]), finding their data, and the models
//! that are too many for one file ([`makemore`]).
#![forbid(unsafe_code)]

#[cfg(feature = "download")]
mod download;
mod files;
pub mod locate;
pub mod makemore;
pub mod options;
mod program;

pub use options::{Common, Parsed};
pub use program::Program;
